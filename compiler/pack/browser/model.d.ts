/** What holds the elements of a dtype; float16 and bfloat16 are bits in a Uint16Array, bool and narrower ones bytes. */
export type TensorArray =
  | Float32Array
  | Float64Array
  | Int8Array
  | Int16Array
  | Int32Array
  | BigInt64Array
  | Uint8Array
  | Uint16Array
  | Uint32Array
  | BigUint64Array;

export interface Port {
  /** As the model calls it. */
  readonly name: string;
  /** As numpy calls it. */
  readonly dtype: string;
  readonly shape: readonly number[];
  /** The least and the greatest number that an input takes; null where there is no bound. */
  readonly range?: readonly [number | null, number | null];
}

export class Model {
  readonly inputs: readonly Port[];
  readonly outputs: readonly Port[];
  readonly target: string;
  /** That run it: as many as it has lanes, or one where memory may not be shared with workers. */
  readonly threads: number;
  /** Whether each run draws other random numbers. */
  readonly random: boolean;
  /** Outputs by name, in row-major order. Rejects for an input that is missing, or of another type or size. */
  run(inputs: Readonly<Record<string, TensorArray>>): Promise<Record<string, TensorArray>>;
  /** The engine's own memory of an input, or behind these of an output: for who copies nothing. */
  port(at: number): TensorArray;
  /** One run of what lies in the memories of the inputs. */
  step(): void;
  /** Ends the other threads. */
  close(): void;
}

/** Loads the model whose manifest.json, model.wasm and weights.bin lie in a folder (by default that of this file). */
export function load(folder?: string | URL): Promise<Model>;

/** The model of a manifest, with the bytes of model.wasm (or the module compiled) and of weights.bin, or its pieces in order. */
export function create(
  manifest: unknown,
  module: BufferSource | WebAssembly.Module,
  weights: Uint8Array | AsyncIterable<Uint8Array>,
): Promise<Model>;

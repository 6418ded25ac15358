/* Runs a model that Tilewright compiled for browsers: in a page, in a worker and in Node.js, without dependencies.
 *
 *     import { load } from "./model.js";
 *     const model = await load(new URL("./", import.meta.url));
 *     const { logits } = await model.run({ image: new Float32Array(1 * 3 * 224 * 224) });
 *
 * manifest.json, model.wasm and weights.bin lie in one folder. Types: model.d.ts. A model of several lanes runs on as many
 * threads where memory may be shared: in Node.js, and in pages that are isolated from other origins. Else it runs on one.
 */

/** The array that holds elements of each dtype. What JavaScript has no numbers for is given and returned as bits. */
const ARRAYS = {
  float32: Float32Array,
  float64: Float64Array,
  int8: Int8Array,
  int16: Int16Array,
  int32: Int32Array,
  int64: BigInt64Array,
  uint8: Uint8Array,
  uint16: Uint16Array,
  uint32: Uint32Array,
  uint64: BigUint64Array,
  bool: Uint8Array,
  float16: Uint16Array,
  bfloat16: Uint16Array,
};

const LEAST_PAGES = 128, MOST_PAGES = 65535;

const arrayOf = (dtype) => ARRAYS[dtype] ?? Uint8Array;
const sizeOf = (shape) => shape.reduce((product, extent) => product * extent, 1);
const written = ({ dtype, shape }) => `${arrayOf(dtype).name} of shape [${shape.join(", ")}], ${sizeOf(shape)} elements`;

async function answered(url) {
  if (url.protocol === "file:") {
    const { createReadStream } = await import("node:fs");
    const { Readable } = await import("node:stream");
    return new Response(Readable.toWeb(createReadStream(url)));
  }
  const response = await fetch(url);
  if (!response.ok) throw new Error(`${url} cannot be fetched: HTTP ${response.status}`);
  return response;
}

/** What is read of a stream, a piece at a time: not every browser goes through one by itself. */
async function* pieces(stream) {
  const reader = stream.getReader();
  for (let read; !(read = await reader.read()).done; ) yield read.value;
}

/**
 * Loads the model whose files lie in a folder.
 *
 * @param {string | URL} folder ends with a slash; as the page is, or in Node.js a file: URL
 */
export async function load(folder = new URL("./", import.meta.url)) {
  const base = new URL(folder, globalThis.location?.href ?? import.meta.url);
  const [manifest, module, weights] = await Promise.all(
    ["manifest.json", "model.wasm", "weights.bin"].map((name) => answered(new URL(name, base))),
  );
  return create(await manifest.json(), await module.arrayBuffer(), pieces(weights.body));
}

/**
 * The model of a manifest, with the bytes of model.wasm (or a WebAssembly.Module) and of weights.bin, or the latter's
 * pieces in their order (an async iterable): each goes into the module's memory, and no whole copy is held beside it.
 */
export async function create(manifest, module, weights) {
  const compiled = module instanceof WebAssembly.Module ? module : await WebAssembly.compile(module).catch(explained(manifest));
  const engine = await instantiated(compiled);
  engine._initialize?.();
  const lanes = Math.min(manifest.lanes ?? 1, globalThis.navigator?.hardwareConcurrency ?? Infinity);
  const workers = engine.tw_work ? await hired(lanes - 1, compiled, engine) : [];
  try {
    let at = engine.tw_weights() >>> 0;
    if (!at) throw tooLarge();
    for await (const piece of ArrayBuffer.isView(weights) ? [weights] : weights) {
      if (at + piece.length > engine.memory.buffer.byteLength) throw tooLarge();
      new Uint8Array(engine.memory.buffer, at).set(piece);
      at += piece.length;
    }
    return new Model(manifest, engine, workers);
  } catch (error) {
    for (const worker of workers) worker.terminate();
    throw error;
  }
}

/** Why a module may be none here. */
const explained = (manifest) => (error) => {
  const features = manifest.requires?.features ?? [];
  if (!features.includes("relaxed-simd")) throw error;
  throw new Error("this browser may lack relaxed SIMD: compile the model with target wasm:simd128", { cause: error });
};

const tooLarge = () => new RangeError("the model does not fit: the browser gives this page less memory than it needs");

/** What a module exports, and its memory, which it takes from here where threads may share it. */
export async function instantiated(compiled) {
  const memory = WebAssembly.Module.imports(compiled).length ? sharedMemory() : undefined;
  const { exports } = await WebAssembly.instantiate(compiled, memory && { env: { memory } });
  return memory ? { ...exports, memory } : exports;
}

/** The most that this machine lends: memory that is shared cannot move when it grows. */
function sharedMemory() {
  for (let maximum = MOST_PAGES; ; maximum >>= 1)
    try {
      return new WebAssembly.Memory({ initial: LEAST_PAGES, maximum, shared: true });
    } catch (error) {
      if (maximum <= LEAST_PAGES) throw error;
    }
}

/** Workers that are ready, one for each lane from 1 on; none where memory cannot be given to them. */
async function hired(count, module, { memory, tw_stack }) {
  const workers = [], ready = [];
  try {
    if (globalThis.crossOriginIsolated === false) return workers;
    const threads = globalThis.Worker ? null : await import("node:worker_threads");
    for (let lane = 1; lane <= count; lane++) {
      const stack = tw_stack() >>> 0;
      if (!stack) break;
      const worker = new (threads ?? globalThis).Worker(new URL("./lane.js", import.meta.url), { type: "module" });
      workers.push(worker);
      ready.push(
        new Promise((resolve, reject) => {
          if (threads) worker.once("message", resolve).once("error", reject);
          else Object.assign(worker, { onmessage: resolve, onerror: reject });
        }),
      );
      worker.postMessage({ module, memory, stack, lane });
    }
    await Promise.all(ready);
    if (threads) for (const worker of workers) worker.unref(); // so that they do not keep the process
    return workers;
  } catch {
    for (const worker of workers) worker.terminate();
    return [];
  }
}

export class Model {
  #engine;
  #workers;
  #runs = 0n;

  constructor(manifest, engine, workers = []) {
    this.inputs = manifest.inputs;
    this.outputs = manifest.outputs;
    this.target = manifest.target;
    this.random = Boolean(manifest.random);
    this.threads = workers.length + 1;
    this.#engine = engine;
    this.#workers = workers;
    if (engine.tw_start(this.threads)) throw tooLarge();
  }

  /** Outputs by name, for inputs by name; each output is an array of its own. */
  async run(inputs) {
    for (const name of Object.keys(inputs))
      if (!this.inputs.some((port) => port.name === name))
        throw new TypeError(`the model has no input "${name}": it has ${this.inputs.map((port) => port.name).join(", ")}`);
    this.inputs.forEach((port, at) => this.#fill(port, at, inputs[port.name]));
    if (this.random) this.#draw();
    this.#engine.tw_step();
    const first = this.inputs.length + (this.random ? 1 : 0);
    return Object.fromEntries(this.outputs.map((port, at) => [port.name, this.port(first + at, port).slice()]));
  }

  /** The engine's own memory of an input, or behind these of an output, until memory grows: for who copies nothing. */
  port(at, { dtype, shape } = [...this.inputs, ...this.outputs][at]) {
    const Array = arrayOf(dtype);
    return new Array(this.#engine.memory.buffer, this.#engine.tw_port(at) >>> 0, sizeOf(shape));
  }

  /** One run of what lies in the memories of the inputs. */
  step() {
    this.#engine.tw_step();
  }

  /** Ends the other threads; it does not run after that. */
  close() {
    for (const worker of this.#workers.splice(0)) worker.terminate();
  }

  #fill(port, at, given) {
    const wanted = arrayOf(port.dtype);
    if (given === undefined) throw new TypeError(`input "${port.name}" is missing: give a ${written(port)}`);
    if (!(given instanceof wanted))
      throw new TypeError(`input "${port.name}" is a ${given?.constructor?.name ?? given}: give a ${written(port)}`);
    if (given.length !== sizeOf(port.shape))
      throw new RangeError(`input "${port.name}" has ${given.length} elements: give a ${written(port)}`);
    this.port(at, port).set(given);
  }

  /** The key of the random numbers and the number of the run, behind the inputs. */
  #draw() {
    const state = this.port(this.inputs.length, { dtype: "int64", shape: [2] });
    if (!this.#runs) state[0] = BigInt(Math.floor(Math.random() * 2 ** 52));
    state[1] = this.#runs++;
  }
}

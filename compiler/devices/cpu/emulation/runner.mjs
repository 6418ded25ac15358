// What runner.c is for shared libraries, for a module of WebAssembly: Node.js runs it, by the model.js that artifacts
// have. Its argument is the module's path; orders and answers are as runner.c says. Weights are read from their file.
import fs from "node:fs";
import { create as created, instantiated } from "./model.js";

const KERNEL = 1, CREATE = 2, RUN = 3, DESCRIBE = 4;
const ABI_VERSION = 3n, ONLY_PLAN = 1n;
const PAGE = 4096, WASM_PAGE = 65536, POINTER = 4;
const KINDS = { f: "float", bf: "bfloat", i: "int", u: "uint" };

const module = await WebAssembly.compile(fs.readFileSync(process.argv[2]));
const opened = () => instantiated(module);
let model = null;

function take(size) {
  const found = new Uint8Array(size);
  for (let at = 0; at < size; ) {
    const count = fs.readSync(0, found, at, size - at);
    if (!count) process.exit(at ? 70 : 0);
    at += count;
  }
  return found;
}
const number = () => Number(new DataView(take(8).buffer).getBigInt64(0, true));
const numbers = (count) => Array.from({ length: count }, number);
const text = () => new TextDecoder().decode(take(number()));

function give(bytes) {
  for (let at = 0; at < bytes.length; ) at += fs.writeSync(1, bytes, at);
}
const giveNumber = (value) => give(new Uint8Array(new BigInt64Array([BigInt(value)]).buffer));
function giveText(said) {
  const bytes = new TextEncoder().encode(said);
  giveNumber(bytes.length);
  give(bytes);
}

function description(engine) {
  const bytes = new Uint8Array(engine.memory.buffer, engine.tw_describe());
  return new TextDecoder().decode(bytes.slice(0, bytes.indexOf(0)));
}

/** The ports of a library as manifest.json has them, named by their places. */
function ports(described, first) {
  return described.map(({ dtype, shape }, at) => {
    const [, kind, bits] = /^(bf|[fiu])(\d+)$/.exec(dtype) ?? [];
    return { name: String(first + at), dtype: kind ? KINDS[kind] + bits : dtype, shape };
  });
}

async function runKernel() {
  const engine = await opened();
  const kernel = engine[text()];
  const memories = Array.from({ length: number() }, () => ({ size: number(), place: number() }));
  const operands = Array.from({ length: number() }, () => ({ memory: number(), offset: number() }));
  const [first, past] = numbers(2);
  const space = memories.reduce((sum, { size }) => sum + Math.ceil(size / PAGE + 2) * PAGE, POINTER * operands.length);
  const pointers = engine.memory.grow(Math.ceil(space / WASM_PAGE) + 1) * WASM_PAGE;
  let next = Math.ceil((pointers + POINTER * operands.length) / PAGE) * PAGE;
  const { buffer } = engine.memory;
  for (const memory of memories) {
    memory.begin = next + memory.place;
    new Uint8Array(buffer, memory.begin, memory.size).set(take(memory.size));
    next += Math.ceil(memory.size / PAGE + 2) * PAGE;
  }
  const places = operands.map(({ memory, offset }) => memories[memory].begin + offset);
  new Uint32Array(buffer, pointers, places.length).set(places);
  kernel(pointers, places.at(-1), first, past);
  giveNumber(0);
  for (const { begin, size } of memories) give(new Uint8Array(engine.memory.buffer, begin, size));
}

async function create() {
  const path = text();
  const [offset] = numbers(3);
  const engine = await opened();
  const described = JSON.parse(description(engine));
  const weights = new Uint8Array(described.weight_bytes);
  const file = fs.openSync(path);
  fs.readSync(file, weights, 0, weights.length, offset);
  fs.closeSync(file);
  const inputs = ports(described.inputs, 0);
  model = await created({ ...described, inputs, outputs: ports(described.outputs, inputs.length) }, module, weights);
  giveNumber(0);
  giveNumber(ONLY_PLAN);
  give(new Uint8Array(new Float64Array([0]).buffer));
}

async function run() {
  const [inputs, outputs] = numbers(2);
  const sizes = Array.from({ length: inputs + outputs }, () => {
    const [, , rank] = numbers(3);
    return numbers(rank + 1).at(-1);
  });
  const bytes = sizes.slice(0, inputs).map(take);
  const given = model.inputs.map(({ name }, at) => {
    const { constructor } = model.port(at);
    return [name, new constructor(bytes[at].buffer)];
  });
  const found = await model.run(Object.fromEntries(given));
  giveNumber(0);
  for (const { name } of model.outputs) give(new Uint8Array(found[name].buffer));
}

async function describe() {
  const said = description(await opened());
  giveNumber(0);
  giveNumber(ABI_VERSION);
  giveText(said);
}

const ORDERS = { [KERNEL]: runKernel, [CREATE]: create, [RUN]: run, [DESCRIBE]: describe };
for (;;) {
  const order = number();
  try {
    await ORDERS[order]();
  } catch (error) {
    giveNumber(1);
    giveText(error.message);
  }
}

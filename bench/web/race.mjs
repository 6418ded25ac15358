// One network in one process: arguments are the folder of our page, the model, the folder in which onnxruntime-web is
// installed, rounds and threads. Says, as JSON, the milliseconds of each run of both and how far they differ: of one
// thread those of the processor, else by the clock.
import fs from "node:fs";
import path from "node:path";
import { pathToFileURL } from "node:url";

const [folder, file, peers, rounds, threads] = process.argv.slice(2);
const of = (...parts) => pathToFileURL(path.resolve(...parts));
const ort = await import(of(peers, `node_modules/onnxruntime-web/dist/ort.${threads > 1 ? "node" : "wasm"}.min.mjs`));
ort.env.wasm.numThreads = Number(threads);
ort.env.logLevel = "error";
const { load } = await import(of(folder, "model.js"));
const model = await load(`${of(folder)}/`);
const session = await ort.InferenceSession.create(fs.readFileSync(file), { executionProviders: ["wasm"] });

let state = 1;
const random = () => (state = (state * 48271) % 2147483647) / 2147483647; // Park and Miller's
const bit = () => Math.round(random()); // right for masks and numbers of words
const kinds = {
  float32: [Float32Array, random],
  int32: [Int32Array, bit],
  int64: [BigInt64Array, () => BigInt(bit())],
  uint8: [Uint8Array, bit],
  int8: [Int8Array, bit],
};
const given = {}, fed = {};
for (const { name, dtype, shape } of model.inputs) {
  const [kind, drawn] = kinds[dtype] ?? [];
  if (!kind) throw new Error(`input ${name} is of ${dtype}, which this race draws none of`);
  given[name] = kind.from({ length: shape.reduce((a, b) => a * b, 1) }, drawn);
  fed[name] = new ort.Tensor(dtype, given[name], shape);
}
const ways = [() => model.run(given), () => session.run(fed)];
const [ours, theirs] = [await ways[0](), await ways[1]()];
let error = 0;
for (const { name } of model.outputs) {
  const right = Array.from(theirs[name].data, Number);
  const largest = right.reduce((most, one) => Math.max(most, Math.abs(one)), 1e-30);
  right.forEach((one, at) => (error = Math.max(error, Math.abs(one - Number(ours[name][at])) / largest)));
}
const spent = () => {
  if (threads > 1) return performance.now();
  const { user, system } = process.cpuUsage();
  return (user + system) / 1000;
};
const times = [[], []];
for (const way of ways) await way();
for (let round = 0; round < Number(rounds); round++)
  for (const at of round % 2 ? [1, 0] : [0, 1]) {
    if (threads > 1) {
      await new Promise((resolve) => setTimeout(resolve, 50)); // until the other's threads no longer spin
      await ways[at]();
    }
    const begin = spent();
    await ways[at]();
    times[at].push(spent() - begin);
  }
console.log(JSON.stringify({ ours: times[0], peer: times[1], error }));
process.exit(0);

/* A thread of model.js that runs a lane of a model: it has an instance of the module, and shares its memory. */

const port = globalThis.postMessage ? globalThis : (await import("node:worker_threads")).parentPort;

function begin({ module, memory, stack, lane }) {
  const { exports } = new WebAssembly.Instance(module, { env: { memory } });
  exports.__stack_pointer.value = stack;
  port.postMessage(lane);
  exports.tw_work(lane);
}

if (port === globalThis) port.onmessage = ({ data }) => begin(data);
else port.once("message", begin);

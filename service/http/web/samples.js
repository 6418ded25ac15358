// Models to try the service with, made in the browser: networks of the literature, with random weights.

const FLOAT = 1, INTEGER = 7; // element types, and kinds of attributes below, by their numbers in onnx.proto
const OPSET = 20;
const IR_VERSION = 9;
const SEED = 20261129;

/** What is offered: `make` gives the bytes of an ONNX file. */
export const SAMPLES = [
  { file: "squeezenet1_1.onnx", name: "SqueezeNet 1.1", what: "images of 224 × 224, 1.2 million weights", make: () => squeezenet() },
  { file: "encoder.onnx", name: "Transformer encoder", what: "2 layers, 128 tokens, 1.6 million weights", make: () => encoder({ layers: 2, tokens: 128, width: 256, heads: 4 }) },
];

// ---- protocol buffers: a message is a list of pieces, each a field's key and its value

const text = new TextEncoder();

function varint(value) {
  const bytes = [];
  for (let rest = BigInt.asUintN(64, BigInt(value)); ; rest >>= 7n) {
    if (rest < 128n) return Uint8Array.from([...bytes, Number(rest)]);
    bytes.push(Number(rest & 127n) | 128);
  }
}

const joined = (pieces) => {
  const whole = new Uint8Array(pieces.reduce((sum, one) => sum + one.length, 0));
  let at = 0;
  for (const one of pieces) { whole.set(one, at); at += one.length; }
  return whole;
};
const whole = (field, value) => joined([varint(field << 3), varint(value)]);
const some = (field, bytes) => joined([varint((field << 3) | 2), varint(bytes.length), bytes]);
const word = (field, value) => some(field, text.encode(value));
const number = (field, value) => joined([varint((field << 3) | 5), new Uint8Array(Float32Array.of(value).buffer)]);

// ---- messages of ONNX

function attribute(name, value) {
  if (Array.isArray(value)) return joined([word(1, name), ...value.map((one) => whole(8, one)), whole(20, 7)]);
  return Number.isInteger(value) ? joined([word(1, name), whole(3, value), whole(20, 2)]) : joined([word(1, name), number(2, value), whole(20, 1)]);
}

const tensor = (name, dims, values, type = FLOAT) =>
  joined([...dims.map((dim) => whole(1, dim)), whole(2, type), word(8, name), some(9, new Uint8Array(values.buffer))]);

function value(name, dims) {
  const shape = joined(dims.map((dim) => some(1, whole(1, dim))));
  return joined([word(1, name), some(2, some(1, joined([whole(1, FLOAT), some(2, shape)])))]);
}

/** Nodes and constants under construction; each method gives the name of its result. */
class Network {
  constructor() {
    this.nodes = [];
    this.constants = [];
    this.state = SEED;
  }

  random() { // mulberry32: uniform in [-1, 1)
    this.state = (this.state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(this.state ^ (this.state >>> 15), 1 | this.state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 31 - 1;
  }

  /** Weights that keep the variance of what they multiply, `inputs` values each (He et al. 2015, section 2.2). */
  weights(dims, inputs, scale = 6) {
    const values = new Float32Array(dims.reduce((product, dim) => product * dim, 1));
    const bound = Math.sqrt(scale / inputs);
    for (let at = 0; at < values.length; at++) values[at] = bound * this.random();
    return this.constant(dims, values);
  }

  constant(dims, values, type = FLOAT) {
    const name = `w${this.constants.length}`;
    this.constants.push(some(5, tensor(name, dims, values, type)));
    return name;
  }

  filled(dims, with_) {
    return this.constant(dims, new Float32Array(dims.reduce((product, dim) => product * dim, 1)).fill(with_));
  }

  shape(...dims) {
    return this.constant([dims.length], BigInt64Array.from(dims.map(BigInt)), INTEGER);
  }

  node(operator, inputs, attributes = {}, output = `v${this.nodes.length}`) {
    this.nodes.push(some(1, joined([
      ...inputs.map((name) => word(1, name)), word(2, output), word(3, `${operator}_${this.nodes.length}`), word(4, operator),
      ...Object.entries(attributes).map(([name, given]) => some(5, attribute(name, given))),
    ])));
    return output;
  }

  model(name, input, output) {
    const graph = joined([...this.nodes, word(2, name), ...this.constants, some(11, value(...input)), some(12, value(...output))]);
    return joined([whole(1, IR_VERSION), word(2, "tilewright"), some(7, graph), some(8, whole(2, OPSET))]);
  }
}

/** SqueezeNet 1.1 (Iandola et al. 2016, with the pooling of release 1.1): logits of 1,000 classes. */
function squeezenet() {
  const net = new Network();
  const conv = (x, from, to, size, more = {}) => net.node("Relu", [net.node("Conv", [
    x, net.weights([to, from, size, size], from * size * size), net.weights([to], from * size * size, 1),
  ], { kernel_shape: [size, size], ...more })]);
  const pool = (x) => net.node("MaxPool", [x], { kernel_shape: [3, 3], strides: [2, 2], ceil_mode: 1 });
  const fire = (x, from, squeezed, expanded) => {
    const small = conv(x, from, squeezed, 1);
    return net.node("Concat", [conv(small, squeezed, expanded, 1), conv(small, squeezed, expanded, 3, { pads: [1, 1, 1, 1] })], { axis: 1 });
  };
  let x = pool(conv("image", 3, 64, 3, { strides: [2, 2] }));
  x = pool(fire(fire(x, 64, 16, 64), 128, 16, 64));
  x = pool(fire(fire(x, 128, 32, 128), 256, 32, 128));
  x = fire(fire(fire(fire(x, 256, 48, 192), 384, 48, 192), 384, 64, 256), 512, 64, 256);
  x = net.node("GlobalAveragePool", [conv(x, 512, 1000, 1)]);
  net.node("Flatten", [x], {}, "logits");
  return net.model("squeezenet1_1", ["image", [1, 3, 224, 224]], ["logits", [1, 1000]]);
}

/** Layers of an encoder (Vaswani et al. 2017, section 3.1), normalised after each part, over embeddings. */
function encoder({ layers, tokens, width, heads }) {
  const net = new Network();
  const product = (x, from, to) => net.node("Add", [net.node("MatMul", [x, net.weights([from, to], from, 3)]), net.filled([to], 0)]);
  const added = (x, y) => net.node("LayerNormalization", [net.node("Add", [x, y]), net.filled([width], 1), net.filled([width], 0)], { axis: -1 });
  let x = "embeddings";
  for (let layer = 0; layer < layers; layer++) {
    const headed = (perm) => net.node("Transpose", [net.node("Reshape", [product(x, width, width), net.shape(1, tokens, heads, width / heads)])], { perm });
    const scores = net.node("MatMul", [headed([0, 2, 1, 3]), headed([0, 2, 3, 1])]);
    const scaled = net.node("Softmax", [net.node("Mul", [scores, net.filled([], Math.sqrt(heads / width))])], { axis: -1 });
    const seen = net.node("Transpose", [net.node("MatMul", [scaled, headed([0, 2, 1, 3])])], { perm: [0, 2, 1, 3] });
    x = added(x, product(net.node("Reshape", [seen, net.shape(1, tokens, width)]), width, width));
    x = added(x, product(net.node("Gelu", [product(x, width, 4 * width)]), 4 * width, width));
  }
  net.node("Identity", [x], {}, "states");
  return net.model("encoder", ["embeddings", [1, tokens, width]], ["states", [1, tokens, width]]);
}

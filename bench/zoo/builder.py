"""GraphBuilder: a few dozen verbs that append ONNX nodes and seeded weights to one graph.

Every value carries its static shape, so that layers need no shape bookkeeping, and an estimate of the mean and variance
of its elements, so that batch-norm statistics and weight scales keep activations near 1 through any depth. The
estimates treat elements as independent Gaussians (the mean-field view of He et al. 2015, section 2.2) and steer weights
only.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

from bench.zoo import moments
from bench.zoo.moments import Moments
from bench.zoo.weights import he_filters
from bench.zoo.window import Pads, Pair, pads_of, pair, window

OPSET = 17
IR_VERSION = 8


@dataclass(frozen=True)
class Value:
    """One tensor of the graph: its name, static shape, ONNX element type, and estimated element moments."""

    name: str
    shape: tuple[int, ...]
    dtype: int = TensorProto.FLOAT
    moments: Moments = moments.UNIT

    @property
    def channels(self) -> int:
        """Size of axis 1 (NCHW)."""
        return self.shape[1]


class GraphBuilder:
    """Collects nodes, initialisers and value types; `finish` returns the ModelProto.

    All randomness comes from one generator seeded with `seed`: the same calls and seed give the same bytes.
    """

    def __init__(self, name: str, seed: int = 0) -> None:
        self.name = name
        self.rng = np.random.default_rng(seed)
        self._nodes: list[onnx.NodeProto] = []
        self._initializers: list[onnx.TensorProto] = []
        self._inputs: list[Value] = []
        self._outputs: list[tuple[str, Value]] = []
        self._values: list[Value] = []
        self._count: dict[str, int] = {}

    # ---- graph edges, constants, raw nodes

    def input(self, name: str, shape: Sequence[int], dtype: int = TensorProto.FLOAT) -> Value:
        """A graph input; float inputs are taken to be N(0, 1)."""
        value = Value(name, tuple(shape), dtype)
        self._inputs.append(value)
        return value

    def output(self, name: str, value: Value) -> None:
        """Makes `value` a graph output called `name` (the producing node's output is renamed)."""
        self._outputs.append((name, value))

    def constant(self, array: npt.NDArray[Any], hint: str = "constant") -> Value:
        """An initialiser holding `array` as it is (dtype kept), with its measured moments."""
        tensor = numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), self._unique(hint))
        self._initializers.append(tensor)
        measured = moments.of_array(array) if array.dtype.kind == "f" and array.size < 100_000 else moments.UNIT
        return Value(tensor.name, tuple(array.shape), tensor.data_type, measured)

    def normal(self, shape: Sequence[int], std: float, hint: str = "weight", mean: float = 0.0) -> Value:
        """A float32 initialiser drawn from N(mean, std^2)."""
        array = self.rng.standard_normal(tuple(shape), dtype=np.float32)
        array *= np.float32(std)
        if mean:
            array += np.float32(mean)
        return replace(self.constant(array, hint), moments=Moments(mean, std * std))

    def uniform(self, shape: Sequence[int], low: float, high: float, hint: str = "weight") -> Value:
        """A float32 initialiser drawn from U(low, high)."""
        return self.constant(self.rng.uniform(low, high, tuple(shape)).astype(np.float32), hint)

    def integers(self, values: Iterable[int], hint: str = "axes") -> Value:
        """A rank-1 int64 initialiser (shapes, axes, starts, ends)."""
        return self.constant(np.asarray(list(values), np.int64), hint)

    def scalar(self, value: float, hint: str = "scalar") -> Value:
        """A rank-0 float32 initialiser."""
        return self.constant(np.asarray(value, np.float32), hint)

    def node(
        self,
        op: str,
        inputs: Sequence[Value | None],
        shape: Sequence[int],
        estimate: Moments = moments.UNIT,
        dtype: int = TensorProto.FLOAT,
        **attributes: Any,
    ) -> Value:
        """Appends a node with one output of the given shape; None stands for an absent optional input."""
        return self.nodes(op, inputs, [shape], estimate, dtype, **attributes)[0]

    def nodes(
        self,
        op: str,
        inputs: Sequence[Value | None],
        shapes: Sequence[Sequence[int]],
        estimate: Moments = moments.UNIT,
        dtype: int = TensorProto.FLOAT,
        **attributes: Any,
    ) -> list[Value]:
        """Appends a node with one output per shape."""
        name = self._unique(op.lower())
        outputs = [
            Value(name if len(shapes) == 1 else f"{name}.{i}", tuple(shape), dtype, estimate)
            for i, shape in enumerate(shapes)
        ]
        names = [value.name if value is not None else "" for value in inputs]
        self._nodes.append(helper.make_node(op, names, [v.name for v in outputs], name=f"node.{name}", **attributes))
        self._values.extend(outputs)
        return outputs

    # ---- convolution, normalisation, linear layers

    def conv(
        self,
        x: Value,
        channels: int,
        kernel: Pair,
        stride: Pair = 1,
        pad: Pair | Pads | None = None,
        groups: int = 1,
        *,
        dilation: int = 1,
        bias: bool = False,
        gain: float = 2.0,
    ) -> Value:
        """NCHW convolution with He-normal filters (weights.py). `pad=None` is "same" for odd kernels."""
        kernel, stride = pair(kernel), pair(stride)
        pads = pads_of(pad if pad is not None else (dilation * (kernel[0] // 2), dilation * (kernel[1] // 2)))
        reach = (dilation * (kernel[0] - 1) + 1, dilation * (kernel[1] - 1) + 1)
        height, width = window(x.shape[2:], reach, stride, pads)
        filters, power = he_filters(self.rng, (channels, x.channels // groups, *kernel), gain, x.moments)
        weight = self.constant(filters, "conv.weight")
        inputs = [x, weight, self.normal((channels,), 0.05, "conv.bias")] if bias else [x, weight]
        return self.node(
            "Conv",
            inputs,
            (x.shape[0], channels, height, width),
            Moments(0.0, power),
            kernel_shape=kernel,
            strides=stride,
            pads=pads,
            dilations=(dilation, dilation),
            group=groups,
        )

    def bn(self, x: Value, eps: float = 1e-5) -> Value:
        """BatchNormalization in inference form; running statistics scatter around the input's estimated moments."""
        c, std = x.channels, math.sqrt(x.moments.var)
        scale = self.uniform((c,), 0.5, 1.5, "bn.scale")
        shift = self.normal((c,), 0.2, "bn.shift")
        mean = self.normal((c,), 0.2 * std, "bn.mean", mean=x.moments.mean)
        var = self.uniform((c,), 0.6 * x.moments.var, 1.6 * x.moments.var, "bn.var")
        return self.node("BatchNormalization", [x, scale, shift, mean, var], x.shape, moments.AFTER_NORM, epsilon=eps)

    def layer_norm(self, x: Value, eps: float = 1e-5) -> Value:
        """LayerNormalization over the last axis with a scale near 1 and a small shift."""
        n = x.shape[-1]
        scale, shift = self.uniform((n,), 0.7, 1.3, "norm.scale"), self.normal((n,), 0.1, "norm.shift")
        return self.node("LayerNormalization", [x, scale, shift], x.shape, moments.UNIT, axis=-1, epsilon=eps)

    def gemm(self, x: Value, features: int, gain: float = 1.0, transposed: bool = True) -> Value:
        """Fully connected layer on [rows, k] as PyTorch exports it: Gemm, by default with a transposed weight."""
        k = x.shape[1]
        weight = self.normal((features, k) if transposed else (k, features), math.sqrt(gain / k), "fc.weight")
        bias = self.normal((features,), 0.05, "fc.bias")
        estimate = Moments(0.0, gain * x.moments.power)
        return self.node("Gemm", [x, weight, bias], (x.shape[0], features), estimate, transB=int(transposed))

    def dense(self, x: Value, features: int, gain: float = 1.0, bias: bool = True) -> Value:
        """Fully connected layer on the last axis of any rank: MatMul, then Add of the bias."""
        k = x.shape[-1]
        weight = self.normal((k, features), math.sqrt(gain / k), "dense.weight")
        estimate = Moments(0.0, gain * x.moments.power)
        y = self.node("MatMul", [x, weight], (*x.shape[:-1], features), estimate)
        return self.add(y, self.normal((features,), 0.05, "dense.bias")) if bias else y

    def matmul(self, a: Value, b: Value, estimate: Moments = moments.UNIT) -> Value:
        """Batched matrix product of two activations (equal leading axes)."""
        return self.node("MatMul", [a, b], (*a.shape[:-1], b.shape[-1]), estimate)

    # ---- pooling and resampling

    def max_pool(self, x: Value, kernel: int, stride: int, pad: Pair | Pads = 0, ceil: bool = False) -> Value:
        """NCHW max pooling."""
        return self._pool("MaxPool", x, kernel, stride, pad, moments.max_pool(x.moments), ceil, ceil_mode=int(ceil))

    def avg_pool(self, x: Value, kernel: int, stride: int, pad: Pair | Pads = 0, include_pad: bool = False) -> Value:
        """NCHW average pooling; `include_pad` counts padding in the divisor."""
        estimate = moments.avg_pool(x.moments, kernel)
        return self._pool("AveragePool", x, kernel, stride, pad, estimate, count_include_pad=int(include_pad))

    def _pool(
        self,
        op: str,
        x: Value,
        kernel: int,
        stride: int,
        pad: Pair | Pads,
        estimate: Moments,
        ceil: bool = False,
        **flags: int,
    ) -> Value:
        pads, square, steps = pads_of(pad), pair(kernel), pair(stride)
        shape = (*x.shape[:2], *window(x.shape[2:], square, steps, pads, ceil))
        return self.node(op, [x], shape, estimate, x.dtype, kernel_shape=square, strides=steps, pads=pads, **flags)

    def global_avg_pool(self, x: Value) -> Value:
        """[N, C, H, W] -> [N, C, 1, 1]."""
        return self.node("GlobalAveragePool", [x], (*x.shape[:2], 1, 1), moments.avg_pool(x.moments, x.shape[-1]))

    def upsample(self, x: Value, factor: int) -> Value:
        """Nearest-neighbour Resize by a whole factor (asymmetric, floor), as PyTorch exports nn.Upsample."""
        scales = self.constant(np.asarray([1, 1, factor, factor], np.float32), "scales")
        shape = (*x.shape[:2], x.shape[2] * factor, x.shape[3] * factor)
        return self.node(
            "Resize",
            [x, None, scales],
            shape,
            x.moments,
            mode="nearest",
            coordinate_transformation_mode="asymmetric",
            nearest_mode="floor",
        )

    # ---- elementwise

    def relu(self, x: Value) -> Value:
        """max(x, 0)."""
        return self.node("Relu", [x], x.shape, moments.relu(x.moments))

    def relu6(self, x: Value) -> Value:
        """Clip to [0, 6]."""
        bounds = [self.scalar(0.0, "clip.min"), self.scalar(6.0, "clip.max")]
        return self.node("Clip", [x, *bounds], x.shape, moments.relu(x.moments))

    def leaky_relu(self, x: Value, alpha: float = 0.1) -> Value:
        """x where positive, alpha x elsewhere."""
        return self.node("LeakyRelu", [x], x.shape, moments.leaky_relu(x.moments, alpha), alpha=alpha)

    def sigmoid(self, x: Value) -> Value:
        """1 / (1 + exp(-x))."""
        return self.node("Sigmoid", [x], x.shape, moments.GATE)

    def hard_sigmoid(self, x: Value) -> Value:
        """clip(x / 6 + 1/2, 0, 1)."""
        return self.node("HardSigmoid", [x], x.shape, moments.GATE, alpha=1.0 / 6.0, beta=0.5)

    def hard_swish(self, x: Value) -> Value:
        """x * hard_sigmoid(x), the operator of opset 14."""
        return self.node("HardSwish", [x], x.shape, moments.swish(x.moments))

    def silu(self, x: Value) -> Value:
        """x * sigmoid(x), as two nodes."""
        return self.node("Mul", [x, self.sigmoid(x)], x.shape, moments.swish(x.moments))

    def tanh(self, x: Value) -> Value:
        """Hyperbolic tangent."""
        return self.node("Tanh", [x], x.shape, Moments(0.0, min(0.6, x.moments.var)))

    def gelu(self, x: Value) -> Value:
        """x/2 (1 + erf(x / sqrt 2)) written out in five nodes, as exporters do below opset 20."""
        root = self.node("Div", [x, self.scalar(math.sqrt(2.0))], x.shape)
        inner = self.node("Add", [self.node("Erf", [root], x.shape), self.scalar(1.0)], x.shape)
        product = self.node("Mul", [x, inner], x.shape)
        return self.node("Mul", [product, self.scalar(0.5)], x.shape, moments.swish(x.moments))

    def gelu_tanh(self, x: Value) -> Value:
        """x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) written out in eight nodes, as GPT-2 exports do."""
        cube = self.node("Pow", [x, self.scalar(3.0)], x.shape)
        poly = self.node("Add", [x, self.node("Mul", [cube, self.scalar(0.044715)], x.shape)], x.shape)
        inner = self.node("Mul", [poly, self.scalar(math.sqrt(2.0 / math.pi))], x.shape)
        gate = self.node("Add", [self.node("Tanh", [inner], x.shape), self.scalar(1.0)], x.shape)
        half = self.node("Mul", [x, self.scalar(0.5)], x.shape)
        return self.node("Mul", [half, gate], x.shape, moments.swish(x.moments))

    def add(self, a: Value, b: Value) -> Value:
        """a + b, broadcast."""
        return self.node("Add", [a, b], np.broadcast_shapes(a.shape, b.shape), moments.add(a.moments, b.moments))

    def mul(self, a: Value, b: Value) -> Value:
        """a * b, broadcast."""
        return self.node("Mul", [a, b], np.broadcast_shapes(a.shape, b.shape), moments.mul(a.moments, b.moments))

    def scale(self, x: Value, factor: float) -> Value:
        """x * factor with a rank-0 constant."""
        return self.mul(x, replace(self.scalar(factor), moments=Moments(factor, 0.0)))

    def softmax(self, x: Value, axis: int = -1) -> Value:
        """Softmax along `axis`."""
        n = x.shape[axis]
        return self.node("Softmax", [x], x.shape, Moments(1.0 / n, 1.7 / n**2), axis=axis)

    # ---- moving data

    def concat(self, values: Sequence[Value], axis: int = 1) -> Value:
        """Concatenation along `axis`."""
        first = values[0].shape
        axis = axis % len(first)
        total = sum(v.shape[axis] for v in values)
        estimate = moments.mixture([(v.shape[axis], v.moments) for v in values])
        shape = (*first[:axis], total, *first[axis + 1 :])
        return self.node("Concat", values, shape, estimate, values[0].dtype, axis=axis)

    def split(self, x: Value, parts: int, axis: int = 1) -> list[Value]:
        """`parts` equal pieces along `axis`."""
        axis = axis % len(x.shape)
        size = x.shape[axis] // parts
        shape = (*x.shape[:axis], size, *x.shape[axis + 1 :])
        sizes = self.integers([size] * parts, "split.sizes")
        return self.nodes("Split", [x, sizes], [shape] * parts, x.moments, x.dtype, axis=axis)

    def reshape(self, x: Value, shape: Sequence[int]) -> Value:
        """Row-major reshape to a fully stated shape."""
        return self.node("Reshape", [x, self.integers(shape, "shape")], shape, x.moments, x.dtype)

    def flatten(self, x: Value) -> Value:
        """[N, ...] -> [N, product of the rest]."""
        return self.node("Flatten", [x], (x.shape[0], math.prod(x.shape[1:])), x.moments, x.dtype, axis=1)

    def transpose(self, x: Value, perm: Sequence[int]) -> Value:
        """Axis permutation."""
        return self.node("Transpose", [x], [x.shape[p] for p in perm], x.moments, x.dtype, perm=list(perm))

    def squeeze(self, x: Value, axis: int) -> Value:
        """Drops one axis of size 1."""
        axis = axis % len(x.shape)
        shape = (*x.shape[:axis], *x.shape[axis + 1 :])
        return self.node("Squeeze", [x, self.integers([axis])], shape, x.moments, x.dtype)

    def unsqueeze(self, x: Value, axis: int) -> Value:
        """Inserts an axis of size 1 at `axis` (counted in the result, not negative)."""
        shape = (*x.shape[:axis], 1, *x.shape[axis:])
        return self.node("Unsqueeze", [x, self.integers([axis])], shape, x.moments, x.dtype)

    def slice(self, x: Value, axes: Sequence[int], starts: Sequence[int], ends: Sequence[int]) -> Value:
        """Contiguous slice; starts and ends are non-negative and within bounds."""
        shape = list(x.shape)
        for axis, start, end in zip(axes, starts, ends, strict=True):
            shape[axis] = end - start
        bounds = [self.integers(starts, "starts"), self.integers(ends, "ends"), self.integers(axes)]
        return self.node("Slice", [x, *bounds], shape, x.moments, x.dtype)

    def pad_bottom_right(self, x: Value) -> Value:
        """Zero-pads NCHW by one row below and one column at the right (a Pad node of its own)."""
        n, c, h, w = x.shape
        pads = self.integers([0, 0, 0, 0, 0, 0, 1, 1], "pads")
        return self.node("Pad", [x, pads, self.scalar(0.0)], (n, c, h + 1, w + 1), x.moments, mode="constant")

    def gather(self, table: Value, indices: Value) -> Value:
        """Rows of `table` (axis 0)."""
        return self.node("Gather", [table, indices], (*indices.shape, *table.shape[1:]), table.moments, axis=0)

    def gather_axis(self, x: Value, index: int, axis: int) -> Value:
        """One slice of `x` along `axis`, that axis dropped: a Gather with a rank-0 index."""
        shape = (*x.shape[:axis], *x.shape[axis + 1 :])
        return self.node(
            "Gather", [x, self.constant(np.asarray(index, np.int64), "index")], shape, x.moments, axis=axis
        )

    def cast(self, x: Value, dtype: int) -> Value:
        """Element type conversion."""
        return self.node("Cast", [x], x.shape, x.moments, dtype, to=dtype)

    # ---- the end

    def finish(self) -> onnx.ModelProto:
        """The model: opset 17, static shapes stated for every value."""
        rename = {value.name: name for name, value in self._outputs}
        for node in self._nodes:
            node.input[:] = [rename.get(name, name) for name in node.input]
            node.output[:] = [rename.get(name, name) for name in node.output]
        graph = helper.make_graph(
            self._nodes,
            self.name,
            [helper.make_tensor_value_info(v.name, v.dtype, v.shape) for v in self._inputs],
            [helper.make_tensor_value_info(name, v.dtype, v.shape) for name, v in self._outputs],
            value_info=[
                helper.make_tensor_value_info(v.name, v.dtype, v.shape) for v in self._values if v.name not in rename
            ],
        )
        graph.initializer.extend(self._initializers)
        domains = sorted({node.domain for node in self._nodes} - {""})
        opsets = [helper.make_opsetid("", OPSET), *(helper.make_opsetid(domain, 1) for domain in domains)]
        return helper.make_model(graph, producer_name="tilewright-zoo", opset_imports=opsets, ir_version=IR_VERSION)

    def _unique(self, hint: str) -> str:
        self._count[hint] = self._count.get(hint, -1) + 1
        return f"{hint}_{self._count[hint]}"

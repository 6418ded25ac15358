"""For every rule: random instances of its left side, and programs that look like it and must stay as they are."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

from compiler.ir.graph import Graph
from compiler.ir.tensor import DType
from compiler.rewrite.rules.recurrence import GATHERED_BYTES
from tests.compiler.rewrite.sketch import Sketch

Drawing = Callable[[Sketch], Graph]


def _shape(s: Sketch, low: int = 1, high: int = 3, rank: int | None = None) -> tuple[int, ...]:
    return tuple(int(n) for n in s.rng.integers(low, high + 1, rank or int(s.rng.integers(1, 4))))


def _around(s: Sketch, op: str, number: float, either: bool = True) -> Graph:
    """op(x, number) or, where sides may be swapped, op(number, x), between two other nodes."""
    x = s("Abs", s.x(*_shape(s, 2)))
    operands = (x, s.c(number))
    return s.graph(s("Neg", s(op, *(operands[::-1] if either and s.rng.integers(2) else operands))))


def _conv(
    s: Sketch, x: int, bias: bool | None = None, op: str = "Conv", groups: int | None = None, **attrs: object
) -> int:
    channels = s.dims(x)[1]
    groups = groups or (2 if channels % 2 == 0 and s.rng.integers(2) else 1)
    kernel = tuple(int(k) for k in s.rng.integers(1, 4, len(s.dims(x)) - 2))
    filters = 2 * groups
    shape = (filters, channels // groups, *kernel) if op == "Conv" else (channels, filters // groups, *kernel)
    b = s.normal(filters) if (s.rng.integers(2) if bias is None else bias) else None
    inputs = (x, s.normal(*shape)) if b is None else (x, s.normal(*shape), b)
    pads = tuple(int(p) for p in s.rng.integers(0, 2, 2 * len(kernel)))
    return s(op, *inputs, group=groups, **{"pads": pads, **attrs})


def _linear(s: Sketch, matmul: bool = True) -> int:
    """A convolution or a matrix product with constant weights, its channel on axis 1 (MatMul: last)."""
    kind = int(s.rng.integers(0, 5 if matmul else 4))
    if kind < 3:
        return _conv(s, s.x(1, 2, 5, *((4,) if kind else ())), op="ConvTranspose" if kind == 2 else "Conv")
    if kind == 4:
        return s("MatMul", s.x(2, 3, 2), s.normal(2, 3))
    turned = int(s.rng.integers(2))
    b = s.normal(3, 2) if turned else s.normal(2, 3)
    c = [(), (s.normal(3),), (s.normal(1, 3),), (s.c(0.5),)][int(s.rng.integers(4))]
    return s("Gemm", s.x(2, 2), b, *c, transB=turned, alpha=0.5, beta=float(s.rng.choice([1.0, 2.0])))


def _per_channel(s: Sketch, y: int, last: bool = False) -> int:
    dims = s.dims(y)
    if s.rng.integers(3) == 0:
        return s.positive()
    channels = dims[-1] if last else dims[1]
    return s.positive(channels, *(1,) * (0 if last else len(dims) - 2))


def _scaled(s: Sketch) -> Graph:
    y = _linear(s)
    last = s.nodes[-1].op == "MatMul"
    scale = _per_channel(s, y, last)
    op = str(s.rng.choice(["Mul", "Div"]))
    return s.graph(s(op, *((scale, y) if op == "Mul" and s.rng.integers(2) else (y, scale))))


def _shifted(s: Sketch) -> Graph:
    y = _linear(s, matmul=False)
    return s.graph(s("Add", _per_channel(s, y), y) if s.rng.integers(2) else s("Add", y, _per_channel(s, y)))


def _batch_norm(s: Sketch, y: int) -> int:
    n = s.dims(y)[1]
    return s("BatchNormalization", y, s.positive(n), s.normal(n), s.normal(n), s.positive(n), epsilon=1e-3)


def _scale_before(s: Sketch) -> Graph:
    kind = int(s.rng.integers(0, 4))
    if kind < 2:
        x = s.x(1, 4, 5)
        scaled = s("Mul", x, s.positive(4, 1) if s.rng.integers(2) else s.positive())
        return s.graph(_conv(s, scaled, op=("Conv", "ConvTranspose")[kind]))
    x = s.x(2, 3)
    if kind == 2:
        return s.graph(s("MatMul", s("Mul", s.positive(3), x), s.normal(3, 2)))
    turned = int(s.rng.integers(2))
    scaled = s("Mul", x, s.positive(2, 1) if turned else s.positive(3))
    return s.graph(s("Gemm", scaled, s.normal(*((2, 2) if turned else (3, 2))), s.normal(2), transA=turned))


def _past_shift(s: Sketch) -> Graph:
    y = s("Add", s("MatMul", s.x(2, 3), s.normal(3, 4)), s.normal(4))
    return s.graph(s("Mul", y, s.positive(4) if s.rng.integers(2) else s.positive()))


def _product(s: Sketch, *values: int) -> int:
    """The values multiplied in a random order and association."""
    left = list(values)
    while len(left) > 1:
        a, b = (left.pop(int(s.rng.integers(len(left)))) for _ in range(2))
        left.append(s("Mul", a, b))
    return left[0]


def _plus(s: Sketch, a: int, b: int) -> int:
    return s("Add", a, b) if s.rng.integers(2) else s("Add", b, a)


def _gelu(s: Sketch) -> Graph:
    x = s.x(2, 3)
    inner = s("Div", x, s.c(math.sqrt(2))) if s.rng.integers(2) else s("Mul", s.c(math.sqrt(0.5)), x)
    return s.graph(_product(s, x, s.c(0.5), _plus(s, s("Erf", inner), s.c(1))))


def _gelu_tanh(s: Sketch) -> Graph:
    x, k = s.x(2, 3), s.c(0.044715)
    if s.rng.integers(2):
        cube = s("Pow", x, s.c(3)) if s.rng.integers(2) else _product(s, x, x, x)
        inner = s("Mul", _plus(s, x, _product(s, cube, k)), s.c(math.sqrt(2 / math.pi)))
    else:
        square = s("Pow", x, s.c(2)) if s.rng.integers(2) else s("Mul", x, x)
        inner = _product(s, x, s.c(math.sqrt(2 / math.pi)), _plus(s, s("Mul", k, square), s.c(1)))
    return s.graph(_product(s, x, s.c(0.5), _plus(s, s("Tanh", inner), s.c(1))))


def _swish(s: Sketch) -> Graph:
    x = s.x(2, 3)
    gate = s("Sigmoid", x if s.rng.integers(2) else s("Mul", x, s.c(1.5)))
    return s.graph(s("Mul", x, gate) if s.rng.integers(2) else s("Mul", gate, x))


def _clip_to_six(s: Sketch, x: int) -> int:
    return s("Clip", _plus(s, x, s.c(3)), s.c(0), s.c(6))


def _hard_swish(s: Sketch) -> Graph:
    x = s.x(2, 3)
    kind = int(s.rng.integers(4))
    if kind == 0:
        return s.graph(s("Mul", x, s("HardSigmoid", x, alpha=1 / 6)))
    if kind == 1:
        return s.graph(s("Mul", x, s("Div", _clip_to_six(s, x), s.c(6))))
    if kind == 2:
        return s.graph(s("Div", s("Mul", _clip_to_six(s, x), x), s.c(6)))
    return s.graph(_product(s, x, _clip_to_six(s, x), s.c(1 / 6)))


def _hard_sigmoid(s: Sketch) -> Graph:
    clip = _clip_to_six(s, s.x(2, 3))
    return s.graph(s("Div", clip, s.c(6)) if s.rng.integers(2) else s("Mul", s.c(1 / 6), clip))


def _layer_norm(s: Sketch, axes: tuple[int, ...] | None = None) -> Graph:
    x = s.x(2, 3, 4)
    over = axes or [(-1,), (2,), (1, 2), (-1, -2)][int(s.rng.integers(4))]
    d = s("Sub", x, s("ReduceMean", x, None, axes=over))
    square = s("Mul", d, d) if s.rng.integers(2) else s("Pow", d, s.c(2))
    root = s("Sqrt", _plus(s, s("ReduceMean", square, None, axes=over), s.c(1e-5)))
    return s.graph(s("Div", d, root) if s.rng.integers(2) else s("Mul", s("Reciprocal", root), d))


def _normed(s: Sketch) -> int:
    return s("LayerNormalization", s.x(2, 3, 4), s.positive(4), *((s.normal(4),) if s.rng.integers(2) else ()), axis=-1)


def _softmax(s: Sketch) -> Graph:
    x = s.x(2, 3, 2)
    axis = int(s.rng.integers(-3, 3))
    e = s("Exp", s("Sub", x, s("ReduceMax", x, None, axes=(axis,))))
    return s.graph(s("Div", e, s("ReduceSum", e, None, axes=(axis,))))


def _clamp(s: Sketch, x: int) -> int:
    if s.rng.integers(3) == 0:
        return s("Relu", x)
    low, high = sorted(s.rng.choice([-3.0, -1.0, 0.0, 0.5, 3.0, 6.0, math.inf], 2))
    bounds = [None if s.rng.integers(3) == 0 else s.c(low), None if s.rng.integers(3) == 0 else s.c(high)]
    return s("Clip", x, *bounds)


def _reshape(s: Sketch, x: int) -> int:
    dims = s.dims(x)
    kind = int(s.rng.integers(4))
    if kind == 0:
        return s("Flatten", x, axis=int(s.rng.integers(0, len(dims) + 1)))
    if kind == 1:
        return s("Unsqueeze", x, None, axes=(int(s.rng.integers(0, len(dims) + 1)),))
    if kind == 2 and 1 in dims:
        return s("Squeeze", x, None, axes=(dims.index(1),))
    return s("Reshape", x, None, shape=(-1, int(s.rng.choice([1, dims[0]]))))


def _transpose(s: Sketch, x: int) -> int:
    return s("Transpose", x, perm=tuple(int(axis) for axis in s.rng.permutation(len(s.dims(x)))))


def _unit_transpose(s: Sketch) -> Graph:
    dims = [1, 2, 1, 3, 1]
    long = iter([1, 3])
    perm = [0, 2, 4]
    places = sorted(int(p) for p in s.rng.choice(5, 2, replace=False))
    order = [int(a) for a in s.rng.permutation(perm)]
    return s.graph(s("Transpose", s.x(*dims), perm=tuple(next(long) if p in places else order.pop() for p in range(5))))


def _cut(s: Sketch, x: int) -> int:
    """A Slice that takes something of one or two axes, forwards or backwards."""
    dims = s.dims(x)
    axes = [int(a) for a in s.rng.permutation(len(dims))[: int(s.rng.integers(1, 3))]]
    starts, ends, steps = [], [], []
    for axis in axes:
        a, b = sorted(int(v) for v in s.rng.choice(dims[axis] + 1, 2, replace=False))
        backwards = bool(s.rng.integers(2))
        starts.append(b - 1 if backwards else a - (dims[axis] if s.rng.integers(2) and a < dims[axis] else 0))
        ends.append((a - 1 if a else -(2**31)) if backwards else (b if b < dims[axis] else 2**31 - 1))
        steps.append((-1 if backwards else 1) * int(s.rng.integers(1, 3)))
    places = tuple(axis - (len(dims) if s.rng.integers(2) else 0) for axis in axes)
    return s("Slice", x, *(None,) * 4, starts=tuple(starts), ends=tuple(ends), axes=places, steps=tuple(steps))


def _joined(s: Sketch) -> tuple[int, tuple[int, ...]]:
    parts = tuple(s.x(2, extent, 3) for extent in (2, 1, 4))
    return s("Concat", *parts, axis=int(s.rng.choice([1, -2]))), parts


def _slice_of_concat(s: Sketch) -> Graph:
    whole, _ = _joined(s)
    begin, extent = [(0, 2), (2, 1), (3, 4)][int(s.rng.integers(3))]
    a, b = sorted(int(v) for v in s.rng.choice(extent + 1, 2, replace=False))
    back = bool(s.rng.integers(2))
    start, end = (begin + b - 1, begin + a - 1 if begin + a else -(2**31)) if back else (begin + a, begin + b)
    attrs = {"starts": (start, 1), "ends": (end, 3), "axes": (1, 2), "steps": (-1 if back else 1, 1)}
    return s.graph(s("Slice", whole, *(None,) * 4, **attrs))


def _split_of_concat(s: Sketch) -> Graph:
    whole, _ = _joined(s)
    parts = s.many("Split", whole, None, outputs=3, axis=1, split=(2, 1, 4))
    return s.graph(*(s("Abs", part) for part in parts))


def _padded(s: Sketch, spatial: bool = True, **attrs: object) -> int:
    pads = (0, 0, *(int(p) for p in s.rng.integers(0, 3, 2))) * 2
    return s("Pad", s.x(1, 2, 4, 5), *(None,) * 3, pads=pads if spatial else (0, 1, 0, 0, 0, 0, 1, 0), **attrs)


def _average(s: Sketch) -> Graph:
    counted = int(s.rng.integers(2))
    pads = tuple(int(p) for p in s.rng.integers(0, 2, 4)) if counted else (0, 0, 0, 0)
    return s.graph(
        s("AveragePool", _padded(s), kernel_shape=(2, 2), pads=pads, count_include_pad=counted, strides=(1, 2))
    )


def _cast_of_cast(s: Sketch) -> Graph:
    first, second = [(DType.I8, 6), (DType.U8, 10), (DType.F32, 11), (DType.F16, 1), (DType.BOOL, 1)][
        int(s.rng.integers(5))
    ]
    x = s.x(2, 3, dtype=first)
    return s.graph(s("Cast", s("Cast", x, to=second), to=int(s.rng.choice([1, 7, 9, 11, 10]))))


def _negative(s: Sketch, op: str) -> Graph:
    """op(op(x, a), b), the constants on either side."""
    x = s.x(2, 3)
    for _ in range(2):
        constant = s.positive(*((3,) if s.rng.integers(2) else ()))
        x = s(op, x, constant) if s.rng.integers(2) else s(op, constant, x)
    return s.graph(x)


def _cell(s: Sketch, op: str, steps: int = 1, **attrs: object) -> Graph:
    """A recurrent layer in one of its forms: initial states, biases, peepholes, outputs, layout there or not."""
    gates, states = {"RNN": (1, 1), "GRU": (3, 1), "LSTM": (4, 2)}[op]
    batch, features, hidden = int(s.rng.integers(1, 3)), int(s.rng.integers(1, 4)), int(s.rng.integers(1, 4))
    layout = int(s.rng.integers(2))
    x = s.x(*((batch, steps, features) if layout else (steps, batch, features)))
    inputs: list[int | None] = [x, s.normal(1, gates * hidden, features), s.normal(1, gates * hidden, hidden)]
    inputs.append(s.normal(1, 2 * gates * hidden) if s.rng.integers(2) else None)
    inputs.append(None)
    state = (batch, 1, hidden) if layout else (1, batch, hidden)
    for _ in range(states):
        kind = int(s.rng.integers(3))
        inputs.append(s.x(*state) if kind == 0 else s.c(np.zeros(state)) if kind == 1 else None)
    if op == "LSTM":
        inputs.append(s.normal(1, 3 * hidden) if s.rng.integers(2) else None)
        attrs = {"input_forget": int(s.rng.integers(2)), **attrs}
    if op == "GRU":
        attrs = {"linear_before_reset": int(s.rng.integers(2)), **attrs}
    direction = str(s.rng.choice(["forward", "reverse"]))
    attrs = {"direction": direction, "hidden_size": hidden, "layout": layout, **attrs}
    count = int(s.rng.integers(1, states + 2))
    return s.graph(*(s("Neg", y) for y in s.many(op, *inputs, outputs=count, **attrs)))


def _gathered(s: Sketch, width: int = 4) -> int:
    """Rows of a table, of `width` numbers each."""
    indices = s.x(*_shape(s, rank=int(s.rng.integers(1, 3))), dtype=DType.I64)
    return s("Gather", s.normal(50, width), indices, axis=0)


def _table_too_large(s: Sketch) -> Graph:
    """A product of which the table would take more than all that may be kept."""
    wide = np.broadcast_to(np.float64(0.5), (4, (GATHERED_BYTES // (8 * 50)) + 1))
    return s.graph(s("MatMul", _gathered(s), s.c(wide)))


def _bytes(s: Sketch, *shape: int, signed: bool = True) -> int:
    """A constant of bytes."""
    dtype = DType.I8 if signed else DType.U8
    return s.c(s.rng.integers(-128 if signed else 0, 128 if signed else 256, shape), dtype)


def _power(s: Sketch, *shape: int) -> int:
    """Scales that are powers of two, so that a product of two is exact in every precision."""
    return s.c(2.0 ** -s.rng.integers(2, 6, shape), DType.F32)


def _dequantised_input(s: Sketch, *shape: int) -> int:
    """Random bytes as floats, with one scale."""
    signed = bool(s.rng.integers(2))
    zero = [(), (_bytes(s, signed=signed),)][int(s.rng.integers(2))]
    return s("DequantizeLinear", s.x(*shape, dtype=DType.I8 if signed else DType.U8), _power(s), *zero)


def _dequantised_weights(s: Sketch, shape: tuple[int, ...], channel: int, each: bool | None = None) -> int:
    """Constant bytes as floats, with one scale for all or one for each channel."""
    signed = bool(s.rng.integers(2))
    per = (shape[channel],) if (s.rng.integers(2) if each is None else each) else ()
    zero = [(), (_bytes(s, *per, signed=signed),)][int(s.rng.integers(2))]
    return s("DequantizeLinear", _bytes(s, *shape, signed=signed), _power(s, *per), *zero, axis=channel)


def _product_of_bytes(s: Sketch) -> Graph:
    """A product whose operands are dequantised just before it, with a bias of whole multiples of the scales' least product."""
    kind = int(s.rng.integers(4))
    if kind < 2:
        x = _dequantised_input(s, 1, 4, *(5,) * (kind + 1))
        groups = int(s.rng.choice([1, 2]))
        w = _dequantised_weights(s, (6, 4 // groups, *(2,) * (kind + 1)), 0)
        bias = [(), (s.c(s.rng.integers(-9, 9, 6), DType.F32),)][int(s.rng.integers(2))]
        return s.graph(s("Relu", s("Conv", x, w, *bias, group=groups, pads=(1,) * 2 * (kind + 1))))
    if kind == 2:
        return s.graph(s("MatMul", _dequantised_input(s, 2, 3, 5), _dequantised_weights(s, (5, 4), 1)))
    turned = int(s.rng.integers(2))
    w = _dequantised_weights(s, (4, 5) if turned else (5, 4), 0 if turned else 1)
    bias = [(), (s.c(s.rng.integers(-9, 9, 4), DType.F32),)][int(s.rng.integers(2))]
    return s.graph(s("Gemm", _dequantised_input(s, 3, 5), w, *bias, transB=turned, alpha=0.5, beta=2.0))


LEFT: Mapping[str, Drawing] = {
    "products_of_bytes": _product_of_bytes,
    "constant_folding": lambda s: s.graph(s("Add", s.x(2), s("Exp", s("Mul", s.normal(2), s.normal(2))))),
    "identity": lambda s: s.graph(s("Abs", s("Identity", s.x(*_shape(s))))),
    "add_negative_zero": lambda s: _around(s, "Add", -0.0),
    "add_zero": lambda s: _around(s, "Add", 0.0),
    "subtract_zero": lambda s: _around(s, "Sub", 0.0, either=False),
    "multiply_by_one": lambda s: _around(s, "Mul", 1.0),
    "divide_by_one": lambda s: _around(s, "Div", 1.0, either=False),
    "power_of_one": lambda s: _around(s, "Pow", 1.0, either=False),
    "negated_twice": lambda s: s.graph(s("Abs", s("Neg", s("Neg", s.x(*_shape(s)))))),
    "cast_to_own_type": lambda s: s.graph(s("Abs", s("Cast", s.x(3, dtype=DType.F32), to=1))),
    "only_operand": lambda s: s.graph(s("Abs", s(str(s.rng.choice(["Sum", "Max", "Min", "Mean"])), s.x(*_shape(s))))),
    "relu_of_relu": lambda s: s.graph(s("Relu", s("Relu", s.x(4, 4)))),
    "clamp_without_bounds": lambda s: s.graph(s("Neg", s("Clip", s.x(4, 4), None, s.c(math.inf)))),
    "clamp_that_is_relu": lambda s: s.graph(
        s("Clip", s.x(4, 4), s.c(0), *((s.c(math.inf),) if s.rng.integers(2) else ()))
    ),
    "clamp_of_clamp": lambda s: s.graph(_clamp(s, _clamp(s, s.x(4, 4)))),
    "reshape_to_own_shape": lambda s: s.graph(s("Abs", s("Reshape", s.x(2, 3), None, shape=(0, -1)))),
    "reshape_of_reshape": lambda s: s.graph(_reshape(s, _reshape(s, s.x(2, 1, 3)))),
    "reshape_by_another_name": lambda s: s.graph(
        s("Flatten", s.x(2, 3, 2)) if s.rng.integers(2) else s("Squeeze", s.x(1, 3, 1), None)
    ),
    "transpose_of_nothing": lambda s: s.graph(s("Abs", s("Transpose", s.x(2, 3), perm=(0, 1)))),
    "transpose_of_unit_axes": _unit_transpose,
    "transpose_of_transpose": lambda s: s.graph(_transpose(s, _transpose(s, s.x(2, 3, 4)))),
    "expand_to_own_shape": lambda s: s.graph(s("Abs", s("Expand", s.x(2, 3), None, shape=(2, 1)))),
    "cast_of_cast": _cast_of_cast,
    "slice_of_everything": lambda s: s.graph(
        s("Abs", s("Slice", s.x(2, 3), *(None,) * 4, starts=(0,), ends=(2**31 - 1,), axes=(-1,), steps=(1,)))
    ),
    "slice_of_slice": lambda s: s.graph(_cut(s, _cut(s, s.x(4, 5, 3)))),
    "slice_of_concat": _slice_of_concat,
    "split_of_one": lambda s: s.graph(s("Abs", s("Split", s.x(2, 3), None, axis=1, split=(3,)))),
    "split_of_concat": _split_of_concat,
    "concat_of_split": lambda s: s.graph(
        s("Abs", s("Concat", *s.many("Split", s.x(2, 4), None, outputs=2, axis=1, split=(1, 3)), axis=-1))
    ),
    "concat_of_concat": lambda s: s.graph(s("Concat", s.x(2, 1), s("Concat", s.x(2, 3), s.x(2, 2), axis=1), axis=-1)),
    "gelu_by_erf": _gelu,
    "gelu_by_tanh": _gelu_tanh,
    "swish_by_sigmoid": _swish,
    "hard_swish_by_clamp": _hard_swish,
    "hard_sigmoid_by_clip": _hard_sigmoid,
    "layer_norm_by_moments": _layer_norm,
    "layer_norm_scale": lambda s: s.graph(s("Mul", _normed(s), s.positive(4))),
    "layer_norm_bias": lambda s: s.graph(s("Add", s.normal(1), _normed(s))),
    "softmax_by_exp": _softmax,
    "pad_of_nothing": lambda s: s.graph(s("Abs", s("Pad", s.x(2, 3), *(None,) * 3, pads=(0, 0, 0, 0)))),
    "pad_into_conv": lambda s: s.graph(_conv(s, _padded(s))),
    "pad_into_average_pool": _average,
    "batch_norm_into_weights": lambda s: s.graph(_batch_norm(s, _linear(s, matmul=False))),
    "batch_norm_alone": lambda s: s.graph(_batch_norm(s, s.x(2, 3, *_shape(s)[:2]))),
    "scale_into_weights": _scaled,
    "scale_past_shift": _past_shift,
    "shift_into_bias": _shifted,
    "scale_before_weights": _scale_before,
    "rnn_of_one_step": lambda s: _cell(s, "RNN"),
    "lstm_of_one_step": lambda s: _cell(s, "LSTM"),
    "gru_of_one_step": lambda s: _cell(s, "GRU"),
    "product_of_gather": lambda s: s.graph(s("MatMul", _gathered(s), s.normal(4, 3))),
    "subtract_constant": lambda s: s.graph(s("Sub", s.x(2, 3), s.normal(3))),
    "divide_by_power_of_two": lambda s: s.graph(
        s("Div", s.x(2, 4), s.c(2.0 ** s.rng.integers(-20, 20, 4) * s.rng.choice([1, -1], 4)))
    ),
    "add_constants": lambda s: _negative(s, "Add"),
    "multiply_constants": lambda s: _negative(s, "Mul"),
    "negate_product": lambda s: s.graph(s("Neg", s("Mul", s.x(2, 3), s.normal(3)))),
}
"""A drawing of a left side, by the rule's name."""


def _kept(s: Sketch, op: str, x: int, *outputs: int) -> Graph:
    """Two nodes op(op(x)) of which the inner result is a graph output as well."""
    inner = s(op, x)
    return s.graph(inner, s(op, inner), *outputs)


def _shared_scale(s: Sketch) -> Graph:
    y = _conv(s, s.x(1, 2, 5), groups=1)
    return s.graph(s("Mul", y, s.c(2)), s("Abs", y))


def _shared_pad(s: Sketch) -> Graph:
    p = _padded(s)
    return s.graph(_conv(s, p), p)


def _inner_output(graph: Graph, steps: int) -> Graph:
    """The same program, of which the value `steps` nodes before the last is a graph output as well."""
    return Graph(
        graph.values, graph.nodes, graph.inputs, (*graph.outputs, graph.nodes[-1 - steps].outputs[0]), graph.constants
    )


def _huge(s: Sketch) -> Graph:
    return s.graph(s("Mul", s("Mul", s.x(2), s.c(1e200)), s.c(1e200)))


REFUSED: Mapping[str, tuple[Drawing, str]] = {
    "products_of_bytes": (
        lambda s: s.graph(s("MatMul", _dequantised_input(s, 2, 3), _dequantised_weights(s, (3, 4), 0, each=True))),
        "which is no channel of the result",
    ),
    "constant_folding": (lambda s: s.graph(s("Exp", s.normal(2))), "graph output"),
    "identity": (lambda s: s.graph(s("Identity", s.x(2))), "must keep its own id"),
    "add_negative_zero": (lambda s: _around(s, "Add", 0.0), ""),
    "add_zero": (lambda s: s.graph(s("Abs", s("Add", s.x(3), s.c([[0], [0]])))), ""),
    "subtract_zero": (lambda s: _around(s, "Sub", -0.0, either=False), ""),
    "multiply_by_one": (lambda s: _around(s, "Mul", 0.0), ""),
    "divide_by_one": (lambda s: s.graph(s("Abs", s("Div", s.c(1), s.x(3)))), ""),
    "power_of_one": (lambda s: s.graph(s("Abs", s("Pow", s.c(1), s.x(3)))), ""),
    "negated_twice": (lambda s: s.graph(s("Neg", s("Abs", s("Neg", s.x(3))))), ""),
    "cast_to_own_type": (lambda s: s.graph(s("Abs", s("Cast", s.x(3), to=1))), ""),
    "only_operand": (lambda s: s.graph(s("Abs", s("Mean", s.x(3), s.x(3)))), ""),
    "relu_of_relu": (lambda s: s.graph(s("Relu", s("Neg", s("Relu", s.x(3))))), ""),
    "clamp_without_bounds": (lambda s: s.graph(s("Neg", s("Clip", s.x(3), s.x()))), "no constant"),
    "clamp_that_is_relu": (lambda s: s.graph(s("Neg", s("Clip", s.x(3), s.c(-0.0)))), ""),
    "clamp_of_clamp": (lambda s: s.graph(s("Relu", s("Clip", s.x(3), s.c(math.nan)))), "not a number"),
    "reshape_to_own_shape": (lambda s: s.graph(s("Abs", s("Reshape", s.x(2, 3), None, shape=(3, 2)))), ""),
    "reshape_of_reshape": (lambda s: s.graph(s("Flatten", s("Transpose", s("Flatten", s.x(2, 3, 2))))), ""),
    "reshape_by_another_name": (lambda s: s.graph(s("Reshape", s.x(2, 3), None, shape=(-1,))), ""),
    "transpose_of_nothing": (lambda s: s.graph(s("Abs", s("Transpose", s.x(2, 2), perm=(1, 0)))), ""),
    "transpose_of_unit_axes": (lambda s: s.graph(s("Transpose", s.x(1, 2, 3), perm=(0, 2, 1))), ""),
    "transpose_of_transpose": (lambda s: s.graph(s("Transpose", s("Abs", s("Transpose", s.x(2, 3))))), ""),
    "expand_to_own_shape": (lambda s: s.graph(s("Abs", s("Expand", s.x(1, 3), None, shape=(2, 3)))), ""),
    "cast_of_cast": (lambda s: s.graph(s("Cast", s("Cast", s.x(3), to=1), to=11)), "loses something"),
    "slice_of_everything": (
        lambda s: s.graph(s("Abs", s("Slice", s.x(3), *(None,) * 4, starts=(2,), ends=(-9,), axes=(0,), steps=(-1,)))),
        "",
    ),
    "slice_of_slice": (lambda s: s.graph(_cut(s, s("Abs", _cut(s, s.x(4, 5))))), ""),
    "slice_of_concat": (
        lambda s: s.graph(s("Slice", _joined(s)[0], *(None,) * 4, starts=(1,), ends=(4,), axes=(1,), steps=(1,))),
        "several operands",
    ),
    "split_of_one": (lambda s: s.graph(*s.many("Split", s.x(2, 3), None, outputs=2, axis=1, split=(1, 2))), ""),
    "split_of_concat": (
        lambda s: s.graph(*s.many("Split", _joined(s)[0], None, outputs=3, axis=1, split=(1, 2, 4))),
        "other parts",
    ),
    "concat_of_split": (
        lambda s: s.graph(
            s("Abs", s("Concat", *s.many("Split", s.x(2, 4), None, outputs=2, axis=1, split=(2, 2))[::-1], axis=1))
        ),
        "",
    ),
    "concat_of_concat": (
        lambda s: _inner_output(s.graph(s("Concat", s.x(2, 1), s("Concat", s.x(2, 3), s.x(2, 2), axis=1), axis=1)), 1),
        "needed elsewhere",
    ),
    "gelu_by_erf": (lambda s: _inner_output(_gelu(s), 1), "graph output"),
    "gelu_by_tanh": (lambda s: _inner_output(_gelu_tanh(s), 1), "graph output"),
    "swish_by_sigmoid": (lambda s: _inner_output(_swish(s), 1), "graph output"),
    "hard_swish_by_clamp": (lambda s: s.graph(s("Mul", x := s.x(3), s("HardSigmoid", x, alpha=0.2))), ""),
    "hard_sigmoid_by_clip": (lambda s: s.graph(s("Div", _clip_to_six(s, s.x(3)), s.c(5))), ""),
    "layer_norm_by_moments": (lambda s: _layer_norm(s, axes=(1,)), "not the last ones"),
    "layer_norm_scale": (lambda s: s.graph(s("Mul", _normed(s), s.positive(3, 1))), "not normalised"),
    "layer_norm_bias": (lambda s: _inner_output(s.graph(s("Add", _normed(s), s.normal(4))), 1), "graph output"),
    "softmax_by_exp": (lambda s: _inner_output(_softmax(s), 2), "graph output"),
    "pad_of_nothing": (lambda s: s.graph(s("Abs", s("Pad", s.x(2), *(None,) * 3, pads=(1, -1)))), ""),
    "pad_into_conv": (lambda s: s.graph(_conv(s, _padded(s, constant_value=1.0))), "else than zeros"),
    "pad_into_average_pool": (
        lambda s: s.graph(s("AveragePool", _padded(s), kernel_shape=(2, 2), pads=(1, 1, 1, 1), count_include_pad=0)),
        "but not its own",
    ),
    "batch_norm_into_weights": (
        lambda s: _inner_output(s.graph(_batch_norm(s, _conv(s, s.x(1, 2, 4)))), 1),
        "graph output",
    ),
    "batch_norm_alone": (
        lambda s: s.graph(
            s("BatchNormalization", s.x(1, 1, 2), s.normal(1), s.normal(1), s.normal(1), s.c([-1.0]), epsilon=0.0)
        ),
        "not finite",
    ),
    "scale_into_weights": (_shared_scale, "also read by"),
    "scale_past_shift": (
        lambda s: s.graph(s("Mul", s("Add", s("MatMul", s.x(2, 3), s.normal(3, 2)), s.normal(2)), s.positive(2, 1))),
        "not one number per channel",
    ),
    "shift_into_bias": (lambda s: s.graph(s("Add", _conv(s, s.x(1, 2, 4), groups=1), s.normal(1, 1, 1, 1))), ""),
    "scale_before_weights": (
        lambda s: s.graph(_conv(s, s("Mul", s.x(1, 2, 4), s.positive(1, 1, 4)))),
        "not one number per channel",
    ),
    "rnn_of_one_step": (lambda s: _cell(s, "RNN", clip=1.0), "gates are clipped"),
    "lstm_of_one_step": (lambda s: _cell(s, "LSTM", steps=2), ""),
    "gru_of_one_step": (
        lambda s: _cell(s, "GRU", activations=("HardSigmoid", "Tanh")),
        "activations HardSigmoid, Tanh are not all operators",
    ),
    "product_of_gather": (_table_too_large, "too large"),
    "subtract_constant": (lambda s: s.graph(s("Sub", s.c(1), s.x(3))), ""),
    "divide_by_power_of_two": (lambda s: s.graph(s("Div", s.x(3), s.c([2.0, 3.0, 4.0]))), ""),
    "add_constants": (lambda s: s.graph(s("Add", s("Add", s.x(2, 3), s.normal(3)), s.normal(2, 1))), "elements"),
    "multiply_constants": (_huge, "not be finite"),
    "negate_product": (lambda s: s.graph(s("Neg", s("Mul", s.x(3), s.x(3)))), ""),
}
"""A program at which the rule must do nothing, and what its reason says; empty where the left side is not there."""

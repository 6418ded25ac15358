"""ONNX's operators as those of TFLite in int8, one function each; all take a `Converter` and a node."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from onnx import NodeProto, helper

from compiler.accelerate.tflite.convert import Converter, Held, Scale, refused
from compiler.accelerate.tflite.flatbuffer import NONE, RELU, RELU6, SAME, VALID

UNIT: Scale = (1 / 256, -128)
SIGNED_UNIT: Scale = (1 / 128, 0)


def _attributes(node: NodeProto) -> dict[str, Any]:
    return {one.name: helper.get_attribute_value(one) for one in node.attribute}


def _fused(c: Converter, node: NodeProto) -> tuple[str, int]:
    """The result of a node with the Relu behind it, if only that reads it, and its number in TFLite."""
    name = node.output[0]
    reader = c.network.only_reader(name)
    if reader is None or name in c.schemes or (kind := _clamp(c, reader)) is None:
        return name, NONE
    c.done.add(reader.output[0])
    return reader.output[0], kind


def _clamp(c: Converter, node: NodeProto) -> int | None:
    if node.op_type == "Relu":
        return RELU
    return RELU6 if node.op_type == "Clip" and _ends(c, node) == (0.0, 6.0) else None


def _ends(c: Converter, node: NodeProto) -> tuple[float, float] | None:
    """Those of a Clip, infinite where it has none; None where data say them."""
    found = []
    for name, none in zip([*node.input[1:3], "", ""][:2], (-math.inf, math.inf), strict=True):
        end = c.fixed(name) if name else np.array(none)
        if end is None:
            return None
        found.append(float(np.asarray(end).reshape(())))
    return found[0], found[1]


def _window(c: Converter, node: NodeProto, held: Held, kernel: tuple[int, int], fill: int) -> tuple[Held, Any]:
    """Strides and padding; what is neither SAME nor VALID is padded by an operator before."""
    attrs = _attributes(node)
    strides = tuple(attrs.get("strides", (1, 1)))
    dilations = tuple(attrs.get("dilations", (1, 1)))
    pads = tuple(attrs.get("pads", (0, 0, 0, 0)))
    auto = attrs.get("auto_pad", b"NOTSET").decode()
    spans = [(kernel[at] - 1) * dilations[at] + 1 for at in (0, 1)]
    sizes = held.shape[1:3]
    totals = [max((-(-sizes[at] // strides[at]) - 1) * strides[at] + spans[at] - sizes[at], 0) for at in (0, 1)]
    same = (*(total // 2 for total in totals), *(total - total // 2 for total in totals))
    if auto == "SAME_LOWER":
        raise refused(node, "auto_pad is SAME_LOWER", "state pads")
    padding = SAME if auto == "SAME_UPPER" or (any(pads) and pads == same) else VALID
    if auto == "NOTSET" and any(pads) and padding == VALID:
        widths = np.array([[0, 0], [pads[0], pads[2]], [pads[1], pads[3]], [0, 0]], np.int32)
        shape = tuple(size + int(sum(width)) for size, width in zip(held.shape, widths, strict=True))
        held = _padded(c, held, widths, shape, f"{node.output[0]}.padded", fill)
    return held, {"padding": padding, "stride_h": strides[0], "stride_w": strides[1]}


def _padded(c: Converter, held: Held, widths: np.ndarray, shape: tuple[int, ...], name: str, fill: int) -> Held:
    number = c.writer.tensor(name, shape, "int8", *held.scale)
    inputs = [held.number, c.writer.constant("paddings", widths)]
    if fill == held.scale[1]:
        c.writer.operator("PAD", inputs, [number])
    else:
        value = c.writer.constant("fill", np.array([fill], np.int8), *held.scale)
        c.writer.operator("PADV2", [*inputs, value], [number])
    return Held(number, shape, held.scale, held.last)


def _of_last(c: Converter, name: str) -> list[int]:
    n, channels, h, w = c.shape(name)
    return [n, h, w, channels]


def conv(c: Converter, node: NodeProto) -> None:
    """A convolution over two axes, plain or with one filter (or several) for each channel."""
    if len(c.shape(node.output[0])) != 4:
        raise refused(node, "it is no convolution over two axes", "reshape it to two, one of them of size 1")
    weights, scales = c.weights(node, 1, 0)
    attrs, group = _attributes(node), int(_attributes(node).get("group", 1))
    name, activation = _fused(c, node)
    held = c.last(node.input[0])
    held, options = _window(c, node, held, (weights.shape[2], weights.shape[3]), held.scale[1])
    dilation = attrs.get("dilations", (1, 1))
    options |= {"activation": activation, "dilation_h": dilation[0], "dilation_w": dilation[1]}
    products = np.asarray(np.float32(held.scale[0]) * scales.astype(np.float32))
    if group == 1:
        kind, axis, stored = "CONV_2D", 0, weights.transpose(0, 2, 3, 1)
    elif group == held.shape[3]:
        kind, axis, stored = "DEPTHWISE_CONV_2D", 3, weights.transpose(1, 2, 3, 0)
        options["depth_multiplier"] = weights.shape[0] // group
    else:
        raise refused(node, f"it has {group} groups of several channels", "split it into convolutions of one group")
    inputs = [
        held.number,
        c.writer.constant(f"{name}.weights", stored, scales, 0, axis),
        c.bias(node, weights.shape[0], products),
    ]
    c.emit(kind, inputs, node, name, _of_last(c, name), last=True, **options)


def conv_transpose(c: Converter, node: NodeProto) -> None:
    """A transposed convolution without padding and with one group."""
    attrs = _attributes(node)
    odd = [key for key in ("pads", "output_padding", "output_shape") if any(attrs.get(key, ()))]
    if odd or attrs.get("group", 1) != 1 or any(one != 1 for one in attrs.get("dilations", ())):
        raise refused(node, "only without padding, dilation and groups", "choose a kernel as large as its strides")
    weights, scales = c.weights(node, 1, 1)  # I, O, h, w
    held, (name, activation) = c.last(node.input[0]), _fused(c, node)
    strides, shape = attrs.get("strides", (1, 1)), _of_last(c, name)
    products = np.asarray(np.float32(held.scale[0]) * scales.astype(np.float32))
    inputs = [
        c.ints(*shape),
        c.writer.constant(f"{name}.weights", weights.transpose(1, 2, 3, 0), scales),
        held.number,
        c.bias(node, weights.shape[1], products),
    ]
    options: dict[str, Any] = {
        "padding": VALID,
        "stride_h": strides[0],
        "stride_w": strides[1],
        "activation": activation,
    }
    c.emit("TRANSPOSE_CONV", inputs, node, name, shape, last=True, **options)


def dense(c: Converter, node: NodeProto) -> None:
    """A product with a constant matrix; of two results of operators, a batched product."""
    attrs = _attributes(node)
    if c.fixed(node.input[1]) is None and node.op_type == "MatMul":
        a, b = c.plain(node.input[0]), c.plain(node.input[1])
        c.emit("BATCH_MATMUL", [a.number, b.number], node, node.output[0], c.shape(node.output[0]), last=False)
        return
    transposed = bool(attrs.get("transB", 0))
    if attrs.get("transA", 0) or attrs.get("alpha", 1.0) != 1.0 or attrs.get("beta", 1.0) != 1.0:
        raise refused(node, "factors and a transposed first operand are not taken", "fold them into the weights")
    weights, scales = c.weights(node, 1, 0 if transposed else 1)
    if weights.ndim != 2:
        raise refused(node, "its constant operand is no matrix", "reshape it to a matrix")
    weights = weights if transposed else np.ascontiguousarray(weights.T)
    held, (name, activation) = c.plain(node.input[0]), _fused(c, node)
    products = np.asarray(np.float32(held.scale[0]) * scales.astype(np.float32))
    inputs = [
        held.number,
        c.writer.constant(f"{name}.weights", weights, scales),
        c.bias(node, weights.shape[0], products),
    ]
    options: dict[str, Any] = {"activation": activation, "keep_num_dims": len(held.shape) != 2}
    c.emit("FULLY_CONNECTED", inputs, node, name, c.shape(name), last=False, **options)


def elementwise(kind: str) -> Callable[[Converter, NodeProto], None]:
    """Of two operands, either of which may be a constant that is broadcast."""

    def write(c: Converter, node: NodeProto) -> None:
        name, activation = _fused(c, node)
        shape = c.shape(name)
        data = [one for one in node.input if c.fixed(one) is None]
        last = len(shape) == 4 and all(len(c.shape(one)) == 4 for one in data)
        numbers = []
        for one in node.input:
            real = c.fixed(one)
            if real is None:
                numbers.append((c.last(one) if last else c.plain(one)).number)
                continue
            real = np.asarray(real, np.float64)
            if last:
                real = real.reshape((1,) * (4 - real.ndim) + real.shape).transpose(0, 2, 3, 1)
            scale = float(np.float32(max(float(np.abs(real).max(initial=0.0)) / 127, 1e-9)))
            numbers.append(c.writer.constant(one, np.rint(real / scale).astype(np.int8), scale))
        stored = _of_last(c, name) if last else shape
        c.emit(kind, numbers, node, name, stored, last=last, activation=activation)

    return write


def unary(kind: str, must: Scale | None = None, *, plain: bool = False) -> Callable[[Converter, NodeProto], None]:
    """Of one operand of the same shape, in any layout unless `plain`."""

    def write(c: Converter, node: NodeProto) -> None:
        held = c.plain(node.input[0]) if plain else c.held[c.root(node.input[0])]
        options: dict[str, Any] = {}
        attrs = _attributes(node)
        if kind == "SOFTMAX":
            if attrs.get("axis", -1) not in (-1, len(held.shape) - 1):
                raise refused(node, "its axis is not the last one", "transpose around it")
            options["beta"] = 1.0
        elif kind == "LEAKY_RELU":
            options["alpha"] = float(attrs.get("alpha", 0.01))
        elif kind == "GELU":
            options["approximate"] = attrs.get("approximate", b"none") == b"tanh"
        c.emit(kind, [held.number], node, node.output[0], held.shape, last=held.last, must=must, **options)

    return write


def power(c: Converter, node: NodeProto) -> None:
    """To -0.5: the one power that accelerators have."""
    exponent = c.fixed(node.input[1])
    if exponent is None or np.asarray(exponent).reshape(-1).tolist() != [-0.5]:
        raise refused(node, "only the exponent -0.5 is there", "write products out")
    unary("RSQRT")(c, node)


def clip(c: Converter, node: NodeProto) -> None:
    """Between 0 and 6 TFLite has it by itself; around 0 the bytes of a scale that ends there clip by themselves."""
    ends = _ends(c, node)
    if ends == (0.0, 6.0):
        unary("RELU6")(c, node)
        return
    step, zero = c.wanted(node.output[0])
    if ends is None or not ends[0] - step <= step * (-128 - zero) <= step * (127 - zero) <= ends[1] + step:
        raise refused(
            node,
            "its ends are data, do not lie around 0, or its scale holds more than is between them",
            "use Relu, a Clip between 0 and 6, or one with 0 between its ends",
        )
    unary("QUANTIZE")(c, node)


def prelu(c: Converter, node: NodeProto) -> None:
    """With a slope for each channel."""
    real = c.fixed(node.input[1])
    if real is None or len(c.shape(node.input[0])) != 4:
        raise refused(node, "its slope is data, or its input has not four axes", "use LeakyRelu")
    held = c.last(node.input[0])
    slopes = np.broadcast_to(np.asarray(real, np.float64).reshape(-1), (held.shape[3],)).reshape(1, 1, -1)
    scale = max(float(np.abs(slopes).max()) / 127, 1e-9)
    alpha = c.writer.constant(f"{node.output[0]}.slope", np.rint(slopes / scale).astype(np.int8), scale)
    c.emit("PRELU", [held.number, alpha], node, node.output[0], held.shape, last=True)


def pool(kind: str) -> Callable[[Converter, NodeProto], None]:
    """Over windows of two axes, in the scale of its operand."""

    def write(c: Converter, node: NodeProto) -> None:
        attrs, held = _attributes(node), c.last(node.input[0])
        kernel, name = attrs["kernel_shape"], node.output[0]
        counted = attrs.get("count_include_pad", 0)
        if kind == "AVERAGE_POOL_2D" and any(attrs.get("pads", ())) and not counted:
            raise refused(node, "it averages over less at its border", "leave out pads, or set count_include_pad")
        fill = -128 if kind == "MAX_POOL_2D" else held.scale[1]
        held, options = _window(c, node, held, (kernel[0], kernel[1]), fill)
        options |= {"filter_height": kernel[0], "filter_width": kernel[1]}
        c.emit(kind, [held.number], node, name, _of_last(c, name), last=True, must=held.scale, **options)

    return write


def mean(c: Converter, node: NodeProto) -> None:
    """Over given axes, or over all positions of a channel."""
    attrs, name = _attributes(node), node.output[0]
    rank = len(c.shape(node.input[0]))
    axes: Any = (2, 3) if node.op_type == "GlobalAveragePool" else attrs.get("axes")
    if axes is None and len(node.input) > 1:
        axes = c.fixed(node.input[1])
    axes = tuple(int(axis) % rank for axis in (range(rank) if axes is None else axes))
    keep = node.op_type == "GlobalAveragePool" or bool(attrs.get("keepdims", 1))
    if rank == 4 and axes == (2, 3):
        held = c.last(node.input[0])
        shape = (held.shape[0], 1, 1, held.shape[3]) if keep else c.shape(name)
        c.emit("MEAN", [held.number, c.ints(1, 2)], node, name, shape, last=keep, keep_dims=keep)
        return
    held = c.plain(node.input[0])
    c.emit("MEAN", [held.number, c.ints(*axes)], node, name, c.shape(name), last=False, keep_dims=keep)


def concat(c: Converter, node: NodeProto) -> None:
    """Along any axis; operands are brought to the scale of the result first."""
    name = node.output[0]
    rank = len(c.shape(name))
    axis, scale = int(_attributes(node)["axis"]) % rank, c.wanted(name)
    last = rank == 4 and any(c.held[c.root(one)].last for one in node.input)
    parts = [
        c.requantised(c.last(one) if last else c.plain(one), scale, f"{name}.part{at}")
        for at, one in enumerate(node.input)
    ]
    shape = _of_last(c, name) if last else c.shape(name)
    to = (0, 3, 1, 2)[axis] if last else axis
    c.emit("CONCATENATION", [one.number for one in parts], node, name, shape, last=last, axis=to)


def reshape(c: Converter, node: NodeProto) -> None:
    """Reshape, Flatten, Squeeze and Unsqueeze; no transpose where channels last is the same order."""
    name, held = node.output[0], c.held[c.root(node.input[0])]
    if held.last and not (held.shape[1] == held.shape[2] == 1 or held.shape[3] == 1):
        held = c.plain(node.input[0])
    shape = c.shape(name)
    c.emit("RESHAPE", [held.number, c.ints(*shape)], node, name, shape, last=False, must=held.scale)


def transpose(c: Converter, node: NodeProto) -> None:
    """In the model's order of axes."""
    held = c.plain(node.input[0])
    order = _attributes(node).get("perm", tuple(reversed(range(len(held.shape)))))
    shape = [held.shape[at] for at in order]
    c.emit("TRANSPOSE", [held.number, c.ints(*order)], node, node.output[0], shape, last=False, must=held.scale)


def pad(c: Converter, node: NodeProto) -> None:
    """With zeros."""
    name, held = node.output[0], c.plain(node.input[0])
    widths = c.fixed(node.input[1])
    value = c.fixed(node.input[2]) if len(node.input) > 2 and node.input[2] else np.zeros(1)
    constant = _attributes(node).get("mode", b"constant") == b"constant"
    if widths is None or not constant or value is None or np.any(value) or (widths < 0).any() or len(node.input) > 3:
        raise refused(node, "only constant widths of zeros, on all axes", "state both ends of each axis")
    both = np.ascontiguousarray(widths.reshape(2, -1).T.astype(np.int32))
    held = _padded(c, held, both, c.shape(name), name, held.scale[1])
    c.give(node, name, held)


def slices(c: Converter, node: NodeProto) -> None:
    """With constant bounds and steps above zero."""
    name, held = node.output[0], c.plain(node.input[0])
    given = [c.fixed(one) if one else None for one in node.input[1:]]
    if any(one is None for one in given[:2]):
        raise refused(node, "its bounds are data", "export it with constant bounds")
    starts = np.asarray(given[0]).reshape(-1)
    rank = len(held.shape)
    axes = given[2] if len(given) > 2 and given[2] is not None else np.arange(len(starts))
    steps = given[3] if len(given) > 3 and given[3] is not None else np.ones(len(starts))
    begin, end, step = [0] * rank, list(held.shape), [1] * rank
    for axis, low, high, by in zip(axes, starts, np.asarray(given[1]).reshape(-1), steps, strict=True):
        if by < 1:
            raise refused(node, "it steps backwards", "reverse by another operator")
        begin[axis], end[axis], step[axis] = slice(int(low), int(high), int(by)).indices(held.shape[axis])
    inputs = [held.number, c.ints(*begin), c.ints(*end), c.ints(*step)]
    c.emit("STRIDED_SLICE", inputs, node, name, c.shape(name), last=False, must=held.scale)


def split(c: Converter, node: NodeProto) -> None:
    """Each result as a slice."""
    held = c.plain(node.input[0])
    rank = len(held.shape)
    axis, at = int(_attributes(node).get("axis", 0)) % rank, 0
    for name in node.output:
        shape = c.shape(name)
        begin, end = [0] * rank, list(held.shape)
        begin[axis], end[axis] = at, at + shape[axis]
        at = end[axis]
        inputs = [held.number, c.ints(*begin), c.ints(*end), c.ints(*[1] * rank)]
        c.emit("STRIDED_SLICE", inputs, node, name, shape, last=False, must=held.scale)


def resize(c: Converter, node: NodeProto) -> None:
    """Of height and width: linear or nearest, in the coordinates that TFLite has."""
    attrs, held, name = _attributes(node), c.last(node.input[0]), node.output[0]
    mode, place = attrs.get("mode", b"nearest"), attrs.get("coordinate_transformation_mode", b"half_pixel")
    shape = _of_last(c, name)
    if mode == b"linear" and place in (b"half_pixel", b"asymmetric", b"align_corners"):
        kind, options = "RESIZE_BILINEAR", {"half_pixel_centers": place == b"half_pixel"}
    elif mode == b"nearest" and all(to % size == 0 for to, size in zip(shape[1:3], held.shape[1:3], strict=True)):
        kind, options = "RESIZE_NEAREST_NEIGHBOR", {"half_pixel_centers": False}
    else:
        raise refused(node, f"mode {mode.decode()} with {place.decode()}", "use linear, or nearest by whole factors")
    options["align_corners"] = place == b"align_corners"
    inputs = [held.number, c.ints(*shape[1:3])]
    c.emit(kind, inputs, node, name, shape, last=True, must=held.scale, **options)


def identity(c: Converter, node: NodeProto) -> None:
    """Nothing is written."""
    c.give(node, node.output[0], c.held[c.root(node.input[0])])


OPERATORS: dict[str, Callable[[Converter, NodeProto], None]] = {
    "Abs": unary("ABS"),
    "Add": elementwise("ADD"),
    "AveragePool": pool("AVERAGE_POOL_2D"),
    "Clip": clip,
    "Concat": concat,
    "Conv": conv,
    "ConvTranspose": conv_transpose,
    "Dropout": identity,
    "Flatten": reshape,
    "Gelu": unary("GELU"),
    "Gemm": dense,
    "GlobalAveragePool": mean,
    "HardSwish": unary("HARD_SWISH"),
    "Identity": identity,
    "LeakyRelu": unary("LEAKY_RELU"),
    "MatMul": dense,
    "MaxPool": pool("MAX_POOL_2D"),
    "Mul": elementwise("MUL"),
    "PRelu": prelu,
    "Pad": pad,
    "ReduceMean": mean,
    "Pow": power,
    "Relu": unary("RELU"),
    "Reshape": reshape,
    "Resize": resize,
    "Sigmoid": unary("LOGISTIC", UNIT),
    "Slice": slices,
    "Softmax": unary("SOFTMAX", UNIT, plain=True),
    "Split": split,
    "Squeeze": reshape,
    "Sub": elementwise("SUB"),
    "Tanh": unary("TANH", SIGNED_UNIT),
    "Transpose": transpose,
    "Unsqueeze": reshape,
}
"""By ONNX's name."""

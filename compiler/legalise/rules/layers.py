"""Layers, pools and means as convolutions and moves of elements, with the same values over the reals."""

from __future__ import annotations

import math
from itertools import product as pairs

import numpy as np

from compiler.ir.graph import Node
from compiler.legalise.program import context_of
from compiler.legalise.rules.pieces import Writer, is_float
from compiler.ops.attributes import ints, number_of
from compiler.rewrite.rule import EXACT, REASSOCIATES, Rule
from compiler.rewrite.view import No, Rewrite, View


def normalisation_as_convolution(view: View, node: Node) -> Rewrite | No | None:
    """batchnormalization(x) = a depthwise 1x1 convolution with a bias."""
    parts = [view.constant(value) for value in node.used[1:5]]
    if len(view.dims(node.used[0])) != 4 or len(node.outputs) != 1:
        return None
    if len(parts) != 4 or any(part is None for part in parts):
        return No("its parameters are computed")
    scale, bias, mean, variance = (np.asarray(part, np.float64) for part in parts)
    factor = scale / np.sqrt(variance + number_of(node, "epsilon", 1e-5))
    w = Writer(view, node)
    w.convolution(node.used[0], factor.reshape(-1, 1, 1, 1), bias - mean * factor, group=len(factor))
    return w.done("a normalisation by constants is a depthwise convolution")


def gemm_as_product(view: View, node: Node) -> Rewrite | No | None:
    """gemm(a, b, c) = alpha a b + beta c, for constants b and c."""
    weights = view.constant(node.used[1])
    bias = view.constant(node.inputs[2]) if len(node.inputs) > 2 else None
    if context_of(view).has("Gemm"):
        return None
    if weights is None or (len(node.used) > 2 and bias is None) or node.attrs.get("transA", 0):
        return No("its weights are computed, or its first operand is transposed")
    weights = weights.astype(np.float64) * number_of(node, "alpha", 1.0)
    w = Writer(view, node)
    made = w.node("MatMul", node.used[0], w.array(weights.T if node.attrs.get("transB", 0) else weights))
    if bias is not None:
        w.node("Add", made, w.array(bias.astype(np.float64) * number_of(node, "beta", 1.0)))
    return w.done("a Gemm is a product and a sum")


def product_as_fully_connected(view: View, node: Node) -> Rewrite | No | None:
    """x w = reshape(gemm(reshape(x), w)), for a constant matrix w."""
    weights = view.constant(node.used[1])
    if weights is None or weights.ndim != 2 or not is_float(view, node) or not context_of(view).has("Gemm"):
        return None
    dims = view.dims(node.used[0])
    w = Writer(view, node)
    rows = w.reshaped(node.used[0], (math.prod(dims[:-1]), dims[-1]))
    w.reshaped(w.node("Gemm", rows, node.used[1]), view.dims(node.outputs[0]))
    return w.done("a product with a constant matrix is a fully connected layer")


def product_as_1x1(view: View, node: Node) -> Rewrite | No | None:
    """x w = a 1x1 convolution of which the rows of x are the positions, for a constant matrix w."""
    weights = view.constant(node.used[1])
    if weights is None or weights.ndim != 2 or not is_float(view, node):
        return None
    dims = view.dims(node.used[0])
    rows, depth, made = math.prod(dims[:-1]), dims[-1], weights.shape[1]
    w = Writer(view, node)
    columns = w.node("Transpose", w.reshaped(node.used[0], (rows, depth)), perm=(1, 0))
    image = w.reshaped(columns, (1, depth, rows, 1))
    mixed = w.reshaped(w.convolution(image, weights.T.reshape(made, depth, 1, 1), None), (made, rows))
    w.reshaped(w.node("Transpose", mixed, perm=(1, 0)), view.dims(node.outputs[0]))
    return w.done("a product with a constant matrix is a 1x1 convolution")


def product_of_values(view: View, node: Node) -> Rewrite | No | None:
    """a b = sum over k of a[.., k] * b[k, ..], each product a map, for at most 64 of them."""
    if any(view.constant(value) is not None for value in node.used) or not is_float(view, node):
        return None
    a, b = (view.dims(value) for value in node.used)
    depth = a[-1]
    if len(a) != len(b) or len(a) < 2 or a[:-2] != b[:-2]:
        return No("its operands are not stacks of as many matrices")
    if depth > 64:
        return No(f"it sums {depth} products, and each would be a node")
    w = Writer(view, node)
    result, total = view.dims(node.outputs[0]), -1
    last, before = (len(a) - 1,), (len(a) - 2,)
    for k in range(depth):
        column = w.node("Slice", node.used[0], starts=(k,), ends=(k + 1,), axes=last, steps=(1,))
        row = w.node("Slice", node.used[1], starts=(k,), ends=(k + 1,), axes=before, steps=(1,))
        one = w.node("Mul", _spread(w, column, result), _spread(w, row, result))
        total = one if total < 0 else w.node("Add", total, one)
    return w.done("a product of two computed matrices is a sum of products of maps")


def _spread(w: Writer, value: int, dims: tuple[int, ...]) -> int:
    return value if w.dims(value) == dims else w.draft.node("Expand", (value, None), {"shape": dims})


def transposed_convolution_as_phases(view: View, node: Node) -> Rewrite | No | None:
    """convtranspose(x, w, stride s) = crop(depthtospace(conv(pad(x), w'))), w' with a filter for each of s x s phases.

    With a kernel as large as the stride w' is 1x1. Else its kernel is ceil(k / s), and holds every s-th weight, from
    the last to the first (Shi et al., "Is the deconvolution layer the same as a convolutional layer?", 2016).
    """
    weights = view.constant(node.used[1])
    bias = view.constant(node.inputs[2]) if len(node.inputs) > 2 else None
    dims, made = view.dims(node.used[0]), view.dims(node.outputs[0])
    if len(dims) != 4 or not is_float(view, node):
        return None
    if weights is None or (len(node.used) > 2 and bias is None):
        return No("its weights are computed")
    strides = ints(node, "strides") or (1, 1)
    if node.attrs.get("group", 1) != 1 or any(one != 1 for one in ints(node, "dilations") or ()):
        return No("it has groups or dilations")
    if strides[0] != strides[1] or node.attrs.get("auto_pad", "NOTSET") != "NOTSET":
        return No("its strides differ, or auto_pad says its padding")
    s, kernel = strides[0], weights.shape[2:]
    begins = (ints(node, "pads") or (0, 0, 0, 0))[:2]
    taps = tuple(-(-one // s) for one in kernel)
    wide = np.zeros((*weights.shape[:2], taps[0] * s, taps[1] * s))
    wide[:, :, : kernel[0], : kernel[1]] = weights
    inner, outer = weights.shape[:2]
    # y[s q + p] = sum over j of x[q - j] w[s j + p]: filter (phase, out), its taps from the last to the first
    split = wide.reshape(inner, outer, taps[0], s, taps[1], s)[:, :, ::-1, :, ::-1, :]
    filters = split.transpose(3, 5, 1, 0, 2, 4).reshape(s * s * outer, inner, *taps)
    w = Writer(view, node)
    total = None if bias is None else np.tile(bias.astype(np.float64).reshape(-1), s * s)
    # enough positions that the result's last row is there, whatever its output padding
    rows = [-(-(begins[at] + made[2 + at]) // s) for at in range(2)]
    pads = (taps[0] - 1, taps[1] - 1, max(0, rows[0] - dims[2]), max(0, rows[1] - dims[3]))
    attrs = {} if not any(pads) else {"pads": pads}
    mixed = w.convolution(node.used[0], filters, total, **attrs)
    whole = w.node("DepthToSpace", mixed, blocksize=s, mode="DCR") if s > 1 else mixed
    if w.dims(whole) != made:
        ends = tuple(begins[at] + made[2 + at] for at in range(2))
        whole = w.node("Slice", whole, starts=tuple(begins), ends=ends, axes=(2, 3), steps=(1, 1))
    if w.dims(whole) != made:
        return No("its output padding reaches beyond what the phases cover")
    return w.done(f"a transposed convolution is one convolution for each of {s * s} phases, and a rearrangement")


def depth_to_space_as_transpose(view: View, node: Node) -> Rewrite | No | None:
    """depthtospace(x) = reshape(transpose(reshape(x)))."""
    n, c, h, wide = view.dims(node.used[0])
    block = number_of(node, "blocksize", 1)
    b = int(block)
    w = Writer(view, node)
    first = node.attrs.get("mode", "DCR") == "DCR"
    if n != 1:
        return No("with more than one image it needs six dimensions")
    depth = c // (b * b)
    # one direction after the other, so that four dimensions suffice
    x = node.used[0]
    if first:  # channels are (row, column, depth)
        x = w.node("Transpose", w.reshaped(x, (b * b, depth, h, wide)), perm=(1, 2, 0, 3))  # depth, h, (r, q), w
        x = w.node("Transpose", w.reshaped(x, (depth * h * b, b, wide, 1)), perm=(0, 2, 1, 3))  # (depth, h, r), w, q
    else:
        x = w.node("Transpose", w.reshaped(x, (depth, b * b, h, wide)), perm=(0, 2, 1, 3))
        x = w.node("Transpose", w.reshaped(x, (depth * h * b, b, wide, 1)), perm=(0, 2, 1, 3))
    w.reshaped(x, view.dims(node.outputs[0]))
    return w.done("a DepthToSpace is written out as Reshape and Transpose")


def global_pool_as_pool(view: View, node: Node) -> Rewrite | No | None:
    """globalaveragepool(x) = averagepool(x), its window the whole image."""
    dims = view.dims(node.used[0])
    if len(dims) != 4:
        return None
    w = Writer(view, node)
    w.node("AveragePool", node.used[0], kernel_shape=dims[2:], strides=(1, 1))
    return w.done("a GlobalAveragePool is an AveragePool")


def mean_as_pool(view: View, node: Node) -> Rewrite | No | None:
    """reducemean(x) over height and width = averagepool(x), and a Reshape."""
    dims = view.dims(node.used[0])
    axes = sorted(axis % len(dims) for axis in ints(node, "axes") or ()) if dims else []
    if len(dims) != 4 or axes != [2, 3]:
        return None
    w = Writer(view, node)
    w.reshaped(w.node("AveragePool", node.used[0], kernel_shape=dims[2:], strides=(1, 1)), view.dims(node.outputs[0]))
    return w.done("a mean over an image is a pool")


def mean_as_product(view: View, node: Node) -> Rewrite | No | None:
    """reducemean(x) over the last axis = x times a column of 1/n; reducesum: of ones."""
    dims = view.dims(node.used[0])
    axes = [axis % len(dims) for axis in ints(node, "axes") or ()] if dims else []
    if axes != [len(dims) - 1] or not is_float(view, node):
        return None
    w = Writer(view, node)
    weight = 1 / dims[-1] if node.op == "ReduceMean" else 1.0
    rows = w.reshaped(node.used[0], (math.prod(dims[:-1]), dims[-1]))
    w.reshaped(w.node("MatMul", rows, w.array(np.full((dims[-1], 1), weight))), view.dims(node.outputs[0]))
    return w.done("a sum over the last axis is a product with a constant column")


def _pool(view: View, node: Node) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]] | No:
    """Kernel, strides and pads of a pool in two dimensions."""
    kernel, strides = ints(node, "kernel_shape") or (), ints(node, "strides") or (1, 1)
    if len(kernel) != 2 or node.attrs.get("auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
        return No("its padding depends on its extent, or it has not two dimensions")
    if node.attrs.get("ceil_mode", 0) or any(one != 1 for one in ints(node, "dilations") or ()):
        return No("it has dilations, or windows that reach beyond the image")
    return kernel, strides, ints(node, "pads") or (0, 0, 0, 0)


def average_in_two(view: View, node: Node) -> Rewrite | No | None:
    """averagepool(x, a b) = averagepool(averagepool(x, a), b), for a window that is the stride, or the whole image."""
    found = _pool(view, node)
    if isinstance(found, No):
        return found
    kernel, strides, pads = found
    if any(pads) or (strides != kernel and view.dims(node.outputs[0])[2:] != (1, 1)):
        return No("its windows overlap, or reach beyond the image")
    first = tuple(_divisor(one) for one in kernel)
    if first == kernel or first == (1, 1):
        return No("the extents of its window are prime numbers")
    second = tuple(one // by for one, by in zip(kernel, first, strict=True))
    w = Writer(view, node)
    inner = w.node("AveragePool", node.used[0], kernel_shape=first, strides=first)
    w.node("AveragePool", inner, kernel_shape=second, strides=second)
    return w.done("a large AveragePool is one of another")


def _divisor(number: int) -> int:
    """The largest divisor of a number that is at most its root."""
    return max(one for one in range(1, math.isqrt(number) + 1) if number % one == 0)


def average_as_convolution(view: View, node: Node) -> Rewrite | No | None:
    """averagepool(x) = a depthwise convolution with equal weights."""
    found = _pool(view, node)
    if isinstance(found, No) or not is_float(view, node):
        return found if isinstance(found, No) else None
    kernel, strides, pads = found
    if any(pads) and not node.attrs.get("count_include_pad", 0):
        return No("its windows at the border have fewer elements")
    channels = view.dims(node.used[0])[1]
    w = Writer(view, node)
    weights = np.full((channels, 1, *kernel), 1 / math.prod(kernel))
    w.convolution(node.used[0], weights, None, group=channels, strides=strides, pads=pads)
    return w.done("an AveragePool is a depthwise convolution")


def maximum_of_slices(view: View, node: Node) -> Rewrite | No | None:
    """maxpool(x) = max over the positions of the window, along width and then along height, of strided slices of x."""
    found = _pool(view, node)
    if isinstance(found, No) or len(node.outputs) != 1 or not is_float(view, node):
        return found if isinstance(found, No) else None
    kernel, strides, pads = found
    if math.prod(kernel) > 81:
        return No(f"its window has {math.prod(kernel)} positions")
    w = Writer(view, node)
    x = node.used[0]
    if any(pads):
        low, _ = context_of(view).range_of(x)
        if low < 0:
            return No(f"it is padded, and its input may be as low as {low:g}: zeros around it would count")
        x = w.node("Pad", x, pads=(0, 0, *pads[:2], 0, 0, *pads[2:]))
    for axis in (3, 2):
        size, step, window = w.dims(x)[axis], strides[axis - 2], kernel[axis - 2]
        count = (size - window) // step + 1
        slices = [
            w.node("Slice", x, starts=(at,), ends=(at + (count - 1) * step + 1,), axes=(axis,), steps=(step,))
            for at in range(window)
        ]
        x = slices[0]
        for other in slices[1:]:
            x = w.node("Max", x, other)
    return w.done("a MaxPool is the greatest of strided slices")


def convolution_in_parts(view: View, node: Node) -> Rewrite | No | None:
    """conv(x, w) = sum over parts of the kernel of conv(slice(pad(x)), part of w)."""
    weights, dims = view.constant(node.used[1]), view.dims(node.used[0])
    limit = context_of(view).context.profile.operators.get("Conv")
    most = None if limit is None else limit.kernel
    if most is None or weights is None or len(dims) != 4 or max(weights.shape[2:]) <= most:
        return None
    if node.attrs.get("auto_pad", "NOTSET") != "NOTSET" or any(one != 1 for one in ints(node, "dilations") or ()):
        return No("it has dilations, or its padding depends on its extent")
    strides, pads = ints(node, "strides") or (1, 1), ints(node, "pads") or (0, 0, 0, 0)
    rows = view.dims(node.outputs[0])[2:]
    w = Writer(view, node)
    x = node.used[0]
    if any(pads):
        x = w.node("Pad", x, pads=(0, 0, *pads[:2], 0, 0, *pads[2:]))
    total = -1
    for top, left in pairs(range(0, weights.shape[2], most), range(0, weights.shape[3], most)):
        part = weights[:, :, top : top + most, left : left + most]
        ends = tuple(
            begin + (count - 1) * step + size
            for begin, count, step, size in zip((top, left), rows, strides, part.shape[2:], strict=True)
        )
        piece = w.node("Slice", x, starts=(top, left), ends=ends, axes=(2, 3), steps=(1, 1))
        inputs = [piece, w.array(part)] + ([node.used[2]] if total < 0 and len(node.used) > 2 else [])
        attrs = {"kernel_shape": tuple(part.shape[2:]), "strides": strides, "group": node.attrs.get("group", 1)}
        one = w.node("Conv", *inputs, **attrs)
        total = one if total < 0 else w.node("Add", total, one)
    return w.done("a convolution with a large kernel is a sum of those with its parts")


def layer_normalisation_in_parts(view: View, node: Node) -> Rewrite | No | None:
    """layernorm(x) = (x - mean(x)) * (mean((x - mean(x))**2) + epsilon)**-0.5 * scale + bias, over the last axis."""
    dims, axis = view.dims(node.used[0]), node.attrs.get("axis", -1)
    if axis not in (-1, len(dims) - 1) or len(node.outputs) != 1 or not is_float(view, node):
        return No("it is over more than the last axis, or its statistics are read")
    w = Writer(view, node)
    x, last = node.used[0], (len(dims) - 1,)
    d = w.node("Sub", x, w.node("ReduceMean", x, axes=last))
    variance = w.node("ReduceMean", w.node("Mul", d, d), axes=last)
    root = w.node("Pow", w.node("Add", variance, w.number(number_of(node, "epsilon", 1e-5))), w.number(-0.5))
    y = w.node("Mul", w.node("Mul", d, root), node.used[1])
    if len(node.used) > 2:
        w.node("Add", y, node.used[2])
    return w.done("a LayerNormalization is written out with a reciprocal root")


def softmax_of_the_last_axis(view: View, node: Node) -> Rewrite | No | None:
    """softmax(x) = transpose(softmax(transpose(x))), over the last axis inside; logarithms of it likewise."""
    rank, axis = len(view.dims(node.used[0])), _softmax_axis(view, node)
    if axis == rank - 1:
        return None
    w = Writer(view, node)
    last = (*tuple(at for at in range(rank) if at != axis), axis)
    back = tuple(last.index(at) for at in range(rank))
    turned = w.node(node.op, w.node("Transpose", node.used[0], perm=last), axis=-1)
    w.node("Transpose", turned, perm=back)
    return w.done(f"a {node.op} over axis {axis} is one over the last axis of a transposed tensor")


def softmax_in_parts(view: View, node: Node) -> Rewrite | No | None:
    """softmax(x) = exp(x - max(x)) / sum(exp(x - max(x))), over one axis."""
    axes = (_softmax_axis(view, node),)
    w = Writer(view, node)
    raised = w.node("Exp", _below_its_largest(w, node.used[0], axes))
    w.node("Div", raised, w.node("ReduceSum", raised, axes=axes))
    return w.done("a Softmax is written out")


def log_softmax_in_parts(view: View, node: Node) -> Rewrite | No | None:
    """log softmax(x) = y - log(sum(exp(y))) for y = x - max(x), over one axis: a logarithm of 1 to n for n numbers."""
    axes = (_softmax_axis(view, node),)
    w = Writer(view, node)
    below = _below_its_largest(w, node.used[0], axes)
    w.node("Sub", below, w.node("Log", w.node("ReduceSum", w.node("Exp", below), axes=axes)))
    return w.done("a LogSoftmax is written out")


def _softmax_axis(view: View, node: Node) -> int:
    axis = node.attrs.get("axis", -1)
    return (axis if isinstance(axis, int) else -1) % max(len(view.dims(node.used[0])), 1)


def _below_its_largest(w: Writer, x: int, axes: tuple[int, ...]) -> int:
    largest = w.draft.node("ReduceMax", (x, None), {"axes": axes, "keepdims": 1, "noop_with_empty_axes": 0})
    return w.node("Sub", x, largest)


def map_in_fewer_dimensions(view: View, node: Node) -> Rewrite | No | None:
    """f(x) = reshape(f(reshape(x))), for a map of one tensor of more than four dimensions."""
    dims = view.dims(node.used[0])
    others = list(node.used[1:])
    if len(dims) <= 4 or any(view.constant(value) is None or view.constants[value].size != 1 for value in others):
        return None
    if view.type(node.outputs[0]) != view.type(node.used[0]):
        return None
    w = Writer(view, node)
    inputs = (w.reshaped(node.used[0], (1, math.prod(dims[:-2]), *dims[-2:])), *node.inputs[1:])
    w.reshaped(w.draft.node(node.op, inputs, node.attrs), dims)
    return w.done("a map does not ask how many dimensions there are")


def sum_in_fewer_dimensions(view: View, node: Node) -> Rewrite | No | None:
    """f(a, b) = reshape(f(reshape(a), reshape(b))), for operands of one shape of more than four dimensions."""
    dims = view.dims(node.outputs[0])
    if len(dims) <= 4 or len(node.used) != 2 or any(view.dims(value) != dims for value in node.used):
        return None
    w = Writer(view, node)
    folded = (1, math.prod(dims[:-2]), *dims[-2:])
    w.reshaped(w.node(node.op, *(w.reshaped(value, folded) for value in node.used)), dims)
    return w.done("a map does not ask how many dimensions there are")


def images_one_by_one(view: View, node: Node) -> Rewrite | No | None:
    """conv(x) = concat(conv(x[0]), conv(x[1]), ...), for a few images; pools likewise."""
    dims = view.dims(node.used[0])
    if len(dims) != 4 or not 1 < dims[0] <= 16 or len(node.outputs) != 1:
        return None
    w = Writer(view, node)
    made = []
    for at in range(dims[0]):
        one = w.node("Slice", node.used[0], starts=(at,), ends=(at + 1,), axes=(0,), steps=(1,))
        made.append(w.draft.node(node.op, (one, *node.inputs[1:]), node.attrs))
    w.node("Concat", *made, axis=0)
    return w.done("images are computed one by one")


MAPS = ("Relu", "Clip", "LeakyRelu", "Sigmoid", "Tanh", "HardSwish", "HardSigmoid", "Gelu", "Elu", "Exp", "Log", "Abs")
RULES = (
    Rule(REASSOCIATES, ("BatchNormalization",), normalisation_as_convolution),
    Rule(REASSOCIATES, ("Gemm",), gemm_as_product),
    Rule(EXACT, ("MatMul",), product_as_fully_connected),
    Rule(REASSOCIATES, ("MatMul",), product_as_1x1),
    Rule(REASSOCIATES, ("MatMul",), product_of_values),
    Rule(REASSOCIATES, ("ConvTranspose",), transposed_convolution_as_phases),
    Rule(EXACT, ("DepthToSpace",), depth_to_space_as_transpose),
    Rule(EXACT, ("GlobalAveragePool",), global_pool_as_pool),
    Rule(REASSOCIATES, ("ReduceMean",), mean_as_pool),
    Rule(REASSOCIATES, ("ReduceMean", "ReduceSum"), mean_as_product),
    Rule(REASSOCIATES, ("AveragePool",), average_in_two),
    Rule(REASSOCIATES, ("AveragePool",), average_as_convolution),
    Rule(EXACT, ("MaxPool",), maximum_of_slices),
    Rule(REASSOCIATES, ("Conv",), convolution_in_parts),
    Rule(REASSOCIATES, ("LayerNormalization",), layer_normalisation_in_parts),
    Rule(EXACT, ("Softmax", "LogSoftmax"), softmax_of_the_last_axis),
    Rule(REASSOCIATES, ("Softmax",), softmax_in_parts),
    Rule(REASSOCIATES, ("LogSoftmax",), log_softmax_in_parts),
    Rule(EXACT, MAPS, map_in_fewer_dimensions),
    Rule(EXACT, ("Add", "Sub", "Mul", "Max", "Min"), sum_in_fewer_dimensions),
    Rule(EXACT, ("Conv", "AveragePool", "MaxPool", "GlobalAveragePool"), images_one_by_one),
)

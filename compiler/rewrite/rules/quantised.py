"""Products of dequantised bytes become products of bytes; moves and comparisons are done to the bytes.

Quantisation tools write a QDQ graph: each tensor passes a QuantizeLinear and a DequantizeLinear, and operators between
them are floating point ones. With x = sx (p - zx) and w = sw (q - zw), sx one number and sw one for each output
channel,

    sum x w = sx sw sum (p - zx) (q - zw)

whose right sum is over integers, and exact. What follows (bias, activation, residual addition, QuantizeLinear) stays as
it is.

Between a DequantizeLinear and a QuantizeLinear of the same scale and zero, a view, a pool of maxima, a Pad or a Resize
to the nearest element gives the bytes it takes, and a Relu those not below zero: (s (q - z)) / s rounds to q - z, since
it is off by less than 1/2 in floats of at least 11 significant bits in which all of it is finite (micro_kws_qdq has
three such chains).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from math import prod

import numpy as np

from compiler.ir.graph import Attr, Node
from compiler.ir.tensor import DType
from compiler.ops import OPERATORS, having
from compiler.ops.convolution import TRANSPOSED_BYTES
from compiler.ops.traits import Trait
from compiler.rewrite.rounding import rounded, wide
from compiler.rewrite.rule import EXACT, REASSOCIATES, Rule
from compiler.rewrite.view import Draft, No, Rewrite, View

BYTES = (DType.U8, DType.I8)
PRODUCTS = tuple(sorted(having(Trait.CONTRACTION | Trait.LINEAR)))
CONVOLUTIONS = having(Trait.WINDOW)
F32_NUMBER = 1
"""float32 in onnx.TensorProto."""
LARGEST = 2**31 - 1


@dataclass(frozen=True)
class _Dequantised:
    """scale * (bytes - zero): one scale, or one for each index of `axis`. `zero` is None where it is 0 everywhere."""

    bytes: int
    zero: int | None
    scale: np.ndarray
    axis: int


def products_of_bytes(view: View, node: Node) -> Rewrite | No | None:
    """product(dequantise(p), dequantise(q)) + b = integer_product(p, q) * (scale_p * scale_q) + b."""
    sources = [view.producer(value, "DequantizeLinear") for value in node.inputs[:2]]
    if any(source is None or view.type(source.used[0]).dtype not in BYTES for source in sources):
        return None
    a, b = (_dequantised(view, source) for source in sources if source is not None)
    for side in (a, b):
        if isinstance(side, No):
            return side
    assert not isinstance(a, No)
    assert not isinstance(b, No)
    if a.scale.size != 1:
        return No(f"%{node.inputs[0]} has a scale for each index of axis {a.axis}")
    if view.type(node.outputs[0]).dtype is not DType.F32:
        return No("results other than float32 are not computed from integers")
    if (refusal := _misplaced(view, node, b)) is not None:
        return refusal
    if (refusal := _overflow(view, node, b)) is not None:
        return refusal
    draft = view.draft(node)
    total = _integer_product(draft, node, a, b)
    real = draft.node("Cast", (total,), {"to": F32_NUMBER, "saturate": 1})
    rank = len(view.dims(node.outputs[0]))
    scale = rounded(wide(a.scale).reshape(()) * wide(b.scale) * _factor(node, "alpha"), DType.F32)
    if isinstance(scale, No):
        return scale
    scaled = draft.node("Mul", (real, draft.constant(_along_channel(node, scale, rank))))
    if len(node.inputs) > 2 and node.inputs[2] is not None:
        bias = _bias(view, draft, node, rank)
        if isinstance(bias, No):
            return bias
        draft.node("Add", (scaled, bias))
    return draft.done(f"{node.op} of dequantised bytes is computed from the bytes")


def product_of_bytes_behind(view: View, node: Node) -> Rewrite | No | None:
    """What the rule says of the products that read a DequantizeLinear.

    It is of any one that is to be computed from the bytes, else the last reason.
    """
    found: No | None = None
    for reader in view.readers(node.outputs[0]):
        answer = products_of_bytes(view, reader) if reader.op in PRODUCTS and _multiplies(node, reader) else None
        if isinstance(answer, Rewrite):
            return answer
        found = answer or found
    return found


def _multiplies(node: Node, reader: Node) -> bool:
    return node.outputs[0] in reader.inputs[:2]


def _dequantised(view: View, node: Node) -> _Dequantised | No:
    scale = view.constant(node.inputs[1])
    zero = node.inputs[2] if len(node.inputs) > 2 else None
    number = view.constant(zero)
    if scale is None:
        return No(f"the scale of %{node.outputs[0]} is not constant")
    if node.attrs.get("block_size", 0):
        return No(f"%{node.outputs[0]} is quantised in blocks")
    axis = node.attrs.get("axis", 1)
    assert isinstance(axis, int)
    nothing = number is not None and not number.any()
    rank = len(view.dims(node.outputs[0]))
    return _Dequantised(node.used[0], None if nothing else zero, scale, axis % rank if rank else 0)


def _channel(node: Node, rank: int) -> int:
    """The axis of the second operand that becomes the channel of the result."""
    if node.op == "ConvTranspose":
        return 1
    return 0 if node.op == "Conv" or node.attrs.get("transB", 0) else rank - 1


def _misplaced(view: View, node: Node, b: _Dequantised) -> No | None:
    rank = len(view.dims(b.bytes))
    if rank < 2:
        return No("the second operand is a vector")
    if node.op == "ConvTranspose" and node.attrs.get("group", 1) != 1 and (b.scale.size > 1 or b.zero is not None):
        return No("channels of its groups share scales or zero points")
    if b.scale.size == 1 or b.axis == _channel(node, rank):
        return None
    return No(f"%{node.inputs[1]} has a scale for each index of axis {b.axis}, which is no channel of the result")


def _overflow(view: View, node: Node, b: _Dequantised) -> No | None:
    """The reason why a sum of products may not fit into 32 bits.

    Factors of A are at most 255; those of B are known if it is constant.
    """
    dims = view.dims(b.bytes)
    channel = _channel(node, len(dims))
    depth: tuple[int, ...] = (1 if channel == 0 else len(dims) - 2,)
    if node.op in CONVOLUTIONS:
        depth = tuple(axis for axis in range(len(dims)) if axis != channel)
    array, zero = view.constant(b.bytes), view.constant(b.zero)
    largest = 255 * prod(dims[axis] for axis in depth)
    if array is not None and (b.zero is None or zero is not None):
        along = [-1 if axis == channel else 1 for axis in range(len(dims))]
        zeros = np.zeros((), np.int64) if zero is None else zero.astype(np.int64)
        factors = np.abs(array.astype(np.int64) - (zeros.reshape(along) if zeros.size > 1 else zeros.reshape(())))
        largest = int(factors.sum(axis=depth).max(initial=0))
    return No(f"sums up to {255 * largest} do not fit into 32 bits") if 255 * largest > LARGEST else None


def _integer_product(draft: Draft, node: Node, a: _Dequantised, b: _Dequantised) -> int:
    zeros = _without_trailing_none(a.zero, b.zero)
    if node.op in CONVOLUTIONS:
        op = "ConvInteger" if node.op == "Conv" else TRANSPOSED_BYTES
        return draft.node(op, (a.bytes, b.bytes, *zeros), node.attrs)
    operands = [
        _transposed(draft, a.bytes, node.attrs.get("transA", 0)),
        _transposed(draft, b.bytes, node.attrs.get("transB", 0)),
    ]
    return draft.node("MatMulInteger", (*operands, *zeros))


def _without_trailing_none(*values: int | None) -> tuple[int | None, ...]:
    while values and values[-1] is None:
        values = values[:-1]
    return values


def _transposed(draft: Draft, matrix: int, transpose: Attr) -> int:
    if not transpose:
        return matrix
    array = draft.view.constant(matrix)
    return draft.node("Transpose", (matrix,), {"perm": (1, 0)}) if array is None else draft.constant(array.T.copy())


def _factor(node: Node, name: str) -> float:
    value = node.attrs.get(name, 1.0)
    assert isinstance(value, int | float)
    return float(value) if node.op == "Gemm" else 1.0


def _along_channel(node: Node, array: np.ndarray, rank: int) -> np.ndarray:
    """One number, or one for each channel, in the shape in which it broadcasts to the result."""
    if array.size == 1:
        return array.reshape(())
    return array.reshape(-1, *(1,) * (rank - 2)) if node.op in CONVOLUTIONS else array.reshape(-1)


def _bias(view: View, draft: Draft, node: Node, rank: int) -> int | No:
    value = node.inputs[2]
    assert value is not None
    array = _constant(view, value)
    beta = _factor(node, "beta")
    if array is None:
        return value if node.op == "Gemm" and beta == 1 else No(f"the bias %{value} of {node.op} is not constant")
    scaled = rounded(wide(array) * beta, DType.F32)
    if isinstance(scaled, No):
        return scaled
    return draft.constant(_along_channel(node, scaled, rank) if node.op in CONVOLUTIONS else scaled)


def _constant(view: View, value: int) -> np.ndarray | None:
    """A constant, also one that is still to be dequantised."""
    node = view.producer(value, "DequantizeLinear")
    if node is None:
        return view.constant(value)
    arrays = tuple(view.constant(given) for given in node.inputs)
    if any(array is None for array, given in zip(arrays, node.inputs, strict=True) if given is not None):
        return None
    return OPERATORS[node.op].reference(node, arrays)[0]


MOVES = having(Trait.MOVES) | {"MaxPool", "Pad", "Resize"}
"""Operators whose results are elements of their first input, or (of a Concat) of any, for bytes as for floats.

Of a Pad also its constant. A Resize may mix elements (see `_moves`).
"""
SPREAD = 255
"""What a byte differs from a zero point by, at most."""
CHAIN = 6
"""Nodes between a DequantizeLinear and a QuantizeLinear, at most."""


def bytes_between(view: View, node: Node) -> Rewrite | No | None:
    """quantise(move(dequantise(q, s, z)), s, z) = move(q), for views, maxima, concat, padding;
    relu between them is max(q, z).
    """
    scale, zero = view.scalar(node.used[1]), _zero(view, node)
    if scale is None or zero is None or not scale > 0:
        return None
    swallowed: dict[int, Node] = {}
    if not _reached(view, node, node.used[0], swallowed, CHAIN):
        return None
    if view.type(node.used[0]).dtype is DType.BF16:
        return No("bf16 does not tell all bytes apart")
    if isinstance(rounded(np.asarray(SPREAD * scale), view.type(node.used[0]).dtype), No):
        return No(f"bytes of scale {scale:g} may be infinite in {view.type(node.used[0]).dtype}")
    between = [one for one in swallowed.values() if one.op != "DequantizeLinear"]
    if (refusal := view.enclosed(node, [one for one in between if one.op != "Split"])) is not None:
        return refusal
    if not between:
        source = next(iter(swallowed.values())).used[0]
        return view.draft(node).same(source, why="it has just been dequantised with the same scale")
    writer = _Bytes(view, node, zero)
    for value, one in reversed(swallowed.items()):
        writer.write(value, one)
    return writer.draft.done(f"{', '.join(one.op for one in between)} of bytes")


class _Bytes:
    """Operators written again, of bytes. `root` rounds their results to bytes, of zero point `zero`."""

    def __init__(self, view: View, root: Node, zero: int) -> None:
        self.view, self.root, self.zero = view, root, zero
        self.draft = view.draft(root)
        self.bytes_of: dict[int, int] = {}

    def write(self, value: int, node: Node) -> None:
        """The bytes of a value that a node makes of others, whose bytes are known."""
        if node.op == "DequantizeLinear":
            self.bytes_of[value] = node.used[0]
            return
        inputs = tuple(one if one is None else self.bytes_of.get(one, one) for one in node.inputs)
        if node.op == "Relu":
            low = self.draft.constant(np.asarray(self.zero, self.view.type(self.root.outputs[0]).dtype.numpy))
            self.bytes_of[value] = self.draft.node("Clip", (*inputs, low), {}, node.source)
        elif node.op == "Split":
            where = (None,) * 4
            self.bytes_of[value] = self.draft.node("Slice", (inputs[0], *where), _part(self.view, node, value))
        elif node.op == "Pad":
            beside = {"constant_value": _rounded(self.view, self.root, _beside(node))}
            self.bytes_of[value] = self.draft.node(node.op, inputs, {**node.attrs, **beside}, node.source)
        else:
            self.bytes_of[value] = self.draft.node(node.op, inputs, node.attrs, node.source)


def _part(view: View, split: Node, value: int) -> dict[str, Attr]:
    """Where a Slice begins and ends that gives one part of a Split."""
    axis = split.attrs.get("axis", 0)
    assert isinstance(axis, int)
    sizes = {part: view.dims(part)[axis] for part in split.outputs}
    begin = sum(sizes[part] for part in split.outputs[: split.outputs.index(value)])
    return {"starts": (begin,), "ends": (begin + sizes[value],), "axes": (axis,), "steps": (1,)}


def _beside(pad: Node) -> float:
    """The number with which a Pad fills, in a mode in which it does."""
    number = pad.attrs.get("constant_value", 0)
    assert isinstance(number, int | float)
    return float(number)


def _rounded(view: View, root: Node, number: float) -> int:
    """The byte that a QuantizeLinear of constant scale and zero point makes of a number."""
    parameters = [None if value is None else view.constant(value) for value in root.inputs[1:]]
    (byte,) = OPERATORS[root.op].reference(root, (np.asarray(number, np.float32), *parameters))
    return int(byte)


def _zero(view: View, node: Node) -> int | None:
    """The zero point of a QuantizeLinear or DequantizeLinear, one for the whole tensor."""
    if len(node.inputs) < 3 or node.inputs[2] is None:
        return 0
    number = view.scalar(node.inputs[2])
    return None if number is None else int(number)


def _reached(view: View, root: Node, value: int, found: dict[int, Node], length: int) -> bool:
    """Whether a value comes from dequantised bytes alone, over operators that keep them.

    Each node joins `found` after its readers.
    """
    node = view.producer(value, "DequantizeLinear", "Relu", *MOVES)
    if node is None or not length or not _moves(view, node):
        return False
    found.pop(value, None)
    found[value] = node
    if node.op == "DequantizeLinear":
        same = view.type(node.used[0]).dtype is view.type(root.outputs[0]).dtype
        alike = view.scalar(node.used[1]) == view.scalar(root.used[1]) and _zero(view, node) == _zero(view, root)
        return same and alike and view.type(node.used[0]).dtype in BYTES
    sources = node.used if node.op == "Concat" else node.used[:1]
    return all(_reached(view, root, source, found, length - 1) for source in sources)


def _moves(view: View, node: Node) -> bool:
    """Whether an operator of MOVES gives nothing but elements, in one result; or is a Split of dequantised bytes."""
    if node.op == "Split":
        return view.producer(node.used[0], "DequantizeLinear") is not None
    if node.op == "Resize":
        crops = node.attrs.get("coordinate_transformation_mode") == "tf_crop_and_resize"
        return node.attrs.get("mode", "nearest") == "nearest" and not crops
    if node.op == "Pad" and node.attrs.get("mode", "constant") == "constant":
        return math.isfinite(_beside(node))
    return len(node.outputs) == 1


def quantised_before_resize(view: View, node: Node) -> Rewrite | No | None:
    """quantise(resize(x)) = resize(quantise(x)), where the Resize takes the nearest of fewer elements."""
    resize = view.producer(node.used[0], "Resize")
    if resize is None or not _moves(view, resize) or view.type(node.outputs[0]).dtype not in BYTES:
        return None
    if any(view.scalar(parameter) is None for parameter in node.used[1:]):
        return No("scale or zero point is not one constant")
    if view.type(resize.outputs[0]).elements <= view.type(resize.used[0]).elements:
        return No("there are not more elements behind the Resize")
    if (refusal := view.enclosed(node, (resize,))) is not None:
        return refusal
    draft = view.draft(node)
    quantised = draft.node(node.op, (resize.inputs[0], *node.inputs[1:]), node.attrs)
    draft.node(resize.op, (quantised, *resize.inputs[1:]), resize.attrs, resize.source)
    return draft.done("what it repeats is rounded once")


RULES: tuple[Rule, ...] = (
    Rule(EXACT, ("QuantizeLinear",), bytes_between),
    Rule(EXACT, ("QuantizeLinear",), quantised_before_resize),
    Rule(REASSOCIATES, PRODUCTS, products_of_bytes),
)

"""Where a scale or a shift by constants goes when it passes the operator before it.

    s * relu(x) = relu(s * x)  for s > 0          s * concat(x, y) + t = concat(s1 * x + t1, s2 * y + t2)
    s * max_pool(x) + t = max_pool(s * x + t)     s * reshape(x) = reshape(s' * x)

and so on upwards through sums, transposes, slices, pools and zero padding, until every branch ends in something that
takes it in: a linear operator with constant weights, or a constant. Nothing is written before all of them have agreed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from compiler.ir.graph import Node
from compiler.ops import having
from compiler.ops.attributes import axes_of, ints
from compiler.ops.traits import Trait
from compiler.rewrite.linear import LINEAR, linear_of, per_channel
from compiler.rewrite.rounding import rounded, wide
from compiler.rewrite.view import Draft, No, View

Writer = Callable[[Draft], int]
"""Writes what an operator becomes; the value."""

DEPTH = 16
"""How many operators a scale passes at most, one above another."""
VISITS = 64
"""How many operators are asked at most: residual sums have ways upwards without number."""
ELEMENTS = 2**22
"""Elements of the largest tensor over which a scale is spread to find out where it lies after a Reshape."""


@dataclass(frozen=True)
class Affine:
    """x -> scale * x + shift. None stands for a scale of 1 and for a shift of 0.

    Arrays are of float64, with an extent, or 1, for each axis of x.
    """

    scale: np.ndarray | None
    shift: np.ndarray | None

    def map(self, move: Callable[[np.ndarray], np.ndarray]) -> Affine:
        """The map whose scale and shift are what `move` makes of them; what is None stays None."""
        return Affine(*(None if array is None else move(array) for array in (self.scale, self.shift)))

    def cut(self, axis: int, begin: int, end: int) -> Affine:
        """The map of a part along an axis."""
        return self.map(lambda array: array if array.shape[axis] == 1 else array.take(range(begin, end), axis))

    @property
    def is_nothing(self) -> bool:
        """Whether it is the identity."""
        return self.scale is None and self.shift is None

    @property
    def is_positive(self) -> bool:
        """Whether every factor is above 0."""
        return self.scale is None or bool((self.scale > 0).all())

    def varies_along(self, axes: Sequence[int]) -> bool:
        """Whether the scale or the shift has an extent other than 1 along one of the axes."""
        return any(array is not None and array.shape[axis] != 1 for axis in axes for array in (self.scale, self.shift))


def spread(array: np.ndarray, dims: tuple[int, ...]) -> np.ndarray | No:
    """A constant as it broadcasts to a tensor of extents `dims`, with an axis for each of them."""
    if array.ndim > len(dims):
        if array.size != 1:
            return No(f"a constant of shape {list(array.shape)} makes its operand larger")
        array = array.reshape(())
    array = wide(array).reshape((1,) * (len(dims) - array.ndim) + array.shape)
    if any(extent not in (1, dim) for extent, dim in zip(array.shape, dims, strict=True)):
        return No(f"a constant of shape {list(array.shape)} makes its operand larger")
    return array


def reshaped(array: np.ndarray, before: tuple[int, ...], after: tuple[int, ...]) -> np.ndarray | No:
    """A constant that broadcasts to `before`, as it broadcasts to `after` once the tensor is reshaped.

    Axes along which it is the same have extent 1.
    """
    if array.size == 1:
        return array.reshape((1,) * len(after))
    if 0 in before:
        return No("the tensor is empty")
    if int(np.prod(before)) > ELEMENTS:
        return No("the tensor is too large to spread a scale over it")
    full = np.broadcast_to(array, before).reshape(after)
    for axis in range(full.ndim):
        first = full.take([0], axis)
        full = first if bool((full == first).all()) else full
    return full


@dataclass
class Passage:
    """The way of one affine map upwards from `root`; `swallowed` are the operators that are written anew."""

    view: View
    root: Node
    swallowed: list[Node] = field(default_factory=list)
    visits: int = 0

    def into(self, value: int, map: Affine, depth: int = DEPTH) -> Writer | No:
        """How to write map(value) without an operator more than `value` needs."""
        if map.is_nothing:
            return lambda draft: value
        if (array := self.view.constant(value)) is not None:
            return self._constant(value, array, map)
        node = self.view.producer(value)
        if node is None or not depth:
            return No("nothing above takes it in")
        passes = LEAVES.get(node.op) or PASSES.get(node.op)
        if passes is None:
            return No(f"it does not pass {node.op}")
        self.visits += 1
        if self.visits > VISITS:
            return No("too many operators lie above")
        self.swallowed.append(node)
        return passes(self, node, map, depth - 1)

    def _constant(self, value: int, array: np.ndarray, map: Affine) -> Writer | No:
        with np.errstate(all="ignore"):
            new = wide(array) if map.scale is None else wide(array) * map.scale
            new = new if map.shift is None else new + map.shift
        result = rounded(new, self.view.type(value).dtype)
        if isinstance(result, No):
            return result
        if result.shape != array.shape:
            return No("a constant would become larger")
        return lambda draft: draft.constant(result)

    def above(self, node: Node, map: Affine, depth: int) -> Writer | No:
        """The node over its first input mapped."""
        writer = self.into(node.used[0], map, depth)
        if isinstance(writer, No):
            return writer
        return lambda draft: draft.node(node.op, (writer(draft), *node.inputs[1:]), node.attrs, node.source)


def _linear(way: Passage, node: Node, map: Affine, depth: int) -> Writer | No:
    """s * (W x + b) + t = (s W) x + (s b + t)."""
    linear = linear_of(way.view, node)
    if isinstance(linear, No):
        return linear
    rank = len(way.view.dims(node.outputs[0]))
    parts: list[np.ndarray | None] = []
    for array in (map.scale, map.shift):
        part = None if array is None else per_channel(array, rank, linear.channel, linear.channels)
        if isinstance(part, No):
            return part
        parts.append(part)
    scale, shift = parts
    folded = linear.folded(scale, shift, way.view.type(node.outputs[0]).dtype)
    if isinstance(folded, No):
        return folded
    weights, bias = folded
    return lambda draft: linear.write(draft, weights, bias)


def _sum(way: Passage, node: Node, map: Affine, depth: int) -> Writer | No:
    """s * (x + y) + t = (s * x + t) + s * y."""
    type = way.view.type(node.outputs[0])
    scale_only = Affine(map.scale, None)
    constants = [value for value in node.used if value in way.view.constants]
    first, second = sorted(node.used, key=lambda value: value not in way.view.constants)
    if any(way.view.type(value) != type for value in node.used if value not in constants):
        return No("an operand of the sum is broadcast")
    if len(constants) == 2:
        return No("it is a sum of constants that is too large to be kept")
    if constants:
        return _sum_with_constant(way, node, map, depth)
    if first == second and map.shift is not None:
        return No("both operands of the sum are the same value")
    known = list(way.swallowed)
    for a, b in ((first, second), (second, first)):
        way.swallowed = list(known)
        shifted = way.into(a, map, depth)
        scaled = shifted if isinstance(shifted, No) else way.into(b, scale_only, depth)
        if isinstance(shifted, No) or isinstance(scaled, No):
            refusal = shifted if isinstance(shifted, No) else scaled
            if map.shift is None:
                break
            continue
        return _twice(node, shifted) if a == b else _both(node, shifted, scaled)
    assert isinstance(refusal, No)
    return refusal


def _both(node: Node, a: Writer, b: Writer) -> Writer:
    return lambda draft: draft.node("Add", (a(draft), b(draft)), node.attrs, node.source)


def _twice(node: Node, a: Writer) -> Writer:
    def write(draft: Draft) -> int:
        value = a(draft)
        return draft.node("Add", (value, value), node.attrs, node.source)

    return write


def _sum_with_constant(way: Passage, node: Node, map: Affine, depth: int) -> Writer | No:
    """s * (x + c) + t = s * x + (s * c + t)."""
    ((value, array),) = way.view.operands(node)
    type = way.view.type(node.outputs[0])
    own = spread(array, type.dims)
    if isinstance(own, No):
        return own
    with np.errstate(all="ignore"):
        total = own if map.scale is None else own * map.scale
        total = total if map.shift is None else total + map.shift
    constant = rounded(total, type.dtype)
    scaled = way.into(value, Affine(map.scale, None), depth)
    if isinstance(constant, No) or isinstance(scaled, No):
        return constant if isinstance(constant, No) else scaled
    return lambda draft: draft.node("Add", (scaled(draft), draft.constant(constant)), node.attrs, node.source)


def _product(way: Passage, node: Node, map: Affine, depth: int) -> Writer | No:
    """s * (c * x) = (s * c) * x."""
    type = way.view.type(node.outputs[0])
    for value, array in way.view.operands(node):
        if map.shift is not None:
            return No("a product takes in no shift")
        own = spread(array, type.dims)
        if isinstance(own, No) or way.view.type(value) != type or map.scale is None:
            return own if isinstance(own, No) else No("the scale makes its operand larger")
        with np.errstate(all="ignore"):
            constant = rounded(own * map.scale, type.dtype)
        if isinstance(constant, No):
            return constant
        return lambda draft: draft.node("Mul", (value, draft.constant(constant)), node.attrs, node.source)
    return No("it does not pass a product of two values")


def _concat(way: Passage, node: Node, map: Affine, depth: int) -> Writer | No:
    """s * concat(x, y) + t = concat(s1 * x + t1, s2 * y + t2), each with its part of s and t."""
    rank = len(way.view.dims(node.outputs[0]))
    axis = node.attrs["axis"]
    assert isinstance(axis, int)
    axis %= rank
    writers, begin = [], 0
    for value in node.used:
        end = begin + way.view.dims(value)[axis]
        writer = way.into(value, map.cut(axis, begin, end), depth)
        if isinstance(writer, No):
            return writer
        writers.append(writer)
        begin = end
    return lambda draft: draft.node("Concat", tuple(writer(draft) for writer in writers), node.attrs, node.source)


def _positive(way: Passage, node: Node, map: Affine, depth: int) -> Writer | No:
    """s * relu(x) = relu(s * x), where s > 0; LeakyRelu, PRelu and Abs likewise."""
    if map.shift is not None:
        return No(f"a shift does not pass {node.op}")
    return (
        way.above(node, map, depth) if map.is_positive else No(f"a scale that is not positive does not pass {node.op}")
    )


def _max_pool(way: Passage, node: Node, map: Affine, depth: int) -> Writer | No:
    """s * max_pool(x) + t = max_pool(s * x + t), where s > 0, both the same at all positions."""
    if len(node.outputs) > 1 or not map.is_positive:
        return No("the places of the largest values would change")
    return _average(way, node, map, depth)


def _average(way: Passage, node: Node, map: Affine, depth: int) -> Writer | No:
    """s * average_pool(x) + t = average_pool(s * x + t), both the same at all positions; t if no padding counts."""
    if map.varies_along(range(2, len(way.view.dims(node.used[0])))):
        return No("it is not the same at all positions of a pool")
    padded = any(ints(node, "pads") or ()) or node.attrs.get("auto_pad", "NOTSET") not in ("NOTSET", "VALID")
    if map.shift is not None and node.attrs.get("count_include_pad", 0) and (padded or node.attrs.get("ceil_mode", 0)):
        return No("the pool averages zeros of its padding, which would not be shifted")
    return way.above(node, map, depth)


def _reshape(way: Passage, node: Node, map: Affine, depth: int) -> Writer | No:
    """s * reshape(x) + t = reshape(s' * x + t')."""
    before, after = way.view.dims(node.outputs[0]), way.view.dims(node.used[0])
    parts = [None if array is None else reshaped(array, before, after) for array in (map.scale, map.shift)]
    for part in parts:
        if isinstance(part, No):
            return part
    return way.above(node, Affine(*(None if isinstance(part, No) else part for part in parts)), depth)


def _transpose(way: Passage, node: Node, map: Affine, depth: int) -> Writer | No:
    """s * transpose(x) + t = transpose(s' * x + t')."""
    rank = len(way.view.dims(node.used[0]))
    perm = ints(node, "perm") or tuple(reversed(range(rank)))
    back = tuple(perm.index(axis) for axis in range(rank))
    return way.above(node, map.map(lambda array: array.transpose(back)), depth)


def _slice(way: Passage, node: Node, map: Affine, depth: int) -> Writer | No:
    """s * x[a:b] + t = (s * x + t)[a:b], both the same along what is cut."""
    axes = axes_of(node, len(way.view.dims(node.used[0])))
    if axes is None or map.varies_along(axes):
        return No("it is not the same along what is cut")
    return way.above(node, map, depth)


def _pad(way: Passage, node: Node, map: Affine, depth: int) -> Writer | No:
    """s * pad(x, 0) = pad(s * x, 0), the same along what is padded."""
    value = node.attrs.get("constant_value")
    value = value[0] if isinstance(value, tuple) and value else value
    if node.attrs.get("mode", "constant") == "constant" and (map.shift is not None or value):
        return No("a shift does not pass padding")
    rank = len(way.view.dims(node.used[0]))
    pads = ints(node, "pads") or (0,) * (2 * rank)
    axes = axes_of(node, rank) or tuple(range(rank))
    if map.varies_along([axis for at, axis in enumerate(axes) if pads[at] or pads[at + len(axes)]]) or min(pads) < 0:
        return No("it is not the same along what is padded")
    return way.above(node, map, depth)


Pass = Callable[[Passage, Node, Affine, int], Writer | No]
LEAVES: dict[str, Pass] = {**dict.fromkeys(LINEAR, _linear), "Mul": _product}
"""Operators that take a map in."""
POSITIVE_MAPS = tuple(sorted(having(Trait.ELEMENTWISE) & having(Trait.POSITIVE_HOMOGENEOUS)))
"""Maps that only a positive scale passes."""
PASSES: dict[str, Pass] = {
    "Add": _sum,
    "Concat": _concat,
    **dict.fromkeys(POSITIVE_MAPS, _positive),
    "MaxPool": _max_pool,
    **dict.fromkeys(("AveragePool", "GlobalAveragePool"), _average),
    "Reshape": _reshape,
    "Transpose": _transpose,
    "Slice": _slice,
    "Pad": _pad,
}
"""Operators that a map passes."""

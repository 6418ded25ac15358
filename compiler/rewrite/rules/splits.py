"""What is done alike to all parts of a Split is done once, before it.

Merged siblings (`choices.siblings`) leave such programs, with an activation, a bias or a depthwise convolution after
each part.
"""

from __future__ import annotations

import numpy as np

from compiler.ir.graph import Attr, Node
from compiler.ops import having
from compiler.ops.traits import Trait
from compiler.rewrite.convolution import Convolution, convolution, stacked
from compiler.rewrite.rule import EXACT, Rule
from compiler.rewrite.view import Draft, No, Rewrite, View

MAPS = tuple(sorted(having(Trait.UNARY) - having(Trait.VIEW)))
"""Functions of one tensor, element by element."""


def signature(map: Node) -> str:
    """Equal for maps that compute the same of their first operand, and an order among others."""
    return f"{map.op} {map.inputs[1:]} {sorted(map.attrs.items())}"


def split_axis(view: View, split: Node) -> int:
    """The axis of a Split, counted from the first one: 0 <= axis < rank."""
    axis = split.attrs.get("axis", 0)
    assert isinstance(axis, int)
    return axis % view.type(split.used[0]).rank


def write_split(draft: Draft, value: int, axis: int, sizes: tuple[int, ...]) -> tuple[int, ...]:
    """The parts of a value along an axis."""
    attrs: dict[str, Attr] = {"axis": axis, "split": sizes}
    return draft.nodes("Split", (value, None), len(sizes), attrs)


def _readers(view: View, node: Node) -> tuple[Node, tuple[Node, ...]] | No | None:
    """The Split whose first part a node reads, and the readers of its parts: one each, of the node's operator."""
    place = next((at for at, value in enumerate(node.inputs) if view.producer(value, "Split") is not None), None)
    split = None if place is None else view.producer(node.inputs[place], "Split")
    if split is None or node.inputs[place or 0] != split.outputs[0] or len(split.outputs) < 2:
        return None
    found = []
    for part in split.outputs:
        readers = view.readers(part)
        if part in view.outputs or len(readers) != 1 or readers[0].op != node.op:
            return No("something else is done to another part of the Split")
        found.append(readers[0])
    return (
        No("it joins parts of the Split")
        if len({reader.outputs[0] for reader in found}) < len(found)
        else (split, tuple(found))
    )


def _before(view: View, split: Node, readers: tuple[Node, ...], draft: Draft, whole: int) -> Rewrite:
    """The parts of `whole` in the place of the readers."""
    axis = split_axis(view, split)
    parts = write_split(draft, whole, axis, tuple(view.dims(part)[axis] for part in split.outputs))
    first, *others = readers
    return draft.outputs(*parts, why=f"{len(parts)} {first.op}s of parts become one", replaced=tuple(others))


def map_of_split(view: View, node: Node) -> Rewrite | No | None:
    """f(split(x)) = split(f(x)), where f works on elements, and is the same for all parts."""
    found = _readers(view, node)
    if found is None or isinstance(found, No):
        return found
    split, readers = found
    if len({(reader.inputs[1:], repr(sorted(reader.attrs.items()))) for reader in readers}) > 1:
        return No("the parts are mapped by different functions")
    draft = view.draft(node)
    return _before(view, split, readers, draft, draft.node(node.op, (split.used[0], *node.inputs[1:]), node.attrs))


def constants_of_split(view: View, node: Node) -> Rewrite | No | None:
    """split(x) + (c, d, ..) = split(x + concat(c, d, ..)), and for products likewise."""
    found = _readers(view, node)
    if found is None or isinstance(found, No):
        return found
    split, readers = found
    axis, arrays = split_axis(view, split), []
    for part, reader in zip(split.outputs, readers, strict=True):
        other = next((value for value in reader.used if value != part), part)
        constant = view.constant(other)
        if constant is None or view.type(part) != view.type(reader.outputs[0]):
            return No("not all parts are joined with constants of their extents")
        array = constant.reshape((1,) * (len(view.dims(part)) - constant.ndim) + constant.shape)
        arrays.append(np.repeat(array, view.dims(part)[axis], axis) if array.shape[axis] == 1 else array)
    outer = np.broadcast_shapes(*((*array.shape[:axis], 1, *array.shape[axis + 1 :]) for array in arrays))
    filled = [np.broadcast_to(a, (*outer[:axis], a.shape[axis], *outer[axis + 1 :])) for a in arrays]
    draft = view.draft(node)
    constant_id = draft.constant(np.concatenate(filled, axis))
    return _before(view, split, readers, draft, draft.node(node.op, (split.used[0], constant_id), node.attrs))


def depthwise_of_split(view: View, node: Node) -> Rewrite | No | None:
    """depthwise(split(x)) = split(depthwise(x)), with the filters of all parts.

    The heads of YuNet, once the 1x1 convolutions before them are merged.
    """
    found = _readers(view, node)
    if found is None or isinstance(found, No):
        return found
    split, readers = found
    if split_axis(view, split) != 1:
        return No("it splits positions")
    convs: list[Convolution] = []
    for reader in readers:
        conv = convolution(view, reader)
        if isinstance(conv, No):
            return conv
        if not conv.groups == conv.channels == conv.filters:
            return No("a part is not convolved channel by channel")
        convs.append(conv)
    if len({conv.geometry for conv in convs}) > 1:
        return No("the windows differ")
    draft = view.draft(node)
    constants = [draft.constant(array) for array in stacked(convs, convs[0].geometry) if array is not None]
    attrs = {**convs[0].geometry.attrs, "group": sum(conv.groups for conv in convs)}
    return _before(view, split, readers, draft, draft.node("Conv", (split.used[0], *constants), attrs))


RULES: tuple[Rule, ...] = (
    Rule(EXACT, MAPS, map_of_split),
    Rule(EXACT, ("Add", "Mul"), constants_of_split),
    Rule(EXACT, ("Conv",), depthwise_of_split),
)

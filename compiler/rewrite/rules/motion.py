"""Reshapes and transposes moved past other operators, until they cancel, become one, or let maps join the sum they follow.

A Reshape or Transpose is looked at together with the maps, joins and products above it, at most REGION nodes: each operator says what
its operands must undergo so that its result comes out rearranged (`Step`). What is written in the end are the rearrangements that are
left where no operator lets them pass; where they are not fewer than before, nothing is done, so that nothing is merely pushed around.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from compiler.ir.graph import Attr, Node
from compiler.ops import having
from compiler.ops.traits import Trait
from compiler.rewrite.maps import MAPS, distance
from compiler.rewrite.measure import WEIGHTS
from compiler.rewrite.rearrangement import REARRANGEMENTS, Rearrangement, of_node, transposed
from compiler.rewrite.rule import EXACT, REASSOCIATES, Rule
from compiler.rewrite.rules.padding import pads_of
from compiler.rewrite.rules.slices import slice_attributes, windows
from compiler.rewrite.view import Draft, Rewrite, View

REGION = 12
"""Nodes that a rearrangement is moved past at most."""

Step = tuple[tuple[int | None, Rearrangement | None], ...]
"""The operands that an operator needs for a rearranged result, and what becomes of each: None where it stays as it is."""
Past = Callable[[View, Node, Rearrangement], tuple[Step, Mapping[str, Attr]] | None]
"""Operands and attributes with which an operator's result comes out rearranged; None where it cannot."""


def _axis(node: Node, rank: int) -> int:
    axis = node.attrs.get("axis", -1)
    assert isinstance(axis, int)
    return axis % rank


def _broadcast(view: View, value: int, by: Rearrangement) -> tuple[int, Rearrangement | None] | None:
    """An operand of a map whose result has the extents of `by`'s source; constants are brought into place by `_plan`."""
    dims = view.dims(value)
    if dims == by.source or value in view.constants:
        return value, by
    return (value, None) if view.type(value).elements == 1 and len(dims) <= len(by.result) else None


UNARY = having(Trait.UNARY)


def past_map(view: View, node: Node, by: Rearrangement) -> tuple[Step, Mapping[str, Attr]] | None:
    """v(f(x, y)) = f(v(x), v(y)), for a map f."""
    if node.op in UNARY:
        x, *bounds = node.inputs
        return ((x, by), *((bound, None) for bound in bounds)), node.attrs
    found = [None if value is None else _broadcast(view, value, by) for value in node.inputs]
    operands = tuple(one for one in found if one is not None)
    if node.op == "PRelu" and view.dims(node.used[0]) != by.source:
        return None
    return (operands, node.attrs) if len(operands) == len(found) else None


def past_concat(view: View, node: Node, by: Rearrangement) -> tuple[Step, Mapping[str, Attr]] | None:
    """v(concat(x, y)) = concat(v(x), v(y)), where v moves axes, or leaves the last one, which is joined."""
    rank = len(by.source)
    axis = _axis(node, rank)
    if any(0 in view.dims(value) for value in node.used):
        return None
    if (perm := by.perm) is not None:
        moved: list[Rearrangement | None] = [transposed(view.dims(value), perm) for value in node.used]
        return tuple(zip(node.used, moved, strict=True)), {**node.attrs, "axis": perm.index(axis)}
    if axis != rank - 1:
        return None
    leading = [by.on_leading(1, view.dims(value)[-1:]) for value in node.used]
    if any(one is None for one in leading):
        return None
    return tuple(zip(node.used, leading, strict=True)), {**node.attrs, "axis": len(by.result) - 1}


def past_slice(view: View, node: Node, by: Rearrangement) -> tuple[Step, Mapping[str, Attr]] | None:
    """v(x[a:b]) = v(x)[a:b], where v moves axes."""
    if (perm := by.perm) is None or 0 in view.dims(node.used[0]):
        return None
    taken = windows(view, node)
    attrs = slice_attributes(tuple(taken[axis] for axis in perm))
    return ((node.used[0], transposed(view.dims(node.used[0]), perm)), *((None, None),) * 4), attrs


def past_pad(view: View, node: Node, by: Rearrangement) -> tuple[Step, Mapping[str, Attr]] | None:
    """v(pad(x, p)) = pad(v(x), v(p)), where v moves axes."""
    if (perm := by.perm) is None or len(node.used) > 1 or 0 in view.dims(node.used[0]):
        return None
    pads = pads_of(node, len(perm))
    moved = (*(pads[axis][0] for axis in perm), *(pads[axis][1] for axis in perm))
    attrs = {name: value for name, value in node.attrs.items() if name != "axes"}
    return ((node.used[0], transposed(view.dims(node.used[0]), perm)),), {**attrs, "pads": moved}


def past_softmax(view: View, node: Node, by: Rearrangement) -> tuple[Step, Mapping[str, Attr]] | None:
    """v(softmax(x)) = softmax(v(x)), where v moves axes, or leaves the last one, over which is summed."""
    rank = len(by.source)
    axis = _axis(node, rank)
    if (perm := by.perm) is not None:
        return ((node.used[0], by),), {**node.attrs, "axis": perm.index(axis)}
    if axis != rank - 1 or not by.keeps_last(1):
        return None
    return ((node.used[0], by),), {**node.attrs, "axis": len(by.result) - 1}


def past_norm(view: View, node: Node, by: Rearrangement) -> tuple[Step, Mapping[str, Attr]] | None:
    """v(norm(x)) = norm(v(x)), where v leaves the axes over which is summed."""
    over = len(by.source) - _axis(node, len(by.source))
    x, *rest = node.inputs
    if len(node.outputs) > 1 or not by.keeps_last(over):
        return None
    if any(value is not None and len(view.dims(value)) > over for value in rest):
        return None
    return ((x, by), *((value, None) for value in rest)), {**node.attrs, "axis": len(by.result) - over}


def past_product(view: View, node: Node, by: Rearrangement) -> tuple[Step, Mapping[str, Attr]] | None:
    """v(x @ y) = v(x) @ v(y), where v leaves the last axes; (x @ y)^T = y^T @ x^T."""
    x, y = node.used
    a, b = view.dims(x), view.dims(y)
    if 0 in a:
        return None
    if len(b) == 2 and len(a) > 1 and (moved := by.on_leading(1, a[-1:])) is not None:
        return ((x, moved), (y, None)), {}
    rank = len(by.source)
    if len(a) != len(b) or a[:-2] != b[:-2] or rank < 2 or len(by.result) < 2:
        return None
    first, second = by.on_leading(2, a[-2:]), by.on_leading(2, b[-2:])
    if first is not None and second is not None:
        return ((x, first), (y, second)), {}
    perm = by.perm
    if perm is None or perm[-2:] != (rank - 1, rank - 2):
        return None
    return ((y, transposed(b, perm)), (x, transposed(a, perm))), {}


MOVES: Mapping[str, Past] = {
    **dict.fromkeys(MAPS, past_map),
    "Concat": past_concat,
    "Slice": past_slice,
    "Pad": past_pad,
}
"""Operators that only move elements, or compute each by itself."""
SUMS: Mapping[str, Past] = {
    "Softmax": past_softmax,
    "LogSoftmax": past_softmax,
    "LayerNormalization": past_norm,
    "RMSNormalization": past_norm,
    "MatMul": past_product,
}
"""Operators that sum, perhaps in another order when rearranged."""


@dataclass(frozen=True)
class _Plan:
    """How to write a value rearranged. cost: the weight of the views written, less those that vanish; sums: whether it passes any."""

    cost: int
    write: Callable[[Draft], int]
    sums: bool = False


def _region(view: View, root: Node, past: Mapping[str, Past]) -> dict[int, Node]:
    """The nodes above a rearrangement whose results only they need, by their results; the root among them."""
    region = {root.outputs[0]: root}
    fresh = True
    while fresh and len(region) < REGION:
        fresh = False
        for node in list(region.values()):
            for value in node.used:
                maker = view.producer(value)
                if maker is None or value in region or (maker.op not in past and maker.op not in REARRANGEMENTS):
                    continue
                if (
                    len(maker.outputs) == 1
                    and value not in view.outputs
                    and view.reading[value].keys() <= region.keys()
                ):
                    region[value] = maker
                    fresh = True
    return region


def _cost(by: Rearrangement) -> int:
    return sum(WEIGHTS[op] for op, _ in by.writes())


def _constant(view: View, value: int, by: Rearrangement, draft: Draft) -> int:
    array = view.constants[value]
    key = ("rearranged", value, by)
    return draft.derived(key, lambda: by.of_array(array) if array.shape == by.source else by.of_broadcast(array))


def _plan(view: View, value: int, by: Rearrangement, region: Mapping[int, Node], past: Mapping[str, Past]) -> _Plan:
    """The cheapest way to have a value rearranged."""
    if value in view.constants:
        return _Plan(0, partial(_constant, view, value, by))
    here = _Plan(_cost(by), lambda draft: by.write(draft, value))
    node = view.producer(value)
    if node is None:
        return here
    if (first := of_node(view, node)) is not None:
        if (both := first.then(by)) is None:
            return here
        further = _plan(view, node.used[0], both, region, past)
        vanishing = WEIGHTS[node.op] if value in region else 0
        further = _Plan(further.cost - vanishing, further.write, further.sums)
        return further if further.cost < here.cost else here
    if value not in region or node.op not in past or (found := past[node.op](view, node, by)) is None:
        return here
    step, attrs = found
    operands = [None if v is None or b is None else _plan(view, v, b, region, past) for v, b in step]
    cost = sum(one.cost for one in operands if one is not None)
    if cost >= here.cost:
        return here

    def write(draft: Draft) -> int:
        written = [v if one is None else one.write(draft) for (v, _), one in zip(step, operands, strict=True)]
        return draft.node(node.op, tuple(written), attrs, node.source)

    return _Plan(cost, write, node.op in SUMS or any(one.sums for one in operands if one is not None))


def _pulled_up(view: View, node: Node, past: Mapping[str, Past], sums: bool, why: str) -> Rewrite | None:
    by = of_node(view, node)
    if by is None or view.producer(node.used[0], *past) is None:
        return None
    region = _region(view, node, past)
    edge = {value for one in region.values() if one is not node for value in one.used}
    if not any(view.producer(value, *REARRANGEMENTS) for value in edge):
        return None
    plan = _plan(view, node.used[0], by, region, past)
    if plan.cost >= WEIGHTS[node.op] or plan.sums is not sums:
        return None
    draft = view.draft(node)
    plan.write(draft)
    return draft.done(why)


def rearrangement_past_maps(view: View, node: Node) -> Rewrite | None:
    """v(f(w(x), y)) = f((v . w)(x), v(y)), where v and w reshape or transpose, and f is a map, a join, a slice or a pad."""
    return _pulled_up(
        view, node, MOVES, False, "rearrangements above and below operators that let them pass become fewer"
    )


def rearrangement_past_sums(view: View, node: Node) -> Rewrite | None:
    """v(f(w(x), y)) = f((v . w)(x), v(y)), where v and w reshape or transpose, and f is a softmax, a norm or a product.

    (x @ y)^T = y^T @ x^T is a case of it.
    """
    return _pulled_up(view, node, {**MOVES, **SUMS}, True, "rearrangements above and below a sum become fewer")


def map_of_rearranged(view: View, node: Node) -> Rewrite | None:
    """f(v(x), y) = v(f(x, v^-1(y))), where v reshapes or transposes, and f is a map that joins the sum that makes x, or y is v(z)."""
    result = view.dims(node.outputs[0])
    whole = [value for value in dict.fromkeys(node.used) if view.dims(value) == result and value not in view.constants]
    for value in whole:
        above = view.producer(value, *REARRANGEMENTS)
        by = None if above is None else of_node(view, above)
        if above is None or by is None:
            continue
        back = by.inverse()
        found = past_map(view, node, back)
        if found is None:
            continue
        step, attrs = found
        others = [other for other in whole if other != value]
        plans = {other: _plan(view, other, back, {}, MOVES) for other in (value, *others)}
        undone = bool(others) and all(plans[other].cost == 0 for other in others)
        follows = distance(above.used[0], view.producer, view.type) is not None and (not by.moves or not others)
        joins = follows and all(reader.op in MAPS for reader in view.readers(value))
        if not undone and not (joins and distance(node.outputs[0], view.producer, view.type) is None):
            continue
        draft = view.draft(node)
        written = [
            operand
            if operand is None or undo is None
            else (plans[operand] if operand in plans else _plan(view, operand, undo, {}, MOVES)).write(draft)
            for operand, undo in step
        ]
        by.write(draft, draft.node(node.op, tuple(written), attrs))
        return draft.done(f"{node.op} comes before the {above.op}")
    return None


RULES: tuple[Rule, ...] = (
    Rule(EXACT, ("Reshape", "Transpose"), rearrangement_past_maps),
    Rule(REASSOCIATES, ("Reshape", "Transpose"), rearrangement_past_sums),
    Rule(EXACT, tuple(sorted(MAPS)), map_of_rearranged),
)

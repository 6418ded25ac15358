"""Slices, splits and concatenations: what is cut out of what was joined is taken from the part itself."""

from __future__ import annotations

from compiler.ir.graph import Node
from compiler.ops.attributes import ints
from compiler.rewrite.rule import EXACT, Rule
from compiler.rewrite.view import Draft, No, Rewrite, View

Window = tuple[int, int, int]
"""First element, step and number of elements along an axis."""


def _windows(view: View, node: Node) -> tuple[Window, ...]:
    """What a Slice takes of each axis. The number of elements is that of the result's type."""
    x, result = view.dims(node.used[0]), view.dims(node.outputs[0])
    starts, steps = ints(node, "starts") or (), ints(node, "steps")
    axes = ints(node, "axes") or tuple(range(len(starts)))
    found: list[Window] = [(0, 1, extent) for extent in x]
    for place, axis in enumerate(axes):
        axis, step = axis % len(x), steps[place] if steps else 1
        begin = starts[place] + x[axis] if starts[place] < 0 else starts[place]
        begin = min(max(begin, 0), x[axis] if step > 0 else x[axis] - 1)
        found[axis] = (begin, step, result[axis])
    return tuple(found)


def _slice(draft: Draft, value: int, windows: tuple[Window, ...]) -> int:
    """A Slice with a window on every axis. An end before the first element is written far below zero."""
    ends = [start + step * count for start, step, count in windows]
    attrs = {
        "starts": tuple(start for start, _, _ in windows),
        "ends": tuple(end if end >= 0 else -(2**31) for end in ends),
        "axes": tuple(range(len(windows))),
        "steps": tuple(step for _, step, _ in windows),
    }
    return draft.node("Slice", (value, None, None, None, None), attrs)


def slice_of_everything(view: View, node: Node) -> Rewrite | No | None:
    """x[:] = x."""
    if view.type(node.used[0]) != view.type(node.outputs[0]):
        return None
    if any(step < 0 and count > 1 for _, step, count in _windows(view, node)):
        return None
    return view.draft(node).same(node.used[0], why="it takes everything")


def slice_of_slice(view: View, node: Node) -> Rewrite | No | None:
    """x[a:b][c:d] = x[a + c:a + d]."""
    inner = view.producer(node.used[0], "Slice")
    if inner is None or not view.type(node.outputs[0]).elements:
        return None
    pairs = zip(_windows(view, inner), _windows(view, node), strict=True)
    windows = tuple((start + step * first, step * stride, count) for (start, step, _), (first, stride, count) in pairs)
    draft = view.draft(node)
    _slice(draft, inner.used[0], windows)
    return draft.done("two slices become one")


def _axis(view: View, node: Node) -> int:
    axis = node.attrs.get("axis", 0)
    assert isinstance(axis, int)
    return axis % view.type(node.used[0]).rank


def slice_of_concat(view: View, node: Node) -> Rewrite | No | None:
    """concat(x, y, ..)[a:b] = y[a - begin:b - begin], where a:b lies within y."""
    concat = view.producer(node.used[0], "Concat")
    if concat is None or not view.type(node.outputs[0]).elements:
        return None
    axis, windows = _axis(view, concat), list(_windows(view, node))
    start, step, count = windows[axis]
    low, high = sorted((start, start + step * (count - 1)))
    begin = 0
    for part in concat.used:
        end = begin + view.dims(part)[axis]
        if begin <= low and high < end:
            windows[axis] = (start - begin, step, count)
            draft = view.draft(node)
            if view.type(part) == view.type(node.outputs[0]) and all(
                first == 0 and by == 1 for first, by, _ in windows
            ):
                return draft.same(part, why="it cuts out one operand of the Concat")
            _slice(draft, part, tuple(windows))
            return draft.done("it cuts from one operand of the Concat only")
        begin = end
    return No("it cuts from several operands of the Concat")


def split_of_concat(view: View, node: Node) -> Rewrite | No | None:
    """split(concat(x, y, ..)) = x, y, .."""
    concat = view.producer(node.used[0], "Concat")
    if concat is None:
        return None
    if _axis(view, concat) != _axis(view, node):
        return No("the Concat joins another axis")
    parts, outputs = concat.used, node.outputs
    if [view.type(part) for part in parts] != [view.type(output) for output in outputs]:
        return No("the Concat joins other parts than the Split makes")
    return view.draft(node).same(*parts, why="the Split undoes the Concat")


def concat_of_split(view: View, node: Node) -> Rewrite | No | None:
    """concat(split(x)) = x."""
    split = view.producer(node.used[0], "Split")
    if split is None or tuple(node.used) != split.outputs or _axis(view, split) != _axis(view, node):
        return None
    return view.draft(node).same(split.used[0], why="the Concat undoes the Split")


def concat_of_concat(view: View, node: Node) -> Rewrite | No | None:
    """concat(concat(x, y), z) = concat(x, y, z)."""
    axis = _axis(view, node)
    inner = [view.producer(value, "Concat") for value in node.used]
    joined = [concat if concat is not None and _axis(view, concat) == axis else None for concat in inner]
    found = [concat for concat in joined if concat is not None and view.enclosed(node, [concat]) is None]
    if not any(joined):
        return None
    if not found:
        return No("every inner Concat is also needed elsewhere")
    inputs: list[int] = []
    for value, concat in zip(node.used, joined, strict=True):
        inputs += concat.used if concat is not None and concat in found else (value,)
    draft = view.draft(node)
    draft.node("Concat", tuple(inputs), node.attrs)
    return draft.done("two Concats become one")


def split_of_one(view: View, node: Node) -> Rewrite | No | None:
    """split(x, 1) = x."""
    return view.draft(node).same(node.used[0], why="the Split makes one part") if len(node.outputs) == 1 else None


RULES: tuple[Rule, ...] = (
    Rule(EXACT, ("Slice",), slice_of_everything),
    Rule(EXACT, ("Slice",), slice_of_slice),
    Rule(EXACT, ("Slice",), slice_of_concat),
    Rule(EXACT, ("Split",), split_of_one),
    Rule(EXACT, ("Split",), split_of_concat),
    Rule(EXACT, ("Concat",), concat_of_split),
    Rule(EXACT, ("Concat",), concat_of_concat),
)

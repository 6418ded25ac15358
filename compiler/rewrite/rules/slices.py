"""Slices, splits and concatenations: what is cut out of what was joined is taken from the part itself."""

from __future__ import annotations

from compiler.ir.graph import Attr, Node
from compiler.ops.attributes import ints
from compiler.rewrite.rule import EXACT, Rule
from compiler.rewrite.rules.padding import pads_of
from compiler.rewrite.view import Draft, No, Rewrite, View

Window = tuple[int, int, int]
"""First element, step and number of elements along an axis."""


def windows(view: View, node: Node) -> tuple[Window, ...]:
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


def slice_attributes(taken: tuple[Window, ...]) -> dict[str, Attr]:
    """Of a Slice with a window on every axis. An end before the first element is written far below zero."""
    ends = [start + step * count for start, step, count in taken]
    return {
        "starts": tuple(start for start, _, _ in taken),
        "ends": tuple(end if end >= 0 else -(2**31) for end in ends),
        "axes": tuple(range(len(taken))),
        "steps": tuple(step for _, step, _ in taken),
    }


def slice_of(draft: Draft, value: int, taken: tuple[Window, ...]) -> int:
    """A Slice with a window on every axis."""
    return draft.node("Slice", (value, None, None, None, None), slice_attributes(taken))


def slice_of_everything(view: View, node: Node) -> Rewrite | No | None:
    """x[:] = x."""
    if view.type(node.used[0]) != view.type(node.outputs[0]):
        return None
    if any(step < 0 and count > 1 for _, step, count in windows(view, node)):
        return None
    return view.draft(node).same(node.used[0], why="it takes everything")


def slice_of_slice(view: View, node: Node) -> Rewrite | No | None:
    """x[a:b][c:d] = x[a + c:a + d]."""
    inner = view.producer(node.used[0], "Slice")
    if inner is None or not view.type(node.outputs[0]).elements:
        return None
    pairs = zip(windows(view, inner), windows(view, node), strict=True)
    taken = tuple((start + step * first, step * stride, count) for (start, step, _), (first, stride, count) in pairs)
    draft = view.draft(node)
    slice_of(draft, inner.used[0], taken)
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
    axis, taken = _axis(view, concat), list(windows(view, node))
    start, step, count = taken[axis]
    low, high = sorted((start, start + step * (count - 1)))
    begin = 0
    for part in concat.used:
        end = begin + view.dims(part)[axis]
        if begin <= low and high < end:
            taken[axis] = (start - begin, step, count)
            draft = view.draft(node)
            if view.type(part) == view.type(node.outputs[0]) and all(first == 0 and by == 1 for first, by, _ in taken):
                return draft.same(part, why="it cuts out one operand of the Concat")
            slice_of(draft, part, tuple(taken))
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


Part = tuple[int, int, int]
"""A value, and the first and the one past the last of the places that are taken of it along an axis."""


def _part(view: View, value: int, axis: int) -> Part:
    """What a value takes of another one along an axis: of a Slice or part of a Split its window; else all of itself."""
    node, whole = view.producer(value, "Slice", "Split"), (value, 0, view.dims(value)[axis])
    if node is None:
        return whole
    dims = view.dims(node.used[0])
    if node.op == "Split":
        place = node.outputs.index(value)
        first = sum(view.dims(output)[axis] for output in node.outputs[:place])
        return (node.used[0], first, first + whole[2]) if _axis(view, node) == axis else whole
    taken = windows(view, node)
    if any(window != (0, 1, n) for at, (window, n) in enumerate(zip(taken, dims, strict=True)) if at != axis):
        return whole
    first, step, count = taken[axis]
    return (node.used[0], first, first + count) if step == 1 else whole


def _parts(view: View, part: Part, axis: int) -> list[Part]:
    """The same, taken of the operands of the Concat along the axis that makes its value, where one does."""
    value, first, past = part
    concat = view.producer(value, "Concat")
    if concat is None or _axis(view, concat) != axis:
        return [part]
    found, begin = [], 0
    for operand in concat.used:
        end = begin + view.dims(operand)[axis]
        if begin < past and first < end:
            found.append((operand, max(first, begin) - begin, min(past, end) - begin))
        begin = end
    return found


def concat_of_parts(view: View, node: Node) -> Rewrite | No | None:
    """concat(x[a:b], x[b:c], y) = concat(x[a:c], y), concat(x[:b], x[b:]) = x,
    and concat(concat(x, y, z)[b:], u) = concat(y, z, u).

    Caches of streaming models, once what they scatter is joined: the old cache less its oldest frames, then the new
    one.
    """
    axis = _axis(view, node)
    taken = [_part(view, value, axis) for value in node.used]
    joined: list[Part] = []
    for value, part in zip(node.used, taken, strict=True):
        for one in [part] if part[0] == value else _parts(view, part, axis):
            if joined and joined[-1][0] == one[0] and joined[-1][2] == one[1]:
                joined[-1] = (one[0], joined[-1][1], one[2])
            else:
                joined.append(one)
    if joined == taken or not joined:
        return None
    draft, operands = view.draft(node), []
    for value, first, past in joined:
        dims = view.dims(value)
        window = tuple((first, 1, past - first) if at == axis else (0, 1, n) for at, n in enumerate(dims))
        operands.append(value if (first, past) == (0, dims[axis]) else slice_of(draft, value, window))
    if len(operands) > 1:
        draft.node("Concat", tuple(operands), {"axis": axis})
    elif operands[0] in view.values:
        return draft.same(operands[0], why="the parts make up the whole")
    return draft.done("parts are taken at once, or where they come from")


def slice_of_pad(view: View, node: Node) -> Rewrite | No | None:
    """pad(x)[a:b] = pad(x[a':b'], p'), of which one does nothing."""
    pad = view.producer(node.used[0], "Pad")
    if pad is None or 0 in view.dims(node.outputs[0]):
        return None
    if pad.attrs.get("mode", "constant") != "constant":
        return No("it pads with elements of the tensor")
    dims, pads = view.dims(pad.used[0]), pads_of(pad, view.type(pad.used[0]).rank)
    taken, around = [], []
    for (first, step, count), (before, _), extent in zip(windows(view, node), pads, dims, strict=True):
        begin, end = max(first - before, 0), min(first - before + count, extent)
        if step != 1 or end <= begin:
            return No("it cuts with steps, or only padding")
        taken.append((begin, 1, end - begin))
        around.append((begin - (first - before), first - before + count - end))
    draft, value = view.draft(node), pad.used[0]
    if tuple(n for _, _, n in taken) != dims:
        value = slice_of(draft, value, tuple(taken))
    if any(pair != (0, 0) for pair in around):
        attrs = {name: known for name, known in pad.attrs.items() if name != "axes"}
        both = (*(begin for begin, _ in around), *(end for _, end in around))
        draft.node("Pad", (value, *pad.inputs[1:]), {**attrs, "pads": both})
    elif value == pad.used[0]:
        return draft.same(value, why="it cuts off the padding")
    return draft.done("it cuts off padding")


RULES: tuple[Rule, ...] = (
    Rule(EXACT, ("Slice",), slice_of_everything),
    Rule(EXACT, ("Slice",), slice_of_slice),
    Rule(EXACT, ("Slice",), slice_of_concat),
    Rule(EXACT, ("Split",), split_of_one),
    Rule(EXACT, ("Split",), split_of_concat),
    Rule(EXACT, ("Slice",), slice_of_pad),
    Rule(EXACT, ("Concat",), concat_of_split),
    Rule(EXACT, ("Concat",), concat_of_concat),
    Rule(EXACT, ("Concat",), concat_of_parts),
)

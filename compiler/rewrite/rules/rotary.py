"""Rotary embedding written out: x cos + rotate(x) sin; `rotate` exchanges the halves of a head, one negated.

With an axis for the two halves the exchange is a view, a Slice that walks back along it; the sign goes into the sines,
and what is left is one map. PyTorch writes the first form (tiny_llama), also with neighbours in the place of halves,
the body of ONNX's RotaryEmbedding the second.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from compiler.ir.graph import Node
from compiler.rewrite.rule import EXACT, REASSOCIATES, Rule
from compiler.rewrite.rules.shapes import reshape_to
from compiler.rewrite.view import Draft, No, Rewrite, View

Dims = tuple[int, ...]


@dataclass(frozen=True)
class _Part:
    """Half of the last axis of x: every element of the first or second half, or of even or odd places (`paired`)."""

    x: int
    second: bool
    paired: bool
    nodes: tuple[Node, ...]


def _part(view: View, value: int) -> _Part | None:
    node = view.producer(value, "Slice", "Split", "Reshape")
    if node is None or node.op == "Reshape":
        return None if node is None else _element(view, node)
    width, axis = view.dims(node.used[0])[-1], len(view.dims(node.used[0])) - 1
    if node.op == "Split":
        sizes = [view.dims(part)[-1] for part in node.outputs]
        own = node.attrs.get("axis", 0)
        if own not in (axis, -1) or len(node.outputs) != 2 or sizes[0] != sizes[1]:
            return None
        return _Part(node.used[0], node.outputs[1] == value, False, ())
    starts, ends, axes, steps = (_whole(node, name) for name in ("starts", "ends", "axes", "steps"))
    if width % 2 or len(axes) != 1 or axes[0] % (axis + 1) != axis or len(starts) != 1 or len(ends) != 1:
        return None
    start, end, step = starts[0], min(ends[0], width), (steps or (1,))[0]
    if step == 1 and (start, end) in ((0, width // 2), (width // 2, width)):
        return _Part(node.used[0], start > 0, False, (node,))
    if step == 2 and start in (0, 1) and end >= width - 1 + start:
        return _Part(node.used[0], start == 1, True, (node,))
    return None


def _whole(node: Node, name: str) -> tuple[int, ...]:
    value = node.attrs.get(name, ())
    assert isinstance(value, tuple)
    return tuple(int(str(one)) for one in value)


def _element(view: View, node: Node) -> _Part | None:
    """A part with a last axis of extent 1 behind it, as it stands before pairs are put together."""
    inner = _part(view, node.used[0]) if view.dims(node.outputs[0]) == (*view.dims(node.used[0]), 1) else None
    return None if inner is None else _Part(inner.x, inner.second, inner.paired, (node, *inner.nodes))


def _negated(view: View, value: int) -> tuple[int, tuple[Node, ...]] | None:
    """The y of -y, and the nodes that negate it: a Reshape may stand behind the Neg."""
    node = view.producer(value, "Neg", "Reshape")
    if node is None:
        return None
    if node.op == "Neg":
        return node.used[0], (node,)
    inner = view.producer(node.used[0], "Neg")
    return None if inner is None else (inner.used[0], (node, inner))


def rotary_by_halves(view: View, node: Node) -> Rewrite | No | None:
    """x c + concat(-b, a) s = x c + concat(b, a) (s * concat(-1, 1)),
    for x = concat(a, b), or for neighbours a and b.
    """
    for first, second in (node.used, node.used[::-1]):
        straight, rotated = view.producer(first, "Mul"), view.producer(second, "Mul")
        for value, sines in () if straight is None or rotated is None else (rotated.used, rotated.used[::-1]):
            found = _rotation(view, value)
            if found is None or straight is None or rotated is None or found.x not in straight.used:
                continue
            cosines = straight.used[0] if straight.used[1] == found.x else straight.used[1]
            whole = {view.type(found.x), view.type(first), view.type(second), view.type(node.outputs[0])}
            if len(whole) != 1 or {*(view.dims(angle)[-1:] for angle in (sines, cosines))} != {view.dims(found.x)[-1:]}:
                return No("the angles are not given for each element")
            if (refusal := view.enclosed(node, [straight, rotated, *found.nodes])) is not None:
                return refusal
            draft = view.draft(node)
            signed = draft.node("Mul", (sines, draft.constant(_signs(view, found))))
            angles = ((cosines, view.dims(cosines)), (signed, view.dims(sines)))
            _rotated(draft, found.x, angles, found.paired)
            return draft.done("the sign of a rotation is in its sines")
    return None


@dataclass(frozen=True)
class _Rotation:
    """x with its halves (or neighbours, `paired`) exchanged, the first negated; the nodes that join the two."""

    x: int
    paired: bool
    nodes: tuple[Node, ...]


def _rotation(view: View, value: int) -> _Rotation | None:
    outer = view.producer(value, "Reshape", "Concat")
    concat = view.producer(outer.used[0], "Concat") if outer is not None and outer.op == "Reshape" else outer
    if outer is None or concat is None or len(concat.used) != 2:
        return None
    rank = len(view.dims(concat.outputs[0]))
    if concat.attrs.get("axis") not in (rank - 1, -1):
        return None
    negative = _negated(view, concat.used[0])
    first, second = (
        None if negative is None else _part(view, negative[0]),
        _part(view, concat.used[1]),
    )
    if negative is None or first is None or second is None or first.x != second.x:
        return None
    if not first.second or second.second or first.paired != second.paired or first.paired != (outer is not concat):
        return None
    if view.dims(value) != view.dims(first.x):
        return None
    nodes = (*negative[1], concat, *([outer] if outer is not concat else []))
    return _Rotation(first.x, first.paired, nodes)


def _rotated(draft: Draft, x: int, angles: tuple[tuple[int, Dims], tuple[int, Dims]], paired: bool) -> None:
    """x * cosines + (x with its halves, or its neighbours, exchanged) * sines, with an axis of its own for the two.

    `angles` are the cosines and the sines, each with its dimensions.
    """
    dims = draft.view.dims(x)
    split = _apart(draft, x, dims, paired)
    axis = len(dims) - (0 if paired else 1)
    where = {"starts": (1,), "ends": (-3,), "axes": (axis,), "steps": (-1,)}
    back = draft.node("Slice", (split, None, None, None, None), where)
    products = [
        draft.node("Mul", (part, _apart(draft, angle, its, paired)))
        for part, (angle, its) in zip((split, back), angles, strict=True)
    ]
    reshape_to(draft, draft.node("Add", tuple(products)), dims)


def _apart(draft: Draft, value: int, dims: Dims, paired: bool) -> int:
    half = dims[-1] // 2
    return reshape_to(draft, value, (*dims[:-1], half, 2) if paired else (*dims[:-1], 2, half))


def _signs(view: View, rotation: _Rotation) -> np.ndarray:
    width = view.dims(rotation.x)[-1]
    signs = np.ones(width, view.type(rotation.x).dtype.numpy)
    signs[slice(0, None, 2) if rotation.paired else slice(0, width // 2)] = -1
    return signs


def rotary_by_parts(view: View, node: Node) -> Rewrite | No | None:
    """concat(a c - b s, a s + b c) = x concat(c, c) + concat(b, a) concat(-s, s), for x = concat(a, b)."""
    rank = len(view.dims(node.outputs[0]))
    if len(node.used) != 2 or node.attrs.get("axis") not in (rank - 1, -1):
        return None
    minus, plus = view.producer(node.used[0], "Sub"), view.producer(node.used[1], "Add")
    if minus is None or plus is None:
        return None
    products = [view.producer(value, "Mul") for value in (*minus.used, *plus.used)]
    if any(product is None for product in products):
        return None
    known = [product for product in products if product is not None]
    angles = _angles(view, known)
    if angles is None:
        return None
    x, cosines, sines = angles
    if view.type(x) != view.type(node.outputs[0]):
        return None
    if (refusal := view.enclosed(node, [minus, plus, *known])) is not None:
        return refusal
    draft = view.draft(node)
    last = len(view.dims(cosines)) - 1
    both = draft.node("Concat", (cosines, cosines), {"axis": last})
    last = len(view.dims(sines)) - 1
    signed = draft.node("Concat", (draft.node("Neg", (sines,)), sines), {"axis": last})
    wide = [(*view.dims(angle)[:-1], 2 * view.dims(angle)[-1]) for angle in (cosines, sines)]
    _rotated(draft, x, ((both, wide[0]), (signed, wide[1])), paired=False)
    return draft.done("a rotation of two halves is one of the whole")


def _angles(view: View, products: list[Node]) -> tuple[int, int, int] | None:
    """(x, c, s) where the products are a c, b s and, in any order, a s and b c, for the halves a and b of x."""
    for a, c in (products[0].used, products[0].used[::-1]):
        for b, s in (products[1].used, products[1].used[::-1]):
            first, second = _part(view, a), _part(view, b)
            if first is None or second is None or first.x != second.x or first.paired or second.paired:
                continue
            rest = sorted(tuple(sorted(product.used)) for product in products[2:])
            if first.second or not second.second or rest != sorted([tuple(sorted((a, s))), tuple(sorted((b, c)))]):
                continue
            half = view.dims(a)[-1]
            if view.dims(c)[-1:] == (half,) and view.dims(s)[-1:] == (half,):
                return first.x, c, s
    return None


RULES: tuple[Rule, ...] = (
    Rule(EXACT, ("Add",), rotary_by_halves),
    Rule(REASSOCIATES, ("Concat",), rotary_by_parts),
)

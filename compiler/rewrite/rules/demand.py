"""Slices moved up past what makes their operand, so that nothing is computed of which the result is cut away.

A classifier reads one token of a transformer's last block: of that block's products only one row is needed, and of its
attention only one query. Each operator says which part of each operand a part of its result needs; a Slice is left
where something else needs an operand whole.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod

import numpy as np

from compiler.ir.graph import Attr, Node
from compiler.ops.attributes import ints
from compiler.rewrite.maps import MAPS
from compiler.rewrite.rule import REASSOCIATES, Rule
from compiler.rewrite.rules.slices import Window, slice_of, windows
from compiler.rewrite.view import Draft, No, Rewrite, View

REGION = 48
"""Nodes that a Slice is moved past at most."""
SUMS = ("MatMul", "Gemm")
"""Operators that make the motion worth it: their work shrinks with their result."""


@dataclass(frozen=True)
class Cut:
    """What is taken of a value: a window of one axis."""

    axis: int
    window: Window

    def moved(self, axis: int) -> Cut:
        """The same window along another axis."""
        return Cut(axis, self.window)


Needs = tuple[tuple[int | None, Cut | None], ...]
"""The operands of a node, and what of each is needed: None for all of it."""
Part = tuple[Needs, Mapping[str, Attr]]


def _of_map(view: View, node: Node, cut: Cut) -> Part | None:
    """f(x, y)[a:b] = f(x[a:b], y[a:b]), for a map f, where what is broadcast stays as it is."""
    rank, needs = len(view.dims(node.outputs[0])), list[tuple[int | None, Cut | None]]()
    for value in node.inputs:
        dims = () if value is None else view.dims(value)
        axis = cut.axis - rank + len(dims)
        needs.append((value, cut.moved(axis) if axis >= 0 and dims[axis] != 1 else None))
    return tuple(needs), node.attrs


def _of_lines(view: View, node: Node, cut: Cut) -> Part | None:
    """softmax(x)[a:b] = softmax(x[a:b]) and norm(x)[a:b] = norm(x[a:b]), along an axis over which is not summed."""
    rank, axis = len(view.dims(node.outputs[0])), node.attrs.get("axis", -1)
    assert isinstance(axis, int)
    axis %= rank
    over = (axis,) if node.op in ("Softmax", "LogSoftmax") else range(axis, rank)
    first, *rest = node.inputs
    if cut.axis in over or len(node.outputs) > 1:
        return None
    if any(value is not None and len(view.dims(value)) > len(over) for value in rest):
        return None  # a scale that differs from line to line
    return ((first, cut), *((value, None) for value in rest)), node.attrs


def _of_matmul(view: View, node: Node, cut: Cut) -> Part | None:
    """(x @ y)[a:b] = x[a:b] @ y, (x @ y)[:, a:b] = x @ y[:, a:b]."""
    x, y = node.used
    a, b = view.dims(x), view.dims(y)
    rank = len(view.dims(node.outputs[0]))
    if len(a) < 2 or len(b) < 2 or cut.axis < rank - 2:
        return None
    if cut.axis == rank - 2:
        return ((x, cut.moved(len(a) - 2)), (y, None)), {}
    return ((x, None), (y, cut.moved(len(b) - 1))), {}


def _of_gemm(view: View, node: Node, cut: Cut) -> Part | None:
    """gemm(x, y, z)[a:b] = gemm(x[a:b], y, z), gemm(x, y, z)[:, a:b] = gemm(x, y[:, a:b], z[a:b])."""
    x, y, *bias = node.inputs
    transposed = bool(node.attrs.get("transB" if cut.axis else "transA", 0))
    own = cut.moved(cut.axis ^ 1 if transposed else cut.axis)
    needs = [(x, None if cut.axis else own), (y, own if cut.axis else None)]
    for value in bias:
        dims = () if value is None else view.dims(value)
        axis = cut.axis - 2 + len(dims)
        needs.append((value, cut.moved(axis) if axis >= 0 and dims[axis] != 1 else None))
    return tuple(needs), node.attrs


def _of_transpose(view: View, node: Node, cut: Cut) -> Part | None:
    """transpose(x, p)[a:b] = transpose(x[a:b], p), along the axis that p names."""
    perm = ints(node, "perm") or tuple(reversed(range(len(view.dims(node.used[0])))))
    return ((node.used[0], cut.moved(perm[cut.axis])),), {"perm": perm}


def _of_reshape(view: View, node: Node, cut: Cut) -> Part | None:
    """reshape(x, s)[a:b] = reshape(x[a:b], s'), along an axis that x has as well."""
    dims, result = view.dims(node.used[0]), view.dims(node.outputs[0])
    for axis, extent in enumerate(dims):
        if extent == result[cut.axis] and prod(dims[:axis]) == prod(result[: cut.axis]):
            shape = tuple(cut.window[2] if at == cut.axis else n for at, n in enumerate(result))
            return ((node.used[0], cut.moved(axis)), (None, None)), {"allowzero": 0, "shape": shape}
    return None


PARTS: Mapping[str, Callable[[View, Node, Cut], Part | None]] = {
    **dict.fromkeys(MAPS, _of_map),
    **dict.fromkeys(("Softmax", "LogSoftmax", "LayerNormalization", "RMSNormalization"), _of_lines),
    "MatMul": _of_matmul,
    "Gemm": _of_gemm,
    "Transpose": _of_transpose,
    "Reshape": _of_reshape,
}


def _needed(view: View, root: Node, cut: Cut) -> dict[int, Cut]:
    """The part needed of each value whose readers all need the same: the results of nodes that the Slice moves past."""
    inside = {root.outputs[0]}
    found: dict[int, Cut] = {}
    wanted: dict[int, list[Cut | None]] = {root.used[0]: [cut]}
    fresh = True
    while fresh and len(found) < REGION:
        fresh = False
        for value, cuts in list(wanted.items()):
            maker = view.producer(value, *PARTS)
            if maker is None or value in found or value in view.outputs or not view.reading[value].keys() <= inside:
                continue
            first = cuts[0]
            part = None if first is None or len(set(cuts)) > 1 else PARTS[maker.op](view, maker, first)
            if first is None or part is None:
                continue
            found[value], fresh = first, True
            inside.add(maker.outputs[0])
            for operand, need in part[0]:
                if operand is not None:
                    wanted.setdefault(operand, []).append(need)
    return found


def slice_past_sums(view: View, node: Node) -> Rewrite | No | None:
    """f(x @ y)[a:b] = f(x[a:b] @ y), for maps, norms and softmaxes f, reshapes and transposes."""
    if view.producer(node.used[0], *PARTS) is None or not view.type(node.outputs[0]).elements:
        return None
    dims, taken = view.dims(node.used[0]), windows(view, node)
    cuts = [Cut(axis, window) for axis, window in enumerate(taken) if window != (0, 1, dims[axis])]
    if len(cuts) != 1 or cuts[0].window[1] < 0:
        return None
    needed = _needed(view, node, cuts[0])
    if not needed and view.producer(node.used[0], *SUMS) is not None:
        return No("what is cut away of the product is needed elsewhere")
    if not any(view.made_by[value].op in SUMS for value in needed):
        return None
    draft, written = view.draft(node), dict[tuple[int, Cut], int]()

    def write(value: int, cut: Cut) -> int:
        if (value, cut) not in written:
            written[value, cut] = _write(view, draft, value, cut, needed, write)
        return written[value, cut]

    write(node.used[0], cuts[0])
    return draft.done("products are computed only where they are needed")


def _write(
    view: View, draft: Draft, value: int, cut: Cut, needed: Mapping[int, Cut], write: Callable[[int, Cut], int]
) -> int:
    """A part of a value: computed by itself, or taken of the whole."""
    first, step, count = cut.window
    if value in view.constants:
        places = np.arange(first, first + step * count, step)
        array = view.constants[value]
        return draft.derived(("taken", value, cut), lambda: np.take(array, places, axis=cut.axis))
    maker = view.producer(value)
    if maker is None or needed.get(value) != cut:
        dims = view.dims(value)
        return slice_of(draft, value, tuple(cut.window if at == cut.axis else (0, 1, n) for at, n in enumerate(dims)))
    part = PARTS[maker.op](view, maker, cut)
    assert part is not None
    needs, attrs = part
    operands = tuple(one if one is None or need is None else write(one, need) for one, need in needs)
    return draft.node(maker.op, operands, attrs, maker.source)


RULES: tuple[Rule, ...] = (Rule(REASSOCIATES, ("Slice",), slice_past_sums),)

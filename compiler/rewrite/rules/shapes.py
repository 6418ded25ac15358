"""Reshapes, transposes, expansions and casts: chains of them are one, and those that change nothing are none."""

from __future__ import annotations

from compiler.ir.graph import Node
from compiler.ir.small import FLOATS
from compiler.ir.tensor import DType
from compiler.ops.attributes import ints
from compiler.rewrite.measure import WEIGHTS
from compiler.rewrite.rearrangement import REARRANGEMENTS, RESHAPES, Rearrangement, of_node
from compiler.rewrite.rule import EXACT, Rule
from compiler.rewrite.view import Draft, No, Rewrite, View


def reshape_to(draft: Draft, value: int, dims: tuple[int, ...]) -> int:
    """A Reshape to these extents, taken literally."""
    return draft.node("Reshape", (value, None), {"allowzero": int(0 in dims), "shape": dims})


def reshape_to_own_shape(view: View, node: Node) -> Rewrite | No | None:
    """reshape(x: s, s) = x."""
    if view.type(node.used[0]) != view.type(node.outputs[0]):
        return None
    return view.draft(node).same(node.used[0], why="it has that shape already")


def reshape_of_reshape(view: View, node: Node) -> Rewrite | No | None:
    """reshape(reshape(x, s), t) = reshape(x, t), where squeeze, unsqueeze and flatten are reshapes."""
    inner = view.producer(node.used[0], *RESHAPES)
    if inner is None:
        return None
    if view.type(inner.used[0]) == view.type(node.outputs[0]):
        return view.draft(node).same(inner.used[0], why="the reshapes undo each other")
    draft = view.draft(node)
    reshape_to(draft, inner.used[0], view.dims(node.outputs[0]))
    return draft.done("two reshapes become one")


def reshape_by_another_name(view: View, node: Node) -> Rewrite | No | None:
    """squeeze(x) = unsqueeze(x) = flatten(x) = reshape(x, s)."""
    draft = view.draft(node)
    reshape_to(draft, node.used[0], view.dims(node.outputs[0]))
    return draft.done(f"{node.op} is a Reshape")


def _perm(view: View, node: Node) -> tuple[int, ...]:
    rank = view.type(node.used[0]).rank
    return ints(node, "perm") or tuple(reversed(range(rank)))


def transpose_of_nothing(view: View, node: Node) -> Rewrite | No | None:
    """transpose(x, (0, 1, ..)) = x."""
    if _perm(view, node) != tuple(range(view.type(node.used[0]).rank)):
        return None
    return view.draft(node).same(node.used[0], why="it moves no axis")


def transpose_of_unit_axes(view: View, node: Node) -> Rewrite | No | None:
    """transpose(x, p) = reshape(x, s), where p keeps the order of all axes longer than 1."""
    dims = view.dims(node.used[0])
    moved = [axis for axis in _perm(view, node) if dims[axis] != 1]
    if moved != sorted(moved):
        return None
    draft = view.draft(node)
    reshape_to(draft, node.used[0], view.dims(node.outputs[0]))
    return draft.done("it only moves axes of extent 1")


def transpose_of_transpose(view: View, node: Node) -> Rewrite | No | None:
    """transpose(transpose(x, p), q) = transpose(x, p[q])."""
    inner = view.producer(node.used[0], "Transpose")
    if inner is None:
        return None
    first = _perm(view, inner)
    both = tuple(first[axis] for axis in _perm(view, node))
    if both == tuple(range(len(both))):
        return view.draft(node).same(inner.used[0], why="the transposes undo each other")
    draft = view.draft(node)
    draft.node("Transpose", (inner.used[0],), {"perm": both})
    return draft.done("two transposes become one")


def rearrangement_of_rearrangement(view: View, node: Node) -> Rewrite | No | None:
    """v(w(x)) = (v . w)(x), where v and w are chains of reshapes and transposes, written with the fewest nodes.

    A Transpose between two Reshapes, as tf2onnx writes it around the heads of an attention, often is a Transpose.
    """
    whole = of_node(view, node)
    above, old, nodes = node, WEIGHTS[node.op], [node]
    best: tuple[int, int, Rearrangement] | None = None
    while whole is not None and (maker := view.producer(above.used[0], *REARRANGEMENTS)) is not None:
        first = of_node(view, maker)
        whole = None if first is None else first.then(whole)
        if whole is None:
            break
        above = maker
        if view.enclosed(node, [*nodes[1:], maker]) is None:
            old += WEIGHTS[maker.op]
        nodes.append(maker)
        new = sum(WEIGHTS[op] for op, _ in whole.writes())
        if new < old and (best is None or new - old < best[0]):
            best = new - old, above.used[0], whole
    if best is None:
        return None
    _, value, found = best
    if found.nothing:
        return view.draft(node).same(value, why="the reshapes and transposes undo each other")
    draft = view.draft(node)
    found.write(draft, value)
    return draft.done("reshapes and transposes become fewer")


def expand_to_own_shape(view: View, node: Node) -> Rewrite | No | None:
    """expand(x: s, s) = x."""
    if view.type(node.used[0]) != view.type(node.outputs[0]):
        return None
    return view.draft(node).same(node.used[0], why="it has that shape already")


FULL_FLOATS = (DType.F16, DType.BF16, DType.F32, DType.F64)
LOSSLESS: dict[DType, tuple[DType, ...]] = {
    DType.BOOL: tuple(dtype for dtype in DType if dtype is not DType.F8E8M0),
    DType.I8: (DType.I16, DType.I32, DType.I64, DType.F16, DType.BF16, DType.F32, DType.F64),
    DType.U8: (
        *(DType.I16, DType.I32, DType.I64, DType.U16, DType.U32, DType.U64),
        *(DType.F16, DType.BF16, DType.F32, DType.F64),
    ),
    DType.I16: (DType.I32, DType.I64, DType.F32, DType.F64),
    DType.U16: (DType.I32, DType.I64, DType.U32, DType.U64, DType.F32, DType.F64),
    DType.I32: (DType.I64, DType.F64),
    DType.U32: (DType.I64, DType.U64, DType.F64),
    DType.F16: (DType.F32, DType.F64),
    DType.BF16: (DType.F32, DType.F64),
    DType.F32: (DType.F64,),
    **dict.fromkeys(FLOATS, (DType.F32, DType.F64)),
    **dict.fromkeys((DType.I2, DType.I4), (DType.I8, DType.I16, DType.I32, DType.I64, *FULL_FLOATS)),
    **dict.fromkeys(
        (DType.U2, DType.U4),
        (*(DType.I8, DType.I16, DType.I32, DType.I64, DType.U8, DType.U16, DType.U32, DType.U64), *FULL_FLOATS),
    ),
}
"""Element types that hold every value of another one."""


def cast_of_cast(view: View, node: Node) -> Rewrite | No | None:
    """cast(cast(x: a, b), c) = cast(x, c), where b holds every value of a."""
    inner = view.producer(node.used[0], "Cast")
    if inner is None:
        return None
    start, middle, end = view.type(inner.used[0]).dtype, view.type(node.used[0]).dtype, view.type(node.outputs[0]).dtype
    if middle not in LOSSLESS.get(start, ()):
        return No(f"a cast from {start} to {middle} loses something")
    if start is end:
        return view.draft(node).same(inner.used[0], why="the casts undo each other")
    draft = view.draft(node)
    draft.node("Cast", (inner.used[0],), node.attrs)
    return draft.done("two casts become one")


RULES: tuple[Rule, ...] = (
    Rule(EXACT, RESHAPES, reshape_to_own_shape),
    Rule(EXACT, RESHAPES, reshape_of_reshape),
    Rule(EXACT, ("Squeeze", "Unsqueeze", "Flatten"), reshape_by_another_name),
    Rule(EXACT, ("Transpose",), transpose_of_nothing),
    Rule(EXACT, ("Transpose",), transpose_of_unit_axes),
    Rule(EXACT, ("Transpose",), transpose_of_transpose),
    Rule(EXACT, ("Reshape", "Transpose"), rearrangement_of_rearrangement),
    Rule(EXACT, ("Expand", "Tile"), expand_to_own_shape),
    Rule(EXACT, ("Cast",), cast_of_cast),
)

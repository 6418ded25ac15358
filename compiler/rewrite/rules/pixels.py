"""Rearrangements of pixels that exporters write out: depth to space and back."""

from __future__ import annotations

from compiler.ir.graph import Node
from compiler.rewrite.rearrangement import REARRANGEMENTS, Rearrangement, of_node, transposed
from compiler.rewrite.rule import EXACT, Rule
from compiler.rewrite.view import No, Rewrite, View

Shape = tuple[int, ...]


def _spread(source: Shape, block: int, mode: str) -> Rearrangement | None:
    """What depth to space does to a tensor of n c h w, as reshapes around a transpose (the operator's definition)."""
    n, c, h, w = source
    if c % (block * block):
        return None
    deep = c // (block * block)
    parts, perm = (
        ((n, block, block, deep, h, w), (0, 3, 4, 1, 5, 2))
        if mode == "DCR"
        else ((n, deep, block, block, h, w), (0, 1, 4, 2, 5, 3))
    )
    first, last = Rearrangement(source, parts, (n * c * h * w,), (0,)), transposed(parts, perm)
    result = (n, deep, h * block, w * block)
    both = first.then(last)
    return None if both is None else both.then(Rearrangement(last.result, result, (n * c * h * w,), (0,)))


def _chain(view: View, node: Node) -> tuple[int, Rearrangement, list[Node]] | None:
    """The value above a Reshape of a Transpose of a Reshape, what these do together, and the inner two."""
    whole, nodes, above = of_node(view, node), [], node
    for _ in range(2):
        maker = view.producer(above.used[0], *REARRANGEMENTS)
        first = None if maker is None else of_node(view, maker)
        if maker is None or first is None or whole is None:
            return None
        whole, above = first.then(whole), maker
        nodes.append(maker)
    return None if whole is None else (above.used[0], whole, nodes)


def _block(few: Shape, many: Shape) -> int | None:
    """The side of the blocks by which one tensor of n c h w has more pixels than another."""
    if len(few) != 4 or len(many) != 4 or 0 in few or many[2] % few[2]:
        return None
    block = many[2] // few[2]
    fits = many == (few[0], few[1] // (block * block), few[2] * block, few[3] * block)
    return block if block > 1 and fits else None


def depth_to_space_by_transpose(view: View, node: Node) -> Rewrite | No | None:
    """reshape(transpose(reshape(x, n c b b h w))) = depth_to_space(x, b), in both orders of c and b.

    PyTorch's pixel_shuffle where it is written out, and heads of depth estimators.
    """
    found = _chain(view, node)
    if found is None or (block := _block(found[1].source, found[1].result)) is None:
        return None
    x, whole, nodes = found
    for mode in ("DCR", "CRD"):
        if whole == _spread(whole.source, block, mode):
            if (refusal := view.enclosed(node, nodes)) is not None:
                return refusal
            draft = view.draft(node)
            draft.node("DepthToSpace", (x,), {"blocksize": block, "mode": mode})
            return draft.done(f"it moves channels into blocks of {block} by {block} pixels")
    return None


def space_to_depth_by_transpose(view: View, node: Node) -> Rewrite | No | None:
    """reshape(transpose(reshape(x, n c h b w b))) = space_to_depth(x, b).

    The first layer of YOLO's and of TResNet where it is written without slices.
    """
    found = _chain(view, node)
    if found is None or (block := _block(found[1].result, found[1].source)) is None:
        return None
    x, whole, nodes = found
    if whole.inverse() != _spread(whole.result, block, "DCR"):
        return None
    if (refusal := view.enclosed(node, nodes)) is not None:
        return refusal
    draft = view.draft(node)
    draft.node("SpaceToDepth", (x,), {"blocksize": block})
    return draft.done(f"it moves blocks of {block} by {block} pixels into channels")


RULES: tuple[Rule, ...] = (
    Rule(EXACT, ("Reshape",), depth_to_space_by_transpose),
    Rule(EXACT, ("Reshape",), space_to_depth_by_transpose),
)

"""Products by matrices of low rank, taken apart into two with fewer elements."""

from __future__ import annotations

import numpy as np

from compiler.encodings.low_rank import CLOSE, factors_of
from compiler.ir.graph import Node
from compiler.rewrite.rounding import wide
from compiler.rewrite.rule import REASSOCIATES, Rule
from compiler.rewrite.view import No, Rewrite, View


def product_by_low_rank(view: View, node: Node) -> Rewrite | No | None:
    """x W = (x U) V, where W = U V and both factors have at most half of its elements.

    A matrix that was factorised in training and multiplied out again, or is nearly constant, has such factors. They are
    taken only where rounding hides what they leave out.
    """
    weights = view.constant(node.inputs[1])
    if weights is None or weights.ndim != 2 or node.inputs[0] in view.constants:
        return None
    if node.attrs.get("transA", 0):
        return No("its input is transposed")
    matrix = weights.T if node.attrs.get("transB", 0) else weights
    found = factors_of(matrix)
    if found is None:
        return None
    u, v = (np.ascontiguousarray(each.astype(weights.dtype)) for each in (found.u, found.v))
    if float(np.linalg.norm(wide(u) @ wide(v) - wide(matrix))) > CLOSE * float(np.linalg.norm(wide(matrix))):
        return No(f"factors in {weights.dtype} are not close enough to the matrix")
    draft = view.draft(node)
    inner = draft.node("MatMul", (node.inputs[0], draft.constant(u)), {}, node.source)
    attrs = {name: 0 if name == "transB" else value for name, value in node.attrs.items()}
    draft.node(node.op, (inner, draft.constant(v), *node.inputs[2:]), attrs, node.source)
    return draft.done(f"a matrix of {weights.shape[0]} x {weights.shape[1]} has rank {found.rank}")


CHOICES: tuple[Rule, ...] = (Rule(REASSOCIATES, ("MatMul", "Gemm"), product_by_low_rank),)

"""Keeping some elements: Compress with a known condition, and NonZero, whose size depends on data."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from compiler.ir.expr import Const, Expr, Load, Position, Where
from compiler.ir.graph import Node
from compiler.ir.index import Axis, Index, Indirect, unflatten
from compiler.ir.kernel import Kernel
from compiler.ir.tensor import DType, TensorType, extent
from compiler.ops.build import at, call, view_kernel
from compiler.ops.indices import axis_of
from compiler.ops.operator import Arrays, Operator, Types, Unsupported
from compiler.ops.slots import arrays_at, given
from compiler.ops.traits import Trait

RUNS = 64
"""How many runs of selected elements a Compress may have; each is a comparison for every element of the result."""


def _kept(node: Node, extent: int) -> list[int]:
    """Positions that the condition of a Compress keeps."""
    condition = node.attrs.get("condition")
    if not isinstance(condition, tuple) or len(condition) > extent:
        reason = (
            "its condition is no vector known when compiling, at most as long as the axis; "
            "the output's size depends on it"
        )
        raise Unsupported(reason, "make the condition a constant")
    return [place for place, keep in enumerate(condition) if keep]


def _infer_compress(node: Node, types: Types) -> tuple[TensorType, ...]:
    x = given(types, 0)
    if "axis" not in node.attrs:
        return (TensorType(x.dtype, (len(_kept(node, x.elements)),)),)
    axis = axis_of(node, x.rank)
    return (TensorType(x.dtype, (*x.shape[:axis], len(_kept(node, extent(x.shape[axis]))), *x.shape[axis + 1 :])),)


def _define_compress(node: Node, types: Types, outputs: tuple[TensorType, ...]) -> Kernel:
    """Runs of kept positions are shifted each by its own distance.

    It is chosen by comparing with where the next run starts.
    """
    x = given(types, 0)
    flat = "axis" not in node.attrs
    axis = 0 if flat else axis_of(node, x.rank)
    extent = x.elements if flat else x.dims[axis]
    kept = _kept(node, extent)
    starts = [0, *(place for place, (a, b) in enumerate(pairwise(kept), 1) if b != a + 1)]
    if len(starts) > RUNS:
        raise Unsupported(f"its condition keeps {len(starts)} separate runs, more than {RUNS}", "use a Gather")

    def element(axes: tuple[Axis, ...]) -> Expr:
        index = at(axes)
        if not kept:
            return Load("x0", (Index.of(0),) * x.rank, x.dtype)
        source: Expr = Position(index[axis] + (kept[starts[-1]] - starts[-1]))
        for start, following in reversed(list(pairwise(starts))):
            shifted = Position(index[axis] + (kept[start] - start))
            earlier = call("lt", Position(index[axis]), Const(following, DType.I64))
            source = Where(earlier, shifted, source)
        chosen = Index.of(Indirect(source, 0, extent - 1))
        read = unflatten(chosen, x.dims) if flat else (*index[:axis], chosen, *index[axis + 1 :])
        return Load("x0", read, x.dtype)

    return view_kernel("Compress", types, outputs[0], element)


def _reference_compress(node: Node, arrays: Arrays) -> tuple[np.ndarray, ...]:
    (x,) = arrays_at(arrays, 0)
    if "axis" not in node.attrs:
        return (x.reshape(-1)[_kept(node, x.size)],)
    axis = axis_of(node, x.ndim)
    return (np.take(x, _kept(node, x.shape[axis]), axis=axis),)


def _infer_nonzero(node: Node, types: Types) -> tuple[TensorType, ...]:
    raise Unsupported("the size of its output depends on data", "make its input a constant, or keep a mask instead")


def _reference_nonzero(node: Node, arrays: Arrays) -> tuple[np.ndarray, ...]:
    (x,) = arrays_at(arrays, 0)
    return (np.stack(np.nonzero(np.atleast_1d(x))).astype(np.int64),)


def _define_nonzero(node: Node, types: Types, outputs: tuple[TensorType, ...]) -> Kernel:
    raise Unsupported("the size of its output depends on data", "make its input a constant, or keep a mask instead")


OPERATORS: tuple[Operator, ...] = (
    Operator(
        "Compress", _infer_compress, _reference_compress, _define_compress, ((1, "condition"),), traits=Trait.MOVES
    ),
    Operator("NonZero", _infer_nonzero, _reference_nonzero, _define_nonzero),
)

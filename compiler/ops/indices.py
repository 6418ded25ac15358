"""Indices: attributes that name an axis, and elements that an index tensor selects."""

from __future__ import annotations

from compiler.ir.expr import Const, Expr, Load, Where
from compiler.ir.graph import Node
from compiler.ir.index import Index, Indirect
from compiler.ops.build import call
from compiler.ops.operator import Unsupported


def axis_of(node: Node, rank: int, name: str = "axis", default: int = 0) -> int:
    """An attribute that names an axis, counted from 0. Raises Unsupported when there is no such axis."""
    axis = node.attrs.get(name, default)
    if not isinstance(axis, int) or not -rank <= axis < rank:
        raise Unsupported(f"{name} is {axis!r}, the tensor has rank {rank}", "export with an axis of the tensor")
    return axis % rank


def selected(load: Load, extent: int) -> Index:
    """The element that an index tensor selects on an axis of `extent`.

    A negative index counts from the end. ONNX leaves an index outside the axis undefined; here it is moved to the
    nearest end, so that no access can leave the tensor.
    """
    dtype = load.dtype
    zero, last = Const(0, dtype), max(extent - 1, 0)
    counted: Expr = load
    if dtype.is_signed:
        counted = Where(call("lt", load, zero), call("add", load, Const(extent, dtype)), load)
        counted = call("max", counted, zero)
    return Index.of(Indirect(call("min", counted, Const(last, dtype)), 0, last))

"""Running sums and products along an axis: loops whose order matters."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from compiler.ir.expr import Apply, Const, Expr, Load, Position, Where
from compiler.ir.graph import Node
from compiler.ir.index import Axis, Index
from compiler.ir.kernel import Block, Kernel, Slot, Store
from compiler.ir.tensor import DType, TensorType
from compiler.ops.attributes import ints
from compiler.ops.build import at, axes_for, call, cast, number
from compiler.ops.operator import Arrays, Operator, Types, Unsupported
from compiler.ops.slots import accumulator_of, arrays_at, given, input_slots, output_slots


def _axis(node: Node, rank: int) -> int:
    """The axis, which is an input here: a scalar or a list of one."""
    values = ints(node, "axis") or ()
    if len(values) != 1 or not -rank <= values[0] < rank:
        raise Unsupported(
            f"axis is {node.attrs.get('axis')!r}, the tensor has rank {rank}", "export with one of its axes"
        )
    return values[0] % rank


def _running(name: str, function: str, start: int, accumulate: Callable[..., np.ndarray]) -> Operator:
    def infer(node: Node, types: Types) -> tuple[TensorType, ...]:
        x = given(types, 0)
        _axis(node, x.rank)
        return (x,)

    def define(node: Node, types: Types, outs: tuple[TensorType, ...]) -> Kernel:
        """y[step] = y[step - 1] combined with x[step], or x[step - 1] where exclusive.

        Halves run in an f32 temporary.
        """
        x = given(types, 0)
        over, kind = _axis(node, x.rank), accumulator_of(x.dtype)
        axes, step = axes_for(x.dims), Axis("step", x.dims[over])
        outer = (*axes[:over], *axes[over + 1 :])
        held = "y0" if kind is x.dtype else "t0"

        def index(place: Index) -> tuple[Index, ...]:
            return (*at(axes[:over]), place, *at(axes[over + 1 :]))

        backwards = bool(node.attrs.get("reverse", 0))
        here = Index.of(step) * -1 + (step.extent - 1) if backwards else Index.of(step)
        before = here + 1 if backwards else here - 1

        def unless_first(value: Expr) -> Expr:
            later = Apply("gt", (Position(Index.of(step)), Const(0, DType.I64)))
            return Where(later, value, number(start, kind))

        if node.attrs.get("exclusive", 0):
            element = unless_first(cast(Load("x0", index(before), x.dtype), kind))
        else:
            element = cast(Load("x0", index(here), x.dtype), kind)
        value = call(function, unless_first(Load(held, index(before), kind)), element)
        blocks = [Block((step,), (value,), (Store(held, index(here)),), sequential=(step,))]
        if held == "y0":
            return Kernel(name, input_slots(types), output_slots(outs), tuple(blocks), shared=outer)
        last = Axis("place", step.extent)
        rounded = cast(Load(held, index(Index.of(last)), kind), x.dtype)
        blocks.append(Block((last,), (rounded,), (Store("y0", index(Index.of(last))),)))
        temps = (Slot(held, TensorType(kind, x.shape)),)
        return Kernel(name, input_slots(types), output_slots(outs), tuple(blocks), temps, outer)

    def reference(node: Node, arrays: Arrays) -> tuple[np.ndarray, ...]:
        (x,) = arrays_at(arrays, 0)
        axis, backwards = _axis(node, x.ndim), node.attrs.get("reverse", 0)
        x = np.flip(x, axis) if backwards else x
        if node.attrs.get("exclusive", 0):
            first = np.full_like(x.take(range(min(1, x.shape[axis])), axis), start)
            x = np.concatenate([first, x.take(range(x.shape[axis] - 1), axis)], axis)
        total = accumulate(x, axis=axis, dtype=x.dtype)
        return (np.flip(total, axis) if backwards else total,)

    return Operator(name, infer, reference, define, ((1, "axis"),))


OPERATORS: tuple[Operator, ...] = (
    _running("CumSum", "add", 0, np.cumsum),
    _running("CumProd", "mul", 1, np.cumprod),
)

"""Small builders that operator definitions share.

axes_for, at         one axis for each dimension; the index that axes make
load_broadcast       an element of a tensor that broadcasts to the shape of given axes
number, cast, call   constants, conversions (none where there is nothing to convert), functions applied
chain                a function of two arguments over many
map_kernel           a kernel that maps expressions over broadcast elements
view_kernel          a kernel of one block whose loads may have any index
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from compiler.ir.expr import Apply, Cast, Const, Expr, Load
from compiler.ir.index import Axis, Index
from compiler.ir.kernel import Block, Kernel, Slot, Store
from compiler.ir.tensor import DType, TensorType
from compiler.ops.operator import Types
from compiler.ops.slots import input_slots

MAX_CHAIN = 64
"""Arguments that are chained one after another; networks of people have fewer."""


def axes_for(shape: Sequence[int], prefix: str = "i") -> tuple[Axis, ...]:
    """One axis per dimension, named by position."""
    return tuple(Axis(f"{prefix}{position}", extent) for position, extent in enumerate(shape))


def at(axes: Sequence[Axis]) -> tuple[Index, ...]:
    """The index made of axes."""
    return tuple(Index.of(axis) for axis in axes)


def load_broadcast(slot: str, type: TensorType, axes: Sequence[Axis]) -> Expr:
    """An element of a tensor that numpy's rules broadcast to the shape of `axes`."""
    own = axes[len(axes) - type.rank :]
    index = tuple(Index.of(axis) if extent != 1 else Index.of(0) for axis, extent in zip(own, type.dims, strict=True))
    return Load(slot, index, type.dtype)


def number(value: float, dtype: DType) -> Const:
    """A constant; integers and booleans keep their kind."""
    if dtype.is_float:
        return Const(float(value), dtype)
    return Const(bool(value) if dtype is DType.BOOL else int(value), dtype)


def cast(expr: Expr, dtype: DType, *, saturate: bool = False, rounding: str = "nearest") -> Expr:
    """A conversion; none where there is nothing to convert."""
    return expr if expr.dtype is dtype else Cast(expr, dtype, saturate, rounding)


def call(name: str, *args: Expr) -> Expr:
    """A function of ir.expr.FUNCTIONS applied."""
    return Apply(name, args)


def chain(name: str, args: Sequence[Expr]) -> Expr:
    """An associative function over any number of arguments, from the left; of more than MAX_CHAIN by halves.

    So the depth of the expression, which passes descend by recursion, stays small however many arguments there are.
    """
    if len(args) > MAX_CHAIN:
        middle = len(args) // 2
        return Apply(name, (chain(name, args[:middle]), chain(name, args[middle:])))
    whole = args[0]
    for arg in args[1:]:
        whole = Apply(name, (whole, arg))
    return whole


def map_kernel(family: str, types: Types, out_type: TensorType, fn: Callable[..., Expr]) -> Kernel:
    """A map: `fn` takes one expression per input that is there, broadcast to the output's shape."""
    slots = input_slots(types)

    def value(axes: tuple[Axis, ...]) -> Expr:
        return cast(fn(*(load_broadcast(slot.name, slot.type, axes) for slot in slots)), out_type.dtype)

    return view_kernel(family, types, out_type, value)


def view_kernel(family: str, types: Types, out_type: TensorType, element: Callable[[tuple[Axis, ...]], Expr]) -> Kernel:
    """One block over the output: `element` is given its axes and loads from the slots x0, x1, ... at any index."""
    axes = axes_for(out_type.dims)
    block = Block((), (element(axes),), (Store("y0", at(axes)),))
    return Kernel(family, input_slots(types), (Slot("y0", out_type),), (block,), shared=axes)

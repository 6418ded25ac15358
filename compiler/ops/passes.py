"""Several passes over one group of elements (a row of a softmax, a normalised group): blocks that share the loops outside it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from compiler.ir.expr import Expr, Load
from compiler.ir.index import Axis, Index
from compiler.ir.kernel import Block, Kernel, Slot, Store
from compiler.ir.tensor import DType, TensorType
from compiler.ops.build import at, axes_for, call, cast, number
from compiler.ops.operator import Types
from compiler.ops.slots import accumulator_of, input_slots, output_slots


@dataclass(frozen=True)
class Group:
    """Loops over a tensor, of which `inner` run within a group; `index` is the element of x0 and y0 at a point of them.

    Everything is computed in `kind`; temporaries hold one value for each group.
    """

    axes: tuple[Axis, ...]
    inner: tuple[Axis, ...]
    index: tuple[Index, ...]
    of: DType
    kind: DType

    @staticmethod
    def over(x: TensorType, axes: tuple[int, ...]) -> Group:
        """Groups that lie along some axes of a tensor."""
        loops = axes_for(x.dims)
        inner = tuple(loops[axis] for axis in sorted(axes))
        return Group(loops, inner, at(loops), x.dtype, accumulator_of(x.dtype))

    @property
    def outer(self) -> tuple[Axis, ...]:
        return tuple(axis for axis in self.axes if axis not in self.inner)

    @property
    def count(self) -> Expr:
        """How many elements a group has."""
        return number(math.prod(axis.extent for axis in self.inner), self.kind)

    @property
    def element(self) -> Expr:
        return cast(Load("x0", self.index, self.of), self.kind)

    def held(self, temp: str) -> Expr:
        """The group's value of a temporary."""
        return Load(temp, at(self.outer), self.kind)

    def reduce(self, temp: str, monoid: str, value: Expr) -> Block:
        return Block((), (value,), (Store(temp, at(self.outer)),), self.inner, monoid, self.kind)

    def hold(self, temp: str, value: Expr) -> Block:
        """One value for each group, computed from others."""
        return Block((), (value,), (Store(temp, at(self.outer)),))

    def result(self, value: Expr) -> Block:
        """The pass that stores the output."""
        return Block(self.inner, (cast(value, self.of),), (Store("y0", self.index),))

    def kernel(
        self, family: str, types: Types, outs: tuple[TensorType, ...], temps: tuple[str, ...], *blocks: Block
    ) -> Kernel:
        shape = tuple(axis.extent for axis in self.outer)
        slots = tuple(Slot(name, TensorType(self.kind, shape)) for name in temps)
        return Kernel(family, input_slots(types), output_slots(outs), blocks, slots, self.outer)


@dataclass(frozen=True)
class Moments:
    """Mean and variance of each group in two passes, which loses no digits to cancellation."""

    group: Group

    @property
    def blocks(self) -> tuple[Block, ...]:
        """The sum into t0, then the sum of squared differences into t1."""
        square = call("mul", self.centred, self.centred)
        return (self.group.reduce("t0", "sum", self.group.element), self.group.reduce("t1", "sum", square))

    @property
    def mean(self) -> Expr:
        return call("div", self.group.held("t0"), self.group.count)

    @property
    def centred(self) -> Expr:
        """An element less the mean of its group."""
        return call("sub", self.group.element, self.mean)

    @property
    def variance(self) -> Expr:
        return call("div", self.group.held("t1"), self.group.count)


def inverse_root(variance: Expr, epsilon: float) -> Expr:
    """1 / sqrt(variance + epsilon)."""
    return call("rsqrt", call("add", variance, number(epsilon, variance.dtype)))

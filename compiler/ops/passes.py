"""Several passes over one group of elements, all inside the same loops.

Reductions into temporaries, then maps over the group.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from compiler.ir.expr import Expr, Load
from compiler.ir.index import Axis
from compiler.ir.kernel import Block, Slot, Store
from compiler.ir.tensor import DType, TensorType
from compiler.ops.build import at, call, number


@dataclass(frozen=True)
class Group:
    """The elements of `axes` that share one point of the axes outside `inner`.

    Sums over them are carried out in `kind`.
    """

    axes: tuple[Axis, ...]
    inner: tuple[Axis, ...]
    kind: DType

    @property
    def shared(self) -> tuple[Axis, ...]:
        """The axes that number the groups."""
        return tuple(axis for axis in self.axes if axis not in self.inner)

    @property
    def count(self) -> int:
        """Elements in one group."""
        return math.prod(axis.extent for axis in self.inner)

    def temp(self, name: str, kind: DType | None = None) -> Slot:
        """A temporary with one element per group."""
        return Slot(name, TensorType(kind or self.kind, tuple(axis.extent for axis in self.shared)))

    def held(self, name: str, kind: DType | None = None) -> Expr:
        """The group's element of such a temporary."""
        return Load(name, at(self.shared), kind or self.kind)

    def reduce(self, name: str, monoid: str, value: Expr) -> Block:
        """A temporary = monoid over the group of `value`."""
        return Block((), (value,), (Store(name, at(self.shared)),), self.inner, monoid, self.kind)

    def once(self, name: str, value: Expr) -> Block:
        """A temporary = a value that is the same for the whole group."""
        return Block((), (value,), (Store(name, at(self.shared)),))

    def map(self, value: Expr, store: Store) -> Block:
        """A value for each element of the group."""
        return Block(self.inner, (value,), (store,))

    def moments(self, x: Expr) -> tuple[tuple[Block, Block], Expr, Expr]:
        """Mean and variance in two passes: blocks that sum into t0 and t1, the mean, and the (biased) variance."""
        count = number(self.count, self.kind)
        mean = call("div", self.held("t0"), count)
        centred = call("sub", x, mean)
        sums = (self.reduce("t0", "sum", x), self.reduce("t1", "sum", call("mul", centred, centred)))
        return sums, mean, call("div", self.held("t1"), count)

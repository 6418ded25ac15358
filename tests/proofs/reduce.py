"""A reduction as an expression."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count

from compiler.ir.expr import Expr
from compiler.ir.index import Axis, Index
from compiler.ir.tensor import DType


@dataclass(frozen=True)
class Reduce(Expr):
    """`monoid` over `bound` of `values`, of which the result number `part` is meant."""

    monoid: str
    bound: tuple[Axis, ...]
    values: tuple[Expr, ...]
    part: int
    type: DType

    @property
    def dtype(self) -> DType:
        """The accumulator's."""
        return self.type

    @property
    def children(self) -> tuple[Expr, ...]:
        """What is combined."""
        return self.values

    def rebuild(self, children: tuple[Expr, ...], indices: tuple[Index, ...]) -> Expr:
        """The same reduction of `children`."""
        return Reduce(self.monoid, self.bound, children, self.part, self.type)

    def __str__(self) -> str:
        over = ", ".join(f"{axis}:{axis.extent}" for axis in self.bound)
        return f"{self.monoid}{self.part}[{over}]({', '.join(map(str, self.values))})"


class Fresh:
    """Numbers of bound axes: no two are the same until they begin again, in another attempt."""

    def __init__(self) -> None:
        self.again()

    def again(self) -> None:
        """From 0."""
        self._numbers = count()

    def __next__(self) -> int:
        return next(self._numbers)


FRESH = Fresh()

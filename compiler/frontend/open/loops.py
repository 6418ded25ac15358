"""Loops whose number of iterations is only known while running, up to a bound: each iteration that may run, by a flag.

An iteration that is not reached leaves every carried value as it is. Predication, as in if-conversion.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from compiler.frontend.open.extent import Extent, Number, high, least, low
from compiler.frontend.open.measured import chosen, stacked, truth
from compiler.frontend.open.values import OpenValues, measured
from compiler.frontend.scope import REFUSED
from compiler.ir.tensor import DType
from compiler.ops.operator import Unsupported

LONGEST = 256
"""Iterations of a loop that are written out with a flag each."""


class TooLong(Unsupported):
    """A loop that is written out may run more often than LONGEST."""


@dataclass
class Iterations:
    """A loop being written out.

    trips    how many iterations there are at most: a number, a size, or None
    going    the scalar (bool) that says whether the next iteration runs; None: it does
    decided  whether data had a part in `going`
    flags    of each iteration that was written, whether it runs; None: it does
    """

    values: OpenValues
    trips: Number | None
    going: int | None
    decided: bool
    flags: list[int | None] = field(default_factory=list)
    by_data: list[bool] = field(default_factory=list)
    """Of each iteration, whether more than its number decides that it runs."""

    @property
    def may_run(self) -> bool:
        """Whether there are sizes and data for which one more iteration runs. Raises Unsupported past LONGEST."""
        done = len(self.flags)
        if self.trips is not None and done >= high(self.trips):
            return False
        if done >= LONGEST and (self.going is not None or isinstance(self.trips, Extent)):
            raise TooLong(
                f"data decide how often it runs, which may be more than {LONGEST} times",
                "give it a smaller trip count, or a condition that is known when compiling",
            )
        return True

    def begin(self) -> int | None:
        """The flag of the next iteration."""
        done, flag = len(self.flags), self.going
        self.by_data.append(flag is not None and self.decided)
        if isinstance(self.trips, Extent) and done >= low(self.trips):
            number = self.values.scalar(done)
            below = self.values.node("Less", (number, self.values.scalar(self.trips)))
            flag = below if flag is None else self.values.node("And", (flag, below))
        self.flags.append(flag)
        return flag

    def end(self, condition: int | None) -> None:
        """What the iteration says of the next one; None: that it runs."""
        flag = self.flags[-1]
        if condition is None:
            self.going = flag
            return
        wanted, self.decided = truth(self.values, condition), True
        self.going = wanted if flag is None else self.values.node("And", (flag, wanted))

    def kept(self, before: Sequence[int | None], after: Sequence[int]) -> list[int]:
        """Carried values after an iteration: as they were where it does not run."""
        flag = self.flags[-1]
        if flag is None:
            return [*after]
        found = []
        for old, new in zip(before, after, strict=True):
            if old is None:
                raise Unsupported("a value that it carries is absent", "export the model again")
            if min(old, new) < REFUSED:
                reason = "it carries a sequence, and data decide how often it runs"
                raise Unsupported(reason, "give a trip count that is known when compiling")
            found.append(chosen(self.values, flag, new, old))
        return found

    @cached_property
    def count(self) -> Number:
        """How many iterations ran, once all are written."""
        if not any(self.by_data):
            return len(self.flags) if self.trips is None else least(self.trips, len(self.flags))
        certain = sum(flag is None for flag in self.flags)
        total = self.values.scalar(certain)
        for flag in self.flags:
            if flag is not None:
                total = self.values.node("Add", (total, self.values.cast(flag, DType.I64)))
        return measured(self.values, total, certain, len(self.flags), "iterations")

    def stack(self, column: list[int]) -> int:
        """What iterations gave, along a new first axis."""
        return stacked(self.values, column, self.count)

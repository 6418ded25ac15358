"""TuningBudget: the wall seconds that a job grants for measuring, shared out among all that measures.

Steps measure one after another, and each has a share. What a step leaves goes to the steps after it, and what it takes
too much is taken from them, so that all together take what was granted. What a step cannot use is the tile search's
from the beginning.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from types import MappingProxyType

from compiler.errors import InternalError
from compiler.trace import StopRequest, never_stops

TILES = "tiles"
SHARES: Mapping[str, float] = MappingProxyType(
    {
        "device": 0.02,  # facts of its cores, hand-overs between them
        "choices": 0.08,  # kernels of programs between which rewriting has to choose
        TILES: 0.50,  # tiles of each kernel on one lane
        "lanes": 0.08,  # kernels on several lanes
        "stages": 0.04,  # parts of plans by themselves
        "plans": 0.28,  # whole plans
    }
)
"""Parts of the tuning budget, in the order in which they are spent; they sum to 1."""


@dataclass
class TuningBudget:
    """What may be measured: wall `seconds`, and how many tiles on one lane (None: as many as fit).

    stop_requested   whoever waits wants the best found so far: nothing more is measured
    most    by share: seconds of which it cannot use more
    spent   by share: seconds that measuring took
    tried   tiles measured on one lane
    """

    seconds: float
    trials: int | None = None
    stop_requested: StopRequest = never_stops
    clock: Callable[[], float] = time.monotonic
    most: Mapping[str, float] = field(default_factory=dict)
    shares: Mapping[str, float] = field(default_factory=lambda: SHARES)
    spent: dict[str, float] = field(default_factory=dict)
    tried: int = 0
    _running: tuple[str, float] | None = field(default=None, repr=False)

    def share(self, name: str) -> Share:
        """Raises KeyError for a name that the table does not have."""
        self.shares[name]
        return Share(self, name)

    def granted(self, name: str) -> float:
        """Seconds of a share, whatever was spent: equal options give equal figures, which records may hold."""
        if name != TILES:
            return min(self.shares[name] * self.seconds, self.most.get(name, self.seconds))
        return self.seconds - sum(self.granted(other) for other in self.shares if other != TILES)

    def leave(self, *names: str) -> None:
        """No step will use these shares: their seconds are the tile search's."""
        self.most = {**self.most, **dict.fromkeys(names, 0.0)}

    def left(self, name: str) -> float:
        """Seconds until the share is spent, with what the shares before it left, or less what they took too much."""
        names = [*self.shares]
        upto = sum(map(self.granted, names[: names.index(name) + 1]))
        return upto - self.total

    @property
    def total(self) -> float:
        """Seconds that were spent, those of a measurement under way included."""
        running = self.clock() - self._running[1] if self._running else 0.0
        return sum(self.spent.values()) + running

    @property
    def trials_left(self) -> int | None:
        """None: as many as fit."""
        return None if self.trials is None else max(self.trials - self.tried, 0)

    @contextmanager
    def spending(self, name: str) -> Iterator[None]:
        """The wall time of a block is measuring. Raises InternalError inside of another such block."""
        if self._running:
            raise InternalError(f"{name} is measured while {self._running[0]} is")
        self._running = name, self.clock()
        try:
            yield
        finally:
            _, began = self._running
            self._running = None
            self.spent[name] = self.spent.get(name, 0.0) + self.clock() - began

    def __str__(self) -> str:
        lines = [f"{self.total:8.3f} of {self.seconds:g} s spent on measuring"]
        lines += [f"{self.spent.get(name, 0.0):8.3f} of {self.granted(name):7.3f} s  {name}" for name in self.shares]
        return "\n".join(lines)


@dataclass(frozen=True)
class Share:
    """The part of a budget that one step asks."""

    budget: TuningBudget
    name: str

    @property
    def seconds(self) -> float:
        """As the table grants them."""
        return self.budget.granted(self.name)

    @property
    def trials(self) -> int | None:
        """Tiles on one lane, by the part of the table. None: as many as fit."""
        trials = self.budget.trials
        return None if trials is None else int(self.budget.shares[self.name] * trials)

    @property
    def spent(self) -> float:
        """Seconds that this step took so far."""
        return self.budget.spent.get(self.name, 0.0)

    def left(self) -> float:
        """Seconds, with what the steps before left (`TuningBudget.left`)."""
        return self.budget.left(self.name)

    def is_over(self) -> bool:
        """Whether nothing more may be measured: the time is up, or a stop request has come."""
        return self.left() <= 0 or self.budget.stop_requested()

    def spending(self) -> AbstractContextManager[None]:
        """A block that measures."""
        return self.budget.spending(self.name)

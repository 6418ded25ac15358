"""Trials of one search divided among this process and others that have the same device.

A batch of trials is offered, kernel by kernel. Whoever is idle takes some of those that are left, and so does this
process, so that each is measured by one, and all are done at about the same time. What others measured comes back as
records. The search itself stays in this process: it picks what is worth measuring next as if it were alone.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

from compiler.ir.machine import Machine, Record, Setting, Trial, plausible
from compiler.ir.target import Target
from compiler.knowledge.kinds import AGAIN
from compiler.knowledge.known import identity, known_alone
from compiler.trace import StopRequest

WORTH_S = 2.0
"""Seconds for measuring below which it is over before others have begun."""
WORTH_TRIALS = 6
"""Fewer are measured here: the compiler's start, which everybody pays, costs as much as three of them."""
FIRST = 8
"""Trials that this process builds first, so that somebody who soon asks for the best so far gets one measured..."""
MOST = 32
"""... and later, before they are timed."""
ASK_EVERY_S = 0.1
"""How often is asked for what others measure, with nothing left to measure here."""

Name = tuple[str, str]
"""A kernel's key, and the identity of its tile."""


@dataclass(frozen=True)
class Terms:
    """What a helper has to know besides the tasks: for which lanes and in which precision their tiles are legal.

    setting  `Setting.to_json`
    """

    lanes: int
    precision: str
    setting: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        """Its fields by name, ready for `json.dumps`."""
        return {**asdict(self), "setting": dict(self.setting)}

    @staticmethod
    def from_json(plain: Mapping[str, Any]) -> Terms:
        """Reads `to_json` back. Raises KeyError when a field is missing."""
        return Terms(**{name: plain[name] for name in Terms.__dataclass_fields__})


@dataclass(frozen=True)
class Task:
    """Tiles of one kernel to be measured, `Tile.to_json`, with the text of the kernel.

    seconds  until when whoever takes it is to be done, from then
    again    whether they were measured before, and a leader is compared with its rivals
    """

    key: str
    text: str
    tiles: Sequence[Mapping[str, Any]]
    seconds: float
    again: bool = False

    def to_json(self) -> dict[str, Any]:
        """Its fields by name, ready for `json.dumps`."""
        return {**asdict(self), "tiles": [dict(tile) for tile in self.tiles]}

    @staticmethod
    def from_json(plain: Mapping[str, Any]) -> Task:
        """Reads `to_json` back. Raises KeyError when a field is missing."""
        return Task(**{name: plain[name] for name in Task.__dataclass_fields__})


@dataclass(frozen=True)
class Given:
    """An answer of the helpers, about what was offered last.

    keys      kernels whose trials this process has to measure now; no other will
    records   `Record.to_json` of what others measured since the last answer
    pending   how many kernels others still work on
    seconds   that others took until now, all together
    by        how many tiles each of them has measured, by name
    """

    keys: tuple[str, ...] = ()
    records: tuple[Mapping[str, Any], ...] = ()
    pending: int = 0
    seconds: float = 0.0
    by: Mapping[str, int] = field(default_factory=dict)


class Helpers(Protocol):
    """Other processes that have the same device, as far as they are idle. Who is gone gives nothing."""

    def offer(self, terms: Terms, tasks: Sequence[Task]) -> int:
        """Tasks that may be taken from now on, of a kernel each; how many others there are. 0: nothing was offered."""
        ...

    def take(self, seconds: float, measured: int) -> Given:
        """The next kernels for this process; those it was given before are done, and took so much."""
        ...

    def over(self) -> None:
        """What was offered and is not done is nobody's to measure any more."""
        ...


@dataclass
class Elsewhere:
    """What others do for a search.

    others   how many there were when trials were offered last
    seconds  that they took, all together, while this process measured too
    heard    what they measured
    """

    others: int = 0
    seconds: float = 0.0
    heard: set[tuple[Name, float]] = field(default_factory=set)

    def made(self, record: Record) -> bool:
        """Whether another process measured this, which keeps it too."""
        return (_name_of(record), record.seconds) in self.heard


def no_progress(message: str) -> None:
    """Where nobody wants to know what others measured."""


@dataclass
class DividedMachine:
    """`ir.machine.Machine` that measures a part of the trials itself and has helpers measure the others."""

    machine: Machine
    helpers: Helpers
    terms: Terms
    target: Target
    stop_requested: StopRequest
    tell: Callable[[str], None] = no_progress
    elsewhere: Elsewhere = field(default_factory=Elsewhere)
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    _begun: Sequence[Trial] = ()
    """Trials that were offered before they are to be measured."""
    _done: set[Name] = field(default_factory=set)
    """All that was measured, here or elsewhere."""
    _count: int = 0
    """Records of this process."""
    _by: Counter[str] = field(default_factory=Counter)
    """Tiles that others measured, by name."""

    @property
    def hardware(self) -> str:
        """Fingerprint of the device, which that of helpers is like."""
        return self.machine.hardware

    @property
    def lanes(self) -> int:
        """On how many a kernel may be measured."""
        return self.machine.lanes

    def measure(self, trials: Sequence[Trial], deadline_s: float) -> Iterator[Record]:
        """As the protocol says. Others' seconds shorten what is left until the deadline as those of this process do.

        What others were given and did not measure is measured here at last, if there is time.
        """
        end = self.clock() + deadline_s
        if [*self._begun] != [*trials]:
            self.end()
            self.begin(trials, deadline_s)
        if not self._begun:
            yield from self._here(trials, lambda: end - self.clock())
            return
        self._begun = ()
        before = self.elsewhere.seconds

        def left() -> float:
            return end - self.clock() - (self.elsewhere.seconds - before)

        yield from self._divided({_name(trial): trial for trial in trials}, left)

    def begin(self, trials: Sequence[Trial], deadline_s: float) -> None:
        """Offers what is going to be measured next: helpers begin, this process may do something else meanwhile."""
        if not self._is_worth(trials, deadline_s):
            return
        self.elsewhere.others = self.helpers.offer(self.terms, self._tasks(trials, deadline_s))
        if self.elsewhere.others:
            self._begun = trials

    def end(self) -> None:
        """What was offered and not measured since is not going to be."""
        if self._begun:
            self._begun = ()
            self.helpers.over()

    def _is_worth(self, trials: Sequence[Trial], deadline_s: float) -> bool:
        """Whether others are asked: for enough trials, or for some that they have built."""
        if deadline_s < WORTH_S:
            return False
        built = {name for name, _ in self.elsewhere.heard}
        return len(trials) >= WORTH_TRIALS or any(_name(trial) in built for trial in trials)

    def _tasks(self, trials: Sequence[Trial], seconds: float) -> list[Task]:
        """A task for each kernel, in the order of the trials."""
        of: dict[str, list[Trial]] = {}
        for trial in trials:
            of.setdefault(trial.key, []).append(trial)
        return [
            Task(
                key,
                str(each[0].workload),
                [trial.tile.to_json() for trial in each],
                seconds,
                all(_name(trial) in self._done for trial in each),
            )
            for key, each in of.items()
        ]

    def _divided(self, waiting: dict[Name, Trial], left: Callable[[], float]) -> Iterator[Record]:
        """Measures what was offered, with others, and takes out of `waiting` what was measured."""
        before, known = self.elsewhere.seconds, Counter(self._by)
        took, measured, ended = 0.0, 0, False
        try:
            while not ended:
                given = self.helpers.take(took, measured)
                self.elsewhere.seconds = before + given.seconds
                yield from self._heard(given.records, waiting)
                self._tell(known + Counter(given.by))
                if left() <= 0 or self.stop_requested():
                    return
                mine = [waiting.pop(name) for name in [*waiting] if name[0] in given.keys]
                began = self.clock()
                counted = self._count
                yield from self._here(mine, left)
                took, measured = self.clock() - began, self._count - counted
                ended = not given.keys and not given.pending
                if given.pending and not given.keys:
                    self.sleep(ASK_EVERY_S)
        finally:
            if not ended:
                self.helpers.over()
        yield from self._here([*waiting.values()], left)

    def _here(self, trials: Sequence[Trial], left: Callable[[], float]) -> Iterator[Record]:
        """Measures on the own device, a part at a time."""
        rest = [*trials]
        while rest and left() > 0 and not self.stop_requested():
            size = MOST if self._done else FIRST
            for record in self.machine.measure(rest[:size], left()):
                self._done.add(_name_of(record))
                self._count += 1
                yield record
            del rest[:size]

    def _heard(self, plain: Sequence[Mapping[str, Any]], waiting: dict[Name, Trial]) -> Iterator[Record]:
        """Records of trials that are waited for, each once."""
        records = plausible(plain)
        count = known_alone(records, self.target, Setting(**self.terms.setting))
        for record in records:
            name = _name_of(record)
            if name in waiting and count.get(name) is record:
                del waiting[name]
                self._done.add(name)
                self.elsewhere.heard.add((name, record.seconds))
                yield record

    def _tell(self, by: Counter[str]) -> None:
        if by != self._by:
            self._by = by
            said = ", ".join(f"{count} by {name}" for name, count in sorted(by.items()))
            self.tell(f"{by.total()} tiles measured by others: {said}")


def with_mark(record: Record) -> dict[str, Any]:
    """The record of a trial that was measured again, as JSON."""
    return {**record.to_json(), "variant": {**record.variant, AGAIN: True}}


def _name(trial: Trial) -> Name:
    return trial.key, identity(trial.tile.to_json())


def _name_of(record: Record) -> Name:
    return record.workload, identity(record.variant)

"""Times, verifies and shows a step. One hook feeds progress events, timings and dumps."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from compiler.contract import PHASES, Event

Observer = Callable[[Event], None]

PHASE_SHARE: Mapping[str, float] = {
    "load": 0.10,
    "rewrite": 0.03,
    "choose": 0.05,
    "fuse": 0.03,
    "tile": 0.35,
    "schedule": 0.08,
    "emit": 0.18,
    "agree": 0.13,
    "pack": 0.05,
}
"""How much of the progress bar a phase fills; sums to 1."""

StopRequest = Callable[[], bool]
"""Whether a stop request has come: measuring ends, and the best found so far is built. Once true it stays true."""


def ignore(event: Event) -> None:
    """The observer that does nothing."""


def never_stops() -> bool:
    """That nobody asks to stop."""
    return False


@dataclass
class Trace:
    """The record of one compilation's steps: `seconds` by phase, notices, and a text file per step under `dump`."""

    observe: Observer = ignore
    dump: Path | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    notices: list[str] = field(default_factory=list)
    phase: str = PHASES[0]
    turn: int = 0
    turns: int = 1
    """How often all steps are taken, once for each binding of the model's dimensions, and which time this is."""
    steps: int = 0
    """How many steps have begun."""
    on_step: list[Callable[[int], None]] = field(default_factory=list)
    """Called with that number when a step begins."""
    on_record: list[Callable[[Mapping[str, Any]], None]] = field(default_factory=list)
    """Called with each measurement."""
    _shown: int = 0
    _part: float = 0.0
    _reached: float = 0.0

    @contextmanager
    def step(self, phase: str) -> Iterator[None]:
        """A phase begins; its wall time is added when it ends, also when it fails."""
        self.phase = phase
        self._part = 0.0
        self.steps += 1
        for begun in self.on_step:
            begun(self.steps)
        self.observe(Event("phase", phase, self._fraction()))
        begin = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[phase] = self.seconds.get(phase, 0.0) + time.perf_counter() - begin

    @contextmanager
    def apart(self) -> Iterator[None]:
        """Within a step, time that is not the step's."""
        begin = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[self.phase] = self.seconds.get(self.phase, 0.0) - (time.perf_counter() - begin)

    def show(self, title: str, text: object) -> None:
        """Writes `NN_title.txt` when dumping."""
        if self.dump is None:
            return
        self.dump.mkdir(parents=True, exist_ok=True)
        (self.dump / f"{self._shown}_{title}.txt").write_text(f"{text}\n")
        self._shown += 1

    def keep(self, title: str, text: str) -> None:
        """Evidence of a fault of ours: a file when dumping, else in the log, which standard error goes to."""
        if self.dump is None:
            print(f"{title}:\n{text}", file=sys.stderr)
        else:
            self.show(title, text)

    def progress(self, part: float, message: str = "") -> None:
        """`part` of the current phase (0 to 1) is done."""
        self._part = min(max(part, self._part), 1.0)
        self.observe(Event("progress", self.phase, self._fraction(), message))

    def notice(self, message: str) -> None:
        """A remark for the user; it is kept for the report, once."""
        if message in self.notices:
            return
        self.notices.append(message)
        self.remark(message)

    def remark(self, message: str) -> None:
        """A notice that the report does not have."""
        self.observe(Event("notice", self.phase, self._fraction(), message))

    def record(self, record: Mapping[str, Any]) -> None:
        """A measurement to be kept."""
        for observe in self.on_record:
            observe(record)
        self.observe(Event("record", self.phase, self._fraction(), data=record))

    def heard(self, record: Mapping[str, Any]) -> None:
        """A measurement that another worker made and keeps: a replay needs it, whoever observes has it."""
        for observe in self.on_record:
            observe(record)

    def tuning(self, progress: Mapping[str, Any]) -> None:
        """How far a search of tiles is, and what it measured since the last report."""
        self.observe(Event("tuning", self.phase, self._fraction(), data=progress))

    def workload(self, key: str, text: str) -> None:
        """What records with this key refer to, as `compiler.ir.parsing.parse.parse_workload` reads it back."""
        self.observe(Event("workload", self.phase, self._fraction(), data={"workload": key, "text": text}))

    def _fraction(self) -> float:
        """How far everything is; steps that are taken again do not take it back."""
        before = sum(PHASE_SHARE[phase] for phase in PHASES[: PHASES.index(self.phase)])
        whole = (self.turn + min(1.0, before + PHASE_SHARE[self.phase] * self._part)) / self.turns
        self._reached = max(self._reached, round(whole, 4))
        return self._reached

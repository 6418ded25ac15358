"""Engines on the same inputs, each in a process of its own, taking turns, with rests between."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from bench.engines.child import Turn
from bench.engines.driver import Arrays
from bench.engines.process import Engine
from bench.race.cores import Probe, held_to
from bench.race.spread import Ratio, Spread
from compiler.ir.plans.lanes import Handover
from compiler.measure.rounds import clean_rounds
from tilewright.arrays import read_npz, write_npz

ROUNDS = 15
TURN_S = 0.2
REST_S = 0.05
"""Before a turn: threads of the engine that had the turn before stop spinning for work."""
MOST_WAITING = 0.02
"""Of a turn's time, that threads of the engine may wait for a core. Left alone, no engine reaches a fourth of it."""
MOST_ROUNDS = 2
"""So many times the rounds that are wanted are taken, until enough are calm."""
SITTINGS = 3
"""Times that all engines are started anew. Where memory comes to lie changes the speed of an engine for as long as it
runs."""
MOVED = "moved"
"""The state of cores that were near to each other at one time and far apart at another."""


@dataclass(frozen=True)
class Contender:
    """An engine, and the file that it runs.

    `label` distinguishes contenders of one engine; without one it goes by the engine's name.
    """

    engine: str
    file: Path
    label: str = ""

    @property
    def name(self) -> str:
        """By which a race names it."""
        return self.label or self.engine


@dataclass(frozen=True)
class Race:
    """What came of the rounds in which no core was taken away.

    seconds    of every single run, by the contender's name and round
    outputs    what each contender gave, by name
    discarded  rounds that are not in `seconds`
    calm       false when others used the cores in every round: then `seconds` are of the rounds in which they were fast
               at least
    peak       fp32 FLOP/s of all the race's cores together, at nothing but multiply-adds
    handovers  what a hand-off between two cores cost before and after each round; none for one thread
    """

    threads: int
    seconds: Mapping[str, tuple[tuple[float, ...], ...]]
    outputs: Mapping[str, Arrays]
    discarded: int
    calm: bool
    peak: float
    handovers: tuple[tuple[Handover, Handover], ...] = ()

    @property
    def handover_ns(self) -> float | None:
        """Median over the rounds; None for one thread."""
        return statistics.median(one.ns for both in self.handovers for one in both) if self.handovers else None

    @property
    def state(self) -> str | None:
        """`near` or `far`, `moved` when the cores were both; None for one thread."""
        return _state([one for both in self.handovers for one in both]) if self.handovers else None

    def during(self, state: str) -> Race | None:
        """The rounds alone that began and ended with the cores in a state; None where there are none."""
        at = [number for number, both in enumerate(self.handovers) if _state(both) == state]
        if not at:
            return None
        seconds = {name: tuple(turns[number] for number in at) for name, turns in self.seconds.items()}
        return replace(self, seconds=seconds, handovers=tuple(self.handovers[number] for number in at))

    def ms(self, engine: str) -> Spread:
        """Milliseconds of one run, over all runs."""
        return Spread.of([sample for turn in self.seconds[engine] for sample in turn], 1e3)

    def medians(self, engine: str) -> list[float]:
        """Median seconds of each round."""
        return [statistics.median(turn) for turn in self.seconds[engine]]

    def ratio(self, ours: str, theirs: str) -> Ratio:
        """Of the medians of each round: what slows the machine for a while slows both."""
        return Ratio.of(self.medians(ours), self.medians(theirs))

    def best(self, names: Sequence[str]) -> str | None:
        """Of some contenders the one with the least time in the middle of the rounds; None of none.

        Rounds count alike, as they do for `ratio`: who is fast in a few has more runs in these than in all others.
        """
        return min(names, key=lambda name: statistics.median(self.medians(name)), default=None)


def _state(handovers: Sequence[Handover]) -> str:
    """What the cores were each time, or `moved`."""
    states = {one.state for one in handovers}
    return states.pop() if len(states) == 1 else MOVED


@dataclass
class _Notes:
    """What is written down round by round."""

    turns: dict[str, list[Turn]]
    rates: list[float] = field(default_factory=list)
    handovers: list[tuple[Handover, Handover]] = field(default_factory=list)

    def calm(self) -> list[int]:
        """Rounds in which the cores were fast and no engine waited for one."""
        waiting = [
            max(turn.waited / sum(turn.seconds) for turn in turns) for turns in zip(*self.turns.values(), strict=True)
        ]
        return [at for at in sorted(clean_rounds(self.rates)) if waiting[at] <= MOST_WAITING]

    def judged(self, threads: int, outputs: Mapping[str, Arrays]) -> Race:
        calm = self.calm()
        kept = calm or sorted(clean_rounds(self.rates))
        return Race(
            threads,
            {name: tuple(turns[at].seconds for at in kept) for name, turns in self.turns.items()},
            outputs,
            len(self.rates) - len(kept),
            bool(calm),
            threads * float(np.median([self.rates[at] for at in kept])),
            tuple(self.handovers[at] for at in kept) if self.handovers else (),
        )


def race(
    contenders: Sequence[Contender],
    inputs: Arrays,
    threads: int,
    probe: Probe,
    *,
    precision: str = "fp32",
    rounds: int = ROUNDS,
    turn_s: float = TURN_S,
    watch: Callable[[int], None] = lambda number: None,
) -> Race:
    """All contenders on the same inputs and as many threads, turn by turn; who begins changes each round.

    Before and after each turn the cores are probed. A round in which they were slow (`clean_rounds`), or in which an
    engine's threads waited for a core, is dropped, and another is held for it. `watch` is called with how many rounds
    are over. Raises `EngineFailed`, and `UsageError` where there are fewer cores than threads.
    """
    notes = _Notes({contender.name: [] for contender in contenders})
    outputs: dict[str, Arrays] = {}
    with tempfile.TemporaryDirectory(prefix="tilewright-race-") as name, held_to(threads):
        folder = Path(name)
        write_npz(folder / "inputs.npz", inputs)
        for sitting in _sittings(rounds):
            with ExitStack() as stack:
                engines = [stack.enter_context(_engine(one, folder, threads, precision)) for one in contenders]
                outputs = outputs or {engine.name: read_npz(folder / f"{engine.name}.npz") for engine in engines}
                for _ in range(MOST_ROUNDS * len(sitting)):
                    _round(engines, threads, probe, turn_s, notes)
                    watch(len(notes.rates))
                    if len(notes.calm()) >= sitting.stop:
                        break
    return notes.judged(threads, outputs)


def _round(engines: Sequence[Engine], threads: int, probe: Probe, turn_s: float, notes: _Notes) -> None:
    """One turn of every engine; who begins changes from round to round."""
    before = probe.handover() if threads > 1 else None
    begins = len(notes.rates) % len(engines)
    rates = []
    for engine in (*engines[begins:], *engines[:begins]):
        time.sleep(REST_S)
        rates.append(probe.rate(threads))
        notes.turns[engine.name].append(engine.turn(turn_s))
        rates.append(probe.rate(threads))
    notes.rates.append(min(rates))
    if before:
        notes.handovers.append((before, probe.handover()))


def _sittings(rounds: int) -> Iterator[range]:
    """The numbers of the rounds, divided as evenly as can be."""
    sittings = min(SITTINGS, rounds)
    for sitting in range(sittings):
        yield range(rounds * sitting // sittings, rounds * (sitting + 1) // sittings)


def _engine(contender: Contender, folder: Path, threads: int, precision: str) -> Engine:
    name = contender.name
    files = (folder / "inputs.npz", folder / f"{name}.npz", folder / f"{name}.log")
    return Engine(contender.engine, contender.file, *files, threads, precision, label=name)

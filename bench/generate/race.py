"""Runtimes that go on with the same text in turns, each in a process of its own."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from bench.engines.driver import EngineFailed
from bench.generate.process import Contender, Running
from bench.race.cores import held_to
from bench.race.race import REST_S
from bench.race.spread import Ratio, Spread


@dataclass(frozen=True)
class Timed:
    """What one runtime took, in seconds: of one thread its processor's time, of several those of the clock.

    first   until the first token, in each sitting
    tokens  of each token, by round
    waited  the part of the rounds for which its threads waited for a core
    memory  resident bytes at the end
    """

    first: tuple[float, ...]
    tokens: tuple[tuple[float, ...], ...]
    waited: float
    memory: int

    @property
    def ms(self) -> Spread:
        """Milliseconds of a token."""
        return Spread.of([one for tokens in self.tokens for one in tokens], 1e3)

    @property
    def medians(self) -> list[float]:
        """Seconds of a token in each round."""
        return [statistics.median(tokens) for tokens in self.tokens]

    def over(self, other: Timed) -> Ratio:
        """Its time over another's in the same rounds."""
        return Ratio.of(self.medians, other.medians)


@dataclass
class _Notes:
    """What is written down of one contender."""

    first: list[float] = field(default_factory=list)
    tokens: list[tuple[float, ...]] = field(default_factory=list)
    waited: float = 0.0
    memory: int = 0
    problem: str = ""


def race(
    contenders: Sequence[Contender],
    prompt: Sequence[int],
    count: int,
    threads: int,
    rounds: int,
    sittings: int,
) -> Mapping[str, Timed | str]:
    """Of each contender by name what it took, or why it took no part.

    In each of `sittings` all are started anew and read the prompt. Then come the rounds: each goes on from the
    prompt's end by `count` tokens, and who begins changes. All are held to as many cores as `threads`.
    """
    notes = {one.name: _Notes() for one in contenders}
    which = "cpu" if threads == 1 else "wall"
    with tempfile.TemporaryDirectory(prefix="tilewright-generate-") as name, held_to(threads):
        for sitting in range(sittings):
            with ExitStack() as stack:
                running = [
                    one
                    for contender in contenders
                    if (one := _begun(contender, Path(name), stack, notes[contender.name], prompt, which))
                ]
                for number in range(rounds * sitting // sittings, rounds * (sitting + 1) // sittings):
                    begins = number % max(len(running), 1)
                    for one in (*running[begins:], *running[:begins]):
                        _turn(one, notes[one.name], count, which)
    return {name: _timed(own) for name, own in notes.items()}


def _begun(
    contender: Contender, folder: Path, stack: ExitStack, own: _Notes, prompt: Sequence[int], which: str
) -> Running | None:
    """Started, with the prompt read; None of one that cannot."""
    if own.problem:
        return None
    try:
        running = stack.enter_context(Running(contender, folder / f"{contender.name}.log"))
        own.first.append(running.ask(read=list(prompt))[which][0])
    except EngineFailed as error:
        own.problem = error.message
        return None
    return running


def _turn(running: Running, own: _Notes, count: int, which: str) -> None:
    if own.problem:
        return
    time.sleep(REST_S)
    try:
        found = running.ask(go=count)
    except EngineFailed as error:
        own.problem = error.message
        return
    own.tokens.append(tuple(found[which]))
    own.waited += found["waited"]
    own.memory = max(own.memory, found["memory"])


def _timed(own: _Notes) -> Timed | str:
    if own.problem:
        return own.problem
    whole = sum(map(sum, own.tokens))
    return Timed(tuple(own.first), tuple(own.tokens), own.waited / max(whole, 1e-9), own.memory)

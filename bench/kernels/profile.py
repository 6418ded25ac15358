"""What each layer of each engine costs, engines taking turns."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bench.engines.driver import Arrays
from bench.engines.process import Engine
from bench.kernels.groups import Plan
from bench.race.cores import Probe, held_to
from bench.race.race import Contender
from compiler.measure.rounds import clean_rounds
from tilewright.arrays import write_npz

ROUNDS = 5
TURN_S = 0.7


@dataclass(frozen=True)
class Profile:
    """What came of the rounds in which the core was fast.

    plans  by engine, of each round, the layers in the order in which they ran
    peak   fp32 FLOP/s of the core at nothing but multiply-adds
    """

    plans: Mapping[str, tuple[Plan, ...]]
    peak: float


def profile(
    contenders: Sequence[Contender],
    inputs: Arrays,
    probe: Probe,
    *,
    precision: str = "fp32",
    rounds: int = ROUNDS,
    turn_s: float = TURN_S,
    watch: Callable[[int], None] = lambda number: None,
) -> Profile:
    """On one thread.

    Seconds of a layer are the median over the `turn_s` seconds of its round. Raises `EngineFailed`.
    """
    taken: dict[str, list[Plan]] = {contender.engine: [] for contender in contenders}
    rates: list[float] = []
    with tempfile.TemporaryDirectory(prefix="tilewright-profile-") as name, held_to(1), ExitStack() as stack:
        folder = Path(name)
        given = folder / "inputs.npz"
        write_npz(given, inputs)
        engines = [
            stack.enter_context(Engine(one.engine, one.file, given, None, folder / f"{one.engine}.log", 1, precision))
            for one in contenders
        ]
        for number in range(rounds):
            seen = []
            for engine in engines:
                seen.append(probe.rate(1))
                taken[engine.name].append(engine.layers(turn_s))
                seen.append(probe.rate(1))
            rates.append(min(seen))
            watch(number + 1)
    clean = sorted(clean_rounds(rates))
    plans = {engine: tuple(turns[at] for at in clean) for engine, turns in taken.items()}
    return Profile(plans, float(np.median([rates[at] for at in clean])))

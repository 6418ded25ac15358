"""One model compiled, its expected outputs computed, and raced against peers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import onnx

from bench.cache import Cache, Compiled, Expected
from bench.engines.catalogue import OURS, driver
from bench.models.row import Row
from bench.quantized import INT8, products_in_bytes, quantised
from bench.race.cores import Probe
from bench.race.race import Contender, race
from bench.subject import Subject
from bench.zoo.flops import Uncountable, gflop
from compiler.contract import CompileOptions, Event

Tell = Callable[[str], None]
"""Called with what goes on, in few words."""


@dataclass(frozen=True)
class Asked:
    """How to measure: peers, precision, seconds of tuning, where all that is kept, and the scheduler of ours."""

    peers: tuple[str, ...]
    precision: str
    budget_s: float
    cache: Cache
    scheduler: str = "auto"


@dataclass(frozen=True)
class Ready:
    """What a race of one model needs."""

    compiled: Compiled
    expected: Expected
    contenders: tuple[Contender, ...]


def prepare(one: Subject, threads: int, asked: Asked, tell: Tell) -> Ready:
    """Compiles for ours and for the peers that need it, or finds what was compiled; in int8 a QDQ model.

    Raises what the compiler raises, and `EngineFailed`.
    """
    settings = {
        "threads": threads,
        "precision": "fp32" if asked.precision == INT8 else asked.precision,
        "tuning_budget_s": asked.budget_s,
        "scheduler": asked.scheduler,
    }
    options = CompileOptions.from_json({**one.options, **settings})

    def compiling(event: Event) -> None:
        tell(f"compiling, {event.phase} {event.fraction:.0%}")

    compiled = asked.cache.compiled(one, options, compiling)
    tell("computing in float64")
    expected = asked.cache.expected(one, options)
    contenders = [Contender(OURS, compiled.artifact)]
    for peer in asked.peers:
        tell(f"preparing {peer}")
        contenders.append(Contender(peer, driver(peer).prepare(one.file, asked.cache.place(peer), threads)))
    return Ready(compiled, expected, tuple(contenders))


def measure(one: Subject, threads: int, rounds: int, asked: Asked, cores: Probe, tell: Tell) -> Row:
    """One row. Raises what quantising, `prepare` and `race` raise."""
    if asked.precision == INT8:
        tell("quantising")
        one = quantised(one, asked.cache)
    ready = prepare(one, threads, asked, tell)
    result = race(
        ready.contenders,
        ready.expected.inputs,
        threads,
        cores,
        precision=asked.precision,
        rounds=rounds,
        watch=lambda over: tell(f"round {over} of {rounds}"),
    )
    in_bytes = {}
    if asked.precision == INT8:
        tell("asking each engine what it runs")
        in_bytes = products_in_bytes(ready.contenders, ready.expected.inputs, threads)
    return Row(
        one.name, asked.precision, counted(one.file), ready.compiled, result, asked.peers, ready.expected, in_bytes
    )


def counted(file: Path) -> float | None:
    """GFLOP of a model; None where a node cannot be counted."""
    try:
        return gflop(onnx.load(file))
    except Uncountable:
        return None

"""What a family of rules or a step of fusion is worth.

A model compiled without it is raced against the model compiled with everything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bench.cache import Cache, Compiled
from bench.engines.catalogue import OURS
from bench.race.cores import Probe
from bench.race.outputs import largest_difference
from bench.race.race import Contender, Race, race
from bench.race.spread import geometric_mean
from bench.stages import Stages, stages, text_of
from bench.subject import Subject
from compiler.contract import CompileOptions
from compiler.disabled import families
from compiler.errors import TilewrightError
from compiler.fuse import STEPS
from tilewright.errors import ClientError

WITHOUT = "without"
"""The contender's name; the one with everything goes by the engine's."""

Tell = Callable[[str], None]
"""Called with what goes on, in few words."""


def all_names() -> tuple[str, ...]:
    """Families of rules in the order in which they are tried, then steps of fusion.

    A name that both have stands for both.
    """
    return tuple(dict.fromkeys((*families(), *STEPS)))


@dataclass(frozen=True)
class Asked:
    """How many threads and rounds, tuned for how many seconds, and where all that is kept."""

    threads: int
    rounds: int
    budget_s: float
    cache: Cache


@dataclass(frozen=True)
class Variant:
    """A model without what `name` stands for.

    `same`: its kernels are those of the model with everything, so that it is the same program.
    """

    name: str
    options: CompileOptions
    stages: Stages
    same: bool


def variants(
    one: Subject, options: CompileOptions, names: Sequence[str], records: Sequence[Mapping[str, Any]] = ()
) -> tuple[Stages, list[Variant]]:
    """The model with everything, and without each of `names`. Raises what the compiler's first steps raise."""
    whole = stages(one, options, records)
    text = text_of(whole)
    found = []
    for name in names:
        fewer = replace(options, without=(name,))
        without = stages(one, fewer, records)
        found.append(Variant(name, fewer, without, text_of(without) == text))
    return whole, found


def ablate(one: Subject, names: Sequence[str], asked: Asked, cores: Probe, tell: Tell) -> Iterator[dict[str, Any]]:
    """One row for each name, as it comes. Raises what compiling the whole model raises.

    All programs are compiled twice: first tuned, one after the other, each adding to the records of the ones before;
    then once more from all these records without measuring, so that kernels that several have in common run under the
    same tile in each.
    """
    options = CompileOptions.from_json({**one.options, "threads": asked.threads, "tuning_budget_s": asked.budget_s})
    whole, others = variants(one, options, names, asked.cache.records())
    different = [variant for variant in others if not variant.same]
    problems: dict[str, str] = {}
    if different:
        _compiled(one, options, asked.cache, "everything, tuned", tell)
    for variant in different:
        try:
            _compiled(one, variant.options, asked.cache, f"without {variant.name}, tuned", tell)
        except TilewrightError as error:
            problems[variant.name] = error.message
    for variant in others:
        row = {**_shared(one, asked, variant, whole), **_nothing()}
        if variant.same:
            yield {**row, "ratio": 1.0}
        elif variant.name in problems:
            yield {**row, "problem": problems[variant.name]}
        else:
            try:
                yield {**row, **_raced(one, options, variant, asked, cores, tell)}
            except (TilewrightError, ClientError) as error:
                yield {**row, "problem": error.message}


def _raced(
    one: Subject, options: CompileOptions, variant: Variant, asked: Asked, cores: Probe, tell: Tell
) -> Mapping[str, Any]:
    """What a race of both programs gives."""
    with_all = _compiled(one, replace(options, tuning_budget_s=0.0), asked.cache, "everything", tell)
    without = _compiled(
        one, replace(variant.options, tuning_budget_s=0.0), asked.cache, f"without {variant.name}", tell
    )
    contenders = [Contender(OURS, with_all.artifact), Contender(OURS, without.artifact, WITHOUT)]
    tell("computing in float64")
    inputs = asked.cache.expected(one, options).inputs
    result = race(
        contenders,
        inputs,
        asked.threads,
        cores,
        rounds=asked.rounds,
        watch=lambda over: tell(f"without {variant.name}, round {over} of {asked.rounds}"),
    )
    return _row(result, with_all, without)


def _row(result: Race, with_all: Compiled, without: Compiled) -> Mapping[str, Any]:
    ratio = result.ratio(WITHOUT, OURS)
    return {
        "kernels": with_all.report["kernels"],
        "kernels_without": without.report["kernels"],
        "ms": result.ms(OURS).median,
        "ms_without": result.ms(WITHOUT).median,
        "ratio": ratio.value,
        "ratio_interval": [ratio.low, ratio.high],
        "difference": largest_difference(result.outputs[WITHOUT], result.outputs[OURS]),
        "rounds": len(result.medians(OURS)),
        "discarded": result.discarded,
        "calm": result.calm,
    }


def _shared(one: Subject, asked: Asked, variant: Variant, whole: Stages) -> dict[str, Any]:
    return {
        "model": one.name,
        "threads": asked.threads,
        "without": variant.name,
        "same": variant.same,
        "kernels": len(whole.kernels.calls),
        "kernels_without": len(variant.stages.kernels.calls),
    }


def _nothing() -> dict[str, Any]:
    """Of a program that was not run."""
    return dict.fromkeys(("ms", "ms_without", "ratio", "ratio_interval", "difference", "rounds", "discarded", "calm"))


def _compiled(one: Subject, options: CompileOptions, cache: Cache, said: str, tell: Tell) -> Compiled:
    return cache.compiled(one, options, lambda event: tell(f"{said}: {event.phase} {event.fraction:.0%}"))


def means(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """By name, the geometric mean of the ratios over the models; programs that are the same count 1."""
    ratios: dict[str, list[float]] = {}
    for row in rows:
        if row["ratio"] is not None:
            ratios.setdefault(row["without"], []).append(row["ratio"])
    return {name: geometric_mean(found) for name, found in ratios.items()}

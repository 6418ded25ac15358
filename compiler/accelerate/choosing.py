"""Which of several placements on an accelerator and a CPU is taken: the one that is estimated to be fastest.

Fastest is an inference by itself, or where throughput is asked for the one that ends most of them while they follow
each other.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from compiler.accelerate.chips import Chip
from compiler.accelerate.cores import modelled_seconds
from compiler.accelerate.parts import (
    Assembled,
    Assembly,
    OnAccelerator,
    Placed,
    Placing,
    alone_on_cpu,
    assembled,
    called_seconds,
    placements,
)
from compiler.accelerate.pipelining import MOST_POINTS, NO_STATES, Loads, pipelines
from compiler.accelerate.states import recurrence_s
from compiler.accelerate.vela import Compiled
from compiler.contract import PointReport
from compiler.contract.devices import HOST, Within
from compiler.devices.kind import CompilePart
from compiler.errors import UnsupportedModel
from compiler.quantize.network import Network
from compiler.quantize.samples import Sample

ACCELERATOR = "the accelerator, and the CPU for what it does not carry out"
DIVIDED = "the same, and the CPU for segments that are estimated to be faster on it"
PIPELINE = "a pipeline, the CPU with"
CPU = "the whole model on the CPU, as it was given"
CPU_INT8 = "the whole model on the CPU, quantised"
MOST_MEASURED = 2
"""Of the curve, where what is most promising is timed on this machine."""
MOST_TIMED = 3
"""Placements that are compiled and timed on this machine, the best by the model of costs."""
UNKNOWN = "how often a frame ends is not known, since a loop or a branch has no model: the first placement is taken"


def estimated_loads(placed: Placed, core: str, carried: Mapping[str, str] = NO_STATES) -> Loads | None:
    """Of a frame, parts of the CPU's as modelled for a core, nothing compiled; None where one has no model."""
    assembly = Assembly(placed)
    each: list[float | Compiled] = []
    for segment, made in zip(placed.segments, placed.made, strict=True):
        seconds = modelled_seconds(assembly.model_of(segment), core) if made is None else 0.0
        if seconds is None:
            return None
        each.append(made[1] if made else seconds)
    return _loads(placed, each, carried)


def priced_loads(made: Assembled, carried: Mapping[str, str] = NO_STATES) -> Loads | None:
    """Of a frame, parts of the CPU's as their programs were measured on this machine; None where one was not."""
    each = [part.compiled if isinstance(part, OnAccelerator) else part.beside.seconds or None for part in made.parts]
    known = [one for one in each if one is not None]
    return _loads(made.assembly.placed, known, carried) if len(known) == len(each) else None


def _loads(placed: Placed, each: Sequence[float | Compiled], carried: Mapping[str, str]) -> Loads:
    """Of what the CPU's segments take, and what was made for the accelerator's."""
    here = [one for one in each if isinstance(one, Compiled)]
    seconds = [called_seconds(one) if isinstance(one, Compiled) else one for one in each]
    return Loads(
        sum(one for one in each if not isinstance(one, Compiled)),
        sum(one.seconds for one in here),
        sum(one.streams for one in here),
        recurrence_s(placed.segments, seconds, placed.divisible, carried),
    )


@dataclass(frozen=True)
class Asked:
    """A model for an accelerator and the CPU `core` beside it: HOST, or one that is modelled.

    `given` is the model as it was given, `network` the quantised one, with the ranges of its tensors; `unquantised`
    says why there is none. Where inferences are to follow each other, outputs `carried` are inputs of the next.
    """

    given: Network
    network: Network
    ranges: Mapping[str, tuple[float, float]]
    chip: Chip
    core: str
    unquantised: str = ""
    objective: str | Within = "latency"
    carried: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_pipeline(self) -> bool:
        """Whether inferences are to follow each other."""
        return self.objective != "latency"


@dataclass(frozen=True)
class Chosen:
    """What was taken: its parts, a row of each placement that was compared, and what a frame keeps devices busy.

    candidates  as `compiler.contract.PlacedCandidate`
    curve       where throughput was asked for, those that none is better than in latency and period, as
                `compiler.contract.PointReport`; the latency rises
    loads       None where they are not known
    notice      where no placement is within the latency that was asked for
    """

    made: Assembled
    candidates: list[dict[str, Any]]
    curve: list[PointReport]
    loads: Loads | None
    notice: str = ""


def proposed(asked: Asked) -> tuple[dict[str, Placed], dict[str, str]]:
    """Placements by what they are, those that use the accelerator first, and why others are not there."""
    found: dict[str, Placed] = {}
    refused: dict[str, str] = {}
    try:
        if asked.unquantised:
            raise UnsupportedModel(asked.unquantised)
        placing = Placing(asked.network, asked.ranges, asked.chip, asked.core)
        on_both = placements(placing)
        found[ACCELERATOR] = on_both[0]
        for number, one in enumerate(on_both[1:], 1):
            found[DIVIDED if number == 1 else f"{DIVIDED}, {number} times"] = one
        if asked.is_pipeline:
            nodes = len(placing.divisible.placed)
            known = [{*one.left} for one in on_both]
            most = MOST_MEASURED if asked.core == HOST else MOST_POINTS
            for one in pipelines(placing, on_both[0], most, asked.carried):
                if {*one.left} not in known:
                    known.append({*one.left})
                    found.setdefault(_named(one, nodes, found), one)
    except UnsupportedModel as no:
        refused[ACCELERATOR] = no.message
    alone = {CPU: asked.given}
    if asked.network is not asked.given:
        alone[CPU_INT8] = asked.network
    for name, network in alone.items():
        try:
            found[name] = alone_on_cpu(network)
        except UnsupportedModel as no:
            refused[name] = no.message
    return found, refused


def _named(placed: Placed, nodes: int, found: Mapping[str, Placed]) -> str:
    """A pipeline by what the CPU has of it, and where it is not the first such one, by its number."""
    own = sum(len(one.nodes) for one in placed.segments if not one.accelerated)
    name = f"{PIPELINE} {own} of {nodes} operators"
    others = sum(one.startswith(name) for one in found)
    return f"{name}, {others + 1}" if others else name


@contextmanager
def chosen(asked: Asked, sample: Sample, compile_part: CompilePart, tuning_budget_s: float) -> Iterator[Chosen]:
    """The best of `proposed`, its parts compiled.

    On a core that is modelled the best is found before anything is compiled; on this machine, HOST, the most promising
    are compiled and measured, each within its share of the budget. Where no time is known it is the first that can be
    compiled.
    Raises UnsupportedModel where there is none.
    """
    (found, refused), core = proposed(asked), asked.core
    order, foreseen = by_promise(found, asked) if core == HOST else ([*found], {})
    unknown = len(order) - len(foreseen)
    with ExitStack() as opened:
        timed = max(unknown + min(MOST_TIMED, len(foreseen)), 1) if core == HOST else 1
        made: dict[str, Assembled] = {}
        loads: dict[str, Loads | None] = {}
        open_one = partial(
            assembled, sample=sample, compile_part=compile_part, tuning_budget_s=tuning_budget_s / timed, core=core
        )
        for name in order:
            if name in foreseen and len(foreseen.keys() & loads.keys()) == MOST_TIMED:
                promised_ms = 1e3 * foreseen[name]
                refused[name] = f"{promised_ms:.3g} ms by the model of costs: {MOST_TIMED} that promise more were timed"
                continue
            try:
                if core == HOST:
                    made[name] = opened.enter_context(open_one(found[name]))
                    loads[name] = priced_loads(made[name], asked.carried)
                else:
                    loads[name] = estimated_loads(found[name], core, asked.carried)
            except UnsupportedModel as no:
                refused[name] = no.message
        if not loads:
            name, why = next(iter(refused.items()))
            raise UnsupportedModel(f"{name}: {why}", fix="compile it for one device, and look at its refusals")
        known = {name: one for name, one in loads.items() if one is not None}
        if known:
            best, notice = picked(known, asked.objective)
        else:
            best, notice = next(iter(loads)), UNKNOWN if asked.is_pipeline else ""
        rows = [
            {
                "name": name,
                "seconds": of.latency_s if (of := loads.get(name)) else None,
                "why": refused.get(name, "" if name in known else "a loop or a branch has no model"),
                "taken": name == best,
                "period_s": of.period_s if of and asked.is_pipeline else None,
            }
            for name in (*found, *(name for name in refused if name not in found))
        ]
        curve = curve_of(known, found, best) if asked.is_pipeline else []
        taken = made[best] if best in made else opened.enter_context(open_one(found[best]))
        yield Chosen(taken, rows, curve, loads[best], notice)


def by_promise(found: Mapping[str, Placed], asked: Asked) -> tuple[list[str], dict[str, float]]:
    """The names in the order in which they are compiled and timed on this machine, and what is foreseen of them.

    First those of which the model of costs knows nothing; then the best with the accelerator and the best without it,
    and the others, the best first. Seconds are those of what is asked for: of an inference by itself, or of the period.
    """
    known: dict[str, Loads] = {}
    for name, placed in found.items():
        with suppress(UnsupportedModel):  # compiling says why
            if (loads := estimated_loads(placed, HOST, asked.carried)) is not None:
                known[name] = loads
    bound_s = asked.objective.latency_ms / 1e3 if isinstance(asked.objective, Within) else math.inf
    foreseen = {name: one.period_s if asked.is_pipeline else one.latency_s for name, one in known.items()}
    late = {name: one.latency_s for name, one in known.items() if one.latency_s > bound_s}
    order = sorted(known, key=lambda name: (name in late, late.get(name, foreseen[name])))
    best = [next((name for name in order if found[name].uses_accelerator == on_it), None) for on_it in (True, False)]
    unknown = [name for name in found if name not in known]
    return [*dict.fromkeys([*unknown, *filter(None, best), *order])], foreseen


def picked(known: Mapping[str, Loads], objective: str | Within) -> tuple[str, str]:
    """The name of the best for an objective, and a notice where nothing is within the latency that it asks for."""
    if objective == "latency":
        return min(known, key=lambda name: known[name].latency_s), ""
    bound_s = objective.latency_ms / 1e3 if isinstance(objective, Within) else math.inf
    within = [name for name, one in known.items() if one.latency_s <= bound_s]
    if within:
        return min(within, key=lambda name: (known[name].period_s, known[name].latency_s)), ""
    fastest = min(known, key=lambda name: known[name].latency_s)
    return fastest, (
        f"no placement is estimated to end an inference within {1e3 * bound_s:g} ms: the fastest of {len(known)} takes "
        f"{1e3 * known[fastest].latency_s:.3g} ms and is taken"
    )


def curve_of(known: Mapping[str, Loads], found: Mapping[str, Placed], best: str) -> list[PointReport]:
    """Of all that are known those that none is better than in both, and the one that is taken; latency rises."""
    kept: list[str] = []
    for name in sorted(known, key=lambda name: (known[name].latency_s, known[name].period_s)):
        if name == best or not kept or known[name].period_s < min(known[one].period_s for one in kept):
            kept.append(name)
    return [
        PointReport(
            name,
            tuple(len(one.nodes) for one in found[name].segments),
            known[name].period_s,
            known[name].latency_s,
            None,
            None,
            name == best,
        )
        for name in kept
    ]

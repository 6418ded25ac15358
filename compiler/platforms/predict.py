"""A model on a described platform: where its parts would run, and how fast, by every granularity. Nothing is run."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from compiler.contract import CompileOptions
from compiler.contract.platform import Platform
from compiler.errors import OptionsError
from compiler.frontend import load
from compiler.ir.graph import Graph
from compiler.ops import OPERATORS
from compiler.platforms.costs import Costs, costs_of, tensor_ids
from compiler.platforms.granularity import NAMES, groups, with_state
from compiler.platforms.problem import HOST_INPUT, Problem, Tensor
from compiler.platforms.search import MOST_UNITS, Key, Search, latency, throughput, within
from compiler.platforms.timing import Stage, Timeline, Timing
from compiler.rewrite import rewrite
from compiler.rewrite.rules import RULES
from compiler.schedule.solvers.sets import bits
from compiler.steps.states.carried import demand_pairs, ports_of

FAMILIES = frozenset({"folding", "identities", "clamps", "shapes", "activations", "norms", "weights", "convolutions"})
"""Rules of rewriting that are applied first: a deployment has them folded too."""
PREDICTION = "predicted from the platform's file: nothing was run, and no time here was measured by Tilewright"


@dataclass(frozen=True)
class Granular:
    """What one granularity came to; `skipped` says why it was not tried."""

    name: str
    units: int
    latency: Timeline | None
    throughput: Timeline | None
    by: tuple[str, str] = ("", "")
    tried: int = 0
    seconds: float = 0.0
    skipped: str = ""
    bound_s: tuple[float, float] = (0.0, 0.0)
    """What no latency and no period of these units is below."""


@dataclass(frozen=True)
class Placed:
    """A candidate and the granularity whose units its stages hold."""

    timeline: Timeline
    granularity: str
    by: str
    problem: Problem


@dataclass(frozen=True)
class Prediction:
    """What a platform promises.

    chosen        the best for the objective
    alone         for each device the whole model on it, None where it cannot run there
    granularities each with its best for latency and for throughput
    curve         what no other candidate is better than in both, earliest frame first
    """

    objective: str
    platform: Platform
    costs: Costs
    chosen: Placed
    alone: tuple[tuple[str, Timeline | None], ...]
    granularities: tuple[Granular, ...]
    curve: tuple[Placed, ...]

    @property
    def bound_s(self) -> tuple[float, float]:
        """What no latency and no period is below: that of the finest units, of which all others are made."""
        return next((one.bound_s for one in self.granularities if one.latency is not None), (0.0, 0.0))


def objective_of(said: str) -> Key:
    """`latency`, `throughput`, or `latency_ms=30`: the most frames per second whose latency is within it.

    Raises OptionsError.
    """
    if said == "latency":
        return latency
    if said == "throughput":
        return throughput
    name, _, number = said.partition("=")
    try:
        bound = float(number)
        if name != "latency_ms" or not 0 < bound < 1e9:
            raise ValueError
    except ValueError:
        raise OptionsError(
            f"objective is {said!r:.60}", fix="write latency, throughput, or latency_ms=30 with milliseconds above 0"
        ) from None
    return within(bound / 1e3)


def load_graph(model: Path | bytes, options: CompileOptions, data: Mapping[str, Path] | None = None) -> Graph:
    """The model as it is placed: typed, static, rewritten. Raises what the front end raises."""
    loaded = load(model, options, OPERATORS, data=data)
    return rewrite(loaded.graph, rules=[rule for rule in RULES if rule.family in FAMILIES]).graph


def predict(
    graph: Graph,
    platform: Platform,
    folder: Path,
    objective: str = "latency",
    carry: Sequence[tuple[str, str]] = (),
    among: Collection[str] = tuple(NAMES),
) -> Prediction:
    """The placements of a graph on a platform.

    carry  pairs of an output and the input that it is in the next frame: what lies between them runs on one device
    among  the granularities that are tried; seconds of the search are those of the processor

    Raises OptionsError for a platform, an objective or names that make no sense, and where nothing keeps `latency_ms`.
    """
    key = objective_of(objective)
    costs = costs_of(graph, platform, folder)
    base, joins = _carrying(costs, graph, carry)
    found: list[Granular] = []
    placed: list[Placed] = []
    seen: dict[tuple[tuple[int, ...], ...], str] = {}
    for name in (one for one in NAMES if one in among):
        units = groups(base, name, joins)
        if tuple(units) in seen:
            found.append(Granular(name, len(units), None, None, skipped=f"the same units as {seen[tuple(units)]}"))
            continue
        seen[tuple(units)] = name
        if len(units) > MOST_UNITS:
            said = f"{len(units)} units are more than {MOST_UNITS}"
            found.append(Granular(name, len(units), None, None, skipped=said))
            continue
        begin = time.process_time()
        problem = base.joined(units)
        search = Search(problem)
        search.run([latency, throughput, *([key] if key not in (latency, throughput) else [])])
        if not search.found:
            said = "no device runs all operators of each unit"
            found.append(Granular(name, len(units), None, None, skipped=said))
            continue
        early, often = search.best(latency), search.best(throughput)
        found.append(
            Granular(
                name,
                len(units),
                early.timeline,
                often.timeline,
                (early.by, often.by),
                search.tried,
                time.process_time() - begin,
                bound_s=search.bound_s,
            )
        )
        placed += [Placed(one.timeline, name, one.by, problem) for one in search.found]
    chosen = min(placed, key=lambda one: key(one.timeline))
    if key not in (latency, throughput):
        bound = float(objective.partition("=")[2])
        if 1e3 * chosen.timeline.latency_s > bound:
            raise OptionsError(
                f"no placement has a latency of at most {bound:g} ms: the least is "
                f"{1e3 * chosen.timeline.latency_s:.3g} ms",
                fix="raise latency_ms, or describe faster devices or links",
            )
    alone = tuple((device.name, _alone(base, at)) for at, device in enumerate(base.devices))
    return Prediction(objective, platform, costs, chosen, alone, tuple(found), _curve(placed))


def _alone(problem: Problem, device: int) -> Timeline | None:
    return Timing(problem).timeline([Stage((device,), problem.whole)])


def _curve(placed: Sequence[Placed]) -> tuple[Placed, ...]:
    found: list[Placed] = []
    for one in sorted(placed, key=lambda one: (one.timeline.latency_s, one.timeline.period_s)):
        if not found or one.timeline.period_s < found[-1].timeline.period_s * (1 - 1e-9):
            found.append(one)
    return tuple(found)


def _carrying(costs: Costs, graph: Graph, carry: Sequence[tuple[str, str]]) -> tuple[Problem, tuple[bool, ...]]:
    """The problem with what holds a state as one unit."""
    if not carry:
        return costs.problem, costs.joins
    demand_pairs(carry, *ports_of(graph))
    inputs = {graph.values[id].name: id for id in graph.inputs}
    outputs = {graph.values[id].name: id for id in graph.outputs}
    made = {value: at for at, node in enumerate(graph.nodes) for value in node.outputs}
    pairs = []
    for out, into in carry:
        readers = sum(1 << at for at, node in enumerate(graph.nodes) if inputs[into] in node.used)
        makers = 1 << made[outputs[out]] if outputs[out] in made else 0
        pairs.append((readers, makers))
    own = {inputs[into] for _, into in carry} | {outputs[out] for out, _ in carry}
    base = replace(costs.problem, tensors=_without(costs.problem, graph, own))
    units = with_state(base, pairs)
    held = 0
    for readers, makers in pairs:
        held |= readers | makers
    fixed = sum(1 << at for at, unit in enumerate(units) if any(held >> one & 1 for one in unit))
    joins = tuple(len(unit) == 1 and costs.joins[unit[0]] for unit in units)
    return replace(base.joined(units), fixed=fixed), joins


def _without(problem: Problem, graph: Graph, states: set[int]) -> list[Tensor]:
    """The tensors but those of a state, which stays where it is: nothing is sent to or from the host for it."""
    found = []
    for value, one in zip(tensor_ids(graph), problem.tensors, strict=True):
        if value not in states:
            found.append(one)
        elif one.maker != HOST_INPUT and one.readers:
            found.append(replace(one, given=False))
    return found


def to_json(found: Prediction) -> dict[str, Any]:
    """All of it as plain JSON."""
    names = [one.name for one in found.costs.problem.devices]

    def timeline(one: Timeline | None) -> dict[str, Any] | None:
        if one is None:
            return None
        return {
            "latency_ms": 1e3 * one.latency_s,
            "period_ms": 1e3 * one.period_s,
            "frames_per_second": 1 / one.period_s if one.period_s else None,
            "stages": len(one.stages),
            "busy_ms": {name: 1e3 * seconds for name, seconds in one.busy},
        }

    chosen = found.chosen
    return {
        "predicted": True,
        "about": PREDICTION,
        "platform": found.platform.about,
        "objective": found.objective,
        "chosen": {
            **(timeline(chosen.timeline) or {}),
            "granularity": chosen.granularity,
            "by": chosen.by,
            "streamed_bytes": dict(zip(names, chosen.timeline.streamed, strict=True)),
            "placement": [
                {
                    "devices": [names[device] for device in stage.devices],
                    "units": [chosen.problem.names[unit] for unit in bits(stage.units)],
                    "begin_ms": 1e3 * span.begin,
                    "end_ms": 1e3 * span.end,
                }
                for stage, span in zip(chosen.timeline.stages, chosen.timeline.spans, strict=True)
            ],
        },
        "alone": {name: timeline(one) for name, one in found.alone},
        "granularities": [
            {
                "name": one.name,
                "units": one.units,
                "latency": timeline(one.latency),
                "throughput": timeline(one.throughput),
                "by": list(one.by),
                "candidates": one.tried,
                "bound_ms": {"latency": 1e3 * one.bound_s[0], "period": 1e3 * one.bound_s[1]},
                "processor_s": one.seconds,
                "skipped": one.skipped or None,
            }
            for one in found.granularities
        ],
        "curve": [{**(timeline(one.timeline) or {}), "granularity": one.granularity} for one in found.curve],
        "refused": [vars(one) for one in found.costs.refused],
    }

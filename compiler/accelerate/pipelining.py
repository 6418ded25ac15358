"""Which nodes the CPU has so that frames that follow each other end as often as may be.

With many frames in flight a frame ends as often as the device with most to do has done it once (`stages`), whatever the
order of its parts. So the load is what counts, and a frame by itself takes both loads one after the other. A unit is a
segment, or what of it stands between two places where one tensor is live; devices are given to units by dynamic
programming over their order, of which all that nothing else is better than is kept (Tarnawski et al., "Efficient
algorithms for device placement of DNN graph operators", NeurIPS 2020, for a chain and two kinds of device).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from types import MappingProxyType

from onnx import NodeProto

from compiler.accelerate.cores import modelled_nodes
from compiler.accelerate.dividing import Divisible, Segment
from compiler.accelerate.parts import HANDOVER_S, Assembly, Placed, Placing, alone_on_cpu, written_for
from compiler.accelerate.tflite.convert import Converted
from compiler.accelerate.vela import Compiled
from compiler.errors import UnsupportedModel
from compiler.quantize.network import named

MOST_UNITS = 24
MOST_KEPT = 200
"""Divisions of the units up to one of them that are kept for each device and number of calls."""
MOST_POINTS = 5
"""Of the curve between the most frames and the earliest one, what is compiled."""
WHY = "the CPU has it while the accelerator works on another frame"
NO_STATES: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True)
class Unit:
    """Nodes that go to one device, by their first results, and what they take there; `fixed` is the CPU's."""

    nodes: tuple[str, ...]
    cpu_s: float
    accelerator_s: float
    fixed: bool = False


@dataclass(frozen=True)
class Loads:
    """What each device has to do for a frame; a call of the accelerator keeps both of them.

    `recurrence_s` is what a state takes from frame to frame (`states`).
    """

    cpu_s: float
    accelerator_s: float
    calls: int = 0
    recurrence_s: float = 0.0

    @property
    def latency_s(self) -> float:
        """Of a frame by itself: its parts in turn."""
        return self.cpu_s + self.accelerator_s + self.calls * HANDOVER_S

    @property
    def period_s(self) -> float:
        """From one end of a frame to the next, with enough of them in flight."""
        return max(max(self.cpu_s, self.accelerator_s) + self.calls * HANDOVER_S, self.recurrence_s)

    @property
    def busy(self) -> tuple[float, float]:
        """The shares of the period that CPU and accelerator are at work, calls included."""
        calls_s = self.calls * HANDOVER_S
        return (self.cpu_s + calls_s) / self.period_s, (self.accelerator_s + calls_s) / self.period_s


@dataclass(frozen=True)
class Divided:
    """Units as given to devices: `on_cpu` are positions."""

    loads: Loads
    on_cpu: frozenset[int]


def divisions(units: Sequence[Unit]) -> list[Divided]:
    """Of all ways to give units to devices those of as many calls that none is better than on both devices.

    Exact where no more than `MOST_KEPT` are kept on the way.
    """
    states: dict[tuple[bool, int], list[Divided]] = {(True, 0): [Divided(Loads(0.0, 0.0), frozenset())]}
    for at, unit in enumerate(units):
        grown: dict[tuple[bool, int], list[Divided]] = {}
        for (was_cpu, calls), each in states.items():
            for one in each:
                cpu = Loads(one.loads.cpu_s + unit.cpu_s, one.loads.accelerator_s, calls)
                grown.setdefault((True, calls), []).append(Divided(cpu, one.on_cpu | {at}))
                if not unit.fixed:
                    more = calls + was_cpu
                    there = Loads(one.loads.cpu_s, one.loads.accelerator_s + unit.accelerator_s, more)
                    grown.setdefault((False, more), []).append(Divided(there, one.on_cpu))
        states = {key: _kept(each) for key, each in grown.items()}
    return [one for each in states.values() for one in each]


def curve(every: Sequence[Divided]) -> list[Divided]:
    """Those that none is better than in latency and period, least period first."""
    found: list[Divided] = []
    for one in sorted(every, key=_often):
        if not found or one.loads.latency_s < found[-1].loads.latency_s:
            found.append(one)
    return found


def _often(one: Divided) -> tuple[float, float, int]:
    return one.loads.period_s, one.loads.latency_s, len(one.on_cpu)


def promising(every: Sequence[Divided], most: int) -> list[Divided]:
    """At most so many of the curve, and those of the least period that call the accelerator once or twice.

    What the CPU pays for converting at a border is not foreseen, so that fewer borders than foreseen may be best.
    """
    few = [[one for one in every if one.loads.calls == calls] for calls in (1, 2)]
    return [*spread(curve(every), most), *(min(each, key=_often) for each in few if each)]


def _kept(each: list[Divided]) -> list[Divided]:
    """Those of as many calls that no other has less than on both devices, thinned out where they are too many."""
    found: list[Divided] = []
    for one in sorted(each, key=lambda one: (one.loads.cpu_s, one.loads.accelerator_s)):
        if not found or one.loads.accelerator_s < found[-1].loads.accelerator_s:
            found.append(one)
    return spread(found, MOST_KEPT)


def spread(found: list[Divided], most: int) -> list[Divided]:
    """At most so many of a list, its ends and equal steps between."""
    if len(found) <= most:
        return found
    return [found[round(at * (len(found) - 1) / (most - 1))] for at in range(most)]


def pipelines(
    placing: Placing, base: Placed, most: int = MOST_POINTS, carried: Mapping[str, str] = NO_STATES
) -> list[Placed]:
    """Placements between the least period and the least latency as units foresee them, at most `most` and two.

    What is the accelerator's is compiled. `base` is the placement with as much on it as it carries out. Where states
    are `carried` as many more have all between the reading and the making of each on one device. Empty where the model
    has a loop or a branch, of which nothing is foreseen.
    """
    plain = units_of(base, placing.core)
    joined = on_one_device(plain, base.divisible, carried)
    found: dict[frozenset[str], Placed] = {}
    for units in (joined, plain) if joined != plain else (plain,):
        for one in promising(divisions(units), most) if units else ():
            more = {name: WHY for at in one.on_cpu for name in units[at].nodes if name not in base.left}
            placed = placing.fitted({**base.left, **more})
            if placed.uses_accelerator:
                found.setdefault(frozenset(placed.left), placed)
    return [*found.values()]


def units_of(placed: Placed, core: str) -> list[Unit]:
    """In the order in which they run, at most `MOST_UNITS` where the CPU's fixed ones permit it."""
    alone = alone_on_cpu(placed.divisible.network)
    on_cpu = modelled_nodes(Assembly(alone).model_of(alone.segments[0]), core)
    if on_cpu is None:
        return []
    own = sum(on_cpu.get(named(node), 0.0) for node in placed.divisible.placed)
    share = sum(on_cpu.values()) / own if own else 1.0  # what rounds is shared among the nodes as their time is
    units: list[Unit] = []
    for segment, made in zip(placed.segments, placed.made, strict=True):
        there = _accelerator_seconds(segment, made, placed.divisible) if made else {}
        for nodes in blocks_of(segment, placed.divisible) if made else [[*segment.nodes]]:
            names = tuple(node.output[0] for node in nodes)
            cpu_s = share * sum(on_cpu.get(named(node), 0.0) for node in nodes)
            units.append(Unit(names, cpu_s, sum(there.get(name, 0.0) for name in names), fixed=made is None))
    return merged(whole(units))


def whole(units: Sequence[Unit]) -> list[Unit]:
    """The same with what a device carries out as one operator in one unit.

    What an activation takes is told of it or of the operator before it, as the accelerator's compiler and this one fuse
    them. So a unit in which the accelerator has nothing to do goes with the next one, and one in which the CPU has
    nothing to do with the one before.
    """
    found: list[Unit] = []
    for unit in units:
        before = found[-1] if found else None
        if before and not (before.fixed or unit.fixed) and not (before.accelerator_s and unit.cpu_s):
            found[-1] = _together(before, unit)
        else:
            found.append(unit)
    return found


def _together(one: Unit, other: Unit) -> Unit:
    return Unit((*one.nodes, *other.nodes), one.cpu_s + other.cpu_s, one.accelerator_s + other.accelerator_s)


def on_one_device(units: Sequence[Unit], divisible: Divisible, carried: Mapping[str, str]) -> list[Unit]:
    """The same with all from the reading to the making of each state in one unit, the CPU's if any of it must be."""
    found = [*units]
    for out, into in carried.items():
        made = {out, divisible.root(out)}
        nodes = {node.output[0]: node for node in divisible.placed}
        reads = [at for at, unit in enumerate(found) if any(into in divisible.data(nodes[one]) for one in unit.nodes)]
        makes = [at for at, unit in enumerate(found) if any(made & {*nodes[one].output} for one in unit.nodes)]
        if reads and makes and reads[0] < makes[-1]:
            whole = found[reads[0]]
            for one in found[reads[0] + 1 : makes[-1] + 1]:
                whole = replace(_together(whole, one), fixed=whole.fixed or one.fixed)
            found[reads[0] : makes[-1] + 1] = [whole]
    return found


def _accelerator_seconds(segment: Segment, made: tuple[Converted, Compiled], divisible: Divisible) -> dict[str, float]:
    """What each node of a segment takes by Vela's estimate, by its first result; all cycles are shared out."""
    converted, compiled = made
    own = {node.output[0] for node in segment.nodes}
    found: dict[str, float] = {}
    for part in compiled.parts:
        try:
            name = written_for(converted, divisible.network, part.name).output[0]
        except UnsupportedModel:  # an operator that Vela added
            continue
        if name in own:
            found[name] = found.get(name, 0.0) + part.cycles
    known = sum(found.values())
    if not known:
        return {name: compiled.seconds / len(own) for name in own}
    return {name: cycles / known * compiled.seconds for name, cycles in found.items()}


def blocks_of(segment: Segment, divisible: Divisible) -> list[list[NodeProto]]:
    """Its nodes in runs between which no more than one tensor is live that something before made or read."""
    last: dict[str, int] = {}
    for at, node in enumerate(segment.nodes):
        last |= dict.fromkeys(divisible.data(node), at)
    found: list[list[NodeProto]] = [[]]
    seen: set[str] = set()
    for at, node in enumerate(segment.nodes):
        found[-1].append(node)
        seen |= {*divisible.data(node), *node.output}
        if at + 1 < len(segment.nodes) and sum(last.get(name, -1) > at for name in seen) <= 1:
            found.append([])
    return found


def merged(units: list[Unit]) -> list[Unit]:
    """The same with the smallest neighbours taken together until they are few enough."""
    units = [*units]
    while len(units) > MOST_UNITS:
        sizes = {
            at: max(one.cpu_s + behind.cpu_s, one.accelerator_s + behind.accelerator_s)
            for at, (one, behind) in enumerate(pairwise(units))
            if not (one.fixed or behind.fixed)
        }
        if not sizes:
            break
        at = min(sizes, key=lambda at: sizes[at])
        units[at : at + 2] = [_together(*units[at : at + 2])]
    return units

"""Costs of calls on devices as a problem of dividing them, and its solutions as parts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from math import comb
from types import MappingProxyType

from compiler.ir.buffers import KernelGraph
from compiler.ir.plans.lanes import LaneCosts
from compiler.ir.plans.parts import After, Edge, Part, Parts, State, Turns, keepers_of
from compiler.ir.plans.transfers import Transfers
from compiler.schedule.parts.recurrences import recurrence_s
from compiler.schedule.parts.units import Units, units_of
from compiler.schedule.plans.dependencies import predecessors
from compiler.schedule.solvers.ideals import Crossing, Division, Recurrence, Stage, Tensor
from compiler.schedule.solvers.least_load import least_load
from compiler.schedule.solvers.placement import placement
from compiler.schedule.solvers.replicas import dealt, replicated
from compiler.schedule.solvers.sets import bits
from compiler.schedule.solvers.tradeoffs import tradeoffs

NO_PAIRS: Mapping[tuple[int, int], LaneCosts] = MappingProxyType({})


def division_of(
    kernels: KernelGraph,
    seconds: Sequence[Sequence[float]],
    costs: LaneCosts,
    transfers: Sequence[Transfers | None] = (),
    *,
    caller_s: float | None = None,
    slowdown: Sequence[float] = (),
    carried: Sequence[tuple[int, int]] = (),
    pairs: Mapping[tuple[int, int], LaneCosts] = NO_PAIRS,
) -> Division:
    """`seconds` are of each call, in call order, for each device; all else is as in `Division`.

    `pairs` are what two devices cost each other, the lower one first, where that is known; others cost `costs`.
    `carried` are outputs with the inputs that they are in the next frame, by their positions.
    """
    leaving = {kernels.buffers[id].storage for id in kernels.outputs}
    storages = _storages(kernels)
    tensors = [
        Tensor(size, _set(writers), _set(readers), storage in leaving)
        for storage, (size, writers, readers) in storages.items()
        if writers or readers
    ]
    everywhere = Crossing(costs.handover_s, costs.crossing_s)
    crossings = {pair: Crossing(own.handover_s, own.crossing_s) for pair, own in pairs.items()}
    if len(crossings) == comb(len(seconds), 2) and len({*crossings.values()}) == 1:
        everywhere, crossings = crossings.popitem()[1], {}
    states = []
    for output, input in carried:
        _, _, readers = storages[kernels.buffers[kernels.inputs[input]].storage]
        _, writers, _ = storages[kernels.buffers[kernels.outputs[output]].storage]
        states.append(Recurrence(output, input, _set(readers), _set(writers)))
    return Division(
        predecessors(kernels),
        seconds,
        tensors,
        everywhere.handover_s,
        everywhere.byte_s,
        transfers,
        caller_s=caller_s,
        slowdown=slowdown,
        states=states,
        pairs=crossings,
    )


def pipeline(kernels: KernelGraph, devices: Sequence[str], division: Division) -> Parts:
    """The calls as stages, so that the device with most to do has least. It is verified.

    Where states are carried also with all of the way of each in one stage: the better of both.
    """
    found = [
        _better_than_one(
            kernels,
            devices,
            division,
            units.expanded(least_load(units.division)[0]),
            "pipeline",
            lambda parts: parts.period_s,
        )
        for units in _units(division.in_flight)
    ]
    return min(found, key=lambda parts: parts.period_s)


def shared(kernels: KernelGraph, devices: Sequence[str], division: Division) -> Parts:
    """As `pipeline`, with stages that equal devices may share by taking turns. It is verified.

    Where pairs of devices differ, those are shared that do not in this, or all with the mean of the pairs: the better.
    """
    found = [
        parts_of(
            kernels,
            devices,
            division,
            units.expanded(least_load(units.division, replicated=True)[0]),
            "shared pipeline",
        )
        for units in [one for each in _levels(division.in_flight) for one in _units(each)]
    ]
    return min(found, key=lambda parts: parts.period_s)


def _levels(division: Division) -> list[Division]:
    """As it is, and where pairs of devices differ with the mean of them."""
    return [division, *([division.levelled] if division.pairs else [])]


def _units(division: Division) -> list[Units]:
    """What solvers divide: calls as free as they are, and where states are carried also without cutting their ways."""
    return [units_of(division), *([units_of(division, whole_states=True)] if division.states else [])]


def replicas(kernels: KernelGraph, devices: Sequence[str], division: Division) -> Parts:
    """Whole inferences in turn on those of the devices with which one ends most often. It is verified."""
    found = [parts_of(kernels, devices, division, stages, "replicas") for stages in replicated(division)]
    return min(found, key=lambda parts: parts.period_s)


def placed(kernels: KernelGraph, devices: Sequence[str], division: Division) -> Parts:
    """The calls where one inference ends earliest. It is verified."""
    units = units_of(division)
    stages = units.expanded(placement(units.division)[0])
    return _better_than_one(kernels, devices, division, stages, "placement", lambda parts: parts.predicted_s)


def _better_than_one(
    kernels: KernelGraph,
    devices: Sequence[str],
    division: Division,
    stages: Sequence[Stage],
    scheduler: str,
    cost: Callable[[Parts], float],
) -> Parts:
    """Parts of these stages, or the whole model on one device where that is better.

    Solvers take what copies cost to be more than it is; where all devices share a memory they are exact in this.
    """
    found = parts_of(kernels, devices, division, stages, scheduler)
    return min(found, one_device(kernels, devices, division), key=cost) if any(division.transfers) else found


def one_device(kernels: KernelGraph, devices: Sequence[str], division: Division) -> Parts:
    """The whole model on the fastest device. It is verified."""
    fastest = min(range(len(devices)), key=lambda device: division.part_s(device, division.whole))
    return parts_of(kernels, devices, division, ((fastest, division.whole),), "one device")


def overlapped(kernels: KernelGraph, devices: Sequence[str], division: Division) -> Parts:
    """Replicas, a pipeline or one device, whichever ends frames most often with copies beside other frames' kernels.

    It is verified. A part on a device with a memory of its own has every second frame on each of two queues of it. The
    second queue is a device behind all others.
    """
    ways = (replicas, pipeline, one_device)
    found = [on_two_queues(kernels, devices, division, way(kernels, devices, division)) for way in ways]
    return min(found, key=lambda parts: parts.period_s)


def on_two_queues(kernels: KernelGraph, devices: Sequence[str], division: Division, parts: Parts) -> Parts:
    """The same stages, those on devices with a memory of their own in turn on two queues. It is verified."""
    queues = queues_of(division)
    stages = [
        (place, calls)
        for device, calls in stages_of(parts)
        for place in ((device, queues[device]) if device in queues else (device,))
    ]
    names = [*devices, *(devices[device] for device in queues)]
    return parts_of(kernels, names, with_queues(division), stages, f"{parts.scheduler}, copies beside kernels")


def queues_of(division: Division) -> dict[int, int]:
    """The second queue of each device with a memory of its own."""
    apart = [device for device in range(len(division.seconds)) if division.transfers_of(device)]
    return {device: len(division.seconds) + at for at, device in enumerate(apart)}


def with_queues(division: Division) -> Division:
    """With the second queues as devices that take as long."""
    queues = queues_of(division)
    return replace(
        division,
        seconds=[*division.seconds, *(division.seconds[device] for device in queues)],
        transfers=[*division.transfers, *(division.transfers[device] for device in queues)],
        queues=frozenset({*queues.keys(), *queues.values()}),
        slowdown=[*division.slowdown, *(division.slowdown[device] for device in queues)] if division.slowdown else (),
    )


def tradeoff(kernels: KernelGraph, devices: Sequence[str], division: Division, most: int = 5) -> list[Parts]:
    """Divisions of which none is predicted to be better than another in both throughput and latency, verified.

    The one with the greatest throughput is first, that with the least latency last; `most` of them at most, from 2.
    """
    ways = [
        *((units.expanded(stages), by) for units in _units(division) for stages, by in tradeoffs(units.division)),
        *((stages, "replicas") for stages in replicated(division)),
    ]
    found = [parts_of(kernels, devices, division, stages, by) for stages, by in ways]
    curve: list[Parts] = []
    for one in sorted(found, key=lambda parts: (parts.period_s, parts.predicted_s, len(parts.parts))):
        if not curve or one.predicted_s < curve[-1].predicted_s:
            curve.append(one)
    last = len(curve) - 1
    return [curve[at] for at in sorted({round(last * step / (most - 1)) for step in range(most)})]


def parts_of(
    kernels: KernelGraph, devices: Sequence[str], division: Division, stages: Sequence[Stage], scheduler: str
) -> Parts:
    """A part for each stage, with the waits by which they keep out of each other's way, verified.

    Neighbouring stages with the same calls are replicas, to which frames are dealt in turn.
    """
    runs: dict[int, set[int]] = {}  # the parts that have a call
    for number, (_, calls) in enumerate(stages):
        for call in bits(calls):
            runs.setdefault(call, set()).add(number)
    turns = _turns(division, stages)
    own = {kernels.buffers[id].storage for id in (*kernels.inputs, *kernels.outputs, *kernels.constants)}
    after: list[set[After]] = [set() for _ in stages]
    edges = []
    for storage, (size, writers, readers) in _storages(kernels).items():
        made, read = ({part for call in calls for part in runs[call]} for calls in (writers, readers))
        for part in read:
            after[part] |= {After(one, 0) for one in made if one < part and turns[part].meets(turns[one], 0)}
        if storage not in own and len({stages[part][1] for part in made | read}) > 1:
            slots = sum(max((turns[part].every for part in each), default=1) for each in (made, read))
            edges.append(Edge(storage, size, slots))
            for part in made:
                others = (made | read) - {part}
                after[part] |= {After(one, slots) for one in others if turns[part].meets(turns[one], slots)}
    states = []
    for state in division.states:
        keepers = keepers_of(kernels, [tuple(bits(calls)) for _, calls in stages], state.output)
        makers, using = (
            {part for call in bits(calls) for part in runs[call]} for calls in (state.writers, state.readers)
        )
        slots = _state_slots(turns, keepers, using)
        states.append(State(state.output, state.input, slots))
        for keeper in keepers:
            after[keeper] |= {After(one, 0) for one in makers if one < keeper and turns[keeper].meets(turns[one], 0)}
            others = {*keepers} - {keeper}
            after[keeper] |= {After(one, slots) for one in others if turns[keeper].meets(turns[one], slots)}
            for one in using - {keeper}:
                after[one] |= {After(keeper, 1)} if turns[one].meets(turns[keeper], 1) else set()
                after[keeper] |= {After(one, slots - 1)} if turns[keeper].meets(turns[one], slots - 1) else set()
    parts = tuple(
        Part(device, tuple(bits(calls)), tuple(sorted(after[number], key=lambda one: (one.frames, one.part))), own)
        for number, ((device, calls), own) in enumerate(zip(stages, turns, strict=True))
    )
    apart = tuple(device for device, transfers in enumerate(division.transfers) if transfers)
    carried_s = recurrence_s(division, stages, seconds_of(division.in_flight, stages, by_itself=True))
    latency_s, busy_s = _predicted(division, stages, turns)
    found = Parts(
        tuple(devices),
        parts,
        tuple(edges),
        scheduler,
        latency_s,
        max(busy_s, carried_s),
        apart,
        tuple(states),
        carried_s,
    )
    found.verify(kernels)
    return found


def _state_slots(turns: Sequence[Turns], keepers: Sequence[int], readers: Iterable[int]) -> int:
    """So many that who keeps a state runs ahead of a reader in a later stage as far as stages lie between them."""
    lag = max((reader - keepers[-1] for reader in readers), default=0)
    rounds = (max((turns[part].every for part in each), default=1) for each in (keepers, readers))
    return sum(rounds) + max(lag, 0)


def _turns(division: Division, stages: Sequence[Stage]) -> list[Turns]:
    """Of each stage."""
    found: list[Turns] = []
    for calls, same in groupby(stages, key=lambda stage: stage[1]):
        found += dealt([division.turn_s(device, calls) for device, _ in same])
    return found


def seconds_of(division: Division, stages: Sequence[Stage], *, by_itself: bool = False) -> list[float]:
    """Of each stage for a frame that it does: its calls, copies, and reading what other devices wrote.

    That is with many frames in flight, or of one `by_itself`.
    """
    return [
        (division.part_s(device, calls) if by_itself else division.turn_s(device, calls))
        + sum(
            division.between(one[0], device).byte_s * sum(handed_over(division, one, (device, calls)))
            for one in stages[:at]
        )
        for at, (device, calls) in enumerate(stages)
    ]


def handed_over(division: Division, earlier: Stage, later: Stage) -> list[int]:
    """Bytes of each tensor that a stage reads of an earlier one on another device. Replicas hand each other nothing."""
    (device, made), (other, calls) = earlier, later
    if device == other or made == calls:
        return []
    return [one.bytes for one in division.tensors if one.writers & made and one.readers & calls]


def stages_of(parts: Parts) -> list[Stage]:
    """The stages that parts were made of."""
    return [(part.device, _set(part.calls)) for part in parts.parts]


def frame_of(division: Division, stages: Sequence[Stage]) -> list[tuple[float, float]]:
    """When each stage begins and ends of one frame by itself, as soon as it may; of replicas the frame has each."""
    free = [0.0] * len(division.seconds)
    spans: list[tuple[float, float]] = []
    for at, (stage, seconds) in enumerate(zip(stages, seconds_of(division, stages, by_itself=True), strict=True)):
        device = stage[0]
        begin = free[device]
        for earlier in range(at):
            if handed_over(division, stages[earlier], stage):
                handover_s = division.between(stages[earlier][0], device).handover_s
                begin = max(begin, spans[earlier][1] + handover_s)
        free[device] = begin + seconds
        spans.append((begin, free[device]))
    return spans


def _predicted(division: Division, stages: Sequence[Stage], turns: Sequence[Turns]) -> tuple[float, float]:
    """Seconds of one frame by itself, and of the device with most to do. Of replicas the one that ends last counts.

    A frame by itself also waits for the caller's thread, before its parts and behind them.
    """
    loads = [0.0] * len(division.seconds)
    for stage, own, seconds in zip(stages, turns, seconds_of(division, stages), strict=True):
        loads[stage[0]] += own.share * seconds
    cores = [device for device in range(len(loads)) if division.transfers_of(device) is None]
    latency_s = max(end for _, end in frame_of(division, stages)) + (division.caller_s or 0.0)
    return latency_s, busiest_s(loads, division.caller_s, cores)


def busiest_s(loads: Sequence[float], caller_s: float | None, cores: Sequence[int]) -> float:
    """Of the device with most to do for a frame; the caller's thread is on the one of `cores` with least."""
    found = [*loads]
    if caller_s is not None and cores:
        found[min(cores, key=lambda device: found[device])] += caller_s
    return max(found)


def _storages(kernels: KernelGraph) -> dict[int, tuple[int, list[int], list[int]]]:
    """Of each storage but constants its bytes, and the calls that write and that read it."""
    found: dict[int, tuple[int, list[int], list[int]]] = {}
    for id, buffer in kernels.buffers.items():
        if buffer.storage in kernels.constants or id in kernels.constants:
            continue
        size, writers, readers = found.get(buffer.storage, (0, [], []))
        found[buffer.storage] = max(size, buffer.span * buffer.dtype.bytes), writers, readers
    for at, call in enumerate(kernels.calls):
        for ids, which in ((call.outputs, 1), (call.inputs, 2)):
            for storage in dict.fromkeys(kernels.buffers[id].storage for id in ids):
                if storage in found:
                    users = found[storage][which]
                    assert isinstance(users, list)
                    users.append(at)
    return found


def _set(calls: Iterable[int]) -> int:
    return sum(1 << call for call in {*calls})

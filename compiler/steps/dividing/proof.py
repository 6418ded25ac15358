"""Proves the parts of an artifact: against the reference, with frames in flight. How fast they are."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from statistics import median
from types import MappingProxyType

import numpy as np

from compiler.errors import Disagreement, InternalError
from compiler.ir.graph import Graph
from compiler.measure.benchmark import Run
from compiler.measure.compare import Comparison
from compiler.measure.plans import SPIN_US, race_plans
from compiler.measure.streaming import Streamed, own_delay_s, stream
from compiler.ops import OPERATORS
from compiler.pack.loader import Model
from compiler.prove.agree import Agreement, agree
from compiler.session import Session
from compiler.steps.building import Front
from compiler.steps.proving import AGREE_SECONDS, Case, in_declared_types

FRAMES = 24
"""Streamed to see that frames keep apart, each with inputs of its own; more where more may be in flight."""
NO_MORE: Mapping[str, Sequence[np.ndarray]] = MappingProxyType({})
JUDGED = 3
"""Of frames that carry states, those in a row that the reference is evaluated for, if it is fast."""
STREAM_SECONDS = 0.5
"""For which throughput is measured."""


@dataclass(frozen=True)
class Came:
    """What running the parts showed.

    worst      the largest relative error of an output
    period_s   from one end of a frame to the next, with as many in flight as may be
    latency_s  of a frame by itself
    busy       of each part the share of the time that it was at work
    caller_s   of a frame, processor time of the thread that submits it and takes its result
    delays_s   of each device how long others kept it from its core, for a frame; empty: not known
    clear_s    of a frame by itself, without the time for which others kept its parts from their cores
    alone_s    of each part in such a frame, processor time; empty: not known
    """

    worst: float
    period_s: float
    latency_s: float
    busy: tuple[float, ...]
    caller_s: float = 0.0
    delays_s: tuple[float, ...] = ()
    clear_s: float | None = None
    alone_s: tuple[float, ...] = ()


def proved_parts(
    session: Session, front: Front, path: Path, turns: Sequence[int], of: int, carried: Mapping[str, str]
) -> Came:
    """Runs the artifact's parts against the reference, and frames in flight against single ones, bit for bit.

    Frames are dealt to replicas in rounds `of` so many: each of these `turns` meets the reference. Where outputs are
    `carried` to inputs the frames in flight find them there, and single ones are given them by the caller; the first
    of these meet the reference, step by step, each with the state that the one before made.
    """
    runner = session.backend.runner
    if runner is None or front.opened.effort is None:
        raise InternalError("devices that are not here take part in no plan")
    with runner.open(path, plan=1, coded=True) as model:
        verdicts = [_agreement(session, front, model, turn, of, AGREE_SECONDS / 2 / len(turns)) for turn in turns]
        _demand_not_failed(verdicts)
        frames = _demand_apart(model, of, carried)
        if carried:
            count = max(1, min(JUDGED, int(AGREE_SECONDS / 2 / max(front.opened.effort.seconds, 1e-9))))
            steps = {f"frame {number} of a stream": [*frame.values()] for number, frame in enumerate(frames[:count])}
            verdicts.append(_agreement(session, front, model, turns[0], of, 0.0, steps))
            _demand_not_failed(verdicts)
        streamed, alone = _measured(model, session, of)
    worst = max(verdict.worst for verdict in verdicts)
    caller_s = streamed.caller_s / streamed.frames
    delays_s = tuple(each / streamed.frames for each in streamed.delays_s)
    return Came(
        worst,
        streamed.period_s,
        alone.seconds,
        streamed.busy,
        caller_s,
        delays_s,
        alone.clear_s,
        alone.parts_s,
    )


def _demand_not_failed(verdicts: Sequence[Agreement]) -> None:
    for verdict in verdicts:
        if verdict.failed:
            raise Disagreement(
                f"the parts of the model do not compute what it says: off by {verdict.worst:.2e} of the largest "
                f"value, where {verdict.tolerance:.2e} is granted",
                fix="compile for one device, which agreed, and report this model: it is our fault",
            )


def _agreement(
    session: Session,
    front: Front,
    model: Model,
    turn: int,
    of: int,
    budget_s: float,
    more: Mapping[str, Sequence[np.ndarray]] = NO_MORE,
) -> Agreement:
    """Of what frames at that turn of a round give; nothing else is submitted meanwhile.

    It is judged on random inputs, samples and edge cases, and on `more` inputs, in the model's order.
    """
    assert front.opened.effort is not None, "what is here was estimated"
    case = Case(front.opened.loaded.graph, None, front.opened.effort, front.opened.samples)
    options = session.options
    return agree(
        in_declared_types(lambda inputs: [model.submit_flat(inputs) for _ in range(of)][turn].result_flat(), case),
        case.graph,
        OPERATORS,
        options.tolerance,
        options.seed,
        precision=options.arithmetic,
        budget_s=budget_s,
        samples={f"sample {sample.name!r:.200}": sample.arrays for sample in case.samples}
        | {name: _by_value(case.graph, arrays) for name, arrays in more.items()},
    )


def _by_value(graph: Graph, arrays: Sequence[np.ndarray]) -> dict[int, np.ndarray]:
    """Inputs by value id, in their declared types: those of bfloat16 are given as their bits."""
    return {id: array.view(graph.values[id].type.dtype.numpy) for id, array in zip(graph.inputs, arrays, strict=True)}


def _demand_apart(model: Model, of: int, carried: Mapping[str, str]) -> list[dict[str, np.ndarray]]:
    """The inputs of many frames, each with the states that it finds.

    Raises InternalError unless each of them in flight gives the bits that it gives by itself.

    By itself through the same parts: the program of one device may have other bits, since a C compiler is free to
    contract products and sums in its own way in each library. Whole rounds `of` turns, so that a frame has the same
    turn both times, and more than may be in flight, so that what they have is used again. States are zeros at first;
    single frames are given them, and those in flight carry them.
    """
    count = max(FRAMES, model.manifest["stream"]["frames"] + of)
    given = [model.random_inputs(seed) for seed in range(ceil(count / of) * of)]
    states = {name: np.zeros_like(given[0][name]) for name in carried.values()}
    alone = []
    for number, inputs in enumerate(given):
        given[number] = {**inputs, **states}
        alone.append(model.submit(given[number]).result())
        states = {into: alone[-1][out] for out, into in carried.items()}
    unstated = [{name: array for name, array in inputs.items() if name not in states} for inputs in given]
    in_flight = [given[0], *unstated[1:]]
    for number, (expected, streamed) in enumerate(zip(alone, model.stream(in_flight), strict=True)):
        for name, array in expected.items():
            if array.tobytes() != streamed[name].tobytes():
                raise InternalError(f"frame {number} gives other bits for output {name!r} when others are in flight")
    return given


@dataclass(frozen=True)
class ByItself:
    """Seconds of a frame by itself: by the clock, and without the time for which others kept threads from cores.

    `parts_s` are those of processor time of each part, in a frame that it does.
    """

    seconds: float
    clear_s: float
    parts_s: tuple[float, ...] = ()


def _measured(model: Model, session: Session, of: int) -> tuple[Streamed, ByItself]:
    """Many frames in flight, and one by itself: of `of` frames, a round of turns, the slowest."""
    inputs = model.random_inputs(session.options.seed)
    alone = by_itself(model, inputs, of, STREAM_SECONDS / 2)
    return stream(model, inputs, STREAM_SECONDS), alone


def by_itself(model: Model, inputs: Mapping[str, np.ndarray], of: int, seconds: float) -> ByItself:
    """The median of a frame by itself at the turn where that is most: replicas need not be equally fast.

    Parts of a frame go one after another, so that delays are its own, but for those of a device that spins when its
    part has ended. So a frame is never said to take less than its parts and the caller worked, in processor time.
    """
    clock: list[list[float]] = [[] for _ in range(of)]
    clear: list[list[float]] = [[] for _ in range(of)]
    _, started = model.occupancy()
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or not clock[-1]:
        for own, without in zip(clock, clear, strict=True):
            delay_s, work_s = own_delay_s() + sum(model.delays()), sum(model.occupancy()[1])
            caller_s, begin = time.thread_time(), time.perf_counter()
            model.submit(inputs).result_flat()
            took_s, caller_s = time.perf_counter() - begin, time.thread_time() - caller_s
            delay_s = own_delay_s() + sum(model.delays()) - delay_s
            work_s = sum(model.occupancy()[1]) - work_s + caller_s
            own.append(took_s)
            without.append(min(took_s, max(took_s - delay_s, work_s)))
    frames = [len(clock[0]) * of * len(one["turns"]) / one["every"] for one in model.manifest["stream"]["parts"]]
    parts_s = tuple((to - at) / own for at, to, own in zip(started, model.occupancy()[1], frames, strict=True))
    return ByItself(max(map(median, clock)), max(map(median, clear)), parts_s)


def raced_parts(session: Session, front: Front, path: Path) -> Comparison | None:
    """One inference through the parts beside one through the program of one device: their times as a ratio.

    They are run in turn, as plans are (`compiler.measure.plans`). None where the race was called off.
    """
    runner = session.backend.runner
    assert runner is not None, "the parts were proved"
    given = front.opened.timed_inputs(session.options.seed)
    with ExitStack() as opened:

        def fresh() -> Sequence[Run]:
            opened.close()
            models = [
                opened.enter_context(runner.open(path, plan=plan, verify=False, spin_us=SPIN_US)) for plan in (1, None)
            ]
            return [
                model.bind(
                    [given[spec.name] for spec in model.inputs],
                    [np.zeros(spec.shape, spec.numpy) for spec in model.outputs],
                )
                for model in models
            ]

        raced = race_plans(fresh, session.options.seed, session.budget.stop_requested)
    return raced[1].ratio if raced else None

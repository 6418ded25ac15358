"""Which plan of a model is taken.

What the schedulers found is run whole, beside the sequential plan, and must be faster to replace it. Each plan that ran
leaves a record of kind `plan`. Where there are records of all plans that would be run, for the state in which the cores
are, they decide and nothing is run: equal records give equal choices.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

from compiler.contract import PlanReached
from compiler.ir.buffers import KernelGraph
from compiler.ir.machine import MOST_SECONDS, Record, Setting
from compiler.ir.plans.plan import Plan
from compiler.ir.target import Target
from compiler.knowledge.budget import Share
from compiler.knowledge.carried import holds, present, together
from compiler.knowledge.kinds import PLAN, PROBLEM, SEARCH, SOURCE, SPANS, STATE
from compiler.knowledge.making import Searched, plan_record, search_marker
from compiler.knowledge.records import Records
from compiler.measure.plans import LEAST_S, Raced, expected_seconds, expected_seconds_alone
from compiler.schedule.plans.found import Found
from compiler.steps.planning.spans import Span, pack_spans, unpack_spans

MOST_OTHERS = 3
"""Plans with kernels side by side that are run, of those that were found: the fastest predicted."""
HOPE = 1.25
"""A plan is run where its predicted time is less than this times that of the sequential one.

Predictions err by as much.
"""
DIGITS = 24
"""Hexadecimal, of a digest."""
LONGEST_SPANS = 12_000
"""Characters of text that a record carries of when tasks ran; of a plan with more tasks it says nothing."""
LONGEST_PROBLEM = 500
"""Characters of why a plan was left out."""

Race = Callable[[Sequence[Plan]], Sequence[Raced] | None]
"""Runs plans whole, the first one being what the others are compared with; None when it was called off."""


def model_key(kernels: KernelGraph, workloads: tuple[str, ...]) -> str:
    """SHA-256 (24 hex digits) of kernels, by their keys, and of the buffers that join them.

    Operator names play no part.
    """
    joined = [[kernels.buffers[id].storage for id in (*call.inputs, *call.outputs)] for call in kernels.calls]
    return hashlib.sha256(repr((workloads, joined)).encode()).hexdigest()[:DIGITS]


@dataclass(frozen=True)
class Subject:
    """What is compiled, for which device: what the time of a plan depends on besides the plan."""

    kernels: KernelGraph
    workloads: tuple[str, ...]
    """Keys, in call order."""
    target: Target
    setting: Setting
    state: str
    """Whether the cores are `near` to each other or `far`; empty where it is not known."""
    source_of: Callable[[Plan], str]
    """The digest of the code of all kernels under a plan's tiles."""

    @property
    def key(self) -> str:
        """The key by which records of plans name the model."""
        return model_key(self.kernels, self.workloads)


@dataclass(frozen=True)
class Choice:
    """The plan that is taken, all that were found with what they reached, and the records that say so.

    `fresh` are those of this run, with those of earlier compilers that hold for this one.

    `traced` has for each plan that was found begin and end of each of its tasks in traced runs, in seconds, as its
    record has them; empty where it has none.
    """

    plan: Plan
    reached: tuple[PlanReached, ...]
    records: tuple[Record, ...]
    fresh: tuple[Record, ...] = ()
    traced: tuple[tuple[Span, ...], ...] = ()

    @property
    def left_out(self) -> tuple[str, ...]:
        """Of each plan that failed, hung or computed something else in this run, who found it and what it did."""
        plans = (record.variant for record in self.fresh if record.kind == PLAN.name)
        return tuple(f"{plan['scheduler']}: {plan[PROBLEM]}" for plan in plans if PROBLEM in plan)

    @property
    def spans(self) -> tuple[Span, ...]:
        """Of the plan's own tasks."""
        each = zip(self.reached, self.traced, strict=True)
        return next((spans for one, spans in each if one.taken), ())


def choose_plan(
    found: Sequence[Found], subject: Subject, known: Sequence[Record], share: Share, race: Race | None
) -> Choice:
    """The fastest plan that is certainly faster than the first one, which is sequential; that one where there is none.

    What nothing is known of is no reason to leave the first one, but of one that is `trusted`, which is taken unless a
    plan is certainly faster than the first one. Plans worth it are run, as many as fit into what is left of `share`; so
    is one alone, shortly, for people to see. Nothing is run where `known` has records of all plans worth it, or says
    that as large a budget had no time for the others, nor without `race`: then the records there are decide.
    """
    worth = _worth_running(found)
    known = Records.of(known)
    records = {at: record for at in worth if (record := _recorded(found, at, subject, known))}
    fresh: dict[int, Record] = {}
    said: tuple[Record, ...] = ()
    if race is not None and not records.keys() >= {*worth} and not _was_raced(found, worth, subject, known, share):
        wanted = _within(share.left(), found, worth)
        raced = race([found[at].plan for at in wanted]) if wanted else ()
        fresh = {at: _record(found, at, one, subject) for at, one in zip(wanted, raced or (), strict=bool(raced))}
        if raced is not None and not (records | fresh).keys() >= {*worth}:
            said = (_marker(found, worth, subject, share, len(fresh)),)
    before = {id(record) for record in known.find(PLAN, subject.target, workload=subject.key)}
    held = [record for record in records.values() if id(record) not in before]
    records |= fresh
    faster = [at for at, record in records.items() if at and _is_faster(record)]
    # One that was left out has a record, so that it is neither trusted nor run again.
    trusted = next((at for at, one in enumerate(found) if one.trusted and at not in records), 0)
    taken = min(faster, key=lambda at: records[at].variant["ratio"], default=trusted)
    reached = tuple(_reached(one, records.get(at), at == taken) for at, one in enumerate(found))
    traced = tuple(_traced(one.plan, records.get(at)) for at, one in enumerate(found))
    return Choice(found[taken].plan, reached, tuple(records.values()), (*held, *fresh.values(), *said), traced)


def _traced(plan: Plan, record: Record | None) -> tuple[Span, ...]:
    return unpack_spans(plan.runs, record.variant.get(SPANS)) if record else ()


def _worth_running(found: Sequence[Found]) -> list[int]:
    """Positions of the first, and of those whose prediction is near enough.

    Of equal plans one, of side by side ones MOST_OTHERS; one that is trusted always.
    """
    limit = HOPE * found[0].plan.predicted_s
    worth, seen, others = [0], {plan_digest(found[0].plan)}, 0
    for at, one in enumerate(found[1:], 1):
        is_other = one.plan.scheduler != found[0].plan.scheduler
        if not one.trusted and (one.plan.predicted_s > limit or (is_other and others == MOST_OTHERS)):
            continue
        digest = plan_digest(one.plan)
        if digest not in seen:
            worth.append(at)
            seen.add(digest)
            others += is_other
    return worth


def _within(left_s: float, found: Sequence[Found], worth: Sequence[int]) -> list[int]:
    """As many of the first positions as can be run in so many seconds.

    Several in turn, else the first one alone, which is shorter.
    """
    ends = accumulate(expected_seconds(found[at].plan.predicted_s, LEAST_S) for at in worth)
    several = [at for at, end in zip(worth, ends, strict=True) if end <= left_s]
    if len(several) > 1:
        return several
    return [at for at in worth[:1] if expected_seconds_alone(found[at].plan.predicted_s) <= left_s]


def _was_raced(found: Sequence[Found], worth: Sequence[int], subject: Subject, known: Records, share: Share) -> bool:
    """Whether the plans worth running were run with as large a budget before, as many as there was time for."""
    return known.was_searched(SEARCH, _race_key(found, worth, subject), subject.target, subject.setting, share.seconds)


def _race_key(found: Sequence[Found], worth: Sequence[int], subject: Subject) -> str:
    """SHA-256 (24 hex digits) of a model, the plans of it that are worth running, and the state of the cores."""
    whole = subject.key, subject.state, sorted(plan_digest(found[at].plan) for at in worth)
    return hashlib.sha256(repr(whole).encode()).hexdigest()[:DIGITS]


def _marker(found: Sequence[Found], worth: Sequence[int], subject: Subject, share: Share, ran: int) -> Record:
    """Says with which budget plans were run, of which there was no time for all."""
    about = f"{len(worth)} plans worth running; the seconds that there were for it"
    searched = Searched(share.seconds, state=subject.state)
    place = _race_key(found, worth, subject), about, subject.target, subject.setting
    return search_marker(
        *place, searched, share.seconds, ran, operator="plans", lanes=max(one.plan.lanes for one in found)
    )


def plan_digest(plan: Plan) -> str:
    """SHA-256 (24 hex digits) of tiles, tasks and places, whoever found them and whatever was predicted."""
    return hashlib.sha256(str(replace(plan, scheduler="", predicted_s=0.0)).encode()).hexdigest()[:DIGITS]


def _identity(found: Sequence[Found], at: int, subject: Subject) -> dict[str, Any]:
    """What the variant of a record must say to be of a plan, run beside the first one."""
    return {
        "lanes": found[at].plan.lanes,
        STATE: subject.state,
        "plan": plan_digest(found[at].plan),
        "beside": plan_digest(found[0].plan),
        **subject.setting.to_json(),
    }


def _recorded(found: Sequence[Found], at: int, subject: Subject, known: Records) -> Record | None:
    """The last record of a plan; one of an earlier compiler that holds as one of the present."""
    wanted = _identity(found, at, subject)
    same = [
        record
        for record in reversed(known.find(PLAN, subject.target, workload=subject.key))
        if all(record.variant.get(name) == value for name, value in wanted.items()) and _is_sound(record.variant)
    ]
    here = next((record for record in same if subject.setting.is_of(record)), None)
    earlier = (record for record in same if holds(record, lambda: _source(found, at, subject)))
    return here or next(map(present, earlier), None)


def _source(found: Sequence[Found], at: int, subject: Subject) -> str:
    """The digest of the code of a plan, and of the one that it was run beside."""
    return together(subject.source_of(found[number].plan) for number in (at, 0))


def _is_sound(variant: Mapping[str, Any]) -> bool:
    """Whether it says how the plan compares, and how long finding it took, in numbers that may have been measured."""
    ratio, low, high, found_s = (variant.get(name) for name in ("ratio", "low", "high", "found_s"))
    bounds = low is high is None or (_is_number(low) and _is_number(high))
    return bounds and _is_number(ratio) and _is_number(found_s)


def _is_number(value: object) -> bool:
    return isinstance(value, float | int) and not isinstance(value, bool) and 0 <= value <= MOST_SECONDS


def _is_faster(record: Record) -> bool:
    return record.variant["high"] is not None and record.variant["high"] < 1


def _record(found: Sequence[Found], at: int, raced: Raced, subject: Subject) -> Record:
    plan = found[at].plan
    waits = sum(len(task.waits) for task in plan.tasks)
    ratio = raced.ratio if at else None
    spans = pack_spans(plan.runs, raced.spans) if raced.spans else ""
    about = f"{plan.scheduler}: {len(plan.tasks)} tasks on {plan.lanes} lanes, {waits} waits; the whole model"
    reached = {
        "scheduler": plan.scheduler,
        **_identity(found, at, subject),
        "ratio": ratio.ratio if ratio else 1.0,
        "low": ratio.low if ratio else 1.0,
        "high": ratio.high if ratio else 1.0,
        "found_s": found[at].seconds,
        SOURCE: _source(found, at, subject),
        **({SPANS: spans} if 0 < len(spans) <= LONGEST_SPANS else {}),
        **({PROBLEM: raced.problem[:LONGEST_PROBLEM]} if raced.problem else {}),
    }
    return plan_record(subject.key, about, subject.target, reached, raced.spread, plan.lanes)


def _reached(found: Found, record: Record | None, taken: bool) -> PlanReached:
    plan = found.plan
    is_sound = record is not None and PROBLEM not in record.variant
    details: Mapping[str, Any] = record.variant if record and is_sound else {}
    return PlanReached(
        scheduler=plan.scheduler,
        lanes=plan.lanes,
        waits=sum(len(task.waits) for task in plan.tasks),
        predicted_s=plan.predicted_s,
        found_s=details.get("found_s", found.seconds),
        measured_s=record.seconds if record and is_sound else None,
        ratio=details.get("ratio"),
        low=details.get("low"),
        high=details.get("high"),
        taken=taken,
    )

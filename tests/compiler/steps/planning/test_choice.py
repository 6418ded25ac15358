from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from compiler.devices.cpu.target import this_machine
from compiler.ir.buffers import Buffer, Call, KernelGraph
from compiler.ir.machine import Record, Setting, plausible
from compiler.ir.plans.lanes import LaneCosts
from compiler.ir.plans.plan import Plan
from compiler.ir.tensor import DType, TensorType
from compiler.ir.tile import Cost, Menu, Tile, Variant
from compiler.knowledge.budget import TuningBudget
from compiler.knowledge.kinds import PLAN, PROBLEM, SEARCH
from compiler.measure.compare import Comparison
from compiler.measure.plans import LEAST_S, Raced, expected_seconds
from compiler.measure.spread import Spread
from compiler.schedule import schedule
from compiler.schedule.plans.found import Found
from compiler.steps.planning.choice import HOPE, MOST_OTHERS, Choice, Subject, choose_plan, plan_digest
from tests.parse import parse_kernel

ADD = parse_kernel("kernel Add(in x0: f32[40], in x1: f32[40]; out y: f32[40]) for i:40 y[i] = add(x0[i], x1[i])")


def branches() -> KernelGraph:
    """Two chains of two calls each, joined."""
    buffers = {id: Buffer.whole(id, TensorType(DType.F32, (40,))) for id in range(7)}
    reads = {2: (0, 0), 3: (2, 2), 4: (1, 1), 5: (4, 4), 6: (3, 5)}
    return KernelGraph(buffers, tuple(Call(ADD, read, (id,)) for id, read in reads.items()), (0, 1), (6,))


KERNELS = branches()
MENUS = [Menu("key", (Variant(Tile("loops"), 4, 1, Cost(1e-3, "model")),))] * 5
SUBJECT = Subject(KERNELS, ("key",) * 5, this_machine(), Setting(), "near", lambda plan: "code")
PLANS = [one.plan for one in schedule(KERNELS, MENUS, 2, LaneCosts(1e-6))]
SEQUENTIAL = next(plan for plan in PLANS if plan.scheduler == "sequential" and plan.lanes == 2)
BESIDE = next(plan for plan in PLANS if plan.scheduler != "sequential")


def found(*predicted: float) -> list[Found]:
    """The sequential plan, then plans side by side, all different, with the predictions given, in milliseconds."""
    plans = [SEQUENTIAL, *(replace(BESIDE, arena_bytes=BESIDE.arena_bytes + 64 * n) for n in range(len(predicted) - 1))]
    return [Found(replace(plan, predicted_s=1e-3 * one), 0.25) for plan, one in zip(plans, predicted, strict=True)]


def traced(plan: Plan, slower: float = 1.0) -> tuple[tuple[float, float], ...]:
    """Each task of a plan a microsecond after the one before it, all on one clock."""
    return tuple((1e-6 * at * slower, 1e-6 * (at + 1) * slower) for at in range(len(plan.tasks)))


class Track:
    """A race that has been decided: intervals of the ratio to the first plan, in order.

    Each plan is `traced`, unless told not to be.
    """

    def __init__(self, *intervals: tuple[float, float, float], traces: bool = True) -> None:
        self.intervals, self.traces = intervals, traces
        self.ran: list[Sequence[Plan]] = []

    def __call__(self, plans: Sequence[Plan]) -> list[Raced]:
        self.ran.append(plans)
        return [
            Raced(Spread.of([ratio * 1e-3]), Comparison(ratio, low, high), traced(plan, ratio) if self.traces else ())
            for plan, (low, ratio, high) in zip(plans, [(1.0, 1.0, 1.0), *self.intervals], strict=False)
        ]


def untouched(plans: Sequence[Plan]) -> list[Raced]:
    pytest.fail("plans were run")


def chosen(
    plans: Sequence[Found],
    race: Callable[[Sequence[Plan]], Sequence[Raced] | None] | None,
    known: Sequence[Record] = (),
    subject: Subject = SUBJECT,
    budget_s: float = 60.0,
) -> Choice:
    share = TuningBudget(budget_s, clock=lambda: 0.0, shares={"plans": 1.0}).share("plans")
    choice = choose_plan(plans, subject, known, share, race)
    assert [one.taken for one in choice.reached] == [one.plan is choice.plan for one in plans]
    return choice


def test_of_the_plans_that_are_certainly_faster_the_fastest_is_taken() -> None:
    plans = found(1.0, 0.9, 0.8, 0.7)
    race = Track((0.94, 0.95, 0.99), (0.80, 0.85, 0.90), (0.70, 0.75, 1.01))
    choice = chosen(plans, race)
    assert choice.plan is plans[2].plan
    assert [one.ratio for one in choice.reached] == [1.0, 0.95, 0.85, 0.75]
    assert [one.measured_s for one in choice.reached] == pytest.approx([1e-3, 0.95e-3, 0.85e-3, 0.75e-3])
    assert [(record.kind, record.workload) for record in choice.fresh] == [(PLAN.name, SUBJECT.key)] * 4


@pytest.mark.parametrize("interval", [(0.7, 0.9, 1.0), (1.1, 1.2, 1.3), (0.5, 1.0, 2.0)])
def test_a_plan_that_is_not_certainly_faster_leaves_the_sequential_one(interval: tuple[float, float, float]) -> None:
    plans = found(1.0, 0.5)
    assert chosen(plans, Track(interval)).plan is plans[0].plan


def test_without_measuring_and_without_records_the_sequential_plan_is_taken_however_slow_its_prediction() -> None:
    plans = found(1.0, 0.1)
    choice = chosen(plans, None)
    assert choice.plan is plans[0].plan
    assert not choice.records
    assert [one.measured_s for one in choice.reached] == [None, None]


def test_a_plan_that_was_left_out_leaves_a_record_that_says_why_and_is_not_run_again() -> None:
    plans = trusting(found(1.0, 0.5, 0.9), 1)

    def race(asked: Sequence[Plan]) -> list[Raced]:
        first, _, third = Track((0.9, 0.9, 0.9), (0.8, 0.85, 0.9))(asked)
        return [first, Raced.left_out("a kernel did not end"), third]

    choice = chosen(plans, race)
    assert choice.plan is plans[2].plan
    assert choice.left_out == (f"{plans[1].plan.scheduler}: a kernel did not end",)
    (record,) = (one for one in choice.fresh if PROBLEM in one.variant)
    assert record.variant[PROBLEM] == "a kernel did not end"
    assert [one.measured_s is None for one in choice.reached] == [False, True, False]
    assert plausible([record.to_json()])
    again = chosen(plans, untouched, choice.fresh)
    assert again.plan is plans[2].plan
    assert again.left_out == ()
    alone = chosen(plans[:2], untouched, choice.fresh)
    assert alone.plan is plans[0].plan, "neither trusted nor faster"


def trusting(plans: Sequence[Found], at: int) -> list[Found]:
    return [replace(one, trusted=number == at) for number, one in enumerate(plans)]


def test_a_plan_that_is_trusted_is_taken_unless_it_is_known_not_to_be_faster() -> None:
    plans = trusting(found(1.0, 0.7, 0.8), 2)
    assert chosen(plans, None).plan is plans[2].plan
    assert chosen(plans, lambda plans: None).plan is plans[2].plan
    slower = chosen(plans, Track((0.9, 1.0, 1.1), (0.9, 1.0, 1.1)))
    assert slower.plan is plans[0].plan
    assert chosen(plans, None, slower.fresh).plan is plans[0].plan
    assert chosen(plans, Track((0.6, 0.7, 0.8), (0.9, 1.0, 1.1))).plan is plans[1].plan


def test_a_plan_that_is_trusted_is_run_whatever_is_predicted() -> None:
    plans = trusting(found(1.0, *(0.5,) * MOST_OTHERS, 2 * HOPE, 2 * HOPE), MOST_OTHERS + 1)
    race = Track(*((0.9, 1.0, 1.1),) * (MOST_OTHERS + 1))
    chosen(plans, race)
    assert [len(ran) for ran in race.ran] == [MOST_OTHERS + 2]


def test_who_is_after_a_stop_request_gets_the_sequential_plan() -> None:
    plans = found(1.0, 0.1)
    choice = chosen(plans, lambda plans: None)
    assert choice.plan is plans[0].plan
    assert not choice.fresh


def test_one_plan_alone_is_run_for_people_to_see_and_once_only() -> None:
    plans, race = found(1.0), Track()
    choice = chosen(plans, race)
    assert [len(ran) for ran in race.ran] == [1]
    assert choice.plan is plans[0].plan
    assert [(one.measured_s, one.ratio) for one in choice.reached] == [(1e-3, 1.0)]
    np.testing.assert_allclose(choice.spans, traced(plans[0].plan), atol=1e-8)
    again = chosen(plans, untouched, choice.fresh)
    assert (again.reached, again.spans, again.fresh) == (choice.reached, choice.spans, ())
    assert not chosen(plans, untouched, budget_s=0.1).records
    assert not chosen(plans, None).records


def test_the_spans_are_those_of_the_plan_that_is_taken_and_follow_from_its_record() -> None:
    plans = found(1.0, 0.9, 0.8)
    choice = chosen(plans, Track((0.4, 0.5, 0.6), (1.1, 1.2, 1.3)))
    assert choice.plan is plans[1].plan
    np.testing.assert_allclose(choice.spans, traced(plans[1].plan, 0.5), atol=1e-8)
    assert choice.traced[1] == choice.spans
    assert all(len(spans) == len(one.plan.runs) for one, spans in zip(plans, choice.traced, strict=True))
    known = plausible([json.loads(json.dumps(record.to_json())) for record in choice.fresh])
    for race in (None, untouched):
        assert chosen(plans, race, known).spans == choice.spans


def test_records_without_spans_still_decide() -> None:
    """A library that cannot be traced leaves such records; so does a text that is no spans of this plan."""
    plans = found(1.0, 0.5)
    untraced = chosen(plans, Track((0.4, 0.5, 0.6), traces=False)).fresh
    assert all("spans" not in record.variant for record in untraced)
    lies = [replace(record, variant={**record.variant, "spans": "AAAA"}) for record in untraced]
    for known in (untraced, lies):
        choice = chosen(plans, untouched, known)
        assert (choice.plan is plans[1].plan, choice.spans) == (True, ())


def test_a_record_carries_no_more_spans_than_a_service_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    plans = found(1.0, 0.5)
    assert max(len(json.dumps(record.variant)) for record in chosen(plans, Track((0.4, 0.5, 0.6))).fresh) < 16 << 10
    monkeypatch.setattr("compiler.steps.planning.choice.LONGEST_SPANS", 3)
    assert all("spans" not in record.variant for record in chosen(plans, Track((0.4, 0.5, 0.6))).fresh)


def test_equal_plans_are_run_once_and_hopeless_ones_never() -> None:
    one, two = found(1.0, 0.5)
    again = Found(replace(two.plan, scheduler="stages", predicted_s=0.6e-3), 0.1)
    hopeless = replace(two, plan=replace(two.plan, arena_bytes=1 << 20, predicted_s=1.01e-3 * HOPE))
    race = Track((0.4, 0.5, 0.6))
    choice = chosen([one, two, again, hopeless], race)
    assert [[plan_digest(plan) for plan in plans] for plans in race.ran] == [[plan_digest(p.plan) for p in (one, two)]]
    assert [one.measured_s is None for one in choice.reached] == [False, False, True, True]


def test_no_more_plans_are_run_than_are_worth_it_or_than_the_budget_allows() -> None:
    plans = found(1.0, *[1.0] * (MOST_OTHERS + 2))
    race = Track(*[(1.0, 1.0, 1.0)] * 9)
    chosen(plans, race)
    assert len(race.ran[-1]) == 1 + MOST_OTHERS
    each = expected_seconds(1e-3, LEAST_S)
    chosen(plans, race, budget_s=2.5 * each)
    assert len(race.ran[-1]) == 2
    chosen(plans, race, budget_s=1.5 * each)
    assert len(race.ran[-1]) == 1
    assert chosen(plans, untouched, budget_s=0.1).plan is plans[0].plan


def test_plans_for_which_there_was_no_time_are_not_run_later_with_no_larger_budget() -> None:
    """What a later compilation does not spend on kernels would leave time for them.

    Equal budgets would give other plans.
    """
    plans = found(1.0, 0.9, 0.8, 0.7)
    race = Track((0.4, 0.5, 0.6), (0.3, 0.4, 0.5), (0.2, 0.3, 0.4))
    some = 2.5 * expected_seconds(1e-3, LEAST_S)
    spent = TuningBudget(100.0, clock=lambda: 0.0, spent={"tiles": 100.0 - some})
    first = choose_plan(plans, SUBJECT, (), spent.share("plans"), race)
    assert [len(ran) for ran in race.ran] == [2]
    assert first.plan is plans[1].plan
    assert [record.kind for record in first.fresh] == [PLAN.name, PLAN.name, SEARCH.name]
    known = plausible([json.loads(json.dumps(record.to_json())) for record in first.fresh])
    unspent = TuningBudget(100.0, clock=lambda: 0.0).share("plans")
    again = choose_plan(plans, SUBJECT, known, unspent, untouched)
    assert (again.plan, again.reached, again.fresh) == (first.plan, first.reached, ())
    larger = choose_plan(plans, SUBJECT, known, TuningBudget(101.0, clock=lambda: 0.0).share("plans"), race)
    assert [len(ran) for ran in race.ran] == [2, 4]
    assert larger.plan is plans[3].plan
    assert [record.kind for record in larger.fresh] == [PLAN.name] * 4
    far = replace(SUBJECT, state="far")
    assert choose_plan(plans, far, known, unspent, race).fresh, "of far cores nothing is known"


def test_a_race_that_was_called_off_may_be_held_later() -> None:
    plans = found(1.0, 0.9)
    assert chosen(plans, lambda plans: None).fresh == ()


def test_records_decide_without_a_run_and_give_the_same_choice() -> None:
    plans = found(1.0, 0.9, 0.8)
    first = chosen(plans, Track((0.9, 0.95, 0.99), (0.8, 0.85, 0.9)))
    known = plausible([json.loads(json.dumps(record.to_json())) for record in first.fresh])
    for race, budget in ((untouched, 60.0), (None, 0.0)):
        again = chosen(plans, race, known, budget_s=budget)
        assert again.plan is first.plan
        assert again.reached == first.reached
        assert again.records == first.records
        assert not again.fresh


@pytest.mark.parametrize(
    "change",
    [
        {"state": "far"},
        {"setting": Setting(toolchain="another")},
        {"workloads": ("other",) * 5},
        {"target": replace(this_machine(), l3_bytes=1)},
    ],
)
def test_records_of_another_state_compiler_model_or_machine_say_nothing(change: dict[str, Any]) -> None:
    plans = found(1.0, 0.5)
    known = chosen(plans, Track((0.4, 0.5, 0.6))).fresh
    elsewhere = replace(SUBJECT, **change)
    if elsewhere.target.hardware == SUBJECT.target.hardware and "target" in change:
        known = tuple(replace(record, hardware="another") for record in known)
    assert chosen(plans, None, known, elsewhere).plan is plans[0].plan
    race = Track((1.1, 1.2, 1.3))
    assert len(chosen(plans, race, known, elsewhere).fresh) == 2


def test_a_record_of_an_earlier_compiler_decides_while_the_code_is_the_same_and_is_told_as_of_the_present_one() -> None:
    plans = found(1.0, 0.9)
    fresh = chosen(plans, Track((0.94, 0.95, 0.99))).fresh
    earlier = [replace(record, compiler="0.1.0+before") for record in fresh]
    held = chosen(plans, None, earlier)
    assert held.plan is plans[1].plan
    assert held.fresh == fresh
    assert not chosen(plans, None, [*earlier, *held.fresh]).fresh
    fixed = replace(SUBJECT, source_of=lambda plan: "fixed")
    assert chosen(plans, None, earlier, fixed).plan is plans[0].plan
    first_fixed = replace(SUBJECT, source_of=lambda plan: "fixed" if plan == plans[0].plan else "code")
    assert chosen(plans, None, earlier, first_fixed).plan is plans[0].plan, "it was run beside another code"


def test_records_beside_another_sequential_plan_say_nothing() -> None:
    """A ratio is to the plan that it was measured beside."""
    plans = found(1.0, 0.5)
    known = chosen(plans, Track((0.4, 0.5, 0.6))).fresh
    other = [Found(replace(plans[0].plan, arena_bytes=1 << 20), 0.1), plans[1]]
    assert chosen(other, None, known).plan is other[0].plan


@pytest.mark.parametrize(
    "lie",
    [
        {"ratio": float("nan")},
        {"ratio": "fast"},
        {"ratio": None},
        {"high": float("nan")},
        {"high": None},
        {"low": True},
        {"found_s": -1.0},
        {"found_s": [0.1]},
        {"found_s": float("inf")},
    ],
)
def test_records_that_cannot_be_measurements_say_nothing(lie: dict[str, Any]) -> None:
    plans = found(1.0, 0.5)
    known = [
        replace(record, variant={**record.variant, **lie}) for record in chosen(plans, Track((0.4, 0.5, 0.6))).fresh
    ]
    choice = chosen(plans, None, known)
    assert choice.plan is plans[0].plan
    assert not choice.records


def test_the_key_of_a_model_follows_from_its_kernels_and_how_they_are_joined() -> None:
    named = replace(KERNELS, calls=tuple(replace(call, sources=("a name",)) for call in KERNELS.calls))
    assert replace(SUBJECT, kernels=named).key == SUBJECT.key
    first, *rest = KERNELS.calls
    joined = replace(KERNELS, calls=(replace(first, inputs=(0, 1)), *rest))
    assert replace(SUBJECT, kernels=joined).key != SUBJECT.key
    assert replace(SUBJECT, workloads=("other",) * 5).key != SUBJECT.key


def test_a_digest_is_of_the_plan_and_not_of_who_found_it_or_what_was_predicted() -> None:
    assert plan_digest(replace(BESIDE, scheduler="stages", predicted_s=9.0)) == plan_digest(BESIDE)
    assert plan_digest(replace(BESIDE, tasks=BESIDE.tasks[::-1])) != plan_digest(BESIDE)

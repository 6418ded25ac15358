from __future__ import annotations

import math
from dataclasses import replace

import pytest

from compiler.ir.plans.plan import Plan, Task
from compiler.schedule.plans.found import Found
from compiler.steps.planning.choice import Choice
from compiler.steps.planning.guards import GAIN, NEAR_S, guarded

HERE = Plan(2, (Task(0, 0, 0, 1), Task(0, 1, 1, 2)), (), {}, 0, "sequential", 1.0)
THERE = Plan(2, (Task(0, 1, 0, 2),), (), {}, 0, "early_start", 2.0)
SLOW = replace(THERE, tasks=(Task(0, 0, 0, 2),), predicted_s=3.0)
FOUND = (Found(replace(HERE, predicted_s=2.5), 0.0), Found(SLOW, 0.0), Found(THERE, 0.0))
UNKNOWN = Choice(FOUND[0].plan, (), ())


@pytest.mark.parametrize("state", ["near", "far"])
def test_a_plan_that_is_predicted_to_gain_stands_beside_the_one_that_was_measured(state: str) -> None:
    both = guarded(HERE, state, UNKNOWN, FOUND, lambda plan: 2.6 if plan == HERE else plan.predicted_s)
    limits = {plan.scheduler: plan.most_handover_s for plan in (both.plan, *both.others)}
    near, far = ("sequential", "early_start") if state == "near" else ("early_start", "sequential")
    assert limits == {near: NEAR_S, far: math.inf}
    assert both.plan.scheduler == "sequential"


def test_a_small_gain_is_not_worth_a_second_plan() -> None:
    for predicted, others in ((2.0 / GAIN - 0.01, 0), (2.0 / GAIN + 0.01, 1)):
        both = guarded(HERE, "near", UNKNOWN, FOUND, lambda plan, s=predicted: s if plan == HERE else plan.predicted_s)  # type: ignore[misc]
        assert len(both.others) == others
        assert (both.plan.most_handover_s == math.inf) == (not others)


def test_records_of_the_other_state_decide_against_any_prediction() -> None:
    known = Choice(SLOW, (), (object(),))  # type: ignore[arg-type]
    both = guarded(HERE, "near", known, FOUND, lambda plan: 0.0)
    assert [plan.tasks for plan in both.others] == [SLOW.tasks]
    same = Choice(replace(HERE, predicted_s=9.0, scheduler="stages"), (), (object(),))  # type: ignore[arg-type]
    assert guarded(HERE, "near", same, FOUND, lambda plan: 9.0).others == ()


def test_far_cores_may_want_one_lane_and_near_ones_two() -> None:
    alone = replace(HERE, lanes=1, tasks=(Task(0, 0, 0, 2),))
    both = guarded(alone, "far", UNKNOWN, FOUND, lambda plan: 4.0 if plan == alone else plan.predicted_s)
    assert (both.plan, [plan.lanes for plan in both.others]) == (alone, [2])


def test_plans_that_predict_themselves_differently_are_compared_by_one_way_of_counting() -> None:
    """The one that promises least of itself is not the one that takes least."""
    boasting = replace(SLOW, predicted_s=0.1)
    reported = {HERE.tasks: 3.0, THERE.tasks: 2.0, SLOW.tasks: 2.9}
    found = [Found(boasting, 0.0), Found(THERE, 0.0)]
    both = guarded(HERE, "near", UNKNOWN, found, lambda plan: reported[plan.tasks])
    assert [plan.tasks for plan in both.others] == [THERE.tasks]


def test_one_lane_has_one_plan() -> None:
    assert guarded(HERE, "", UNKNOWN, FOUND, lambda plan: 99.0).others == ()

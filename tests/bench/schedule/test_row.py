from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from bench.schedule.found import OPTIMAL, Schedules
from bench.schedule.row import best, means, rows
from bench.schedule.table import markdown
from bench.settled import Settled
from compiler.contract import CompileOptions
from compiler.devices.kinds import backend_of
from compiler.ir.buffers import KernelGraph
from compiler.ir.machine import Record, Setting
from compiler.ir.plans.plan import Plan, Task, Wait
from compiler.measure.compare import Comparison
from compiler.measure.plans import Raced
from compiler.measure.spread import Spread
from compiler.schedule.plans.found import Found
from compiler.schedule.plans.instance import WAKE_LANES_S

NOTHING = KernelGraph({}, (), (), ())
FAR = Record("handover", "", "", "", "cpu", "here", {}, 2, 185e-9, 185e-9, 185e-9, 1)


def schedules(*plans: Plan, bound_s: float | None = None) -> Schedules:
    settled = Settled(NOTHING, (), 2, backend_of(CompileOptions(), {}), Setting(), (), FAR)
    return Schedules(settled, tuple(Found(plan, 0.25) for plan in plans), bound_s)


def plan(scheduler: str, predicted_s: float, *tasks: Task) -> Plan:
    return Plan(2, tasks, (), {}, 0, scheduler, predicted_s)


def raced(*ratios: float) -> list[Raced]:
    """Of 2 ms times the ratio, known to a tenth of it."""
    return [Raced(Spread.of([2e-3 * one]), Comparison(one, 0.9 * one, 1.1 * one)) for one in ratios]


def reported(model: str, found: Schedules, runs: Sequence[Raced] | None, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The rows as they come out of a file; nothing crosses lanes, as there are no kernels."""
    monkeypatch.setattr(Schedules, "crossing_bytes", lambda self, plan: 4096 * len(plan.tasks))
    return json.loads(json.dumps(rows(model, found, runs, found.taken(runs, 60.0))))


@pytest.fixture
def pair() -> tuple[Plan, Plan]:
    """The sequential plan, and one in which one lane waits for the other."""
    tasks = (Task(0, 0, 0, 1), Task(1, 1, 0, 1), Task(2, 0, 0, 1, (Wait(1, 1),)))
    return plan("sequential", 2e-3, *tasks[:2]), plan("stages", 1e-3, *tasks)


def test_a_row_tells_what_was_predicted_and_what_was_reached(
    pair: tuple[Plan, Plan], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = reported("net", schedules(*pair, bound_s=0.9e-3), raced(1.0, 0.5), monkeypatch)
    assert (one["scheduler"], one["handovers"], one["state"], one["ratio"]) == ("sequential", 0, "far", 1.0)
    assert (two["scheduler"], two["handovers"], two["launches"], two["depth"]) == ("stages", 1, 3, 2)
    assert (two["crossing_bytes"], two["search_s"], two["threads"]) == (12288, 0.25, 2)
    assert [two["predicted_ms"], two["ms"], two["bound_ms"], two["handover_ns"]] == pytest.approx(
        [1.0, 1.0, 0.9, 185.0]
    )
    assert (two["ratio"], two["ratio_interval"], two["predicted_ratio"]) == (0.5, [0.45, pytest.approx(0.55)], 0.5)
    assert two["over_bound"] == pytest.approx((1e-3 - WAKE_LANES_S) / 0.9e-3 - 1)
    assert two["prediction_gap"] == pytest.approx(0.0)
    assert (one["taken"], two["taken"]) == (False, True)
    text = markdown([one, two, {"model": "broken", "threads": 2, "problem": "no such operator"}])
    assert (
        "| stages (*) | 2 | 1 | 12 | 0.250 | 1.000 | +8.9% | 1.000 (1.000..1.000) | 0.500 (0.450..0.550) | 1.00 |"
        in text
    )
    assert "T2: 0.500" in text
    assert "- broken, T2: no such operator" in text
    assert len(text.split("| net |")) == 3


def test_what_is_not_certainly_faster_is_not_taken(pair: tuple[Plan, Plan], monkeypatch: pytest.MonkeyPatch) -> None:
    found = schedules(*pair)
    assert [row["taken"] for row in reported("net", found, raced(1.0, 0.95), monkeypatch)] == [True, False]
    assert [row["taken"] for row in reported("net", found, raced(1.0, 0.8), monkeypatch)] == [False, True]


def test_the_solver_s_schedule_is_a_yardstick_and_never_taken(
    pair: tuple[Plan, Plan], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, other = pair
    found = schedules(first, other, replace(other, scheduler=OPTIMAL, predicted_s=0.9e-3))
    assert [row["taken"] for row in reported("net", found, raced(1.0, 0.8, 0.5), monkeypatch)] == [False, True, False]


def test_what_was_not_run_is_predicted_alone_and_the_table_says_so(
    pair: tuple[Plan, Plan], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = reported("net", schedules(*pair), None, monkeypatch)
    assert [(row["ms"], row["ratio"], row["prediction_gap"]) for row in found] == [(None, None, None)] * 2
    text = markdown(found)
    assert "measured ms" not in text
    assert "Nothing was run: times are predictions for" in text
    assert "| stages | 2 | 1 | 12 | 0.250 | 1.000 | - | 0.500 |" in text


def test_a_plan_of_launches_is_told_by_streams_and_depth(
    pair: tuple[Plan, Plan], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = [{**row, "crossing_bytes": None} for row in reported("net", schedules(*pair), None, monkeypatch)]
    text = markdown(found)
    assert "| streams | launches | depth | joins | edges across |" in text
    assert "| net | stages | 2 | 3 | 2 | 1 | 1 | 0.250 | 1.0000 | 0.500 |" in text


def test_a_plan_of_launches_that_was_run_is_told_with_what_it_reached(
    pair: tuple[Plan, Plan], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = [{**row, "crossing_bytes": None} for row in reported("net", schedules(*pair), raced(1.0, 0.5), monkeypatch)]
    text = markdown(found)
    assert "| predicted ms | measured ms | of sequential | predicted / measured |" in text
    assert (
        "| net | stages (*) | 2 | 3 | 2 | 1 | 1 | 0.250 | 1.0000 | 1.000 (1.000..1.000) | 0.500 (0.450..0.550) | 1.00 |"
        in text
    )


def test_where_all_failed_there_is_no_empty_table() -> None:
    assert markdown([{"model": "net", "threads": 2, "problem": "unknown"}]) == "Failed:\n\n- net, T2: unknown\n"


def row(ratio: float, model: str = "net", threads: int = 2, taken: bool = True) -> dict[str, Any]:
    return {"model": model, "threads": threads, "ratio": ratio, "taken": taken}


def test_means_are_geometric_by_number_of_threads() -> None:
    found = [
        row(1.0, taken=False),
        row(0.5),
        row(1.0, "other"),
        row(1.0, "net", 4),
        {"model": "broken", "threads": 2, "problem": "none"},
    ]
    assert best(found) == found[1:4]
    assert means(found, "ratio") == {2: pytest.approx(0.5**0.5), 4: 1.0}

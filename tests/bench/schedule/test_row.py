from __future__ import annotations

import json
from typing import Any

import pytest

from bench.schedule.found import Schedules
from bench.schedule.row import best, means, rows
from bench.schedule.table import markdown
from compiler.contract import CompileOptions
from compiler.ir.buffers import KernelGraph
from compiler.ir.machine import Record
from compiler.ir.plan import Plan, Task, Wait
from compiler.measure.compare import Comparison
from compiler.measure.plans import Raced
from compiler.measure.spread import Spread
from compiler.schedule.found import Found
from compiler.workbench import backend_of


def row(ratio: float, interval: list[float] | None, model: str = "net", threads: int = 2) -> dict[str, Any]:
    return {"model": model, "threads": threads, "ratio": ratio, "ratio_interval": interval}


def test_a_row_tells_what_was_predicted_and_what_was_reached() -> None:
    waits = (Task(0, 0, 0, 1), Task(1, 1, 0, 1), Task(2, 0, 0, 1, (Wait(1, 1),)))
    plans = [Plan(2, waits[:2], (), {}, 0, "sequential", 2e-3), Plan(2, waits, (), {}, 0, "stages", 1e-3)]
    handover = Record("handover", "", "", "", "cpu", "here", {}, 2, 185e-9, 185e-9, 185e-9, 1)
    found = tuple(Found(plan, 0.25) for plan in plans)
    schedules = Schedules(KernelGraph({}, (), (), ()), backend_of(CompileOptions(), {}), found, handover, 0.9e-3)
    raced = [
        Raced(Spread.of([2.2e-3]), Comparison(1.0, 1.0, 1.0)),
        Raced(Spread.of([1.1e-3]), Comparison(0.5, 0.45, 0.55)),
    ]
    one, two = json.loads(json.dumps(rows("net", 2, schedules, raced)))
    assert (one["scheduler"], one["handovers"], one["state"]) == ("sequential", 0, "far")
    assert (two["scheduler"], two["handovers"], two["ratio"], two["ratio_interval"]) == ("stages", 1, 0.5, [0.45, 0.55])
    assert [two["predicted_ms"], two["ms"], two["bound_ms"], two["handover_ns"]] == pytest.approx(
        [1.0, 1.1, 0.9, 185.0]
    )
    text = markdown([one, two, {"model": "broken", "threads": 2, "problem": "no such operator"}])
    assert "stages (*)" in text
    assert "T2: 0.500" in text
    assert "- broken, T2: no such operator" in text
    assert len(text.split("| net |")) == 3


def test_what_is_not_certainly_faster_is_not_taken() -> None:
    first = row(1.0, [1.0, 1.0])
    for other in (row(0.9, [0.8, 1.01]), row(0.9, None), row(1.2, [1.1, 1.3])):
        assert best([first, other]) == [first]
    faster, fastest = row(0.9, [0.8, 0.95]), row(0.8, [0.7, 0.85])
    assert best([first, faster, fastest]) == [fastest]
    assert best([first, fastest, faster]) == [fastest]


def test_means_are_geometric_by_number_of_threads() -> None:
    told = [
        row(1.0, [1.0, 1.0]),
        row(0.5, [0.4, 0.6]),
        row(1.0, [1.0, 1.0], "other"),
        row(1.0, [1.0, 1.0], "net", 4),
        {"model": "broken", "threads": 2, "problem": "none"},
    ]
    assert means(told) == {2: pytest.approx(0.5**0.5), 4: 1.0}

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from compiler.errors import VerifyError
from compiler.ir.plans.plan import Place, Plan, Task, Wait
from compiler.ir.tile import Cost, Tile
from compiler.pack.chart.wording import duration, escaped, quantity, size, visible
from compiler.pack.facts import Facts
from compiler.pack.picture import bytes_in_use, lifetimes
from compiler.pack.timeline import expected, predicted_seconds, simulate, task_seconds
from compiler.pack.work import flops
from tests.parse import parse_kernel, parse_kernel_graph, parse_routine


def plan(*tasks: Task, lanes: int = 2, predicted_s: float = 0.0) -> Plan:
    calls = max((task.call for task in tasks), default=-1) + 1
    return Plan(lanes, tasks, ((Tile("loops"), 8),) * calls, {}, 0, "by hand", predicted_s)


def facts(seconds: Sequence[float], handover_s: float = 0.0, **given: Any) -> Facts:
    costs = tuple(Cost(one, "record") for one in seconds)
    return Facts("ab", {}, "cpu", "here", 1, 1, costs, handover_s=handover_s, **given)


def test_a_task_begins_when_its_lane_is_free_and_its_waits_are_over() -> None:
    tasks = (Task(0, 0, 0, 8), Task(1, 1, 0, 8, (Wait(0, 1),)), Task(2, 0, 0, 8))
    timeline = expected(plan(*tasks), facts([3.0, 2.0, 1.0]))
    assert [*timeline.spans] == [(0, 3), (3, 5), (3, 4)]
    assert timeline.critical == {0, 1}


def test_a_result_of_another_lane_arrives_a_handover_later() -> None:
    tasks = (Task(0, 0, 0, 8), Task(1, 1, 0, 8), Task(2, 1, 0, 8, (Wait(0, 1),)), Task(3, 1, 0, 8))
    timeline = expected(plan(*tasks), facts([3.0, 1.0, 2.0, 1.0], 0.5))
    assert [*timeline.spans] == [(0, 3), (0, 1), (3.5, 5.5), (5.5, 6.5)]
    assert [*timeline.awaited] == [(), (), (0,), ()]
    assert [*timeline.cause] == [None, None, 0, 2]
    assert timeline.critical == {0, 2, 3}


def test_a_call_split_unevenly_takes_its_time_on_the_lane_with_most_tiles() -> None:
    assert task_seconds(plan(Task(0, 0, 0, 6), Task(0, 1, 6, 8)), [3.0]) == [3.0, 1.0]


def test_a_call_in_two_pieces_on_one_lane_takes_its_time_once() -> None:
    timeline = expected(plan(Task(0, 0, 0, 4), Task(0, 0, 4, 8)), facts([3.0]))
    assert timeline.seconds == 3.0
    assert timeline.critical == {0, 1}


def test_calls_that_share_a_launch_begin_together_and_the_next_waits_for_all() -> None:
    tasks = (Task(0, 0, 0, 8), Task(1, 0, 0, 8), Task(2, 0, 0, 8, beside=True), Task(3, 0, 0, 8))
    timeline = expected(plan(*tasks, lanes=1), facts([1.0, 2.0, 5.0, 1.0]))
    assert [*timeline.spans] == [(0, 1), (1, 3), (1, 6), (6, 7)]
    assert [*timeline.own] == [(), (0,), (0,), (1, 2)]
    assert timeline.critical == {0, 2, 3}


def test_what_the_scheduler_expects_goes_before_what_the_costs_make() -> None:
    tasks = (Task(0, 0, 0, 8), Task(1, 0, 0, 8))
    said = facts([1.0, 1.0], predicted=((0.5, 1.5), (1.5, 4.0)))
    assert expected(plan(*tasks), said).spans == ((0.5, 1.5), (1.5, 4.0))
    with pytest.raises(VerifyError, match="1 spans for 2 tasks"):
        expected(plan(*tasks), facts([1.0, 1.0], predicted=((0.5, 1.5),)))


def test_the_whole_is_what_the_scheduler_says_or_else_the_last_end() -> None:
    tasks = (Task(0, 0, 0, 8), Task(1, 0, 0, 8))
    assert predicted_seconds(plan(*tasks, predicted_s=7.0), facts([1.0, 2.0])) == 7.0
    assert predicted_seconds(plan(*tasks), facts([1.0, 2.0])) == 3.0


def test_an_empty_plan_has_no_spans() -> None:
    assert simulate(plan(), []) == ()
    assert expected(plan(), facts([])).seconds == 0.0


def test_work_counts_arithmetic_and_reduction_steps_at_every_point() -> None:
    kernel = parse_kernel("""
    kernel MatMul_Relu(in a: f32[4, 8], in b: f32[8, 6]; temp t: f32[4, 6]; out y: f32[4, 6])
      for i:4, j:6
        t[i, j] = sum<f32> k:8 . mul(a[i, k], b[k, j])
        y[i, j] = max(t[i, j], 0.0:f32)
    """)
    assert flops(kernel) == 4 * 6 * (8 * 2 + 1)


def test_integers_and_comparisons_are_no_floating_point_work_and_routines_are_unknown() -> None:
    kernel = parse_kernel("""
    kernel Add_Gt(in a: i64[4], in x: f32[4]; out y: i64[4], out z: bool[4])
      for i:4
        y[i] = add(a[i], a[i])
        z[i] = gt(x[i], 0.0:f32)
    """)
    assert flops(kernel) == 0
    assert flops(parse_routine("routine Sort sort(in x: f32[4]; out y: f32[4])")) is None


GRAPH = """
kernels(b0) -> (b3)
  b0: f32[4] plain
  b1: f32[4] plain
  b2: f32[4] plain
  b3: f32[4] plain
  k0: kernel Exp(in x: f32[4]; out y: f32[4])
    for i:4
      y[i] = exp(x[i])
  b1 = k0(b0)
  b2 = k0(b1) in_place (0: 0)
  b3 = k0(b2)
"""


def test_storages_live_from_their_first_call_to_their_last_and_shared_bytes_count_once() -> None:
    graph = parse_kernel_graph(GRAPH)
    places = {0: Place("input", 0, 16), 1: Place("arena", 0, 16), 2: Place("arena", 0, 16), 3: Place("output", 0, 16)}
    boxes = lifetimes(graph, places)
    assert boxes == {1: (0, 1), 2: (1, 2)}
    assert bytes_in_use(boxes, places, 3) == [16, 16, 16]
    apart = {**places, 2: Place("arena", 64, 16)}
    assert bytes_in_use(boxes, apart, 3) == [16, 32, 16]


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0, "0 ns"), (1.5e-7, "150 ns"), (3.52e-5, "35.2 µs"), (1e-3, "1 ms"), (1.234, "1.23 s"), (200, "200 s")],
)
def test_durations(seconds: float, words: str) -> None:
    assert duration(seconds) == words


def test_sizes_and_quantities() -> None:
    assert [size(count) for count in (0, 1023, 1536, 5 << 20, 3 << 30)] == [
        "0 B",
        "1023 B",
        "1.50 KiB",
        "5 MiB",
        "3 GiB",
    ]
    assert [quantity(count, "FLOP") for count in (7, 1500, 2.34e9)] == ["7 FLOP", "1.50 kFLOP", "2.34 GFLOP"]


def test_what_cannot_be_seen_is_spelled_and_what_is_too_long_is_cut() -> None:
    assert visible("a\x00\u2028\ud800é") == "a\\u0000\\u2028\\ud800é"
    assert visible("x" * 10, 4) == "xxxx…"
    assert escaped("<b title='\"'>&") == "&lt;b title=&#x27;&quot;&#x27;&gt;&amp;"

"""The timeline's picture and figures, on plans of all shapes with random times."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from xml.etree import ElementTree

import pytest

from compiler.pack.chart.drawing import BOTTOM, LEFT, MOST_LINES, RIGHT, TOP, category, schedule_svg
from compiler.pack.chart.events import trace_events
from compiler.pack.chart.schedule import Call, Schedule, Span, Task, Timeline
from compiler.pack.chart.times import call_times, gaps, handover_share, lane_times
from compiler.pack.chart.words import SLOWEST, difference, most_different, summary, told
from tests.seeds import each

SVG = "{http://www.w3.org/2000/svg}"
KINDS = ("contraction", "loops", "softmax")


@dataclass(frozen=True)
class Drawn:
    """A plan by chance, and when its tasks ran if each began a random delay after what it must come after."""

    tasks: tuple[Task, ...]
    spans: tuple[Span, ...]
    edges: frozenset[tuple[int, int]]
    delays: tuple[float, ...]


def drawn(seed: int, lanes: int, count: int, beside: float = 0.0) -> Drawn:
    """Edges are made here from lanes and waits alone, by comparing each pair of tasks."""
    chance = random.Random(seed)
    tasks: list[Task] = []
    for at in range(count):
        lane = chance.randrange(lanes)
        others = [other for other in range(lanes) if other != lane]
        counts = {other: sum(task.lane == other for task in tasks) for other in others}
        waits = tuple(
            (other, chance.randint(1, counts[other])) for other in others if counts[other] and chance.random() < 0.4
        )
        shares = chance.random() < beside and any(task.lane == lane for task in tasks)
        tasks.append(Task(at // 2, lane, at % 2, at % 2 + 1, () if shares else waits, shares))
    first = [_first_of_launch(tasks, at) for at in range(count)]
    number = [sum(task.lane == one.lane for task in tasks[: at + 1]) for at, one in enumerate(tasks)]

    def comes_before(one: int, other: int) -> bool:
        if tasks[one].lane == tasks[other].lane:
            return first[one] != first[other]
        return any(lane == tasks[one].lane and number[one] <= count for lane, count in tasks[first[other]].waits)

    before = [[one for one in range(other) if comes_before(one, other)] for other in range(count)]
    spans: list[Span] = []
    delays: list[float] = []
    for at, task in enumerate(tasks):
        delay = chance.random() * 0.1
        begin = max((spans[one][1] for one in before[at]), default=0.0) + delay
        if task.beside:
            begin, delay = spans[first[at]][0], delays[first[at]]
        spans.append((begin, begin + chance.random()))
        delays.append(delay)
    edges = frozenset((one, other) for other, ones in enumerate(before) for one in ones)
    return Drawn(tuple(tasks), tuple(spans), edges, tuple(delays))


def _first_of_launch(tasks: Sequence[Task], at: int) -> int:
    while tasks[at].beside:
        at = max(one for one in range(at) if tasks[one].lane == tasks[at].lane)
    return at


def schedule_of(plan: Drawn, measured: Sequence[Span] = (), lanes: int = 0) -> Schedule:
    calls = 1 + max(task.call for task in plan.tasks)
    made = tuple(Call(f"Conv{call}+<&>", f"tile {call}", KINDS[call % 3], 2, 1.0, "measured") for call in range(calls))
    timeline = Timeline.of(plan.tasks, plan.spans)
    lanes = lanes or 1 + max(task.lane for task in plan.tasks)
    other = Timeline.of(plan.tasks, measured) if measured else None
    return Schedule("by <chance>", lanes, "lane", made, plan.tasks, timeline.seconds, timeline, other)


def slower(plan: Drawn, seed: int) -> tuple[Span, ...]:
    chance = random.Random(seed)
    return tuple((begin * 1.2, (begin + (end - begin) * chance.uniform(0.5, 1.0)) * 1.2) for begin, end in plan.spans)


@each(range(30))
def test_the_critical_path_is_the_longest_chain_of_tasks_and_the_delays_before_them(seed: int) -> None:
    """All chains are gone through.

    By how the spans were made, the longest takes as long as the whole, and by random lengths there is one.
    """
    plan = drawn(seed, 1 + seed % 4, 12)

    @cache
    def longest(at: int) -> tuple[float, tuple[int, ...]]:
        begin, end = plan.spans[at]
        before = [longest(one) for one, other in plan.edges if other == at]
        length, chain = max(before, default=(0.0, ()))
        return length + plan.delays[at] + end - begin, (*chain, at)

    length, chain = max(longest(at) for at in range(len(plan.tasks)))
    timeline = Timeline.of(plan.tasks, plan.spans)
    assert length == pytest.approx(timeline.seconds)
    assert timeline.critical == {*chain}
    assert [timeline.cause[at] for at in chain] == [None, *chain[:-1]]


@each(range(20))
def test_a_cause_is_what_ended_last_of_all_that_must_come_before(seed: int) -> None:
    plan = drawn(seed, 3, 30, beside=0.3)
    timeline = Timeline.of(plan.tasks, plan.spans)
    for at, cause in enumerate(timeline.cause):
        ends = [plan.spans[one][1] for one, other in plan.edges if other == at]
        assert (None if cause is None else plan.spans[cause][1]) == max(ends, default=None)


def test_a_handover_makes_a_result_of_another_lane_count_as_later() -> None:
    tasks = (Task(0, 0, 0, 1), Task(1, 1, 0, 1), Task(2, 0, 0, 1, ((1, 1),)))
    spans = ((0.0, 2.0), (0.0, 1.9), (2.2, 3.0))
    assert Timeline.of(tasks, spans).critical == {0, 2}
    assert Timeline.of(tasks, spans, 0.2).critical == {1, 2}


@each(range(20))
def test_what_each_lane_does_adds_up_to_the_whole(seed: int) -> None:
    plan = drawn(seed, 1 + seed % 5, 40, beside=0.2)
    timeline = Timeline.of(plan.tasks, plan.spans)
    times = lane_times(timeline, 1 + max(task.lane for task in plan.tasks))
    for one in times:
        assert one.busy + one.waiting + one.between + one.idle == pytest.approx(timeline.seconds)
        assert 0 <= one.handing <= one.waiting + 1e-12
        assert min(one.busy, one.between, one.idle) >= -1e-12
    assert sum(one.tasks for one in times) == 40
    assert 0 <= handover_share(timeline) < 1


def test_waiting_is_told_from_the_handover_and_from_work() -> None:
    tasks = (Task(0, 0, 0, 1), Task(1, 1, 0, 1), Task(2, 1, 0, 1, ((0, 1),)), Task(3, 1, 0, 1))
    timeline = Timeline.of(tasks, ((0.0, 3.0), (0.5, 1.0), (3.25, 4.0), (4.5, 5.0)))
    assert [gaps(timeline, at) for at in range(4)] == [(0, 0), (0, 0), (2.25, 0.25), (0, 0)]
    first, second = lane_times(timeline, 2)
    assert (first.busy, first.waiting, first.between, first.idle) == (3.0, 0.0, 0.0, 2.0)
    assert (second.busy, second.waiting, second.handing, second.between) == (1.75, 2.25, 0.25, 1.0)
    assert handover_share(timeline) == pytest.approx(0.25 / 5)


def test_a_call_takes_what_it_takes_on_the_lane_where_that_is_most() -> None:
    tasks = (Task(0, 0, 0, 1), Task(0, 1, 1, 2), Task(0, 1, 2, 3))
    plan = Drawn(tasks, ((0.0, 3.0), (0.0, 1.0), (1.0, 3.5)), frozenset(), ())
    (one,) = call_times(schedule_of(plan, ((0.0, 4.0), (0.0, 1.0), (2.0, 3.0))))
    assert (one.predicted, one.measured) == (3.5, 4.0)
    assert one.ratio == pytest.approx(4 / 3.5)


def boxes(root: ElementTree.Element) -> list[list[tuple[float, float, float, float]]]:
    """Left, top, right and bottom of each task's boxes."""
    found = []
    for task in root.iter(f"{SVG}g"):
        sizes = [
            [float(rect.get(key, "")) for key in ("x", "y", "width", "height")] for rect in task.iter(f"{SVG}rect")
        ]
        found.append([(x, y, x + wide, y + high) for x, y, wide, high in sizes])
    return found


@pytest.mark.parametrize(
    ("lanes", "count", "beside"), [(1, 30, 0.3), (2, 40, 0.0), (8, 300, 0.0), (40, 200, 0.0), (4, 1000, 0.2)]
)
def test_boxes_lie_inside_and_never_over_each_other(lanes: int, count: int, beside: float) -> None:
    plan = drawn(7, lanes, count, beside)
    schedule = schedule_of(plan, slower(plan, 3), lanes)
    root = ElementTree.fromstring(schedule_svg(schedule))
    width, height = (float(root.get(key, "")) for key in ("width", "height"))
    found = boxes(root)
    assert len(found) == count
    rows: dict[tuple[int, int], list[tuple[float, float, float, float]]] = {}
    for task, pair in zip(plan.tasks, found, strict=True):
        assert len(pair) == 2
        for row, box in enumerate(pair):
            left, top, right, bottom = box
            assert left >= LEFT - 1e-6
            assert right <= width - RIGHT + 0.02
            assert top >= TOP
            assert bottom <= height - BOTTOM
            rows.setdefault((task.lane, row), []).append(box)
    edges = []
    for _, inside in sorted(rows.items()):
        inside.sort()
        if not beside:
            assert all(one[2] <= other[0] + 0.35 for one, other in pairwise(inside))
        edges.append((min(box[1] for box in inside), max(box[3] for box in inside)))
    assert all(one[1] < other[0] for one, other in pairwise(edges)), "rows overlap"


def test_parts_of_a_launch_are_one_above_another_in_the_row() -> None:
    tasks = (Task(0, 0, 0, 1), Task(1, 0, 0, 1, (), True), Task(2, 0, 0, 1, (), True), Task(3, 0, 0, 1))
    plan = Drawn(tasks, ((0.0, 1.0), (0.0, 2.0), (0.0, 0.5), (2.0, 3.0)), frozenset(), ())
    ((one,), (two,), (three,), (alone,)) = boxes(ElementTree.fromstring(schedule_svg(schedule_of(plan))))
    assert one[0] == two[0] == three[0]
    assert one[1] < one[3] < two[1] < two[3] < three[1] < three[3]
    assert f'class="launch" d="M{LEFT:.2f} {TOP}H{two[2] + 0.5:.2f}v' in schedule_svg(schedule_of(plan))
    assert alone[1] == one[1]
    assert alone[3] - alone[1] == pytest.approx(3 * (two[1] - one[1]), abs=0.01)


def test_launches_are_told_where_tasks_share_them() -> None:
    shared, apart = (schedule_of(drawn(1, 2, 20, beside)) for beside in (0.5, 0.0))
    launches = sum(not task.beside for task in shared.tasks)
    assert f"20 tasks in {launches} launches" in summary(shared)[1]
    assert "launch" not in summary(apart)[1]


def test_a_title_tells_predicted_and_measured_time_and_their_ratio() -> None:
    plan = Drawn((Task(0, 0, 0, 2),), ((0.0, 2e-6),), frozenset(), ())
    title = ElementTree.fromstring(schedule_svg(schedule_of(plan, ((1e-6, 4e-6),)))).findtext(f".//{SVG}title")
    assert title == (
        "Conv0+<&>\ncall 0, tiles 0..2 of 2\npredicted 2 µs from 0 ns, critical\nmeasured 3 µs from 1 µs, critical\n"
        "measured over predicted 1.50\nall of the call 1 s (measured)\ntile 0"
    )


def test_strong_boxes_are_those_of_the_critical_path_in_each_row() -> None:
    plan = drawn(11, 2, 30)
    schedule = schedule_of(plan, slower(plan, 5))
    root = ElementTree.fromstring(schedule_svg(schedule))
    tasks = list(root.iter(f"{SVG}g"))
    for row, (_, timeline) in enumerate(schedule.timelines):
        strong = {at for at, task in enumerate(tasks) if list(task.iter(f"{SVG}rect"))[row].get("class") is None}
        assert strong == timeline.critical


def test_of_many_handovers_only_those_are_drawn_that_decided_something() -> None:
    few, many = (schedule_of(drawn(2, 6, count)) for count in (60, 600))
    for schedule, all_of_them in ((few, True), (many, False)):
        timeline = schedule.timelines[0][1]
        awaited = [(one, at) for at, ones in enumerate(timeline.awaited) for one in ones]
        assert (len(awaited) <= MOST_LINES) is all_of_them
        root = ElementTree.fromstring(schedule_svg(schedule))
        lines = {
            str(path.get("class")): path.get("d", "").count("L")
            for path in root.iter(f"{SVG}path")
            if "L" in path.get("d", "")
        }
        decided = sum(timeline.crosses(at) for at in timeline.critical)
        waited = sum(timeline.crosses(at) for at in range(len(schedule.tasks)))
        assert lines["deciding"] == decided
        assert lines["handover"] == (len(awaited) - decided if all_of_them else waited - decided)


def test_only_what_is_known_is_drawn() -> None:
    plan = drawn(3, 2, 20)
    measured = Schedule(
        "far", 2, "lane", schedule_of(plan).calls, plan.tasks, 2.0, None, Timeline.of(plan.tasks, plan.spans)
    )
    for schedule, name, other in ((schedule_of(plan), "predicted", "measured"), (measured, "measured", "predicted")):
        text = schedule_svg(schedule)
        assert all(len(pair) == 1 for pair in boxes(ElementTree.fromstring(text)))
        assert f'text-anchor="end">{name}<' in text
        assert f'text-anchor="end">{other}<' not in text
        assert call_times(schedule) == ()
        assert not any("differs most" in line for line in summary(schedule))
    assert "not known of this plan" in schedule_svg(measured)


def test_the_summary_fits_on_a_screen_and_tells_the_calls_that_differ_most() -> None:
    plan = drawn(5, 2, 100)
    schedule = schedule_of(plan, slower(plan, 9))
    lines = summary(schedule)
    assert len(lines) < 30
    differing = most_different(schedule)
    assert len(differing) == SLOWEST
    least = abs(differing[-1].more)
    assert all(abs(one.more) <= least for one in call_times(schedule) if one not in differing)
    assert re.match(r"Predicted .* s, measured .* s: .*% longer", lines[0])


@each(range(5))
def test_trace_events_are_the_tasks_and_their_handovers(seed: int) -> None:
    plan = drawn(seed, 3, 30, beside=0.2)
    told_of = trace_events(schedule_of(plan, slower(plan, seed)))
    assert json.loads(json.dumps(told_of, allow_nan=False)) == told_of
    events = told_of["traceEvents"]
    names = {(one["pid"], one["tid"], one["args"]["name"]) for one in events if one["ph"] == "M"}
    assert {(1, 0, "predicted"), (2, 0, "measured"), (2, 2, "lane 2")} <= names
    for process, spans in ((1, plan.spans), (2, slower(plan, seed))):
        timeline = Timeline.of(plan.tasks, spans)
        slices = [one for one in events if one["ph"] == "X" and one["pid"] == process]
        assert [(one["tid"], one["args"]["call"]) for one in slices] == [(task.lane, task.call) for task in plan.tasks]
        assert [one["args"]["critical path"] for one in slices] == [at in timeline.critical for at in range(30)]
        found = [1e-6 * value for one in slices for value in (one["ts"], one["ts"] + one["dur"])]
        assert found == pytest.approx([value for span in spans for value in span])
        begun, ended = (
            [one["id"] for one in events if one["ph"] == end and one["pid"] == process] for end in ("s", "f")
        )
        assert sorted(begun) == sorted(ended)
        assert len({*begun}) == len(begun) == sum(map(len, timeline.awaited)) > 0


@pytest.mark.parametrize(
    ("excess", "words"),
    [(0.0, "0.0% longer"), (0.052, "5.2% longer"), (-0.1, "10.0% shorter"), (1.26, "2.3 times as long")],
)
def test_differences(excess: float, words: str) -> None:
    assert difference(excess) == words


def test_everything_is_told_to_programs() -> None:
    plan = drawn(6, 3, 20)
    schedule = schedule_of(plan, slower(plan, 9))
    said = told(schedule)
    assert said["measured_s"] == max(end for _, end in slower(plan, 9))
    assert [tuple(task["predicted_s"]) for task in said["tasks"]] == list(plan.spans)
    assert [set(one["critical"]) for one in said["timelines"].values()] == [
        line.critical for _, line in schedule.timelines
    ]


@pytest.mark.parametrize(
    ("algorithm", "kind"),
    [
        ("contraction", "contraction"),
        ("gemv24", "contraction"),
        ("mma_3xtf32", "contraction"),
        ("separable_tf32", "contraction"),
        ("window", "loops"),
        ("loops", "loops"),
        ("routine", "other"),
        ("attention", "other"),
        ("sequential", "other"),
    ],
)
def test_algorithms_have_the_colour_of_what_they_do(algorithm: str, kind: str) -> None:
    assert category(algorithm) == kind


def test_a_plan_without_tasks_has_a_picture() -> None:
    nothing = Timeline.of((), ())
    root = ElementTree.fromstring(schedule_svg(Schedule("none", 1, "lane", (), (), 0.0, nothing, nothing)))
    assert not boxes(root)

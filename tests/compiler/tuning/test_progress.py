"""What a search tells of itself is what it did."""

from __future__ import annotations

import json
import math

from compiler.contract import Event
from compiler.trace import Trace
from compiler.tuning.progress import MOST, TuningProgress, sums
from compiler.tuning.search import Budget, Search
from tests.compiler.tuning.test_search import Machine, contest
from worker.attempt.supervise import to_event

TRUTH = {"a": [4.0, 3.0, 2.0, 9.0, 8.0], "b": [1.0, 1.5, 1.25]}
MODEL = {"a": [3.0, 3.5, 4.0, 4.5, 5.0], "b": [1.0, 1.1, 1.2]}


def reported() -> tuple[Search, list[Event]]:
    machine = Machine(TRUTH)
    contests = [contest("a", MODEL["a"], uses=2), contest("b", MODEL["b"])]
    events: list[Event] = []
    search = Search(contests, machine, Budget(1e9, None, lambda: machine.now))
    progress = TuningProgress(search, Trace(events.append))
    for one, record in search.run():
        progress.add(one, record)
    progress.tell()
    return search, events


def test_each_measurement_is_told_once_beside_its_forecast() -> None:
    search, events = reported()
    tried = [one for event in events for one in event.data["tried"]]
    assert len([one for one in tried if not one["again"]]) == search.measured > 3
    for one in tried:
        assert one["measured_s"] == TRUTH[one["kernel"]][one["candidate"]]
        assert math.isclose(one["predicted_s"], MODEL[one["kernel"]][one["candidate"]])
    assert {one["kernel"]: one["uses"] for one in tried} == {"a": 2, "b": 1}


def test_the_last_word_is_where_the_search_ended() -> None:
    search, events = reported()
    last = events[-1].data
    assert (last["measured"], last["legal"], last["exhausted"]) == (search.measured, 8, True)
    assert last["best_s"] == 2 * search.contests[0].best + search.contests[1].best
    assert (last["promising"], last["expected_gain_s"]) == (0, 0)
    times = [event.data["elapsed_s"] for event in events]
    assert times == sorted(times)


def test_what_is_still_promising_is_worth_what_was_expected_of_it() -> None:
    machine = Machine(TRUTH)
    search = Search([contest("a", MODEL["a"])], machine, Budget(1e9, 3, lambda: machine.now))
    events: list[Event] = []
    progress = TuningProgress(search, Trace(events.append))
    for one, record in search.run():
        progress.add(one, record)
    progress.tell()
    first = [event.data for event in events if event.data["promising"]]
    assert first, "three of five were measured"
    assert all(0 < one["expected_gain_s"] < one["best_s"] for one in first)
    assert all(one["gains"][-1] == (one["promising"], one["expected_gain_s"]) for one in first)
    assert all((one["budget_s"], one["each_s"]) == (1e9, 1.0) for one in first)
    assert 0 < first[-1]["left_s"] < 1e9 - first[-1]["elapsed_s"], "a part is kept for measuring leaders again"


def test_the_savings_of_many_are_told_at_few_places() -> None:
    assert sums([]) == []
    assert sums([4.0]) == [(1, 4.0)]
    assert sums([4.0, 3.0, 2.0, 1.0, 0.5]) == [(1, 4.0), (2, 7.0), (4, 10.0), (5, 10.5)]
    assert len(sums([1.0] * 1000)) == 11


def test_what_was_measured_of_a_batch_is_no_longer_expected_to_save_anything() -> None:
    machine = Machine(TRUTH)
    search = Search([contest("a", MODEL["a"], uses=2)], machine, Budget(1e9, None, lambda: machine.now))
    left = [(search.measured, search.gains) for _ in search.run()]
    known = [(measured, len(gains)) for measured, gains in left if gains is not None]
    assert known
    assert known[0][1] == 0, "the only one that was promising was measured"
    assert left[0][1] is None, "before the first measurements of each kernel nothing is known"


def test_a_worker_takes_the_longest_event() -> None:
    search, events = reported()
    one = {**events[-1].data, "tried": [{**events[0].data["tried"][0]}] * MOST}
    for tried in one["tried"]:
        tried |= {"kernel": "0" * 24, "name": "x" * 48, "predicted_s": math.pi / 1e9, "measured_s": math.e / 1e9}
        tried |= {"candidate": 127, "uses": 1000, "again": False}
    one["gains"] = [list(place) for place in sums([math.pi / 1e9] * 1000)]
    plain = {**events[-1].to_json(), "data": one}
    assert to_event(json.loads(json.dumps(plain))).data == one
    assert search.measured > 0

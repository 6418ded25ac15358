"""Requests that are joined into runs: what each gets back, whose turn it is, and what ends those that wait."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.batching import Batcher, Busy, Costs, DeadlineMissed, Texts, joiner_of
from tilewright.errors import ClientError, UsageError
from tilewright.loading import Model


def spec(name: str, *shape: int, open_: str = "") -> SimpleNamespace:
    axis = SimpleNamespace(name=open_, low=1, high=shape[0]) if open_ else None
    return SimpleNamespace(name=name, shape=shape, axes=(axis, *(None,) * (len(shape) - 1)))


@dataclass
class Fake:
    """A model of texts that gives the sum of each, and a row for each token; `runs` are the texts of each run."""

    tokens: int = 20
    most: int = 4
    gate: threading.Event = field(default_factory=threading.Event)
    runs: list[list[int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.gate.set()
        self.inputs = (spec("ids", self.tokens, open_="tokens"), spec("offsets", self.most + 1, open_="offsets"))
        self.outputs = (spec("sum", self.most), spec("rows", self.tokens))
        self.bindings = (self,)
        self.manifest: Mapping[str, Any] = {"open": {"texts": {"by_tokens": [False, True]}}}

    def run_texts(self, texts: Sequence[Any]) -> list[dict[str, np.ndarray]]:
        assert self.gate.wait(60)
        lines = [np.asarray(one["ids"] if isinstance(one, dict) else one) for one in texts]
        self.runs.append([len(line) for line in lines])
        if any((line < 0).any() for line in lines):
            raise ValueError("a token is negative")
        return [{"sum": np.array(line.sum()), "rows": line * 2} for line in lines]


class Rows:
    """A model with an open batch that doubles its input."""

    inputs = (spec("x", 6, 2, open_="batch"),)
    outputs = (spec("y", 6, 2, open_="rows"),)
    manifest: Mapping[str, Any] = {}

    def __init__(self) -> None:
        self.bindings = (self,)
        self.sizes: list[int] = []

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        self.sizes.append(len(inputs["x"]))
        return {"y": 2 * np.asarray(inputs["x"])}


@contextmanager
def batching(model: Any, **options: Any) -> Iterator[Batcher]:
    with Batcher(cast(Model, model), **options) as batcher:
        yield batcher


@contextmanager
def held(model: Fake, batcher: Batcher) -> Iterator[None]:
    """One request is in a run that ends with the context; what is submitted inside waits for it."""
    model.gate.clear()
    batcher.submit([[1]], caller="first")
    until(lambda: not len(batcher))
    try:
        yield
    finally:
        model.gate.set()


def until(holds: Callable[[], bool]) -> None:
    for _ in range(6000):
        if holds():
            return
        time.sleep(0.01)
    raise AssertionError("it did not come to that")


@given(st.lists(st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=6), min_size=1, max_size=3), max_size=12))
@settings(max_examples=30, deadline=None)
def test_each_request_gets_its_own_answer(requests: list[list[list[int]]]) -> None:
    with batching(model := Fake()) as batcher:
        found = [batcher.submit(request, at % 3) for at, request in enumerate(requests)]
        for request, future in zip(requests, found, strict=True):
            answers = future.result(60)
            assert [int(one["sum"]) for one in answers] == [sum(text) for text in request]
    assert sum(map(len, model.runs)) == sum(map(len, requests))


def test_what_waits_meanwhile_is_one_run_of_as_many_as_fit() -> None:
    with batching(model := Fake()) as batcher:
        with held(model, batcher):
            waiting = [batcher.submit([[1] * size]) for size in (5, 5, 5, 9, 9, 1)]
        for one in waiting:
            one.result(60)
    assert model.runs == [[1], [5, 5, 5], [9, 9, 1]]


def test_a_run_waits_for_more_as_long_as_it_may_and_no_longer_than_it_is_full() -> None:
    with batching(model := Fake(), wait_s=60.0) as batcher:
        found = [batcher.submit([[1] * 10]) for _ in range(2)]
        assert [len(one.result(60)) for one in found] == [1, 1]
    assert model.runs == [[10, 10]]


def test_callers_take_turns_by_tokens() -> None:
    with batching(model := Fake(tokens=6)) as batcher:
        with held(model, batcher):
            many = [batcher.submit([[1] * 3], "many") for _ in range(6)]
            few = batcher.submit([[2] * 2], "few")
        for one in (few, *many):
            one.result(60)
    assert model.runs[1:] == [[3, 2], [3, 3], [3, 3], [3]]


def test_as_many_wait_as_may_and_those_that_are_cancelled_do_not_count() -> None:
    with batching(model := Fake(), queue=2) as batcher:
        with held(model, batcher):
            one, two = (batcher.submit([[7]]) for _ in range(2))
            with pytest.raises(Busy, match="2 requests wait"):
                batcher.submit([[1]])
            assert one.cancel()
            three = batcher.submit([[3]])
        assert [int(each.result(60)[0]["sum"]) for each in (two, three)] == [7, 3]
    assert model.runs == [[1], [1, 1]]


def test_what_cannot_be_answered_in_time_is_not_run() -> None:
    with batching(model := Fake()) as batcher:
        with held(model, batcher):
            late, soon = batcher.submit([[1] * 5], timeout_s=0.0), batcher.submit([[1] * 2], timeout_s=600.0)
        with pytest.raises(DeadlineMissed):
            late.result(60)
        soon.result(60)
    assert model.runs == [[1], [2]]


def test_a_request_that_fails_spoils_no_others() -> None:
    with batching(model := Fake()) as batcher:
        with held(model, batcher):
            good, bad, other = (batcher.submit([[one]]) for one in (4, -1, 6))
        assert int(good.result(60)[0]["sum"]) == 4
        assert int(other.result(60)[0]["sum"]) == 6
        with pytest.raises(ValueError, match="negative"):
            bad.result(60)


def test_what_waits_is_answered_before_the_end_and_nothing_is_taken_after_it() -> None:
    model = Fake()
    batcher = Batcher(cast(Model, model))
    with held(model, batcher):
        waiting = batcher.submit([[8]])
    batcher.close()
    assert waiting.done()
    with pytest.raises(ClientError, match="closed"):
        batcher.submit([[1]])


def test_samples_are_joined_where_shapes_are_alike() -> None:
    model, entered, go = Rows(), threading.Event(), threading.Event()

    def work(call: Callable[[Model], list[Any]]) -> list[Any]:
        entered.set()
        assert go.wait(60)
        return call(cast(Model, model))

    with batching(model, work=work) as batcher:
        first = batcher.submit({"x": np.ones((1, 2), np.float32)})
        assert entered.wait(60)
        others = [batcher.submit({"x": np.full((size, 2), size, np.float32)}) for size in (2, 3, 2)]
        wide = batcher.submit({"x": np.ones((1, 3), np.float32)})
        go.set()
        assert first.result(60)["y"].tolist() == [[2, 2]]
        for size, one in zip((2, 3, 2), others, strict=True):
            np.testing.assert_array_equal(one.result(60)["y"], np.full((size, 2), 2 * size))
        assert wide.result(60)["y"].shape == (1, 3)
    assert model.sizes == [1, 5, 2, 1]


@pytest.mark.parametrize(
    ("request_", "said"),
    [({}, "other inputs"), ({"x": np.ones(())}, "no axis of samples"), ([], "other inputs")],
)
def test_requests_that_are_none_are_refused(request_: Any, said: str) -> None:
    with batching(Rows()) as batcher, pytest.raises(UsageError, match=said):
        batcher.submit(request_)


def test_a_model_that_takes_one_at_a_time_is_refused() -> None:
    fixed = SimpleNamespace(manifest={}, bindings=[SimpleNamespace(inputs=(spec("x", 1, 2),), outputs=())], inputs=())
    assert joiner_of(cast(Model, fixed)) is None
    with pytest.raises(UsageError, match="cannot be joined"):
        Batcher(cast(Model, fixed))


def test_texts_go_into_the_programs_own_form_and_back() -> None:
    joiner = joiner_of(cast(Model, model := Fake()))
    assert isinstance(joiner, Texts)
    texts = joiner.apart({"ids": np.arange(6), "offsets": np.array([0, 1, 6])})
    assert [one["ids"].tolist() for one in texts] == [[0], [1, 2, 3, 4, 5]]
    whole = joiner.together(model.run_texts(texts))
    assert whole["sum"].tolist() == [0, 15]
    assert whole["rows"].tolist() == [0, 2, 4, 6, 8, 10]
    for offsets in ([0, 6, 6], [1, 6], [0, 5], [6], [0, 4, 2, 6]):
        with pytest.raises(UsageError, match="offsets are not those"):
            joiner.apart({"ids": np.arange(6), "offsets": np.array(offsets)})
    with pytest.raises(UsageError, match="other inputs"):
        joiner.apart({"ids": np.arange(6)})


@given(st.floats(0, 1e-2), st.floats(1e-6, 1e-3), st.lists(st.integers(1, 2000), min_size=2, max_size=40, unique=True))
def test_the_time_of_a_run_is_learnt_from_others(run: float, token: float, sizes: list[int]) -> None:
    costs = Costs()
    assert costs.seconds(100) == 0
    assert costs.enough(2048) == 2048
    for size in sizes:
        costs.add(size, run + token * size)
    assert costs.seconds(500) == pytest.approx(run + token * 500, rel=1e-6, abs=1e-9)
    enough = costs.enough(2048)
    assert 1 <= enough <= 2048
    assert enough == 2048 or run / enough <= 0.0301 * token + 1e-12

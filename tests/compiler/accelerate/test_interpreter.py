"""Several inferences in flight through the parts of a pipeline, which here are functions of arrays."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from random import Random
from typing import Any

import numpy as np
import pytest

from compiler.accelerate.interpreter import ArtifactError, Frame, Model, PartRun, Pipeline, Stream, step, taken
from compiler.accelerate.stages import Stages
from tests.servers import GUARD_S

ROW = {"name": "y", "held": "t4"}
PARTS = [(1, ["x"], ["t1"]), (0, ["t1"], ["t2"]), (1, ["t1", "t2"], ["t3"]), (0, ["t3", "x"], ["t4"])]


def _described(
    parts: Sequence[tuple[int, list[str], list[str]]], carried: Sequence[tuple[str, str]] = ()
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """What a manifest says of these: device, inputs and outputs of each."""
    stages = Stages.of(parts, ["x", *(read for _, read in carried)], carried)
    described = {
        "devices": [{}, {}],
        "frames": stages.frames,
        "parts": [
            {"device": one.device, "after": [{"part": each.part, "frames": each.frames} for each in one.after]}
            for one in stages.stages
        ],
        "edges": [{"name": name, "slots": slots} for name, slots in stages.edges.items()],
    }
    return described, [{"inputs": inputs, "outputs": outputs} for _, inputs, outputs in parts]


def _arithmetic(number: int) -> PartRun:
    """Another function for each part: of an array x it makes 3x and the number of the part, of several their sum."""
    return lambda arrays: [3 * sum(arrays) + number]  # type: ignore[list-item]


def _wanted(value: int) -> np.ndarray:
    held = {"x": np.array([value])}
    for number, (_, inputs, outputs) in enumerate(PARTS):
        step(inputs, outputs, _arithmetic(number), held)
    return taken([ROW], held)["y"]


@pytest.fixture
def opened() -> Iterator[Callable[[Sequence[PartRun]], Pipeline]]:
    pipelines: list[Pipeline] = []

    def open_one(runs: Sequence[PartRun]) -> Pipeline:
        pipelines.append(Pipeline(*_described(PARTS), runs))
        return pipelines[-1]

    yield open_one
    for one in pipelines:
        one.close()


def _begun(pipeline: Pipeline, value: int) -> Frame:
    return pipeline.submit({"x": np.array([value])}, [ROW])


@pytest.mark.parametrize("seed", range(4))
def test_frames_in_flight_are_what_they_are_one_by_one_whatever_parts_take(
    seed: int, opened: Callable[[Sequence[PartRun]], Pipeline]
) -> None:
    random = Random(seed)

    def delayed(number: int) -> PartRun:
        own, delays = _arithmetic(number), [random.choice((0.0, 0.0, 1e-4, 1e-3)) for _ in range(97)]

        def run(arrays: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
            time.sleep(delays[int(arrays[0][0]) % 97])
            return own(arrays)

        return run

    pipeline = opened([delayed(number) for number in range(4)])
    frames = [_begun(pipeline, value) for value in range(60)]
    for value, frame in enumerate(frames):
        np.testing.assert_array_equal(frame.result()["y"], _wanted(value))
    ended, work = pipeline.work()
    assert (ended, len(work)) == (60, 4)


def test_the_accelerator_works_on_the_next_frame_while_the_cpu_works_on_this_one(
    opened: Callable[[Sequence[PartRun]], Pipeline],
) -> None:
    """Parts 1 (CPU) and 0 (accelerator) wait for each other: frame f on the CPU for frame f + 1 on the accelerator."""
    meeting = threading.Barrier(2, timeout=GUARD_S)
    met: list[tuple[int, int]] = []

    def accelerator(arrays: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
        value = int(arrays[0][0])
        if 0 < value < 5:
            meeting.wait()
        return [np.array([value])]

    def cpu(arrays: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
        value = int(arrays[0][0])
        if value < 4:
            meeting.wait()
            met.append((value, threading.get_ident()))
        return [np.array([value])]

    last: list[PartRun] = [lambda arrays: [arrays[1]], lambda arrays: [arrays[0]]]
    pipeline = opened([accelerator, cpu, *last])
    frames = [_begun(pipeline, value) for value in range(5)]
    assert [int(frame.result()["y"][0]) for frame in frames] == [0, 1, 2, 3, 4]
    assert [value for value, _ in met] == [0, 1, 2, 3]
    assert len({thread for _, thread in met}) == 1


@pytest.mark.parametrize(("ended", "begins"), [([3, 1, 1, 0], 1), ([4, 3, 2, 0], 3), ([1, 1, 0, 0], None)])
def test_a_device_takes_the_part_of_the_earliest_round(
    ended: list[int], begins: int | None, opened: Callable[[Sequence[PartRun]], Pipeline]
) -> None:
    """Of frames 1 and 0 for parts 1 and 3, rounds 2 and 3, the newer frame; of rounds 4 and 3 the later part."""
    pipeline = opened([_arithmetic(number) for number in range(4)])
    pipeline.close()
    pipeline._ended, pipeline._begun = ended, 5
    assert pipeline._next([1, 3]) == begins


STATE = ({"name": "y", "held": "t4"}, {"name": "s", "held": "s", "shape": [1], "dtype": "int64"})
RECURRENT = [(1, ["x"], ["t1"]), (0, ["t1", "s"], ["t2"]), (1, ["t1", "t2"], ["t3"]), (0, ["t3", "x"], ["t4"])]


def _recurrent(values: Sequence[int], given: dict[int, int]) -> list[int]:
    """What frames make one by one, each of the state that is given it, or that the one before made; first of 0."""
    found: list[int] = []
    for at, value in enumerate(values):
        state = given.get(at, found[-1] if found else 0)
        held = {"x": np.array([value]), "s": np.array([state])}
        for number, (_, inputs, outputs) in enumerate(RECURRENT):
            step(inputs, outputs, _modular(number), held)
        found.append(int(held["t4"][0]))
    return found


def _modular(number: int) -> PartRun:
    return lambda arrays: [(3 * sum(arrays) + number) % 1009]  # type: ignore[list-item]


@pytest.mark.parametrize("seed", range(4))
def test_a_state_goes_from_frame_to_frame_whatever_parts_take(seed: int) -> None:
    random = Random(seed)

    def delayed(number: int) -> PartRun:
        delays = [random.choice((0.0, 0.0, 1e-4, 1e-3)) for _ in range(97)]

        def run(arrays: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
            time.sleep(delays[int(arrays[0][0]) % 97])
            return _modular(number)(arrays)

        return run

    values, given = [random.randrange(1000) for _ in range(50)], {0: 17, 30: 5}
    with closing(Pipeline(*_described(RECURRENT, [("t4", "s")]), [delayed(number) for number in range(4)])) as pipeline:
        frames = []
        for at, value in enumerate(values):
            held = {"x": np.array([value])} | ({"s": np.array([given[at]])} if at in given else {})
            frames.append(pipeline.submit(held, [ROW], [] if at in given else [STATE]))
        assert [int(frame.result()["y"][0]) for frame in frames] == _recurrent(values, given)
        assert all(frame.before is None for frame in frames), "frames that have ended hold none before them"


def test_without_a_state_the_first_frame_has_zeros() -> None:
    with closing(Pipeline(*_described(RECURRENT, [("t4", "s")]), [_modular(number) for number in range(4)])) as one:
        frames = [one.submit({"x": np.array([value])}, [ROW], [STATE]) for value in range(5)]
        assert [int(frame.result()["y"][0]) for frame in frames] == _recurrent(range(5), {})


@pytest.mark.parametrize("fails", range(4))
def test_a_state_that_a_failed_frame_did_not_make_is_lost_until_one_is_given(fails: int) -> None:
    def failing(number: int) -> PartRun:
        def run(arrays: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
            calls[number] += 1
            if number == fails and calls[number] == 3:
                raise RuntimeError("failed")
            return _modular(number)(arrays)

        return run

    calls = [0, 0, 0, 0]
    with closing(Pipeline(*_described(RECURRENT, [("t4", "s")]), [failing(number) for number in range(4)])) as one:
        frames = []
        for at in range(8):
            state = {"s": np.array([9])} if at == 5 else {}
            frames.append(one.submit({"x": np.array([at])} | state, [ROW], [] if state else [STATE]))
        wanted = _recurrent(range(8), {5: 9})
        for at, frame in enumerate(frames):
            if at in (2, 3, 4):
                with pytest.raises(Exception, match="failed" if at == 2 else "the state 's' is lost") as raised:
                    frame.result()
                assert raised.type is (RuntimeError if at == 2 else ArtifactError)
            else:
                assert int(frame.result()["y"][0]) == wanted[at]


@pytest.mark.parametrize("fails", range(4))
def test_what_fails_is_one_frames_and_no_other_ones(
    fails: int, opened: Callable[[Sequence[PartRun]], Pipeline]
) -> None:
    def failing(number: int) -> PartRun:
        calls = [0]

        def run(arrays: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
            calls[0] += 1
            if number == fails and calls[0] in (3, 4):
                raise ArtifactError(f"call {calls[0]}")
            return _arithmetic(number)(arrays)

        return run

    pipeline = opened([failing(number) for number in range(4)])
    frames = [_begun(pipeline, value) for value in range(12)]
    for value, frame in enumerate(frames):
        if value in (2, 3):
            for _ in range(2):
                with pytest.raises(ArtifactError, match=f"call {value + 1}"):
                    frame.result()
        else:
            np.testing.assert_array_equal(frame.result()["y"], _wanted(value))


def test_who_submits_waits_while_as_many_are_in_flight_as_may_be(
    opened: Callable[[Sequence[PartRun]], Pipeline],
) -> None:
    gate = threading.Event()

    def held_up(arrays: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
        assert gate.wait(GUARD_S)
        return _arithmetic(0)(arrays)

    pipeline = opened([held_up, *(_arithmetic(number) for number in range(1, 4))])
    most = _described(PARTS)[0]["frames"]
    begun: list[Frame] = []

    def submit() -> None:
        begun.extend(_begun(pipeline, value) for value in range(most + 3))

    thread = threading.Thread(target=submit)
    thread.start()
    try:
        deadline = time.monotonic() + GUARD_S
        while len(pipeline._flight) < most and time.monotonic() < deadline:
            time.sleep(1e-3)
        thread.join(0.02)
        assert thread.is_alive()
        assert len(pipeline._flight) == most
    finally:
        gate.set()
        thread.join(GUARD_S)
    np.testing.assert_array_equal(begun[-1].result()["y"], _wanted(most + 2))


def test_a_frame_that_a_closed_model_gave_up_says_so(opened: Callable[[Sequence[PartRun]], Pipeline]) -> None:
    entered, gate = threading.Event(), threading.Event()

    def held_up(arrays: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
        entered.set()
        assert gate.wait(GUARD_S)
        return _arithmetic(0)(arrays)

    pipeline = opened([held_up, *(_arithmetic(number) for number in range(1, 4))])
    frame = _begun(pipeline, 1)
    assert entered.wait(GUARD_S)
    closer = threading.Thread(target=pipeline.close)
    closer.start()
    with pytest.raises(ArtifactError, match="the model is closed"):
        frame.result()
    gate.set()
    closer.join(GUARD_S)
    assert not closer.is_alive()
    assert not any(one.is_alive() for one in pipeline._threads)
    with pytest.raises(ArtifactError, match="the model is closed"):
        _begun(pipeline, 2)


def test_a_pipeline_of_another_process_is_refused(
    opened: Callable[[Sequence[PartRun]], Pipeline], monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = opened([_arithmetic(number) for number in range(4)])
    own = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: own + 1)
    with pytest.raises(ArtifactError, match="does not survive a fork"):
        _begun(pipeline, 1)


class _Model:
    """What a Stream asks of a model: the inputs are refused that are odd, and no more than `depth` are begun."""

    def __init__(self, pipeline: Pipeline, depth: int) -> None:
        self.pipeline, self.depth, self.begun, self.given = pipeline, depth, 0, 0

    def submit(self, inputs: dict[str, int]) -> Frame:
        if inputs["x"] % 2:
            raise ArtifactError(f"{inputs['x']} is odd")
        self.begun += 1
        assert self.begun - self.given <= self.depth
        return _begun(self.pipeline, inputs["x"])


def test_a_stream_gives_results_and_refusals_in_order(opened: Callable[[Sequence[PartRun]], Pipeline]) -> None:
    model: Any = _Model(opened([_arithmetic(number) for number in range(4)]), depth=3)
    found = Stream(model, ({"x": value} for value in range(9)), 3)
    for value in range(9):
        if value % 2:
            with pytest.raises(ArtifactError, match=f"{value} is odd"):
                next(found)
        else:
            np.testing.assert_array_equal(next(found)["y"], _wanted(value))
            model.given += 1
    with pytest.raises(StopIteration):
        next(found)


def test_an_artifact_whose_parts_take_turns_has_no_frames_in_flight() -> None:
    model: Any = object.__new__(Model)
    model._runs, model._programs, model._pipeline, model.manifest, model.inputs = [], [], None, {}, ()
    with closing(model):
        with pytest.raises(ArtifactError, match="take turns"):
            model.submit({})
        with pytest.raises(ValueError, match="depth is 0"):
            model.stream([], depth=0)

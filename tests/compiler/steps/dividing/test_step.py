"""One artifact for two cores, of which one is held to other instructions, from options to streamed results."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, cast

import numpy as np
import onnx
import pytest

from bench.zoo import build
from compiler.codegen.build import find_toolchain
from compiler.contract import CompileOptions, CompileReport
from compiler.contract.devices import Within
from compiler.devices.cpu.target import this_machine
from compiler.errors import InternalError, OptionsError, TargetUnavailable, TilewrightError, UnsupportedModel
from compiler.ir.buffers import KernelGraph
from compiler.ir.plans.lanes import NOTHING, LaneCosts
from compiler.ir.plans.transfers import Transfers
from compiler.knowledge.kinds import CLEAR_LATENCY_S, CLEAR_S, PARTS_S
from compiler.knowledge.making import stream_record
from compiler.measure import streaming
from compiler.measure.cores import CoreSeconds
from compiler.measure.streaming import Streamed, undisturbed_s
from compiler.pack.loader import InputError, Model, RunError
from compiler.schedule.parts.corrections import Ran, corrected
from compiler.schedule.parts.dividing import division_of, pipeline, replicas
from compiler.schedule.solvers.ideals import Division
from compiler.session import Session
from compiler.steps.dividing import core_speeds
from compiler.steps.dividing import costs as dividing_costs
from compiler.steps.dividing import devices as dividing_devices
from compiler.steps.dividing import proof as dividing_proof
from compiler.steps.dividing import step as dividing
from compiler.steps.dividing import tried as dividing_tried
from compiler.steps.dividing.caller import usual_seconds
from compiler.steps.dividing.proof import ByItself
from tests.compiler.schedule.kernel_graphs import chain
from tests.compiling import compile_file
from tests.servers import GUARD_S
from tilewright.loading import load

pytestmark = pytest.mark.skipif(this_machine().lanes < 2, reason="needs two cores")

UNEQUAL = {"devices": ["cpu:0", "cpu:1@x86-64-v2"], "objective": "throughput", "tuning_budget_s": 0}
if this_machine().machine == "aarch64":
    UNEQUAL["devices"] = ["cpu:0", "cpu:1@aarch64"]
EQUAL = {**UNEQUAL, "devices": ["cpu:1", "cpu:0"]}
CALLER_S = usual_seconds(4 * 3 * 32 * 32) if this_machine().lanes == 2 else 0.0


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("divided") / "model.onnx"
    onnx.save(build("tiny_cnn"), path)
    return path


def compiled(model: Path, options: dict[str, Any], name: str) -> tuple[Path, CompileReport]:
    artifact = model.with_name(name)
    return artifact, compile_file(model, artifact, CompileOptions.from_json(options))


@pytest.fixture(scope="module")
def unequal(model: Path) -> tuple[Path, CompileReport]:
    return compiled(model, UNEQUAL, "unequal.tw")


@pytest.fixture(scope="module")
def equal(model: Path) -> tuple[Path, CompileReport]:
    """On equal cores calls are given to both, whatever the model of costs says of so small ones."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dividing_costs, "lane_costs", lambda handover: NOTHING)
        patch.setattr(dividing, "replicas", pipeline)
        return compiled(model, EQUAL, "equal.tw")


@pytest.fixture(scope="module")
def in_turn(model: Path) -> tuple[Path, CompileReport]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dividing, "pipeline", replicas)
        return compiled(model, EQUAL, "in_turn.tw")


def frames(opened: Model, count: int) -> list[dict[str, np.ndarray]]:
    return [opened.random_inputs(seed) for seed in range(count)]


def test_streamed_results_are_the_bits_of_single_runs_where_cores_are_equal(
    equal: tuple[Path, CompileReport],
) -> None:
    artifact, report = equal
    assert report.devices is not None
    assert {part.device for part in report.devices.parts} == {"cpu:0", "cpu:1"}
    with Model(artifact) as opened:
        given = frames(opened, 40)
        for inputs, streamed in zip(given, opened.stream(given), strict=True):
            for name, alone in opened.run(inputs).items():
                assert alone.tobytes() == streamed[name].tobytes()
        ended, seconds = opened.occupancy()
        assert ended == 40
        assert len(seconds) == len(report.devices.parts)


def test_equal_cores_have_whole_inferences_in_turn_by_one_program(in_turn: tuple[Path, CompileReport]) -> None:
    artifact, report = in_turn
    assert report.devices is not None
    assert report.devices.scheduler == "replicas"
    assert [(part.device, part.share) for part in report.devices.parts] == [("cpu:1", 0.5), ("cpu:0", 0.5)]
    assert report.devices.predicted_period_s == pytest.approx(report.devices.alone_s[0] / 2 + CALLER_S)
    assert report.devices.predicted_latency_s == pytest.approx(report.devices.alone_s[0] + CALLER_S)
    with zipfile.ZipFile(artifact) as archive:
        names = archive.namelist()
    assert "parts/1/model.so" in names
    assert "parts/2/model.so" not in names
    with Model(artifact) as opened:
        given = frames(opened, 25)
        for inputs, streamed in zip(given, opened.stream(given), strict=True):
            for name, alone in opened.run(inputs).items():
                assert alone.tobytes() == streamed[name].tobytes()
        ended, seconds = opened.occupancy()
        assert ended == 25
        assert all(spent > 0 for spent in seconds)


def test_an_iterable_may_use_its_arrays_again(equal: tuple[Path, CompileReport]) -> None:
    with Model(equal[0]) as opened:
        given = frames(opened, 12)
        (name,) = given[0]
        array = np.empty_like(given[0][name])

        def again() -> Iterator[dict[str, np.ndarray]]:
            for inputs in given:
                array[...] = inputs[name]
                yield {name: array}

        results = [*opened.stream(again(), depth=3)]
        assert len(results) == len(given)
        for inputs, streamed in zip(given, results, strict=True):
            for output, alone in opened.run(inputs).items():
                assert alone.tobytes() == streamed[output].tobytes()


def test_a_result_that_is_there_does_not_wait_for_frames_that_come_slowly(equal: tuple[Path, CompileReport]) -> None:
    with Model(equal[0]) as opened:
        given = frames(opened, 4)
        events: list[str] = []

        def slow() -> Iterator[dict[str, np.ndarray]]:
            for number, inputs in enumerate(given):
                events.append(f"asked for {number}")
                yield inputs
                deadline = time.monotonic() + 60
                while opened.occupancy()[0] <= number and time.monotonic() < deadline:
                    time.sleep(0.001)

        stream = opened.stream(slow())
        for number, streamed in enumerate(stream):
            events.append(f"had {number}")
            for output, alone in opened.run(given[number]).items():
                assert alone.tobytes() == streamed[output].tobytes()
        assert all(events.index(f"had {at}") <= events.index(f"asked for {at + 1}") + 1 for at in range(3)), events


def test_a_frame_that_does_not_fit_is_told_of_in_its_turn_and_others_go_on(equal: tuple[Path, CompileReport]) -> None:
    with Model(equal[0]) as opened:
        good = opened.random_inputs(1)
        (name,) = good
        stream = opened.stream([good, {name: np.zeros(3, np.float32)}, {"other": good[name]}, good])
        first = next(stream)
        with pytest.raises(InputError, match="has shape"):
            next(stream)
        with pytest.raises(InputError, match="unknown input 'other'"):
            next(stream)
        last = next(stream)
        assert [*map(np.ndarray.tobytes, first.values())] == [*map(np.ndarray.tobytes, last.values())]
        with pytest.raises(StopIteration):
            next(stream)
        with pytest.raises(ValueError, match="depth is 0"):
            opened.stream([], depth=0)


def test_unequal_cores_have_a_program_each_and_agree(unequal: tuple[Path, CompileReport]) -> None:
    artifact, report = unequal
    devices = report.devices
    assert devices is not None
    assert devices.objective == "throughput"
    assert len(devices.alone_s) == 2
    assert devices.alone_s[0] < devices.alone_s[1]
    assert devices.predicted_period_s <= min(devices.alone_s) + CALLER_S
    assert devices.max_relative <= report.tolerance
    with zipfile.ZipFile(artifact) as archive:
        manifest = json.loads(archive.read("manifest.json"))
        names = archive.namelist()
        page = archive.read("report.html").decode()
    assert manifest["options"]["devices"] == UNEQUAL["devices"]
    assert [one["name"] for one in manifest["stream"]["devices"]] == UNEQUAL["devices"]
    calls = {tuple(part["calls"]): part["every"] for part in manifest["stream"]["parts"]}
    assert sorted(call for each in calls for call in each) == [*range(manifest["calls"])]
    assert not manifest["stream"]["runs"]
    for number in range(1, len(manifest["stream"]["parts"]) + 1):
        assert f"parts/{number}/model.so" in names
    assert {"stream.so", "stream.h", "source/stream.c", "source/tw_stream.h"} <= {*names}
    assert "<h2>Devices</h2>" in page
    assert "cpu:1@" in page
    with load(artifact) as opened:
        given = [opened.random_inputs(seed) for seed in range(10)]
        assert len([*opened.stream(given)]) == 10


def test_a_core_of_another_target_is_predicted_by_the_program_that_it_runs(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which is measured before anything is divided; the record is in the artifact, and counts for the next job."""
    timed: list[int] = []

    def of_cores(block: object, cores: int, stop_requested: object) -> CoreSeconds:
        timed.append(cores)
        return CoreSeconds((4.0, 4.0), (4.0, 4.0)) if cores == 2 else CoreSeconds((30.0,), (30.0,))

    monkeypatch.setattr(dividing_proof, "STREAM_SECONDS", 0.02)
    monkeypatch.setattr(core_speeds, "core_seconds", of_cores)
    artifact, report = compiled(model, {**UNEQUAL, "tuning_budget_s": 0.05}, "own.tw")
    assert report.devices is not None
    assert report.devices.alone_s == pytest.approx((4.0, 30.0))
    first = report.devices.curve[0]
    assert first.scheduler == "replicas"
    assert first.predicted_latency_s == pytest.approx(30.0, rel=1e-3)
    with zipfile.ZipFile(artifact) as archive:
        records = [json.loads(line) for line in archive.read("records.jsonl").splitlines()]
    cores = [(one["target"], one["variant"]["cores"]) for one in records if one["kind"] == "cores"]
    _, _, profile = str([*CompileOptions.from_json(UNEQUAL).devices][1]).partition("@")
    assert sorted(cores) == sorted([(report.target, [0, 1]), (f"cpu:{profile}", [1])])
    compile_file(model, artifact, CompileOptions.from_json({**UNEQUAL, "tuning_budget_s": 0.05}), records=records)
    assert timed == [2, 1]


def test_equal_requests_give_equal_artifacts(model: Path, unequal: tuple[Path, CompileReport]) -> None:
    again, report = compiled(model, UNEQUAL, "again.tw")
    assert again.read_bytes() == unequal[0].read_bytes()
    assert report.artifact_digest == unequal[1].artifact_digest


MAIN = """
#include "stream.h"
#include <stdio.h>
static float image[8][1 * 3 * 32 * 32], scores[8][64];
int main(void) {
    tw_stream_config config = {.folder = ".", .spin_us = -1, .pin = 1};
    tw_stream *stream;
    if (tw_stream_create(&config, &stream)) return fprintf(stderr, "%s\\n", tw_stream_error()), 3;
    int64_t in_shape[] = {1, 3, 32, 32}, out_shape[] = OUT_SHAPE;
    FILE *file = fopen("image.bin", "rb");
    if (fread(image[0], sizeof image[0], 1, file) != 1) return 4;
    for (int at = 0; at < 8; at++) {
        for (int to = 0; to < 3 * 32 * 32; to++) image[at][to] = image[0][to];
        tw_tensor in = {image[at], TW_CPU, 0, TW_FLOAT, 32, 4, in_shape, NULL};
        tw_tensor out = {scores[at], TW_CPU, 0, TW_FLOAT, 32, sizeof out_shape / 8, out_shape, NULL};
        if (tw_submit(stream, &in, &out) != at) return fprintf(stderr, "%s\\n", tw_stream_error()), 5;
    }
    for (int at = 0; at < 8; at++)
        if (tw_wait(stream, at)) return 6;
    tw_stream_destroy(stream);
    fwrite(scores[7], sizeof(float), OUT_COUNT, stdout);
    return 0;
}
"""


def test_a_c_program_submits_and_waits(equal: tuple[Path, CompileReport], tmp_path: Path) -> None:
    with zipfile.ZipFile(equal[0]) as archive:
        archive.extractall(tmp_path)
    with Model(equal[0]) as opened:
        inputs = opened.random_inputs(5)
        (output,) = opened.outputs
        (expected,) = opened.run(inputs).values()
    (tmp_path / "image.bin").write_bytes(next(iter(inputs.values())).tobytes())
    shape = "{" + ", ".join(map(str, output.shape)) + "}"
    (tmp_path / "main.c").write_text(f"#define OUT_SHAPE {shape}\n#define OUT_COUNT {expected.size}\n{MAIN}")
    # Also model.so, whose kernels have the names of those of the parts.
    command = [find_toolchain().path, "main.c", "./stream.so", "./model.so", "-Wl,-rpath,$ORIGIN", "-o", "main"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    done = subprocess.run(["./main"], cwd=tmp_path, check=False, capture_output=True, timeout=GUARD_S)
    assert done.returncode == 0, done.stderr
    assert done.stdout == expected.tobytes()


def test_an_artifact_for_one_device_says_how_to_have_parts(model: Path) -> None:
    artifact, report = compiled(model, {"threads": 1, "tuning_budget_s": 0}, "single.tw")
    assert report.devices is None
    with zipfile.ZipFile(artifact) as archive:
        assert not any(name.startswith(("parts/", "stream")) for name in archive.namelist())
    with Model(artifact) as opened, pytest.raises(RunError, match="was compiled for one device") as raised:
        opened.stream([opened.random_inputs()])
    assert "devices" in str(raised.value)


def test_latency_runs_through_the_parts_where_these_are_certainly_faster(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What measuring would say is given here; what is run is real."""
    monkeypatch.setattr(dividing_costs, "lane_costs", lambda handover: NOTHING)
    monkeypatch.setattr(
        dividing, "placed", lambda *given: replace(pipeline(*given), predicted_s=0.0, scheduler="placement")
    )
    candidates = dividing._Work.candidates
    monkeypatch.setattr(
        dividing._Work, "candidates", lambda work, tried, may_race: candidates(work, tried, may_race=True)
    )
    monkeypatch.setattr(dividing, "replicas", pipeline)
    verdicts = [True, False]
    monkeypatch.setattr(dividing, "is_faster", lambda record: verdicts.pop(0))
    options = {**EQUAL, "objective": "latency"}
    artifact, report = compiled(model, options, "latency.tw")
    assert report.devices is not None
    assert report.devices.scheduler == "placement"
    assert report.latency_s == report.devices.latency_s
    with Model(artifact) as parts, Model(artifact, plan=1) as alone:
        assert parts.manifest["stream"]["runs"]
        inputs = parts.random_inputs(3)
        (through,), (single,) = parts.run(inputs).values(), alone.run(inputs).values()
        assert through.tobytes() == single.tobytes()
        assert parts.occupancy()[0] == 1
        out = np.zeros((*through.shape, 2), np.float32)[..., 0]
        parts.run(inputs, {parts.outputs[0].name: out})
        assert np.array_equal(out, through)
        assert parts.bind([*inputs.values()], [np.zeros_like(through)])() > 0
    artifact, report = compiled(model, options, "slower.tw")
    assert report.devices is not None
    assert report.devices.scheduler == "pipeline"
    assert any("not certainly faster" in notice for notice in report.notices)
    with Model(artifact) as opened:
        assert not opened.manifest["stream"]["runs"]


def test_a_bound_of_latency_that_nothing_keeps_is_told_with_what_can_be_reached(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dividing_costs, "lane_costs", lambda handover: NOTHING)
    monkeypatch.setattr(dividing_proof, "STREAM_SECONDS", 0.02)
    artifact, report = compiled(model, {**EQUAL, "objective": {"latency_ms": 1e-6}}, "within.tw")
    assert report.devices is not None
    assert report.devices.objective == "latency_ms=1e-06"
    curve = report.devices.curve
    assert len(curve) > 1
    assert [one.picked for one in curve] == [*[False] * (len(curve) - 1), True]
    assert curve[-1].predicted_latency_s == min(one.predicted_latency_s for one in curve)
    assert report.devices.predicted_latency_s == curve[-1].predicted_latency_s
    shown = f"{1e3 * curve[-1].predicted_latency_s:.3g} ms (predicted)"
    assert any("no division ends an inference within 1e-06 ms" in one and shown in one for one in report.notices)
    with zipfile.ZipFile(artifact) as archive:
        page = archive.read("report.html").decode()
        assert json.loads(archive.read("manifest.json"))["options"]["objective"] == {"latency_ms": 1e-6}
    assert "Throughput against latency" in page
    assert page.count("picked</td>") == 1


@pytest.mark.parametrize(("bound_ms", "picked"), [(30.0, 0), (20.0, 1), (10.0, 2), (9.0, 2)])
def test_of_divisions_within_the_bound_that_of_greatest_throughput_is_picked(bound_ms: float, picked: int) -> None:
    """By what was measured, which need not have the order of what was predicted."""
    reached = [(4e-3, 25e-3), (5e-3, 20e-3), (7e-3, 10e-3), (8e-3, 18e-3)]
    tried = [
        dividing_tried.Tried(
            cast("Any", None),
            b"",
            cast("Any", None),
            stream_record("m", "", this_machine(), {"parts": str(at), "latency_s": latency_s}, period_s, 2),
        )
        for at, (period_s, latency_s) in enumerate(reached)
    ]
    found, notice = dividing_tried.picked_of(tried, Within(bound_ms))
    assert found is tried[picked]
    assert ("takes 10 ms (measured)" in notice) is (bound_ms < 10)


def test_what_a_neighbour_took_while_one_division_was_measured_does_not_count() -> None:
    """By the clock the second one is faster and keeps the bound alone: its neighbour had gone by then."""
    reached = [
        (9e-3, {CLEAR_S: 4e-3, CLEAR_LATENCY_S: 8e-3, "latency_s": 30e-3}),
        (5e-3, {CLEAR_S: 5e-3, CLEAR_LATENCY_S: 9e-3, "latency_s": 9e-3}),
        (7e-3, {CLEAR_S: 70.0, CLEAR_LATENCY_S: -1.0, "latency_s": 9e-3}),
    ]
    tried = [
        dividing_tried.Tried(
            cast("Any", SimpleNamespace(parts=SimpleNamespace(scheduler=f"way {at}"))),
            b"",
            cast("Any", None),
            stream_record("m", "", this_machine(), {"parts": str(at), **more}, period_s, 2),
        )
        for at, (period_s, more) in enumerate(reached)
    ]
    assert [one.judged_s for one in tried] == [4e-3, 5e-3, 7e-3], "no figure is more than the clock's"
    assert [one.judged_latency_s for one in tried] == [8e-3, 9e-3, 9e-3]
    for objective in ("throughput", Within(10.0)):
        found, notice = dividing_tried.picked_of(tried, objective)
        assert found is tried[0]
        assert "9 ms by the clock were 4 ms (way 0)" in notice
    assert dividing_tried.picked_of(tried[1:], "throughput") == (tried[1], "")


@pytest.mark.parametrize(
    ("period_s", "loads", "busiest_s", "delays_s", "caller_s", "clear_s"),
    [
        (
            5.0,
            [4.0, 3.0],
            4.0,
            [0.0, 0.0],
            0.0,
            5.0,
        ),  # the first waits for 1 s of each frame: the others hand over late
        (5.0, [4.0, 3.0], 4.0, [], 0.0, 5.0),
        (8.0, [4.0, 3.0], 4.0, [4.0, 0.0], 0.0, 4.0),  # a neighbour has half of the first core
        (8.0, [4.0, 3.0], 4.0, [0.0, 5.0], 0.0, 4.0),  # of the second, for which the first waits
        (8.0, [4.0, 3.0], 4.0, [2.0, 2.0], 0.0, 4.0),  # of both in turn: each waits for the other too
        (8.0, [4.0, 3.0], 4.0, [3.5, 0.0], 0.0, 4.5),
        (4.4, [4.0, 3.9], 4.3, [0.2, 0.2], 0.4, 4.4),  # it is the caller's thread that takes the cores
        (9.0, [4.0, 0.0], 4.0, [1.0, 0.0], 0.0, 8.0),  # the second device has no part
    ],
)
def test_a_period_without_what_others_took_of_the_cores(
    period_s: float, loads: list[float], busiest_s: float, delays_s: list[float], caller_s: float, clear_s: float
) -> None:
    assert undisturbed_s(period_s, loads, busiest_s, delays_s, caller_s) == pytest.approx(clear_s)


@pytest.mark.parametrize(("lost", "clear_s"), [(0.0, 3.0), (0.1, 2.65), (0.5, 2.25)])
def test_a_frame_by_itself_is_timed_at_its_slowest_turn_with_and_without_delays(
    lost: float, clear_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Never less than its parts worked: a device that spins is delayed too."""
    now = delay = 0.0

    class Turns:
        count = 0
        parts: ClassVar = [{"turns": [0], "every": 2}, {"turns": [1], "every": 2}, {"turns": [0, 1], "every": 2}]
        manifest: ClassVar = {"stream": {"parts": parts}}

        def occupancy(self) -> tuple[int, list[float]]:
            return self.count, [100 + 0.5 * self.count, 1.5 * self.count, 0.25 * self.count]

        def submit(self, inputs: object) -> Turns:
            self.count += 1
            return self

        def result_flat(self) -> None:
            nonlocal now, delay
            now, delay = now + [1.0, 3.0][(self.count - 1) % 2], delay + lost

        def delays(self) -> list[float]:
            return [delay, 0.5 * delay]

    monkeypatch.setattr("compiler.steps.dividing.proof.time.perf_counter", lambda: now)
    monkeypatch.setattr("compiler.steps.dividing.proof.time.thread_time", lambda: 0.0)
    monkeypatch.setattr(dividing_proof, "own_delay_s", lambda: 2 * delay)
    turns = Turns()
    found = dividing_proof.by_itself(cast("Any", turns), {}, 2, 10.0)
    assert found.seconds == 3.0
    assert found.clear_s == pytest.approx(clear_s)
    assert found.parts_s == (1.0, 3.0, 0.25)
    assert turns.count == 6


@pytest.mark.skipif(not Path("/proc/thread-self/schedstat").exists(), reason="the system does not say")
def test_who_takes_a_devices_core_delays_it(equal: tuple[Path, CompileReport]) -> None:
    """A thread that never rests is bound to both cores while frames go through them."""
    with Model(equal[0]) as opened:
        inputs = [opened.random_inputs()] * 30
        [*opened.stream(inputs)]
        assert len(opened.delays()) == 2
        before = sum(opened.delays())
        neighbours = [
            subprocess.Popen(
                [sys.executable, "-c", f"import os\nos.sched_setaffinity(0, {{{core}}})\nwhile True: pass"]
            )
            for core in sorted(os.sched_getaffinity(0))[:2]
        ]
        try:
            for _ in range(200):
                [*opened.stream(inputs)]
                if sum(opened.delays()) > before + 1e-3:
                    break
        finally:
            for one in neighbours:
                one.kill()
                one.wait()
        assert sum(opened.delays()) > before + 1e-3
    assert streaming.own_delay_s() >= 0


def test_for_latency_a_placement_and_a_gpu_alone_are_raced_and_what_wins_ends_it() -> None:
    kernels = chain("sum", "sum", "sum")
    dear = Transfers(0.5, 0.5, 0.0, 0.0)
    division = division_of(kernels, [[9.0, 1.0, 9.0], [1.0, 9.0, 1.0]], NOTHING, (None, dear))
    asked = CompileOptions(devices=("cpu:0", "cuda:0"))
    devices = dividing_devices.Devices(asked, asked.named_devices, (), (0, 1))
    work = dividing._Work(devices, (), (1, 1), division, cast("Any", SimpleNamespace(kernels=kernels)))
    tried: list[dividing_tried.Tried] = []
    candidates = work.candidates(tried, may_race=True)
    placement, raced = next(candidates)
    assert raced
    assert [part.device for part in placement.parts] == [1, 0, 1]
    gpu, raced = next(candidates)
    assert raced
    assert [(part.device, len(part.calls)) for part in gpu.parts] == [(1, 3)]
    tried.append(dividing_tried.Tried(cast("Any", None), b"", cast("Any", None), None, wins=True))
    assert [*candidates] == []
    assert [raced for _, raced in work.candidates([], may_race=False)] == [False]


def test_for_throughput_copies_of_a_gpu_are_also_tried_beside_other_frames_kernels() -> None:
    kernels = chain("sum", "sum", "sum")
    division = division_of(kernels, [[9.0, 1.0, 9.0], [1.0, 9.0, 1.0]], NOTHING, (None, Transfers(0.5, 0.5, 0.0, 0.0)))
    asked = CompileOptions(devices=("cpu:0", "cuda:0"), objective="throughput")
    devices = dividing_devices.Devices(asked, asked.named_devices, (), (0, 1))
    work = dividing._Work(devices, (), (1, 1), division, cast("Any", SimpleNamespace(kernels=kernels)))
    *others, (last, raced) = work.candidates([], may_race=False)
    assert not raced
    assert (last.devices, last.apart) == (("cpu:0", "cuda:0", "cuda:0"), (1, 2))
    assert (work.targets, len(work.alone_s)) == ([0, 1, 1], 2)
    assert last.period_s < min(one.period_s for one, _ in others)
    assert {len(one.devices) for one, _ in others} == {2}


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"devices": ["cpu:0"]}, "has 1 entries, and takes 2 to 8"),
        ({"devices": ["cpu:0", "cpu:0@x86-64-v2"]}, "has core 0 twice"),
        ({"devices": ["cpu:0", "cuda:1"]}, "cuda:1 cannot be used: a plan for several devices has one CUDA device"),
        ({"devices": ["cpu:0", "cuda:0", "cuda:0"]}, "has cuda:0 twice"),
        ({"devices": ["cpu", "cpu:1"]}, "has both cpu, which means all cores, and single cores"),
        ({"devices": ["cpu", "cpu"]}, "has cpu twice"),
        ({"devices": ["cuda:0"]}, "has 1 entries, and takes 2 to 8"),
        ({"devices": ["cpu:0", "cuda:sm_90"]}, "devices of kind 'cuda' cannot be one of several"),
        ({"devices": ["cpu:0", "cuda:0"], "precision": "bf16"}, "precision bf16 and device cuda:0 exclude each other"),
        ({"devices": ["cpu:0", "cpu:1"], "target": "cpu:x86-64-v3"}, "options target and devices exclude each other"),
        ({"devices": ["cpu:0", "cpu:1"], "threads": 2}, "options threads and devices exclude each other"),
        ({"devices": ["cpu:0", "cpu:1"], "scheduler": "stages"}, "options scheduler and devices exclude each other"),
        ({"devices": ["cpu:0", "cpu:1"], "dims": {"n": [1, 2]}}, "several values of a dimension"),
        ({"devices": ["cpu:0", "cpu:1"], "dims": {"n": {"min": 1, "max": 2}}}, "leaves dimension 'n' open"),
        ({"objective": "throughput"}, "no devices are named"),
        ({"objective": "power"}, "objective is 'power': no such"),
        ({"objective": {"latency_ms": 30}}, "no devices are named"),
        ({"devices": ["cpu:0", "cpu:1"], "objective": {"latency_ms": 0}}, "no inference can take so long"),
        ({"devices": ["cpu:0", "cpu:1"], "objective": {"latency_s": 1}}, "has latency_ms alone"),
    ],
)
def test_options_that_no_plan_can_follow_are_refused_with_a_fix(asked: dict[str, Any], says: str) -> None:
    with pytest.raises(OptionsError, match=says) as raised:
        CompileOptions.from_json(asked)
    assert raised.value.fix


def test_devices_that_are_not_here_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("compiler.devices.cuda.device.gpu_here", lambda: None)  # whatever double is loaded
    cores = this_machine().lanes
    with pytest.raises(TargetUnavailable, match=f"this machine has {cores}") as raised:
        dividing_devices.devices_of(CompileOptions(devices=("cpu:0", f"cpu:{cores}")))
    assert f"cpu:{cores - 1}" in raised.value.fix
    with pytest.raises(TargetUnavailable, match=r"device cuda:0 is not available: .*there is none") as raised:
        dividing_devices.devices_of(CompileOptions(devices=("cpu:0", "cuda:0")))
    assert "use a worker that has the device" in raised.value.fix
    elsewhere = "aarch64" if this_machine().machine == "x86_64" else "x86-64-v2"
    with pytest.raises(TargetUnavailable, match="this machine lacks the instructions"):
        dividing_devices.devices_of(CompileOptions(devices=("cpu:0", f"cpu:1@{elsewhere}")))


def test_models_with_open_sizes_are_refused_with_the_dimension(tmp_path: Path) -> None:
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Relu", ["x"], ["y"])],
        "open",
        [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, "length"])],
        [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)],
    )
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)]), tmp_path / "open.onnx")
    with pytest.raises(TilewrightError, match="length") as raised:
        compiled(tmp_path / "open.onnx", UNEQUAL, "open.tw")
    assert not isinstance(raised.value, UnsupportedModel)
    assert "dims" in raised.value.fix
    assert not [*tmp_path.glob("*.tw")]


ENDING = """
import atexit, sys
def late():  # registered before all others, it is called after them
    try:
        model.occupancy()
    except RunError as told:
        print(told)
atexit.register(late)
from compiler.pack.loader import Model, RunError
model = Model(sys.argv[1])
model.submit(model.random_inputs())
"""


def test_frames_in_flight_are_waited_for_when_the_interpreter_ends(equal: tuple[Path, CompileReport]) -> None:
    """They write into arrays that it frees."""
    ran = subprocess.run(
        [sys.executable, "-c", ENDING, equal[0]], check=True, capture_output=True, text=True, timeout=60
    )
    assert ran.stdout.startswith("the model is closed")


def test_pinning_leaves_the_caller_where_it_is(equal: tuple[Path, CompileReport]) -> None:
    code = (
        "import os, sys; from compiler.pack.loader import Model\n"
        "before = os.sched_getaffinity(0)\n"
        "with Model(sys.argv[1]) as model:\n"
        "    [*model.stream([model.random_inputs()] * 3)]\n"
        "    assert os.sched_getaffinity(0) == before\n"
        "    tasks = [os.sched_getaffinity(int(task)) for task in os.listdir('/proc/self/task')]\n"
        "    assert {frozenset({core}) for core in sorted(before)[:2]} <= {*map(frozenset, tasks)}\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(equal[0])], check=False, capture_output=True, text=True, env={**os.environ}
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("variant", "verdict"),
    [
        ({"high": 0.97}, True),
        ({"high": 1.0}, False),
        ({"high": 1.2}, False),
        ({"high": None}, False),
        ({"high": "0.5"}, False),
        ({"high": -1.0}, False),
        ({}, False),
    ],
)
def test_a_record_must_be_certain_that_parts_are_faster(variant: dict[str, Any], verdict: bool) -> None:
    record = stream_record("m", "", this_machine(), {"parts": "p", **variant}, 1e-3, 2)
    assert dividing_tried.is_faster(record) is verdict
    assert not dividing_tried.is_faster(None)


def test_the_next_division_is_planned_with_what_parts_took_beside_each_other(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each call is foreseen to take 1 ms, and takes three on the second core, which is then to have less.

    What is foreseen is by how fast each core is measured to run the whole model, which is noted here and not used.
    """
    speeds: list[tuple[list[float], object]] = []
    timed: list[int] = []

    def foreseen(
        kernels: KernelGraph,
        seconds: Sequence[Sequence[float]],
        costs: LaneCosts,
        transfers: object,
        caller_s: object,
        slowdown: object,
        carried: object,
        pairs: object,
    ) -> Division:
        speeds.append(([sum(each) for each in seconds], slowdown))
        return division_of(kernels, [[1e-3] * len(each) for each in seconds], NOTHING)

    def of_cores(block: object, cores: int, stop_requested: object) -> CoreSeconds:
        timed.append(cores)
        return CoreSeconds((4.0, 6.0), (5.0, 9.0))

    monkeypatch.setattr(core_speeds, "core_seconds", of_cores)

    monkeypatch.setattr(dividing_costs, "division_of", foreseen)
    runs: list[int] = []

    def measured(opened: Model, session: Session, of: int) -> tuple[Streamed, ByItself]:
        parts = opened.manifest["stream"]["parts"]
        work = [
            len(part["calls"]) * len(part["turns"]) / part["every"] * (3.0 if part["device"] else 1.0) for part in parts
        ]
        alone_s = 1e-3 * sum(work)
        return Streamed(1, 1e-3 * max(work), [1e-3 * one for one in work]), ByItself(alone_s, alone_s)

    def seen(division: Division, ran: Sequence[Ran]) -> Division:
        runs.append(len(ran))
        return corrected(division, ran)

    monkeypatch.setattr(dividing_proof, "_measured", measured)
    monkeypatch.setattr(dividing, "corrected", seen)
    artifact, report = compiled(model, {**EQUAL, "tuning_budget_s": 0.05}, "measured.tw")
    assert report.devices is not None
    curve = report.devices.curve
    assert curve[0].scheduler == "replicas"
    assert runs[:2] == [0, 1]
    *_, again = curve
    assert again.scheduler == "replicas"
    assert curve[0].predicted_period_s == pytest.approx(again.predicted_period_s * 2 / 3)
    assert curve[0].period_s == pytest.approx(again.predicted_period_s * 2)
    assert again.period_s == pytest.approx(again.predicted_period_s)
    assert again.picked
    with zipfile.ZipFile(artifact) as archive:
        records = [json.loads(line) for line in archive.read("records.jsonl").splitlines()]
        divided = json.loads(archive.read("manifest.json"))["stream"]
    assert sum(PARTS_S in one["variant"] for one in records if one["kind"] == "stream") == len(curve)
    (kept,) = (one["variant"] for one in records if one["kind"] == "cores")
    assert (kept["cores"], kept["alone_s"], kept["together_s"]) == ([1, 0], [4.0, 6.0], [5.0, 9.0])
    given = list(runs)
    runs.clear()
    monkeypatch.setattr(dividing_proof, "_measured", lambda *given: (Streamed(1, 1.0, [1.0, 1.0]), ByItself(1.0, 1.0)))
    repeated = artifact.with_name("repeated.tw")
    options = CompileOptions.from_json({**EQUAL, "tuning_budget_s": 0.05})
    compile_file(model, repeated, options, records=records)
    assert runs == given
    for whole_s, slowdown in speeds:
        assert whole_s == pytest.approx([4.0, 6.0])
        assert slowdown == [1.25, 1.5]
    assert len(speeds) == 2
    assert timed == [2], "by the record it is known"
    with zipfile.ZipFile(repeated) as archive:
        assert json.loads(archive.read("manifest.json"))["stream"] == divided


class Counted:
    """A model of replicas in turn: what a frame gives depends on its turn, and with `disturbed` on who is in flight."""

    manifest: ClassVar = {"stream": {"frames": 5}}

    def __init__(self, of: int, *, disturbed: int | None) -> None:
        self.of, self.disturbed, self.count = of, disturbed, 0

    def random_inputs(self, seed: int) -> dict[str, np.ndarray]:
        return {"x": np.array([seed], np.float32)}

    def submit(self, inputs: dict[str, np.ndarray]) -> SimpleNamespace:
        came = {"y": inputs["x"] + np.float32(self.count % self.of)}
        self.count += 1
        return SimpleNamespace(result=lambda: came)

    def stream(self, frames: Sequence[dict[str, np.ndarray]]) -> Iterator[dict[str, np.ndarray]]:
        for number, frame in enumerate(frames):
            came = self.submit(frame).result()
            yield {"y": np.nextafter(came["y"], np.float32(99))} if number == self.disturbed else came


@pytest.mark.parametrize("of", [1, 5])
def test_frames_in_flight_must_give_the_bits_of_single_ones_at_the_same_turn(of: int) -> None:
    dividing_proof._demand_apart(cast("Any", Counted(of, disturbed=None)), of, {})
    with pytest.raises(InternalError, match=r"frame 7 gives other bits for output 'y'"):
        dividing_proof._demand_apart(cast("Any", Counted(of, disturbed=7)), of, {})

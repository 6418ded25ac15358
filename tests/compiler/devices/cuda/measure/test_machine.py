from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from compiler.devices.cuda.measure.apart import SILENCE_S, BenchApart
from compiler.devices.cuda.measure.machine import BuiltKernel, CudaMachine
from compiler.devices.cuda.measure.nvml import Clock
from compiler.devices.cuda.target import Gpu, resolve
from compiler.errors import InternalError, TargetUnavailable
from compiler.ir.buffers import Buffer
from compiler.ir.machine import Machine, Record, Setting, Trial, Workload
from compiler.ir.tensor import DType, TensorType
from compiler.ir.tile import Level, Tile
from compiler.measure.rounds import LEAST_ROUNDS
from compiler.trace import StopRequest, never_stops
from tests.compiler.devices.cuda.measure.fake_nvml import install
from tests.cuda_double.double import build_runtime, compile_kernels, compiler_there
from tests.kept import kept
from tests.parse import parse_kernel

pytestmark = pytest.mark.skipif(not compiler_there(), reason="the double of CUDA needs g++")

TARGET = resolve("cuda", Gpu("double", (9, 0), 4, 64 * 1024, 8 << 30, 1.8, "cuda:sm_90/0"))
TILE = Tile("loops", (Level("block", (("team", 64),)),))
X = TensorType(DType.F32, (64,))
KERNEL = parse_kernel("kernel Scale(in x: f32[64], in w: f32[64]; out y: f32[64]) for i:64 y[i] = mul(x[i], w[i])")
WORKLOAD = Workload(KERNEL, (Buffer.whole(0, X), Buffer.whole(1, X)), (Buffer.whole(2, X),), (False, True))
OPERANDS = ((DType.F32, 64),) * 3
# `check` faults unless operands, scratch and counters are as promised; `places` unless the weights lie elsewhere at
# each launch.
SOURCE = """
#include "tw_cuda.h"
extern "C" __global__ void scale(const float *x, const float *w, float *y) {
    tw_grid_launch_dependents();
    tw_grid_dependency_wait();
    y[threadIdx.x] = x[threadIdx.x] * w[threadIdx.x];
}
extern "C" __global__ void turned(const float *x, const float *w, float *y) {
    y[threadIdx.x] = x[threadIdx.x] * w[63 - threadIdx.x];
}
extern "C" __global__ void short_of_one(const float *x, const float *w, float *y) {
    y[threadIdx.x] = threadIdx.x < 63 ? x[threadIdx.x] * w[threadIdx.x] : 0.0f;
}
extern "C" __global__ void wild(const float *x, const float *w, float *y) \
{ *(float *)((char *)y - (1ll << 40)) = x[0] * w[0]; }
extern "C" __global__ void hang(const float *x, const float *w, float *y) {
    for (volatile int i = 0; i >= 0; i = (i + 1) & 1023) y[0] = x[0] * w[0];
}
extern "C" __global__ void check(const float *x, const float *w, float *y, unsigned char *scratch, unsigned *counters) {
    bool fine = (unsigned long long)x % 256 == 0 && (unsigned long long)w % 256 == 0 && (unsigned long long)y % 256 == \
0;
    for (int i = 0; i < 64; i++) fine = fine && x[i] >= 0.1f && x[i] < 1.0f && w[i] >= 0.1f && w[i] < 1.0f;
    for (int i = 0; i < 7; i++) fine = fine && counters[i] == 0;
    for (int i = 0; i < 300; i++) scratch[i] = 1;
    if (!fine) *(float *)((char *)y - (1ll << 40)) = 1;
}
extern "C" __global__ void gather(const long long *at, const float *w, float *y) {
    for (int i = 0; i < 8; i++) if (at[i] != 0) *(float *)((char *)y - (1ll << 40)) = w[0];
}
extern "C" __global__ void places(const float *x, const float *w, float *y, unsigned char *scratch) {
    const float **last = (const float **)scratch;
    tw_grid_launch_dependents();
    tw_grid_dependency_wait();
    if (threadIdx.x) return;
    if (*last == w || x[0] == 0.0f) *(float *)((char *)y - (1ll << 40)) = 1;
    *last = w;
}
"""


@pytest.fixture
def on_double(monkeypatch: pytest.MonkeyPatch) -> bytes:
    """Processes that are started find the double; what stands for a cubin of SOURCE there."""
    library = compile_kernels(SOURCE, "plain", "machine.cu")
    image = f"cubin of {library.name}\0".encode()
    file = kept(f"image of {library.name}", ".image", lambda made: made.write_bytes(image))
    monkeypatch.setenv("LD_LIBRARY_PATH", str(build_runtime().parent))
    monkeypatch.setenv("TW_DOUBLE", f"module={file}:sm_90:{library}")
    return image


def builder(image: bytes, names: dict[str, str], **changed: Any) -> Callable[..., list[BuiltKernel | None]]:
    """Builds a trial into the kernel that its key names."""

    def build(trials: Sequence[Trial], *, stop_requested: StopRequest = never_stops) -> list[BuiltKernel | None]:
        built = BuiltKernel(image, "", 1, 64, OPERANDS, source="code")
        return [replace(built, name=names[trial.key], **changed) if names[trial.key] else None for trial in trials]

    return build


def machine_of(build: Callable[..., Any], **changed: Any) -> CudaMachine:
    return CudaMachine(TARGET, build, **{"sample_s": 4e-6, "warm_s": 0.0, **changed})


def trial(key: str, **changed: Any) -> Trial:
    return Trial(changed.pop("workload", WORKLOAD), key, replace(TILE, **changed), 1)


def test_one_record_for_each_trial_says_all_of_it(on_double: bytes) -> None:
    with machine_of(builder(on_double, {"a": "scale", "b": "scale"}), setting=Setting("memory", "nvrtc 13.0")) as made:
        machine: Machine = made
        first, second = machine.measure([trial("a"), trial("b", algorithm="rows")], 60.0)
    assert (machine.hardware, machine.lanes) == ("cuda:sm_90/0", 1)
    assert (first.workload, second.workload) == ("a", "b")
    assert first == replace(
        first, kind="kernel", operator="Scale", target="cuda:sm_90", hardware="cuda:sm_90/0", threads=1, samples=9
    )
    assert first.description == "f32[64], f32[64] -> f32[64]"
    assert first.variant == {
        **TILE.to_json(),
        "lanes": 1,
        "weights": "memory",
        "toolchain": "nvrtc 13.0",
        "source": "code",
    }
    assert Tile.from_json(second.variant).algorithm == "rows"
    for record in (first, second):
        assert 0 < record.p10 <= record.seconds <= record.p90
        assert Record.from_json(record.to_json()) == record


def test_what_was_built_is_not_built_again(on_double: bytes) -> None:
    asked: list[str] = []
    build = builder(on_double, {"a": "scale", "b": "scale"})

    def counting(trials: Sequence[Trial], *, stop_requested: StopRequest) -> Any:
        asked.extend(one.key for one in trials)
        return build(trials, stop_requested=stop_requested)

    with machine_of(counting) as machine:
        assert len(list(machine.measure([trial("a")], 60.0))) == 1
        assert len(list(machine.measure([trial("b"), trial("a")], 60.0))) == 2
    assert asked == ["a", "b"]


def test_a_trial_that_cannot_be_built_or_has_nothing_to_do_gives_no_record(on_double: bytes) -> None:
    with machine_of(builder(on_double, {"a": "scale", "b": ""})) as machine:
        assert [record.workload for record in machine.measure([trial("b"), trial("a")], 60.0)] == ["a"]
    with machine_of(builder(on_double, {"a": "scale"}, grid=0)) as machine:
        assert list(machine.measure([trial("a")], 60.0)) == []


class KilledOnce(BenchApart):
    """Its process is killed from outside, as when memory runs out, before it is asked for the second clock."""

    clocks = 0

    def clock(self) -> Clock | None:
        self.clocks += 1
        if self.clocks == 2:
            assert self.process is not None
            self.process.kill()
        return super().clock()


def test_a_process_that_dies_between_samples_costs_no_trial(on_double: bytes) -> None:
    notices: list[str] = []
    build = builder(on_double, {"a": "scale", "b": "scale"})
    with machine_of(build, bench=KilledOnce(), notice=notices.append) as machine:
        assert len(list(machine.measure([trial("a"), trial("b")], 60.0))) == 2
    assert notices == []


def test_operands_scratch_and_counters_are_as_promised(on_double: bytes) -> None:
    notices: list[str] = []
    build = builder(on_double, {"a": "check"}, scratch_bytes=300, counters=7)
    with machine_of(build, notice=notices.append) as machine:
        assert len(list(machine.measure([trial("a")], 60.0))) == 1
    assert notices == []


def test_integers_that_may_be_indices_are_zero(on_double: bytes) -> None:
    kernel = parse_kernel("kernel Gather(in i: i64[8], in w: f32[64]; out y: f32[8]) for a:8 y[a] = w[[i[a] in 0..63]]")
    types = TensorType(DType.I64, (8,)), X, TensorType(DType.F32, (8,))
    buffers = tuple(Buffer.whole(at, type) for at, type in enumerate(types))
    gather = Workload(kernel, buffers[:2], buffers[2:], (False, True))
    operands = tuple((type.dtype, type.elements) for type in types)
    notices: list[str] = []
    with machine_of(builder(on_double, {"a": "gather"}, operands=operands), notice=notices.append) as machine:
        assert len(list(machine.measure([trial("a", workload=gather)], 60.0))) == 1
    assert notices == []


@pytest.mark.parametrize(("weights", "moves"), [("memory", True), ("cache", False)])
def test_weights_in_memory_are_taken_from_elsewhere_each_time(on_double: bytes, weights: Any, moves: bool) -> None:
    notices: list[str] = []
    build = builder(on_double, {"a": "places"}, scratch_bytes=8)
    with machine_of(build, setting=Setting(weights), notice=notices.append) as machine:
        records = list(machine.measure([trial("a")], 60.0))
    assert (len(records) == 1, notices == []) == (moves, moves)


@pytest.mark.parametrize("culprit", ["wild", "hang"])
def test_a_kernel_that_faults_or_hangs_is_told_of_and_harms_no_other(on_double: bytes, culprit: str) -> None:
    notices: list[str] = []
    build = builder(on_double, {"a": "scale", "b": culprit, "c": "scale"})
    trials = [trial("a"), trial("b"), trial("c")]
    with machine_of(build, notice=notices.append, bench=BenchApart()) as machine:
        assert [record.workload for record in machine.measure(trials, 60.0)] == ["a", "c"]
        (notice,) = notices
        assert notice.startswith(f"{culprit} (loops")
        assert ("LAUNCH_FAILED" if culprit == "wild" else f"did not end within {SILENCE_S:g} s") in notice
        # It is not tried again.
        assert [record.workload for record in machine.measure(trials, 60.0)] == ["a", "c"]
    assert len(notices) == 1


def test_a_kernel_that_the_driver_refuses_is_told_of(on_double: bytes) -> None:
    notices: list[str] = []
    build = builder(on_double, {"a": "scale", "b": "missing"})
    with machine_of(build, notice=notices.append) as machine:
        assert [record.workload for record in machine.measure([trial("b"), trial("a")], 60.0)] == ["a"]
    assert "CUDA_ERROR_NOT_FOUND" in notices[0]


def test_nothing_stays_on_the_device(on_double: bytes, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TW_DOUBLE_REPORT", str(tmp_path / "report"))
    with machine_of(builder(on_double, {"a": "scale", "b": "scale"})) as machine:
        assert len(list(machine.measure([trial("a")], 60.0))) == 1
        assert len(list(machine.measure([trial("a"), trial("b")], 60.0))) == 2
    state, fault, *_ = (tmp_path / "report").read_text().splitlines()
    assert '"retained": 0' in state
    for what in ("modules", "streams", "events", "graphs", "executables", "allocations", "context_depth"):
        assert f'"{what}": 0' in state
    assert fault == ""


def test_a_stop_request_and_the_deadline_end_it(on_double: bytes) -> None:
    build = builder(on_double, {"a": "scale"})
    with machine_of(build, stop_requested=lambda: True) as machine:
        assert list(machine.measure([trial("a")], 60.0)) == []
    with machine_of(build) as machine:
        assert list(machine.measure([trial("a")], 0.0)) == []
    with machine_of(lambda trials, stop_requested: None) as machine:
        assert list(machine.measure([trial("a")], 60.0)) == []
    turns = iter(range(1000))
    with machine_of(build, clock=lambda: float(next(turns))) as machine:
        (record,) = machine.measure([trial("a")], 12.0)
    assert 1 <= record.samples < 9


def test_losers_are_sampled_no_further(on_double: bytes) -> None:
    class Biased(BenchApart):
        """A bench on which every second subject is twice as slow."""

        asked = 0

        def sample(self, at: int) -> float:
            self.asked += at == 1
            return (1.0 + at) * 1e-6 if super().sample(at) > 0 else 0.0

    bench = Biased()
    with machine_of(builder(on_double, {"a": "scale"}), bench=bench) as machine:
        quick, slow = machine.measure([trial("a"), trial("a", algorithm="rows")], 60.0)
    assert (quick.seconds, slow.seconds) == (1e-6, 2e-6)
    assert (quick.samples, slow.samples, bench.asked) == (9, LEAST_ROUNDS, LEAST_ROUNDS)


def test_rounds_at_a_lower_clock_do_not_count(
    on_double: bytes, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # Two questions a round: before and after. Rounds 0, 3 and 4 are slowed.
    clocks = [1980, 1500, *[1980] * 4, 1500, 1500, 1980, 1900] + [1980] * 40
    folder = install(tmp_path / "nvml", sm_clock=[clocks], throttle=None)
    monkeypatch.setenv("PYTHONPATH", str(folder))
    with machine_of(builder(on_double, {"a": "scale"})) as machine:
        (record,) = machine.measure([trial("a")], 60.0)
    assert (record.samples, record.variant["clock_mhz"]) == (9, 1980)
    assert int((folder / "sm_clock.turn").read_text()) == 2 * (9 + 3)


def test_a_device_that_is_held_down_all_the_time_is_measured_and_says_so(
    on_double: bytes, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(install(tmp_path / "nvml", throttle=0x20)))
    with machine_of(builder(on_double, {"a": "scale"})) as machine:
        (record,) = machine.measure([trial("a")], 60.0)
    assert record.variant["throttled"] == ["heat"]


def test_no_other_target_and_no_broken_device_is_measured(on_double: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TargetUnavailable, match="cannot be measured on this machine"):
        CudaMachine(resolve("cuda:sm_90"), builder(on_double, {}))
    monkeypatch.setenv("TW_DOUBLE", "devices=0")
    with (
        pytest.raises(TargetUnavailable, match="CUDA_ERROR_NO_DEVICE"),
        machine_of(builder(on_double, {"a": "scale"})) as machine,
    ):
        list(machine.measure([trial("a")], 60.0))


def test_a_build_that_does_not_fit_its_trials_is_our_fault(on_double: bytes) -> None:
    with pytest.raises(InternalError, match="1 trials were built into 0 kernels"):
        list(machine_of(lambda trials, stop_requested: []).measure([trial("a")], 60.0))
    with pytest.raises(InternalError, match="2 operands for a workload of 3"):
        list(machine_of(builder(on_double, {"a": "scale"}, operands=OPERANDS[:2])).measure([trial("a")], 60.0))


class Turned:
    """A packing whose elements are in the opposite order."""

    dtype, elements = DType.F32, 64

    def pack(self, constant: np.ndarray) -> np.ndarray:
        return constant[::-1].copy()


def test_a_candidate_that_computes_something_else_is_told_of_and_cannot_win(on_double: bytes) -> None:
    """Each is held beside plain loops once; one whose constants are packed is given them packed."""
    notices: list[str] = []
    built = BuiltKernel(on_double, "scale", 1, 64, OPERANDS)
    kernels = {
        "loops": built,
        "gemv": replace(built, name="short_of_one"),
        "window": replace(built, name="turned"),
        "ffma": replace(built, name="turned", packings={1: Turned()}),
    }

    def build(trials: Sequence[Trial], *, stop_requested: StopRequest = never_stops) -> list[BuiltKernel | None]:
        return [kernels[one.tile.algorithm] for one in trials]

    trials = [trial("a", algorithm=name) for name in kernels]
    with machine_of(build, reference=lambda workload: built, notice=notices.append) as machine:
        for _ in range(2):  # what is out stays out, what is right is not looked at again
            records = machine.measure(trials, 60.0)
            assert [Tile.from_json(one.variant).algorithm for one in records] == ["loops", "ffma"]
    assert len(notices) == 2
    assert notices[0].startswith(
        "short_of_one (gemv block(team:64)) is measured no further: output 0 differs from that of"
    )
    assert "turned (window block(team:64))" in notices[1]


def test_a_candidate_that_faults_while_it_is_looked_at_harms_no_other(on_double: bytes) -> None:
    notices: list[str] = []
    built = BuiltKernel(on_double, "scale", 1, 64, OPERANDS)
    build = builder(on_double, {"a": "wild", "b": "scale"})
    with machine_of(build, reference=lambda workload: built, notice=notices.append) as machine:
        assert [record.workload for record in machine.measure([trial("a"), trial("b")], 60.0)] == ["b"]
    (notice,) = notices
    assert "LAUNCH_FAILED" in notice


@pytest.mark.parametrize("reference", ["wild", "missing", None])
def test_where_plain_loops_cannot_run_candidates_are_measured_all_the_same(
    on_double: bytes, reference: str | None
) -> None:
    notices: list[str] = []
    loops = None if reference is None else BuiltKernel(on_double, reference, 1, 64, OPERANDS)
    build = builder(on_double, {"a": "turned"})
    with machine_of(build, reference=lambda workload: loops, notice=notices.append) as machine:
        assert [record.workload for record in machine.measure([trial("a")], 60.0)] == ["a"]
    assert notices == []

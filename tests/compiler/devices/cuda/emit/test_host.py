"""tw_cuda_runtime.h and tw_cuda_driver.h as part of real artifacts, on the double.

Results, edges, memory, everything that may fail.
"""

from __future__ import annotations

import os
import re
import subprocess
import zipfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from compiler.devices.cuda.codegen.lowered import CudaLowered, Frame, framed
from compiler.devices.cuda.emit import program as emit
from compiler.devices.cuda.emit.launches import launches
from compiler.devices.cuda.target import CudaTarget, resolve
from compiler.ir.buffers import KernelGraph
from compiler.ir.machine import Workload
from compiler.ir.plans.plan import Plan, Task, Wait
from tests.compiler.devices.cuda import artifact_on_double
from tests.compiler.devices.cuda.artifact_on_double import Outcome, Twin, artifact_of, on_double, plan_of
from tests.compiler.devices.cuda.branches import (
    H200,
    INPUTS,
    KERNELS,
    LOGITS,
    RANDOM,
    assert_right,
    functions,
)
from tests.compiler.devices.cuda.on_double import needs_double
from tests.compiler.devices.cuda.test_nvrtc import needs_nvrtc
from tests.cuda_double.double import MODES, Mode, build_runtime
from tests.parse import parse_kernel_graph

pytestmark = [needs_double, needs_nvrtc, pytest.mark.usefixtures("host_as_shipped")]


def test_one_split_of_shared_memory_is_asked_for_by_every_kernel_and_by_none_unless_it_was_found_better(
    twin: Twin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def asked(outcome: Outcome) -> list[str]:
        assert_right(outcome)
        return [call for call in outcome.calls if call.startswith("cuFuncSetAttribute")]

    assert not asked(twin.run(INPUTS))
    target = replace(H200, one_split=True)
    monkeypatch.setattr(artifact_on_double, "resolve", lambda name: target)
    split = on_double(artifact_of(KERNELS, plan_of(KERNELS, target), tmp_path / "split.tw"))
    kernels = [call for call in split.run(INPUTS).calls if call.startswith("cuModuleGetFunction")]
    assert len(asked(split.run(INPUTS))) == len(kernels) > 1


def test_a_split_holds_what_the_largest_launch_wants_of_a_multiprocessor() -> None:
    target = replace(H200, one_split=True, multiprocessors=100, shared_bytes=200 << 10)
    assert H200.split_of([(1, 1 << 10)]) is None
    assert target.split_of([]) == 0
    assert target.split_of([(100, 0), (50, 99 << 10), (0, 190 << 10)]) == 50
    assert target.split_of([(101, 49 << 10)]) == 50, "two blocks of one multiprocessor"
    assert target.split_of([(1000, 99 << 10)]) == 100, "no more than fit"


# ---- Results, in whatever order a GPU may choose ---------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES, ids=Mode.short)
def test_a_model_computes_what_it_means_and_leaves_nothing(twin: Twin, mode: Mode) -> None:
    outcome = twin.run(INPUTS, mode)
    assert_right(outcome)
    assert functions(outcome).count("cuGraphLaunch") == 1
    assert "cuLaunchKernel" not in " ".join(functions(outcome))


def test_nothing_races_and_nothing_is_read_out_of_bounds(artifact: Path) -> None:
    checked = on_double(artifact, "checked")
    for mode in (MODES[2], MODES[6]):
        assert_right(checked.run(INPUTS, mode))


def in_two_lanes(kernels: KernelGraph, forget: bool = False) -> Plan:
    """Every call on the lane that its position says, waiting for all calls whose results it reads.

    Where `forget`, not if there are several.

    Storages lie side by side, so that nothing else orders the calls.
    """
    plan = plan_of(kernels, H200)
    writers: dict[int, list[int]] = {}
    tasks: list[Task] = []
    done: list[int] = []
    for position, call in enumerate(kernels.calls):
        read = {kernels.buffers[id].storage for id in call.inputs}
        earlier = sorted({at for storage in read for at in writers.get(storage, ())})
        lane = position % 2
        waits = tuple(Wait(at % 2, done[at]) for at in earlier if at % 2 != lane)
        if forget and len(earlier) > 1:
            waits = ()
        tasks.append(Task(position, lane, 0, plan.tiles[position][1], waits))
        done.append(1 + sum(at % 2 == lane for at in range(position)))
        for id in call.outputs:
            writers.setdefault(kernels.buffers[id].storage, []).append(position)
    places, end = {}, 0
    for storage, place in plan.places.items():
        places[storage] = replace(place, at=end) if place.space == "arena" else place
        end += -(-place.bytes // 256) * 256 if place.space == "arena" else 0
    return replace(plan, lanes=2, tasks=tuple(tasks), places=places, arena_bytes=end)


def test_lanes_become_branches_of_the_graph(tmp_path: Path) -> None:
    plan = in_two_lanes(KERNELS)
    plan.verify(KERNELS)
    edges = [one.after for one in launches(plan, emit.lower_cuda_calls(KERNELS, plan, H200))]
    assert any(len(after) > 1 for after in edges), "no branches meet"
    checked = on_double(artifact_of(KERNELS, plan, tmp_path / "model.tw"), "checked")
    for mode in (MODES[0], MODES[2], *MODES[4:7]):
        assert_right(checked.run(INPUTS, mode))


def test_a_wait_that_the_plan_forgot_is_found(tmp_path: Path) -> None:
    """So that the test above says something about edges."""
    plan = in_two_lanes(KERNELS, forget=True)
    checked = on_double(artifact_of(KERNELS, plan, tmp_path / "model.tw"), "checked")
    outcome = checked.run(INPUTS, RANDOM)
    assert "race" in outcome.fault
    assert "a kernel failed on the GPU while running the model" in outcome.error


HAND_WRITTEN = """
kernels(b0) -> (b2)
  b0: f32[4096] plain
  b1: f32[4096] plain
  b2: f32[4096] plain
  k0: kernel Neg(in x: f32[4096]; out y: f32[4096])
    for i:4096
      y[i] = neg(x[i])
  b1 = k0(b0)
  b2 = k0(b1)
"""
BODY = """
float *staged = (float *)shared, *partial = (float *)scratch;
for (int i = threadIdx.x; i < 1024; i += blockDim.x) staged[i] = -t_x[tile * 1024 + i];
__syncthreads();
for (int i = threadIdx.x; i < 1024; i += blockDim.x) partial[tile * 1024 + i] = staged[i];
__threadfence();
__syncthreads();
__shared__ unsigned arrived;
if (threadIdx.x == 0) arrived = atomicAdd(counters + 1, 1u);
__syncthreads();
if (arrived != 3) return;
__threadfence();
for (int i = threadIdx.x; i < 4096; i += blockDim.x) t_y[i] = partial[i];
if (threadIdx.x == 0) counters[1] = 0;
"""


def by_hand(name: str, workload: Workload, tile: object, target: CudaTarget) -> CudaLowered:
    """A kernel that needs everything a launch can need: clusters, much shared memory, scratch, counters."""
    slots = zip((*workload.kernel.inputs, *workload.kernel.outputs), ("t_x", "t_y"), strict=True)
    body = BODY.strip().splitlines()
    named = replace(workload.kernel, **{  # type: ignore[arg-type]
        kind: tuple(replace(slot, name=new) for slot, new in slots_of)
        for kind, slots_of in zip(("inputs", "outputs"), [[pair] for pair in slots], strict=True)
    })  # fmt: skip
    return framed(
        name,
        replace(workload, kernel=named),
        body,
        Frame(grid=4, block=128, shared_bytes=50 * 1024, scratch_bytes=4 * 4096, counters=2, cluster=2, alone=True),
    )


def test_clusters_shared_memory_scratch_and_counters_are_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emit, "lower_cuda", by_hand)
    kernels = parse_kernel_graph(HAND_WRITTEN)
    kernels = replace(kernels, buffers={id: replace(one, name=f"v{id}") for id, one in kernels.buffers.items()})
    twin = on_double(artifact_of(kernels, plan_of(kernels, H200), tmp_path / "model.tw"))
    x = np.arange(4096, dtype=np.float32)
    twice = "outputs.update(model.run(inputs)); outputs['v2'] += model.run(inputs)['v2']"
    for mode in (MODES[0], RANDOM):
        outcome = twin.run({"v0": x}, mode, script=twice)
        assert_right(outcome, {"v2": 2 * x})
    assert functions(outcome).count("cuGraphKernelNodeSetAttribute") == 2
    assert functions(outcome).count("cuFuncSetAttribute") == 1
    for function in ("cuFuncSetAttribute", "cuGraphKernelNodeSetAttribute", "cuMemsetD8Async"):
        failed = twin.run({"v0": x}, extra=f"fail={function}:1:999")
        assert "CUDA_ERROR_UNKNOWN" in failed.error, function
        assert failed.left == {}, function
    profiled = twin.run({"v0": x}, script="outputs['rows'] = [row['seconds'] for row in model.profile(inputs, 2)]")
    assert not profiled.error
    assert len(profiled.outputs["rows"]) == 2


# ---- Programmatic edges, and GPUs and drivers without them -----------------------------------------------------------


def test_a_kernel_with_one_predecessor_starts_early_where_the_gpu_can(twin: Twin) -> None:
    names = functions(twin.run(INPUTS))
    assert names.count("cuGraphAddDependencies_v2") == names.count("cuGraphAddKernelNode_v2") - 1 > 3


def test_a_driver_without_programmatic_edges_gets_plain_ones(twin: Twin) -> None:
    outcome = twin.run(INPUTS, RANDOM, runtime=build_runtime(without=("cuGraphAddDependencies_v2",)))
    assert_right(outcome)
    assert not any("after 0" in call for call in outcome.calls if "AddKernelNode" in call and "k0" not in call)


def test_a_driver_that_knows_the_gpu_serves_kernels_of_a_later_compiler(twin: Twin) -> None:
    """It says itself whether it takes their machine code."""
    assert twin.run(INPUTS, RANDOM, "driver=12000").error == ""
    assert_right(twin.run(INPUTS, RANDOM, "driver=12000"))


def test_code_that_does_not_wait_is_never_started_early(tmp_path: Path) -> None:
    """PTX for sm_80 has no instruction to wait, though the GPU that it is compiled for has programmatic edges."""
    target = resolve("cuda:sm_80")
    twin = on_double(artifact_of(KERNELS, plan_of(KERNELS, target), tmp_path / "model.tw", "cuda:sm_80"))
    for extra in ("", "sm=86", "sm=90"):
        outcome = twin.run(INPUTS, RANDOM, extra)
        assert_right(outcome)
        assert "cuGraphAddDependencies_v2" not in functions(outcome)


# ---- GPUs and drivers that cannot run it: each refusal says what to do -----------------------------------------------


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        (
            "sm=80",
            r"was compiled for sm_90a, compute_90, and GPU 0 \(CUDA double sm_80\) is sm_80: compile it for cuda:sm_80",
        ),
        ("driver=11080", r"driver is too old: it serves CUDA 11\.8, and this model needs CUDA 12\.0 or later: update"),
        (
            "driver=12040 fail=cuModuleLoadDataEx:1:200",
            r"loading the kernels failed: CUDA_ERROR_INVALID_IMAGE .* The driver serves CUDA 12\.4 and NVRTC 13\.\d+ "
            r"made them: update the driver, or compile the model with an NVRTC of version 12",
        ),
        (
            "sm=100 driver=12080",
            r"serves CUDA 12\.8, and the kernels for GPUs beyond sm_90a, compute_90 need CUDA 13\.\d+: update",
        ),
        ("devices=0", r"there is no GPU that CUDA can use \(CUDA_VISIBLE_DEVICES is .*\): check nvidia-smi"),
        (
            "memory=2000",
            r"out of memory on GPU 0 .*: \d+ bytes were wanted for weights, 2000 of 2000 are free, "
            r"and the model needs \d+ in all",
        ),
        (
            "sm=100 fail=cuModuleLoadDataEx:1:222",
            r"serves CUDA 13\.0, and the kernels for GPUs beyond sm_90a, compute_90 need .*cuda:sm_100",
        ),
        ("sm=100 fail=cuModuleLoadDataEx:1:218", r"compiling the kernels for this GPU failed"),
        ("fail=cuInit:1:3", r"CUDA cannot start: this process was forked from one in which it had"),
        ("fail=cuInit:1:803", r"differ in version: restart the machine"),
        ("fail=cuMemAllocHost_v2:1:2", r"out of memory while allocating page-locked memory"),
    ],
)  # fmt: skip
def test_a_machine_that_cannot_run_it_is_told_why_and_what_to_do(twin: Twin, extra: str, words: str) -> None:
    outcome = twin.run(INPUTS, extra=extra)
    assert outcome.error.startswith("WrongMachine: the model cannot start: ")
    assert re.search(words, outcome.error), outcome.error
    assert outcome.left == {}


@pytest.mark.parametrize("unit", [0, 1])
def test_what_the_driver_says_of_an_image_is_handed_on(twin: Twin, unit: int) -> None:
    """Of the first one, and of a later one: each time the driver replaces the size that it is given for its log."""
    images = iter(re.findall(r"module=\S+:sm_\S+", twin.settings))
    known = [next(images) for _ in range(unit)]
    outcome = replace(twin, settings=" ".join([twin.settings.split()[0], *known])).run(INPUTS)
    assert "loading the kernels failed: CUDA_ERROR_INVALID_IMAGE" in outcome.error
    assert "the double cannot load this image (200)" in outcome.error


def test_later_gpus_compile_the_ptx(twin: Twin) -> None:
    assert_right(twin.run(INPUTS, RANDOM, "sm=100"))


def test_a_driver_that_lacks_a_function_is_too_old(twin: Twin) -> None:
    outcome = twin.run(INPUTS, runtime=build_runtime(without=("cuGraphInstantiateWithFlags",)))
    assert "too old: it has no cuGraphInstantiateWithFlags, and this model needs CUDA 12.0" in outcome.error


def test_without_a_driver_it_says_so(twin: Twin, tmp_path: Path) -> None:
    (tmp_path / "libcuda.so.1").write_text("no library")
    outcome = twin.run(INPUTS, runtime=tmp_path / "libcuda.so.1")
    assert "no NVIDIA driver on this machine (" in outcome.error
    assert "libcuda.so.1" in outcome.error
    assert "compile the model for cpu" in outcome.error


def test_a_gpu_is_chosen_by_number(twin: Twin) -> None:
    assert_right(twin.run(INPUTS, extra="devices=2", device=1))
    assert "there is no GPU 2: this process sees 2" in twin.run(INPUTS, extra="devices=2", device=2).error


GIVING_BACK = ("Free", "Destroy", "Unload", "Release", "Pop", "DriverGetVersion")
"""Of functions whose failure leaves something alive for that reason alone, or is made up for."""


def test_whatever_call_of_the_driver_fails_it_is_an_error_and_nothing_is_left(twin: Twin) -> None:
    script = "outputs.update(model.run(inputs)); model.profile(inputs, 1)"
    calls = functions(twin.run(INPUTS, script=script))
    chosen: list[tuple[str, int]] = []
    for function in dict.fromkeys(calls):
        if any(word in function for word in GIVING_BACK):
            continue
        nth = calls.count(function) - (function == "cuCtxPushCurrent_v2")  # the last enters to give all back
        chosen += [(function, at) for at in sorted({nth, 1 if "Alloc" in function else nth})]
    assert len(chosen) >= 28

    def failing(one: tuple[str, int]) -> Outcome:
        return twin.run(INPUTS, extra=f"fail={one[0]}:{one[1]}:999", script=script)

    with ThreadPoolExecutor(2) as pool:
        for one, outcome in zip(chosen, pool.map(failing, chosen), strict=True):
            assert "CUDA_ERROR_UNKNOWN" in outcome.error, (one, outcome.error)
            assert outcome.left == {}, one


def test_after_a_failed_run_the_next_one_is_right(twin: Twin) -> None:
    script = """
try:
    model.run(inputs)
except RunError:
    outputs.update(model.run(inputs))
"""
    for function in ("cuMemcpyHtoDAsync_v2", "cuGraphLaunch", "cuMemcpyDtoHAsync_v2"):
        assert_right(twin.run(INPUTS, extra=f"fail={function}:1:999", script=script))


def test_a_kernels_fault_says_that_the_process_is_done_for(twin: Twin) -> None:
    outcome = twin.run(INPUTS, extra="fail=cuStreamSynchronize:2:700")
    assert outcome.error.startswith("RunError: a kernel failed on the GPU while running the model")
    assert "start another, and report the model" in outcome.error


# ---- Instances, measuring --------------------------------------------------------------------------------------------


def test_instances_in_threads_do_not_disturb_each_other(twin: Twin) -> None:
    script = f"""
import threading
wrong = []
def work(seed):
    with Model({str(twin.artifact)!r}, verify=False) as own:
        given = own.random_inputs(seed)
        for _ in range(3):
            if not np.array_equal(own.run(given)[{LOGITS!r}], alone[seed]):
                wrong.append(seed)
alone = [model.run(model.random_inputs(seed))[{LOGITS!r}] for seed in range(3)]
threads = [threading.Thread(target=work, args=(seed,)) for seed in range(3)]
[thread.start() for thread in threads], [thread.join() for thread in threads]
outputs.update(model.run(inputs), wrong=np.array(wrong))
"""
    outcome = twin.run(INPUTS, RANDOM, script=script)
    assert_right(outcome)
    assert outcome.outputs["wrong"].size == 0


def test_a_bench_tells_runs_inside_the_gpu_apart_from_those_with_copies(twin: Twin) -> None:
    script = """
told = model.bench(0.05, inputs)
assert told["runs"] == len(told["samples"]) >= 10 and told["with_copies"]["runs"] >= 10 and told["lanes"] == 1
outputs.update(model.run(inputs))
"""
    outcome = twin.run(INPUTS, script=script)
    assert_right(outcome)
    names = functions(outcome)
    assert names.count("cuGraphLaunch") > names.count("cuMemcpyHtoDAsync_v2") >= 10


def test_a_profile_times_each_kernel_alone(twin: Twin) -> None:
    script = """
rows = model.profile(inputs, 3)
outputs.update(model.run(inputs), seconds=[row["seconds"] for row in rows], share=[row["share"] for row in rows])
"""
    outcome = twin.run(INPUTS, RANDOM, script=script)
    assert_right(outcome)
    assert len(outcome.outputs["seconds"]) == len(KERNELS.calls)
    assert (outcome.outputs["seconds"] > 0).all()
    assert outcome.outputs["share"].sum() == pytest.approx(1)


def test_the_example_in_c_runs(artifact: Path, twin: Twin, tmp_path: Path) -> None:
    with zipfile.ZipFile(artifact) as archive:
        archive.extractall(tmp_path)
    strict: Sequence[str] = ("-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic", "-O1")
    command = ["gcc", *strict, "-o", "example", "example.c", "./model.so", "-Wl,-rpath,$ORIGIN"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    done = subprocess.run(
        ["./example"], cwd=tmp_path, capture_output=True, text=True, env={**os.environ, **twin.environment}, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "least latency of 100 runs" in done.stdout

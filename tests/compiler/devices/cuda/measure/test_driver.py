from __future__ import annotations

import ctypes
from collections.abc import Iterator

import numpy as np
import pytest

from compiler.devices.cuda import target as cuda
from compiler.devices.cuda.measure import driver
from compiler.devices.cuda.measure.driver import (
    Device,
    DriverError,
    Launch,
    Module,
    bus_id,
    fingerprint,
    gpu_here,
    refusal,
)
from compiler.errors import TargetUnavailable
from tests.cuda_double import double
from tests.cuda_double.double import build_runtime, compile_kernels, compiler_there, run_apart
from tests.kept import kept

pytestmark = pytest.mark.skipif(not compiler_there(), reason="the double of CUDA needs g++")

SOURCE = """
#include "tw_cuda.h"
extern "C" __global__ void __launch_bounds__(64) add_one(const float *x, float *y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    y[i] = x[i] + 1.0f;
}
extern "C" __global__ void __launch_bounds__(64) add_one_after(const float *x, float *y) {
    tw_grid_launch_dependents();
    tw_grid_dependency_wait();
    y[threadIdx.x] = x[threadIdx.x] + 1.0f;
}
extern "C" __global__ void reverse(const float *x, float *y) {
    float *room = (float *)tw_dynamic_shared();
    room[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    y[threadIdx.x] = room[blockDim.x - 1 - threadIdx.x];
}
extern "C" __global__ void wild(float *x) { *(float *)((char *)x - (1ll << 40)) = 1; }
"""


@pytest.fixture
def image() -> Iterator[bytes]:
    """A fresh double in this process, and what stands for a cubin on it."""
    library = compile_kernels(SOURCE, "plain", "measured.cu")
    bytes_ = f"cubin of {library.name}\0".encode()
    file = kept(f"image of {library.name}", ".image", lambda made: made.write_bytes(bytes_))
    with double.Device(settings=f"module={file}:sm_90:{library}") as fresh:
        fresh.call("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))
        fresh.call("cuDevicePrimaryCtxRelease_v2", 0)
        yield bytes_
        assert {name: count for name, count in fresh.state().items() if count} == {}


def upload_and_run(device: Device, module: Module) -> np.ndarray:
    x, y = device.upload(np.arange(64, dtype=np.float32)), device.allocate(256)
    with x, y, device.stream() as stream:
        stream.launch(Launch(module.function("add_one"), 1, 64, (x.address, y.address)))
        stream.synchronize()
        return y.read(np.empty(64, np.float32))


def test_a_gpu_is_described(image: bytes) -> None:
    gpu = gpu_here()
    assert gpu is not None
    assert (gpu.name, gpu.capability, gpu.multiprocessors) == ("CUDA double sm_90", (9, 0), 4)
    assert (gpu.l2_bytes, gpu.memory_bytes, gpu.clock_ghz) == (50 << 20, 8 << 30, 1.83)
    assert gpu.fingerprint.startswith("cuda:sm_90/")
    assert gpu_here(1) is None
    resolved = cuda.resolve("cuda", gpu)
    assert (resolved.name, resolved.is_here, resolved.product) == ("cuda:sm_90", True, "CUDA double sm_90")
    assert bus_id(0) == ""  # the double has no bus


def test_fingerprints_tell_devices_and_drivers_apart_and_ignore_reserved_memory() -> None:
    facts = ((9, 0), "H200", 132, 50 << 20, 141 << 30, 13)
    assert fingerprint(*facts) == fingerprint(*facts[:4], (141 << 30) - (64 << 20), 13)
    others = [
        fingerprint((9, 0), "H100", 132, 50 << 20, 141 << 30, 13),
        fingerprint((9, 0), "H200", 114, 50 << 20, 141 << 30, 13),
        fingerprint((9, 0), "H200", 132, 60 << 20, 141 << 30, 13),
        fingerprint((9, 0), "H200", 132, 50 << 20, 80 << 30, 13),
        fingerprint((9, 0), "H200", 132, 50 << 20, 141 << 30, 12),
    ]
    assert len({fingerprint(*facts), *others}) == 6


def test_kernels_run_on_what_was_uploaded_and_nothing_stays(image: bytes) -> None:
    with Device() as device, device.module(image) as module:
        assert device.capability == (9, 0)
        np.testing.assert_array_equal(upload_and_run(device, module), np.arange(64) + 1)


def test_nothing_stays_when_something_fails_inside(image: bytes) -> None:
    with pytest.raises(DriverError) as caught, Device() as device, device.module(image) as module:
        module.function("no_such_kernel")
    assert (caught.value.name, caught.value.code) == ("CUDA_ERROR_NOT_FOUND", 500)
    assert str(caught.value) == "cuModuleGetFunction: CUDA_ERROR_NOT_FOUND (named symbol not found)"
    assert not caught.value.loses_context


@pytest.mark.parametrize(("kernel", "early"), [("add_one", False), ("add_one_after", True)])
def test_a_chain_runs_in_order(image: bytes, kernel: str, early: bool) -> None:
    with (
        Device() as device,
        device.module(image) as module,
        device.stream() as stream,
        device.upload(np.zeros(64, np.float32)) as x,
        device.allocate(256) as y,
    ):
        function, there, back = module.function(kernel), (x.address, y.address), (y.address, x.address)
        launches = [Launch(function, 1, 64, back if turn % 2 else there) for turn in range(6)]
        with device.chain(launches, early=early) as graph:
            stream.run(graph)
            stream.synchronize()
        np.testing.assert_array_equal(x.read(np.empty(64, np.float32)), np.full(64, 6))


def test_shared_memory_and_clusters_reach_the_launch(image: bytes) -> None:
    values = np.arange(64, dtype=np.float32)
    with (
        Device() as device,
        device.module(image) as module,
        device.stream() as stream,
        device.upload(values) as x,
        device.allocate(256) as y,
    ):
        function, pointers = module.function("reverse", 100 * 1024), (x.address, y.address)
        launch = Launch(function, 2, 64, pointers, 100 * 1024, cluster=2)
        stream.launch(launch)
        with device.chain([launch, launch]) as graph:
            stream.run(graph)
        stream.synchronize()
        np.testing.assert_array_equal(y.read(np.empty(64, np.float32)), values[::-1])
        with pytest.raises(DriverError, match="INVALID_VALUE"):
            stream.launch(Launch(function, 3, 64, pointers, cluster=2))


def test_events_tell_seconds(image: bytes) -> None:
    with Device() as device, device.stream() as stream, device.event() as begin, device.event() as end:
        begin.record(stream)
        end.record(stream)
        end.synchronize()
        assert 0 <= end.since(begin) < 1e-3


def test_memory_is_filled_with_copies_of_its_beginning(image: bytes) -> None:
    with Device() as device, device.allocate(1000) as memory:
        memory.write(np.arange(7, dtype=np.uint8))
        memory.repeat(7)
        device.synchronize()
        np.testing.assert_array_equal(memory.read(np.empty(1000, np.uint8)), np.resize(np.arange(7), 1000))
        memory.clear()
        device.synchronize()
        assert not memory.read(np.empty(1000, np.uint8)).any()


def test_a_kernel_that_faults_loses_the_context(image: bytes) -> None:
    program = f"""
import sys
from compiler.devices.cuda.measure.driver import Device, DriverError, Launch
device = Device().__enter__()
function = device.module({image!r}).function("wild")
memory = device.allocate(256)
stream = device.stream()
stream.launch(Launch(function, 1, 1, (memory.address,)))
try:
    stream.synchronize()
except DriverError as error:
    print(error.loses_context, error.name)
"""
    library = compile_kernels(SOURCE, "plain", "measured.cu")
    file = kept(f"image of {library.name}", ".image", lambda made: None)
    done = run_apart(program, LD_LIBRARY_PATH=str(build_runtime().parent), TW_DOUBLE=f"module={file}:sm_90:{library}")
    assert done.stdout.split() == ["True", "CUDA_ERROR_LAUNCH_FAILED"], done.stderr


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ("", "True ''"),
        ("devices=0", "False 'the NVIDIA driver does not give a GPU: cuInit: CUDA_ERROR_NO_DEVICE (no CUDA-capable"),
        ("fail=cuInit:1:999", "False"),
    ],
)
def test_what_a_process_finds(settings: str, said: str) -> None:
    program = "from compiler.devices.cuda.measure.driver import gpu_here, refusal; print(gpu_here() is not None, repr(refusal()))"
    done = run_apart(program, LD_LIBRARY_PATH=str(build_runtime().parent), TW_DOUBLE=settings)
    assert done.stdout.startswith(said), done.stderr


def test_an_old_driver_is_named() -> None:
    runtime = build_runtime(without=("cuGraphAddKernelNode_v2",))
    program = "from compiler.devices.cuda.measure.driver import gpu_here, refusal; print(gpu_here(), refusal())"
    done = run_apart(program, LD_LIBRARY_PATH=str(runtime.parent))
    assert done.stdout == "None the NVIDIA driver is too old: it lacks cuGraphAddKernelNode_v2\n", done.stderr


def test_without_a_driver_there_is_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "LIBRARY", "libcuda.so.of-no-machine")
    assert gpu_here() is None
    assert refusal() == "there is no NVIDIA driver on this machine"
    with pytest.raises(TargetUnavailable, match="no NVIDIA driver"):
        Device()

"""The double's driver refuses what CUDA's would, finds what a host program does wrong, and fails on request."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from compiler.devices.cuda import nvrtc
from tests.cuda_double.demonstration import DEMONSTRATIONS, error
from tests.cuda_double.double import (
    MODES,
    Buffer,
    Device,
    DriverError,
    Fault,
    KernelNodeParams,
    Mode,
    Node,
    build_runtime,
    compile_kernels,
    compiler_there,
    run_apart,
)

pytestmark = pytest.mark.skipif(not compiler_there(), reason="the double of CUDA needs g++")

SOURCE = """
#include "tw_cuda.h"
extern "C" __global__ void __launch_bounds__(64) add_one(const float *x, float *y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] + 1.0f;
}
extern "C" __global__ void add_both(const float *x, const float *y, float *z, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) z[i] = x[i] + y[i];
}
extern "C" __global__ void divide(int *x, int by) { x[0] = x[0] / by; }
extern "C" __global__ void recurse(int *x, int depth) {
    volatile char room[4096];
    room[depth % 4096] = (char)depth;
    void (*self)(int *, int) = recurse;
    if (depth < 1000) self(x, depth + 1);
    x[0] += room[depth % 4096];
}
extern "C" __global__ void wild(float *x) { *(float *)((char *)x - (1ll << 40)) = 1; }
"""
INVALID_VALUE, OUT_OF_MEMORY, NO_DEVICE, INVALID_CONTEXT, NO_BINARY = 1, 2, 100, 201, 209
BAD_PTX, INVALID_HANDLE, NOT_FOUND, NOT_SUPPORTED = 222, 400, 500, 801


@pytest.fixture(scope="module")
def module() -> Path:
    return compile_kernels(SOURCE, "plain", "driver.cu")


@pytest.fixture
def device(module: Path) -> Iterator[Device]:
    with Device(module) as found:
        yield found


def refused(device: Device, function: str, *arguments: object) -> int:
    with pytest.raises(DriverError) as caught:
        device.call(function, *arguments)
    return caught.value.code


def launch_refused(device: Device, **changes: object) -> int:
    x = device.allocate(256)
    what = {"kernel": "add_one", "grid": [1], "block": [64], "arguments": [x, x, 64]} | changes
    with pytest.raises(DriverError) as caught:
        device.launch(**what)  # type: ignore[arg-type]
    return caught.value.code


# ---- Launches --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [
        {"block": [1024]},  # __launch_bounds__(64)
        {"block": [1025], "kernel": "add_both", "arguments": [np.uint64(0)] * 3 + [0]},
        {"block": [1, 1, 65]},
        {"block": [0]},
        {"grid": [1, 65536]},
        {"grid": [0]},
        {"shared": 228 * 1024},
        {"cluster": [2]},  # the grid is one block
        {"grid": [16], "cluster": [16]},
    ],
    ids=str,
)
def test_a_launch_beyond_the_limits_is_refused(device: Device, changes: dict[str, object]) -> None:
    assert launch_refused(device, **changes) == INVALID_VALUE


def test_more_than_48_kib_of_shared_memory_must_be_asked_for(device: Device) -> None:
    x = device.upload(np.zeros(64, np.float32))
    found = ctypes.c_void_p()
    device.call("cuModuleGetFunction", ctypes.byref(found), device.handle, b"add_one")
    pointers, alive = device.parameters([x, x, 64])
    device.call("cuFuncSetAttribute", found, 8, 48 << 10)
    arguments = (found, 1, 1, 1, 64, 1, 1, 49 << 10, None, pointers, None)
    assert refused(device, "cuLaunchKernel", *arguments) == INVALID_VALUE
    device.call("cuFuncSetAttribute", found, 8, 49 << 10)
    device.call("cuLaunchKernel", *arguments)
    assert refused(device, "cuFuncSetAttribute", found, 8, 228 << 10) == INVALID_VALUE
    del alive


def test_before_sm_90_there_are_no_clusters_and_no_tensor_maps(module: Path) -> None:
    with Device(module, settings="sm=86") as device:
        assert launch_refused(device, grid=[2], cluster=[2]) == NOT_SUPPORTED
        assert refused(device, "cuTensorMapEncodeTiled", *[None] * 12) == NOT_SUPPORTED


def test_a_function_that_is_not_there(device: Device) -> None:
    found = ctypes.c_void_p()
    assert refused(device, "cuModuleGetFunction", ctypes.byref(found), device.handle, b"subtract_one") == NOT_FOUND


def test_arguments_are_copied_when_a_node_is_added(device: Device) -> None:
    x, y = device.upload(np.arange(64, dtype=np.float32)), device.allocate(256)
    values = [device.parameter(value) for value in (x, y, 64)]
    pointers = (ctypes.c_void_p * 3)(*map(ctypes.addressof, values))
    device.call("cuLaunchKernel", device.function("add_one"), 1, 1, 1, 64, 1, 1, 0, None, pointers, None)
    for value in values:
        ctypes.memset(value, 0xFF, len(value))
    device.call("cuCtxSynchronize")
    np.testing.assert_array_equal(device.download(y, (64,), np.float32), np.arange(64) + 1)


# ---- What a kernel does to the process is a fault of the launch ------------------------------------------------------


def test_a_division_by_zero_and_a_wild_pointer_do_not_end_the_process(device: Device) -> None:
    for kernel, arguments in (
        ("divide", [device.upload(np.ones(1, np.int32)), 0]),
        ("wild", [device.allocate(4)]),
        ("recurse", [device.allocate(4), 0]),
    ):
        with pytest.raises(Fault) as caught:
            device.launch(kernel, [1], [1], arguments)
        assert caught.value.kind == "crash", kernel
        device.__enter__()  # the context is lost, as on a GPU
        device.functions.clear()


def test_after_a_fault_the_context_is_lost(device: Device) -> None:
    buffer = device.allocate(4)
    with pytest.raises(Fault):
        device.launch("wild", [1], [1], [buffer])
    with pytest.raises(Fault):
        device.allocate(4)


# ---- Memory ----------------------------------------------------------------------------------------------------------


def test_memory_is_poisoned_counted_and_bounded(device: Device) -> None:
    x = device.allocate(400)
    assert np.isnan(device.download(x, (100,), np.float32)).all()
    assert device.state()["allocations"] == 1
    room = (ctypes.c_char * 401)()
    assert refused(device, "cuMemcpyHtoD_v2", ctypes.c_uint64(x.address), room, ctypes.c_size_t(401)) == INVALID_VALUE
    assert refused(device, "cuMemFree_v2", ctypes.c_uint64(x.address + 4)) == INVALID_VALUE
    device.call("cuMemFree_v2", ctypes.c_uint64(x.address))
    assert device.state()["allocations"] == 0
    assert refused(device, "cuMemFree_v2", ctypes.c_uint64(x.address)) == INVALID_VALUE
    device.configure("memory=1000")
    assert refused(device, "cuMemAlloc_v2", ctypes.byref(ctypes.c_uint64()), ctypes.c_size_t(1001)) == OUT_OF_MEMORY


def test_a_kernel_that_reads_freed_memory_is_found() -> None:
    with Device(compile_kernels(SOURCE, "checked", "driver.cu")) as device:
        x, y = device.upload(np.zeros(64, np.float32)), device.allocate(256)
        device.call("cuMemFree_v2", ctypes.c_uint64(x.address))
        with pytest.raises(Fault, match=r"use-after-free: add_one.*which was freed"):
            device.launch("add_one", [1], [64], [x, y, 64])


def test_a_race_names_both_lines() -> None:
    with Device(compile_kernels(SOURCE, "checked", "driver.cu")) as device:
        x = device.upload(np.zeros(64, np.float32))
        line = r"\[driver.cu:5\]"
        with pytest.raises(
            Fault,
            match=rf"race: .* of byte \d+ of 256 of allocation 1 {line} conflicts with a \w+ by thread \d+ {line}",
        ):
            device.launch("add_one", [1], [32], [x, np.uint64(x.address + 4), 32])


NON_COHERENT = """
#include "tw_cuda.h"
extern "C" __global__ void __launch_bounds__(32) fill(float *x) {
    tw_grid_launch_dependents();
    tw_grid_dependency_wait();
    for (int i = 0; i < 4; i++) x[4 * threadIdx.x + i] = (float)threadIdx.x;
}
extern "C" __global__ void __launch_bounds__(32) read_once(const float *x, float *y) {
    tw_grid_launch_dependents();
    tw_grid_dependency_wait();
    y[threadIdx.x] = __uint_as_float(tw_load_once(x + 4 * threadIdx.x).x);
}
extern "C" __global__ void __launch_bounds__(32) exchange(float *x, float *y) {
    for (int i = 0; i < 4; i++) x[4 * threadIdx.x + i] = (float)threadIdx.x;
    __syncthreads();
    y[threadIdx.x] = __uint_as_float(tw_load_once(x + 4 * (31 - threadIdx.x)).x);
}
"""


def test_a_non_coherent_read_of_what_the_kernel_can_have_cached_before_is_found() -> None:
    """The L1 that it goes through knows of no write while the kernel runs, whatever orders the two."""
    checked = compile_kernels(NON_COHERENT, "checked", "non_coherent.cu")
    stale = r"stale: read_once .*non_coherent.cu:11: a non-coherent read of byte \d+ .* before a write"
    for mode in MODES:
        with Device(checked, mode) as device:
            x, y = device.allocate(512), device.allocate(128)
            first, late = Node("fill", [1], [32], [x]), Node("read_once", [1], [32], [x, y], after=(0,))
            device.graph([first, late])  # begins when the write is over
            np.testing.assert_array_equal(device.download(y, (32,), np.float32), np.arange(32))
            with pytest.raises(Fault, match=stale):
                device.graph([first, Node("read_once", [1], [32], [x, y], early=(0,))])
        with Device(checked, mode) as device, pytest.raises(Fault, match=r"stale: exchange"):
            device.launch("exchange", [1], [32], [device.allocate(512), device.allocate(128)])


# ---- Contexts and leaks ----------------------------------------------------------------------------------------------


def test_without_a_context_nothing_goes(device: Device) -> None:
    old = ctypes.c_void_p()
    device.call("cuCtxPopCurrent_v2", ctypes.byref(old))
    assert refused(device, "cuMemAlloc_v2", ctypes.byref(ctypes.c_uint64()), ctypes.c_size_t(4)) == INVALID_CONTEXT
    assert refused(device, "cuCtxPopCurrent_v2", ctypes.byref(old)) == INVALID_CONTEXT
    device.call("cuCtxPushCurrent_v2", old)
    assert device.state()["context_depth"] == 1


def test_what_was_not_given_back_is_counted(device: Device) -> None:
    handles = {name: ctypes.c_void_p() for name in ("cuStreamCreate", "cuEventCreate", "cuGraphCreate")}
    for function, handle in handles.items():
        device.call(function, ctypes.byref(handle), 0)
    assert {name: device.state()[name] for name in ("streams", "events", "graphs", "modules")} == dict.fromkeys(
        ("streams", "events", "graphs", "modules"), 1
    )
    for function, handle in zip(
        ("cuStreamDestroy_v2", "cuEventDestroy_v2", "cuGraphDestroy"), handles.values(), strict=True
    ):
        device.call(function, handle)
        assert refused(device, function, handle) == INVALID_HANDLE
    device.call("cuModuleUnload", device.handle)
    assert sum(device.state()[name] for name in ("streams", "events", "graphs", "modules")) == 0


# ---- Streams, events, graphs -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES, ids=Mode.short)
def test_work_of_two_streams_is_ordered_by_an_event_alone(module: Path, mode: Mode) -> None:
    with Device(module, mode) as device:
        x, y, z = device.upload(np.zeros(64, np.float32)), device.allocate(256), device.allocate(256)
        first, second, event = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
        device.call("cuStreamCreate", ctypes.byref(first), 1)
        device.call("cuStreamCreate", ctypes.byref(second), 1)
        device.call("cuEventCreate", ctypes.byref(event), 2)

        def add_one(source: object, target: object, stream: ctypes.c_void_p) -> None:
            pointers, alive = device.parameters([source, target, 64])
            device.call("cuLaunchKernel", device.function("add_one"), 1, 1, 1, 64, 1, 1, 0, stream, pointers, None)
            del alive

        add_one(x, y, first)
        device.call("cuEventRecord", event, first)
        device.call("cuStreamWaitEvent", second, event, 0)
        add_one(y, z, second)
        device.call("cuStreamSynchronize", second)
        np.testing.assert_array_equal(device.download(z, (64,), np.float32), np.full(64, 2))


def test_a_result_that_was_not_waited_for_is_no_result(module: Path) -> None:
    with Device(module, Mode(landing="late")) as device:
        x, pinned = device.upload(np.zeros(64, np.float32)), ctypes.c_void_p()
        device.call("cuMemAllocHost_v2", ctypes.byref(pinned), ctypes.c_size_t(256))
        host = np.ctypeslib.as_array(ctypes.cast(pinned, ctypes.POINTER(ctypes.c_float)), (64,))
        device.call("cuMemcpyDtoHAsync_v2", pinned, ctypes.c_uint64(x.address), ctypes.c_size_t(256), None)
        assert np.isnan(host).all()
        device.call("cuStreamSynchronize", None)
        assert (host == 0).all()
        device.call("cuMemFreeHost", pinned)


def diamond(
    device: Device, overlap: bool = False, edges: tuple[tuple[int, ...], ...] = ((), (0,), (0,), (1, 2))
) -> np.ndarray:
    """z = (x + 1 + 1) + (x + 1 + 1) as four nodes over one arena.

    `overlap` gives two buffers that live at once one place.
    """
    x = device.upload(np.arange(64, dtype=np.float32))
    arena = device.allocate(4 * 256)
    at = [np.uint64(arena.address + 256 * slot) for slot in (0, 1, 1 if overlap else 2, 3)]
    kernels: list[tuple[str, list[object]]] = [
        ("add_one", [x, at[0], 64]),
        ("add_one", [at[0], at[1], 64]),
        ("add_one", [at[0], at[2], 64]),
        ("add_both", [at[1], at[2], at[3], 64]),
    ]
    device.graph(
        [
            Node(kernel, [1], [64], arguments, after=after)
            for (kernel, arguments), after in zip(kernels, edges, strict=True)
        ]
    )
    return device.download(Buffer(int(at[3]), 256), (64,), np.float32)


@pytest.mark.parametrize("flavour", ["plain", "checked"])
@pytest.mark.parametrize("mode", MODES, ids=Mode.short)
def test_a_graph_runs_in_any_order_that_its_edges_allow(flavour: str, mode: Mode) -> None:
    with Device(compile_kernels(SOURCE, flavour, "driver.cu"), mode) as device:
        np.testing.assert_array_equal(diamond(device), 2 * (np.arange(64) + 2))


def test_a_dropped_edge_and_overlapping_buffers_are_races_whatever_the_order() -> None:
    checked = compile_kernels(SOURCE, "checked", "driver.cu")
    for mode in MODES:
        with Device(checked, mode) as device, pytest.raises(Fault, match=r"race: .*no edge orders"):
            diamond(device, edges=((), (0,), (0,), (1,)))
        with Device(checked, mode) as device, pytest.raises(Fault, match=r"race: .*no edge orders"):
            diamond(device, overlap=True)


def test_a_dropped_edge_shows_in_some_order_without_checks(module: Path) -> None:
    results = []
    for seed in range(8):
        with Device(module, Mode("random", "late", seed=seed)) as device:
            results.append(diamond(device, edges=((), (0,), (0,), (1,))))
    assert any(not np.array_equal(result, 2 * (np.arange(64) + 2)) for result in results)


def test_a_cycle_cannot_be_instantiated(device: Device) -> None:
    graph, executable = ctypes.c_void_p(), ctypes.c_void_p()
    device.call("cuGraphCreate", ctypes.byref(graph), 0)
    nodes = [ctypes.c_void_p(), ctypes.c_void_p()]
    for node in nodes:
        device.call("cuGraphAddEmptyNode", ctypes.byref(node), graph, None, ctypes.c_size_t(0))
    for first, second in (nodes, nodes[::-1]):
        device.call(
            "cuGraphAddDependencies_v2", graph, ctypes.byref(first), ctypes.byref(second), None, ctypes.c_size_t(1)
        )
    assert (
        refused(device, "cuGraphInstantiateWithFlags", ctypes.byref(executable), graph, ctypes.c_ulonglong(0))
        == INVALID_VALUE
    )


def test_a_node_of_an_executable_graph_takes_other_arguments(device: Device) -> None:
    x, other, y = (
        device.upload(np.zeros(64, np.float32)),
        device.upload(np.full(64, 5, np.float32)),
        device.allocate(256),
    )
    graph, executable, node = (ctypes.c_void_p() for _ in range(3))
    device.call("cuGraphCreate", ctypes.byref(graph), 0)

    def params(source: Buffer, grid: int = 1) -> tuple[KernelNodeParams, object]:
        pointers, alive = device.parameters([source, y, 64])
        launch = (grid, 1, 1, 64, 1, 1, 0, ctypes.addressof(pointers))
        return KernelNodeParams(device.function("add_one").value, *launch), (pointers, alive)

    first, alive = params(x)
    device.call("cuGraphAddKernelNode_v2", ctypes.byref(node), graph, None, ctypes.c_size_t(0), ctypes.byref(first))
    device.call("cuGraphInstantiateWithFlags", ctypes.byref(executable), graph, ctypes.c_ulonglong(0))
    device.call("cuGraphLaunch", executable, None)  # with the arguments of now, whenever it runs
    second, also_alive = params(other)
    device.call("cuGraphExecKernelNodeSetParams_v2", executable, node, ctypes.byref(second))
    np.testing.assert_array_equal(device.download(y, (64,), np.float32), np.ones(64))
    device.call("cuGraphLaunch", executable, None)
    np.testing.assert_array_equal(device.download(y, (64,), np.float32), np.full(64, 6))
    wrong, _ = params(x, grid=0)
    for handle, values in ((node, wrong), (ctypes.c_void_p(1), first)):
        assert (
            refused(device, "cuGraphExecKernelNodeSetParams_v2", executable, handle, ctypes.byref(values))
            == INVALID_VALUE
        )
    del alive, also_alive


def test_an_image_that_cannot_be_loaded_leaves_a_log(device: Device) -> None:
    log, handle = ctypes.create_string_buffer(200), ctypes.c_void_p()
    options, values = (ctypes.c_int * 2)(5, 6), (ctypes.c_void_p * 2)(ctypes.addressof(log), len(log))
    arguments = (ctypes.byref(handle), b"another", 2, options, values)
    assert refused(device, "cuModuleLoadDataEx", *arguments) == 200
    assert log.value == b"the double cannot load this image (200)"


class Memcpy3D(ctypes.Structure):
    """CUDA_MEMCPY3D."""

    _fields_ = (
        *((f"from_{name}", ctypes.c_size_t) for name in ("x", "y", "z", "lod")),
        ("from_type", ctypes.c_uint),
        *((f"from_{name}", ctypes.c_void_p) for name in ("host", "device", "array", "reserved")),
        *((f"from_{name}", ctypes.c_size_t) for name in ("pitch", "height")),
        *((f"to_{name}", ctypes.c_size_t) for name in ("x", "y", "z", "lod")),
        ("to_type", ctypes.c_uint),
        *((f"to_{name}", ctypes.c_void_p) for name in ("host", "device", "array", "reserved")),
        *((f"to_{name}", ctypes.c_size_t) for name in ("pitch", "height")),
        *((name, ctypes.c_size_t) for name in ("width", "height", "depth")),
    )


class MemsetParams(ctypes.Structure):
    """CUDA_MEMSET_NODE_PARAMS."""

    _fields_ = (
        ("to", ctypes.c_uint64),
        ("pitch", ctypes.c_size_t),
        ("value", ctypes.c_uint),
        ("element_bytes", ctypes.c_uint),
        ("width", ctypes.c_size_t),
        ("height", ctypes.c_size_t),
    )


def test_a_graph_copies_and_fills(device: Device) -> None:
    x, y = device.allocate(256), device.allocate(256)
    graph, executable, fill, copy = (ctypes.c_void_p() for _ in range(4))
    device.call("cuGraphCreate", ctypes.byref(graph), 0)
    value = np.float32(3.5).view(np.uint32)
    filled = MemsetParams(x.address, 0, int(value), 4, 64, 1)
    device.call("cuGraphAddMemsetNode", ctypes.byref(fill), graph, None, ctypes.c_size_t(0), ctypes.byref(filled), None)
    copied = Memcpy3D(from_type=2, from_device=x.address, to_type=2, to_device=y.address, width=256, height=1, depth=1)
    device.call(
        "cuGraphAddMemcpyNode",
        ctypes.byref(copy),
        graph,
        ctypes.byref(fill),
        ctypes.c_size_t(1),
        ctypes.byref(copied),
        None,
    )
    device.call("cuGraphInstantiateWithFlags", ctypes.byref(executable), graph, ctypes.c_ulonglong(0))
    device.call("cuGraphDestroy", graph)  # what was instantiated lives on
    device.call("cuGraphLaunch", executable, None)
    assert (device.download(y, (64,), np.float32) == 3.5).all()


# ---- Failures on request ---------------------------------------------------------------------------------------------


def test_the_nth_call_fails(device: Device) -> None:
    device.configure("fail=cuMemAlloc_v2:2:2")
    device.allocate(4)
    assert refused(device, "cuMemAlloc_v2", ctypes.byref(ctypes.c_uint64()), ctypes.c_size_t(4)) == OUT_OF_MEMORY
    device.allocate(4)
    assert device.calls().count("cuMemAlloc_v2 4") == 2


def test_no_device() -> None:
    with pytest.raises(DriverError) as caught, Device(settings="devices=0"):
        pass
    assert caught.value.code == NO_DEVICE


@pytest.mark.parametrize(
    ("architecture", "settings", "code"),
    [
        ("sm_80", "sm=86", 0),
        ("sm_86", "sm=80", NO_BINARY),
        ("sm_80", "sm=90", NO_BINARY),
        ("sm_90a", "sm=90", 0),
        ("sm_90a", "sm=100", NO_BINARY),
        ("compute_80", "sm=90", 0),
        ("compute_90", "sm=80", NO_BINARY),
        ("compute_80", "sm=90 driver=12040", BAD_PTX),
    ],
)
def test_an_image_runs_where_its_architecture_does(
    module: Path, tmp_path: Path, architecture: str, settings: str, code: int
) -> None:
    image = tmp_path / "image"
    image.write_bytes(b"an image")
    with Device(settings=f"{settings} module={image}:{architecture}:{module}") as device:
        handle = ctypes.c_void_p()
        if code:
            assert refused(device, "cuModuleLoadData", ctypes.byref(handle), b"an image") == code
        else:
            device.call("cuModuleLoadData", ctypes.byref(handle), b"an image")
        assert refused(device, "cuModuleLoadData", ctypes.byref(handle), b"another") == 200


def test_a_process_of_its_own_is_configured_and_reports(tmp_path: Path) -> None:
    """As the host program of an artifact finds it: by name, on the library path."""
    program = (
        "import ctypes; d = ctypes.CDLL('libcuda.so.1'); v = ctypes.c_int(); d.cuInit(0); "
        "d.cuDriverGetVersion(ctypes.byref(v)); print(v.value)"
    )
    report = tmp_path / "report"
    folder = str(build_runtime().parent)
    done = run_apart(
        program, LD_LIBRARY_PATH=folder, TW_DOUBLE="driver=12040 fail=cuInit:1:999", TW_DOUBLE_REPORT=str(report)
    )
    assert done.stdout.split() == ["12040"], done.stderr
    state, fault, *calls = report.read_text().splitlines()
    assert '"context_depth": 0' in state
    assert fault == ""
    assert calls == ["cuInit", "cuDriverGetVersion"]


def test_an_older_driver_lacks_functions() -> None:
    runtime = build_runtime(without=("cuGraphInstantiateWithFlags",))
    program = (
        f"import ctypes; d = ctypes.CDLL({str(runtime)!r}); print(hasattr(d, 'cuGraphInstantiateWithFlags'), "
        f"hasattr(d, 'cuInit'))"
    )
    assert run_apart(program).stdout.split() == ["False", "True"]


def test_nvrtc_works_in_a_process_that_has_the_double(device: Device) -> None:
    if nvrtc.library_path() is None:
        pytest.skip("NVRTC is not installed (nvidia-cuda-nvrtc, for Linux)")
    assert device.state()["modules"] == 1
    assert nvrtc.compile_cuda(DEMONSTRATIONS["softmax_row"].source, "sm_90a").kernels["softmax_row"].registers > 0


def test_every_demonstration_leaves_nothing_but_what_the_test_allocated() -> None:
    for name, demonstration in DEMONSTRATIONS.items():
        with Device(compile_kernels(demonstration.source, "plain", demonstration.file)) as device:
            assert error(demonstration.run(device)) <= demonstration.tolerance
            state = device.state()
            assert {key: state[key] for key in ("streams", "events", "graphs", "executables", "modules")} == {
                "streams": 0, "events": 0, "graphs": 0, "executables": 0, "modules": 1,
            }, name  # fmt: skip

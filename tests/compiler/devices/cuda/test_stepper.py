"""Single calls on the double of CUDA, in this process."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from compiler.contract import CompileOptions
from compiler.devices.cuda import nvrtc
from compiler.devices.cuda.candidates import Candidates
from compiler.devices.cuda.codegen.lowered import PREAMBLE
from compiler.devices.cuda.codegen.workload import cuda_workload_of
from compiler.devices.cuda.emit.lower import lower_cuda
from compiler.devices.cuda.emit.program import emit_cuda
from compiler.devices.cuda.stepper import CudaStepper
from compiler.devices.cuda.target import resolve
from compiler.devices.cuda.toolchain import find_cuda_toolchain
from compiler.devices.kinds import propose
from compiler.errors import Disagreement
from compiler.frontend.load import load
from compiler.fuse import fuse
from compiler.fuse.storage import with_storage
from compiler.ir.buffers import KernelGraph
from compiler.ir.graph import Graph
from compiler.ir.plans.lanes import LaneCosts
from compiler.ir.plans.plan import Plan
from compiler.ir.program import Program
from compiler.ir.region import Region
from compiler.ir.tensor import DType
from compiler.ir.tile import Cost, Menu, Variant
from compiler.measure.memory import allocate, operand, read_buffer, write_buffer
from compiler.ops import OPERATORS
from compiler.prove.bisect import bisect
from compiler.prove.reference import evaluate_graph
from compiler.schedule import schedule
from compiler.tuning.tune import workload_key
from tests.compiler.devices.cuda.artifact_on_double import modules_of
from tests.compiler.frontend.open.at_sizes import model_of
from tests.compiler.networks import Network, graph_of
from tests.cuda_double import double
from tests.kept import kept

pytestmark = pytest.mark.skipif(
    not double.compiler_there() or nvrtc.library_path() is None, reason="the double of CUDA needs g++, its images NVRTC"
)
TARGET = resolve("cuda:sm_90")


def no_program(kernels: KernelGraph, plan: Plan) -> Program:
    pytest.fail("there is no region")


def branches() -> Graph:
    """Convolutions of 3 and 16 channels joined to 19, so that the second is written to an odd place.

    Pooling and a softmax.
    """
    net = Network()
    x = net.input(1, 8, 5, 5)
    parts = []
    for filters in (3, 16):
        y = net.node("Conv", [x, net.weight(filters, 8, 3, 3), net.weight(filters)], (1, filters, 5, 5), pads=[1] * 4)
        parts.append(net.node("Elu", [y], (1, filters, 5, 5), alpha=0.7182))
    x = net.node("Concat", parts, (1, 19, 5, 5), axis=1)
    x = net.node("Conv", [x, net.weight(16, 19, 3, 3)], (1, 16, 5, 5), pads=[1] * 4)
    x = net.node("MaxPool", [x], (1, 16, 5, 5), kernel_shape=[3, 3], pads=[1] * 4)
    return graph_of(net.model([net.node("Softmax", [x], (1, 16, 5, 5), axis=1)]))


def planned(kernels: KernelGraph, precision: str) -> Plan:
    menus = []
    for call in kernels.calls:
        workload = cuda_workload_of(kernels, call)
        best = propose(workload, TARGET, 1, precision=precision)[0]
        variant = Variant(
            best.tile, lower_cuda("kernel", workload, best.tile, TARGET).grid, 1, Cost(best.seconds, "model")
        )
        menus.append(Menu(workload_key(workload), (variant,)))
    return schedule(kernels, menus, 1, LaneCosts())[0].plan


@contextmanager
def device_for(kernels: KernelGraph, plan: Plan, candidates: Candidates, seeded: Mapping[str, str]) -> Iterator[None]:
    """A double that knows the kernels' images; in their texts the keys of `seeded` are replaced."""
    settings = ["sm=90"]
    for call, (tile, _) in zip(kernels.calls, plan.tiles, strict=True):
        candidate = candidates.compiled(cuda_workload_of(kernels, call), tile)
        text = PREAMBLE + candidate.lowered.text
        for right, wrong in seeded.items():
            text = text.replace(right, wrong)
        library = double.compile_kernels(text, "plain", "stepped.cu")
        file = kept(repr(candidate.image), ".image", partial(Path.write_bytes, data=candidate.image))
        settings.append(f"module={file}:{TARGET.architecture}:{library}")
    with double.Device(settings=" ".join(settings)) as fresh:
        fresh.call("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))
        fresh.call("cuDevicePrimaryCtxRelease_v2", 0)
        yield
        assert {name: count for name, count in fresh.state().items() if count} == {}


@pytest.mark.parametrize(("precision", "tolerance"), [("fp32", 1e-4), ("fp16", 2e-2)])
def test_a_network_run_call_by_call_agrees(precision: str, tolerance: float) -> None:
    graph = branches()
    kernels = fuse(graph).kernels
    if precision == "fp16":
        kernels = with_storage(kernels, DType.F16)
    assert any(buffer.offset for buffer in kernels.buffers.values())
    plan, candidates = planned(kernels, precision), Candidates(TARGET)
    (x,) = graph.inputs
    inputs = {x: np.random.default_rng(1).uniform(-1, 1, graph.type(x).dims).astype(np.float32)}
    memories = {storage: allocate(count) for storage, count in kernels.storage_bytes.items()}
    for id, array in {**kernels.constants, **inputs}.items():
        write_buffer(memories[kernels.buffers[id].storage], kernels.buffers[id], array)
    with device_for(kernels, plan, candidates, {}), CudaStepper(kernels, plan, candidates, no_program) as stepper:
        for position, call in enumerate(kernels.calls):
            buffers = [kernels.buffers[id] for id in (*call.inputs, *call.outputs)]
            stepper.run(position, [operand(memories[buffer.storage], buffer) for buffer in buffers])
    wanted = evaluate_graph(graph, inputs, OPERATORS)
    for id in kernels.outputs:
        got = read_buffer(memories[kernels.buffers[id].storage], kernels.buffers[id])
        np.testing.assert_allclose(got, wanted[id], rtol=tolerance, atol=tolerance)


def test_bisection_names_the_node_whose_kernel_is_wrong() -> None:
    graph = branches()
    kernels = with_storage(fuse(graph).kernels, DType.F16)
    plan, candidates = planned(kernels, "fp16"), Candidates(TARGET)
    (x,) = graph.inputs
    inputs = {x: np.full(graph.type(x).dims, -1, np.float32)}
    with (
        device_for(kernels, plan, candidates, {"0.7182": "0.3182"}),
        CudaStepper(kernels, plan, candidates, no_program) as stepper,
        pytest.raises(Disagreement) as caught,
    ):
        bisect(graph, kernels, stepper, inputs, OPERATORS, 2e-2)
    assert "Elu" in str(caught.value)


COUNTED = model_of("""m (int64 turns, float[300] x) => (float[300] y, float[n,300] rows) <float part = {0.75}> {
    y, rows = Loop<body = b (int64 i, bool c, float[300] v) => (bool d, float[300] w, float[300] r) {
        d = Identity(c) w = Mul(v, part) r = Exp(w)
    }>(turns, , x)
}""")


@pytest.mark.parametrize("turns", [0, 5])
def test_a_region_runs_as_a_program_of_its_own(turns: int) -> None:
    graph = load(COUNTED, CompileOptions(target="cuda:sm_90", bounds={"#0 Loop": 7}), OPERATORS).graph
    kernels = fuse(graph).kernels
    (position,) = (at for at, call in enumerate(kernels.calls) if isinstance(call.kernel, Region))
    plan, call = planned(kernels, "fp32"), kernels.calls[position]
    x = np.random.default_rng(2).uniform(-1, 1, 300).astype(np.float32)
    given = dict(zip(graph.inputs, (np.array(turns), x), strict=True))
    known = {
        **kernels.constants,
        **evaluate_graph(graph, given, OPERATORS, keep=(*call.inputs, *call.outputs)),
        **given,
    }
    with double.Device(settings="sm=90") as fresh:

        def emit(kernels: KernelGraph, plan: Plan) -> Program:
            program = emit_cuda(kernels, plan, TARGET, find_cuda_toolchain(), 2)
            units = {name: text for name, text in program.sources.items() if name.endswith(".cu")}
            for module in modules_of(program.library, units):
                fresh.configure(module)
            return program

        types = [kernels.buffers[id].type for id in (*call.inputs, *call.outputs)]
        operands = [np.full(type.elements, 77, type.dtype.numpy) for type in types]
        for array, id in zip(operands, call.inputs, strict=False):
            array[:] = np.ravel(known[id])
        with CudaStepper(kernels, plan, Candidates(TARGET), emit) as stepper:
            stepper.run(position, operands)
    for id, array in zip(call.outputs, operands[len(call.inputs) :], strict=True):
        np.testing.assert_allclose(array, np.ravel(known[id]), rtol=1e-5)

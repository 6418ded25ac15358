"""Loops and branches on CUDA: the host decides between graphs. On the double, beside ONNX Runtime."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from compiler.contract import CompileOptions
from compiler.devices.cuda.algorithms import legal_tiles
from compiler.devices.cuda.algorithms.region import BLOCK_BYTES
from compiler.devices.cuda.codegen.regions import CudaRegion
from compiler.devices.cuda.codegen.workload import cuda_workload_of
from compiler.devices.cuda.emit.program import host_runtime, lower_cuda_calls
from compiler.devices.cuda.target import resolve
from compiler.errors import VerifyError
from compiler.frontend.load import load
from compiler.fuse.fuse import fuse
from compiler.ir.buffers import KernelGraph
from compiler.ir.plans.plan import Place, Plan
from compiler.ops import OPERATORS
from compiler.pipeline import compile_binding
from compiler.request import Host, Request
from compiler.schedule.memory.buffers import place_buffers
from compiler.session import Session
from tests.compiler.devices.cuda.artifact_on_double import Outcome, Twin, on_double
from tests.compiler.devices.cuda.branches import functions
from tests.compiler.devices.cuda.codegen.test_declared import check
from tests.compiler.devices.cuda.emit.test_tensors import AT_THE_END, ON_GPU
from tests.compiler.devices.cuda.on_double import needs_double
from tests.compiler.devices.cuda.test_nvrtc import needs_nvrtc
from tests.compiler.frontend.open.at_sizes import model_of
from tests.cuda_double.double import MODES, Mode

pytestmark = [needs_double, needs_nvrtc]

F32 = np.float32
RNG = np.random.default_rng(11)
H200 = resolve("cuda:sm_90")
MOST, WIDE = 150, 9000
LOOPS = model_of(
    f"""m (float[2] x, float limit, int64 turns, float[4,3] table, bool far, float[{WIDE}] wide)
=> (float[2] y, float[n,2] rows, float[1] one, float[1] other, float[3] sums, float[m,3] each, float[{WIDE}] long,
    float[{WIDE}] cache, float[{WIDE}] before)
<int64 most = {{{MOST}}}, float shrink = {{0.99}}, bool yes = {{1}}, float[1] zero = {{0.0}}, float[1] start = {{1.0}},
 float[3] none = {{0.0, 0.0, 0.0}}, int64[1] axes = {{0}}> {{
    s0 = ReduceMax<keepdims=0>(x)
    on = Greater(s0, limit)
    y, rows = Loop<body = a (int64 i, bool c, float[2] v) => (bool again, float[2] w, float[2] row) {{
        w = Mul(v, shrink)
        row = Identity(w)
        s = ReduceMax<keepdims=0>(w)
        again = Greater(s, limit)
    }}>(most, on, x)
    one, other = Loop<body = b (int64 i, bool c, float[1] p, float[1] q) => (bool d, float[1] r, float[1] t) {{
        d = Identity(c)
        r = Identity(q)
        t = Add(p, q)
    }}>(turns, , zero, start)
    sums, each = Loop<body = o (int64 i, bool c, float[3] v) => (bool d, float[3] w, float[3] row) {{
        four = Constant<value_int = 4>()
        k = Mod(i, four)
        part = Gather<axis=0>(table, k)
        d = Identity(c)
        inner, = Loop<body = n (int64 j, bool e, float[3] z) => (bool f, float[3] g) {{
            half = Constant<value_float = 0.5>()
            zh = Mul(z, half)
            g = Add(zh, part)
            h = ReduceMax<keepdims=0>(g)
            least = Constant<value_float = 0.2>()
            f = Greater(h, least)
        }}>(k, , v)
        w = Sub(inner, none)
        row = If<then_branch = t () => (float[3] p) {{ p = Neg(w) }},
                 else_branch = s () => (float[3] q) {{ q = Exp(part) }}>(far)
    }}>(turns, , none)
    long, cache, before = Loop<body = l (int64 i, bool c, float[{WIDE}] u, float[{WIDE}] h, float[{WIDE}] b)
                             => (bool d, float[{WIDE}] w, float[{WIDE}] g, float[{WIDE}] r) {{
        d = Identity(c)
        r = Identity(u)
        m = ReduceMax(u)
        u1 = Mul(u, shrink)
        w = Sub(u1, m)
        at = Unsqueeze(i, axes)
        at2 = Unsqueeze(at, axes)
        g = ScatterND(h, at2, m)
    }}>(turns, , wide, wide, wide)
}}"""
)
HALVES = model_of("""m (float[300,300] x, bool far) => (float[300,300] y) {
    y = If<then_branch = t () => (float[300,300] p) { e = Exp(x) p = Mul(e, x) },
           else_branch = s () => (float[300,300] q) { c = Tanh(x) r = ReduceMax<keepdims=1>(c) q = Sub(c, r) }>(far)
}""")


def artifact(model: bytes, folder: Path, target: str = "cuda:sm_90") -> Path:
    """Compiled for a GPU that is not here."""
    (folder / "m.onnx").write_bytes(model)
    asked = CompileOptions(target=target, tuning_budget_s=0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("compiler.devices.cuda.device.gpu_here", lambda: None)
        session = Session.of(asked, Host(measure=False), place=folder)
        compile_binding(session, Request(folder / "m.onnx", folder / "m.tw", asked))
    return folder / "m.tw"


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return artifact(LOOPS, tmp_path_factory.mktemp("loops"))


@pytest.fixture(scope="module")
def twin(file: Path) -> Twin:
    """Every access of every kernel is looked at: what races, or is out of bounds, is a fault."""
    return on_double(file, "checked")


def feeds(limit: float, turns: int, far: bool) -> dict[str, np.ndarray]:
    return {
        "x": np.array([7, 10], F32),
        "limit": np.array(limit, F32),
        "turns": np.array(turns, np.int64),
        "table": RNG.normal(size=(4, 3)).astype(F32),
        "far": np.array(far),
        "wide": RNG.normal(size=WIDE).astype(F32),
    }


def assert_right(model: bytes, given: Mapping[str, np.ndarray], outcome: Outcome, rtol: float = 2e-5) -> None:
    assert (outcome.error, outcome.fault, outcome.left) == ("", "", {})
    quiet = onnxruntime.SessionOptions()
    quiet.log_severity_level, quiet.intra_op_num_threads = 4, 1
    peer = onnxruntime.InferenceSession(model, quiet, providers=["CPUExecutionProvider"])
    names = [one.name for one in peer.get_outputs()]
    for name, want in zip(names, peer.run(None, dict(given)), strict=True):
        assert outcome.outputs[name].shape == want.shape, name
        np.testing.assert_allclose(outcome.outputs[name], want, rtol=rtol, atol=1e-5, err_msg=name)


ENDS = ((4.0, 9, True), (9.95, 1, False), (100.0, 0, True), (0.0, 3, False))
"""Limits and trip counts: loops that end in between, at once, before the first iteration, never before they must."""


@pytest.mark.parametrize(
    ("limit", "turns", "far", "mode"), [(*end, MODES[at]) for end, at in zip(ENDS, (2, 6, 4, 5), strict=True)]
)
def test_every_kind_of_loop_gives_what_onnxruntime_gives(
    twin: Twin, limit: float, turns: int, far: bool, mode: Mode
) -> None:
    given = feeds(limit, turns, far)
    assert_right(LOOPS, given, twin.run(given, mode))


def test_an_instance_runs_again_and_again_with_other_counts(twin: Twin) -> None:
    given = feeds(9.0, 4, True)
    script = "model.run({**inputs, 'turns': np.int64(7), 'limit': np.float32(2)})\noutputs.update(model.run(inputs))"
    assert_right(LOOPS, given, twin.run(given, MODES[2], script=script))


def test_a_loop_that_counts_is_asked_once_and_one_that_data_end_once_an_iteration(twin: Twin) -> None:
    def reads(limit: float, turns: int) -> int:
        return functions(twin.run(feeds(limit, turns, False))).count("cuMemcpyDtoHAsync_v2")

    none = reads(100.0, 0)
    assert reads(100.0, 1) == none + 1, "of three loops of so many iterations one holds a loop, which is asked"
    assert reads(9.85, 0) == none + 2, "2 iterations: 9.9 is above the limit, 9.801 is not"


def test_a_profile_adds_up_what_is_inside_of_a_region(twin: Twin) -> None:
    given = feeds(9.5, 2, True)
    script = """
outputs["s"] = [row["seconds"] for row in model.profile(inputs, 1)]
outputs.update(model.run(inputs))
"""
    outcome = twin.run(given, script=script)
    assert len(outcome.outputs["s"]) == 6
    assert all(outcome.outputs["s"] > 0)
    assert_right(LOOPS, given, outcome)


def test_a_launch_that_fails_ends_the_run_and_leaves_nothing(twin: Twin) -> None:
    outcome = twin.run(feeds(4.0, 9, True), extra="fail=cuGraphLaunch:20:1")
    assert "launching a graph failed" in outcome.error
    assert outcome.left == {}


@pytest.fixture(scope="module")
def halves(tmp_path_factory: pytest.TempPathFactory) -> Twin:
    return on_double(artifact(HALVES, tmp_path_factory.mktemp("halves"), "cuda:sm_80"))


@pytest.mark.parametrize("far", [True, False])
def test_one_branch_runs_on_tensors_of_the_gpu_in_place(halves: Twin, far: bool) -> None:
    given = {"x": RNG.uniform(-1, 1, (300, 300)).astype(F32), "far": np.array(far)}
    script = """
x, y = Interface(inputs["x"]), Interface(np.zeros((300, 300), np.float32))
model.run({"x": x, "far": inputs["far"]}, out={"y": y})
outputs["y"] = y.read()
x.free(), y.free()
"""
    outcome = halves.run(given, MODES[2], script=ON_GPU + script + AT_THE_END)
    assert_right(HALVES, given, outcome, rtol=1e-5)
    called = functions(outcome)
    assert called.count("cuGraphCreate") == 2
    assert called.count("cuGraphLaunch") == 1
    assert called.count("cuMemcpyDtoHAsync_v2") == 1, "the condition, and no output"


def test_the_plan_and_the_report_count_graphs_and_tell_of_what_is_inside(file: Path) -> None:
    with zipfile.ZipFile(file) as archive:
        plan, report = json.loads(archive.read("plan.json")), archive.read("report.html").decode()
    assert sum(plan["graphs"]) == len(plan["launches"])
    assert len(plan["graphs"]) == 10
    inside = [call["region"] for call in plan["calls"] if "region" in call]
    assert [one["most"] for one in inside] == [MOST, None, 1024, None]
    assert f"10 CUDA graphs with {len(plan['launches'])} nodes, between which the host decides" in report
    assert "Inside loops, branches and batches" in report


def test_the_runtime_of_a_model_has_what_it_needs() -> None:
    one, several = host_runtime(decides=False), host_runtime(decides=True)
    assert {*several} - {*one} == {"tw_cuda_decisions.h"}
    assert "#include" in several["tw_cuda_runtime.h"]
    assert not any(word in text for text in one.values() for word in ("DECISIONS", "decisions"))
    assert not any("#ifdef DECISIONS" in text for text in several.values())


def lowered() -> list[CudaRegion]:
    graph = load(LOOPS, CompileOptions(target="cuda:sm_90"), OPERATORS).graph
    kernels = fuse(graph).kernels
    return [one for one in lower_cuda_calls(kernels, draft(kernels), H200) if isinstance(one, CudaRegion)]


def draft(kernels: KernelGraph) -> Plan:
    """The cheapest tiles by the model, and nothing placed."""
    tiles = [legal_tiles(cuda_workload_of(kernels, call), H200, 1, "fp32")[0].tile for call in kernels.calls]
    return Plan(1, (), tuple((tile, 0) for tile in tiles), {}, 0, "sequential")


def test_a_value_is_written_over_the_old_one_where_nothing_reads_that_and_else_beside_it_and_copied() -> None:
    long = lowered()[-1]
    assert long.turn_step is not None
    assert len(long.turn_step.given) == 2 + 2 + 1, "from beside to their places two of three values; the number"
    assert long.turn_step.kernel.grid == 2 * 4 * WIDE // BLOCK_BYTES > 1
    (body,) = long.bodies
    in_place = [new == old for new, old in zip(body.outputs, body.inputs[1:], strict=False)]
    assert in_place == [False, True, False], "the cache is written where it lies"
    scatter = next(one for one in body.lowered if "Scatter" in one.text)
    assert "t_x0[" not in scatter.text, "and not copied to itself"


def test_the_kernels_of_a_loop_declare_what_their_text_shows() -> None:
    steps = [step for one in lowered() for step in (one.entry_step, one.turn_step) if step]
    assert {step.kernel.counters for step in steps} == {0, 1}
    for step in steps:
        check(step.kernel)


def test_the_plan_of_a_body_is_verified(monkeypatch: pytest.MonkeyPatch) -> None:
    def overlapping(kernels: KernelGraph) -> tuple[dict[int, Place], int]:
        places, size = place_buffers(kernels)
        return {
            storage: replace(place, at=0) if place.space == "arena" else place for storage, place in places.items()
        }, size

    assert len(lowered()) == 4
    monkeypatch.setattr("compiler.devices.cuda.algorithms.region.place_buffers", overlapping)
    with pytest.raises(VerifyError, match="overlap in the arena"):
        lowered()

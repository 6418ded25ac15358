"""Loops and branches that the artifact decides while it runs: from file to artifact, beside ONNX Runtime."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from bench.loops.decoder import greedy_decoder
from compiler.contract import CompileOptions
from compiler.devices.cpu.algorithms.region import RegionLowering
from compiler.devices.cpu.codegen.lowered import Lowered
from compiler.errors import Disagreement
from compiler.pack.loader import Model
from tests.compiler.frontend.open.at_sizes import model_of
from tests.compiling import compile_file

SEED = 5
F32 = np.float32


def compiled(model: bytes, folder: Path, threads: int = 1) -> Path:
    file, artifact = folder / "model.onnx", folder / "model.tw"
    file.write_bytes(model)
    compile_file(file, artifact, CompileOptions(tuning_budget_s=0, threads=threads), measure=False)
    return artifact


def session(model: bytes) -> onnxruntime.InferenceSession:
    quiet = onnxruntime.SessionOptions()
    quiet.log_severity_level, quiet.intra_op_num_threads = 4, 1
    return onnxruntime.InferenceSession(model, quiet, providers=["CPUExecutionProvider"])


LOOPS = model_of(
    """m (float[2] x, float limit, int64 turns, float[4,3] table, bool far)
=> (float[2] y, float[n,2] rows, float[1] one, float[1] other, float[3] sums, float[m,3] each, float[300] near,
    float[400,400] big, float[2] turned)
<int64 most = {1000}, float shrink = {0.99}, bool yes = {1}, float[1] zero = {0.0}, float[1] start = {1.0},
 int64 outer_most = {300}, float[3] none = {0.0, 0.0, 0.0}, float[400] wide = {WIDE}, int64[1] head = {0},
 int64[1] tail = {300}> {
    s0 = ReduceMax<keepdims=0>(x)
    on = Greater(s0, limit)
    y, rows = Loop<body = a (int64 i, bool c, float[2] v) => (bool again, float[2] w, float[2] row) {
        w = Mul(v, shrink)
        row = Identity(w)
        s = ReduceMax<keepdims=0>(w)
        again = Greater(s, limit)
    }>(most, on, x)
    one, other = Loop<body = b (int64 i, bool c, float[1] p, float[1] q) => (bool d, float[1] r, float[1] t) {
        d = Identity(c)
        r = Identity(q)
        u = Add(p, q)
        ten = Constant<value_float = 10.0>()
        t = Mod<fmod = 1>(u, ten)
    }>(turns, , zero, start)
    sums, each = Loop<body = o (int64 i, bool c, float[3] v) => (bool d, float[3] w, float[3] row) {
        four = Constant<value_int = 4>()
        k = Mod(i, four)
        part = Gather<axis=0>(table, k)
        d = Identity(c)
        inner, = Loop<body = n (int64 j, bool e, float[3] z) => (bool f, float[3] g) {
            half = Constant<value_float = 0.5>()
            zh = Mul(z, half)
            g = Add(zh, part)
            h = ReduceMax<keepdims=0>(g)
            least = Constant<value_float = 0.2>()
            f = Greater(h, least)
        }>(k, , v)
        w = Sub(inner, none)
        row = If<then_branch = t () => (float[3] p) { p = Neg(w) },
                 else_branch = s () => (float[3] q) { q = Exp(part) }>(far)
    }>(outer_most, , none)
    w0 = Slice(wide, head, tail)
    near = Mul(w0, shrink)
    column = Constant<value_ints = [400, 1]>()
    wide2 = Reshape(wide, column)
    grid0 = Mul(wide2, wide)
    grid = Mul(grid0, s0)
    big = If<then_branch = bt () => (float[400,400] p) { e1 = Exp(grid) p = Mul(e1, grid) },
             else_branch = be () => (float[400,400] q) { t1 = Tanh(grid) q = MatMul(t1, grid) }>(far)
    turned = Loop<body = z (int64 i, bool c, float[2] v) => (bool again, float[2] w) {
        w = Mul(v, shrink)
        again = Identity(far)
    }>(most, far, x)
}""".replace("WIDE", ", ".join(f"{place / 400 - 0.5}" for place in range(400)))
)


@pytest.fixture(scope="module")
def loops_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(LOOPS, tmp_path_factory.mktemp("loops"), threads=2)


@pytest.fixture(scope="module")
def loops(loops_file: Path) -> Iterator[Model]:
    with Model(loops_file) as model:
        yield model


@pytest.mark.parametrize("far", [True, False])
@pytest.mark.parametrize(("limit", "turns"), [(0.4, 13), (9.95, 1), (100.0, 0), (0.0, 2)])
def test_every_kind_of_loop_gives_what_onnxruntime_gives(loops: Model, far: bool, limit: float, turns: int) -> None:
    table = np.random.default_rng(SEED).normal(size=(4, 3)).astype(F32)
    feeds: Mapping[str, np.ndarray] = {
        "x": np.array([7, 10], F32),
        "limit": np.array(limit, F32),
        "turns": np.array(turns, np.int64),
        "table": table,
        "far": np.array(far),
    }
    wanted = session(LOOPS).run(None, dict(feeds))
    for (name, found), want in zip(loops.run(feeds).items(), wanted, strict=True):
        assert found.shape == want.shape, name
        np.testing.assert_allclose(found, want, rtol=2e-5, atol=1e-5, err_msg=name)


STEPS, END = 448, 7


@pytest.fixture(scope="module")
def decoder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[bytes, Model]]:
    source = greedy_decoder(width=32, heads=2, layers=1, words=40, steps=STEPS, end=END)
    with Model(compiled(source, tmp_path_factory.mktemp("decoder"))) as model:
        yield source, model


def test_a_decoder_whose_caches_grow_gives_the_tokens_of_onnxruntime(tmp_path: Path) -> None:
    source = greedy_decoder(width=32, heads=2, layers=1, words=40, steps=STEPS, end=END, growing=True)
    peer = session(source)
    with Model(compiled(source, tmp_path)) as model:
        for start in range(0, 40, 5):
            feeds = {"start": np.array([start], np.int64)}
            (found,), (wanted,) = model.run(feeds).values(), peer.run(None, feeds)
            np.testing.assert_array_equal(found, wanted)


def test_a_decoder_of_448_steps_gives_the_tokens_of_onnxruntime_and_ends_where_it_does(
    decoder: tuple[bytes, Model],
) -> None:
    source, model = decoder
    peer = session(source)
    lengths = set()
    for start in range(40):
        feeds = {"start": np.array([start], np.int64)}
        (found,), (wanted,) = model.run(feeds).values(), peer.run(None, feeds)
        np.testing.assert_array_equal(found, wanted)
        lengths.add(len(found))
    assert STEPS in lengths
    assert min(lengths) < STEPS


HALVING = model_of("""m (float[2] x) => (float[2] y) <int64 most = {1000}, float limit = {0.01}, bool on = {1}> {
    y = Loop<body = b (int64 i, bool c, float[2] v) => (bool again, float[2] w) {
        e = Exp(v)
        w = Sub(e, v)
        s = ReduceMax<keepdims=0>(w)
        again = Greater(limit, s)
    }>(most, on, x)
}""")


def test_a_loop_that_ends_too_late_is_named_as_what_diverges(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = RegionLowering.lower

    def wrong(self: RegionLowering) -> Lowered:
        lowered = right(self)
        assert "&& going" in lowered.text
        return replace(lowered, text=lowered.text.replace("&& going", "&& (going || number < 2)"))

    monkeypatch.setattr(RegionLowering, "lower", wrong)
    with pytest.raises(Disagreement) as caught:
        compiled(HALVING, tmp_path)
    assert caught.value.details["operator"] == "While"
    assert caught.value.details["node"] == "#0 Loop"
    assert caught.value.details["kernel"] == "While"


def test_the_report_and_the_plan_tell_of_what_is_inside(loops_file: Path) -> None:
    with zipfile.ZipFile(loops_file) as archive:
        plan, report = json.loads(archive.read("plan.json")), archive.read("report.html").decode()
    inside = [call["region"] for call in plan["calls"] if "region" in call]
    assert {one["most"] for one in inside if one["kind"] == "while"} == {300, 1000, None}
    assert [len(one["bodies"]) for one in inside if one["kind"] == "conditional"] == [2]
    (outer,) = (one for one in inside if one["most"] == 300)
    (nested,) = (call["region"] for call in outer["bodies"][0] if "region" in call)
    assert (nested["kind"], nested["most"]) == ("while", None)
    assert all(call["predicted_s"] >= 0 and call["tile"] for body in nested["bodies"] for call in body)
    assert "Inside loops, branches and batches" in report
    assert "MatMul" in report

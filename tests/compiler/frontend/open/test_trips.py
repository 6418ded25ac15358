"""Loops of which data say how often they run, and which stack what they give or grow what they carry."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from compiler.contract import CompileOptions
from compiler.errors import UnsupportedModel
from compiler.pack.loader import InputError, Model
from tests.compiler.frontend.open.at_sizes import model_of
from tests.compiling import compile_file

MODEL = model_of(
    """m (float[2] x, int64 turns, float limit) => (float[2] y, float[n,2] rows, float[m,2] kept)
<bool yes = {1}, float half = {0.5}, float[0,2] none = {}, int64[1] front = {0}> {
    [steps] y, kept, rows = Loop<body = b (int64 i, bool c, float[2] v, float[k,2] held)
        => (bool again, float[2] w, float[l,2] longer, float[2] row) {
        w = Mul(v, half)
        row = Cos(w)
        line = Unsqueeze(w, front)
        longer = Concat<axis=0>(held, line)
        most = ReduceMax<keepdims=0>(w)
        again = Greater(most, limit)
    }>(turns, yes, x, none)
}"""
)


def test_a_trip_count_that_data_say_has_a_bound(tmp_path: Path) -> None:
    file, artifact = tmp_path / "model.onnx", tmp_path / "model.tw"
    file.write_bytes(MODEL)
    options = CompileOptions(bounds={"steps": 20}, threads=1, tuning_budget_s=0)
    compile_file(file, artifact, options, measure=False)
    peer = onnxruntime.InferenceSession(MODEL, providers=["CPUExecutionProvider"])
    with Model(artifact) as model:
        for turns, limit in ((3, -1.0), (20, -1.0), (20, 0.3), (0, -1.0), (-5, -1.0), (1, 9.0)):
            feeds = {"x": np.array([3, 5], np.float32), "turns": np.array(turns), "limit": np.array(limit, np.float32)}
            for found, wanted in zip(model.run(feeds).values(), peer.run(None, feeds), strict=True):
                assert found.shape == np.asarray(wanted).shape
                np.testing.assert_allclose(found, wanted, rtol=1e-5)
        with pytest.raises(InputError, match="the number of iterations of Loop 'steps' must lie between 0 and 20"):
            model.run({**feeds, "turns": np.array(21)})


def test_a_loop_whose_body_has_a_refused_node_is_refused_with_that_nodes_reason(tmp_path: Path) -> None:
    file = tmp_path / "model.onnx"
    file.write_bytes(
        model_of(
            """m (float[2] x, int64 turns, bool go) => (float[2] y) {
    [steps] y = Loop<body = b (int64 i, bool c, float[2] v) => (bool again, float[2] w) {
        again = Identity(c)
        [odd] w = NoSuchThing(v)
    }>(turns, go, x)
}"""
        )
    )
    options = CompileOptions(bounds={"steps": 20}, threads=1, tuning_budget_s=0)
    with pytest.raises(UnsupportedModel) as refused:
        compile_file(file, tmp_path / "model.tw", options, measure=False)
    (refusal,) = refused.value.refusals
    assert "a node of its body was refused: ONNX has no such operator (at 'steps/body/odd')" in refusal.reason
    assert refusal.fix.endswith("define it as a model-local function or export without it")

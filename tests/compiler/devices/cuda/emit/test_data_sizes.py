"""Results in the number that data decide, on the double of CUDA: a detector, and distinct elements."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from compiler.contract import CompileOptions
from compiler.pipeline import compile_binding
from compiler.request import Host, Request
from compiler.session import Session
from tests.compiler.devices.cuda.artifact_on_double import on_double
from tests.compiler.devices.cuda.on_double import needs_double
from tests.compiler.frontend.open.at_sizes import model_of
from tests.compiler.steps.test_data_sizes import detector

RUNS = """
for at, array in inputs.items():
    found = model.run({"x": array})
    outputs.update({f"{place}_{at}": array for place, array in enumerate(found.values())})
"""
UNIQUE = model_of("""m (float[20] x) => (float[k] y, int64[k] first, int64[20] which, int64[k] often) {
    r = Round(x) y, first, which, often = Unique<sorted=0>(r)
}""")


@needs_double
@pytest.mark.parametrize(("model", "shape"), [(detector(), (1, 3, 8, 8)), (UNIQUE, (20,))], ids=["boxes", "distinct"])
def test_as_many_results_come_as_data_say(tmp_path: Path, model: bytes, shape: tuple[int, ...]) -> None:
    (tmp_path / "m.onnx").write_bytes(model)
    options = CompileOptions.from_json({"target": "cuda:sm_90", "tuning_budget_s": 0})
    with pytest.MonkeyPatch.context() as patch:
        # No GPU is here, whatever this machine has and whatever double another test left loaded.
        patch.setattr("compiler.devices.cuda.device.gpu_here", lambda: None)
        session = Session.of(options, Host(measure=False), place=tmp_path)
        compile_binding(session, Request(tmp_path / "m.onnx", tmp_path / "m.tw", options))
    arrays = {str(at): at * np.random.default_rng(at).normal(size=shape).astype(np.float32) for at in range(3)}
    outcome = on_double(tmp_path / "m.tw").run(arrays, script=RUNS)
    assert (outcome.error, outcome.fault) == ("", "")
    runtime = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    for at, array in arrays.items():
        for place, wanted in enumerate(runtime.run(None, {"x": array})):
            found = outcome.outputs[f"{place}_{at}"]
            assert found.shape == np.shape(wanted)
            np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)

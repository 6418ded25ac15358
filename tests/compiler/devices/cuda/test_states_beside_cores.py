"""A state that goes from cores to a GPU and back in each frame, on the double of CUDA, against numpy step by step."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from compiler.pack.loader import Model
from tests.compiler.devices.cuda.artifact_on_double import on_double
from tests.compiler.devices.cuda.compiling_on_double import run_on_double
from tests.compiler.devices.cuda.on_double import needs_double
from tests.compiler.devices.cuda.test_nvrtc import needs_nvrtc
from tests.compiler.steps.dividing.test_step_states import WIDTH, recurrent, step
from tests.cuda_double.double import MODES

pytestmark = [needs_double, needs_nvrtc]
COMPILE = """
import sys
from pathlib import Path
from compiler.contract import CompileOptions
from compiler.pipeline import compile_model
from compiler.request import Host, Request
from compiler.schedule.parts.dividing import on_two_queues
from compiler.steps.dividing import proof as dividing_proof, step as dividing
from tests.compiler.steps.dividing.test_step_states import OPTIONS, across
dividing_proof.STREAM_SECONDS = dividing_proof.AGREE_SECONDS = 0.01
dividing_proof.FRAMES = 6

def there_and_back(kernels, names, division):
    return on_two_queues(kernels, names, division, across(kernels, names, division))

dividing.one_device = dividing.pipeline = there_and_back
options = CompileOptions.from_json({**OPTIONS, "devices": ["cpu", "cuda:0"]})
compile_model(Request(Path(sys.argv[1]), Path(sys.argv[2]), options), Host(measure=False))
"""
STREAM = """
frames = [{"x": x} for x in inputs["xs"]]
stream = model.stream(frames)
for number in range(len(frames)):
    try:
        found = next(stream)
        outputs[f"next {number}"], outputs[f"y {number}"] = found["next"], found["y"]
    except RunError as told:
        outputs[f"error {number}"] = np.array(str(told))
"""


def test_frames_carry_a_state_through_a_gpu_of_two_queues_and_lose_it_where_its_copy_fails(tmp_path: Path) -> None:
    """Compiling proves it too: frames in flight, and the reference."""
    artifact = tmp_path / "m.tw"
    run_on_double(COMPILE, recurrent(tmp_path / "m.onnx"), artifact)
    twin = on_double(artifact)
    with Model(artifact) as model:
        described = model.manifest["stream"]
    assert described["carried"] == [{"output": "next", "input": "h"}]
    assert [part["every"] for part in described["parts"]] == [1, 2, 2, 1]
    xs = np.random.default_rng(2).standard_normal((9, 4, WIDTH)).astype(np.float32)
    found = twin.run({"xs": xs}, MODES[4], "", STREAM)
    assert (found.error, found.fault, found.left) == ("", "", {})
    state = np.zeros((4, WIDTH))
    for number, x in enumerate(xs):
        expected = step(x, state)
        for name, array in expected.items():
            np.testing.assert_allclose(found.outputs[f"{name} {number}"], array, rtol=1e-4, atol=1e-5)
        state = expected["next"]
    broken = twin.run({"xs": xs}, MODES[4], "fail=cuMemcpyDtoHAsync_v2:4:1", STREAM)
    failed = [str(broken.outputs[f"error {number}"]) for number in range(3, 9)]
    assert "frame 3 failed: " in failed[0]
    assert all("is lost, since frame" in one for one in failed[1:]), "nobody gives it"
    for number in range(3):
        assert broken.outputs[f"next {number}"].tobytes() == found.outputs[f"next {number}"].tobytes()

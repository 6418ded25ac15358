"""Pipelines of cores that carry states, from options to results, against the model evaluated step by step."""

from __future__ import annotations

import subprocess
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, cast

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from compiler.codegen.build import find_toolchain
from compiler.contract import CompileOptions, CompileReport
from compiler.devices.cpu.target import this_machine
from compiler.errors import Disagreement, InternalError, OptionsError
from compiler.ir.buffers import KernelGraph
from compiler.ir.plans.lanes import NOTHING
from compiler.ir.plans.parts import Parts
from compiler.measure.streaming import FILLING, stream
from compiler.pack.loader import InputError, Model
from compiler.schedule.parts.dividing import division_of, parts_of
from compiler.schedule.solvers.ideals import Division
from compiler.steps.dividing import devices as dividing_devices
from compiler.steps.dividing import proof as dividing_proof
from compiler.steps.dividing import step as dividing
from tests.compiler.schedule.parts.test_states import LAYERS
from tests.compiling import compile_file

pytestmark = pytest.mark.skipif(this_machine().lanes < 2, reason="needs two cores")

WIDTH = 24
OPTIONS: dict[str, Any] = {
    "devices": ["cpu:0", "cpu:1"], "objective": "throughput", "tuning_budget_s": 0, "carry": {"next": "h"}
}  # fmt: skip
WEIGHTS = np.random.default_rng(5).uniform(-0.25, 0.25, (3, WIDTH, WIDTH)).astype(np.float32)


def recurrent(path: Path) -> Path:
    """next = tanh(relu(x A) + h B), y = next C."""
    value, weights = helper.make_tensor_value_info, [*map(numpy_helper.from_array, WEIGHTS, "abc")]
    shape = (4, WIDTH)
    nodes = [
        helper.make_node("MatMul", ["x", "a"], ["xa"]),
        helper.make_node("Relu", ["xa"], ["r"]),
        helper.make_node("MatMul", ["h", "b"], ["hb"]),
        helper.make_node("Add", ["r", "hb"], ["sum"]),
        helper.make_node("Tanh", ["sum"], ["next"]),
        helper.make_node("MatMul", ["next", "c"], ["y"]),
        helper.make_node("Identity", ["h"], ["same"]),
        helper.make_node("Transpose", ["y"], ["turned"], perm=[1, 0]),
    ]
    given = [value(name, TensorProto.FLOAT, shape) for name in ("x", "h")]
    made = [value(name, TensorProto.FLOAT, shape) for name in ("y", "next", "same")]
    made.append(value("turned", TensorProto.FLOAT, shape[::-1]))
    graph = helper.make_graph(nodes, "recurrent", given, made, weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9), path)
    return path


def step(x: np.ndarray, h: np.ndarray) -> dict[str, np.ndarray]:
    """The model in float64."""
    a, b, c = WEIGHTS.astype(np.float64)
    after = np.tanh(np.maximum(x.astype(np.float64) @ a, 0) + h @ b)
    return {"next": after, "y": after @ c}


def across(kernels: KernelGraph, names: Sequence[str], division: Division) -> Parts:
    """The way of the state, two calls, goes to the second core and back."""
    return parts_of(kernels, names, division, [(0, 0b0001), (1, 0b0010), (0, division.whole & ~0b0011)], "across")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, CompileReport]:
    folder = tmp_path_factory.mktemp("states")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dividing, "one_device", across)
        patch.setattr(dividing, "pipeline", across)
        patch.setattr(dividing_proof, "STREAM_SECONDS", 0.02)
        options = CompileOptions.from_json(OPTIONS)
        return folder / "m.tw", compile_file(recurrent(folder / "m.onnx"), folder / "m.tw", options)


def test_a_stream_is_the_model_step_by_step(made: tuple[Path, CompileReport]) -> None:
    artifact, report = made
    assert report.devices is not None
    assert {part.device for part in report.devices.parts} == {"cpu:0", "cpu:1"}
    assert 0 < report.devices.carried_s <= report.devices.predicted_period_s
    random = np.random.default_rng(0)
    xs = random.standard_normal((60, 4, WIDTH)).astype(np.float32)
    with Model(artifact) as model:
        assert model.manifest["stream"]["carried"] == [{"output": "next", "input": "h"}]
        for again in range(2):
            state = np.zeros((4, WIDTH)) if again == 0 else model.random_inputs(3)["h"]
            given = [{"x": x} for x in xs]
            if again:
                given[0]["h"] = state.astype(np.float32)
            for x, found in zip(xs, model.stream(given), strict=True):
                expected = step(x, state)
                for name, array in expected.items():
                    np.testing.assert_allclose(found[name], array, rtol=1e-4, atol=1e-5)
                state = expected["next"]
        stepwise = {"h": state.astype(np.float32)}
        begun = model.submit({"x": xs[0].tolist(), **stepwise})
        following = model.submit({"x": xs[1].tolist()})
        wanted = model.submit({"x": xs[1], "h": begun.result()["next"]}).result()
        assert all(wanted[name].tobytes() == array.tobytes() for name, array in following.result().items())


def test_what_may_not_be_left_out_is_still_asked_for(made: tuple[Path, CompileReport]) -> None:
    with Model(made[0]) as model:
        with pytest.raises(InputError, match="input 'x' is missing"):
            model.submit({})
        with pytest.raises(InputError, match="input 'h' is missing"):
            model.run({"x": np.zeros((4, WIDTH), np.float32)})
        with pytest.raises(InputError):
            model.submit_flat([None, np.zeros((4, WIDTH), np.float32)])
        with pytest.raises(InputError, match="1 inputs for 2"):
            model.submit_flat([np.zeros((4, WIDTH), np.float32)])


MAIN = """
#include "stream.h"
#include <stdio.h>
#include <string.h>
static float x[COUNT][4 * WIDTH], out[COUNT][4][4 * WIDTH];
int main(void) {
    tw_stream_config config = {.folder = ".", .spin_us = -1, .pin = 1};
    tw_stream *stream;
    if (!strstr(tw_stream_describe(), "\\"carried\\": [{\\"input\\": 1, \\"output\\": 1}]")) return 2;
    if (tw_stream_create(&config, &stream)) return fprintf(stderr, "%s\\n", tw_stream_error()), 3;
    int64_t shape[] = {4, WIDTH}, turned[] = {WIDTH, 4};
    if (fread(x, sizeof x, 1, stdin) != 1) return 4;
    for (int at = 0; at < COUNT; at++) {
        tw_tensor in[2], to[4];
        for (int port = 0; port < 4; port++)
            to[port] = (tw_tensor){out[at][port], TW_CPU, 0, TW_FLOAT, 32, 2, port < 3 ? shape : turned, NULL};
        in[0] = in[1] = (tw_tensor){x[at], TW_CPU, 0, TW_FLOAT, 32, 2, shape, NULL};
        in[1].data = NULL;
        if (tw_submit(stream, in, to) != at) return fprintf(stderr, "%s\\n", tw_stream_error()), 5;
    }
    for (int at = 0; at < COUNT; at++)
        if (tw_wait(stream, at)) return 6;
    tw_stream_destroy(stream);
    for (int at = 0; at < COUNT; at++) fwrite(out[at][1], sizeof out[at][1], 1, stdout);
    return 0;
}
"""


def test_a_c_program_gives_no_data_for_a_state(made: tuple[Path, CompileReport], tmp_path: Path) -> None:
    with zipfile.ZipFile(made[0]) as archive:
        archive.extractall(tmp_path)
        page = archive.read("report.html").decode()
    assert "next is h of the next inference" in page
    xs = np.random.default_rng(1).standard_normal((12, 4, WIDTH)).astype(np.float32)
    (tmp_path / "main.c").write_text(f"#define COUNT {len(xs)}\n#define WIDTH {WIDTH}\n{MAIN}")
    command = [find_toolchain().path, "main.c", "./stream.so", "-Wl,-rpath,$ORIGIN", "-o", "main"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    done = subprocess.run(["./main"], cwd=tmp_path, check=False, capture_output=True, timeout=60, input=xs.tobytes())
    assert done.returncode == 0, done.stderr
    with Model(made[0]) as model:
        wanted = b"".join(found["next"].tobytes() for found in model.stream({"x": x} for x in xs))
    assert done.stdout == wanted


@pytest.mark.parametrize(
    ("carry", "says"),
    [
        ({"nothing": "h"}, "carry names 'nothing', which is no output of the model"),
        ({"next": "z"}, "carry names 'z', which is no input of the model"),
        ({"turned": "h"}, "their types or shapes differ"),
        ({"next": "h", "y": "h"}, "gives one input two states"),
    ],
)
def test_what_cannot_be_carried_is_refused(carry: dict[str, str], says: str, tmp_path: Path) -> None:
    options = CompileOptions.from_json({**OPTIONS, "carry": carry})
    with pytest.raises(OptionsError, match=says) as raised:
        compile_file(recurrent(tmp_path / "m.onnx"), tmp_path / "m.tw", options)
    assert raised.value.fix
    assert not (tmp_path / "m.tw").exists()


def test_for_throughput_one_device_and_a_pipeline_are_tried_and_no_replicas() -> None:
    division = division_of(LAYERS, [[1.0] * 5] * 2, NOTHING, carried=[(1, 1)])
    asked = CompileOptions.from_json({**OPTIONS, "devices": ["cpu:0", "cpu:1"]})
    devices = dividing_devices.Devices(asked, asked.named_devices, (), (0, 0))
    work = dividing._Work(devices, (), (1, 1), division, cast("Any", SimpleNamespace(kernels=LAYERS)))
    found = [parts for parts, _ in work.candidates([], may_race=False)]
    assert [one.scheduler for one in found[:2]] == ["one device", "pipeline"]
    assert all(one.states for one in found)
    assert [one.period_s for one in found[:2]] == [5.0, 3.0]


class Stepping:
    """A model that adds its input to its state, and with `forgets` loses a state between frames in flight."""

    manifest: ClassVar = {"stream": {"frames": 40}}

    def __init__(self, *, forgets: int | None) -> None:
        self.forgets = forgets

    def random_inputs(self, seed: int) -> dict[str, np.ndarray]:
        return {"x": np.array([seed], np.float32), "h": np.array([99], np.float32)}

    def submit(self, inputs: dict[str, np.ndarray]) -> SimpleNamespace:
        return SimpleNamespace(result=lambda: {"next": inputs["x"] + inputs["h"]})

    def stream(self, frames: Sequence[dict[str, np.ndarray]]) -> list[dict[str, np.ndarray]]:
        found: list[dict[str, np.ndarray]] = []
        assert [name for name, frame in enumerate(frames) if "h" in frame] == [0], "the first is given zeros"
        for number, frame in enumerate(frames):
            state = found[-1]["next"] if found else frame["h"]
            found.append({"next": frame["x"] + (state * 0 if number == self.forgets else state)})
        return found


def test_frames_in_flight_must_carry_the_state_that_single_ones_are_given() -> None:
    carried = {"next": "h"}
    given = dividing_proof._demand_apart(cast("Any", Stepping(forgets=None)), 1, carried)
    assert len(given) > 40, "more than may be in flight"
    assert [float(one["h"][0]) for one in given[:4]] == [0.0, 0.0, 1.0, 3.0]
    with pytest.raises(InternalError, match="frame 5 gives other bits for output 'next'"):
        dividing_proof._demand_apart(cast("Any", Stepping(forgets=5)), 1, carried)


def test_steps_of_a_stream_are_judged_against_the_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside the other cases, with the states that frames before made."""
    judged: list[set[str]] = []

    def agree(*given: object, samples: dict[str, Any], **more: object) -> SimpleNamespace:
        judged.append({*samples})
        return SimpleNamespace(failed=len(judged) > 1, worst=0.5, tolerance=0.1)

    class Opened(Stepping):
        def __enter__(self) -> Opened:
            return self

        def __exit__(self, *error: object) -> None:
            return None

    monkeypatch.setattr(dividing_proof, "agree", agree)
    graph = SimpleNamespace(
        inputs=(0, 1),
        outputs=(),
        values={id: SimpleNamespace(type=SimpleNamespace(dtype=SimpleNamespace(numpy=np.float32))) for id in (0, 1)},
    )
    opened = SimpleNamespace(loaded=SimpleNamespace(graph=graph), effort=SimpleNamespace(seconds=1e-3), samples=())
    front = SimpleNamespace(opened=opened)
    runner = SimpleNamespace(open=lambda *given, **more: Opened(forgets=None))
    options = SimpleNamespace(tolerance=None, seed=0, arithmetic="fp32")
    session = SimpleNamespace(backend=SimpleNamespace(runner=runner), options=options)
    with pytest.raises(Disagreement, match=r"off by 5.00e-01"):
        dividing_proof.proved_parts(cast("Any", session), cast("Any", front), Path("m.tw"), [0], 1, {"next": "h"})
    assert judged == [set(), {f"frame {number} of a stream" for number in range(dividing_proof.JUDGED)}]


def test_what_is_timed_finds_states_where_the_frame_before_made_them() -> None:
    given: list[set[str]] = []

    class Timed:
        manifest: ClassVar = {"stream": {"carried": [{"output": "next", "input": "h"}]}}

        def stream(self, frames: Iterator[dict[str, np.ndarray]]) -> Iterator[dict[str, np.ndarray]]:
            for frame in frames:
                given.append({*frame})
                yield frame

        def occupancy(self) -> tuple[int, list[float]]:
            return len(given), [0.0]

        def delays(self) -> list[float]:
            return [0.0, 0.25 * len(given)]

    found = stream(cast("Any", Timed()), {name: np.zeros(1, np.float32) for name in ("x", "h")}, 0.0)
    assert [*found.delays_s] == [0.0, 0.25]
    assert given == [{"x"}] * (FILLING + 1)

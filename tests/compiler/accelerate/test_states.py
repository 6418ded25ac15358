"""States from inference to inference: how fast they permit these, which may be carried, and a model that has one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilewright
from compiler.accelerate.__main__ import main
from compiler.accelerate.dividing import Divisible
from compiler.accelerate.states import demand_carried, recurrence_s
from compiler.contract import CompileOptions
from compiler.errors import OptionsError, UnsupportedModel
from compiler.quantize.network import open_network
from tests.compiler.accelerate.models import array, convolution
from tests.compiling import compile_file
from tests.seeds import each

SHAPE = (1, 8, 6, 6)


@dataclass(frozen=True)
class Piece:
    """What is asked of a segment."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


class Names:
    """Of a network in which every name stands for itself."""

    def root(self, name: str) -> str:
        return name


def _by_unrolling(pieces: list[Piece], seconds: list[float], carried: dict[str, str], frames: int) -> float:
    """Seconds between ends of frames where nothing but states and results holds a piece back."""
    made: dict[str, float] = {}
    ends: list[float] = []
    for _ in range(frames):
        now = {into: made.get(out, 0.0) for out, into in carried.items()}
        for piece, took in zip(pieces, seconds, strict=True):
            known = [now[name] for name in piece.inputs if name in now]
            now |= dict.fromkeys(piece.outputs, max(known, default=0.0) + took)
        made = now
        ends.append(max(now[out] for out in carried))
    return (ends[-1] - ends[frames // 2 - 1]) / (frames - frames // 2)


@each(range(60))
def test_states_permit_a_frame_as_often_as_their_ways_are_long(seed: int) -> None:
    random = Random(seed)
    count, states = random.randint(1, 6), random.randint(1, 3)
    names = [f"t{at}" for at in range(count)]
    carried = {names[at]: f"s{number}" for number, at in enumerate(random.sample(range(count), min(states, count)))}
    pieces = [
        Piece(tuple(random.sample(["x", *carried.values(), *names[:at]], random.randint(1, 2))), (names[at],))
        for at in range(count)
    ]
    seconds = [random.random() for _ in pieces]
    found = recurrence_s(pieces, seconds, Names(), carried)  # type: ignore[arg-type]
    assert found == pytest.approx(_by_unrolling(pieces, seconds, carried, 240), abs=2e-9)


def test_two_states_that_change_places_take_the_mean_of_their_ways() -> None:
    pieces = [Piece(("a",), ("b2",)), Piece(("b",), ("a2",))]
    assert recurrence_s(pieces, [1.0, 4.0], Names(), {"a2": "a", "b2": "b"}) == 2.5  # type: ignore[arg-type]
    assert recurrence_s(pieces, [1.0, 4.0], Names(), {}) == 0.0  # type: ignore[arg-type]


def _recurrent(path: Path) -> Path:
    """A state that a convolution of each frame is added to, and three convolutions of it that nothing carries on."""
    value = helper.make_tensor_value_info
    pads = [1] * 4
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], "of the frame", pads=pads),
        helper.make_node("Conv", ["h", "w"], ["b"], "of the state", pads=pads),
        helper.make_node("Add", ["a", "b"], ["c"], "sum"),
        helper.make_node("Relu", ["c"], ["next"], "state"),
        helper.make_node("Conv", ["next", "w"], ["d"], "first behind", pads=pads),
        helper.make_node("Conv", ["d", "w"], ["e"], "second behind", pads=pads),
        helper.make_node("Conv", ["e", "w"], ["y"], "third behind", pads=pads),
    ]
    channels = SHAPE[1]
    weights = array(channels, channels, 3, 3) / np.float32(5 * channels**0.5)
    graph = helper.make_graph(
        nodes,
        "g",
        [value("x", TensorProto.FLOAT, SHAPE), value("h", TensorProto.FLOAT, SHAPE)],
        [
            value("y", TensorProto.FLOAT, SHAPE),
            value("next", TensorProto.FLOAT, SHAPE),
            value("a", TensorProto.FLOAT, SHAPE),
        ],
        [numpy_helper.from_array(weights, "w")],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9), path)
    return path


@pytest.mark.parametrize(
    ("carry", "said"),
    [
        ({"next": "z"}, "carry names 'z', which is no input of the model"),
        ({"z": "h"}, "carry names 'z', which is no output of the model"),
        ({"next": "h", "y": "h"}, "gives one input two states"),
    ],
)
def test_what_cannot_be_carried_is_refused(carry: dict[str, str], said: str, tmp_path: Path) -> None:
    with pytest.raises(OptionsError) as refused:
        demand_carried(open_network(_recurrent(tmp_path / "m.onnx"))[1], carry)
    assert said in str(refused.value)


def test_shapes_of_what_is_not_carried_need_not_be_known(tmp_path: Path) -> None:
    """As of the output of a model whose exporter left it out."""
    network = open_network(convolution(tmp_path / "m.onnx"))[1]
    with pytest.raises(UnsupportedModel):
        Divisible(network).type_of("y")
    demand_carried(network, {})


def test_a_command_compiles_a_pipeline_that_carries_a_state(tmp_path: Path, capsys: Any) -> None:
    pytest.importorskip("ethosu.regor")
    pytest.importorskip("ai_edge_litert.interpreter")
    model, artifact = _recurrent(tmp_path / "m.onnx"), tmp_path / "m.tw"
    np.savez(tmp_path / "real.npz", x=array(*SHAPE), h=np.abs(array(*SHAPE)))
    words = [str(model), "--samples", str(tmp_path / "real.npz"), "-o", str(artifact), "--carry", "next=h"]
    assert main([*words, "--target", "npu:ethos-u55-32"]) == 1
    assert "option carry applies to one CPU, and to pipelines" in capsys.readouterr().err
    devices = ["--devices", "cpu:cortex-a53,npu:ethos-u55-32", "--objective", "throughput"]
    assert main([*words, *devices]) == 0, capsys.readouterr().err
    xs = [array(*SHAPE) * scale for scale in (1.0, -0.5, 0.25, 0.75, -1.0, 0.5)]
    with tilewright.load(artifact) as runs:
        assert runs.manifest["stream"]["carried"] == [{"output": "next", "input": "h"}]
        state = np.zeros(SHAPE, np.float32)
        streamed = list(runs.stream({"x": x} for x in xs))
        for x, found in zip(xs, streamed, strict=True):
            wanted = runs.run({"x": x, "h": state})
            for name, one in wanted.items():
                np.testing.assert_array_equal(found[name], one)
            state = wanted["next"]
        again = runs.submit({"x": xs[0], "h": np.zeros(SHAPE, np.float32)}).result()
        np.testing.assert_array_equal(again["y"], streamed[0]["y"])
        with pytest.raises(runs.errors, match="inputs differ by"):
            runs.run({"x": xs[0]})


def test_a_job_carries_a_state_by_its_options(tmp_path: Path) -> None:
    pytest.importorskip("ethosu.regor")
    pytest.importorskip("ai_edge_litert.interpreter")
    model, real, artifact = _recurrent(tmp_path / "m.onnx"), tmp_path / "real.npz", tmp_path / "m.tw"
    np.savez(real, x=array(*SHAPE), h=np.abs(array(*SHAPE)))
    asked = {"devices": ["cpu:cortex-a53", "npu:ethos-u55-32"], "objective": "throughput", "carry": {"next": "h"}}
    options = CompileOptions.from_json({**asked, "tuning_budget_s": 0.0})
    assert CompileOptions.from_json(options.to_json()) == options
    compile_file(model, artifact, options, samples={"real": real})
    with tilewright.load(artifact) as runs:
        first, second = runs.stream([{"x": array(*SHAPE)}] * 2)
        assert runs.run({"x": array(*SHAPE), "h": first["next"]})["y"].tobytes() == second["y"].tobytes()


def test_what_names_the_accelerator_is_checked_as_a_jobs_is(tmp_path: Path, capsys: Any) -> None:
    model = str(_recurrent(tmp_path / "m.onnx"))
    for words, said in (
        (["--devices", "cpu,cpu:cortex-a53,npu:ethos-u55-32"], "works with exactly one CPU"),
        (["--devices", "cpu:0,cpu:1"], "cpu is no accelerator"),
        (["--target", "npu:ethos-u55-32", "--objective", "throughput"], "applies to several devices"),
        ([], "cpu is no accelerator"),
    ):
        assert main([model, *words]) == 1
        assert said in capsys.readouterr().err

"""States on one device, from options to runs, against the model step by step."""

from __future__ import annotations

import json
import subprocess
import threading
import weakref
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from compiler.codegen.build import find_toolchain
from compiler.contract import CompileOptions
from compiler.errors import InternalError, OptionsError
from compiler.pack.loader import InputError, Model, RunError, State
from compiler.steps.states import proof as carrying
from tests.compiler.devices.cpu.emulation.arm import NEON, arm, emulator
from tests.compiling import compile_file
from tests.seeds import each

WIDTH = 24
SHAPE = (4, WIDTH)
CARRY = {"h_next": "h", "c_next": "c", "count_next": "count"}
WEIGHTS = np.random.default_rng(5).uniform(-0.25, 0.25, (3, WIDTH, WIDTH)).astype(np.float32)


def saved(path: Path, nodes: list[Any], inputs: list[Any], outputs: list[Any], weights: list[Any]) -> Path:
    graph = helper.make_graph(nodes, "stateful", inputs, outputs, weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9), path)
    return path


def stateful(path: Path) -> Path:
    """h' = tanh(x A + h B); c' = c/2 + x; count' = count + 1; y = h' C + h + count; turned = y^T."""
    value = helper.make_tensor_value_info
    weights = [*map(numpy_helper.from_array, WEIGHTS, "abw")]
    weights += [numpy_helper.from_array(np.array(0.5, np.float32), "half")]
    weights += [numpy_helper.from_array(np.array([1], np.int64), "one")]
    nodes = [
        helper.make_node("MatMul", ["x", "a"], ["xa"]),
        helper.make_node("MatMul", ["h", "b"], ["hb"]),
        helper.make_node("Add", ["xa", "hb"], ["sum"]),
        helper.make_node("Tanh", ["sum"], ["h_next"]),
        helper.make_node("Mul", ["c", "half"], ["less"]),
        helper.make_node("Add", ["less", "x"], ["c_next"]),
        helper.make_node("Add", ["count", "one"], ["count_next"]),
        helper.make_node("MatMul", ["h_next", "w"], ["hw"]),
        helper.make_node("Add", ["hw", "h"], ["both"]),
        helper.make_node("Cast", ["count"], ["number"], to=TensorProto.FLOAT),
        helper.make_node("Add", ["both", "number"], ["y"]),
        helper.make_node("Transpose", ["y"], ["turned"], perm=[1, 0]),
    ]
    inputs = [value(name, TensorProto.FLOAT, SHAPE) for name in ("h", "x", "c")]
    inputs.append(value("count", TensorProto.INT64, [1]))
    outputs = [value(name, TensorProto.FLOAT, SHAPE) for name in ("y", "h_next", "c_next")]
    outputs += [value("count_next", TensorProto.INT64, [1]), value("turned", TensorProto.FLOAT, SHAPE[::-1])]
    return saved(path, nodes, inputs, outputs, weights)


def step(x: np.ndarray, state: Mapping[str, np.ndarray]) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """The model in float64: y, and the state for the next step."""
    a, b, w = WEIGHTS.astype(np.float64)
    h = np.tanh(x.astype(np.float64) @ a + state["h"] @ b)
    after = {"h": h, "c": state["c"] / 2 + x, "count": state["count"] + 1}
    return h @ w + state["h"] + state["count"], after


def zeros() -> dict[str, np.ndarray]:
    return {"h": np.zeros(SHAPE), "c": np.zeros(SHAPE), "count": np.zeros(1, np.int64)}


def frames(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((count, *SHAPE)).astype(np.float32)


def options(**more: Any) -> CompileOptions:
    return CompileOptions.from_json({"tuning_budget_s": 0, "carry": CARRY, **more})


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("carrying")
    compile_file(stateful(folder / "m.onnx"), folder / "m.tw", options())
    return folder / "m.tw"


@pytest.fixture
def model(artifact: Path) -> Iterator[Model]:
    with Model(artifact) as model:
        yield model


def test_runs_from_a_state_are_the_model_step_by_step(model: Model) -> None:
    state, expected = model.state(), zeros()
    for x in frames(20):
        found = model.run({"x": x}, state=state)
        y, expected = step(x, expected)
        assert [*found] == ["y", "turned"]
        np.testing.assert_allclose(found["y"], y, rtol=1e-4, atol=1e-5)
        np.testing.assert_array_equal(found["turned"], found["y"].T)
        for name, array in expected.items():
            np.testing.assert_allclose(state[name], array, rtol=1e-4, atol=1e-5)
    assert state["count_next"] == state["count"] == 20


def test_a_run_without_a_state_takes_and_gives_everything(model: Model) -> None:
    given = model.random_inputs(1)
    found = model.run(given)
    assert [*found] == ["y", "h_next", "c_next", "count_next", "turned"]
    state = model.state()
    for name in state.names:
        state[name] = given[name]
    made = model.run({"x": given["x"]}, dict.fromkeys(CARRY), state)
    assert [*made] == [*found]
    for name, array in found.items():
        assert made[name].tobytes() == array.tobytes()
        if name in CARRY:
            assert state[CARRY[name]].tobytes() == array.tobytes()
    with pytest.raises(InputError, match="input 'h' is missing"):
        model.run({"x": given["x"]})


def test_the_manifest_says_what_is_carried_and_what_needs_one_memory(model: Model, artifact: Path) -> None:
    in_place = {one.input.name: one.in_place for one in model.carried}
    assert in_place["c"]
    assert not in_place["h"], "y reads it after the new one is there"
    assert model.manifest["carried"] == [
        {"output": out, "input": into, "in_place": in_place[into]} for out, into in sorted(CARRY.items())
    ]
    assert model.state().bytes == (2 + 1) * 4 * WIDTH * 4 + (1 if in_place["count"] else 2) * 8
    with zipfile.ZipFile(artifact) as archive:
        assert "state.h" in archive.namelist()


def test_nothing_is_allocated_for_a_state_in_a_run(model: Model) -> None:
    state = model.state()
    x = frames(1)[0]
    places = {id(array) for side in state._sides for array in side}
    addresses = {array.__array_interface__["data"][0] for side in state._sides for array in side}
    for _ in range(5):
        model.run({"x": x}, state=state)
        assert {id(array) for side in state._sides for array in side} == places
    assert {array.__array_interface__["data"][0] for side in state._sides for array in side} == addresses


def test_states_are_apart_and_share_one_model(model: Model) -> None:
    xs = frames(6)
    states, alone = [model.state() for _ in range(3)], []
    for number in range(3):
        own = model.state()
        alone.append([model.run({"x": x * (number + 1)}, state=own)["y"].tobytes() for x in xs])
    together: list[list[bytes]] = [[], [], []]
    for x in xs:
        for number, state in enumerate(states):
            together[number].append(model.run({"x": x * (number + 1)}, state=state)["y"].tobytes())
    assert together == alone


def test_any_model_of_the_artifact_runs_from_a_state(model: Model, artifact: Path) -> None:
    xs, state = frames(4), model.state()
    wanted = [model.run({"x": x}, state=state)["y"].tobytes() for x in xs]
    state.reset()
    assert not state["h"].any()
    with Model(artifact) as other:
        found = [(model, other)[at % 2].run({"x": x}, state=state)["y"].tobytes() for at, x in enumerate(xs)]
        assert found == wanted
        gone = weakref.ref(other)
        del other
    assert [gone() is None or gone()._library is None] == [True]  # type: ignore[union-attr]
    assert model.run({"x": xs[0]}, state=state)["y"].shape == SHAPE


def test_a_fork_goes_its_own_way(model: Model) -> None:
    xs, state = frames(6), model.state()
    for x in xs[:3]:
        model.run({"x": x}, state=state)
    fork = state.fork()
    before = {name: state[name] for name in state.names}
    for x in xs[3:]:
        model.run({"x": x}, state=fork)
    assert all(state[name].tobytes() == array.tobytes() for name, array in before.items())
    for x in xs[3:]:
        model.run({"x": x}, state=state)
    assert all(state[name].tobytes() == fork[name].tobytes() for name in state.names)


def test_a_state_is_saved_and_loaded(model: Model, tmp_path: Path) -> None:
    xs, state = frames(5), model.state()
    for x in xs[:3]:
        model.run({"x": x}, state=state)
    state.save(tmp_path / "s.state")
    assert [one.name for one in tmp_path.iterdir()] == ["s.state"]
    loaded = model.state(tmp_path / "s.state")
    for x in xs[3:]:
        assert model.run({"x": x}, state=loaded)["y"].tobytes() == model.run({"x": x}, state=state)["y"].tobytes()


def test_large_arrays_beside_a_state_are_used_where_they_are(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    xs, state, other = frames(5), model.state(), model.state()
    wanted = [model.run({"x": x}, state=state) for x in xs]
    monkeypatch.setattr("compiler.pack.loader.program.QUICK_CAPACITY", 0)
    for x, one in zip(xs, wanted, strict=True):
        found = model.run({"x": x}, state=other)
        assert {name: array.tobytes() for name, array in found.items()} == {
            name: array.tobytes() for name, array in one.items()
        }
    y = np.zeros(SHAPE, np.float32)
    carried = np.zeros(SHAPE, np.float32)
    found = model.run({"x": xs[0].tolist()}, {"y": y, "h_next": carried}, other)
    assert found["y"] is y
    assert found["h_next"] is carried
    assert carried.tobytes() == other["h"].tobytes()


@pytest.mark.parametrize(
    ("inputs", "out", "says"),
    [
        ({}, None, "input 'x' is missing"),
        ({"x": np.zeros(SHAPE, np.float32), "h": np.zeros(SHAPE, np.float32)}, None, "'h'. Fix: the model's are 'x'"),
        ({"x": np.zeros((1, 2), np.float32)}, None, "has shape"),
        ({"x": np.zeros(SHAPE)}, None, "is float64, not float32"),
        ({"x": np.zeros(SHAPE, np.float32)}, {"z": None}, "unknown output 'z'"),
        ({"x": np.zeros(SHAPE, np.float32)}, {"h_next": np.zeros(3, np.float32)}, "output 'h_next' is float32"),
    ],
)
def test_a_refused_run_leaves_the_state_as_it_was(inputs: Any, out: Any, says: str, model: Model) -> None:
    state = model.state()
    model.run({"x": frames(1)[0]}, state=state)
    before = {name: state[name].tobytes() for name in state.names}
    with pytest.raises(InputError, match=says):
        model.run(inputs, out, state)
    assert {name: state[name].tobytes() for name in state.names} == before
    assert model.run({"x": frames(1)[0]}, state=state)["y"].shape == SHAPE


@pytest.mark.parametrize("quick", [1 << 16, 0])
def test_a_run_that_the_library_refuses_leaves_the_state_as_it_was(
    quick: int, model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("compiler.pack.loader.program.QUICK_CAPACITY", quick)
    state, x = model.state(), frames(1)[0]
    model.run({"x": x}, state=state)
    before = {name: state[name].tobytes() for name in state.names}

    class Refusing:
        def tw_run(self, *_: object) -> int:
            return -1

        def tw_last_error(self) -> bytes:
            return b"not today"

    assert model._program.library
    with monkeypatch.context() as patch:
        patch.setattr(model._program.library, "calls", Refusing())
        with pytest.raises(RunError, match="not today"):
            model.run({"x": x}, state=state)
    assert {name: state[name].tobytes() for name in state.names} == before


@pytest.mark.parametrize("quick", [1 << 16, 0])
def test_an_interrupted_run_leaves_the_state_void_until_it_is_reset(
    quick: int, model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("compiler.pack.loader.program.QUICK_CAPACITY", quick)
    state, x = model.state(), frames(1)[0]
    model.run({"x": x}, state=state)
    kept = state.fork()

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(model._program, "run_quick" if quick else "_invoke", interrupted)
        with pytest.raises(KeyboardInterrupt):
            model.run({"x": x}, state=state)
    for use in (
        lambda: model.run({"x": x}, state=state),
        lambda: state["h"],
        lambda: state.__setitem__("h", np.zeros(SHAPE, np.float32)),
        state.fork,
        lambda: state.save("nowhere"),
    ):
        with pytest.raises(RunError, match=r"was interrupted\. Fix: reset it"):
            use()
    state.reset()
    assert model.run({"x": x}, state=state)["y"].tobytes() == model.run({"x": x}, state=model.state())["y"].tobytes()
    assert model.run({"x": x}, state=kept)["y"].shape == SHAPE


@pytest.mark.parametrize("small", [1 << 16, 0])
def test_measured_runs_are_from_a_state_and_each_finds_the_same(
    small: int, model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But for what is written in place and large, which goes on."""
    bound: list[tuple[dict[str, np.ndarray], dict[str, np.ndarray]]] = []
    again = model._program.again

    def noted(arrays: list[Any], results: list[Any]) -> Any:
        named = [
            {spec.name: array for spec, array in zip(specs, found, strict=True)}
            for specs, found in ((model.inputs, arrays), (model.outputs, results))
        ]
        bound.append((named[0], named[1]))
        return again(arrays, results)

    monkeypatch.setattr("compiler.pack.loader.program.QUICK_BYTES", small)
    monkeypatch.setattr(model._program, "again", noted)
    given = model.random_inputs(3)
    kept = {name: array.copy() for name, array in given.items()}
    wanted = model.run(given)
    run = model.bind_state([given[spec.name] for spec in model.inputs])
    ((read, made),) = bound
    in_place = {one.input.name for one in model.carried if one.in_place}
    assert "c" in in_place
    assert "h" not in in_place
    for one in model.carried:
        assert (made[one.output.name] is read[one.input.name]) == one.in_place
    steps = 3
    for _ in range(steps):
        assert run() > 0
    for name in ("y", "h_next", "turned"):
        if small or name == "h_next":
            assert made[name].tobytes() == wanted[name].tobytes()
    c = kept["c"].astype(np.float64)
    for _ in range(1 if small else steps):
        c = c / 2 + kept["x"]
    np.testing.assert_allclose(made["c_next"], c, rtol=1e-5, atol=1e-6)
    assert all(given[name].tobytes() == array.tobytes() for name, array in kept.items())
    measured = model.bench(0.01, given)
    assert measured["runs"] >= 10
    assert len(bound) == 2
    assert bound[1][1]["c_next"] is bound[1][0]["c"]


def test_what_a_report_says_of_latency_is_of_runs_from_a_state(
    artifact: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured: list[int] = []
    real = Model.bind_state

    def noted(self: Model, inputs: Any) -> Any:
        measured.append(len(inputs))
        real(self, inputs)
        return lambda: 0.125

    monkeypatch.setattr(Model, "bind_state", noted)
    report = compile_file(artifact.with_name("m.onnx"), tmp_path / "m.tw", options())
    assert measured == [4]
    assert report.latency_s == 0.125
    compile_file(artifact.with_name("m.onnx"), tmp_path / "m.tw", options(carry={}))
    assert measured == [4]
    with Model(tmp_path / "m.tw") as model, pytest.raises(RunError, match="compiled without states"):
        real(model, [*model.random_inputs().values()])


def test_a_state_of_another_artifact_or_file_is_refused(model: Model, tmp_path: Path) -> None:
    compile_file(stateful(tmp_path / "m.onnx"), tmp_path / "other.tw", options(carry={"h_next": "h"}))
    x = frames(1)[0]
    with Model(tmp_path / "other.tw") as other:
        state = other.state()
        with pytest.raises(InputError, match="the state is of another artifact"):
            model.run({"x": x}, state=state)
        state.save(tmp_path / "s")
        with pytest.raises(InputError, match="holds the state of another model"):
            model.state(tmp_path / "s")
    (tmp_path / "none").write_text("no state")
    np.savez(tmp_path / "some.npz", a=np.zeros(3))
    for name in ("none", "some.npz"):
        with pytest.raises(InputError, match="holds no state"):
            model.state(tmp_path / name)
    (tmp_path / "half").write_bytes((tmp_path / "s").read_bytes()[:200])
    with pytest.raises(InputError, match="holds no state"):
        model.state(tmp_path / "half")
    with pytest.raises(FileNotFoundError):
        model.state(tmp_path / "nothing")


def test_tensors_are_read_and_written_by_name(model: Model) -> None:
    state = model.state()
    assert state.names == ("c", "count", "h")
    array = frames(1)[0]
    state["h_next"] = array
    state["h"][...] = 7  # a copy
    assert state["h"].tobytes() == array.tobytes()
    state["count"] = [3]
    assert model.run({"x": array}, {"count_next": None}, state)["count_next"] == 4
    with pytest.raises(InputError, match=r"the state holds no 'x'\. Fix: it holds 'c', 'count', 'h'"):
        state["x"]
    with pytest.raises(InputError, match="has shape"):
        state["h"] = array[:2]


def test_an_artifact_without_states_says_how_to_get_one(tmp_path: Path) -> None:
    compile_file(stateful(tmp_path / "m.onnx"), tmp_path / "m.tw", options(carry={}))
    with Model(tmp_path / "m.tw") as model:
        assert model.carried == ()
        assert "carried" not in model.manifest
        with pytest.raises(RunError, match="compiled without states"):
            model.state()
    with zipfile.ZipFile(tmp_path / "m.tw") as archive:
        assert not [name for name in archive.namelist() if "state.h" in name]


def test_threads_run_from_their_states_and_wait_for_each_other(model: Model) -> None:
    xs, wanted = frames(40), []
    alone = model.state()
    wanted = [model.run({"x": x}, state=alone)["y"].tobytes() for x in xs]
    found: dict[int, list[bytes]] = {}

    def work(number: int) -> None:
        own = model.state()
        found[number] = [model.run({"x": x}, state=own)["y"].tobytes() for x in xs]

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [found[number] == wanted for number in range(3)] == [True] * 3


def test_states_are_carried_by_their_names(artifact: Path, tmp_path: Path) -> None:
    compile_file(artifact.with_name("m.onnx"), tmp_path / "m.tw", options(carry="auto"))
    with Model(tmp_path / "m.tw") as model:
        assert model.manifest["options"]["carry"] == "auto"
        assert {one.output.name: one.input.name for one in model.carried} == {"h_next": "h", "c_next": "c"}
        assert "count_next" in model.run({"x": frames(1)[0], "count": [1]}, state=model.state())


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"carry": {"nothing": "h"}}, "carry names 'nothing', which is no output of the model"),
        ({"carry": {"turned": "h"}}, "their types or shapes differ"),
        ({"carry": {"h_next": "h", "y": "h"}}, "gives one input two states"),
    ],
)
def test_what_cannot_be_carried_is_refused(asked: dict[str, Any], says: str, tmp_path: Path) -> None:
    with pytest.raises(OptionsError, match=says) as raised:
        compile_file(stateful(tmp_path / "m.onnx"), tmp_path / "m.tw", options(**asked))
    assert raised.value.fix
    assert not (tmp_path / "m.tw").exists()


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"dims": {"n": {"min": 1, "max": 2}}}, "leaves dimension 'n' open, and programs that carry states"),
        ({"dims": [{"n": 1}, {"n": {"min": 1, "max": 8}}]}, "leaves dimension 'n' open, and programs that carry"),
        ({"target": "cuda:sm_90"}, "applies to one CPU, and to pipelines"),
        ({"devices": ["cpu:0", "cpu:1"]}, "applies to one CPU, and to pipelines"),
    ],
)
def test_options_that_exclude_states_are_named(asked: dict[str, Any], says: str) -> None:
    with pytest.raises(OptionsError, match=says):
        options(**asked)


def test_sizes_that_data_say_are_refused(tmp_path: Path) -> None:
    value = helper.make_tensor_value_info
    nodes = [helper.make_node("NonZero", ["x"], ["places"]), helper.make_node("Add", ["x", "h"], ["h_next"])]
    inputs = [value(name, TensorProto.FLOAT, [4]) for name in "xh"]
    outputs = [value("places", TensorProto.INT64, [1, None]), value("h_next", TensorProto.FLOAT, [4])]
    path = saved(tmp_path / "m.onnx", nodes, inputs, outputs, [])
    with pytest.raises(OptionsError, match="sizes are known before they run"):
        compile_file(path, tmp_path / "m.tw", options(carry={"h_next": "h"}))


@each(range(8))
def test_random_models_with_states_give_the_bits_of_states_that_are_fed(
    seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The proof of each compares them; this says that both kinds of memory were met."""
    folder = tmp_path_factory.mktemp("random")
    names = ["p", "q", "r"]
    compile_file(
        random_model(folder / "m.onnx", seed), folder / "m.tw", options(carry={f"{name}_next": name for name in names})
    )
    with Model(folder / "m.tw") as model:
        MET.update(one.in_place for one in model.carried)
        state, fed = model.state(), {name: np.zeros((6, 8), np.float32) for name in names}
        for number in range(7):
            x = np.random.default_rng(number).standard_normal((6, 8)).astype(np.float32)
            found = model.run({"x": x}, state=state)
            wanted = model.run({"x": x, **fed})
            assert found["y"].tobytes() == wanted["y"].tobytes()
            fed = {name: wanted[f"{name}_next"] for name in names}
    if seed == 7:
        assert len(MET) == 2


MET: set[bool] = set()


def random_model(path: Path, seed: int) -> Path:
    """Three states, each made of some others and of x by element-wise functions, transposed copies or products."""
    random = np.random.default_rng(seed)
    value, nodes = helper.make_tensor_value_info, []
    weights = [
        numpy_helper.from_array((random.standard_normal((8, 8)) / 8).astype(np.float32), "w"),
        numpy_helper.from_array(np.arange(6)[::-1].copy(), "rows"),
    ]
    known = ["x", "p", "q", "r"]
    for number in range(8):
        made, kind = f"v{number}", random.choice(["Add", "Mul", "Tanh", "MatMul", "Gather", "Sub"])
        pick = [str(random.choice(known[-6:])) for _ in range(2)]
        if kind == "Tanh":
            nodes.append(helper.make_node("Tanh", pick[:1], [made]))
        elif kind == "MatMul":
            nodes.append(helper.make_node("MatMul", [pick[0], "w"], [made]))
        elif kind == "Gather":
            nodes.append(helper.make_node("Gather", [pick[0], "rows"], [made], axis=0))
        else:
            nodes.append(helper.make_node(str(kind), pick, [made]))
        known.append(made)
    for name in "pqr":
        source = str(random.choice(known[4:]))
        nodes.append(helper.make_node("Add", [source, name], [f"{name}_sum"]))
        nodes.append(helper.make_node("Sin", [f"{name}_sum"], [f"{name}_next"]))
    nodes.append(helper.make_node("Add", [known[-1], "p"], ["y"]))
    inputs = [value(name, TensorProto.FLOAT, (6, 8)) for name in "xpqr"]
    outputs = [value(name, TensorProto.FLOAT, (6, 8)) for name in ("y", "p_next", "q_next", "r_next")]
    return saved(path, nodes, inputs, outputs, weights)


MAIN = """
#include "state.h"
#include <stdio.h>
static float x[COUNT][4 * WIDTH], y[2][COUNT][4 * WIDTH], turned[4 * WIDTH];
int main(void) {
    tw_config config = {.weights_path = "weights.bin", .spin_us = -1};
    tw_instance *model;
    tw_state *states[2];
    if (tw_create(&config, &model)) return fprintf(stderr, "%s\\n", tw_last_error()), 3;
    if (tw_state_create(&states[0]) || tw_state_create(&states[1])) return 4;
    int64_t shape[] = {4, WIDTH}, across[] = {WIDTH, 4}, wrong[] = {4, WIDTH + 1};
    tw_tensor in[4] = {{0}}, out[5] = {{0}};
    out[4] = (tw_tensor){turned, TW_CPU, 0, TW_FLOAT, 32, 2, across, NULL};
    if (fread(x, sizeof x, 1, stdin) != 1) return 5;
    for (int at = 0; at < COUNT; at++)
        for (int side = 0; side < 2; side++) {
            if (side && at == COUNT / 2) tw_state_reset(states[side]);
            in[1] = (tw_tensor){x[at], TW_CPU, 0, TW_FLOAT, 32, 2, wrong, NULL};
            out[0] = (tw_tensor){y[side][at], TW_CPU, 0, TW_FLOAT, 32, 2, shape, NULL};
            if (!tw_state_run(model, states[side], in, out)) return 6; /* refused, and the state stays */
            in[1].shape = shape;
            if (tw_state_run(model, states[side], in, out)) return fprintf(stderr, "%s\\n", tw_last_error()), 7;
        }
    if (*(int64_t *)tw_state_data(states[0], 3) != COUNT || tw_state_data(states[0], 1)) return 8;
    *(int64_t *)tw_state_data(states[1], 3) = 0;
    tw_destroy(model);
    for (int side = 0; side < 2; side++) tw_state_destroy(states[side]);
    tw_state_destroy(NULL);
    fwrite(y, sizeof y, 1, stdout);
    return 0;
}
"""


def test_a_c_program_runs_from_states(artifact: Path, model: Model, tmp_path: Path) -> None:
    with zipfile.ZipFile(artifact) as archive:
        archive.extractall(tmp_path)
    xs = frames(12, seed=1)
    (tmp_path / "main.c").write_text(f"#define COUNT {len(xs)}\n#define WIDTH {WIDTH}\n{MAIN}")
    command = [find_toolchain().path, "-Wall", "-Werror", "main.c", "./model.so", "-Wl,-rpath,$ORIGIN", "-o", "main"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    done = subprocess.run(["./main"], cwd=tmp_path, check=False, capture_output=True, timeout=60, input=xs.tobytes())
    assert done.returncode == 0, done.stderr
    wanted = b""
    for side in range(2):
        state = model.state()
        for at, x in enumerate(xs):
            if side and at == len(xs) // 2:
                state.reset()
            wanted += model.run({"x": x}, state=state)["y"].tobytes()
    assert done.stdout == wanted


def test_an_arm_program_runs_from_states_in_an_emulated_core(tmp_path: Path) -> None:
    target = arm(NEON)
    report = compile_file(stateful(tmp_path / "m.onnx"), tmp_path / "m.tw", options(target=target.name))
    assert "run 3 from a state" in [case.inputs for case in report.cases]
    with zipfile.ZipFile(tmp_path / "m.tw") as archive:
        archive.extractall(tmp_path)
    xs = frames(4, seed=1)
    (tmp_path / "main.c").write_text(f"#define COUNT {len(xs)}\n#define WIDTH {WIDTH}\n{MAIN}")
    compiler = find_toolchain(machine=target.machine).path
    command = [compiler, "main.c", "./model.so", "-Wl,-rpath,$ORIGIN", "-o", "main"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    start = [] if target.is_here else [*emulator(target).command]
    command = [*start, "./main"]
    done = subprocess.run(command, cwd=tmp_path, check=False, capture_output=True, timeout=60, input=xs.tobytes())
    assert done.returncode == 0, done.stderr
    found = np.frombuffer(done.stdout, np.float32).reshape(2, *xs.shape)
    for side in range(2):
        state = zeros()
        for at, x in enumerate(xs):
            y, state = step(x, zeros() if side and at == len(xs) // 2 else state)
            np.testing.assert_allclose(found[side, at], y, rtol=1e-4, atol=1e-5)


class Stepping:
    """A model that adds its input to its state, and forgets the state in run `forgets`."""

    def __init__(self, forgets: int | None) -> None:
        self.forgets, self.runs = forgets, 0
        spec = type("Spec", (), {"name": "x", "numpy": np.dtype(np.float32)})
        held = type("Spec", (), {"name": "h", "numpy": np.dtype(np.float32)})
        made = type("Spec", (), {"name": "next", "numpy": np.dtype(np.float32)})
        self.inputs, self.outputs = (spec, held), (made,)
        self.manifest: dict[str, Any] = {"inputs": [{"name": "h", "range": [1, 2]}]}
        self.carried = (type("Carried", (), {"output": made, "input": held, "rows": 0}),)

    def state(self) -> Holding:
        return Holding()

    def random_inputs(self, seed: int) -> dict[str, np.ndarray]:
        return {"x": np.array([seed], np.float32), "h": np.array([1.5], np.float32)}

    def run(self, inputs: dict[str, np.ndarray], state: Holding | None = None) -> dict[str, np.ndarray]:
        if state is None:
            return {"next": inputs["x"] + inputs["h"]}
        self.runs += 1
        state["h"] = inputs["x"] + (0 if self.runs == self.forgets else state["h"])
        return {}


class Holding(dict[str, np.ndarray]):
    """A state of one tensor."""

    names = ("h",)

    def __missing__(self, name: str) -> np.ndarray:
        return self.get("h", np.zeros(1, np.float32))

    def fork(self) -> Holding:
        return Holding(self)


def test_each_run_of_the_proof_has_the_state_that_the_one_before_made() -> None:
    kind = type("Type", (), {"dtype": type("D", (), {"numpy": np.float32})})
    graph = type("Graph", (), {"inputs": (7, 8), "type": staticmethod(lambda _: kind)})
    found = carrying.runs_in_a_row(cast("Any", Stepping(None)), cast("Any", graph), ())
    assert [float(one[8][0]) for one in found[:4]] == [1.5, 1.5, 2.5, 4.5], "of what is demanded, the first is drawn"
    assert [float(one[7][0]) for one in found] == [*range(carrying.STEPS)]
    with pytest.raises(InternalError, match="other bits for output 'next'"):
        carrying.runs_in_a_row(cast("Any", Stepping(3)), cast("Any", graph), ())


def test_the_receipt_lists_the_runs_that_were_judged(artifact: Path, tmp_path: Path) -> None:
    report = compile_file(artifact.with_name("m.onnx"), tmp_path / "m.tw", options())
    assert [case.inputs for case in report.cases if "state" in case.inputs] == [
        f"run {number} from a state" for number in (1, 2, 3)
    ]
    assert (tmp_path / "m.tw").read_bytes() == artifact.read_bytes(), "equal options give equal bytes"
    assert json.loads(zipfile.ZipFile(artifact).read("manifest.json"))["options"]["carry"] == dict(
        sorted(CARRY.items())
    )


def test_a_state_is_no_part_of_a_model_that_is_closed(model: Model) -> None:
    state = model.state()
    assert isinstance(state, State)
    model.close()
    with pytest.raises(RunError, match="closed"):
        model.run({"x": frames(1)[0]}, state=state)
    assert not state["h"].any()

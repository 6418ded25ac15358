"""One state for several bindings of an artifact: runs of each in turn, against states that are fed and read back."""

from __future__ import annotations

import json
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from compiler.codegen.build import find_toolchain
from compiler.contract import CompileOptions
from compiler.errors import InternalError, OptionsError
from compiler.pack.loader import InputError, Model
from compiler.preflight import preflight
from compiler.steps.states.proof import runs_across, runs_in_a_row
from tests.compiler.steps.test_carried_decoder import CACHES, CAPACITY, HEAD, SHARED, WORDS, counted, decoder, of_tokens
from tests.compiling import compile_file
from tests.seeds import each

ROWS, WIDTH = 6, 8
STATE = (ROWS, WIDTH)
CARRY = {"rows_next": "rows", "mean_next": "mean"}


def options(sizes: list[int], **more: Any) -> CompileOptions:
    return CompileOptions.from_json({"tuning_budget_s": 0, "carry": CARRY, "dims": {"n": sizes}, **more})


def saved(path: Path, nodes: list[Any], inputs: list[Any], outputs: list[Any], weights: dict[str, Any]) -> Path:
    tensors = [numpy_helper.from_array(np.asarray(array), name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "stream", inputs, outputs, tensors)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9), path)
    return path


def stream(path: Path) -> Path:
    """The last rows of a stream, of which n are new, and a mean that moves; y is of both, and of rows that stay.

    Where all rows are new, nothing is read of the old ones and they are written over. Else those that stay are compared
    with the new ones, so that both are needed at once.
    """
    value, node = helper.make_tensor_value_info, helper.make_node
    nodes = [
        node("Concat", ["rows", "x"], ["both"], axis=0),
        node("Shape", ["x"], ["n"], end=1),
        node("Slice", ["both", "n", "end", "first"], ["rows_next"]),
        node("ReduceMean", ["x", "first"], ["new"], keepdims=1),
        node("Mul", ["mean", "half"], ["less"]),
        node("Add", ["less", "new"], ["mean_next"]),
        node("MatMul", ["rows_next", "w"], ["mixed"]),
        node("Slice", ["rows", "n", "end", "first"], ["stay"]),
        node("Transpose", ["stay"], ["turned"], perm=[1, 0]),
        node("MatMul", ["mixed", "turned"], ["alike"]),
        node("ReduceSum", ["alike", "second"], ["score"], keepdims=1),
        node("Add", ["mixed", "mean"], ["shifted"]),
        node("Add", ["shifted", "score"], ["y"]),
    ]
    inputs = [value("x", TensorProto.FLOAT, ["n", WIDTH]), value("rows", TensorProto.FLOAT, STATE)]
    inputs.append(value("mean", TensorProto.FLOAT, (1, WIDTH)))
    outputs = [value("y", TensorProto.FLOAT, STATE), value("rows_next", TensorProto.FLOAT, STATE)]
    outputs.append(value("mean_next", TensorProto.FLOAT, (1, WIDTH)))
    weights = {
        "end": np.array([ROWS + 100], np.int64),
        "first": np.array([0], np.int64),
        "second": np.array([1], np.int64),
        "half": np.array(0.5, np.float32),
        "w": W,
    }
    return saved(path, nodes, inputs, outputs, weights)


W = np.random.default_rng(5).uniform(-0.5, 0.5, (WIDTH, WIDTH)).astype(np.float32)


def blocks(sizes: list[int], seed: int = 0) -> list[np.ndarray]:
    random = np.random.default_rng(seed)
    return [random.standard_normal((n, WIDTH)).astype(np.float32) for n in sizes]


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bindings")
    compile_file(stream(folder / "m.onnx"), folder / "m.tw", options([ROWS, 1, 2]))
    return folder / "m.tw"


ORDER = [6, 1, 1, 2, 6, 6, 2, 1, 2, 2, 6, 1, 6]


@pytest.mark.parametrize("quick", [1 << 20, 0])
def test_bindings_run_in_turn_from_one_state(quick: int, artifact: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("compiler.pack.loader.program.QUICK_CAPACITY", quick)
    rows, mean = np.zeros(STATE), np.zeros((1, WIDTH))
    with Model(artifact) as model:
        state = model.state()
        fed = {"rows": rows.astype(np.float32), "mean": mean.astype(np.float32)}
        for x in blocks(ORDER * 2):
            found = model.run({"x": x}, state=state)
            assert [*found] == ["y"]
            theirs = model.run({"x": x, **fed})
            assert found["y"].tobytes() == theirs["y"].tobytes()
            fed = {into: theirs[out] for out, into in CARRY.items()}
            assert {name: state[name].tobytes() for name in state.names} == {
                name: array.tobytes() for name, array in fed.items()
            }
            stay, before = rows[len(x) :], mean
            rows = np.concatenate([rows, x])[-ROWS:]
            mixed = rows @ W.astype(np.float64)
            score = (mixed @ stay.T).sum(1, keepdims=True)
            mean = mean / 2 + x.astype(np.float64).mean(0, keepdims=True)
            np.testing.assert_allclose(found["y"], mixed + before + score, rtol=1e-4, atol=1e-4)
            np.testing.assert_allclose(state["mean"], mean, rtol=1e-4, atol=1e-5)
        assert state["rows"].any()


def test_a_tensor_has_two_memories_where_any_binding_needs_two(artifact: Path) -> None:
    with Model(artifact) as model, Model(artifact, binding=1) as alone:
        in_place = [{one.input.name: one.in_place for one in model.at(at).carried} for at in (1, 2, 3)]
        assert [one["rows"] for one in in_place] == [True, False, False], "else this tests little"
        two = {name: not all(one[name] for one in in_place) for name in in_place[0]}
        sizes = {"rows": ROWS * WIDTH * 4, "mean": WIDTH * 4}
        for state in (model.state(), alone.state(), model.at(2).state(), model.state().fork()):
            assert state.bytes == sum(sizes[name] * (1 + two[name]) for name in sizes)
        described = model.manifest
        assert [one["carried"] for one in described["bindings"]] == [
            [{"output": out, "input": into, "in_place": one[into]} for out, into in sorted(CARRY.items())]
            for one in in_place
        ]
        assert described["carried"] == described["bindings"][0]["carried"]


def test_states_of_all_bindings_are_forked_saved_reset_and_apart(artifact: Path, tmp_path: Path) -> None:
    xs = blocks(ORDER, seed=1)
    with Model(artifact) as model, Model(artifact) as again, Model(artifact, binding=2) as second:
        alone = model.state()
        wanted = [model.run({"x": x}, state=alone)["y"].tobytes() for x in xs]
        one, other = model.state(), model.state()
        for at, x in enumerate(xs):
            assert model.run({"x": x}, state=one)["y"].tobytes() == wanted[at]
            model.run({"x": x[::-1] + 1}, state=other)
            if at == 4:
                fork = one.fork()
                one.save(tmp_path / "s")
                kept = again.state(tmp_path / "s")
        for state, runner in ((fork, model), (kept, again)):
            assert [runner.run({"x": x}, state=state)["y"].tobytes() for x in xs[5:]] == wanted[5:]
        fork.reset()
        assert [again.run({"x": x}, state=fork)["y"].tobytes() for x in xs] == wanted
        own = second.state()
        second.run({"x": xs[2]}, state=own)
        own.reset()
        assert again.run({"x": xs[0]}, state=own)["y"].tobytes() == wanted[0]
        assert second.run({"x": xs[1]}, state=own)["y"].tobytes() == wanted[1]


def test_what_fits_no_binding_leaves_the_state_as_it_was(artifact: Path) -> None:
    (x,) = blocks([2])
    with Model(artifact) as model:
        state = model.state()
        model.run({"x": x}, state=state)
        before = {name: state[name].tobytes() for name in state.names}
        with pytest.raises(InputError, match=r"no binding of the model has 'x' \[3, 8\]\. Fix: give shapes of \(n=6\)"):
            model.run({"x": np.zeros((3, WIDTH), np.float32)}, state=state)
        with pytest.raises(InputError, match="input 'x' is missing"):
            model.run({}, state=state)
        with pytest.raises(InputError, match="unknown input that no state holds 'mean'"):
            model.run({"x": x, "mean": np.zeros((1, WIDTH), np.float32)}, state=state)
        with pytest.raises(InputError, match="is float64, not float32"):
            model.run({"x": x.astype(np.float64)}, state=state)
        with Model(artifact, binding=1) as alone, pytest.raises(InputError, match="has shape"):
            alone.run({"x": x}, state=state)
        assert {name: state[name].tobytes() for name in state.names} == before


def test_outputs_that_a_state_takes_over_are_given_where_they_are_asked_for(artifact: Path) -> None:
    with Model(artifact) as model:
        state = model.state()
        for x in blocks(ORDER):
            mine = np.empty(STATE, np.float32)
            found = model.run({"x": x}, {"rows_next": mine, "mean_next": None}, state)
            assert found["rows_next"] is mine
            assert mine.tobytes() == state["rows"].tobytes()
            assert found["mean_next"].tobytes() == state["mean"].tobytes()
        assert state["mean"].any()


def test_a_state_of_the_bindings_alone_is_of_another_artifact(artifact: Path, tmp_path: Path) -> None:
    """Its memories are those that one binding needs."""
    compile_file(artifact.with_name("m.onnx"), tmp_path / "m.tw", options([ROWS]))
    (x,) = blocks([ROWS])
    with Model(artifact) as model, Model(tmp_path / "m.tw") as alone:
        with pytest.raises(InputError, match="the state is of another artifact"):
            model.run({"x": x}, state=alone.state())
        alone.state().save(tmp_path / "s")
        assert not model.state(tmp_path / "s")["rows"].any(), "a saved state is for the model"


def test_each_binding_is_judged_from_states_and_the_second_from_what_the_first_left(
    artifact: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    began: list[dict[str, np.ndarray]] = []

    def watched(model: Model, graph: Any, samples: Any, found: Any) -> Any:
        began.append(dict(found))
        return runs_in_a_row(model, graph, samples, found)

    monkeypatch.setattr("compiler.steps.proving.runs_in_a_row", watched)
    report = compile_file(artifact.with_name("m.onnx"), tmp_path / "m.tw", options([ROWS, 1], threads=1))
    assert [case.inputs for case in report.cases if "state" in case.inputs] == [
        f"run {number} from a state" for number in (1, 2, 3)
    ] * 2
    assert not began[0]
    assert {name: array.any() for name, array in began[-1].items()} == {"rows": True, "mean": True}
    compile_file(artifact.with_name("m.onnx"), tmp_path / "again.tw", options([ROWS, 1], threads=1))
    assert (tmp_path / "again.tw").read_bytes() == (tmp_path / "m.tw").read_bytes(), "equal options give equal bytes"


def test_the_proof_finds_a_binding_that_reads_the_wrong_memory(artifact: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Model(artifact) as model:
        runs_across(model, [None, None, None])
        second = model.at(2)
        monkeypatch.setattr(second._program, "_swaps", 0)
        with pytest.raises(InternalError, match="gives other bits"):
            runs_across(model, [None, None, None])


def cells(path: Path, last: int | str = WIDTH) -> Path:
    """A state with as many rows as there are inputs: it differs among bindings of n."""
    value, node = helper.make_tensor_value_info, helper.make_node
    nodes = [node("Add", ["x", "h"], ["h_next"]), node("Add", ["c", "one"], ["c_next"])]
    inputs = [value(name, TensorProto.FLOAT, ["n", last]) for name in "xh"] + [value("c", TensorProto.FLOAT, [1])]
    outputs = [value("h_next", TensorProto.FLOAT, ["n", last]), value("c_next", TensorProto.FLOAT, [1])]
    return saved(path, nodes, inputs, outputs, {"one": np.ones(1, np.float32)})


@pytest.mark.parametrize("carry", [{"h_next": "h", "c_next": "c"}, "auto"])
def test_a_state_whose_shape_differs_among_bindings_is_refused(carry: Any, tmp_path: Path) -> None:
    path = cells(tmp_path / "m.onnx")
    asked = options([4, 2], carry=carry)
    with pytest.raises(OptionsError, match="input 'h' cannot be a state of all bindings") as raised:
        compile_file(path, tmp_path / "m.tw", asked)
    for said in ("[4, 8] at n=4", "[2, 8] at n=2"):
        assert said in raised.value.message
    assert "output 'h_next' out of carry" in str(raised.value.fix)
    assert not (tmp_path / "m.tw").exists()
    answer = preflight(path, asked)
    assert not answer["ok"]
    assert answer["problem"]["message"] == raised.value.message
    assert answer["carried"] == []
    assert answer["corrected"]["carry"] == {"c_next": "c"}
    corrected = CompileOptions.from_json(answer["corrected"])
    answer = preflight(path, corrected)
    assert answer["ok"]
    assert [one["input"] for one in answer["carried"]] == ["c"]
    compile_file(path, tmp_path / "m.tw", corrected)
    with Model(tmp_path / "m.tw") as model:
        state = model.state()
        for n in (2, 4, 4, 2):
            model.run({"x": np.zeros((n, WIDTH), np.float32), "h": np.zeros((n, WIDTH), np.float32)}, state=state)
        assert state["c"] == [4]


def test_names_that_say_a_state_at_one_binding_alone_are_refused(tmp_path: Path) -> None:
    """h keeps its shape where one row is added to none of them; at other sizes it grows."""
    value, node = helper.make_tensor_value_info, helper.make_node
    nodes = [
        node("Slice", ["x", "one", "most", "zero"], ["more"]),
        node("Concat", ["h", "more"], ["h_next"], axis=0),
        node("Add", ["c", "half"], ["c_next"]),
    ]
    inputs = [value("x", TensorProto.FLOAT, ["n", WIDTH]), value("h", TensorProto.FLOAT, [2, WIDTH])]
    inputs.append(value("c", TensorProto.FLOAT, [1]))
    outputs = [value("h_next", TensorProto.FLOAT, ["m", WIDTH]), value("c_next", TensorProto.FLOAT, [1])]
    numbers = {"one": [1], "most": [100], "zero": [0]}
    weights = {name: np.array(number, np.int64) for name, number in numbers.items()} | {
        "half": np.array([0.5], np.float32)
    }
    path = saved(tmp_path / "m.onnx", nodes, inputs, outputs, weights)
    asked = options([3, 1], carry="auto")
    says = "output 'h_next' is input 'h' of the next inference at n=1, and not at n=3"
    with pytest.raises(OptionsError, match=says):
        compile_file(path, tmp_path / "m.tw", asked)
    answer = preflight(path, asked)
    assert says in answer["problem"]["message"]
    assert answer["corrected"]["carry"] == {"c_next": "c"}


def test_ranges_beside_bindings_are_refused() -> None:
    with pytest.raises(OptionsError, match="leaves dimension 'n' open, and programs that carry states"):
        CompileOptions.from_json({"carry": CARRY, "dims": [{"n": 1}, {"n": {"min": 1, "max": 8}}]})


@pytest.mark.parametrize("masked", [True, False], ids=["a mask", "lengths"])
def test_a_prompt_is_read_in_pieces_and_tokens_follow(tmp_path: Path, *, masked: bool) -> None:
    path = decoder(tmp_path / "m.onnx", masked=masked, new="sequence_length")
    dims: dict[str, Any] = {"sequence_length": [1, 8], "past_sequence_length": CAPACITY}
    dims |= {"total_sequence_length": CAPACITY} if masked else {}
    asked = CompileOptions.from_json({"tuning_budget_s": 0, "carry": "auto", "dims": dims})
    assert preflight(path, asked)["ok"]
    compile_file(path, tmp_path / "m.tw", asked)
    pieces = [8, 8, 1, 1, 1, 1, *[1] * 10]
    tokens = np.random.default_rng(3).integers(0, WORDS, sum(pieces))
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [one.name for one in session.get_outputs()]
    fed = {f"past_key_values.{name}": np.zeros((1, SHARED, CAPACITY, HEAD), np.float32) for name in CACHES}
    theirs = dict(fed)
    with Model(tmp_path / "m.tw") as model:
        state, other, done = model.state(), model.state(), 0
        assert state.bytes == sum(array.nbytes for array in fed.values()), "each cache is one memory in both bindings"
        for count in pieces:
            given = {"ids": tokens[None, done : done + count], **counted(done + count - 1, masked=masked)}
            done += count
            found = model.run(given, state=state)
            model.run({**given, "ids": (given["ids"] + 1) % WORDS}, state=other)
            by_hand = model.run({**given, **fed})
            assert found["logits"].tobytes() == by_hand["logits"].tobytes()
            fed = {f"past_key_values.{name}": by_hand[f"present.{name}"] for name in CACHES}
            assert all(state[name].tobytes() == array.tobytes() for name, array in fed.items())
            wanted = of_tokens(tokens[:done])
            np.testing.assert_allclose(found["logits"][0, -1], wanted, rtol=1e-3, atol=2e-5 * np.abs(wanted).max())
            want = dict(zip(names, session.run(None, {**given, **theirs}), strict=True))
            np.testing.assert_allclose(found["logits"], want["logits"], rtol=1e-3, atol=1e-4)
            theirs = {f"past_key_values.{name}": want[f"present.{name}"] for name in CACHES}
        assert any(state[name].tobytes() != other[name].tobytes() for name in state.names)


@each(range(4))
def test_drawn_models_give_the_bits_of_states_that_are_fed_at_every_binding(seed: int, tmp_path: Path) -> None:
    random = np.random.default_rng(seed)
    path = drawn(tmp_path / "m.onnx", random)
    carry = {f"{name}_next": name for name in "pqr"}
    sizes = [int(n) for n in random.permutation([1, 2, ROWS])]
    threads = int(random.integers(1, 3))
    compile_file(path, tmp_path / "m.tw", options(sizes, carry=carry, threads=threads))
    fed = [{name: np.zeros(STATE, np.float32) for name in "pqr"} for _ in range(2)]
    with Model(tmp_path / "m.tw") as model:
        states = [model.state(), model.state()]
        for _ in range(16):
            side, n = int(random.integers(0, 2)), int(random.choice(sizes))
            x = random.standard_normal((n, WIDTH)).astype(np.float32)
            found = model.run({"x": x}, state=states[side])
            wanted = model.run({"x": x, **fed[side]})
            fed[side] = {name: wanted[f"{name}_next"] for name in "pqr"}
            assert found["y"].tobytes() == wanted["y"].tobytes()
            for state, own in zip(states, fed, strict=True):
                assert {name: state[name].tobytes() for name in "pqr"} == {
                    name: array.tobytes() for name, array in own.items()
                }


def drawn(path: Path, random: np.random.Generator) -> Path:
    """States that move by n rows, that are mixed, or that are changed where they are; which do is drawn."""
    value, node = helper.make_tensor_value_info, helper.make_node
    nodes = [
        node("Shape", ["x"], ["n"], end=1),
        node("ReduceSum", ["x", "zero"], ["sum"], keepdims=1),
        node("Tanh", ["sum"], ["bent"]),
    ]
    known = ["bent"]
    for name in random.permutation(list("pqr")):
        source = str(random.choice(known))
        kind = random.integers(0, 4)
        if kind == 0:
            nodes.append(node("Concat", [name, "x"], [f"{name}_both"], axis=0))
            nodes.append(node("Slice", [f"{name}_both", "n", "most", "zero"], [f"{name}_next"]))
        elif kind == 1:
            nodes.append(node("MatMul", [name, "w"], [f"{name}_mixed"]))
            nodes.append(node("Add", [f"{name}_mixed", source], [f"{name}_sum"]))
            nodes.append(node("Tanh", [f"{name}_sum"], [f"{name}_next"]))
        elif kind == 2:
            nodes.append(node("Add", [name, source], [f"{name}_sum"]))
            nodes.append(node("Sin", [f"{name}_sum"], [f"{name}_next"]))
        else:
            nodes.append(node("Slice", [name, "n", "most", "zero"], [f"{name}_left"]))
            nodes.append(node("Mul", ["x", "half"], [f"{name}_new"]))
            nodes.append(node("Concat", [f"{name}_left", f"{name}_new"], [f"{name}_next"], axis=0))
        known += [str(name), f"{name}_next"]
    picked = random.choice(known[1:], 3, replace=False)
    nodes.append(node("Sum", ["bent", *map(str, picked)], ["y"]))
    inputs = [value("x", TensorProto.FLOAT, ["n", WIDTH]), *(value(name, TensorProto.FLOAT, STATE) for name in "pqr")]
    outputs = [value(name, TensorProto.FLOAT, STATE) for name in ("y", "p_next", "q_next", "r_next")]
    weights = {
        "zero": np.array([0], np.int64),
        "most": np.array([100], np.int64),
        "half": np.array(0.5, np.float32),
        "w": W,
    }
    return saved(path, nodes, inputs, outputs, weights)


MAIN = """
#include "state.h"
#include <dlfcn.h>
#include <stdio.h>
static float x[COUNT][ROWS * WIDTH], y[COUNT][ROWS * WIDTH];
static const int sizes[COUNT] = SIZES, of[COUNT] = BINDINGS;
struct program { int (*run)(tw_instance *, tw_state *, const tw_tensor *, tw_tensor *); tw_instance *instance; };
int main(int count, char **paths) {
    struct program programs[8];
    tw_state *state = NULL;
    void (*destroy)(tw_state *) = NULL;
    for (int at = 1; at < count; at++) {
        void *library = dlopen(paths[at], RTLD_NOW | RTLD_LOCAL);
        if (!library) return fprintf(stderr, "%s\\n", dlerror()), 2;
        tw_config config = {.weights_path = "weights.bin", .spin_us = -1};
        int (*create)(const tw_config *, tw_instance **) = dlsym(library, "tw_create");
        if (create(&config, &programs[at - 1].instance)) return 3;
        programs[at - 1].run = dlsym(library, "tw_state_run");
        if (at == 1 && ((int (*)(tw_state **))dlsym(library, "tw_state_create"))(&state)) return 4;
        destroy = dlsym(library, "tw_state_destroy");
    }
    if (fread(x, sizeof x, 1, stdin) != 1) return 5;
    for (int at = 0; at < COUNT; at++) {
        int64_t taken[] = {sizes[at], WIDTH}, given[] = {ROWS, WIDTH};
        tw_tensor in[3] = {{0}}, out[3] = {{0}};
        in[0] = (tw_tensor){x[at], TW_CPU, 0, TW_FLOAT, 32, 2, taken, NULL};
        out[0] = (tw_tensor){y[at], TW_CPU, 0, TW_FLOAT, 32, 2, given, NULL};
        if (programs[of[at]].run(programs[of[at]].instance, state, in, out)) return 6;
    }
    destroy(state);
    fwrite(y, sizeof y, 1, stdout);
    return 0;
}
"""


@pytest.mark.parametrize("first", [0, 1], ids=["of one memory", "of two memories"])
def test_a_c_program_runs_bindings_from_one_state(first: int, artifact: Path, tmp_path: Path) -> None:
    """Whichever binding's library makes the state."""
    with zipfile.ZipFile(artifact) as archive:
        archive.extractall(tmp_path)
        bindings = json.loads(archive.read("manifest.json"))["bindings"]
    order = [first, *(at for at in range(3) if at != first)]
    place = {bindings[at]["dims"]["n"]: number for number, at in enumerate(order)}
    xs = blocks(ORDER, seed=2)
    whole = np.zeros((len(xs), ROWS, WIDTH), np.float32)
    for at, x in enumerate(xs):
        whole[at, : len(x)] = x
    listed = {"SIZES": ORDER, "BINDINGS": [place[n] for n in ORDER]}
    defined = [f"#define {name} {{{', '.join(map(str, numbers))}}}" for name, numbers in listed.items()]
    defined += [f"#define COUNT {len(xs)}", f"#define ROWS {ROWS}", f"#define WIDTH {WIDTH}"]
    (tmp_path / "main.c").write_text("\n".join(defined) + MAIN)
    command = [find_toolchain().path, "-Wall", "-Werror", "main.c", "-ldl", "-o", "main"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    libraries = [f"./{bindings[at]['folder']}model.so" for at in order]
    done = subprocess.run(
        ["./main", *libraries], cwd=tmp_path, check=False, capture_output=True, timeout=60, input=whole.tobytes()
    )
    assert done.returncode == 0, (done.returncode, done.stderr)
    with Model(artifact) as model:
        state = model.state()
        assert done.stdout == b"".join(model.run({"x": x}, state=state)["y"].tobytes() for x in xs)

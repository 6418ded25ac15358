"""A gradient boosting pipeline over categories that are strings: compiled once, and run in every way that there is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from compiler.contract import BenchmarkOptions, CompileOptions
from compiler.errors import InputsError
from compiler.pack.loader import InputError, Model
from compiler.preflight import preflight
from compiler.runner import benchmark, infer
from tests.compiler.pipelines import LABELS, boosting, people
from tests.compiling import compile_file
from tilewright.arrays import read_npz, write_npz

ROWS = 24
QUICK = {"target": "cpu", "threads": 1, "tuning_budget_s": 0}


def compiled(model: onnx.ModelProto, folder: Path, **options: object) -> tuple[Path, tuple[str, ...]]:
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    write_npz(folder / "sample.npz", people(ROWS, 3))
    samples = {} if options else {"people": folder / "sample.npz"}
    asked = CompileOptions.from_json({**QUICK, **options})
    report = compile_file(folder / "model.onnx", folder / "model.tw", asked, measure=False, samples=samples)
    return folder / "model.tw", report.notices


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, tuple[str, ...]]:
    return compiled(boosting(ROWS), tmp_path_factory.mktemp("pipeline"))


def by_onnxruntime(inputs: dict[str, np.ndarray]) -> tuple[list[str], np.ndarray]:
    """Labels, and scores [rows, labels] from the maps that ONNX Runtime gives."""
    session = onnxruntime.InferenceSession(boosting(ROWS).SerializeToString(), providers=["CPUExecutionProvider"])
    labels, maps = session.run(None, inputs)
    return list(labels), np.array([[one[label] for label in LABELS] for one in maps], np.float32)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_labels_and_scores_are_those_of_onnxruntime(pipeline: tuple[Path, tuple[str, ...]], seed: int) -> None:
    inputs = people(ROWS, seed)
    labels, scores = by_onnxruntime(inputs)
    with Model(pipeline[0]) as model:
        assert [spec.dtype for spec in (*model.inputs, *model.outputs)] == [
            *("string", "string", "float32"), *("string", "float32"),
        ]  # fmt: skip
        found = model.run(inputs)
        as_lists = model.run(
            {name: array.tolist() if array.dtype == object else array for name, array in inputs.items()}
        )
        flat = model.run_flat([array.astype("U") if array.dtype == object else array for array in inputs.values()])
    assert len(set(labels)) > 1
    for given in (found["label"], as_lists["label"], flat[0]):
        assert given.tolist() == labels
    np.testing.assert_allclose(found["probabilities"], scores, rtol=1e-5, atol=1e-6)


def test_scores_come_without_maps_and_a_notice_says_whose_they_are(pipeline: tuple[Path, tuple[str, ...]]) -> None:
    (notice,) = (one for one in pipeline[1] if "maps" in one)
    assert "its columns are 'churn', 'maybe', 'stay'" in notice


def test_a_program_in_c_is_given_numbers_of_strings(pipeline: tuple[Path, tuple[str, ...]]) -> None:
    inputs = people(ROWS)
    with Model(pipeline[0]) as model, Model(pipeline[0], coded=True) as coded:
        words = model.binding.words
        assert list(words) == model.manifest["strings"]
        assert [spec.dtype for spec in coded.inputs] == ["int64", "int64", "float32"]
        numbers = {
            name: np.array([words.index(word) if word in words else -1 for word in array.flat]).reshape(array.shape)
            for name, array in inputs.items()
            if array.dtype == object
        }
        label = coded.run({**inputs, **numbers})["label"]
        assert [words[number] for number in label] == model.run(inputs)["label"].tolist()
        filled = [np.zeros(spec.shape, spec.numpy) for spec in model.outputs]
        assert model.bind(list(inputs.values()), filled)() > 0
        np.testing.assert_array_equal(filled[0], label)


def test_what_is_no_string_is_refused(pipeline: tuple[Path, tuple[str, ...]]) -> None:
    inputs = people(ROWS)
    with Model(pipeline[0]) as model:
        for wrong in (np.zeros((ROWS, 1), np.int64), np.full((ROWS, 1), None, object)):
            with pytest.raises(InputError, match="'city' is no array of strings"):
                model.run({**inputs, "city": wrong})
        with pytest.raises(InputError, match="shape"):
            model.run({**inputs, "city": inputs["city"][:2]})
        with pytest.raises(InputError, match="unknown output 'label'"):
            model.run(inputs, {"label": np.zeros(ROWS, np.int64)})


def test_archives_of_strings_hold_no_pickles(pipeline: tuple[Path, tuple[str, ...]], tmp_path: Path) -> None:
    inputs = people(ROWS)
    write_npz(tmp_path / "in.npz", inputs)
    reported = infer(pipeline[0], tmp_path / "in.npz", tmp_path / "out.npz")
    assert reported["outputs"]["label"]["dtype"] == "string"
    assert read_npz(tmp_path / "out.npz")["label"].tolist() == by_onnxruntime(inputs)[0]
    bytes_ = {
        name: np.char.encode(array.astype("U")) if array.dtype == object else array for name, array in inputs.items()
    }
    write_npz(tmp_path / "bytes.npz", bytes_)
    assert infer(pipeline[0], tmp_path / "bytes.npz", tmp_path / "again.npz")["outputs"] == reported["outputs"]
    write_npz(tmp_path / "wrong.npz", {**inputs, "city": np.zeros((ROWS, 1))})
    with pytest.raises(InputsError) as caught:
        infer(pipeline[0], tmp_path / "wrong.npz", tmp_path / "none.npz")
    assert "not string" in caught.value.refusals[0].reason


def test_it_is_timed_on_strings_of_its_own(pipeline: tuple[Path, tuple[str, ...]]) -> None:
    with Model(pipeline[0]) as model:
        drawn = model.random_inputs(5)["city"]
        assert set(drawn.flat) <= {*model.binding.words, "another"}
        assert model.bench(0.05)["runs"] >= 10
    reported = benchmark([("a", pipeline[0])], BenchmarkOptions(seconds=0.05))
    assert [port["dtype"] for port in reported["artifacts"][0]["inputs"]] == ["string", "string", "float32"]


def test_preflight_says_what_is_a_string(pipeline: tuple[Path, tuple[str, ...]]) -> None:
    answer = preflight(pipeline[0].with_name("model.onnx"), CompileOptions.from_json(QUICK))
    assert answer["ok"]
    assert [one["dtype"] for one in (*answer["inputs"], *answer["outputs"])] == [
        "string",
        "string",
        "f32",
        "string",
        "f32",
    ]


def test_strings_may_have_an_open_dimension(tmp_path: Path) -> None:
    x = helper.make_tensor_value_info("x", TensorProto.STRING, ["n", 2])
    nodes = [
        helper.make_node("LabelEncoder", ["x"], ["number"], domain="ai.onnx.ml", keys_strings=["a", "b"],
                         values_int64s=[10, 20]),
        helper.make_node("Transpose", ["x"], ["across"]),
    ]  # fmt: skip
    outputs = [onnx.ValueInfoProto(name=name) for name in ("number", "across")]
    graph = helper.make_graph(nodes, "g", [x], outputs)
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", 2)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    artifact, _ = compiled(model, tmp_path, dims={"n": {"min": 1, "opt": 2, "max": 5}})
    with Model(artifact) as loaded:
        for rows in (5, 1, 3):
            given = np.random.default_rng(rows).choice(["a", "b", "unknown", "other"], (rows, 2)).astype(object)
            found = loaded.run({"x": given})
            assert found["across"].tolist() == given.T.tolist()
            assert found["number"].tolist() == [[{"a": 10, "b": 20}.get(one, -1) for one in row] for row in given]

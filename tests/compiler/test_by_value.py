"""Axes, shapes and sizes that are fed to a model: through the pipeline, the artifact and its loader."""

from __future__ import annotations

import json
import re
import subprocess
import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from compiler.contract import CompileOptions, CompileReport
from compiler.errors import Disagreement, InputsError
from compiler.frontend.open.measured import selected
from compiler.frontend.open.values import OpenValues
from compiler.pack.loader import InputError, Model
from compiler.preflight import preflight
from tests.compiler.frontend.open.at_sizes import model_of
from tests.compiling import compile_file

TEXT = """m (float[2,3,4] x, int64[1] axes, int64[2] shape, float[2] scales) => (float y, float z) {
    [sum] s = ReduceSum(x, axes)
    [rows] y = Reshape(s, shape)
    [grow] z = Resize<mode="linear", axes=[1,2]>(x, , scales)
}"""
X = np.random.default_rng(11).normal(size=(2, 3, 4)).astype(np.float32)
BOUNDS = {"rows": 12, "grow": 9}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("by_value") / "model.onnx"
    path.write_bytes(model_of(TEXT))
    return path


@pytest.fixture(scope="module")
def report(model: Path) -> CompileReport:
    options = CompileOptions(bounds=BOUNDS, threads=1, tuning_budget_s=0.0)
    return compile_file(model, model.with_suffix(".tw"), options, measure=False)


@pytest.fixture(scope="module")
def artifact(model: Path, report: CompileReport) -> Path:
    assert report.errors
    return model.with_suffix(".tw")


def given(axis: int, shape: tuple[int, int], scales: tuple[float, float] = (1.0, 2.0)) -> dict[str, np.ndarray]:
    return {
        "x": X,
        "axes": np.array([axis]),
        "shape": np.array(shape),
        "scales": np.array(scales, np.float32),
    }


def test_results_follow_what_is_fed(artifact: Path) -> None:
    with Model(artifact) as opened:
        for axis, shape in ((0, (4, 3)), (1, (-1, 2)), (-1, (1, 6)), (2, (6, 1)), (-3, (12, 1))):
            found = opened.run(given(axis, shape))
            np.testing.assert_allclose(found["y"], X.sum(axis, keepdims=True).reshape(shape), rtol=1e-5)
            assert found["z"].shape == (2, 3, 8)
        np.testing.assert_allclose(opened.run(given(0, (4, 3), (1, 1)))["z"], X, rtol=1e-6)


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        (given(3, (4, 3)), "input 'axes' of ReduceSum 'sum' must be one of [0], [1], [2]"),
        (given(0, (4, 4)), "Reshape 'rows': its shape must have as many elements as the tensor"),
        (given(0, (4, 3), (1.0, 4.0)), "the size along axis 2 of Resize 'grow' must lie between 1 and 9"),
        (given(0, (4, 3), (2.0, 1.0)), "the size along axis 1 of Resize 'grow' must stay as it is"),
    ],
)
def test_what_is_not_legal_is_an_error_that_names_the_node(
    artifact: Path, inputs: dict[str, np.ndarray], said: str
) -> None:
    with Model(artifact) as opened, pytest.raises(InputError, match=re.escape(said)):
        opened.run(inputs)


def test_the_manifest_has_limits_and_examples_that_random_inputs_keep_to(artifact: Path) -> None:
    with zipfile.ZipFile(artifact) as archive:
        manifest = json.loads(archive.read("manifest.json"))
    assert {limit["says"].split(" of ")[-1].split(" must")[0] for limit in manifest["open"]["limits"]} >= {
        "Resize 'grow'"
    }
    assert [port["name"] for port in manifest["inputs"] if "examples" in port] == ["axes", "shape", "scales"]
    with Model(artifact) as opened:
        for seed in range(4):
            opened.run(opened.random_inputs(seed))


def test_a_preflight_tells_the_bounds_that_are_assumed(model: Path) -> None:
    answer = preflight(model, CompileOptions())
    assert answer["ok"], answer["problem"]
    (notice,) = answer["notices"]
    assert re.search(
        r"assumed to be at most: 'rows' \d+, 'grow' \d+; for others give {\"bounds\": {\"rows\": \d+", notice
    )


def test_a_wrong_choice_among_legal_values_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def last(values: OpenValues, flags: Sequence[int], ids: Sequence[int]) -> int:
        return selected(values, [values.node("Not", (flag,)) for flag in flags], ids)

    monkeypatch.setattr("compiler.frontend.open.few.selected", last)
    path = tmp_path / "model.onnx"
    path.write_bytes(model_of("m (float[3,3] x, int64 a) => (float[3,3] y) { y = CumSum(x, a) }"))
    with pytest.raises(Disagreement, match=r"at input 1=0 is not what the model gives there"):
        compile_file(path, tmp_path / "model.tw", CompileOptions(tuning_budget_s=0.0, threads=1), measure=False)


def test_a_model_for_which_nothing_legal_is_found_asks_for_samples(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    text = (
        "m (float[6] x, int64[2] n) => (float y) { c = Constant<value=int64 {1000}>() s = Sub(n, c) y = Reshape(x, s) }"
    )
    path.write_bytes(model_of(text))
    with pytest.raises(InputsError, match=r"Reshape .*its shape must have as many elements") as refused:
        compile_file(path, tmp_path / "model.tw", CompileOptions(tuning_budget_s=0.0, threads=1), measure=False)
    assert "give samples" in refused.value.fix


def test_the_example_in_c_compares_what_must_hold(artifact: Path, tmp_path: Path) -> None:
    """It makes zeros of integers up, and an empty shape does not fit; with a legal one it goes on."""
    with zipfile.ZipFile(artifact) as archive:
        archive.extractall(tmp_path)
    says = [limit["says"] for limit in json.loads((tmp_path / "manifest.json").read_text())["open"]["limits"]]
    source = (tmp_path / "example.c").read_text()
    legal = "((int64_t *)tensors[2].data)[0] = 3, ((int64_t *)tensors[2].data)[1] = 4;"
    legal += " ((float *)tensors[3].data)[0] = 1, ((float *)tensors[3].data)[1] = 2;"
    begin = "    double least = 1e30;"
    assert begin in source

    def ran(text: str) -> subprocess.CompletedProcess[str]:
        (tmp_path / "example.c").write_text(text)
        strict = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic"]
        command = ["gcc", *strict, "-o", "example", "example.c", "./model.so", "-Wl,-rpath,$ORIGIN"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return subprocess.run(["./example"], cwd=tmp_path, capture_output=True, text=True, check=False)

    broken = ran(source)
    assert broken.returncode == 2
    (number,) = re.findall(r"open\.limits\[(\d+)\]", broken.stderr)
    with Model(artifact) as loaded, pytest.raises(InputError, match=re.escape(says[int(number)])):
        loaded.run(given(0, (0, 0)))
    assert ran(source.replace(begin, f"    {legal}\n{begin}")).returncode == 0

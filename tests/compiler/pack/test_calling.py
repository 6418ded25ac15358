"""A model is called like a function, takes lists where that is unambiguous, and says what it is."""

from __future__ import annotations

from collections import UserDict
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import tilewright
from compiler.contract import CompileOptions
from tests.compiler.pack.test_loader import N, X, Y
from tests.compiling import compile_file
from tests.end_to_end import models

ROW = np.array([[-1.0, 2.0, 0.5]], np.float32)
RELU = np.maximum(ROW, 0)


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A model of one input, x, and one output, y."""
    folder = tmp_path_factory.mktemp("one")
    (folder / "relu.onnx").write_bytes(models.relu([1, 3]))
    options = CompileOptions.from_json({"tuning_budget_s": 0, "threads": 1, "target": "cpu"})
    compile_file(folder / "relu.onnx", folder / "relu.tw", options)
    with tilewright.load(folder / "relu.tw") as model:
        yield model


@pytest.mark.parametrize(
    "given", [ROW, ROW.tolist(), ROW[::1], {"x": ROW}, UserDict(x=ROW)], ids=lambda one: type(one).__name__
)
def test_one_input_stands_alone_or_by_name(one: Any, given: Any) -> None:
    np.testing.assert_array_equal(one.run(given)["y"], RELU)
    np.testing.assert_array_equal(one(given), RELU)


def test_a_call_of_a_model_with_one_output_gives_the_array(one: Any) -> None:
    assert isinstance(one(ROW), np.ndarray)
    np.testing.assert_array_equal(one(x=ROW), RELU)


def test_what_does_not_fit_a_single_input_says_what_does(one: Any) -> None:
    for wrong in ([1.0, 2.0], [[1.0], [2.0]], np.zeros((2, 3), np.float32)):
        for call in (one, one.run):
            with pytest.raises(one.errors, match=r"input 'x' has shape .*Fix: give \(1, 3\)"):
                call(wrong)
    with pytest.raises(one.errors, match=r"2 inputs are given. Fix: give \{'x': float32\[1, 3\]\}"):
        one(ROW, ROW)
    with pytest.raises(one.errors, match="input 'x' is missing"):
        one()
    with pytest.raises(one.errors, match="input 'x' is missing"):
        one({})


def test_several_inputs_are_taken_in_order_or_by_name(loader: ModuleType, artifact: Path) -> None:
    with loader.Model(artifact) as model:
        for found in (model(X, N), model(X, n=N), model(x=X, n=N), model({"x": X, "n": N}), model({"x": X}, n=N)):
            np.testing.assert_array_equal(found["y"], Y)
        for wrong in ([X, N], X, [X]):
            with pytest.raises(loader.InputError, match=r"by name.*Fix: give \{'x': float32\[2, 3\], 'n': int64\[\]\}"):
                model.run(wrong)
        with pytest.raises(loader.InputError, match="input 'x' is given twice"):
            model(X, x=X)


def test_a_model_says_what_it_is_in_a_line_and_in_a_table(loader: ModuleType, artifact: Path) -> None:
    with loader.Model(artifact) as model:
        target, lanes = model.manifest["target"], model.lanes
        shown = (
            f"<Model {artifact.name}: x: float32[2, 3], n: int64[] -> y: float32[2, 3], z: bool[2, 3]; {target}, "
            f"{lanes} lanes, 4 us predicted>"
        )
        assert repr(model) == shown
        table = model._repr_html_()
        assert table.startswith("<table><tr><th>artifact</th>")
        assert "<td>x: float32[2, 3], n: int64[]</td>" in table
        model.path = Path("<b>.tw")
        assert "&lt;b&gt;.tw" in model._repr_html_()
    assert repr(model).startswith("<Model <b>.tw"), "also of a closed one"

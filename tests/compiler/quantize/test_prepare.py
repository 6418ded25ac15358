from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from compiler.contract import QuantizeOptions
from compiler.quantize.calibrate import Evaluated
from compiler.quantize.network import Network, open_network
from compiler.quantize.prepare import equalise, fold
from tests.compiler.quantize.models import Drawn, network, saved


def outputs(content: Path | bytes, **inputs: np.ndarray) -> dict[str, np.ndarray]:
    return Evaluated(content, QuantizeOptions()).outputs(inputs)


def same(opened: Network, path: Path, **inputs: np.ndarray) -> bool:
    wanted, found = outputs(path, **inputs), outputs(opened.bytes(), **inputs)
    return all(np.abs(wanted[name] - found[name]).max() < 1e-5 * np.abs(wanted[name]).max() for name in wanted)


def test_normalisations_and_factors_become_weights(tmp_path: Path) -> None:
    path = saved(network(), tmp_path)
    _, opened = open_network(path)
    assert fold(opened, attention=False) == 2
    operators = [node.op_type for node in opened.nodes]
    assert "BatchNormalization" not in operators
    assert same(opened, path, x=np.random.default_rng(0).normal(size=(2, 3, 16, 16)).astype(np.float32))


def test_a_normalisation_that_others_look_at_stays(tmp_path: Path) -> None:
    d = Drawn()
    d.node("Conv", ["x", d.weights("w", 4, 3, 1, 1)], "c")
    parts = [d.constant(name, np.ones(4)) for name in ("g", "b", "m", "v")]
    d.node("BatchNormalization", ["c", *parts], "n")
    d.node("Add", ["n", "c"], "y")
    _, opened = open_network(saved(d.model({"x": (1, 3, 4, 4)}, {"y": (1, 4, 4, 4)}), tmp_path))
    assert fold(opened, attention=False) == 0


def test_numbers_behind_layers_become_weights_also_behind_identities(tmp_path: Path) -> None:
    """As exporters write biases and scales that they did not fold: one number, or one for each channel."""
    d = Drawn()
    d.node("Conv", ["x", d.weights("w1", 4, 3, 3, 3)], "c1")
    d.node("Add", ["c1", d.weights("b1", 1, 4, 1, 1)], "a1")
    d.node("Mul", [d.constant("half", [0.5]), d.node("Identity", ["a1"], "i1")], "m1")
    d.node("ConvTranspose", [d.node("Relu", ["m1"], "r1"), d.weights("w2", 4, 5, 2, 2), d.weights("b2", 5)], "c2")
    d.node("Sub", [d.node("Div", ["c2", d.weights("d2", 5, 1, 1)], "d2r"), d.constant("one", 1)], "s2")
    d.node("Gemm", [d.node("Flatten", ["s2"], "f"), d.weights("w3", 245, 6), d.weights("b3", 1, 6)], "g", alpha=0.5)
    d.node("Mul", ["g", d.weights("m3", 6)], "y")
    path = saved(d.model({"x": (1, 3, 8, 8)}, {"y": (1, 6)}), tmp_path)
    _, opened = open_network(path)
    assert fold(opened, attention=False) == 6
    assert [node.op_type for node in opened.nodes] == ["Conv", "Relu", "ConvTranspose", "Flatten", "Gemm"]
    assert same(opened, path, x=np.random.default_rng(0).normal(size=(1, 3, 8, 8)).astype(np.float32))


@pytest.mark.parametrize(
    ("operator", "constant"),
    [
        ("Add", np.arange(4).reshape(1, 1, 4)),  # along the width, which is as large as the channels
        ("Add", np.arange(1, 3).reshape(2, 1, 1, 1, 1)),  # an axis more
        ("Add", np.full((1, 1, 1, 1, 1), 2)),
        ("Div", np.array([1, 0, 1, 1]).reshape(4, 1, 1)),
        ("Mul", np.inf),
        ("Mul", 3e38),  # weights beyond float32
        ("Max", 0.5),
    ],
)
def test_what_is_not_a_finite_number_for_each_channel_stays(operator: str, constant: object, tmp_path: Path) -> None:
    d = Drawn()
    d.node("Conv", ["x", d.constant("w", np.full((4, 3, 1, 1), 2))], "c")
    d.node(operator, ["c", d.constant("number", constant)], "y")
    rank = max(4, np.ndim(np.asarray(constant)))
    _, opened = open_network(saved(d.model({"x": (1, 3, 4, 4)}, {"y": (None,) * rank}), tmp_path))
    assert fold(opened, attention=False) == 0


def test_a_number_that_is_divided_and_a_result_that_others_read_stay(tmp_path: Path) -> None:
    d = Drawn()
    d.node("Conv", ["x", d.weights("w", 4, 3, 1, 1)], "c")
    d.node("Identity", ["c"], "seen")
    d.node("Add", ["c", d.constant("three", 3)], "a")
    d.node("Conv", ["a", d.weights("v", 4, 4, 1, 1)], "e")
    d.node("Div", [d.constant("four", 4), "e"], "y")
    model = d.model({"x": (1, 3, 4, 4)}, {"seen": (1, 4, 4, 4), "y": (1, 4, 4, 4)})
    _, opened = open_network(saved(model, tmp_path))
    assert fold(opened, attention=False) == 0
    assert "Identity" in [node.op_type for node in opened.nodes]


def unequal() -> onnx.ModelProto:
    """Three layers, the middle one depthwise, with channels of very different sizes."""
    d = Drawn()
    spread = np.logspace(-2, 2, 6)
    d.constant("w1", d.random.normal(size=(6, 3, 3, 3)) * spread[:, None, None, None])
    d.constant("wd", d.random.normal(size=(6, 1, 3, 3)) / spread[:, None, None, None])
    d.node("Conv", ["x", "w1", d.weights("b1", 6)], "c1", pads=[1] * 4)
    d.node("Conv", [d.node("Relu", ["c1"], "r1"), "wd", d.weights("bd", 6)], "cd", group=6)
    d.node("Conv", [d.node("Relu", ["cd"], "rd"), d.weights("w2", 5, 6, 1, 1)], "y")
    return d.model({"x": (1, 3, 8, 8)}, {"y": (1, 5, 6, 6)})


def test_equalised_layers_compute_the_same_with_like_ranges(tmp_path: Path) -> None:
    path = saved(unequal(), tmp_path)
    _, opened = open_network(path)
    assert equalise(opened) == 2
    weights = [opened.constant(node.input[1]) for node in opened.nodes if node.op_type == "Conv"]
    assert all(array is not None for array in weights)
    first, middle, last = (np.abs(array) for array in weights if array is not None)
    assert np.allclose(first.max(axis=(1, 2, 3)), middle.max(axis=(1, 2, 3)), rtol=0.05)
    assert np.allclose(middle.max(axis=(1, 2, 3)), last.max(axis=(0, 2, 3)), rtol=0.05)
    assert same(opened, path, x=np.random.default_rng(0).normal(size=(1, 3, 8, 8)).astype(np.float32))


@pytest.mark.parametrize("between", ["Sigmoid", "Clip"])
def test_what_does_not_scale_keeps_channels_as_they_are(between: str, tmp_path: Path) -> None:
    d = Drawn()
    d.node("Conv", ["x", d.weights("w1", 4, 3, 1, 1)], "c1")
    d.node(between, ["c1", *([d.constant("low", 0), d.constant("high", 6)] if between == "Clip" else [])], "r1")
    d.node("Conv", ["r1", d.weights("w2", 4, 4, 1, 1)], "y")
    _, opened = open_network(saved(d.model({"x": (1, 3, 4, 4)}, {"y": (1, 4, 4, 4)}), tmp_path))
    assert equalise(opened) == 0


def test_matrix_products_are_equalised_and_dead_channels_are_left_alone(tmp_path: Path) -> None:
    d = Drawn()
    d.constant("w1", d.random.normal(size=(6, 5)) * np.array([1, 100, 0.01, 0, 1]))
    d.node("Gemm", ["x", "w1", d.weights("b1", 5)], "g1")
    d.node("MatMul", [d.node("Relu", ["g1"], "r1"), d.weights("w2", 5, 4)], "y")
    path = saved(d.model({"x": (2, 6)}, {"y": (2, 4)}), tmp_path)
    _, opened = open_network(path)
    assert equalise(opened) == 1
    assert same(opened, path, x=np.random.default_rng(0).normal(size=(2, 6)).astype(np.float32))
    made = opened.constant(opened.nodes[0].input[1])
    assert made is not None
    assert not made[:, 3].any()

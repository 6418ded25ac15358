"""Functions of one number as tables of bytes: each entry against float64, and networks of them given to Vela."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from compiler.accelerate.chips import chip_of
from compiler.accelerate.compile import Accelerated, compile_for_accelerator
from compiler.accelerate.formats import by_tosa
from compiler.accelerate.tables import TABLES, operators_of
from compiler.accelerate.tflite.convert import Converter
from compiler.accelerate.tosa.execute import read
from compiler.contract import CompileOptions
from compiler.errors import UnsupportedModel
from compiler.pipeline import compile_model
from compiler.quantize.network import open_network
from compiler.request import Request
from tests.compiler.accelerate.models import array, saved

U55 = "npu:ethos-u55-128"
IMAGE = (1, 4, 12, 12)
EVERY = np.arange(-128, 128, dtype=np.int8)

FUNCTIONS: dict[str, tuple[Callable[[float], float], dict[str, Any]]] = {
    "Mish": (lambda x: x * math.tanh(math.log1p(math.exp(x))), {}),
    "Softplus": (lambda x: math.log1p(math.exp(x)), {}),
    "Erf": (math.erf, {}),
    "Elu": (lambda x: x if x > 0 else 0.5 * math.expm1(x), {"alpha": 0.5}),
    "Exp": (math.exp, {}),
    "Sqrt": (lambda x: math.sqrt(x) if x >= 0 else 0.0, {}),
    "Reciprocal": (lambda x: 1 / x if x else math.inf, {}),
    "Sin": (math.sin, {}),
}


def _bytes(
    path: Path, kind: str, given: tuple[float, float], taken: tuple[float, float], *numbers: float, **attributes: Any
) -> Any:
    """What every byte becomes, and the scales of both sides; `numbers` are the node's other operands."""
    held = {f"c{at}": np.array(number, np.float32) for at, number in enumerate(numbers)}
    node = helper.make_node(kind, ["x", *held], ["y"], "one", **attributes)
    _, network = open_network(saved(path, [node], held, (256,)))
    made = Converter(network, {"x": given, "y": taken}).convert(operators_of(chip_of(U55, "tosa")))
    (number,), (out,) = made.program.inputs, made.program.outputs
    return by_tosa(made.program, {number: EVERY})[out], made.inputs[0].scale, made.outputs[0].scale


@pytest.mark.parametrize("name", FUNCTIONS)
def test_an_entry_is_the_function_rounded_once(name: str, tmp_path: Path) -> None:
    function, attributes = FUNCTIONS[name]
    found, (scale, zero), (step, origin) = _bytes(tmp_path / "m.onnx", name, (-3.0, 5.0), (-1.0, 4.0), **attributes)
    assert found.shape == (256,)
    for byte, made in zip(EVERY.tolist(), found.tolist(), strict=True):
        exact = function(float(np.float32(scale * (byte - zero)))) / step + origin
        assert abs(made - min(max(exact, -128), 127)) <= 0.501


@pytest.mark.parametrize(
    ("kind", "numbers", "function"),
    [
        ("Clip", (-1.0, 2.5), lambda x: min(max(x, -1.0), 2.5)),
        ("Clip", (1.0, 2.0), lambda x: min(max(x, 1.0), 2.0)),
        ("Pow", (3.0,), lambda x: x**3),
    ],
)
def test_a_function_of_one_number_beside_others_that_are_fixed_is_a_table(
    kind: str, numbers: tuple[float, ...], function: Callable[[float], float], tmp_path: Path
) -> None:
    """The scale of the result holds more than is between the ends of a Clip."""
    found, (scale, zero), (step, origin) = _bytes(tmp_path / "m.onnx", kind, (-3.0, 5.0), (-4.0, 4.0), *numbers)
    assert found.shape == (256,)
    for byte, made in zip(EVERY.tolist(), found.tolist(), strict=True):
        exact = function(float(np.float32(scale * (byte - zero)))) / step + origin
        assert abs(made - min(max(exact, -128), 127)) <= 0.501


def _chained(path: Path, nodes: list[onnx.NodeProto], outputs: tuple[str, ...] = ("y",)) -> tuple[list[str], Any]:
    """The operators that are written for nodes from `x`, and what every byte becomes in the first output."""
    numbers = {"half": np.array(0.5, np.float32), "one": np.ones((1,), np.float32)}
    model = onnx.load(saved(path, nodes, numbers, (256,)))
    for name in outputs[1:]:
        model.graph.output.append(helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, (256,)))
    onnx.save(model, path)
    _, network = open_network(path)
    names = {name for node in nodes for name in node.output}
    ranges = {"x": (-3.0, 5.0), **dict.fromkeys(names, (-4.0, 6.0))}
    made = Converter(network, ranges).convert(operators_of(chip_of(U55, "tosa")))
    (number,), (out, *_) = made.program.inputs, made.program.outputs
    return [step.kind for step in made.program.steps], by_tosa(made.program, {number: EVERY})[out]


AFFINE = [
    helper.make_node("Mul", ["x", "half"], ["a"], "scaled"),
    helper.make_node("Add", ["one", "a"], ["b"], "moved"),
    helper.make_node("Tanh", ["b"], ["y"], "bent"),
]
MISH = [
    helper.make_node("Softplus", ["x"], ["a"], "plus"),
    helper.make_node("Tanh", ["a"], ["b"], "bent"),
    helper.make_node("Mul", ["x", "b"], ["y"], "gated"),
]


@pytest.mark.parametrize(
    ("nodes", "function"),
    [(AFFINE, lambda x: np.tanh(0.5 * x + 1)), (MISH, lambda x: x * np.tanh(np.log1p(np.exp(x))))],
    ids=["chain", "value and gate"],
)
def test_several_operators_that_are_one_function_are_one_table(
    nodes: list[onnx.NodeProto], function: Callable[[np.ndarray], np.ndarray], tmp_path: Path
) -> None:
    """Rounded once: with tables of their own each would round, and the result be off by more."""
    kinds, found = _chained(tmp_path / "m.onnx", nodes)
    assert kinds == ["TABLE"]
    scale, step = 8.0 / 255, 10.0 / 255
    real = scale * (EVERY.astype(np.float64) - round(-128 + 3.0 / scale))
    exact = np.clip(function(real) / step + round(-128 + 4.0 / step), -128, 127)
    assert np.abs(found - exact).max() <= 0.51


def test_what_others_read_too_ends_a_function(tmp_path: Path) -> None:
    kinds, _ = _chained(tmp_path / "m.onnx", AFFINE, ("y", "a"))
    assert kinds.count("TABLE") == 1
    assert len(kinds) > 1
    apart, _ = _chained(tmp_path / "m.onnx", MISH, ("y", "b"))
    assert apart[0] == "TABLE"
    assert "MUL" in apart


def test_a_function_of_two_numbers_is_still_refused(tmp_path: Path) -> None:
    node = helper.make_node("Pow", ["x", "c"], ["y"], "one")
    exponents = {"c": np.linspace(1, 2, 4, dtype=np.float32)}
    _, network = open_network(saved(tmp_path / "m.onnx", [node], exponents, (4,)))
    with pytest.raises(UnsupportedModel, match="Pow 'one'"):
        Converter(network, {"x": (0.0, 1.0), "y": (0.0, 1.0)}).convert(operators_of(chip_of(U55, "tosa")))


def test_what_has_a_table_has_no_other_form_and_tflite_has_none() -> None:
    assert {*FUNCTIONS} <= TABLES
    assert "Sigmoid" not in TABLES
    assert not TABLES & operators_of(chip_of(U55)).keys()
    assert operators_of(chip_of(U55, "tosa")).keys() > TABLES


def test_without_tables_such_a_function_is_refused(tmp_path: Path) -> None:
    node = helper.make_node("Softplus", ["x"], ["y"], "one")
    _, network = open_network(saved(tmp_path / "m.onnx", [node], {}, (4,)))
    with pytest.raises(UnsupportedModel, match="Softplus 'one'"):
        Converter(network, {"x": (-1.0, 1.0), "y": (0.0, 2.0)}).convert(operators_of(chip_of(U55)))


def _compiled(path: Path, nodes: list[onnx.NodeProto], samples: Path) -> tuple[Accelerated, list[str]]:
    """What a job says, and the operators of its TOSA file."""
    pytest.importorskip("ethosu")
    weights = {"w": array(8, 4, 3, 3), "v": array(4, 8, 3, 3)}
    weights |= {"least": np.array(0.1, np.float32), "most": np.array(0.7, np.float32)}
    model, out = saved(path, nodes, weights, IMAGE), path.with_suffix(".tw")
    np.savez(samples, x=np.random.default_rng(5).standard_normal((3, *IMAGE)).astype(np.float32))
    options = CompileOptions(target=U55, format="tosa", tuning_budget_s=0.0)
    made = compile_for_accelerator(Request(model, out, options, samples={"s": samples}), compile_model)
    with zipfile.ZipFile(out) as archive:
        return made, [one.kind for one in read(archive.read("model.tosa")).operators]


def test_activations_that_tflite_lacks_are_tables(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], "first"),
        helper.make_node("Mish", ["a"], ["b"], "mish"),
        helper.make_node("Clip", ["b", "least", "most"], ["b1"], "between"),
        helper.make_node("Conv", ["b1", "v"], ["c"], "second"),
        helper.make_node("Softplus", ["c"], ["y"], "plus"),
    ]
    made, kinds = _compiled(tmp_path / "m.onnx", nodes, tmp_path / "s.npz")
    assert made.placement["legalised"] is None
    assert made.placement["totals"]["on_cpu"] == 0
    assert kinds.count("TABLE") == 2
    tables = [row for row in made.placement["operators"] if row["made"] == "LUT"]
    assert [row["node"] for row in tables] == ["Clip between_2", "Softplus plus_4"]
    assert tables[0]["cycles"] == 0


def test_a_product_with_a_sigmoid_of_the_same_is_one_table(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], "first"),
        helper.make_node("Sigmoid", ["a"], ["s"], "gate"),
        helper.make_node("Mul", ["a", "s"], ["b"], "silu"),
        helper.make_node("Conv", ["b", "v"], ["y"], "second"),
    ]
    _, kinds = _compiled(tmp_path / "m.onnx", nodes, tmp_path / "s.npz")
    assert kinds.count("TABLE") == 1
    assert "MUL" not in kinds

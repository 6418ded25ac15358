"""Small models that no exporter writes: each is compiled and agrees, or is refused as the caller's with a fix."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from compiler.contract import CompileOptions, CompileReport
from compiler.errors import UnsupportedModel, Unverified
from compiler.preflight import preflight
from tests.compiling import compile_file

UNMEASURED = CompileOptions(threads=1, tuning_budget_s=0)


def compiled(model: onnx.ModelProto, folder: Path) -> CompileReport:
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    return compile_file(path, folder / "model.tw", UNMEASURED)


def one_node(
    op: str,
    dtype: int,
    shape: list[int],
    attrs: Mapping[str, Any],
    constants: Mapping[str, np.ndarray] | None = None,
    result: int = 0,
) -> onnx.ModelProto:
    """One node named `node`, of one input `x` and constants."""
    constants = constants or {}
    node = helper.make_node(op, ["x", *constants], ["y"], name="node", **attrs)
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", dtype, shape)],
        [helper.make_tensor_value_info("y", result or dtype, None)],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)


@pytest.mark.parametrize(("op", "attrs"), [("Relu", {}), ("Elu", {"alpha": math.nan}), ("Elu", {"alpha": math.inf})])
@pytest.mark.parametrize("dtype", [TensorProto.BFLOAT16, TensorProto.FLOAT16, TensorProto.FLOAT])
def test_outputs_of_every_float_type_are_proved_as_numbers(
    op: str, attrs: Mapping[str, float], dtype: int, tmp_path: Path
) -> None:
    """An artifact gives bfloat16 as its bits, in uint16."""
    report = compiled(one_node(op, dtype, [40], attrs), tmp_path)
    assert [error.max_relative for error in report.errors] == [pytest.approx(0, abs=1e-2)]


@pytest.mark.parametrize("wanted", [(0, 0), (3, 0, 0), (0, 7), (2, 0, 3, 0)])
def test_tensors_without_elements_are_reshaped_whichever_of_their_axes_are_empty(
    wanted: tuple[int, ...], tmp_path: Path
) -> None:
    model = one_node("Reshape", TensorProto.FLOAT, [4, 0], {"allowzero": 1}, {"shape": np.array(wanted)})
    assert compiled(model, tmp_path).errors[0].max_absolute == 0


@pytest.mark.parametrize("allowzero", [0, 1])
def test_a_reshape_that_leaves_a_dimension_to_nothing_is_refused(allowzero: int, tmp_path: Path) -> None:
    model = one_node("Reshape", TensorProto.FLOAT, [4, 0], {"allowzero": allowzero}, {"shape": np.array([-1, 0])})
    with pytest.raises(UnsupportedModel, match="-1 is not determined beside a dimension of 0") as refused:
        compiled(model, tmp_path)
    assert refused.value.refusals[0].node == "node"
    assert refused.value.refusals[0].fix


@pytest.mark.parametrize(
    ("op", "dtype", "shape", "attrs"),
    [
        ("BitShift", TensorProto.UINT8, [4], {"direction": "UP"}),
        ("Gelu", TensorProto.FLOAT, [4], {"approximate": "sine"}),
        ("DepthToSpace", TensorProto.FLOAT, [1, 4, 2, 2], {"blocksize": 2, "mode": "RCD"}),
    ],
)
def test_an_attribute_that_names_nothing_is_refused_by_node_with_the_names_that_there_are(
    op: str, dtype: int, shape: list[int], attrs: Mapping[str, Any], tmp_path: Path
) -> None:
    constants = {"by": np.ones(4, np.uint8)} if op == "BitShift" else {}
    with pytest.raises(UnsupportedModel) as refused:
        compiled(one_node(op, dtype, shape, attrs, constants), tmp_path)
    (refusal,) = refused.value.refusals
    assert (refusal.node, refusal.operator) == ("node", op)
    assert repr([*attrs.values()][-1]) in refusal.reason
    assert refusal.fix.startswith("use ")


def test_a_model_that_gives_no_finite_number_is_unverified_before_anything_is_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = one_node("Mul", TensorProto.FLOAT, [4], {}, {"by": np.array(np.nan, np.float32)})
    monkeypatch.setattr("compiler.pipeline.build", None)
    with pytest.raises(Unverified, match="every result is NaN or infinity") as caught:
        compiled(model, tmp_path)
    assert "samples" in caught.value.fix
    assert caught.value.details == {"unshown": ["y"]}


@pytest.mark.parametrize("op", ["Gather", "GatherElements", "GatherND"])
def test_an_index_outside_of_its_tensor_is_refused_by_node(op: str, tmp_path: Path) -> None:
    indices = {"at": np.array([[7]] if op != "GatherElements" else [[7, 0]])}
    with pytest.raises(UnsupportedModel, match="outside of its tensor") as refused:
        compiled(one_node(op, TensorProto.FLOAT, [2, 2], {}, indices), tmp_path)
    assert refused.value.refusals[0].node == "node"


def test_a_dimension_that_only_one_size_fits_is_bound_to_that_and_not_looked_for_for_ever(tmp_path: Path) -> None:
    """Of all sizes of `d` only that of the keys that came before fits, which the first narrowing says already."""
    shapes: dict[str, list[int | str]] = {"q": [2, 3, 4, 8], "k": [2, 3, 6, "d"], "v": [2, 3, 6, 10]}
    shapes |= {"past_key": [2, 3, 12, 8], "past_value": [2, 3, 12, 10]}
    given = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()]
    node = helper.make_node("Attention", ["q", "k", "v", "", "past_key", "past_value"], ["y", "key", "value"])
    results = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in node.output]
    graph = helper.make_graph([node], "g", given, results)
    path = tmp_path / "model.onnx"
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=11)
    path.write_bytes(model.SerializeToString())
    assert preflight(path, UNMEASURED)["problem"] is None

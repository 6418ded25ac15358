"""Models with elements of 8 bits and less, from file to artifact, against ONNX's reference evaluator."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from compiler.contract import CompileOptions
from compiler.errors import UnsupportedModel
from compiler.ir.small import BITS
from compiler.ir.tensor import DType
from compiler.pack.loader import InputError, Model
from tests.compiler.small_values import codes
from tests.compiling import compile_file

OPTIONS = CompileOptions(threads=1, tuning_budget_s=0)
ONNX = {dtype: helper.np_dtype_to_tensor_dtype(dtype.numpy) for dtype in BITS}
F32 = TensorProto.FLOAT


def value(name: str, code: int, *shape: int) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, code, shape)


def model_of(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[onnx.ValueInfoProto],
    weights: Mapping[str, np.ndarray] | None = None,
    opset: int = 25,
) -> onnx.ModelProto:
    held = [numpy_helper.from_array(array, name) for name, array in (weights or {}).items()]
    graph = helper.make_graph(nodes, "g", inputs, outputs, held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=13)


def compiled(model: onnx.ModelProto, folder: Path, *, checked: bool = True) -> Path:
    if checked:
        onnx.checker.check_model(model)
    file, artifact = folder / "model.onnx", folder / "model.tw"
    file.write_bytes(model.SerializeToString())
    compile_file(file, artifact, OPTIONS, measure=False)
    return artifact


def ran(model: onnx.ModelProto, folder: Path, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The artifact's outputs, small ones as ml_dtypes has them, which are the reference's."""
    with Model(compiled(model, folder)) as loaded:
        outputs = loaded.run(feeds)
        kinds = {spec.name: spec.dtype for spec in loaded.outputs}
    found = {
        name: array.view(getattr(ml_dtypes, kinds[name])) if array.dtype.name != kinds[name] else array
        for name, array in outputs.items()
    }
    wanted = ReferenceEvaluator(model).run(None, dict(feeds))
    for info, want in zip(model.graph.output, wanted, strict=True):
        got = found[info.name]
        assert (got.dtype, got.shape) == (want.dtype, want.shape)
        if DType.of(got.dtype).is_small:
            np.testing.assert_array_equal(got.view(np.uint8), want.view(np.uint8))
        else:
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
    return found


@pytest.mark.parametrize("dtype", [dtype for dtype in BITS if not str(dtype).startswith("f6")], ids=str)
def test_elements_pass_through_views_unchanged(dtype: DType, tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Identity", ["x"], ["same"]),
        helper.make_node("Transpose", ["same"], ["turned"], perm=[1, 0]),
        helper.make_node("Reshape", ["turned", "shape"], ["y"]),
        helper.make_node("Transpose", ["w"], ["z"], perm=[1, 0]),
        helper.make_node("Cast", ["x"], ["number"], to=F32),
    ]
    code = ONNX[dtype]
    x, w = np.resize(codes(dtype), (16, 18)), np.resize(codes(dtype)[::-1], (3, 5))
    outputs = [value("y", code, 32, 9), value("z", code, 5, 3), value("number", F32, 16, 18)]
    weights = {"w": w, "shape": np.array([32, 9], np.int64)}
    found = ran(model_of(nodes, [value("x", code, 16, 18)], outputs, weights), tmp_path, {"x": x})
    assert found["y"].view(np.uint8).reshape(-1).tolist() == x.T.reshape(-1).view(np.uint8).tolist()
    np.testing.assert_array_equal(found["number"], x.astype(np.float32))


def test_operators_that_only_move_take_them_where_onnx_does_not_list_them(tmp_path: Path) -> None:
    """The body of a Scan is laid out with a Gather and a Concat, though ONNX knows neither for these types."""
    code, x = TensorProto.FLOAT8E5M2, codes(DType.F8E5M2).reshape(16, 16)
    body = helper.make_graph(
        [helper.make_node("Identity", ["row"], ["same"])], "b", [value("row", code, 16)], [value("same", code, 16)]
    )
    nodes = [
        helper.make_node("Scan", ["x"], ["rows"], body=body, num_scan_inputs=1),
        helper.make_node("Gather", ["rows", "order"], ["some"], axis=1),
        helper.make_node("Slice", ["some", "starts", "ends"], ["part"]),
        helper.make_node("Concat", ["part", "x"], ["y"], axis=1),
    ]
    weights = {
        "order": np.array([3, 1, 8], np.int64),
        "starts": np.array([0, 1], np.int64),
        "ends": np.array([16, 3], np.int64),
    }
    model = model_of(nodes, [value("x", code, 16, 16)], [value("y", code, 16, 18)], weights)
    with Model(compiled(model, tmp_path, checked=False)) as loaded:
        got = loaded.run({"x": x})["y"]
    octets = x.view(np.uint8)
    np.testing.assert_array_equal(got, np.concatenate([octets[:, [1, 8]], octets], axis=1))


def test_what_computes_is_refused_on_elements_that_are_only_stored(tmp_path: Path) -> None:
    node = helper.make_node("Add", ["x", "x"], ["y"])
    model = model_of([node], [value("x", TensorProto.INT4, 4)], [value("y", TensorProto.INT4, 4)])
    with pytest.raises(UnsupportedModel, match=r"element type i4, which the operator does not take Fix: insert a Cast"):
        compiled(model, tmp_path, checked=False)


@pytest.mark.parametrize("dtype", [DType.I4, DType.U4, DType.I2, DType.U2, DType.F4E2M1, DType.F8E4M3FN], ids=str)
def test_weights_quantised_in_blocks_are_multiplied(dtype: DType, tmp_path: Path) -> None:
    random = np.random.default_rng(3)
    w = codes(dtype)[random.integers(0, min(len(codes(dtype)), 0x40), (32, 8))]
    scale = random.uniform(0.01, 0.1, (4, 8)).astype(np.float32)
    weights = {"w": w, "scale": scale}
    if not dtype.is_float:
        weights["zero"] = codes(dtype)[random.integers(0, len(codes(dtype)), (4, 8))]
    nodes = [
        helper.make_node("DequantizeLinear", list(weights), ["real"], axis=0, block_size=8),
        helper.make_node("MatMul", ["x", "real"], ["y"]),
    ]
    model = model_of(nodes, [value("x", F32, 3, 32)], [value("y", F32, 3, 8)], weights)
    ran(model, tmp_path, {"x": random.standard_normal((3, 32)).astype(np.float32)})


def test_blocks_of_four_bit_floats_have_scales_that_are_powers_of_two(tmp_path: Path) -> None:
    """The form of OCP's MXFP4."""
    random = np.random.default_rng(4)
    inputs = [value("x", TensorProto.FLOAT4E2M1, 4, 64), value("scale", TensorProto.FLOAT8E8M0, 4, 2)]
    node = helper.make_node("DequantizeLinear", ["x", "scale"], ["y"], axis=1, block_size=32, output_dtype=F32)
    model = model_of([node], inputs, [value("y", F32, 4, 64)])
    x = codes(DType.F4E2M1)[random.integers(0, 16, (4, 64))]
    scale = codes(DType.F8E8M0)[random.integers(120, 134, (4, 2))]
    with Model(compiled(model, tmp_path)) as loaded:
        got = loaded.run({"x": x, "scale": scale})["y"]
    np.testing.assert_array_equal(got, x.astype(np.float32) * np.repeat(scale.astype(np.float32), 32, axis=1))


@pytest.mark.parametrize("dtype", [DType.F8E4M3FN, DType.F8E5M2FNUZ, DType.F4E2M1, DType.I4, DType.U2], ids=str)
@pytest.mark.parametrize("per_axis", [False, True])
def test_activations_are_quantised(dtype: DType, per_axis: bool, tmp_path: Path) -> None:
    shape = (5,) if per_axis else ()
    weights = {
        "scale": np.resize(np.array([0.5, 0.013, 2.0, 0.3, 1.0], np.float32), shape),
        "zero": np.zeros(shape, dtype.numpy),
    }
    node = helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["y"], axis=1)
    model = model_of([node], [value("x", F32, 40, 5)], [value("y", ONNX[dtype], 40, 5)], weights)
    x = np.random.default_rng(5).standard_normal((40, 5)).astype(np.float32) * np.float32(3)
    x[:4] = [[np.inf] * 5, [-np.inf] * 5, [0.0] * 5, [1e6] * 5]
    if dtype.is_float:
        ran(model, tmp_path, {"x": x})
    else:  # the reference converts infinities to int32 first, which C leaves undefined
        ran(model, tmp_path, {"x": x[2:].repeat(2, axis=0)[:40]})


def test_padding_is_filled_with_an_element(tmp_path: Path) -> None:
    weights = {"pads": np.array([1, 2], np.int64), "fill": np.array(-3, ml_dtypes.int4)}
    node = helper.make_node("Pad", ["x", "pads", "fill"], ["y"])
    model = model_of([node], [value("x", TensorProto.INT4, 6)], [value("y", TensorProto.INT4, 9)], weights)
    with Model(compiled(model, tmp_path)) as loaded:
        got = loaded.run({"x": codes(DType.I4)[:6]})["y"].view(ml_dtypes.int4)
    assert got.astype(np.int64).tolist() == [-3, 0, 1, 2, 3, 4, 5, -3, -3]


def test_float6_is_quantised_and_read_back(tmp_path: Path) -> None:
    weights = {"scale": np.array(0.5, np.float32)}
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "scale"], ["q"], output_dtype=TensorProto.FLOAT6E3M2),
        helper.make_node("DequantizeLinear", ["q", "scale"], ["y"]),
    ]
    outputs = [value("q", TensorProto.FLOAT6E3M2, 30), value("y", F32, 30)]
    model = model_of(nodes, [value("x", F32, 30)], outputs, weights, opset=28)
    model.ir_version = 14
    ran(model, tmp_path, {"x": np.linspace(-20, 20, 30).astype(np.float32)})


def test_codes_are_given_and_returned_in_uint8_and_other_arrays_refused(tmp_path: Path) -> None:
    node = helper.make_node("Transpose", ["x"], ["y"], perm=[1, 0])
    model = model_of([node], [value("x", TensorProto.INT4, 2, 3)], [value("y", TensorProto.INT4, 3, 2)])
    artifact = compiled(model, tmp_path)
    with zipfile.ZipFile(artifact) as archive:
        manifest = json.loads(archive.read("manifest.json"))
    assert manifest["inputs"] == [{"name": "x", "dtype": "int4", "shape": [2, 3]}]
    with Model(artifact) as loaded:
        x = loaded.random_inputs(1)["x"]
        assert x.dtype == np.uint8
        assert x.shape == (2, 3)
        got = loaded.run({"x": x})["y"]
        assert got.dtype == np.uint8
        assert got.tolist() == x.T.tolist()
        out = np.empty((3, 2), ml_dtypes.int4)
        assert loaded.run({"x": x.view(ml_dtypes.int4)}, {"y": out})["y"] is out
        assert out.view(np.uint8).tolist() == x.T.tolist()
        with pytest.raises(InputError, match=r"is int8, not int4. Fix: give its codes in uint8.*ml_dtypes.int4"):
            loaded.run({"x": np.zeros((2, 3), np.int8)})


@pytest.mark.parametrize("is_small", [True, False])
def test_the_header_of_small_types_lies_in_the_artifacts_that_need_it(is_small: bool, tmp_path: Path) -> None:
    to = TensorProto.FLOAT8E5M2 if is_small else TensorProto.FLOAT16
    model = model_of([helper.make_node("Cast", ["x"], ["y"], to=to)], [value("x", F32, 8)], [value("y", to, 8)])
    with zipfile.ZipFile(compiled(model, tmp_path)) as archive:
        sources = {name: archive.read(name).decode() for name in archive.namelist() if name.startswith("source/")}
    assert ("source/tw_small.h" in sources) == is_small
    assert any("tw_small" in text for text in sources.values()) == is_small

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from bench.sparse.layers import FORMS, LAYERS, RESNET18, Convolution, Network, Product, with_channels_last
from bench.sparse.picture import picture
from bench.sparse.quantised import in_bytes
from bench.sparse.row import Row
from bench.sparse.run import main, table, taken
from bench.turns import single_threaded
from bench.zoo import build

LARGE = Network("resnet18")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("layer", [RESNET18[1], Product(8, 64, 64)])
def test_weights_have_the_share_of_zeros_in_the_form_that_was_asked(layer: Convolution | Product, form: str) -> None:
    weights = layer.weights(0.8, form)
    assert (weights == 0).mean() == pytest.approx(0.8, abs=0.02 if form != "4x16" else 0.1)
    filters = weights if isinstance(layer, Convolution) else weights.T
    inputs, results = FORMS[form]
    groups = (filters != 0).reshape(-1, results, filters.shape[1] // inputs, inputs, *filters.shape[2:])
    assert (groups.any((1, 3)) == groups.all((1, 3))).all()
    assert (layer.weights() != 0).all()


@pytest.mark.parametrize("channels_last", [True, False])
def test_every_layer_is_a_model_that_onnx_accepts(channels_last: bool) -> None:
    for layer in (layer for layer in LAYERS if layer != LARGE):
        model = layer.pruned(2, 0.9, "1x4", channels_last=channels_last)
        onnx.checker.check_model(onnx.shape_inference.infer_shapes(model, strict_mode=True))
        given = [dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim]
        assert layer.input(2, channels_last=channels_last).shape == (*given,)
    assert len({layer.name for layer in LAYERS}) == len(LAYERS)


@pytest.mark.parametrize("layer", [Convolution(16, 24, 6, 3, 2), Product(5, 16, 24)])
def test_a_layer_is_the_same_in_both_layouts(layer: Convolution | Product) -> None:
    outputs = []
    for last in (False, True):
        session = single_threaded(layer.pruned(3, 0.7, "1x4", channels_last=last).SerializeToString())
        outputs.append(session.run(None, {"x": layer.input(3, channels_last=last)})[0])
    np.testing.assert_allclose(with_channels_last(outputs[0]), outputs[1], atol=1e-6)


def test_a_layer_in_bytes_is_the_same_in_both_layouts_and_near_to_fp32(tmp_path: Path) -> None:
    layer = Convolution(16, 32, 6, 3, 2)
    plain, x = layer.pruned(2, 0.5, "4x16", channels_last=False), layer.input(2, channels_last=False)
    (exact,) = single_threaded(plain.SerializeToString()).run(None, {"x": x})
    models = [onnx.load_from_string(in_bytes(plain, x, tmp_path, channels_last=last)) for last in (False, True)]
    known = {one.name: onnx.numpy_helper.to_array(one) for one in models[0].graph.initializer}
    (first,) = (node for node in models[0].graph.node if models[0].graph.input[0].name in node.input)
    (last,) = (node for node in models[0].graph.node if models[0].graph.output[0].name in node.output)
    scale, zero = (known[name] for name in first.input[1:])
    given = np.clip(np.rint(x / scale) + zero, 0, 255).astype(np.uint8)
    outputs = []
    for model, array in zip(models, (given, with_channels_last(given)), strict=True):
        session = single_threaded(model.SerializeToString())
        outputs.append(session.run(None, {model.graph.input[0].name: array})[0])
    np.testing.assert_array_equal(with_channels_last(outputs[0]), outputs[1])
    step, middle = (known[name] for name in last.input[1:])
    found = (outputs[0].astype(np.float32) - middle) * step
    assert np.abs(found - exact).max() < 0.03 * np.abs(exact).max()


def test_matrices_in_bytes_have_no_layout(tmp_path: Path) -> None:
    layer = Product(5, 16, 32)
    plain, x = layer.pruned(2, 0.5, "4x16", channels_last=False), layer.input(2, channels_last=False)
    model = onnx.load_from_string(in_bytes(plain, x, tmp_path, channels_last=False))
    types = {value.type.tensor_type.elem_type for value in (*model.graph.input, *model.graph.output)}
    assert types == {onnx.TensorProto.UINT8}


def test_a_network_is_pruned_everywhere_and_takes_any_batch() -> None:
    network = Network("tiny_cnn")
    session = onnxruntime.InferenceSession(
        network.pruned(3, 0.75, "1x4", channels_last=True).SerializeToString(), providers=["CPUExecutionProvider"]
    )
    x = network.input(3, channels_last=True)
    assert session.run(None, {session.get_inputs()[0].name: x})[0].shape[0] == 3
    dense, pruned = (network.pruned(1, share, "unstructured", channels_last=True) for share in (0.0, 0.75))
    weights = {node.input[1] for node in dense.graph.node if node.op_type in ("Conv", "Gemm")}
    assert weights
    for before, after in zip(dense.graph.initializer, pruned.graph.initializer, strict=True):
        zero = (onnx.numpy_helper.to_array(after) == 0).mean()
        assert bool(zero > 0.5) is (before.name in weights), after.name


def test_the_algorithm_of_a_batch_in_slices_is_that_of_its_calls() -> None:
    def call(family: str, tile: str, *inner: dict[str, Any]) -> dict[str, Any]:
        return {"family": family, "tile": tile, **({"region": {"bodies": [inner]}} if inner else {})}

    dense, pruned = call("Conv+Relu", "winograd m:4"), call("Conv", "sparse block(m:4)")
    relu = call("Relu", "loops")
    assert taken([call("Slices", "region", relu, pruned)]) == "sparse"
    assert (
        taken([call("Slices", "region", call("Slices", "region", dense)), call("Gemm", "loops")]) == "winograd, loops"
    )
    assert taken([dense, relu]) == "winograd"


def test_all_eleven_convolutions_of_resnet_18_are_there() -> None:
    graph = onnx.shape_inference.infer_shapes(build("resnet18")).graph
    types = {one.name: one.type.tensor_type.shape.dim for one in (*graph.input, *graph.value_info)}
    weights = {one.name: one.dims for one in graph.initializer}
    found = set()
    for node in graph.node:
        if node.op_type == "Conv":
            columns, depth, taps, _ = weights[node.input[1]]
            strides = next(one.ints for one in node.attribute if one.name == "strides")
            found.add(Convolution(depth, columns, types[node.input[0]][2].dim_value, taps, strides[0]))
    assert {*RESNET18} == found
    assert len(RESNET18) == 11


def row(share: float, taken: str, ratio: float, form: str = "unstructured") -> Row:
    peers = {"onnxruntime": 3e-3, "openvino": 2e-3}
    return Row("3x3 64-64 @56", 1, form, share, taken, "winograd", 1e-3 * ratio, 1e-3, peers, ratio, ratio, ratio, 1e-7)


ROWS = (row(0.7, "winograd", 1.01), row(0.8, "sparse", 0.9), row(0.9, "sparse", 0.5), row(0.9, "loops", 1.0, "1x4"))


def test_a_table_says_where_a_dense_kernel_was_taken_and_from_where_on_zeros_are_left_out() -> None:
    *_, first, second = table(ROWS).splitlines()
    assert first == "| 3x3 64-64 @56 | 1 | 1.000 | winograd | 3.00 | 2.00 | unstructured | 1.01 = | 0.90 | 0.50 | 80% |"
    assert second == "| 3x3 64-64 @56 | 1 | 1.000 | winograd | 3.00 | 2.00 | 1x4 | | | 1.00 = | none |"


def test_a_picture_has_a_line_for_each_form_and_hollow_points_where_a_dense_kernel_was_taken() -> None:
    root = ET.fromstring(picture(ROWS))
    svg = "{http://www.w3.org/2000/svg}"
    assert len(root.findall(f".//{svg}polyline")) == 2
    points = root.findall(f".//{svg}circle")
    assert [point.get("fill") == "#fff" for point in points] == [True, False, False, True]
    heights = [float(point.get("cy", "")) for point in points[:3]]
    assert heights == sorted(heights), "faster is lower"
    assert "unstructured, 90% zeros: 0.50 by sparse" in {title.text for title in root.iter(f"{svg}title")}


def test_layers_and_shares_that_there_are_not_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    for asked, said in ((["5x5"], "no such layer: 5x5"), (["--shares", "1.5"], "no share of zeros")):
        with pytest.raises(SystemExit) as ended:
            main(asked)
        assert ended.value.code == 2
        assert said in capsys.readouterr().err
    assert Convolution(64, 128, 56, 1, 2).name == "1x1/2 64-128 @56"

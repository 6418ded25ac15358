from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from bench.gpu.subjects import KERNELS, NETWORKS, floor_ms, inputs_of, model_file
from bench.zoo import build, entry
from compiler.devices.cuda.target import resolve
from compiler.encodings.encoding import Use
from compiler.encodings.quantised import Quantised

H200 = resolve("cuda:sm_90")


def test_all_networks_are_in_the_zoo() -> None:
    assert all(entry(name).paper for name in NETWORKS)


def test_a_model_is_written_once(tmp_path: Path) -> None:
    file = model_file("tiny_cnn", tmp_path / "models")
    assert file.read_bytes() == build("tiny_cnn").SerializeToString(deterministic=True)
    file.write_bytes(b"kept")
    assert model_file("tiny_cnn", tmp_path / "models").read_bytes() == b"kept"


def test_a_single_operator_is_a_network_too(tmp_path: Path) -> None:
    assert "matmul_197_768_3072" in KERNELS
    model = onnx.load(model_file("matmul_197_768_3072", tmp_path))
    assert [node.op_type for node in model.graph.node] == ["MatMul"]


def test_networks_with_zeros_in_bytes_and_with_a_loop_are_made_of_others(tmp_path: Path) -> None:
    pruned = onnx.load(model_file("tiny_cnn-2of4", tmp_path))
    whole = {
        one.name: onnx.numpy_helper.to_array(one)
        for one in onnx.load(model_file("tiny_cnn", tmp_path)).graph.initializer
    }
    kept = []
    for one in pruned.graph.initializer:
        array = onnx.numpy_helper.to_array(one)
        if array.ndim == 4 and array.shape[1] % 4 == 0:
            fours = np.moveaxis(array, 1, -1).reshape(-1, 4) != 0
            assert (fours.sum(axis=1) == 2).all(), one.name
            kept.append(float(np.linalg.norm(array) / np.linalg.norm(whole[one.name])))
    assert kept
    assert 1.1 < min(kept) <= max(kept) < 1.42, "the larger half, by the root of 2"
    few = onnx.load(model_file("tiny_transformer-int4", tmp_path)).graph.initializer
    matrices = [onnx.numpy_helper.to_array(one) for one in few if len(one.dims) == 2]
    assert any(Quantised.find(np.tile(one, (8, 8)), Use.PRODUCT) for one in matrices)
    quantised = {node.op_type for node in onnx.load(model_file("tiny_cnn-int8", tmp_path)).graph.node}
    assert {"QuantizeLinear", "DequantizeLinear"} <= quantised
    assert "Loop" in {node.op_type for node in onnx.load(model_file("decoder-3", tmp_path)).graph.node}


def test_inputs_fit_and_no_mask_hides_everything() -> None:
    drawn = inputs_of(build("bert_base", blocks=1, vocabulary=100), 0)
    assert {name: array.shape for name, array in drawn.items()} == dict(entry("bert_base").inputs)
    assert all(array.dtype == np.int64 and array.min() == 0 and array.max() == 1 for array in drawn.values())
    assert (drawn["attention_mask"][:, 0] == 1).all()
    (image,) = inputs_of(build("tiny_cnn"), 0).values()
    (other,) = inputs_of(build("tiny_cnn"), 1).values()
    assert image.dtype == np.float32
    assert not np.array_equal(image, other)


@pytest.mark.parametrize(
    ("name", "precision", "low", "high"),
    [
        ("resnet50", "fp16", 0.0085, 0.0100),  # 51 MB of weights fit the L2: 9.3 us; 8.2 GFLOP are 8.3 us
        ("resnet50", "tf32", 0.0200, 0.0230),  # 102 MB do not: 21.3 us from memory
        ("inception_v3", "fp16", 0.0110, 0.0125),  # 11.4 GFLOP
    ],
)
def test_the_floor_is_the_larger_of_bytes_and_operations(name: str, precision: str, low: float, high: float) -> None:
    assert low < floor_ms(build(name), precision, H200) < high

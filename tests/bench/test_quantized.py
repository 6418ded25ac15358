from __future__ import annotations

import json
from pathlib import Path

import onnx
import pytest

from bench.cache import Cache
from bench.models.run import main
from bench.quantized import is_from_bytes, quantised
from bench.subjects import subject


@pytest.mark.parametrize(
    ("engine", "kind", "expected"),
    [
        ("tilewright", "ConvInteger+Cast+Mul+Add+QuantizeLinear", True),
        ("tilewright", "DequantizeLinear+Conv+Relu", False),
        ("tilewright", "MaxPool", None),
        ("onnxruntime", "QLinearConv", True),
        ("onnxruntime", "FusedConv", False),
        ("onnxruntime", "QLinearAdd", None),
        ("openvino", "Convolution brgconv_avx512_amx_1x1_I8", True),
        ("openvino", "FullyConnected brgemm_avx512_amx_BF16", False),
        ("openvino", "Reorder jit_uni_I8", None),
    ],
)
def test_a_layer_is_a_product_of_bytes_by_what_its_engine_calls_it(
    engine: str, kind: str, expected: bool | None
) -> None:
    assert is_from_bytes(engine, kind) is expected


def test_a_network_is_quantised_once_raced_and_each_engine_asked_what_it_ran(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["tiny_cnn", "--precision", "int8", "--peers", "onnxruntime", "--threads", "1", "--rounds", "1"]
    places = ["--budget", "0", "--cache", str(tmp_path), "--json", str(tmp_path / "rows.json")]
    assert main([*arguments, *places]) == 0
    (row,) = json.loads((tmp_path / "rows.json").read_text())
    assert (row["model"], row["precision"]) == ("tiny_cnn", "int8")
    counts = row["products_in_bytes"]
    assert counts["tilewright"][0] == counts["tilewright"][1] == counts["onnxruntime"][0] > 1
    assert "products from bytes" in capsys.readouterr().out
    (file,) = (tmp_path / "quantised").glob("tiny_cnn-*.onnx")
    written = file.stat().st_mtime_ns
    cache = Cache(tmp_path)
    again = quantised(subject("tiny_cnn", cache.place("models")), cache)
    assert again.file == file
    assert file.stat().st_mtime_ns == written
    assert "QuantizeLinear" in {node.op_type for node in onnx.load(file).graph.node}
    assert quantised(again, cache) is again

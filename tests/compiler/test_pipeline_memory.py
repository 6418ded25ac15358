"""What a compilation holds in memory of a model whose weights are codes."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
from onnx import external_data_helper, numpy_helper

from compiler.contract import CompileOptions
from tests.compiling import compile_file

WIDTH, LAYERS = 768, 12


def stack(path: Path) -> Path:
    """Products with matrices in int8, a scale for each column, as external data."""
    random = np.random.default_rng(3)
    lines, constants = [], {}
    for at in range(LAYERS):
        constants[f"c{at}"] = random.integers(-127, 128, (WIDTH, WIDTH), np.int8)
        constants[f"s{at}"] = random.uniform(1e-4, 1e-3, WIDTH).astype(np.float32)
        lines.append(f"w{at} = DequantizeLinear<axis = 1>(c{at}, s{at}) p{at} = MatMul(x{at}, w{at})")
        lines.append(f"x{at + 1} = Tanh(p{at})")
    text = f'<ir_version: 10, opset_import: ["": 21]> g (float[1, {WIDTH}] x0) => (float[1, {WIDTH}] x{LAYERS})'
    model = onnx.parser.parse_model(f"{text} {{ {' '.join(lines)} }}")
    model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in constants.items())
    external_data_helper.convert_model_to_external_data(model, size_threshold=1024, location="weights.bin")
    onnx.save(model, path)
    return path


def test_memory_grows_with_one_matrix_and_not_with_floats_of_all(tmp_path: Path) -> None:
    model = stack(tmp_path / "model.onnx")
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        compile_file(model, tmp_path / "model.tw", CompileOptions(threads=1, tuning_budget_s=0))
        peak = tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
    file = (tmp_path / "weights.bin").stat().st_size
    one = 8 * WIDTH * WIDTH
    assert (tmp_path / "model.tw").stat().st_size < 1.1 * file + 2**20
    assert peak < file + 4 * one < 4 * WIDTH * WIDTH * LAYERS, f"{peak} bytes, where a file has {file}"

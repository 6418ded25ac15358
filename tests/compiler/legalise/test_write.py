"""Legalised graphs as ONNX models that another runtime reads."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import parser

from compiler.legalise.write import to_onnx
from tests.compiler.networks import graph_of

X = np.arange(24, dtype=np.float32).reshape(4, 6)


@pytest.mark.parametrize("split", ["axis=1, num_outputs=3", "axis=0, num_outputs=2", "axis=1"])
def test_a_split_by_a_number_of_parts_and_one_by_sizes_are_read_as_they_were(split: str) -> None:
    sizes = ", sizes" if "num_outputs" not in split else ""
    names = ["a", "b", "c"][: 2 if "axis=0" in split else 3]
    shape = "2,6" if "axis=0" in split else None
    widths = (1, 2, 3) if sizes else (2, 2, 2)
    outputs = ", ".join(f"float[{shape or f'4,{width}'}] {name}" for name, width in zip(names, widths, strict=False))
    text = f"m (float[4,6] x) => ({outputs}) <int64[3] sizes = {{1, 2, 3}}>"
    text += f" {{ {', '.join(names)} = Split<{split}>(x{sizes}) }}"
    model = parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]> {text}')
    written = to_onnx(graph_of(model))
    wanted, found = (
        onnxruntime.InferenceSession(one.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, {"x": X})
        for one in (model, written)
    )
    assert len(found) == len(names)
    for one, other in zip(wanted, found, strict=True):
        np.testing.assert_array_equal(one, other)

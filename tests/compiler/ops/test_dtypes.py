from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from compiler.ops import (
    contraction,
    convolution,
    einsum,
    gather,
    grid_sample,
    pooling,
    quantise,
    recurrent,
    resize,
    scatter,
    sorting,
)
from tests.compiler.ops.single import Attrs, check, normal, octets, prepare

FAMILIES = (
    *(contraction, convolution, einsum, gather, grid_sample, pooling),
    *(quantise, recurrent, resize, scatter, sorting),
)
RECORDS = {operator.name: operator for family in FAMILIES for operator in family.OPERATORS}


def x(*shape: int) -> np.ndarray:
    return normal(3, *shape)


CASES: list[tuple[str, list[np.ndarray | None], Attrs]] = [
    ("Conv", [x(1, 4, 6, 6), x(4, 2, 3, 3), x(4)], {"group": 2, "pads": (1, 1, 1, 1)}),
    ("ConvTranspose", [x(1, 4, 3, 3), x(4, 2, 2, 2)], {"strides": (2, 2)}),
    ("MaxPool", [x(1, 2, 5, 5)], {"kernel_shape": (3, 3), "pads": (1, 1, 1, 1)}),
    ("AveragePool", [x(1, 2, 5, 5)], {"kernel_shape": (3, 3), "pads": (1, 1, 1, 1)}),
    ("LpPool", [x(1, 2, 5, 5)], {"kernel_shape": (3, 3)}),
    ("GlobalAveragePool", [x(1, 2, 5, 5)], {}),
    ("MatMul", [x(3, 4), x(4, 5)], {}),
    ("Gemm", [x(3, 4), x(4, 5), x(5)], {"alpha": 0.5}),
    ("Einsum", [x(3, 4), x(4, 5)], {"equation": "ij,jk->ki"}),
    ("Gather", [x(3, 4), np.array([1, 0])], {}),
    ("GatherElements", [x(3, 4), np.array([[1, 0]])], {}),
    ("ScatterND", [x(3, 4), np.array([[1], [1]]), x(2, 4)], {"reduction": "add"}),
    ("ScatterElements", [x(3, 4), np.array([[1, 1], [1, 1]]), x(2, 2)], {"reduction": "max"}),
    ("Resize", [x(1, 1, 3, 3), None, np.array([1, 1, 2, 1.5], np.float32)], {"mode": "cubic"}),
    ("GridSample", [x(1, 1, 3, 3), np.clip(x(1, 2, 2, 2), -1, 1)], {}),
    ("QuantizeLinear", [x(3, 4), np.array(0.1, np.float32)], {}),
    ("DequantizeLinear", [octets(1, np.int8, 4), np.array(0.1, np.float32)], {}),
    ("TopK", [x(3, 4), np.array([2])], {}),
    ("RNN", [x(2, 1, 3), x(1, 2, 3), x(1, 2, 2)], {}),
    ("GRU", [x(2, 1, 3), x(1, 6, 3), x(1, 6, 2)], {}),
    ("LSTM", [x(2, 1, 3), x(1, 8, 3), x(1, 8, 2)], {}),
]


@pytest.mark.parametrize(("name", "arrays", "attrs"), CASES, ids=[case[0] for case in CASES])
@pytest.mark.parametrize(("dtype", "rtol"), [(np.float16, 3e-3), (ml_dtypes.bfloat16, 2e-2), (np.float64, 1e-9)])
def test_every_float_is_computed(
    name: str, arrays: list[np.ndarray | None], attrs: Attrs, dtype: Any, rtol: float
) -> None:
    operator = RECORDS[name]
    known = {position for position, _ in operator.parameters}
    cast = [
        array if array is None or array.dtype != np.float32 or position in known else array.astype(dtype)
        for position, array in enumerate(arrays)
    ]
    outputs = 2 if name == "TopK" else 1
    results = check(operator, cast, attrs, outputs, rtol)
    node, inputs, _ = prepare(operator, cast, attrs, outputs)
    for folded, result in zip(operator.reference(node, inputs), results, strict=True):
        np.testing.assert_allclose(folded.astype(np.float64), result.astype(np.float64), rtol=0.1, atol=0.1)

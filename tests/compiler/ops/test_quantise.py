from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

from compiler.ir.tensor import DType
from compiler.ops.operator import Unsupported
from compiler.ops.quantise import OPERATORS
from tests.compiler.ops.single import Attrs, check, compare, normal, octets, prepare, scalar

RECORDS = {operator.name: operator for operator in OPERATORS}
QUANTIZE, DEQUANTIZE, DYNAMIC = (RECORDS[n] for n in ("QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear"))


def scales(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).uniform(0.01, 0.05, shape).astype(np.float32)


FORMS: list[tuple[tuple[int, ...], Attrs]] = [
    ((), {}),
    ((1,), {}),
    ((5,), {"axis": 1}),
    ((4,), {"axis": -1}),
    ((2, 3, 4), {"axis": 1, "block_size": 2}),
    ((2, 5, 2), {"axis": 2, "block_size": 3}),
]


@pytest.mark.parametrize(("shape", "attrs"), FORMS)
@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.uint16])
def test_QuantizeLinear_rounds_half_to_even_and_saturates(shape: tuple[int, ...], attrs: Attrs, dtype: Any) -> None:
    x, scale, zero = normal(1, 2, 5, 4), scales(2, *shape), octets(3, dtype, *shape)
    if "block_size" in attrs:
        check(QUANTIZE, [x, scale, zero], attrs)
    else:
        compare(QUANTIZE, [x, scale, zero], attrs)


@pytest.mark.parametrize(("shape", "attrs"), FORMS)
@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.uint16])
def test_DequantizeLinear_undoes_it(shape: tuple[int, ...], attrs: Attrs, dtype: Any) -> None:
    x, scale, zero = octets(1, dtype, 2, 5, 4), scales(2, *shape), octets(3, dtype, *shape)
    if "block_size" in attrs:
        check(DEQUANTIZE, [x, scale, zero], attrs)
    else:
        compare(DEQUANTIZE, [x, scale, zero], attrs)


def test_a_bias_of_32_bits_is_dequantised_without_a_zero_point() -> None:
    compare(DEQUANTIZE, [np.array([2**24 + 1, -(2**30), 7], np.int32), scales(1, 3)], {"axis": 0})


def test_ties_go_to_the_even_neighbour() -> None:
    x = np.array([0.5, 1.5, 2.5, -0.5, -1.5, 300, -300], np.float32)
    assert check(QUANTIZE, [x, scalar(1.0), np.array(0, np.int8)])[0].tolist() == [0, 2, 2, 0, -2, 127, -128]


def test_without_a_zero_point_the_attribute_says_the_dtype() -> None:
    assert check(QUANTIZE, [normal(1, 3), scalar(0.1)])[0].dtype == np.uint8
    attrs = {"output_dtype": onnx.TensorProto.INT8}
    assert check(QUANTIZE, [normal(1, 3), scalar(0.1)], attrs)[0].dtype == np.int8


@pytest.mark.parametrize(
    "values", [[0.0, 2.0, -3.0, -2.5, 1.34, 0.5], [1.0, 2.1, 1.3, 2.5], [-1.0, -2.1, -5.5], [0.0, 0.0]]
)
def test_DynamicQuantizeLinear_covers_the_range_of_its_input(values: list[float]) -> None:
    compare(DYNAMIC, [np.array(values, np.float32).reshape(1, -1)], {}, 3)


@pytest.mark.parametrize(
    ("scale", "attrs", "reason"),
    [
        (np.ones(3, np.float32), {"axis": 1}, "does not fit axis"),
        (np.ones((2, 2, 4), np.float32), {"axis": 1, "block_size": 2}, "does not fit axis"),
        (scalar(1.0), {"output_dtype": onnx.TensorProto.FLOAT8E8M0}, "not supported"),
        (scalar(1.0), {"output_dtype": onnx.TensorProto.FLOAT}, "not supported"),
        (np.ones(5, np.float32), {"axis": 3}, "rank 3"),
    ],
)
def test_QuantizeLinear_refuses_what_does_not_fit(scale: np.ndarray, attrs: Attrs, reason: str) -> None:
    node, _, types = prepare(QUANTIZE, [normal(1, 2, 5, 4), scale], attrs, 1)
    with pytest.raises(Unsupported, match=reason):
        QUANTIZE.infer(node, types)


def test_half_scales_give_half_results() -> None:
    y = check(DEQUANTIZE, [octets(1, np.int8, 4), np.array(0.1, np.float16)], rtol=1e-3)[0]
    assert DType.of(y.dtype) is DType.F16

"""Formats and packed forms of small types, against ml_dtypes and onnx."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from compiler.frontend.reading.tensors import CODES
from compiler.ir.small import BITS, FLOATS, packed_bytes, places, unpacked, wide
from compiler.ir.tensor import DType
from compiler.ir.text import print_constant
from tests.compiler.small_values import codes
from tests.parse import parse_graph, parse_kernel


def test_small_types_are_those_that_the_enumeration_calls_so() -> None:
    assert set(BITS) == {dtype for dtype in DType if dtype.is_small}
    assert set(FLOATS) == {dtype for dtype in BITS if dtype.is_float}
    assert all(dtype.bytes == 1 for dtype in BITS)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_a_format_says_what_each_code_means(dtype: DType) -> None:
    form = FLOATS[dtype]
    found = codes(dtype).astype(np.float64)
    magnitudes = np.arange(form.most + 1)
    if dtype is DType.F8E8M0:
        assert found[: form.most + 1].tolist() == [2.0 ** (code - form.bias) for code in magnitudes]
        assert np.isnan(found[form.nan])
        return
    exponents, rest = magnitudes >> form.mantissa, magnitudes & ((1 << form.mantissa) - 1)
    fraction = np.where(exponents > 0, 1 << form.mantissa, 0) + rest
    wanted = np.ldexp(fraction.astype(np.float64), np.maximum(exponents, 1) - form.bias - form.mantissa)
    assert found[: form.most + 1].tolist() == wanted.tolist()
    signed = [code for code in magnitudes if not (form.unsigned_zero and code == 0)]
    assert found[form.sign :][signed].tolist() == (-wanted[signed]).tolist()
    assert np.isnan(found[form.nan]) == (form.bits == 8)


@pytest.mark.parametrize("dtype", BITS, ids=str)
@pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 5, 7, 8, 37])
def test_packed_elements_are_read_as_onnx_reads_them(dtype: DType, count: int) -> None:
    given = np.resize(codes(dtype), count + 3)[3:]
    tensor = numpy_helper.from_array(given, "x")
    assert len(tensor.raw_data) == packed_bytes(dtype, count)
    found = unpacked(np.frombuffer(tensor.raw_data, np.uint8), dtype, count)
    assert found.dtype == dtype.numpy
    np.testing.assert_array_equal(found.view(np.uint8), numpy_helper.to_array(tensor).view(np.uint8))
    np.testing.assert_array_equal(found.view(np.uint8), given.view(np.uint8))


def test_other_types_are_not_packed() -> None:
    assert packed_bytes(DType.F16, 3) == 6


@pytest.mark.parametrize("dtype", BITS, ids=str)
def test_the_type_that_it_is_computed_in_holds_every_element(dtype: DType) -> None:
    back = codes(dtype).astype(wide(dtype).numpy).astype(dtype.numpy)
    number = codes(dtype).astype(np.float64)
    np.testing.assert_array_equal(back.astype(np.float64), number)


@pytest.mark.parametrize("dtype", BITS, ids=str)
def test_places_count_the_values_between_two(dtype: DType) -> None:
    every = codes(dtype)
    number = every.astype(np.float64)
    found = places(every, dtype)
    finite = ~np.isnan(number)
    distinct = np.unique(number[finite])
    assert found[finite].tolist() == [
        int(
            np.searchsorted(distinct, one)
            - np.searchsorted(distinct, distinct[distinct <= 0][-1] if 0 in distinct else distinct[0])
        )
        for one in number[finite]
    ]
    assert np.all(found[~finite] > 1000)


def test_every_small_type_of_onnx_has_one_here() -> None:
    names = ("FLOAT8", "FLOAT6", "FLOAT4", "INT4", "UINT4", "INT2", "UINT2")
    known = {onnx.TensorProto.DataType.Name(CODES[dtype]) for dtype in BITS}
    assert known == {name for name, _ in onnx.TensorProto.DataType.items() if name.startswith(names)}


@pytest.mark.parametrize("dtype", BITS, ids=str)
def test_constants_print_and_parse_back(dtype: DType) -> None:
    every = codes(dtype)
    every = every[np.isfinite(every.astype(np.float32))][-8:]
    count = len(every)
    graph = parse_graph(f"graph(%0: {dtype}[{count}]) -> (%0)")
    held = print_constant(every)
    again = parse_graph(f"graph(%0: {dtype}[{count}]) -> (%1)\n  %1: {dtype}[{count}] = {held}")
    np.testing.assert_array_equal(again.constants[1].view(np.uint8), every.view(np.uint8))
    assert graph.type(0) == again.type(1)


@pytest.mark.parametrize("rounding", ["", " up", " down"])
def test_a_cast_prints_and_parses_back_with_its_rounding(rounding: str) -> None:
    text = f"kernel f(in x: f32[4]; out y: f8e8m0[4]) for i:4 y[i] = saturate(x[i]):f8e8m0{rounding}"
    kernel = parse_kernel(text)
    assert parse_kernel(str(kernel)) == kernel
    assert f"saturate(x[i]):f8e8m0{rounding}" in str(kernel)

"""What conversions to and from small types mean, against ml_dtypes, onnx's reference and the tables of its Cast."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx.reference.ops.op_cast import cast_to

from compiler.frontend.reading.tensors import CODES
from compiler.ir.arithmetic import apply, bounds, cast
from compiler.ir.small import BITS, FLOATS, ROUNDINGS, wide
from compiler.ir.tensor import DType
from tests.compiler.small_values import SOURCES, around, beyond_integers, codes, given, read_as, same_bits

TYPES: dict[DType, Any] = dict(CODES)
"""Numbers, which onnx's annotations take for another type."""
ROUNDED = [dtype for dtype in FLOATS if dtype is not DType.F8E8M0]
E8M0 = DType.F8E8M0


@pytest.mark.parametrize("saturate", [True, False])
@pytest.mark.parametrize("target", ROUNDED, ids=str)
@pytest.mark.parametrize("source", [DType.F16, DType.BF16, DType.F32, DType.F64], ids=str)
def test_floats_round_as_in_onnxs_reference(source: DType, target: DType, saturate: bool) -> None:
    with np.errstate(all="ignore"):
        values = given(source, target)
        wanted = cast_to(values, TYPES[target], saturate)
        found = cast(values, target, saturate)
    assert same_bits(found, wanted), values[found.view(np.uint8) != wanted.view(np.uint8)]


@pytest.mark.parametrize("target", ROUNDED, ids=str)
def test_a_float_becomes_the_nearest_element_half_to_even(target: DType) -> None:
    """Judged by distance alone, without any code that rounds."""
    every = codes(target)
    every = every[np.isfinite(every.astype(np.float64))]
    held = every.astype(np.float64)
    values = around(target)
    values = values[np.abs(values) <= bounds(target)[1]].astype(np.float32).astype(np.float64)
    found = cast(values, target).astype(np.float64)
    distance = np.abs(held[None, :] - values[:, None])
    np.testing.assert_array_equal(np.abs(found - values), distance.min(axis=1))
    tied = np.sum(np.unique(held)[None, :] - values[:, None] == distance.min(axis=1)[:, None], axis=1) + np.sum(
        values[:, None] - np.unique(held)[None, :] == distance.min(axis=1)[:, None], axis=1
    )
    ties = (tied == 2) & (distance.min(axis=1) > 0)
    assert np.count_nonzero(ties) >= 7
    assert not np.any(cast(values[ties], target).view(np.uint8) & 1)


@pytest.mark.parametrize("target", BITS, ids=str)
@pytest.mark.parametrize("source", [source for source in SOURCES if not source.is_float], ids=str)
def test_integers_convert_as_in_onnxs_reference(source: DType, target: DType) -> None:
    values = given(source, target)
    if target is E8M0:
        values = values[values > 0]  # ONNX has no meaning for the others, but 0
    found = cast(values, target, saturate=target in FLOATS)
    wanted = cast_to(values, TYPES[target], True, "nearest")
    assert same_bits(found, wanted), values[found.view(np.uint8) != wanted.view(np.uint8)]


READS = [(source, target) for source in BITS for target in read_as(source)]


@pytest.mark.parametrize(("source", "target"), READS, ids=str)
def test_every_element_is_read_as_in_ml_dtypes(source: DType, target: DType) -> None:
    with np.errstate(all="ignore"):
        wanted = codes(source).astype(np.float32).astype(target.numpy)
        assert same_bits(cast(codes(source), target), wanted)


@pytest.mark.parametrize("target", [DType.I4, DType.U4, DType.I2, DType.U2], ids=str)
def test_integers_saturate_at_their_ends_and_nan_is_zero(target: DType) -> None:
    low, high = bounds(target)
    values = beyond_integers(DType.F32)
    found = cast(values, target, saturate=True).astype(np.int64)
    whole = np.where(np.isnan(values), 0, np.clip(values, low, high))
    np.testing.assert_array_equal(found, np.trunc(whole))


SPECIAL = np.array([0.0, np.nan, np.inf, 3e38, 2.0**-127, 2.0**-128, 1e-45], np.float32)


def test_e8m0_follows_the_table_of_onnxs_cast() -> None:
    """0, NaN, infinity, beyond the greatest, the least, below it."""
    saturated, other = cast(SPECIAL, E8M0, True, "up"), cast(SPECIAL, E8M0, False, "nearest")
    assert saturated.view(np.uint8).tolist() == [0, 255, 254, 254, 0, 0, 0]
    assert other.view(np.uint8).tolist() == [255, 255, 255, 255, 0, 255, 255]


@pytest.mark.parametrize("saturate", [True, False])
@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_e8m0_rounds_as_in_onnxs_reference_above_its_least_number(rounding: str, saturate: bool) -> None:
    """Where float32 is subnormal the reference takes the exponent's bits for the number."""
    with np.errstate(all="ignore"):
        values = around(E8M0).astype(np.float32)
    values = values[np.isfinite(values) & (values >= 2.0**-126)]
    wanted = cast_to(values, TYPES[E8M0], saturate, rounding)
    assert same_bits(cast(values, E8M0, saturate, rounding), wanted)


@pytest.mark.parametrize(
    ("rounding", "wanted"), [("nearest", [0, 0, 1, 1, 2]), ("up", [0, 1, 1, 1, 2]), ("down", [0, 0, 0, 1, 1])]
)
def test_e8m0_rounds_numbers_that_are_subnormal_in_float32(rounding: str, wanted: list[int]) -> None:
    values = np.array([1.0, 1.25, 1.5, 2.0, 3.0]) * 2.0**-127
    assert cast(values, E8M0, True, rounding).view(np.uint8).tolist() == wanted


def test_e8m0_has_no_sign() -> None:
    values = np.array([-1.0, -np.inf, -0.0, -1e-45], np.float32)
    assert cast(values, E8M0, True, "up").view(np.uint8).tolist() == [255, 255, 0, 255]


@pytest.mark.parametrize("dtype", [DType.F8E4M3FN, DType.I4], ids=str)
def test_functions_are_computed_in_a_type_that_holds_all_elements_and_rounded(dtype: DType) -> None:
    a, b = codes(dtype)[None, :4], codes(dtype)[:4, None]
    with np.errstate(all="ignore"):
        found = apply("add", (a, b), dtype, dtype)
        wanted = (a.astype(wide(dtype).numpy) + b.astype(wide(dtype).numpy)).astype(dtype.numpy)
    assert same_bits(found, wanted)
    assert apply("lt", (a, b), dtype, DType.BOOL).dtype == np.bool_

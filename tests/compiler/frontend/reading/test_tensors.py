"""Tensors of small types as a file holds them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from compiler.errors import MalformedModel
from compiler.frontend.reading.limits import Limits
from compiler.frontend.reading.tensors import CODES, Source, array_of
from compiler.ir.small import BITS
from compiler.ir.tensor import DType
from tests.compiler.small_values import codes

NOWHERE = Source(None, Limits())


def in_numbers(array: np.ndarray) -> TensorProto:
    """A tensor whose elements stand in `int32_data`."""
    code = helper.np_dtype_to_tensor_dtype(array.dtype)
    return helper.make_tensor("w", code, array.shape, array.astype(np.float32).reshape(-1))


@pytest.mark.parametrize("dtype", BITS, ids=str)
@pytest.mark.parametrize("shape", [(), (1,), (3, 5), (2, 0, 2)])
def test_raw_bytes_and_numbers_give_the_same_elements(dtype: DType, shape: tuple[int, ...]) -> None:
    every = codes(dtype)
    every = every[np.isfinite(every.astype(np.float32))]  # onnx.helper saturates infinities
    array = np.resize(every[::-1], shape)
    for tensor in (numpy_helper.from_array(array, "w"), in_numbers(array)):
        assert tensor.data_type == CODES[dtype]
        found = array_of(tensor, NOWHERE)
        assert isinstance(found, np.ndarray)
        assert (found.dtype, found.shape, found.flags.writeable) == (dtype.numpy, shape, False)
        np.testing.assert_array_equal(found.view(np.uint8), array.view(np.uint8))


def test_packed_bytes_may_lie_in_another_file(tmp_path: Path) -> None:
    array = np.resize(codes(DType.I4), (3, 3))
    tensor = numpy_helper.from_array(array, "w")
    (tmp_path / "w.bin").write_bytes(b"before" + tensor.raw_data)
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", "w.bin"), ("offset", "6"), ("length", "5")):
        tensor.external_data.add(key=key, value=value)
    found = array_of(tensor, Source(tmp_path / "m.onnx", Limits()))
    assert isinstance(found, np.ndarray)
    assert found.astype(np.int64).tolist() == array.astype(np.int64).tolist()


@pytest.mark.parametrize(
    ("dtype", "numbers", "said"),
    [
        (DType.I4, [1, 2, 3], "needs 2 numbers but has 3"),
        (DType.I4, [1, 256], "no codes of i4"),
        (DType.F8E4M3FN, [1, 2, -3], "no codes of f8e4m3fn"),
        (DType.F6E2M3, [1, 64, 3], "no codes of f6e2m3"),
        (DType.F8E5M2, [1, 2], "needs 3 numbers but has 2"),
    ],
)
def test_numbers_that_are_no_codes_or_too_few_are_refused(dtype: DType, numbers: list[int], said: str) -> None:
    tensor = TensorProto(name="w", data_type=CODES[dtype], dims=[3], int32_data=numbers)
    with pytest.raises(MalformedModel, match=said):
        array_of(tensor, NOWHERE)


def test_raw_bytes_must_be_as_many_as_packed_elements_take() -> None:
    tensor = TensorProto(name="w", data_type=TensorProto.INT4, dims=[3], raw_data=b"123")
    with pytest.raises(MalformedModel, match="needs 2 bytes but has 3"):
        array_of(tensor, NOWHERE)

from __future__ import annotations

import gc
import tempfile
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from compiler.encodings.aside import LEAST_BYTES, aside

DTYPES = (np.float32, np.float16, np.float64, np.int8, np.uint8, np.int64, np.bool_, ml_dtypes.bfloat16, ml_dtypes.int4)
ROWS = 2 * LEAST_BYTES


def large(dtype: np.dtype) -> np.ndarray:
    numbers = np.random.default_rng(5).integers(0, 2, ROWS // np.dtype(dtype).itemsize)
    return numbers.astype(dtype).reshape(4, -1)


def files_without_a_name() -> int:
    maps = Path("/proc/self/maps").read_text()
    return sum(line.endswith("(deleted)") for line in maps.splitlines())


@pytest.mark.parametrize("dtype", DTYPES)
def test_an_array_in_a_file_has_the_same_elements_and_cannot_be_written(dtype: np.dtype) -> None:
    array = large(dtype)
    kept = aside(array)
    assert kept is not array
    assert (kept.dtype, kept.shape) == (array.dtype, array.shape)
    assert kept.tobytes() == array.tobytes()
    assert not kept.flags.writeable
    assert aside(kept) is kept
    assert aside(kept[1:].reshape(3, -1)).base is not None


def test_the_order_of_elements_is_that_of_the_axes_whatever_it_was_in_memory() -> None:
    array = large(np.dtype(np.float32)).T
    kept = aside(array)
    assert kept.flags.c_contiguous
    assert np.array_equal(kept, array)


def test_what_is_small_or_repeats_its_elements_stays_where_it_is() -> None:
    small = np.zeros(LEAST_BYTES // 4 - 1, np.float32)
    assert aside(small) is small
    wide = np.broadcast_to(np.float32(1), (1024, 1024))
    assert aside(wide) is wide
    words = np.full(LEAST_BYTES, "a", object)
    assert aside(words) is words


def test_the_file_goes_with_the_array() -> None:
    before = files_without_a_name()
    kept = aside(large(np.dtype(np.float32)))
    part = kept[1]
    assert files_without_a_name() == before + 1
    del kept
    gc.collect()
    assert files_without_a_name() == before + 1
    assert part[0] in (0, 1)
    del part
    gc.collect()
    assert files_without_a_name() == before


def test_where_the_disk_is_full_an_array_stays_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("this system has no /dev/full")
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda **given: full.open("r+b", buffering=0))
    array = large(np.dtype(np.float32))
    assert aside(array) is array

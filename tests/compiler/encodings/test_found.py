from __future__ import annotations

import gc

import numpy as np

from compiler.encodings.found import Found


def test_an_array_is_looked_at_once_for_each_kind_as_long_as_it_is_there() -> None:
    looked: list[int] = []

    def total(array: np.ndarray) -> int:
        looked.append(int(array.sum()))
        return looked[-1]

    found: Found[int] = Found()
    array, equal = np.arange(5), np.arange(5)
    assert [found.of(array, "sum", total) for _ in range(3)] == [10, 10, 10]
    assert looked == [10]
    assert (found.of(equal, "sum", total), found.of(array, "again", total), len(found)) == (10, 10, 2)
    assert looked == [10, 10, 10]
    del array
    gc.collect()
    assert len(found) == 1

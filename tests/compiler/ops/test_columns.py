from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from compiler.ops.columns import OPERATORS
from compiler.ops.operator import Unsupported
from tests.compiler.ops.single import check, compare, normal, prepare

(COL2IM,) = OPERATORS


def sizes(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


@pytest.mark.parametrize(
    ("image", "block", "attrs", "columns"),
    [
        ((5, 5), (1, 5), {}, 5),
        ((5, 5), (2, 3), {"strides": (2, 1)}, 6),
        ((4, 6), (2, 2), {"strides": (2, 2)}, 6),
        ((4, 6), (3, 2), {"pads": (1, 0, 2, 1)}, 30),
        ((6, 6), (2, 2), {"dilations": (3, 2), "strides": (2, 1)}, 8),
        ((7,), (3,), {"strides": (3,)}, 2),
        ((3, 4, 5), (1, 2, 3), {"strides": (1, 1, 2), "pads": (0, 1, 0, 0, 0, 0)}, 24),
    ],
)
def test_columns_are_added_where_they_came_from(
    image: tuple[int, ...], block: tuple[int, ...], attrs: dict[str, Any], columns: int
) -> None:
    x = normal(0, 2, 3 * int(np.prod(block)), columns)
    (found,) = check(COL2IM, [x, sizes(*image), sizes(*block)], attrs)
    assert found.shape == (2, 3, *image)
    if len(image) == 2:  # what ONNX Runtime takes
        compare(COL2IM, [x, sizes(*image), sizes(*block)], attrs)


def test_halves_are_added_in_float32() -> None:
    x = np.full((1, 64, 1), 40.0, np.float16)
    x[0, 0] = 2048.0
    (found,) = check(COL2IM, [x, sizes(8, 8), sizes(8, 8)])
    assert found.dtype == np.float16


@pytest.mark.parametrize(
    ("image", "block", "attrs", "said"),
    [
        ((5, 5), (2, 2), {}, "not those of an image"),
        ((5, 5), (1, 5, 1), {}, "blocks"),
        ((5, 5), (1, 5), {"strides": (0, 1)}, "blocks"),
        ((5, 5), (1, 5), {"pads": (-1, 0, 0, 0)}, "blocks"),
        ((1, 1, 1, 1), (1, 1, 1, 1), {}, "4 spatial axes"),
        ((2, 2), (5, 5), {}, "not those of an image"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(
    image: tuple[int, ...], block: tuple[int, ...], attrs: dict[str, Any], said: str
) -> None:
    node, _, types = prepare(COL2IM, [normal(0, 1, 15, 5), sizes(*image), sizes(*block)], attrs, 1)
    with pytest.raises(Unsupported, match=said):
        COL2IM.infer(node, types)

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from compiler.ops.operator import Unsupported
from compiler.ops.regions import OPERATORS, OWN, most_samples
from tests.compiler.ops.single import check, compare, normal, prepare

(ALIGN,), (SAMPLED, LARGEST) = OPERATORS, OWN
ROIS = np.array([[0, 0, 7, 7], [1.5, 2.25, 6, 3], [-4, -4, 2, 20], [5, 5, 5.1, 5.2], [30, 30, 40, 40]], np.float32)
IMAGES = np.array([0, 1, 0, 1, 1], np.int64)


@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("coordinates", ["half_pixel", "output_half_pixel"])
@pytest.mark.parametrize(("height", "width", "samples"), [(1, 1, 1), (3, 2, 2), (2, 4, 3)])
def test_regions_are_sampled_as_ONNX_Runtime_does(
    mode: str, coordinates: str, height: int, width: int, samples: int
) -> None:
    attrs = {
        "mode": mode,
        "coordinate_transformation_mode": coordinates,
        "output_height": height,
        "output_width": width,
        "sampling_ratio": samples,
        "spatial_scale": 0.75,
    }
    compare(ALIGN, [np.abs(normal(0, 2, 3, 6, 8)), ROIS, IMAGES], attrs)


def test_a_region_beyond_the_image_is_zero() -> None:
    (found,) = check(ALIGN, [normal(0, 2, 3, 6, 8), ROIS, IMAGES], {"sampling_ratio": 2})
    assert not found[4].any()
    assert found[:4].all()


def test_one_row_or_column_is_enough() -> None:
    check(ALIGN, [normal(0, 1, 2, 1, 1), ROIS[:2], IMAGES[:1].repeat(2)], {"sampling_ratio": 2, "output_height": 2})


@pytest.mark.parametrize(
    ("rois", "images", "attrs", "said"),
    [
        (ROIS, IMAGES, {"sampling_ratio": 0}, "sampling_ratio is 0"),
        (ROIS, IMAGES, {"sampling_ratio": 10**6}, "sampling_ratio is 1000000"),
        (ROIS, IMAGES[:2], {"sampling_ratio": 1}, "do not fit"),
        (ROIS[:, :3], IMAGES, {"sampling_ratio": 1}, "do not fit"),
        (ROIS, IMAGES, {"sampling_ratio": 1, "mode": "sum"}, "mode is 'sum'"),
        (ROIS, IMAGES, {"sampling_ratio": 1, "output_height": 0}, "do not fit"),
    ],
)
def test_what_does_not_fit_is_refused(rois: np.ndarray, images: np.ndarray, attrs: dict[str, Any], said: str) -> None:
    node, _, types = prepare(ALIGN, [normal(0, 2, 3, 6, 8), rois, images], attrs, 1)
    with pytest.raises(Unsupported, match=said):
        ALIGN.infer(node, types)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.float64])
def test_the_largest_of_a_rectangle_is_that_of_its_part_inside_the_image(dtype: Any) -> None:
    random = np.random.default_rng(7)
    x, images = normal(7, 2, 3, 6, 8).astype(dtype), np.array([1, -1, 0, -2])
    rows, columns = (np.sort(random.integers(-2, size + 3, (4, bins, 2))) for bins, size in ((2, 6), (3, 8)))
    rows[0, 0], columns[1, 2] = (4, 4), (5, 2)
    (found,) = check(LARGEST, [x, images, rows, columns], {}, rtol=0)
    assert np.isneginf(found[0, :, 0]).all()
    assert np.isneginf(found[1, :, :, 2]).all()
    for r, c, p, q in np.ndindex(*found.shape):
        (top, bottom), (left, right) = rows[r, p], columns[r, q]
        inside = [x[images[r], c, i, j] for i in range(6) for j in range(8) if top <= i < bottom and left <= j < right]
        assert found[r, c, p, q] == max(inside, default=-np.inf)


@pytest.mark.parametrize(
    ("x", "rows", "said"),
    [
        (normal(0, 1, 2, 6, 8), np.zeros((3, 2, 2), np.int32), "do not fit"),
        (normal(0, 1, 2, 6, 8), np.zeros((4, 2, 2), np.int64), "do not fit"),
        (normal(0, 1, 2, 6, 8), np.zeros((3, 2, 1), np.int64), "do not fit"),
        (normal(0, 2, 6, 8), np.zeros((3, 2, 2), np.int64), "do not fit"),
        (normal(0, 1, 2, 0, 8), np.zeros((3, 2, 2), np.int64), "is empty"),
    ],
)
def test_ends_that_do_not_fit_are_refused(x: np.ndarray, rows: np.ndarray, said: str) -> None:
    columns, images = np.zeros((3, 2, 2), np.int64), np.zeros(3, np.int64)
    node, _, types = prepare(LARGEST, [x, images, rows, columns], {}, 1)
    with pytest.raises(Unsupported, match=said):
        LARGEST.infer(node, types)


def samples(dtype: Any = np.float32) -> list[np.ndarray]:
    """Images of 5 rows, whose each bin is in, and of each bin how many samples there are, and where they lie."""
    random = np.random.default_rng(11)
    counts = [random.integers(-1, most_samples(size) + 1, (4, bins)) for size, bins in ((6, 2), (8, 3))]
    places = [
        np.stack([random.uniform(-3, size, (4, bins)), random.uniform(0.5, 1, (4, bins)), np.full((4, bins), size)], 2)
        for size, bins in ((5, 2), (8, 3))
    ]
    return [
        normal(7, 2, 3, 6, 8).astype(dtype),
        np.array([0, -1, 1, 0]),
        *counts,
        *(one.astype(dtype) for one in places),
    ]


@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_samples_of_bins_are_those_of_their_places(mode: str, dtype: Any) -> None:
    given = samples(dtype)
    x, images, rows, columns, tops, lefts = given
    (found,) = check(SAMPLED, given, {"mode": mode})
    assert np.min(rows) < 0, "such a bin has none"
    for r, c, p, q in np.ndindex(*found.shape):
        parts = [[0.0] * 4] if mode == "avg" else [[-np.inf]]
        for i, j in np.ndindex(max(int(rows[r, p]), 0), max(int(columns[r, q]), 0)):
            y, z = tops[r, p, 0] + i * tops[r, p, 1], lefts[r, q, 0] + j * lefts[r, q, 1]
            if not (-1 <= y <= 5 and -1 <= z <= 8):
                parts.append([0.0])
                continue
            y, z = min(max(y, 0), 4), min(max(z, 0), 7)
            near = [(k, m) for k in (int(y), min(int(y) + 1, 4)) for m in (int(z), min(int(z) + 1, 7))]
            weights = np.outer([1 - y % 1, y % 1], [1 - z % 1, z % 1]).reshape(4)
            parts.append([float(w * x[images[r], c, k, m]) for w, (k, m) in zip(weights, near, strict=True)])
        wanted = sum(map(sum, parts)) if mode == "avg" else max(map(max, parts))
        np.testing.assert_allclose(found[r, c, p, q], wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("position", "array", "said"),
    [
        (0, normal(0, 2, 6, 8), "do not fit"),
        (0, normal(0, 2, 3, 6, 8).astype(np.float16), "do not fit"),
        (0, normal(0, 2, 0, 6, 8), "few bits"),
        (2, np.zeros((4, 2), np.int32), "do not fit"),
        (2, np.zeros((3, 2), np.int64), "do not fit"),
        (4, np.zeros((4, 2, 1), np.float32), "do not fit"),
    ],
)
def test_samples_that_do_not_fit_are_refused(position: int, array: np.ndarray, said: str) -> None:
    given = samples()
    given[position] = array if array.ndim != 4 or array.size else np.zeros((2, 3, 0, 8), np.float32)
    node, _, types = prepare(SAMPLED, given, {"mode": "avg"}, 1)
    with pytest.raises(Unsupported, match=said):
        SAMPLED.infer(node, types)

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from compiler.ops.operator import Unsupported
from compiler.ops.regions import OPERATORS
from tests.compiler.ops.single import check, compare, normal, prepare

(ALIGN,) = OPERATORS
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
        (ROIS, IMAGES, {"sampling_ratio": 0}, "depends on data"),
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

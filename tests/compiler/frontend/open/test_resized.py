from __future__ import annotations

import numpy as np
import pytest

from tests.compiler.frontend.open.at_sizes import model_of
from tests.compiler.frontend.open.by_value import agree_with_fixed, fed, results

X = np.random.default_rng(5).normal(size=(1, 2, 5, 7)).astype(np.float32)
WHERE = ("half_pixel", "pytorch_half_pixel", "half_pixel_symmetric", "asymmetric", "align_corners")


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize(
    "how",
    [
        'mode="nearest", nearest_mode="floor"',
        'mode="nearest", nearest_mode="round_prefer_ceil"',
        'mode="linear", antialias=1',
        'mode="cubic", cubic_coeff_a=-0.5, exclude_outside=1',
    ],
)
def test_scales_that_data_say_are_those_of_a_constant(how: str, where: str) -> None:
    attributes = f'{how}, coordinate_transformation_mode="{where}"'
    model = model_of(f"m (float[1,2,5,7] x, float[4] s) => (float y) {{ y = Resize<{attributes}>(x, , s) }}")
    loaded = fed(model)
    for down, across in ((2.0, 3.0), (0.6, 0.7), (1.0, 0.2), (1.3, 2.5)):
        agree_with_fixed(model, loaded, {"x": X, "s": np.array([1, 1, down, across], np.float32)}, ("s",))
    for scales in ((1, 2, 1, 1), (1, 1, 0, 1), (1, 1, 1, 1e9), (1, 1, -1, np.nan)):
        assert "Resize" in results(loaded, {"x": X, "s": np.array(scales, np.float32)})[0]


@pytest.mark.parametrize("policy", ["stretch", "not_larger", "not_smaller"])
def test_sizes_that_data_say_are_those_of_a_constant(policy: str) -> None:
    attributes = f'mode="linear", axes=[3, 2], keep_aspect_ratio_policy="{policy}"'
    model = model_of(f"m (uint8[1,2,5,7] x, int64[2] s) => (uint8 y) {{ y = Resize<{attributes}>(x, , , s) }}")
    loaded = fed(model)
    x = (X * 80 + 120).clip(0, 255).astype(np.uint8)
    for sizes in ((7, 5), (14, 3), (1, 1), (9, 12)):
        agree_with_fixed(model, loaded, {"x": x, "s": np.array(sizes)}, ("s",))


def test_a_region_that_data_say_is_cut_out() -> None:
    attributes = 'mode="linear", coordinate_transformation_mode="tf_crop_and_resize", extrapolation_value=9.0'
    model = model_of(
        f"m (float[1,2,5,7] x, float[8] r, int64[4] s) => (float y) {{ y = Resize<{attributes}>(x, r, , s) }}"
    )
    loaded = fed(model)
    region = np.array([0, 0, 0.25, 0.5, 1, 1, 0.75, 1.25], np.float32)
    found = agree_with_fixed(model, loaded, {"x": X, "r": region, "s": np.array([1, 2, 3, 4])}, ("r", "s"))
    assert (found[0][..., -1] == 9).all()

from __future__ import annotations

import numpy as np
import pytest

from tests.compiler.frontend.open.at_sizes import agree_at, model_of, opened
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


TWO = {"n": (1, 6), "m": (2, 7)}
OPEN = {
    "resized to other sizes": (
        "(float[1,2,n,m] x, float[1,2,k,l] like) => (float[1,2,k,l] y, float[1,2,n,m] z, float[1,2,k,l] u)"
        "<int64[1] two = {2}, int64[1] four = {4}, int64[1] zero = {0}>"
        "{ s = Shape(x) t = Shape(like) b = Slice(s, zero, two, zero) a = Slice(t, two, four, zero)"
        ' w = Concat<axis=0>(b, a) y = Resize<mode="linear">(x, , , w)'
        ' u = Resize<mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor">(x, , , w)'
        " c = Slice(s, two, four, zero) v = Concat<axis=0>(b, c)"
        ' r = Resize<mode="cubic", coordinate_transformation_mode="align_corners">(like, , , v) z = Add(r, x) }',
        {"n": (1, 5), "m": (2, 4), "k": (1, 4), "l": (1, 6)},
    ),
    "resized from a number": (
        "(float[1,1,3,4] x, float[n,m] like) => (float[1,1,n,m] y) <int64[2] ones = {1, 1}>"
        '{ s = Shape(like) t = Concat<axis=0>(ones, s) y = Resize<mode="linear", antialias=1>(x, , , t) }',
        TWO,
    ),
    "corners aligned": (
        "(float[1,1,n,m] x) => (float[1,1,k,l] y) <float[4] f = {1.0, 1.0, 2.0, 1.5}>"
        '{ y = Resize<mode="linear", coordinate_transformation_mode="align_corners">(x, , f) }',
        TWO,
    ),
}


@pytest.mark.parametrize("name", OPEN)
def test_open_axes_are_resized_to_sizes_that_are_no_multiples(name: str) -> None:
    text, ranges = OPEN[name]
    model = model_of(f"m {text}")
    loaded = opened(model, ranges)
    chance = np.random.default_rng(5)
    ends = [{of: end[at] for of, end in ranges.items()} for at in (0, 1)]
    between = [{of: int(chance.integers(low, high + 1)) for of, (low, high) in ranges.items()} for _ in range(4)]
    for seed, sizes in enumerate((*ends, *between)):
        agree_at(loaded, model, sizes, seed, near=1e-6)  # weights are float32


@pytest.mark.parametrize(
    "how",
    [
        'mode="linear"',
        'mode="nearest"',
        *(
            f'mode="nearest", coordinate_transformation_mode="{where}", nearest_mode="{mode}"'
            for where in ("asymmetric", "half_pixel")
            for mode in ("floor", "ceil", "round_prefer_floor", "round_prefer_ceil")
        ),
    ],
)
@pytest.mark.parametrize("scale", [0.01, 0.0123, 1 / 300, 0.1, 1 / 3, 0.457, 2 / 3, 0.7, 2.5, 300.0])
def test_an_open_axis_takes_any_scale(scale: float, how: str) -> None:
    model = model_of(
        f"m (float[1,1,n] x) => (float[1,1,k] y) <float[3] f = {{1.0, 1.0, {scale!r}}}> {{ y = Resize<{how}>(x, , f) }}"
    )
    least = int(np.ceil(1 / scale)) + 1
    loaded = opened(model, {"n": (least, least + 60)})
    for seed, size in enumerate((least, least + 1, least + 17, least + 60)):
        agree_at(loaded, model, {"n": size}, seed, near=1e-6)

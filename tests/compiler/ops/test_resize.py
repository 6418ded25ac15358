from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compiler.ir.kernel import Kernel
from compiler.ops.operator import Unsupported
from compiler.ops.resize import OPERATORS, lines
from tests.compiler.ops.single import Attrs, Shape, agree, by_onnxruntime, check, compare, normal, octets, prepare

(RESIZE,) = OPERATORS
MODES = ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric", "half_pixel_symmetric")
ROUNDINGS = ("floor", "ceil", "round_prefer_floor", "round_prefer_ceil")


def by_scales(x: np.ndarray, *scales: float) -> list[np.ndarray | None]:
    return [x, None, np.array(scales, np.float32)]


def by_sizes(x: np.ndarray, *sizes: int) -> list[np.ndarray | None]:
    return [x, None, None, np.array(sizes, np.int64)]


def pick(arrays: list[np.ndarray | None], attrs: Attrs) -> None:
    """`check`, and ONNX Runtime's choice wherever rounding its f32 coordinate cannot move it to another element."""
    ours = check(RESIZE, arrays, attrs)[0]
    theirs = by_onnxruntime("Resize", arrays, attrs)[0]
    node, inputs, _ = prepare(RESIZE, arrays, attrs, 1)
    assert inputs[0] is not None
    clear = []
    for line in lines(node, inputs[0].shape):
        halves = [2 * (line.slope * place + line.offset) for place in range(line.outputs)]
        exact = all(ratio.denominator & (ratio.denominator - 1) == 0 for ratio in (line.slope, 1 / line.scale))
        clear.append([p for p, half in enumerate(halves) if exact or abs(half - round(half)) > 1e-4])
    np.testing.assert_array_equal(ours[np.ix_(*clear)], theirs[np.ix_(*clear)])


@given(st.sampled_from(MODES), st.sampled_from(ROUNDINGS), st.tuples(*(st.integers(1, 9) for _ in range(4))))
@settings(max_examples=150)
def test_nearest_picks_the_element_that_onnxruntime_picks(mode: str, rounding: str, extents: Shape) -> None:
    arrays = by_sizes(normal(1, 1, 2, *extents[:2]), 1, 2, *extents[2:])
    pick(arrays, {"mode": "nearest", "coordinate_transformation_mode": mode, "nearest_mode": rounding})


@given(st.sampled_from(MODES), st.sampled_from([0.5, 0.6, 0.75, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0]), st.integers(2, 9))
@settings(max_examples=100)
def test_nearest_by_scales_picks_the_element_that_onnxruntime_picks(mode: str, scale: float, extent: int) -> None:
    attrs = {"mode": "nearest", "coordinate_transformation_mode": mode, "nearest_mode": "floor"}
    arrays = by_scales(normal(1, 1, 1, extent, extent), 1, 1, scale, scale)
    if mode == "align_corners" and extent * scale != int(extent * scale):
        check(RESIZE, arrays, attrs)  # ONNX Runtime rounds the resized length first, the standard does not
    else:
        pick(arrays, attrs)


@given(st.sampled_from(MODES), st.sampled_from(["linear", "cubic"]), st.tuples(*(st.integers(1, 9) for _ in range(4))))
@settings(max_examples=150)
def test_interpolation_agrees_with_onnxruntime(mode: str, kind: str, extents: Shape) -> None:
    arrays = by_sizes(normal(1, 1, 2, *extents[:2]), 1, 2, *extents[2:])
    compare(RESIZE, arrays, {"mode": kind, "coordinate_transformation_mode": mode}, rtol=1e-4)


@pytest.mark.parametrize("kind", ["linear", "cubic"])
@pytest.mark.parametrize("sizes", [(3, 4), (5, 9), (12, 3)])
@pytest.mark.parametrize("excluded", [0, 1])
def test_antialiasing_widens_the_kernel_when_shrinking(kind: str, sizes: Shape, excluded: int) -> None:
    x = normal(1, 1, 1, 9, 8)
    wide = check(RESIZE, by_sizes(x, 1, 1, *sizes), {"mode": kind, "antialias": 1, "exclude_outside": excluded})[0]
    plain = check(RESIZE, by_sizes(x, 1, 1, *sizes), {"mode": kind, "exclude_outside": excluded})[0]
    assert not np.allclose(wide, plain)


@pytest.mark.parametrize("kind", ["linear", "cubic"])
def test_weights_outside_the_input_can_be_left_out(kind: str) -> None:
    arrays = by_scales(normal(1, 1, 1, 4, 5), 1, 1, 1.5, 2.0)
    attrs: Attrs = {"mode": kind, "exclude_outside": 1, "cubic_coeff_a": -0.5}
    if kind == "cubic":
        compare(RESIZE, arrays, attrs, rtol=1e-4)
    else:
        np.testing.assert_allclose(check(RESIZE, arrays, attrs)[0], check(RESIZE, arrays, {"mode": kind})[0], atol=1e-5)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_a_region_is_cropped_and_beyond_the_input_extrapolated(mode: str) -> None:
    roi = np.array([0, 0, 0.4, 0.6, 1, 1, 1.2, 1.7], np.float32)
    arrays = [normal(1, 1, 1, 4, 5), roi, None, np.array([1, 1, 3, 3], np.int64)]
    attrs = {"mode": mode, "coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": 10.0}
    y = check(RESIZE, arrays, attrs)[0]
    agree(y, by_onnxruntime("Resize", arrays, attrs)[0], 1e-4)
    assert (y == 10).any()


@pytest.mark.parametrize("policy", ["stretch", "not_larger", "not_smaller"])
def test_axes_and_aspect_ratio(policy: str) -> None:
    arrays: list[np.ndarray | None] = [normal(1, 1, 2, 4, 5), None, None, np.array([7, 6], np.int64)]
    attrs: dict[str, Any] = {"axes": (2, 3), "keep_aspect_ratio_policy": policy, "mode": "linear"}
    compare(RESIZE, arrays, attrs)


@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_volumes_and_lines_are_resized_too(mode: str) -> None:
    compare(RESIZE, by_sizes(normal(1, 1, 1, 3, 4, 5), 1, 1, 6, 3, 7), {"mode": mode})
    compare(RESIZE, by_sizes(normal(1, 2, 2, 4), 2, 2, 7), {"mode": mode})


def test_integers_are_interpolated_in_f32_and_truncated() -> None:
    check(RESIZE, by_scales(octets(1, np.uint8, 1, 1, 4, 4), 1, 1, 2, 2), {"mode": "linear"})


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.int64])
@pytest.mark.parametrize(("kind", "sizes"), [("cubic", (9, 10)), ("cubic", (7, 5)), ("linear", (12, 20))])
def test_an_integer_that_sums_in_f32_miss_by_a_little_is_not_truncated_to_the_one_before(
    kind: str, sizes: Shape, dtype: type[np.generic]
) -> None:
    """Weights add up to 1 only nearly: between equal elements lies their value, and not one less."""
    rng = np.random.default_rng(5)
    most = min(np.iinfo(dtype).max, 2**16)  # type: ignore[type-var]
    ones = np.ones((1, 1, 4, 4), np.int64)
    for x in (rng.integers(0, most, ones.shape), 3 * ones, np.eye(4, dtype=np.int64)[None, None] * 100, most * ones):
        check(RESIZE, by_sizes(x.astype(dtype), 1, 1, *sizes), {"mode": kind})


def test_nearest_by_whole_factors_is_a_division_of_the_index() -> None:
    for mode in ("asymmetric", "half_pixel"):
        attrs = {"mode": "nearest", "nearest_mode": "floor" if mode == "asymmetric" else "round_prefer_floor"}
        arrays = by_scales(normal(1, 1, 3, 4, 4), 1, 1, 2, 2)
        node, _, types = prepare(RESIZE, arrays, {**attrs, "coordinate_transformation_mode": mode}, 1)
        kernel = RESIZE.define(node, types, RESIZE.infer(node, types))
        assert isinstance(kernel, Kernel)
        assert str(kernel.blocks[0].values[0]) == "x0[0, i1, (i2)//2, (i3)//2]"


@pytest.mark.parametrize(
    ("arrays", "attrs", "reason"),
    [
        ([normal(1, 1, 1, 4, 4)], {}, "0 scales and 0 sizes"),
        (by_scales(normal(1, 1, 1, 4, 4), 2, 2), {}, "2 scales"),
        (by_scales(normal(1, 1, 1, 4, 4), 1, 1, -1, 1), {}, "positive"),
        (by_scales(normal(1, 1, 1, 4, 4), 1, 1, 0.1, 1), {}, "no output"),
        (by_scales(normal(1, 1, 1, 4, 4), 1, 1, 2, 2), {"coordinate_transformation_mode": "odd"}, "transformation"),
        (by_sizes(normal(1, 1, 1, 4, 4), 1, 1, 2, 2), {"keep_aspect_ratio_policy": "odd"}, "policy"),
    ],
)
def test_Resize_refuses_what_does_not_fit(arrays: list[np.ndarray | None], attrs: Attrs, reason: str) -> None:
    node, _, types = prepare(RESIZE, arrays, attrs, 1)
    with pytest.raises(Unsupported, match=reason):
        RESIZE.infer(node, types)

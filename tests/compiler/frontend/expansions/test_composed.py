from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from compiler.contract import CompileOptions
from compiler.frontend.load import Loaded, load
from compiler.ops import OPERATORS
from compiler.prove.reference import evaluate_graph
from tests.compiler.frontend.one_node import agree, computed, refusal
from tests.compiler.frontend.open.at_sizes import model_of, opened


def normal(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


INDICES = np.array([5, 7, 13, 15], np.int64).reshape(1, 1, 2, 2)
POOL: dict[str, Any] = {"kernel_shape": [2, 2], "strides": [2, 2]}


def test_MaxUnpool_puts_elements_where_they_came_from() -> None:
    agree("MaxUnpool", [normal(0, 1, 1, 2, 2), INDICES], POOL)


def test_MaxUnpool_fills_a_larger_output_with_zeros() -> None:
    shape = np.array([1, 1, 5, 6], np.int64)
    x = normal(0, 1, 1, 2, 2)
    (y,) = computed("MaxUnpool", [x, INDICES, shape], POOL, constants=[2])
    (small,) = computed("MaxUnpool", [x, INDICES], POOL)
    np.testing.assert_array_equal(y[..., :4, :4], small)
    assert np.count_nonzero(y) == np.count_nonzero(small) == 4


REGIONS = np.array(
    [[0, 0, 0, 8, 6], [1, 2.5, 3.5, 7.4, 6.6], [1, -3, 1, 2, 20], [0, 30, 30, 40, 40], [0, 5, 4, 1, 2]], np.float32
)


@pytest.mark.parametrize(("pooled", "scale"), [((2, 2), 1.0), ((3, 5), 0.5), ((1, 4), 1.0)])
def test_MaxRoiPool_takes_the_largest_of_each_bin_and_zero_of_none(pooled: tuple[int, int], scale: float) -> None:
    x = normal(3, 2, 3, 7, 9)
    (y,) = agree("MaxRoiPool", [x, REGIONS], {"pooled_shape": list(pooled), "spatial_scale": scale})
    if scale == 1.0:
        assert not y[3].any(), "the region lies outside the image"


BOXES = np.array(
    [
        *([0, 0, 7, 7], [1.5, 2.25, 6, 3], [-4, -4, 2, 20], [5, 5, 5.1, 5.2], [30, 30, 40, 40], [-40, -30, 60, 50]),
        *([5, 5, 2, 3], [0, 0, 8, 6], [-3, 0, 90, 6]),
    ],
    np.float32,
)


@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("corners", ["half_pixel", "output_half_pixel"])
@pytest.mark.parametrize(("height", "width", "scale"), [(1, 1, 1.0), (3, 2, 0.75), (2, 4, 1.0)])
def test_RoiAlign_takes_samples_by_the_size_of_a_region(
    mode: str, corners: str, height: int, width: int, scale: float
) -> None:
    """Regions within the image, beyond it, all around it, of no size and turned round."""
    attrs = {"output_height": height, "output_width": width, "spatial_scale": scale, "mode": mode}
    x, images = np.abs(normal(5, 2, 3, 6, 8)), np.array([0, 1, 0, 1, 1, 0, 1, 0, 1])
    (y,) = agree("RoiAlign", [x, BOXES, images], {**attrs, "coordinate_transformation_mode": corners}, opset=16)
    assert y[7].all()
    if scale == 1.0:
        assert not y[4].any(), "the region lies outside the image"


def test_RoiAlign_by_size_takes_images_and_regions_of_any_size() -> None:
    text = "m (float[n,2,h,w] x, float[r,4] b, int64[r] i) => (float[r,2,2,3] y) { y = "
    model = model_of(text + "RoiAlign<output_height=2, output_width=3>(x, b, i) }")
    loaded = opened(model, {"n": (1, 3), "h": (1, 9), "w": (1, 9), "r": (1, 9)})
    for n, h, w, r in ((2, 6, 8, 9), (1, 9, 9, 1), (3, 1, 4, 5)):
        x, boxes, images = np.abs(normal(r, n, 2, h, w)), BOXES[:r], np.arange(r) % n
        static = load(model, CompileOptions(dims={"n": n, "h": h, "w": w, "r": r}), OPERATORS).graph
        wanted = evaluate_graph(static, dict(zip(static.inputs, (x, boxes, images), strict=True)), OPERATORS)
        np.testing.assert_allclose(
            at_capacity(loaded, x, boxes, images)[:r], wanted[static.outputs[0]], rtol=1e-5, atol=1e-6
        )


def test_MaxRoiPool_takes_images_and_regions_of_any_size() -> None:
    text = "m (float[n,2,h,w] x, float[r,5] b) => (float[r,2,2,3] y) { y = MaxRoiPool<pooled_shape=[2,3]>(x, b) }"
    model = model_of(text)
    loaded = opened(model, {"n": (1, 3), "h": (1, 12), "w": (1, 12), "r": (1, 6)})
    for seed, (n, h, w, r) in enumerate([(2, 12, 12, 6), (1, 5, 9, 3), (3, 3, 1, 1)]):
        static = load(model, CompileOptions(dims={"n": n, "h": h, "w": w, "r": r}), OPERATORS).graph
        random = np.random.default_rng(seed)
        ends = np.concatenate([random.uniform(-2, 6, (r, 2)), random.uniform(2, 14, (r, 2))], 1)
        x = -random.uniform(1, 2, (n, 2, h, w)).astype(np.float32)
        b = np.column_stack([random.integers(0, n, r), ends]).astype(np.float32)
        wanted = evaluate_graph(static, dict(zip(static.inputs, (x, b), strict=True)), OPERATORS)[static.outputs[0]]
        np.testing.assert_array_equal(at_capacity(loaded, x, b)[:r], wanted)


def at_capacity(loaded: Loaded, *arrays: np.ndarray) -> np.ndarray:
    """The first output of a model with open dimensions, whose inputs are filled up with zeros."""
    graph, shapes = loaded.graph, loaded.open_shapes
    assert shapes is not None
    given: dict[int, np.ndarray] = {}
    for id, array, axes in zip(graph.inputs, arrays, shapes.inputs, strict=False):
        given[id] = np.zeros(graph.type(id).dims, array.dtype)
        given[id][tuple(map(slice, array.shape))] = array
        sizes = {
            graph.inputs[len(arrays) + of]: np.array(array.shape[at]) for at, of in enumerate(axes) if of is not None
        }
        given |= sizes
    return evaluate_graph(graph, given, OPERATORS)[graph.outputs[0]]


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_Det_of_matrices_in_a_batch(rows: int) -> None:
    x = normal(rows, 2, 4, rows, rows)
    np.testing.assert_allclose(computed("Det", [x])[0], np.linalg.det(x.astype(np.float64)), rtol=1e-4, atol=1e-5)


def test_BatchNormalization_in_training_form_takes_the_statistics_of_the_batch() -> None:
    x, scale, bias, mean, variance = (
        normal(0, 2, 3, 4, 5),
        *(normal(at, 3) for at in (1, 2, 3)),
        np.ones(3, np.float32),
    )
    attrs = {"training_mode": 1, "momentum": 0.75, "epsilon": 1e-3}
    y, new_mean, new_variance = computed("BatchNormalization", [x, scale, bias, mean, variance], attrs, 3)
    own_mean, own_variance = x.mean((0, 2, 3)), x.var((0, 2, 3))
    wide = (slice(None), None, None)
    right = (x - own_mean[wide]) / np.sqrt(own_variance[wide] + 1e-3) * scale[wide] + bias[wide]
    np.testing.assert_allclose(y, right, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(new_mean, 0.75 * mean + 0.25 * own_mean, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(new_variance, 0.75 + 0.25 * own_variance, rtol=1e-5)


SHAPES = {"strides": [2, 1], "dilations": [1, 2], "pads": [1, 0, 2, 3]}


def test_DeformConv_that_moves_nothing_is_a_Conv() -> None:
    x, w, b = normal(0, 2, 4, 7, 9), normal(1, 6, 2, 3, 2), normal(2, 6)
    (right,) = computed("Conv", [x, w, b], {**SHAPES, "group": 2})
    offset = np.zeros((2, 2 * 3 * 2 * 2, *right.shape[2:]), np.float32)
    (y,) = computed("DeformConv", [x, w, offset, b], {**SHAPES, "group": 2, "offset_group": 2})
    np.testing.assert_allclose(y, right, rtol=1e-4, atol=1e-5)


def sampled(image: np.ndarray, row: float, column: float) -> float:
    """An element between elements; those outside the image are 0."""
    total = 0.0
    for at_row in (int(np.floor(row)), int(np.floor(row)) + 1):
        for at_column in (int(np.floor(column)), int(np.floor(column)) + 1):
            if 0 <= at_row < image.shape[0] and 0 <= at_column < image.shape[1]:
                weight = (1 - abs(row - at_row)) * (1 - abs(column - at_column))
                total += weight * float(image[at_row, at_column])
    return total


def test_DeformConv_reads_beside_its_places_under_a_mask() -> None:
    x, w = normal(0, 1, 4, 5, 6), normal(1, 2, 4, 2, 2)
    offset, mask = 1.5 * normal(2, 1, 2 * 4 * 2, 4, 5), normal(3, 1, 2 * 4, 4, 5)
    (y,) = computed("DeformConv", [x, w, offset, None, mask], {"offset_group": 2})
    right = np.zeros((2, 4, 5))
    for channel in range(4):
        group = channel // 2
        for tap in range(4):
            for row, column in np.ndindex(4, 5):
                down, across = offset[0, group * 8 + 2 * tap : group * 8 + 2 * tap + 2, row, column]
                read = sampled(x[0, channel], row + tap // 2 + float(down), column + tap % 2 + float(across))
                right[:, row, column] += w[:, channel, tap // 2, tap % 2] * read * mask[0, group * 4 + tap, row, column]
    np.testing.assert_allclose(y[0], right, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("op", "arrays", "attrs", "said"),
    [
        ("Det", [normal(0, 4, 4)], {}, "at most 3 rows"),
        ("Det", [normal(0, 2, 3)], {}, "no square matrices"),
        ("MaxRoiPool", [normal(0, 1, 1, 2, 2), REGIONS[:, 1:]], {"pooled_shape": [2, 2]}, "do not fit"),
        ("MaxUnpool", [normal(0, 1, 1, 2, 2), INDICES[..., :1]], POOL, "cannot be spread"),
        (
            "DeformConv",
            [normal(0, 1, 1, 4, 4), normal(1, 1, 1, 2, 2), normal(2, 1, 8, 4, 4)],
            {},
            "do not fit together",
        ),
        (
            "DeformConv",
            [normal(0, 1, 1, 4, 4), normal(1, 1, 1, 2, 2), normal(2, 1, 6, 3, 3)],
            {},
            "do not fit together",
        ),
    ],
)
def test_what_does_not_fit_is_refused(op: str, arrays: list[Any], attrs: dict[str, Any], said: str) -> None:
    assert said in refusal(op, arrays, attrs).reason

from __future__ import annotations

import numpy as np
import pytest

from compiler.ir.tensor import DType, TensorType
from compiler.ops.grid_sample import OPERATORS
from compiler.ops.operator import Unsupported
from tests.compiler.ops.single import check, compare, normal, prepare

(SAMPLE,) = OPERATORS


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("align", [0, 1])
def test_GridSample_agrees_with_onnxruntime(mode: str, padding: str, align: int) -> None:
    grid = np.random.default_rng(2).uniform(-1.6, 1.6, (2, 5, 6, 2)).astype(np.float32)
    attrs = {"mode": mode, "padding_mode": padding, "align_corners": align}
    compare(SAMPLE, [normal(1, 2, 3, 4, 7), grid], attrs, rtol=1e-4)


@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
def test_volumes_are_sampled_too(mode: str, padding: str) -> None:
    grid = np.random.default_rng(2).uniform(-1.4, 1.4, (1, 3, 2, 4, 3)).astype(np.float32)
    compare(SAMPLE, [normal(1, 1, 2, 3, 4, 5), grid], {"mode": mode, "padding_mode": padding}, rtol=1e-4)


def test_no_coordinate_leaves_the_image() -> None:
    grid = np.array([np.inf, -np.inf, 1e30, -1e30, 0.0, np.nan, 1.0, -1.0], np.float32).reshape(1, 2, 2, 2)
    from compiler.ir.evaluate import evaluate
    from compiler.ir.kernel import Kernel

    for mode in ("nearest", "linear"):
        for padding in ("zeros", "border", "reflection"):
            x = normal(1, 1, 1, 3, 3)
            node, _, types = prepare(SAMPLE, [x, grid], {"mode": mode, "padding_mode": padding}, 1)
            kernel = SAMPLE.define(node, types, SAMPLE.infer(node, types))
            assert isinstance(kernel, Kernel)
            assert evaluate(kernel, [x, grid])[0].shape == (1, 1, 2, 2)


def test_an_image_of_one_element_is_sampled() -> None:
    grid = np.zeros((1, 1, 1, 2), np.float32)
    for align in (0, 1):
        attrs = {"padding_mode": "reflection", "align_corners": align}
        assert check(SAMPLE, [np.full((1, 1, 1, 1), 3.0, np.float32), grid], attrs)[0].tolist() == [[[[3.0]]]]


@pytest.mark.parametrize(
    ("grid", "attrs", "reason"),
    [
        ((1, 2, 2, 3), {}, "does not fit"),
        ((2, 2, 2, 2), {}, "does not fit"),
        ((1, 2, 2, 2), {"mode": "odd"}, "mode"),
        ((1, 2, 2, 2), {"padding_mode": "odd"}, "padding_mode"),
    ],
)
def test_GridSample_refuses_what_does_not_fit(grid: tuple[int, ...], attrs: dict[str, str], reason: str) -> None:
    node, _, _ = prepare(SAMPLE, [normal(1, 1, 1, 3, 3), np.zeros(grid, np.float32)], attrs, 1)
    with pytest.raises(Unsupported, match=reason):
        SAMPLE.infer(node, (TensorType(DType.F32, (1, 1, 3, 3)), TensorType(DType.F32, grid)))

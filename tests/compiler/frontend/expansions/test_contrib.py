"""Operators of com.microsoft on images and of no group: beside ONNX Runtime where its CPU has them, else numpy."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from compiler.frontend.expansions.contrib import CONTRIB, REFUSED
from tests.compiler.frontend.one_node import by_onnxruntime, computed, refusal

MS = "com.microsoft"
Arrays = list[np.ndarray | None]


def normal(*shape: int, seed: int = 3) -> np.ndarray:
    return np.random.default_rng((seed, *shape)).standard_normal(shape).astype(np.float32)


IMAGES = normal(2, 3, 7, 9)
ROIS = np.array([[0, 0, 1, 1], [0.2, 0.7, 0.9, 0.1], [-0.5, 0.25, 1.25, 0.75], [0.5, 0.5, 0.5, 0.5]], np.float32)
WHOSE = np.array([0, 1, 1, 0], np.int32)
IDS = np.array([[1, 2, 3, 1, 2, 4, 1, 2], [5, 5, 5, 5, 6, 5, 6, 5]])
GRID = np.clip(normal(2, 4, 5, 2), -1.2, 1.2)
SQUARE = normal(5, 4, 4, seed=8) + 2 * np.eye(4, dtype=np.float32)

CASES: tuple[tuple[str, Arrays, Mapping[str, Any], int, tuple[int, ...]], ...] = (
    ("CropAndResize", [IMAGES, ROIS, WHOSE, np.array([4, 5], np.int32)], {"extrapolation_value": 7.0}, 1, (3,)),
    ("CropAndResize", [IMAGES, ROIS, WHOSE, np.array([3, 1], np.int32)], {"mode": "nearest"}, 1, (3,)),
    ("CropAndResize", [IMAGES, ROIS[:1], WHOSE[:1], np.array([1, 2], np.int32)], {}, 1, (3,)),
    ("ConvTransposeWithDynamicPads", [IMAGES, normal(3, 4, 3, 3), np.array([1, 0, 0, 1]), normal(4)], {}, 1, (2,)),
    ("CDist", [normal(5, 4), normal(3, 4)], {"metric": "euclidean"}, 1, ()),
    ("CDist", [normal(5, 4), normal(3, 4)], {"metric": "sqeuclidean"}, 1, ()),
    ("ExpandDims", [normal(3, 4), np.array(1, np.int32)], {}, 1, (1,)),
    ("ExpandDims", [normal(3, 4), np.array(-1, np.int32)], {}, 1, (1,)),
    ("GatherND", [normal(3, 4), np.array([[0, 1], [2, 3]])], {}, 1, ()),
    ("GridSample", [IMAGES, GRID], {"mode": "bicubic", "align_corners": 1}, 1, ()),
    ("GridSample", [IMAGES, GRID], {"padding_mode": "border"}, 1, ()),
    ("Inverse", [SQUARE], {}, 1, ()),
    ("Inverse", [SQUARE[:, :3, 1:]], {}, 1, ()),
    ("Inverse", [SQUARE[:, 2:, 2:]], {}, 1, ()),
    ("Inverse", [np.array([[4.0]], np.float32)], {}, 1, ()),
    ("NGramRepeatBlock", [IDS, normal(2, 9)], {"ngram_size": 3}, 1, ()),
    ("NGramRepeatBlock", [IDS, normal(2, 9)], {"ngram_size": 1}, 1, ()),
    ("NGramRepeatBlock", [IDS, normal(2, 9)], {"ngram_size": 9}, 1, ()),
    ("Pad", [normal(2, 3), np.array([0, 1, 2, 0]), np.array([0.5], np.float32)], {}, 1, (1, 2)),
    ("Pad", [normal(2, 3), np.array([[0, 1, 1, 0]])], {"mode": "reflect"}, 1, (1,)),
    ("Range", [np.array(1.0, np.float32), np.array(4.0, np.float32)], {}, 1, (0, 1)),
    ("SampleOp", [normal(2, 3)], {}, 1, ()),
    ("Unique", [np.array([2, 1, 1, 3, 4, 3], np.float32)], {}, 3, (0,)),
    ("MurmurHash3", [np.array([0, 1, -7, 2**31 - 1], np.int32)], {"seed": 42}, 1, ()),
    ("MurmurHash3", [np.array([0, 1, 7, 2**32 - 1], np.uint32)], {"positive": 0}, 1, ()),
    ("MurmurHash3", [np.array([0, 1, -7, 2**40 + 3])], {"seed": 1}, 1, ()),
    ("MurmurHash3", [normal(5)], {}, 1, ()),
)


@pytest.mark.parametrize("at", range(len(CASES)), ids=[f"{case[0]}-{at}" for at, case in enumerate(CASES)])
def test_it_is_what_onnxruntime_computes(at: int) -> None:
    op, arrays, attrs, outputs, constants = CASES[at]
    found = computed(op, arrays, attrs, outputs, MS, constants=constants)
    wanted = by_onnxruntime(op, arrays, attrs, outputs, MS, constants=constants)
    for ours, theirs in zip(found, wanted, strict=True):
        assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("op", "attrs"),
    [
        ("QLinearGlobalAveragePool", {}),
        ("QLinearAveragePool", {"kernel_shape": [2, 3], "strides": [2, 1], "pads": [0, 1, 0, 1]}),
    ],
)
def test_pools_of_bytes_whose_channels_lie_last(op: str, attrs: Mapping[str, Any]) -> None:
    """Up to one step, since a mean may lie between two of them."""
    x = np.random.default_rng(0).integers(0, 256, (2, 6, 5, 3)).astype(np.uint8)
    scales = [np.array(value, np.float32) for value in (0.03, 0.02)]
    arrays: Arrays = [x, scales[0], np.array(120, np.uint8), scales[1], np.array(100, np.uint8)]
    (ours,) = computed(op, arrays, {**attrs, "channels_last": 1}, 1, MS)
    (theirs,) = by_onnxruntime(op, arrays, {**attrs, "channels_last": 1}, 1, MS)
    assert ours.shape == theirs.shape
    assert np.abs(ours.astype(int) - theirs.astype(int)).max() <= 1


def test_real_transforms_and_back() -> None:
    x = normal(3, 10)
    (bins,) = computed("Rfft", [x], {"signal_ndim": 1, "normalized": 0, "onesided": 1}, 1, MS)
    wanted = np.fft.rfft(x.astype(np.float64))
    np.testing.assert_allclose(bins, np.stack([wanted.real, wanted.imag], -1), rtol=1e-5, atol=1e-5)
    (back,) = computed("Irfft", [bins], {"signal_ndim": 1, "normalized": 0, "onesided": 1}, 1, MS)
    np.testing.assert_allclose(back, x, rtol=1e-5, atol=1e-5)


def test_halves_are_gated_by_gelu() -> None:
    x, bias = normal(2, 3, 8), normal(8)
    (y,) = computed("BiasSplitGelu", [x, bias], {}, 1, MS)
    left, right = np.split((x + bias).astype(np.float64), 2, axis=-1)
    wanted = left * right * 0.5 * (1 + np.vectorize(math.erf)(right / math.sqrt(2)))
    np.testing.assert_allclose(y, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("adds", [False, True])
def test_groups_of_channels_that_lie_last_are_normalised(adds: bool) -> None:
    x, gamma, beta = normal(2, 3, 5, 8), 1 + 0.1 * normal(8), normal(8, seed=5)
    skip, bias = normal(2, 8), normal(8, seed=6)
    attrs = {"groups": 4, "activation": 1, "epsilon": 1e-4}
    more: Arrays = [skip, bias] if adds else []
    found = computed("SkipGroupNorm" if adds else "GroupNorm", [x, gamma, beta, *more], attrs, 1 + adds, MS)
    total = x.astype(np.float64) + (skip[:, None, None] + bias if adds else 0)
    apart = total.reshape(2, 15, 4, 2)
    centred = apart - apart.mean(axis=(1, 3), keepdims=True)
    normed = centred / np.sqrt((centred**2).mean(axis=(1, 3), keepdims=True) + 1e-4)
    y = normed.reshape(total.shape) * gamma + beta
    np.testing.assert_allclose(found[0], y / (1 + np.exp(-y)), rtol=1e-4, atol=1e-5)
    assert len(found) == 1 + adds
    if adds:
        np.testing.assert_allclose(found[1], total, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("op", sorted(REFUSED))
def test_what_no_program_can_do_is_refused_with_the_reason(op: str) -> None:
    assert op not in CONTRIB
    found = refusal(op, [normal(2, 3)], {}, 1, MS)
    assert (found.reason, found.fix) == REFUSED[op]


@pytest.mark.parametrize(
    ("op", "arrays", "attrs", "reason"),
    [
        ("SparseAttention", [normal(2, 3)], {}, "the operator is not known in domain 'com.microsoft'"),
        ("Inverse", [normal(5, 5)], {}, "no square matrices of at most 4 rows"),
        ("CDist", [normal(5, 4), normal(3, 4)], {"metric": "cosine"}, "'cosine'"),
        ("CropAndResize", [IMAGES, ROIS, WHOSE, np.array([4, 5], np.int32)], {}, "'crop_size' must be known"),
        ("MurmurHash3", [np.zeros(3, np.int16)], {}, "2 bytes"),
        ("Rfft", [normal(4, 4)], {"signal_ndim": 2}, "(2, 0, 1)"),
        ("GroupNorm", [normal(2, 3, 5, 8), normal(8), normal(8)], {"groups": 4, "activation": 3}, "its activation"),
        ("NGramRepeatBlock", [IDS, normal(3, 9)], {"ngram_size": 3}, "do not fit together"),
    ],
)
def test_what_is_not_understood_is_refused(op: str, arrays: Arrays, attrs: Mapping[str, Any], reason: str) -> None:
    assert reason in refusal(op, arrays, attrs, 1, MS).reason

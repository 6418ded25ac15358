from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from compiler.frontend.expansions.spectra import DIRECT
from tests.compiler.frontend.one_node import computed, graph_of, model_of, refusal
from tests.compiler.frontend.open.at_sizes import agree_at, opened
from tests.compiler.frontend.open.at_sizes import model_of as open_model


def signal(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


def number(value: int) -> np.ndarray:
    return np.array(value, np.int64)


def whole(x: np.ndarray) -> np.ndarray:
    """Complex numbers from pairs, or from real parts alone."""
    return x[..., 0].astype(np.complex128) + (1j * x[..., 1] if x.shape[-1] == 2 else 0)


def pairs(z: np.ndarray) -> np.ndarray:
    return np.stack([z.real, z.imag], -1)


def dft(x: np.ndarray, length: int | None = None, axis: int | None = None, **attrs: Any) -> np.ndarray:
    given = [x, None if length is None else number(length), None if axis is None else number(axis)]
    (y,) = computed("DFT", given, attrs, constants=[at for at in (1, 2) if given[at] is not None])
    return y


def near(ours: np.ndarray, right: np.ndarray) -> None:
    assert (ours.dtype, ours.shape) == (np.dtype(np.float32), right.shape)
    np.testing.assert_allclose(ours, right, atol=2e-5 * np.abs(right).max())


LENGTHS = [1, 2, 3, 8, 12, 17, DIRECT, 2 * DIRECT, 3 * 5 * 7 * 4, 2 * 257, 521]
"""Powers of two, others, primes, and lengths past DIRECT with and without factors."""


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("parts", [1, 2])
def test_a_transform_is_that_of_numpy_both_ways(length: int, parts: int) -> None:
    x = signal(2, length, parts)
    near(dft(x), pairs(np.fft.fft(whole(x), axis=1)))
    near(dft(x, inverse=1), pairs(np.fft.ifft(whole(x), axis=1)))


@pytest.mark.parametrize("length", LENGTHS)
def test_of_a_real_signal_the_bins_to_the_middle_are_enough(length: int) -> None:
    x = signal(2, length, 1)
    half = pairs(np.fft.rfft(x[..., 0], axis=1)).astype(np.float32)
    near(dft(x, onesided=1), half)
    near(dft(half, length, inverse=1, onesided=1), np.fft.irfft(whole(half), length, axis=1)[..., None])


@pytest.mark.parametrize("length", [3, 8, 12, 300, 600])
def test_a_signal_is_cut_or_filled_up_to_the_length(length: int) -> None:
    x = signal(2, 10 if length < 300 else 450, 2)
    near(dft(x, length), pairs(np.fft.fft(whole(x), length, axis=1)))
    near(dft(x, length, inverse=1, onesided=1), np.fft.irfft(whole(x), length, axis=1)[..., None])


@pytest.mark.parametrize("axis", [0, 1, 2, -2, -3])
def test_a_transform_along_any_axis_but_the_last(axis: int) -> None:
    x = signal(3, 4, 5, 2)
    near(dft(x, axis=axis), pairs(np.fft.fft(whole(x), axis=axis % 4)))


@pytest.mark.parametrize(("parts", "onesided"), [(1, 0), (1, 1), (2, 0)])
def test_STFT_transforms_frames_times_the_window(parts: int, onesided: int) -> None:
    x, window = signal(2, 50, parts), signal(16)
    (y,) = computed("STFT", [x, number(5), window], {"onesided": onesided}, constants=[1])
    frames = np.stack([whole(x)[:, at : at + 16] for at in range(0, 50 - 16 + 1, 5)], 1) * window
    bins = np.fft.fft(frames, axis=2)[:, :, : 9 if onesided else 16]
    near(y, pairs(bins))


def test_STFT_of_a_signal_without_parts_is_that_of_real_numbers() -> None:
    x, window = signal(2, 23, 1), signal(8)
    (right,) = computed("STFT", [x, number(5), window], {}, constants=[1])
    (y,) = computed("STFT", [x[:, :, 0], number(5), window], {}, constants=[1])
    np.testing.assert_array_equal(y, right)


def test_STFT_without_a_window_takes_the_frame_length() -> None:
    x = signal(1, 20, 1)
    (y,) = computed("STFT", [x, number(4), None, number(8)], {}, constants=[1, 3])
    near(y, pairs(np.fft.rfft(np.stack([x[:, at : at + 8, 0] for at in range(0, 13, 4)], 1), axis=2)))


@pytest.mark.parametrize(
    ("op", "given", "said"),
    [
        ("DFT", [signal(2, 8, 3)], "holds no complex numbers"),
        ("DFT", [signal(2, 8, 1), number(0)], "a transform of 0 numbers"),
        ("DFT", [signal(2, 8, 1), None, number(2)], "axis 2 of"),
        ("DFT", [signal(1, 10007, 1)], "whose factors are too large"),
        ("STFT", [signal(1, 8, 1), number(4), signal(9)], "do not fit"),
        ("STFT", [signal(1, 8, 1), number(0), signal(4)], "do not fit"),
    ],
)
def test_what_cannot_be_transformed_is_refused(op: str, given: list[Any], said: str) -> None:
    fixed = [at for at, array in enumerate(given) if at and array is not None and array.dtype == np.int64]
    assert said in refusal(op, given, {}, constants=fixed).reason


def test_a_length_that_is_computed_at_run_time_is_refused_naming_its_option() -> None:
    found = refusal("DFT", [signal(2, 8, 1), number(4)], {})
    assert found.reason.startswith("input 'dft_length' must be known when compiling")
    assert '{"inputs": {"x1": {"value": ...}}}' in found.fix


def test_a_long_transform_is_made_of_short_products() -> None:
    graph = graph_of(model_of("DFT", [signal(1, 4096, 2)]))
    products = [node for node in graph.nodes if node.op == "MatMul"]
    assert len(products) == 2
    assert max(graph.type(id).elements for node in products for id in node.inputs[1:] if id is not None) == 4 * 64**2


def test_a_signal_of_any_length_is_cut_into_frames() -> None:
    model = open_model(
        """m (float[2,n,1] x, float[8] w) => (float[2,f,5,2] y, float[2,g,k,2] z)
        <int64 step = {3}, int64 length = {8}> {
            y = STFT(x, step, w) z = STFT<onesided=0>(x, length, , length)
        }"""
    )
    loaded = opened(model, {"n": (8, 30)})
    for size in (8, 10, 11, 23, 30):
        agree_at(loaded, model, {"n": size}, seed=size)

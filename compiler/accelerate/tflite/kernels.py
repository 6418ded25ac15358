"""The int8 operators that are written here, in numpy, by TFLite's names: what its reference kernels compute.

Each takes the operator's options, its operands and the tensor of its result, and gives that tensor's bytes. Activations
have channels last. Real multipliers are computed in the floats in which TFLite computes them, since the last bit
decides: in float64 of float32 scales for convolutions, in float32 for products and activations (`rounding` has the
rest). All are equal to LiteRT's bit for bit on what `tests/compiler/accelerate/tflite/test_reference.py` draws.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from compiler.accelerate.tflite.flatbuffer import NONE, RELU6, SAME, Tensor
from compiler.accelerate.tflite.rounding import (
    HIGH,
    LOW,
    away,
    double,
    high_product,
    quantised,
    scaled,
    shifted,
    single,
    stored,
)

Options = Mapping[str, Any]
F = np.float32
FRACTION = 20
"""Bits by which Add and Sub shift their operands before they are scaled."""
HALF_ROOT = 1518500250
"""sqrt(2) / 2 in 2^-31."""
GRID = 10
"""Bits of the fraction of a coordinate of RESIZE_BILINEAR."""


class Operand(NamedTuple):
    """Elements of a tensor, and what says what they stand for."""

    array: np.ndarray
    tensor: Tensor

    @property
    def scale(self) -> np.float32:
        """The first, where there are several."""
        return F(self.tensor.scales[0])

    @property
    def steps(self) -> np.ndarray:
        """Elements without the zero point."""
        return self.array.astype(np.int64) - self.tensor.zero


Kernel = Callable[[Options, Sequence[Operand], Tensor], np.ndarray]


def ends(options: Options, out: Tensor) -> tuple[int, int]:
    """What a fused activation leaves of the bytes."""
    kind = options.get("activation", NONE)
    if kind == NONE:
        return LOW, HIGH
    return max(LOW, out.zero), _six(out) if kind == RELU6 else HIGH


def _six(out: Tensor) -> int:
    return min(HIGH, out.zero + int(away(F(6) / F(out.scales[0]))))


def _of_channels(x: Operand, weights: Operand, out: Tensor) -> np.ndarray:
    scales = np.asarray(weights.tensor.scales, F).astype(np.float64)
    return np.asarray(np.float64(x.scale) * scales / np.float64(F(out.scales[0])))


def _windows(x: np.ndarray, kernel: tuple[int, int], options: Options, fill: int) -> np.ndarray:
    """N, H, W, C, kh, kw: under each position of the result the elements of its window."""
    strides = options["stride_h"], options["stride_w"]
    dilations = options.get("dilation_h", 1), options.get("dilation_w", 1)
    spans = [(size - 1) * by + 1 for size, by in zip(kernel, dilations, strict=True)]
    if options["padding"] == SAME:
        sizes = x.shape[1:3]
        totals = [max((-(-sizes[at] // strides[at]) - 1) * strides[at] + spans[at] - sizes[at], 0) for at in (0, 1)]
        pads = [(total // 2, total - total // 2) for total in totals]
        x = np.pad(x, [(0, 0), *pads, (0, 0)], constant_values=fill)
    found = np.lib.stride_tricks.sliding_window_view(x, spans, (1, 2))
    return np.asarray(found[:, :: strides[0], :: strides[1], :, :: dilations[0], :: dilations[1]])


def _products(equation: str, *arrays: np.ndarray) -> np.ndarray:
    """Exact sums of products of bytes: in float64, whose integers reach 2^53."""
    sums = np.einsum(equation, *(one.astype(np.float64) for one in arrays), optimize=True)
    return np.asarray(np.rint(sums), np.int64)


def conv(options: Options, operands: Sequence[Operand], out: Tensor) -> np.ndarray:
    """Weights O, kh, kw, I with a scale for each O."""
    x, weights, bias = operands
    patches = _windows(x.steps, weights.array.shape[1:3], options, 0)
    sums = _products("nhwcij,oijc->nhwo", patches, weights.array) + bias.array
    return stored(double(sums, _of_channels(x, weights, out)), out.zero, *ends(options, out))


def depthwise(options: Options, operands: Sequence[Operand], out: Tensor) -> np.ndarray:
    """Weights 1, kh, kw, C m: m results of each of C channels lie next to each other."""
    x, weights, bias = operands
    patches = _windows(x.steps, weights.array.shape[1:3], options, 0)
    filters = weights.array[0].reshape(*weights.array.shape[1:3], patches.shape[3], -1)
    sums = _products("nhwcij,ijcm->nhwcm", patches, filters)
    sums = sums.reshape(*sums.shape[:3], -1) + bias.array
    return stored(double(sums, _of_channels(x, weights, out)), out.zero, *ends(options, out))


def transpose_conv(options: Options, operands: Sequence[Operand], out: Tensor) -> np.ndarray:
    """Weights O, kh, kw, I; without padding."""
    _, weights, x, bias = operands
    kernel, strides = weights.array.shape[1:3], (options["stride_h"], options["stride_w"])
    sums = np.zeros(out.shape, np.int64)
    h, w = x.array.shape[1:3]
    for row in range(kernel[0]):
        for column in range(kernel[1]):
            made = _products("nhwc,oc->nhwo", x.steps, weights.array[:, row, column])
            rows = slice(row, row + (h - 1) * strides[0] + 1, strides[0])
            columns = slice(column, column + (w - 1) * strides[1] + 1, strides[1])
            sums[:, rows, columns] += made
    return stored(double(sums + bias.array, _of_channels(x, weights, out)), out.zero, *ends(options, out))


def dense(options: Options, operands: Sequence[Operand], out: Tensor) -> np.ndarray:
    """Weights O, I, with a scale for each O or one, whose product with that of the operand is then one of float32."""
    x, weights, bias = operands
    sums = _products("...i,oi->...o", x.steps, weights.array) + bias.array
    real = _of_channels(x, weights, out)
    if len(weights.tensor.scales) == 1:
        real = np.asarray(np.float64(x.scale * weights.scale) / np.float64(F(out.scales[0])))
    return stored(single(sums, real), out.zero, *ends(options, out)).reshape(out.shape)


def batch_matmul(options: Options, operands: Sequence[Operand], out: Tensor) -> np.ndarray:
    """Matrices in the last two axes."""
    a, b = operands
    sums = np.rint(np.matmul(a.steps.astype(np.float64), b.steps.astype(np.float64))).astype(np.int64)
    return stored(double(sums, np.float64(a.scale * b.scale) / np.float64(F(out.scales[0]))), out.zero)


def add(sign: int) -> Kernel:
    """Both operands in 2^-20 of twice the larger scale, then in that of the result: three roundings."""

    def run(options: Options, operands: Sequence[Operand], out: Tensor) -> np.ndarray:
        a, b = operands
        twice = 2 * np.float64(max(a.scale, b.scale))
        left, right = (double(one.steps << FRACTION, np.float64(one.scale) / twice) for one in (a, b))
        real = twice / (np.float64(1 << FRACTION) * np.float64(F(out.scales[0])))
        return stored(double(left + sign * right, real), out.zero, *ends(options, out))

    return run


def mul(options: Options, operands: Sequence[Operand], out: Tensor) -> np.ndarray:
    """The multiplier is computed in float32."""
    a, b = operands
    real = np.float64(a.scale * b.scale / F(out.scales[0]))
    return stored(double(a.steps * b.steps, real), out.zero, *ends(options, out))


def max_pool(options: Options, operands: Sequence[Operand], out: Tensor) -> np.ndarray:
    """Exact."""
    (x,) = operands
    kernel = options["filter_height"], options["filter_width"]
    return stored(_windows(x.array, kernel, options, LOW).max((-1, -2)), 0, *ends(options, out))


def average_pool(options: Options, operands: Sequence[Operand], out: Tensor) -> np.ndarray:
    """The mean of bytes, half away from zero; what lies beyond the border is not counted."""
    (x,) = operands
    kernel = options["filter_height"], options["filter_width"]
    sums = _windows(x.array.astype(np.int64), kernel, options, 0).sum((-1, -2))
    count = _windows(np.ones(x.array.shape, np.int64), kernel, options, 0).sum((-1, -2))
    means = np.where(sums > 0, (sums + count // 2) // count, -((-sums + count // 2) // count))
    return stored(means, 0, *ends(options, out))


def mean(options: Options, operands: Sequence[Operand], out: Tensor) -> np.ndarray:
    """The sum times one multiplier, which carries the scales and, by integer division, 1 / count."""
    x, axes = operands
    over = tuple(int(axis) for axis in axes.array.reshape(-1))
    count = math.prod(x.array.shape[axis] for axis in over)
    multiplier, shift = (int(one) for one in quantised(np.float64(x.scale) / np.float64(F(out.scales[0]))))
    up = min(count.bit_length() - 1, 32, 31 + shift)
    made = scaled(x.steps.sum(over), (multiplier << up) // count, shift - up)
    return stored(made, out.zero).reshape(out.shape)


def requantise(options: Options, operands: Sequence[Operand], out: Tensor) -> np.ndarray:
    """In another scale."""
    (x,) = operands
    return stored(double(x.steps, np.float64(x.scale) / np.float64(F(out.scales[0]))), out.zero)


def relu(most: bool) -> Kernel:
    """At most 6 with `most`."""

    def run(options: Options, operands: Sequence[Operand], out: Tensor) -> np.ndarray:
        (x,) = operands
        made = double(x.steps, np.float64(x.scale / F(out.scales[0])))
        return stored(made, out.zero, max(LOW, out.zero), _six(out) if most else HIGH)

    return run


def absolute(options: Options, operands: Sequence[Operand], out: Tensor) -> np.ndarray:
    """In the scale of the result."""
    (x,) = operands
    size = np.abs(x.steps)
    return stored(size if x.scale == F(out.scales[0]) else double(size, x.scale / F(out.scales[0])), out.zero)


def leaky_relu(options: Options, operands: Sequence[Operand], out: Tensor) -> np.ndarray:
    """One multiplier above zero and one below."""
    (x,) = operands
    same = x.scale / F(out.scales[0])
    below = x.scale * F(options["alpha"]) / F(out.scales[0])
    return stored(np.where(x.steps >= 0, double(x.steps, same), double(x.steps, below)), out.zero)


def prelu(options: Options, operands: Sequence[Operand], out: Tensor) -> np.ndarray:
    """With slopes that broadcast with the operand."""
    x, slopes = operands
    same = x.scale / F(out.scales[0])
    below = x.scale * slopes.scale / F(out.scales[0])
    return stored(np.where(x.steps >= 0, double(x.steps, same), double(x.steps * slopes.steps, below)), out.zero)


def table(function: Callable[[np.ndarray], np.ndarray]) -> Kernel:
    """A function of one number, in float32 for each of the 256 bytes, half away from zero."""

    def run(options: Options, operands: Sequence[Operand], out: Tensor) -> np.ndarray:
        (x,) = operands
        real = (x.scale * (np.arange(LOW, HIGH + 1) - x.tensor.zero).astype(F)).astype(F)
        made = stored(away(np.asarray(function(real), F) * (F(1) / F(out.scales[0]))), out.zero)
        return made[x.array.astype(np.int64) - LOW]

    return run


def _gelu(options: Options, operands: Sequence[Operand], out: Tensor) -> np.ndarray:
    def exact(x: np.ndarray) -> np.ndarray:
        return np.array([0.5 * one * (1 + math.erf(one / math.sqrt(2))) for one in x.astype(float)])

    def near(x: np.ndarray) -> np.ndarray:
        return np.asarray(0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))))

    return table(near if options["approximate"] else exact)(options, operands, out)


def rsqrt(options: Options, operands: Sequence[Operand], out: Tensor) -> np.ndarray:
    """1 / sqrt(x) in 2^-20 for each number of steps above the zero point, the largest byte at it; none is below."""
    (x,) = operands
    roots = np.array([scaled(1, *_inverse_root(steps, FRACTION)) for steps in range(1, 256)])
    multiplier, shift = quantised(np.float64(F(1) / (np.sqrt(x.scale) * F(out.scales[0]))))
    made = stored(scaled(roots, multiplier, shift - FRACTION), out.zero)
    return np.asarray(np.append(np.int8(HIGH), made)[np.maximum(x.steps, 0)], np.int8)


def _inverse_root(steps: int, up: int) -> tuple[int, int]:
    """1 / sqrt(steps) 2^up as a multiplier of 31 bits and its shift: five steps of Newton's with 3 integer bits."""
    if steps <= 1:
        return (1 << 31) - 1, up
    pairs = (31 - steps.bit_length()) // 2 - 1
    shift = 11 - pairs
    raw = (steps << 2 * pairs) >> 1
    half, x = np.int64((raw + 1) >> 1), np.int64(1 << 28)
    for _ in range(5):
        cube = high_product(high_product(x, x), x) << 6
        x = (high_product((1 << 28) + (1 << 27), x) - high_product(half, cube)) << 3
    return int(high_product(x, HALF_ROOT)) << max(-shift, 0), up - max(shift, 0)


def softmax(options: Options, operands: Sequence[Operand], out: Tensor) -> np.ndarray:
    """Over the last axis: a table of exp, and sums, in float32 in order."""
    (x,) = operands
    powers = _exp(-x.scale * F(options["beta"]) * np.arange(256, dtype=F))
    found = powers[x.array.max(-1, keepdims=True).astype(np.int64) - x.array]
    sums = np.cumsum(found, axis=-1, dtype=F)[..., -1:]
    return stored((found * (F(1) / (sums * F(out.scales[0]))) + F(0.5)).astype(np.int64), out.zero)


def resize_bilinear(options: Options, operands: Sequence[Operand], out: Tensor) -> np.ndarray:
    """Coordinates in 2^-10 of a pixel, weights in 2^-20, half away from zero."""
    x, size = operands
    half, corners = options["half_pixel_centers"], options["align_corners"]
    rows, columns = (_axis(x.array.shape[1 + at], int(size.array[at]), half, corners) for at in (0, 1))
    bytes_ = x.array.astype(np.int64)
    total = np.zeros(out.shape, np.int64)
    for row, down in rows:
        for column, across in columns:
            total += bytes_[:, row][:, :, column] * down[None, :, None, None] * across[None, None, :, None]
    one = 1 << (2 * GRID - 1)
    return np.where(total > 0, (total + one) >> 2 * GRID, -((-total + one) >> 2 * GRID)).astype(np.int8)


def _axis(size: int, count: int, half: bool, corners: bool) -> list[tuple[np.ndarray, np.ndarray]]:
    """The lower and the upper neighbour of each coordinate, with their weights."""
    if corners and count > 1:
        scale = (((size - 1) << GRID) + (count - 1) // 2) // (count - 1)
    else:
        scale = ((size << GRID) + count // 2) // count
    at = np.arange(count, dtype=np.int64) * scale + (scale // 2 - (1 << (GRID - 1)) if half else 0)
    low = np.maximum(at >> GRID, 0)
    high = np.minimum((at + (1 << GRID) - 1) >> GRID, size - 1)
    upper = at - (low << GRID)
    return [(low, (1 << GRID) - upper), (high, upper)]


def resize_nearest(options: Options, operands: Sequence[Operand], out: Tensor) -> np.ndarray:
    """By whole factors, each element repeated."""
    x, size = operands
    found = x.array
    for axis in (1, 2):
        found = found.repeat(int(size.array[axis - 1]) // found.shape[axis], axis)
    return found


def concatenation(options: Options, operands: Sequence[Operand], out: Tensor) -> np.ndarray:
    """Of operands in one scale."""
    return np.concatenate([one.array for one in operands], options["axis"])


def pad(options: Options, operands: Sequence[Operand], out: Tensor) -> np.ndarray:
    """With the zero point, or the byte that is given."""
    x, widths, *fill = operands
    value = int(fill[0].array.reshape(-1)[0]) if fill else x.tensor.zero
    return np.pad(x.array, [tuple(map(int, width)) for width in widths.array], constant_values=value)


def strided_slice(options: Options, operands: Sequence[Operand], out: Tensor) -> np.ndarray:
    """Between constant bounds."""
    x, begins, ends, steps = operands
    bounds = zip(begins.array.tolist(), ends.array.tolist(), steps.array.tolist(), strict=True)
    return x.array[tuple(slice(low, high, by) for low, high, by in bounds)]


def hard_swish(options: Options, operands: Sequence[Operand], out: Tensor) -> np.ndarray:
    """x relu6(x + 3) / 6 in 16 bits: x in 2^-7 steps, times a number between 0 and 1 in 2^-15.

    TFLite's 16 bits overflow, which is not followed, where a step of the result is more than 2^8 of the operand's.
    """
    (x,) = operands
    fine = F(1 / 128) * x.scale
    (factor, exponent), (slope, bits) = (_short(np.float64(fine / one)) for one in (F(out.scales[0]), F(3 / 32768)))
    hires = (np.arange(LOW, HIGH + 1) - x.tensor.zero) << 7
    gate = _high(_saturated(hires << max(bits - 1, 0)), slope)
    gate = _saturated(gate << 1) if bits > 0 else shifted(gate, -bits)
    gate = (gate + (1 << 15)) >> 1
    product = gate * _high(hires, factor)
    halved = np.where(product >= 0, product >> 15, -((-product) >> 15))
    return stored(shifted(halved, -exponent), out.zero)[x.array.astype(np.int64) - LOW]


def _short(real: np.float64) -> tuple[int, int]:
    """A multiplier of 15 bits, and its shift."""
    multiplier, shift = (int(one) for one in quantised(real))
    return min((multiplier + (1 << 15)) >> 16, (1 << 15) - 1), shift


def _saturated(x: np.ndarray) -> np.ndarray:
    return np.asarray(np.clip(x, -(1 << 15), (1 << 15) - 1))


def _high(a: np.ndarray, b: int) -> np.ndarray:
    """a b / 2^15 in 16 bits, rounded as `rounding.high_product` does."""
    return high_product(a << 16, b)


def _exp(x: np.ndarray) -> np.ndarray:
    """As a C library has it: rounded once from what is exact."""
    return np.exp(x.astype(np.float64)).astype(F)


def _tanh(x: np.ndarray) -> np.ndarray:
    return np.tanh(x.astype(np.float64)).astype(F)


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return np.asarray(F(1) / (F(1) + _exp(-x)))


KERNELS: Mapping[str, Kernel] = {
    "ABS": absolute,
    "ADD": add(1),
    "AVERAGE_POOL_2D": average_pool,
    "BATCH_MATMUL": batch_matmul,
    "CONCATENATION": concatenation,
    "CONV_2D": conv,
    "DEPTHWISE_CONV_2D": depthwise,
    "FULLY_CONNECTED": dense,
    "GELU": _gelu,
    "HARD_SWISH": hard_swish,
    "LEAKY_RELU": leaky_relu,
    "LOGISTIC": table(_sigmoid),
    "MAX_POOL_2D": max_pool,
    "MEAN": mean,
    "MUL": mul,
    "PAD": pad,
    "PADV2": pad,
    "PRELU": prelu,
    "QUANTIZE": requantise,
    "RELU": relu(most=False),
    "RELU6": relu(most=True),
    "RESHAPE": lambda options, operands, out: operands[0].array.reshape(out.shape),
    "RESIZE_BILINEAR": resize_bilinear,
    "RESIZE_NEAREST_NEIGHBOR": resize_nearest,
    "RSQRT": rsqrt,
    "SOFTMAX": softmax,
    "STRIDED_SLICE": strided_slice,
    "SUB": add(-1),
    "TABLE": lambda options, operands, out: operands[1].array[operands[0].array.astype(np.int64) - LOW],
    "TANH": table(_tanh),
    "TRANSPOSE": lambda options, operands, out: operands[0].array.transpose(operands[1].array),
    "TRANSPOSE_CONV": transpose_conv,
}
"""By TFLite's name: every operator that `operators` writes; and TABLE, by constant bytes, which it has not."""

"""The int8 operators that are written for accelerators, each in a file by itself with random operands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from compiler.accelerate.tflite.flatbuffer import RELU, RELU6, SAME, VALID, TfliteWriter

SEEDS = range(8)


class Drawn:
    """One operator with random operands, in a file."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.writer = TfliteWriter()
        self.given: list[np.ndarray] = []
        self.numbers: list[int] = []

    def below(self, *ends: int) -> list[int]:
        """Sizes from 1 to each end."""
        return [int(self.random.integers(1, end + 1)) for end in ends]

    def scale(self, low: float = 0.002, high: float = 0.2) -> tuple[float, int]:
        """Log-uniform, with a zero point that may be an end."""
        real = float(np.float32(np.exp(self.random.uniform(np.log(low), np.log(high)))))
        return real, int(self.random.choice([-128, 127, 0, int(self.random.integers(-128, 128))]))

    def bytes(self, *shape: int) -> np.ndarray:
        """With both ends among them."""
        found = self.random.integers(-128, 128, shape)
        edges = self.random.random(shape) < 0.1
        return np.where(edges, self.random.choice([-128, 127], shape), found).astype(np.int8)

    def operand(self, *shape: int, scale: tuple[float, int] | None = None) -> int:
        """An activation."""
        self.given.append(self.bytes(*shape))
        self.numbers.append(self.writer.tensor(f"x{len(self.given)}", shape, "int8", *(scale or self.scale())))
        return self.numbers[-1]

    def weights(self, *shape: int, axis: int = 0, count: int | None = None) -> tuple[int, Any]:
        """A constant within -127 .. 127, with `count` scales along an axis."""
        array = np.clip(self.bytes(*shape), -127, 127)
        scales = np.exp(self.random.uniform(-6, -3, shape[axis] if count is None else count)).astype(np.float32)
        return self.writer.constant("w", array, scales, 0, axis), scales

    def bias(self, count: int, x: int, scales: Any) -> int:
        """A constant of int32."""
        real = np.float32(self.writer.program((), ()).tensors[x].scales[0]) * scales
        array = self.random.integers(-(1 << 14), 1 << 14, count).astype(np.int32)
        return self.writer.constant("b", array, np.asarray(real))

    def ints(self, *values: int) -> int:
        return self.writer.constant("i", np.array(values, np.int32))

    def made(self, kind: str, inputs: list[int], shape: Any, scale: Any = None, **options: Any) -> None:
        number = self.writer.tensor("y", shape, "int8", *(scale or self.scale(0.005, 2)))
        self.writer.operator(kind, inputs, [number], **options)
        self.out = number


def _window(d: Drawn, size: tuple[int, int], dilated: bool = True) -> tuple[tuple[int, int], tuple[int, int], Any]:
    """A kernel that fits, the result's sizes, and options."""
    padding = int(d.random.choice([SAME, VALID]))
    kernel = (d.below(min(3, size[0]))[0], d.below(min(3, size[1]))[0])
    strides, by = d.below(3, 3), d.below(2, 2) if dilated else [1, 1]
    spans = [(kernel[at] - 1) * by[at] + 1 for at in (0, 1)]
    if any(span > length for span, length in zip(spans, size, strict=True)):
        by, spans = [1, 1], [*kernel]
    out = [
        -(-size[at] // strides[at]) if padding == SAME else -(-(size[at] - spans[at] + 1) // strides[at])
        for at in (0, 1)
    ]
    options = {"padding": padding, "stride_h": strides[0], "stride_w": strides[1]}
    if dilated:
        options |= {"dilation_h": by[0], "dilation_w": by[1]}
    return kernel, (out[0], out[1]), options


def _fused(d: Drawn) -> dict[str, int]:
    return {"activation": int(d.random.choice([0, RELU, RELU6]))}


def conv(d: Drawn) -> None:
    n, h, w, c, o = d.below(2, 7, 7, 9, 9)
    kernel, size, options = _window(d, (h, w))
    x = d.operand(n, h, w, c)
    weights, scales = d.weights(o, *kernel, c)
    d.made("CONV_2D", [x, weights, d.bias(o, x, scales)], (n, *size, o), **options, **_fused(d))


def depthwise(d: Drawn) -> None:
    n, h, w, c, m = d.below(2, 7, 7, 9, 3)
    kernel, size, options = _window(d, (h, w))
    x = d.operand(n, h, w, c)
    weights, scales = d.weights(1, *kernel, c * m, axis=3)
    inputs = [x, weights, d.bias(c * m, x, scales)]
    d.made("DEPTHWISE_CONV_2D", inputs, (n, *size, c * m), **options, **_fused(d), depth_multiplier=m)


def transpose_conv(d: Drawn) -> None:
    n, h, w, c, o, kh, kw, sh, sw = d.below(2, 5, 5, 6, 6, 3, 3, 3, 3)
    x = d.operand(n, h, w, c)
    weights, scales = d.weights(o, kh, kw, c)
    shape = (n, (h - 1) * sh + max(kh, sh), (w - 1) * sw + max(kw, sw), o)
    if (kh, kw) != (max(kh, sh), max(kw, sw)):
        shape = (n, (h - 1) * sh + kh, (w - 1) * sw + kw, o)
    options = {"padding": VALID, "stride_h": sh, "stride_w": sw}
    d.made("TRANSPOSE_CONV", [d.ints(*shape), weights, x, d.bias(o, x, scales)], shape, **options)


def dense(d: Drawn) -> None:
    rows, depth, o = d.below(9, 70, 30)
    x = d.operand(rows, depth)
    weights, scales = d.weights(o, depth, count=int(d.random.choice([1, o])))
    d.made("FULLY_CONNECTED", [x, weights, d.bias(o, x, scales)], (rows, o), **_fused(d), keep_num_dims=False)


def batch_matmul(d: Drawn) -> None:
    n, m, k, o = d.below(3, 9, 40, 9)
    d.made("BATCH_MATMUL", [d.operand(n, m, k), d.operand(n, k, o)], (n, m, o))


def elementwise(kind: str) -> Callable[[Drawn], None]:
    def write(d: Drawn) -> None:
        n, h, w, c = d.below(2, 9, 9, 9)
        other = (n, h, w, c) if d.random.random() < 0.5 else (1, 1, 1, c)
        d.made(kind, [d.operand(n, h, w, c), d.operand(*other)], (n, h, w, c), **_fused(d))

    return write


def pool(kind: str) -> Callable[[Drawn], None]:
    def write(d: Drawn) -> None:
        n, h, w, c = d.below(2, 8, 8, 9)
        kernel, size, options = _window(d, (h, w), dilated=False)
        scale = d.scale()
        options |= {"filter_height": kernel[0], "filter_width": kernel[1]}
        d.made(kind, [d.operand(n, h, w, c, scale=scale)], (n, *size, c), scale, **options, **_fused(d))

    return write


def mean(d: Drawn) -> None:
    n, h, w, c = d.below(2, 9, 9, 9)
    axes = [(1, 2), (1,), (3,), (2, 3)][int(d.random.integers(4))]
    shape = tuple(1 if at in axes else size for at, size in enumerate((n, h, w, c)))
    d.made("MEAN", [d.operand(n, h, w, c), d.ints(*axes)], shape, d.scale(0.005, 0.5), keep_dims=True)


def unary(kind: str, must: Any = None, low: int = -128, **options: Any) -> Callable[[Drawn], None]:
    def write(d: Drawn) -> None:
        shape, scale = d.below(2, 9, 9, 40), d.scale()
        if kind == "RSQRT":
            scale = (scale[0], low)
        if kind == "HARD_SWISH":  # whose reference overflows where the result's steps are some hundred times as large
            must_be = d.scale(scale[0] / 4, scale[0] * 64)
            d.made(kind, [d.operand(*shape, scale=scale)], shape, must_be)
            return
        d.made(kind, [d.operand(*shape, scale=scale)], shape, must, **options)

    return write


def leaky(d: Drawn) -> None:
    shape = d.below(2, 9, 9, 40)
    d.made("LEAKY_RELU", [d.operand(*shape)], shape, alpha=float(np.float32(d.random.uniform(0.001, 0.9))))


def prelu(d: Drawn) -> None:
    n, h, w, c = d.below(2, 9, 9, 9)
    slopes, _ = d.weights(1, 1, c, count=1)
    d.made("PRELU", [d.operand(n, h, w, c), slopes], (n, h, w, c))


def bilinear(d: Drawn) -> None:
    n, h, w, c, to_h, to_w = d.below(2, 7, 7, 5, 20, 20)
    scale, mode = d.scale(), int(d.random.integers(3))
    options = {"half_pixel_centers": mode == 1, "align_corners": mode == 2}
    d.made(
        "RESIZE_BILINEAR",
        [d.operand(n, h, w, c, scale=scale), d.ints(to_h, to_w)],
        (n, to_h, to_w, c),
        scale,
        **options,
    )


def nearest(d: Drawn) -> None:
    n, h, w, c, by_h, by_w = d.below(2, 7, 7, 5, 4, 4)
    scale, size = d.scale(), (h * by_h, w * by_w)
    d.made("RESIZE_NEAREST_NEIGHBOR", [d.operand(n, h, w, c, scale=scale), d.ints(*size)], (n, *size, c), scale)


def moved(kind: str) -> Callable[[Drawn], None]:
    def write(d: Drawn) -> None:
        n, h, w, c = d.below(2, 9, 9, 9)
        scale = d.scale()
        x, out = d.operand(n, h, w, c, scale=scale), (n, h, w, c)
        match kind:
            case "RESHAPE":
                d.made(kind, [x, d.ints(n, h * w, c)], (n, h * w, c), scale)
            case "TRANSPOSE":
                order = [int(axis) for axis in d.random.permutation(4)]
                d.made(kind, [x, d.ints(*order)], [out[axis] for axis in order], scale)
            case "CONCATENATION":
                axis = int(d.random.integers(4))
                shape = [size * (2 if at == axis else 1) for at, size in enumerate(out)]
                d.made(kind, [x, d.operand(*out, scale=scale)], shape, scale, axis=axis)
            case "STRIDED_SLICE":
                begin = [int(d.random.integers(size)) for size in out]
                step = d.below(3, 3, 3, 3)
                shape = [-(-(size - low) // by) for size, low, by in zip(out, begin, step, strict=True)]
                d.made(kind, [x, d.ints(*begin), d.ints(*out), d.ints(*step)], shape, scale)
            case "PAD" | "PADV2":
                widths = d.random.integers(0, 3, (4, 2)).astype(np.int32)
                fill = [d.writer.constant("f", np.array([-128], np.int8), *scale)] if kind == "PADV2" else []
                shape = [size + int(sum(width)) for size, width in zip(out, widths, strict=True)]
                d.made(kind, [x, d.writer.constant("p", widths), *fill], shape, scale)

    return write


CASES: dict[str, Callable[[Drawn], None]] = {
    "ABS": unary("ABS"),
    "ADD": elementwise("ADD"),
    "AVERAGE_POOL_2D": pool("AVERAGE_POOL_2D"),
    "BATCH_MATMUL": batch_matmul,
    "CONV_2D": conv,
    "DEPTHWISE_CONV_2D": depthwise,
    "FULLY_CONNECTED": dense,
    "GELU": unary("GELU", approximate=False),
    "GELU by tanh": unary("GELU", approximate=True),
    "HARD_SWISH": unary("HARD_SWISH"),
    "LEAKY_RELU": leaky,
    "LOGISTIC": unary("LOGISTIC", (1 / 256, -128)),
    "MAX_POOL_2D": pool("MAX_POOL_2D"),
    "MEAN": mean,
    "MUL": elementwise("MUL"),
    "PRELU": prelu,
    "QUANTIZE": unary("QUANTIZE"),
    "RELU": unary("RELU"),
    "RELU6": unary("RELU6"),
    "RESIZE_BILINEAR": bilinear,
    "RESIZE_NEAREST_NEIGHBOR": nearest,
    "RSQRT": unary("RSQRT"),
    "SOFTMAX": unary("SOFTMAX", (1 / 256, -128), beta=1.0),
    "SUB": elementwise("SUB"),
    "TANH": unary("TANH", (1 / 128, 0)),
    "TRANSPOSE_CONV": transpose_conv,
    **{kind: moved(kind) for kind in ("CONCATENATION", "PAD", "PADV2", "RESHAPE", "STRIDED_SLICE", "TRANSPOSE")},
}

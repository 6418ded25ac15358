"""What sums products, or elements: in int32, then RESCALE by the multipliers of TFLite's kernels."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from compiler.accelerate.tflite.flatbuffer import Step, Tensor
from compiler.accelerate.tflite.kernels import F
from compiler.accelerate.tflite.rounding import quantised
from compiler.accelerate.tosa.execute import PROPAGATE
from compiler.accelerate.tosa.lowering import INT32, Lowering, NoForm

LARGEST_KERNEL = 64
"""Rows and columns of a mean that is one depthwise convolution."""


def _per_channel(t: Lowering, step: Step, out: Tensor) -> tuple[Any, Any]:
    """The multipliers of a layer, from float32 scales in float64, as its kernel has them."""
    x, weights = (t.program.tensors[number] for number in step.inputs[:2])
    scales = np.asarray(weights.scales, F).astype(np.float64)
    return quantised(np.float64(F(x.scales[0])) * scales / np.float64(F(out.scales[0])))


def conv(t: Lowering, step: Step, out: Tensor) -> str:
    """Weights are O, kh, kw, I in both."""
    weights, one = t.data(step, 1), t.program.tensors[step.inputs[0]]
    x, window = t.windowed(step, weights.shape[1:3], out)
    sums = t.convolved("CONV2D", x, one.zero, weights, t.data(step, 2), out.name, out.shape, **window)
    return t.finished(sums, _per_channel(t, step, out), step, out)


def depthwise(t: Lowering, step: Step, out: Tensor) -> str:
    """Weights 1, kh, kw, C m of TFLite are kh, kw, C, m."""
    weights, one = t.data(step, 1)[0], t.program.tensors[step.inputs[0]]
    weights = weights.reshape(*weights.shape[:2], one.shape[3], -1)
    x, window = t.windowed(step, weights.shape[:2], out)
    sums = t.convolved("DEPTHWISE_CONV2D", x, one.zero, weights, t.data(step, 2), out.name, out.shape, **window)
    return t.finished(sums, _per_channel(t, step, out), step, out)


def dense(t: Lowering, step: Step, out: Tensor) -> str:
    """As a convolution of one row, over the positions of which its operand's vectors lie; one rounding."""
    (x, one), weights = t.operand(step, 0), t.data(step, 1)
    rows = math.prod(one.shape) // weights.shape[1]
    x = t.reshaped(x, (1, 1, rows, weights.shape[1]), f"{out.name}.rows")
    filters, shape = weights[:, None, None], (1, 1, rows, weights.shape[0])
    sums = t.convolved("CONV2D", x, one.zero, filters, t.data(step, 2), out.name, shape)
    real = _per_channel(t, step, out)
    scales = t.program.tensors[step.inputs[1]].scales
    if len(scales) == 1:
        real = quantised(np.float64(F(one.scales[0]) * F(scales[0])) / np.float64(F(out.scales[0])))
    return t.reshaped(t.finished(sums, real, step, out, double=False), out.shape, out.name)


def batch_matmul(t: Lowering, step: Step, out: Tensor) -> str:
    """All leading axes as one."""
    (a, left), (b, right) = t.operand(step, 0), t.operand(step, 1)
    if left.shape[:-2] != right.shape[:-2]:
        raise NoForm("MATMUL takes as many matrices of one operand as of the other")
    count = math.prod(left.shape[:-2])
    a, b = (t.reshaped(x, (count, *one.shape[-2:]), f"{out.name}.matrices") for x, one in ((a, left), (b, right)))
    shape = count, left.shape[-2], right.shape[-1]
    sums = t.writer.operator(
        "MATMUL", [a, b, t.number(left.zero), t.number(right.zero)], f"{out.name}.sums", shape, "int32"
    )
    real = np.float64(F(left.scales[0]) * F(right.scales[0])) / np.float64(F(out.scales[0]))
    return t.reshaped(t.finished(sums, quantised(real), step, out), out.shape, out.name)


def max_pool(t: Lowering, step: Step, out: Tensor) -> str:
    """Exact."""
    kernel = step.options["filter_height"], step.options["filter_width"]
    x, window = t.windowed(step, kernel, out)
    window.pop("dilation")
    made = t.writer.operator(
        "MAX_POOL2D", [x], out.name, out.shape, "int8", kernel=kernel, **window, nan_mode=PROPAGATE
    )
    return t.clamped(made, step, out)


def average_pool(t: Lowering, step: Step, out: Tensor) -> str:
    """Over what lies inside."""
    one = t.program.tensors[step.inputs[0]]
    kernel = step.options["filter_height"], step.options["filter_width"]
    x, window = t.windowed(step, kernel, out)
    window.pop("dilation")
    inputs = [x, t.number(one.zero), t.number(out.zero)]
    made = t.writer.operator("AVG_POOL2D", inputs, out.name, out.shape, "int8", kernel=kernel, **window, acc_type=INT32)
    return t.clamped(made, step, out)


def mean(t: Lowering, step: Step, out: Tensor) -> str:
    """A sum in int32, by a depthwise convolution with ones where it is over rows and columns; then one multiplier."""
    x, one = t.operand(step, 0)
    over = sorted(int(axis) % len(one.shape) for axis in t.data(step, 1).reshape(-1))
    count = math.prod(one.shape[axis] for axis in over)
    real = np.float64(F(one.scales[0])) / np.float64(F(out.scales[0]))
    multiplier, exponent = (int(part) for part in quantised(real))
    up = min(count.bit_length() - 1, 32, 31 + exponent)
    scaled = (multiplier << up) // count, exponent - up
    if len(one.shape) == 4 and over == [1, 2] and max(one.shape[1:3]) <= LARGEST_KERNEL:
        n, h, w, channels = one.shape
        ones, bias = np.ones((h, w, channels, 1), np.int8), np.zeros(channels, np.int32)
        sums = t.convolved("DEPTHWISE_CONV2D", x, one.zero, ones, bias, out.name, (n, 1, 1, channels))
    else:
        sums, shape = t.wide(x, one, f"{out.name}.steps"), [*one.shape]
        for axis in over:
            shape[axis] = 1
            sums = t.writer.operator("REDUCE_SUM", [sums], f"{out.name}.sums", shape, "int32", axis=axis)
    return t.reshaped(t.finished(sums, scaled, step, out), out.shape, out.name)

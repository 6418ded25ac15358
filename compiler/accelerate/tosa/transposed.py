"""Transposed convolutions: by rows of phases where kernels are whole multiples of strides, else TRANSPOSE_CONV2D.

y[s i + r] = sum over k of x[i - k] w[s k + r] (Dumoulin and Visin 2016, section 4): all r of one row of phases are one
convolution by flipped parts of the kernel, whose channels are the columns between each other; a CONCAT of whole rows
brings these between each other. Vela writes sums of TRANSPOSE_CONV2D to memory in int32 before it scales them.
"""

from __future__ import annotations

import numpy as np

from compiler.accelerate.tflite.flatbuffer import Step, Tensor
from compiler.accelerate.tflite.kernels import F
from compiler.accelerate.tflite.rounding import quantised
from compiler.accelerate.tosa.lowering import INT32, Lowering


def transpose_conv(t: Lowering, step: Step, out: Tensor) -> str:
    """Weights are O, kh, kw, I; without padding."""
    weights, one = t.data(step, 1), t.program.tensors[step.inputs[2]]
    scales = np.asarray(t.program.tensors[step.inputs[1]].scales, F).astype(np.float64)
    real = np.broadcast_to(np.float64(F(one.scales[0])) * scales / np.float64(F(out.scales[0])), weights.shape[:1])
    strides = step.options["stride_h"], step.options["stride_w"]
    has_phases = not any(size % by for size, by in zip(weights.shape[1:3], strides, strict=True))
    return _by_phases(t, step, out, real) if has_phases else _whole(t, step, out, real)


def _by_phases(t: Lowering, step: Step, out: Tensor, real: np.ndarray) -> str:
    (x, one), weights = t.operand(step, 2), t.data(step, 1)
    down, across = step.options["stride_h"], step.options["stride_w"]
    spans = weights.shape[1] // down, weights.shape[2] // across
    batch, (rows, columns) = one.shape[0], (size + span - 1 for size, span in zip(one.shape[1:3], spans, strict=True))
    pads = [span - 1 for span in spans for _ in range(2)]
    channels = across * weights.shape[0]
    bias, made = np.tile(t.data(step, 3), across), []
    for row in range(down):
        parts = [weights[:, row::down, column::across][:, ::-1, ::-1] for column in range(across)]
        shape = batch, rows, columns, channels
        sums = t.convolved("CONV2D", x, one.zero, np.concatenate(parts), bias, out.name, shape, pad=pads)
        made.append(t.finished(sums, quantised(np.tile(real, across)), step, out))
    shape = batch, rows, down * columns, channels
    joined = t.writer.operator("CONCAT", made, f"{out.name}.rows", shape, "int8", axis=2)
    return t.reshaped(joined, out.shape, out.name)


def _whole(t: Lowering, step: Step, out: Tensor, real: np.ndarray) -> str:
    (x, one), weights = t.operand(step, 2), t.data(step, 1)
    inputs = [x, t.writer.constant(weights), t.writer.constant(t.data(step, 3)), t.number(one.zero), t.number(0)]
    options = {
        "out_pad": [0] * 4,
        "stride": (step.options["stride_h"], step.options["stride_w"]),
        "local_bound": False,
        "acc_type": INT32,
    }
    sums = t.writer.operator("TRANSPOSE_CONV2D", inputs, f"{out.name}.sums", out.shape, "int32", **options)
    return t.finished(sums, quantised(real), step, out)

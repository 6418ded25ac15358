"""What is computed element by element: of one operand a TABLE of 256 bytes, of two in int32."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from compiler.accelerate.tflite.flatbuffer import RELU, RELU6, Step, Tensor
from compiler.accelerate.tflite.kernels import FRACTION, KERNELS, F, Operand, ends
from compiler.accelerate.tflite.rounding import HIGH, LOW, quantised
from compiler.accelerate.tosa.lowering import WHOLE, Lowering


def add(kind: str) -> Callable[[Lowering, Step, Tensor], str]:
    """Both operands in 2^-20 of twice the larger scale in int32, their sum in that of the result."""

    def lower(t: Lowering, step: Step, out: Tensor) -> str:
        operands = [t.operand(step, at) for at in (0, 1)]
        twice = 2 * np.float64(max(F(one.scales[0]) for _, one in operands))
        fine = []
        for x, one in operands:
            x = t.ranked(x, len(out.shape))
            multiplier, exponent = quantised(np.float64(F(one.scales[0])) / twice)
            shape = t.writer.tensors[x].shape
            real = multiplier, exponent + FRACTION
            fine.append(t.rescaled(x, one.zero, real, 0, f"{out.name}.fine", shape, dtype="int32"))
        sums = t.elementwise(kind, *fine, f"{out.name}.sums")
        real = quantised(twice / (np.float64(1 << FRACTION) * np.float64(F(out.scales[0]))))
        return t.finished(sums, real, step, out)

    return lower


def mul(t: Lowering, step: Step, out: Tensor) -> str:
    """The product of steps in int32."""
    (a, left), (b, right) = t.operand(step, 0), t.operand(step, 1)
    rank = len(out.shape)
    wide = [t.wide(t.ranked(x, rank), one, f"{out.name}.steps") for x, one in ((a, left), (b, right))]
    products = t.elementwise("MUL", *wide, f"{out.name}.products", t.number(0))
    real = quantised(np.float64(F(left.scales[0]) * F(right.scales[0]) / F(out.scales[0])))
    return t.finished(products, real, step, out)


def requantise(t: Lowering, step: Step, out: Tensor) -> str:
    """In another scale."""
    x, one = t.operand(step, 0)
    real = quantised(np.float64(F(one.scales[0])) / np.float64(F(out.scales[0])))
    return t.rescaled(x, one.zero, real, out, out.name, out.shape)


def table(t: Lowering, step: Step, out: Tensor) -> str:
    """What the operator makes of each byte."""
    x, one = t.operand(step, 0)
    every = Operand(np.arange(LOW, HIGH + 1, dtype=np.int8), one)
    return t.table(x, KERNELS[step.kind](step.options, [every], out), out.name)


def given_table(t: Lowering, step: Step, out: Tensor) -> str:
    """Entries that the program holds."""
    return t.table(t.operand(step, 0)[0], t.data(step, 1), out.name)


def relu(t: Lowering, step: Step, out: Tensor) -> str:
    """In another scale, between the ends of RELU or RELU6."""
    x, one = t.operand(step, 0)
    fused = {"activation": RELU if step.kind == "RELU" else RELU6}
    if (one.scales, one.zero) != (out.scales, out.zero):
        real = quantised(np.float64(F(one.scales[0]) / F(out.scales[0])))
        x = t.rescaled(x, one.zero, real, out, out.name, out.shape)
    return t.clamp(x, *ends(fused, out), out.name)


def prelu(t: Lowering, step: Step, out: Tensor) -> str:
    """Above zero by one multiplier; below by a depthwise convolution with the slopes; one of both parts is 0."""
    (x, one), slope = t.operand(step, 0), t.program.tensors[step.inputs[1]]
    above, below = (t.clamp(x, *both, f"{out.name}.part") for both in ((one.zero, HIGH), (LOW, one.zero)))
    same = quantised(np.float64(F(one.scales[0]) / F(out.scales[0])))
    less = quantised(np.float64(F(one.scales[0]) * F(slope.scales[0]) / F(out.scales[0])))
    filters = t.data(step, 1).reshape(1, 1, -1, 1)
    none = np.zeros(one.shape[3], np.int32)
    sloped = t.convolved("DEPTHWISE_CONV2D", below, one.zero, filters, none, out.name, out.shape)
    parts = (
        t.rescaled(above, one.zero, same, out, f"{out.name}.above", out.shape),
        t.rescaled(sloped, 0, less, out, f"{out.name}.below", out.shape),
    )
    sums = t.elementwise("ADD", *(t.wide(part, out, f"{out.name}.wide") for part in parts), f"{out.name}.whole")
    return t.finished(sums, WHOLE, step, out, double=False)

"""Softmax over the last axis: exp by two tables of bytes, and one reciprocal of each row's sum.

With e = 2^15 exp(x - max) and their sum s = u 2^(30 - h), 1 <= u < 2, of which CLZ tells h, a probability in steps of
1/256 is e (2^15 / u) 2^h / 2^37, and the product is below 2^30. TABLE interpolates 1 / u between 512 pieces, less than
2^-20 off. What rounds are the 15 bits of exp and of 1 / u: together less than 1/100 of a step for each element, and a
sum that is off by at most half of 2^-15 of its largest part for each.
"""

from __future__ import annotations

import math

import numpy as np

from compiler.accelerate.tflite.flatbuffer import Step, Tensor
from compiler.accelerate.tflite.kernels import F
from compiler.accelerate.tflite.rounding import LOW, quantised
from compiler.accelerate.tosa.execute import PROPAGATE
from compiler.accelerate.tosa.lowering import Lowering, NoForm

ONE = (1 << 15) - 1
LONGEST = 1 << 16
"""Elements of a row, whose sum is below 2^31."""
POOLED = 256
"""Elements of a row of which a MAX_POOL2D finds the largest: accelerators have no larger windows."""
MOST_BITS = 31
"""That a shift may have; a product that needs more is less than half a step, and 0."""


def softmax(t: Lowering, step: Step, out: Tensor) -> str:
    """The result is in steps of 1/256 above -128, as TFLite demands of it."""
    x, one = t.operand(step, 0)
    name, shape, rank = out.name, out.shape, len(out.shape)
    if shape[-1] > LONGEST:
        raise NoForm(f"the sum of a row of more than {LONGEST} elements may exceed 31 bits")
    row = (*shape[:-1], 1)
    operands = (t.wide(value, one, f"{name}.steps") for value in (x, _largest(t, x, row, name)))
    below = t.elementwise("SUB", *operands, f"{name}.below")
    index = t.rescaled(below, 0, quantised(1.0), 127, f"{name}.index", shape, double=False)
    powers = np.exp(np.float64(F(one.scales[0])) * step.options["beta"] * np.arange(-255, 1))
    exps = _sixteen_bits(t, index, np.rint(ONE * powers).astype(np.int64), name)
    total = t.writer.operator("REDUCE_SUM", [exps], f"{name}.sum", row, "int32", axis=rank - 1)
    zeros = t.writer.operator("CLZ", [total], f"{name}.zeros", row, "int32")
    bits = t.elementwise("SUB", zeros, t.whole(1, rank), f"{name}.bits")
    normal = t.elementwise("LOGICAL_LEFT_SHIFT", total, bits, f"{name}.normal")
    products = t.elementwise("MUL", exps, _reciprocal(t, normal, name), f"{name}.products", t.number(0))
    shift = t.elementwise("SUB", t.whole(37, rank), bits, f"{name}.shift")
    if shape[-1] * ONE >= 1 << 25:
        shift = t.elementwise("MINIMUM", shift, t.whole(MOST_BITS, rank), f"{name}.bounded", nan_mode=PROPAGATE)
    found = t.elementwise("ARITHMETIC_RIGHT_SHIFT", products, shift, f"{name}.shares", round=True)
    return t.rescaled(found, 0, quantised(1.0), out, name, shape, double=False)


def _largest(t: Lowering, x: str, row: tuple[int, ...], name: str) -> str:
    """Of each row, in a column: a pool where rows are channels, which all accelerators find faster than REDUCE_MAX."""
    length, rows = t.writer.tensors[x].shape[-1], math.prod(row)
    if length > POOLED:
        return t.writer.operator("REDUCE_MAX", [x], f"{name}.max", row, "int8", axis=len(row) - 1, nan_mode=PROPAGATE)
    flat = t.reshaped(x, (rows, length), f"{name}.flat")
    turned = t.writer.operator("TRANSPOSE", [flat], f"{name}.turned", (length, rows), "int8", perms=[1, 0])
    turned = t.reshaped(turned, (1, 1, length, rows), f"{name}.columns")
    window = {"kernel": (1, length), "stride": (1, 1), "pad": (0, 0, 0, 0), "nan_mode": PROPAGATE}
    pooled = t.writer.operator("MAX_POOL2D", [turned], f"{name}.max", (1, 1, 1, rows), "int8", **window)
    return t.reshaped(pooled, row, f"{name}.max")


def _sixteen_bits(t: Lowering, index: str, entries: np.ndarray, name: str) -> str:
    """256 entries below 2^15 by a byte, in int32: their upper 8 and their lower 7 bits, each by a table of bytes."""
    shape = t.writer.tensors[index].shape
    upper = t.table(index, (entries >> 7) + LOW, f"{name}.upper")
    lower = t.table(index, entries & 127, f"{name}.lower")
    high = t.rescaled(upper, LOW, quantised(128.0), 0, f"{name}.high", shape, double=False, dtype="int32")
    low = t.rescaled(lower, 0, quantised(1.0), 0, f"{name}.low", shape, double=False, dtype="int32")
    return t.elementwise("ADD", high, low, f"{name}.exp")


def _reciprocal(t: Lowering, normal: str, name: str) -> str:
    """2^15 / u of u 2^30, in int32."""
    shape = t.writer.tensors[normal].shape
    places = t.rescaled(normal, 0, quantised(2.0**-14), 0, f"{name}.places", shape, double=False, dtype="int32")
    centred = t.elementwise("SUB", places, t.whole(3 << 15, len(shape)), f"{name}.centred")
    index = t.rescaled(centred, 0, quantised(1.0), 0, f"{name}.place", shape, double=False, dtype="int16")
    fine = t.table(index, np.rint(ONE / (1 + np.arange(513) / 512)), f"{name}.fine")
    return t.rescaled(fine, 0, quantised(2.0**-7), 0, f"{name}.reciprocal", shape, double=False, dtype="int32")

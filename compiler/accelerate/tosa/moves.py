"""What moves elements, or takes them between others: their bytes and scale stay."""

from __future__ import annotations

import math
from collections.abc import Sequence

from compiler.accelerate.tflite.flatbuffer import Step, Tensor
from compiler.accelerate.tflite.rounding import quantised
from compiler.accelerate.tosa.execute import BILINEAR, NEAREST
from compiler.accelerate.tosa.lowering import Lowering, NoForm


def concat(t: Lowering, step: Step, out: Tensor) -> str:
    """Of operands in one scale."""
    names = [t.operand(step, at)[0] for at in range(len(step.inputs))]
    return t.writer.operator("CONCAT", names, out.name, out.shape, "int8", axis=step.options["axis"] % len(out.shape))


def reshape(t: Lowering, step: Step, out: Tensor) -> str:
    """Of as many elements."""
    return t.writer.operator("RESHAPE", [t.operand(step, 0)[0], t.shape(out.shape)], out.name, out.shape, "int8")


def transpose(t: Lowering, step: Step, out: Tensor) -> str:
    """By constant axes."""
    perms = t.data(step, 1).tolist()
    return t.writer.operator("TRANSPOSE", [t.operand(step, 0)[0]], out.name, out.shape, "int8", perms=perms)


def pad(t: Lowering, step: Step, out: Tensor) -> str:
    """With the zero point, or the byte that is given."""
    x, one = t.operand(step, 0)
    fill = int(t.data(step, 2).reshape(-1)[0]) if len(step.inputs) > 2 else one.zero
    inputs = [x, t.shape(t.data(step, 1).reshape(-1).tolist()), t.number(fill)]
    return t.writer.operator("PAD", inputs, out.name, out.shape, "int8")


def strided_slice(t: Lowering, step: Step, out: Tensor) -> str:
    """One of so many along an axis is the first of each group of them, which a RESHAPE makes."""
    x, _ = t.operand(step, 0)
    starts, _, steps = (t.data(step, at).tolist() for at in (1, 2, 3))
    for axis, by in enumerate(steps):
        if by > 1:
            x = _thinned(t, x, axis, starts[axis], by, out)
            starts[axis] = 0
    return t.sliced(x, starts, out.shape, out.name)


def _thinned(t: Lowering, x: str, axis: int, start: int, by: int, out: Tensor) -> str:
    count, shape = out.shape[axis], t.writer.tensors[x].shape
    before, after = shape[:axis], shape[axis + 1 :]
    if start + count * by > shape[axis]:
        widths = [0] * (2 * len(shape))
        widths[2 * axis + 1] = start + count * by - shape[axis]
        shape = (*before, start + count * by, *after)
        x = t.writer.operator("PAD", [x, t.shape(widths), t.number(0)], f"{out.name}.padded", shape, "int8")
    lead, row = math.prod(before), math.prod(after)
    flat = t.reshaped(x, (lead, shape[axis], row), f"{out.name}.flat")
    groups = t.sliced(flat, (0, start, 0), (lead, count * by, row), f"{out.name}.reached")
    grouped = t.reshaped(groups, (lead * count, by, row), f"{out.name}.groups")
    firsts = t.sliced(grouped, (0, 0, 0), (lead * count, 1, row), f"{out.name}.firsts")
    return t.reshaped(firsts, (*before, count, *after), f"{out.name}.thinned")


def resize_bilinear(t: Lowering, step: Step, out: Tensor) -> str:
    """Positions are exact fractions; the result carries the product of their denominators."""
    x, one = t.operand(step, 0)
    scale, offset, border = [], [], []
    for size, count in zip(one.shape[1:3], out.shape[1:3], strict=True):
        aligned = step.options["align_corners"] and count > 1 and size > 1
        above, below = (count - 1, size - 1) if aligned else (count, size)
        common = math.gcd(above, below)
        above, below = 2 * above // common, 2 * below // common
        offset.append(below // 2 - above // 2 if step.options["half_pixel_centers"] else 0)
        border.append((count - 1) * below - (size - 1) * above + offset[-1])
        scale += [above, below]
    made = _resized(t, x, scale, offset, border, BILINEAR, f"{out.name}.sums", out.shape)
    return t.rescaled(made, 0, quantised(1 / (scale[0] * scale[2])), 0, out.name, out.shape)


def resize_nearest(t: Lowering, step: Step, out: Tensor) -> str:
    """By whole factors: half a pixel further back, since TOSA rounds where TFLite rounds down."""
    x, one = t.operand(step, 0)
    factors = [count // size for size, count in zip(one.shape[1:3], out.shape[1:3], strict=True)]
    scale = [part for factor in factors for part in (2 * factor, 2)]
    back = [1 - factor for factor in factors]
    return _resized(t, x, scale, back, [factor - 1 for factor in factors], NEAREST, out.name, out.shape)


def _resized(
    t: Lowering,
    x: str,
    scale: Sequence[int],
    offset: Sequence[int],
    border: Sequence[int],
    mode: int,
    name: str,
    shape: Sequence[int],
) -> str:
    largest = max(scale[0], scale[2])
    if largest > 2048 or any(below >= 16 * above for above, below in (scale[:2], scale[2:])):
        raise NoForm(f"RESIZE takes scales up to 2048 and down to 1/16, and one is {largest}/{scale[1]}")
    inputs = [x, *(t.shape(one) for one in (scale, offset, border))]
    return t.writer.operator("RESIZE", inputs, name, shape, "int32" if mode == BILINEAR else "int8", mode=mode)

"""Paddings of a TFLite program that the windows behind them can state themselves, so that none is copied."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from compiler.accelerate.tflite.flatbuffer import Program, Step
from compiler.accelerate.tflite.rounding import LOW


def folded_paddings(program: Program) -> dict[int, tuple[int, Sequence[int]]]:
    """Each by the number of the padded tensor: that of the one before it, and how much lies around it.

    That is above, below, left and right. Every reader is a convolution, which pads with the zero point, or a maximum,
    for which -128 counts for nothing; an average does not count what it pads.
    """
    found: dict[int, tuple[int, Sequence[int]]] = {}
    for step in program.steps:
        if step.kind not in ("PAD", "PADV2"):
            continue
        number = step.outputs[0]
        zero, widths = program.tensors[step.inputs[0]].zero, _elements(program, step.inputs[1])
        fill = int(_elements(program, step.inputs[2]).reshape(-1)[0]) if step.kind == "PADV2" else zero
        is_of_window = widths.shape == (4, 2) and not widths[[0, 3]].any() and number not in program.outputs
        readers = [one for one in program.steps if number in one.inputs]
        if is_of_window and all(
            _takes(program, one, number, widths[1:3], fill == zero, fill == LOW) for one in readers
        ):
            found[number] = step.inputs[0], widths[1:3].reshape(-1).tolist()
    return found


def _elements(program: Program, number: int) -> np.ndarray:
    found = program.tensors[number].data
    assert found is not None, "paddings are written with constants"
    return found


def _takes(program: Program, reader: Step, number: int, widths: np.ndarray, of_zero: bool, of_least: bool) -> bool:
    """Whether an operator can pad its first operand by this, which is less than its window."""
    if reader.kind == "MAX_POOL_2D":
        window = reader.options["filter_height"], reader.options["filter_width"]
        fits = of_least
    elif reader.kind in ("CONV_2D", "DEPTHWISE_CONV_2D"):
        height, width = program.tensors[reader.inputs[1]].shape[1:3]
        window, fits = (height, width), of_zero
    else:
        return False
    return fits and reader.inputs[0] == number and bool((widths < np.array(window)[:, None]).all())

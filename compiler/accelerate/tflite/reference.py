"""A TFLite program evaluated in numpy by the rules of `kernels`, and where another runtime's results differ from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from compiler.accelerate.tflite.flatbuffer import Program, Step
from compiler.accelerate.tflite.kernels import KERNELS, Operand


def evaluate(program: Program, given: Mapping[int, np.ndarray]) -> dict[int, np.ndarray]:
    """The elements of every tensor by its number, for those of the inputs."""
    values = {number: one.data for number, one in enumerate(program.tensors) if one.data is not None}
    values |= given
    for step in program.steps:
        values[step.outputs[0]] = result(program, step, values)
    return values


def result(program: Program, step: Step, values: Mapping[int, np.ndarray]) -> np.ndarray:
    """What one operator makes of its operands."""
    operands = [Operand(values[number], program.tensors[number]) for number in step.inputs]
    return np.ascontiguousarray(KERNELS[step.kind](step.options, operands, program.tensors[step.outputs[0]]))


@dataclass(frozen=True)
class Difference:
    """An operator whose result is another: at how many elements, and by how many steps at most."""

    step: Step
    count: int
    elements: int
    most: int


def differences(program: Program, found: Mapping[int, np.ndarray]) -> list[Difference]:
    """Each operator whose result in `found`, all tensors of another runtime, is not that for its operands there.

    So an operator is judged by itself, whatever those before it did.
    """
    values = {number: one.data for number, one in enumerate(program.tensors) if one.data is not None} | dict(found)
    made = []
    for step in program.steps:
        apart = np.abs(result(program, step, values).astype(np.int64) - found[step.outputs[0]].astype(np.int64))
        if apart.any():
            made.append(Difference(step, int((apart > 0).sum()), apart.size, int(apart.max())))
    return made

"""A part of the accelerator's in the format that Vela is given it in: compiled, and run here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from compiler.accelerate.chips import Chip
from compiler.accelerate.interpreter import PartRun
from compiler.accelerate.tflite.convert import Converted
from compiler.accelerate.tflite.flatbuffer import Program
from compiler.accelerate.tflite.reference import evaluate, result
from compiler.accelerate.tosa.execute import is_tosa, read
from compiler.accelerate.tosa.lower import lowered
from compiler.accelerate.tosa.write import to_bytes
from compiler.accelerate.vela import Compiled, FileRefused, compile_file


def written(converted: Converted, chip: Chip) -> tuple[Compiled | None, Mapping[str, str]]:
    """What Vela makes of a part, and why operators are not the accelerator's, by the names of their results.

    None where the format has no form of one of them, or Vela refuses the file for one.
    """
    if chip.format == "tflite":
        compiled = compile_file(converted.model, chip)
        why = {result: reason for _, result, reason in compiled.reasons}
        left = [one.name for one in compiled.parts if not one.accelerated]
        return compiled, {name: why.get(name, "Vela gives no reason") for name in left}
    made = lowered(converted.program)
    if made.refused:
        return None, _named(converted.program, made.refused)
    try:
        compiled = compile_file(to_bytes(made.graph), chip)
    except FileRefused:
        if alone := _refused_alone(converted.program, chip):
            return None, _named(converted.program, alone)
        raise
    parts = tuple(replace(one, name=made.of.get(one.name, one.name)) for one in compiled.parts)
    return replace(compiled, parts=parts), {}


def _named(program: Program, reasons: Mapping[int, str]) -> dict[str, str]:
    return {program.tensors[number].name: why for number, why in reasons.items()}


def _refused_alone(program: Program, chip: Chip) -> dict[int, str]:
    """What Vela says of each operator that it refuses in a file of its own, by the number of its result."""
    found = {}
    for step in program.steps:
        operands = dict.fromkeys(number for number in step.inputs if program.tensors[number].data is None)
        alone = replace(program, steps=(step,), inputs=tuple(operands), outputs=step.outputs)
        try:
            compile_file(to_bytes(lowered(alone).graph), chip)
        except FileRefused as no:
            found[step.outputs[0]] = no.message
    return found


def run_of(converted: Converted, compiled: Compiled) -> PartRun:
    """Runs a part here: by the rules of TFLite's int8 operators, or what was compiled by those of TOSA."""
    if is_tosa(compiled.given):
        return read(compiled.given).run
    program = converted.program

    def run(arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        found = evaluate(program, dict(zip(program.inputs, arrays, strict=True)))
        return [found[number] for number in program.outputs]

    return run


def by_tosa(program: Program, given: Mapping[int, np.ndarray]) -> dict[int, np.ndarray]:
    """The elements of every tensor of a program by its number, as its form in TOSA makes them.

    A padding that is part of the operator behind it is that of what lies before.
    """
    made = lowered(program)
    found = made.graph.values({made.names[number]: array for number, array in given.items()})
    values = {number: one.data for number, one in enumerate(program.tensors) if one.data is not None} | dict(given)
    for step in program.steps:
        number = step.outputs[0]
        if number in made.names:
            values[number] = found[made.names[number]].reshape(program.tensors[number].shape)
        else:
            values[number] = result(program, step, values)
    return values

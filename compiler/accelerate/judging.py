"""How near the int8 file is to the model as it was given, and which of its operators is at fault where it is not."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from compiler.accelerate.formats import by_tosa
from compiler.accelerate.parts import Assembled, Assembly, OnAccelerator, OnCpu, Part
from compiler.accelerate.tflite.convert import TO_FIRST, Converted, Held, Port
from compiler.accelerate.tflite.flatbuffer import Step
from compiler.accelerate.tflite.reference import Difference, differences, evaluate
from compiler.accelerate.tosa.execute import is_tosa
from compiler.contract import QuantizeOptions
from compiler.errors import Disagreement, Unverified
from compiler.quantize.calibrate import Evaluated, decibels
from compiler.quantize.layers import ids_of
from compiler.quantize.network import named
from compiler.quantize.samples import Sample

LEAST_SNR_DB = 10.0
"""What every output has of signal to noise against float64 unless more is asked for, or no artifact is written."""
NOISELESS_DB = 100.0
"""What counts for a tensor without noise, where losses are compared."""
SHOWN = 4
"""Operators that a notice names."""
EXACT_IN_TOSA = ("RESIZE_BILINEAR",)
"""Operators that TFLite computes less exactly than TOSA: positions in 2^-10 of a pixel, which add up along a row."""

Run = Callable[[Sample], Mapping[str, np.ndarray]]
"""Outputs by name, in float32, for inputs by name."""


class Comparison:
    """A model in parts beside the one that it was made of, on samples."""

    def __init__(self, model: Path, options: QuantizeOptions, samples: Sequence[Sample], made: Assembled) -> None:
        self.evaluated, self.samples, self.made = Evaluated(model, options), samples, made

    def judge(self, run: Run, snr_db: float, largest_error: float | None = None) -> list[Mapping[str, Any]]:
        """Of each output: signal to noise against the given model in float64, and the largest error.

        That error is in output steps (`worst_steps`; null where the CPU makes the output, in floats), as it is
        (`max_absolute`), and over the largest value of the reference (`max_relative`). What is not finite in float64
        has to be the same NaN or infinity. `shown_by` are the samples, from 0, that have a finite element of it.

        Raises Disagreement below `snr_db`, and where `max_relative` is beyond `largest_error`, with the operator at
        which most is lost; Unverified for an output that no sample shows.
        """
        shown: dict[str, list[int]] = {}
        signal: dict[str, float] = {}
        noise: dict[str, float] = {}
        worst: dict[str, float] = {}
        largest: dict[str, float] = {}
        units: dict[str, float] = {}
        steps = {port["name"]: port.get("scale") for port in self.made.assembly.outputs}
        for number, sample in enumerate(self.samples):
            found, wanted = run(sample), self.evaluated.outputs(sample)
            for name, array in wanted.items():
                array, error = _comparable(found[name].astype(np.float64), array)
                shown.setdefault(name, []).extend([number] if array.size else [])
                signal[name] = signal.get(name, 0.0) + float(np.square(array).sum())
                noise[name] = noise.get(name, 0.0) + float(np.square(error).sum())
                worst[name] = max(worst.get(name, 0.0), float(np.abs(error).max(initial=0.0)))
                largest[name] = max(largest.get(name, 0.0), float(np.abs(array).max(initial=0.0)))
                unit = np.spacing(np.maximum(np.abs(array), np.finfo(np.float32).tiny).astype(np.float32))
                units[name] = max(units.get(name, 0.0), float((np.abs(error) / unit).max(initial=0.0)))
        agreement: list[Mapping[str, Any]] = []
        for name in signal:
            if not shown[name]:
                raise Unverified(
                    f"output {name!r:.100} is empty, or has no finite number, on each of {len(self.samples)} samples: "
                    "nothing shows whether the artifact computes it",
                    fix="give samples on which it is finite and not empty",
                    details={"unshown": [name]},
                )
            db = decibels(signal[name], noise[name])
            if db is not None and db < snr_db:
                raise Disagreement(
                    f"output {name!r:.100} has {db:.1f} dB of signal to noise in int8, less than {snr_db:g}"
                    f"{self.blame()}",
                    fix="give samples that are like real inputs, or quantise it with an error budget first",
                )
            relative = worst[name] / (largest[name] or 1.0)
            if largest_error is not None and relative > largest_error:
                raise Disagreement(
                    f"output {name!r:.100} is off by {relative:.2g} of its largest value in int8, more than "
                    f"{largest_error:g}{self.blame()}",
                    fix="give samples that are like real inputs, or permit more by the option tolerance",
                )
            agreement.append(
                {
                    "name": name,
                    "snr_db": db,
                    "worst_steps": None if (unit := steps[name]) is None else worst[name] / unit,
                    "max_absolute": worst[name],
                    "max_relative": relative,
                    "max_ulp": units[name],
                    "least_snr_db": snr_db,
                    "samples": len(self.samples),
                    "shown_by": shown[name],
                }
            )
        return agreement

    def differences(self) -> list[str]:
        """A notice of the operators that LiteRT, or TOSA, computes otherwise than `kernels`, of the same operands.

        Raises Disagreement where one is off by more than a step, with its node; but for EXACT_IN_TOSA.
        """
        held = self.made.held(self.samples[0])
        found = [
            (difference, part)
            for part in self.made.parts
            if isinstance(part, OnAccelerator)
            for difference in _differences(part, held)
        ]
        for one, part in found:
            by = _runtime(part)
            if one.most > 1 and not (by == "TOSA" and one.step.kind in EXACT_IN_TOSA):
                raise Disagreement(
                    f"{one.step.kind} of {_node(part.converted, one.step)} is off by {one.most} steps in {by} from "
                    f"what its rules give, at {one.count} of {one.elements} elements",
                    fix="report this model, with the version of ai-edge-litert",
                )
        if not found:
            return []
        shown = ", ".join(
            f"{one.step.kind} of {_node(part.converted, one.step)} ({one.count} of {one.elements})"
            for one, part in found[:SHOWN]
        )
        others, most = " and others" if len(found) > SHOWN else "", max(one.most for one, _ in found)
        by, steps = _runtime(found[0][1]), "one step" if most == 1 else f"{most} steps"
        return [f"{by} rounds otherwise than this compiler's int8 operators, by {steps}: {shown}{others}"]

    def blame(self) -> str:
        """Where most of the signal is lost, on the first sample, as the end of a sentence; empty where nothing shows.

        Results of operators are compared with the given model's in float64, by name; what an operator loses is the
        signal to noise of its worst operand less its own. A part of the CPU's is taken as one operator.
        """
        sample = self.samples[0]
        ids = ids_of(self.evaluated.loaded(sample).graph)
        held = self.made.held(sample)
        traced = [
            one
            for number, part in enumerate(self.made.parts)
            for one in _traced(number, part, held, self.made.assembly)
        ]
        wanted = self.evaluated.values(sample, [ids[one.name] for one in traced if one.name in ids])
        known: dict[_Key, float] = {}
        worst: tuple[float, str] | None = None
        for one in traced:
            before = min((known[key] for key in one.reads if key in known), default=NOISELESS_DB)
            array = wanted.get(ids[one.name]) if one.name in ids else None
            known[one.key] = before
            if array is None or np.size(array) != one.real.size or not np.isfinite(array).all():
                continue
            known[one.key] = _decibels(one.real, np.asarray(array, np.float64))
            lost = before - known[one.key]
            if one.said and (worst is None or lost > worst[0]):
                worst = lost, f"{one.said}: {before:.1f} dB before it, {known[one.key]:.1f} after"
        return f"; most is lost at {worst[1]}" if worst else ""


def _comparable(found: np.ndarray, wanted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The finite elements of a reference, and the errors there; an infinite one where the rest is not the same."""
    finite = np.isfinite(wanted)
    if not np.array_equal(found[~finite], wanted[~finite], equal_nan=True):
        return np.zeros(1), np.full(1, np.inf)
    error = found[finite] - wanted[finite]
    return wanted[finite], np.where(np.isfinite(error), error, np.inf)


def _runtime(part: OnAccelerator) -> str:
    """By whose rules a part is run here."""
    return "TOSA" if is_tosa(part.compiled.given) else "LiteRT"


def _differences(part: OnAccelerator, held: Mapping[str, np.ndarray]) -> list[Difference]:
    """Of a part's operators, on what parts before it made."""
    if is_tosa(part.compiled.given):
        program = part.converted.program
        given = {number: held[name] for number, name in zip(program.inputs, part.inputs, strict=True)}
        return differences(program, by_tosa(program, given))
    litert = import_module("ai_edge_litert.interpreter")
    runs = litert.Interpreter(
        model_content=part.converted.model,
        experimental_op_resolver_type=litert.OpResolverType.BUILTIN_REF,
        experimental_preserve_all_tensors=True,
    )
    runs.allocate_tensors()
    program = part.converted.program
    for number, name in zip(program.inputs, part.inputs, strict=True):
        runs.set_tensor(number, held[name])
    runs.invoke()
    made = {*program.inputs, *(number for step in program.steps for number in step.outputs)}
    return differences(program, {number: runs.get_tensor(number) for number in made})


def _node(converted: Converted, step: Step) -> str:
    name = converted.program.tensors[step.outputs[0]].name
    return converted.origin.get(name, name)[:100]


_Key = tuple[int, int] | str
"""A tensor of a part's file by numbers, or what passes between parts by its name."""


@dataclass(frozen=True)
class _Traced:
    """A tensor that was made: the model's name for it, which operator made it of which others, and its elements."""

    key: _Key
    name: str
    said: str
    reads: Sequence[_Key]
    real: np.ndarray


def _traced(number: int, part: Part, held: Mapping[str, np.ndarray], assembly: Assembly) -> Iterator[_Traced]:
    """What a part makes, in order; of the accelerator's also what it reads, and every operator's result."""
    if isinstance(part, OnCpu):
        tensors = {name: tensor for tensor, name in assembly.names.items()}
        nodes = ", ".join(f"{node.op_type} {named(node)}" for node in part.segment.nodes[:SHOWN])
        for name in part.outputs:
            tensor = tensors.get(name, name)
            real = _real(held[name], assembly.ports[tensor]) if name in tensors else held[name].astype(np.float64)
            yield _Traced(name, tensor, f"the CPU's part of {nodes[:200]}", part.inputs, real)
        return
    converted, program = part.converted, part.converted.program
    found = evaluate(program, {at: held[name] for at, name in zip(program.inputs, part.inputs, strict=True)})
    tensors_of: dict[int, tuple[str, Held | Port]] = {one.number: (name, one) for name, one in converted.held.items()}
    tensors_of |= {at: (one.name, one) for at, one in zip(program.outputs, converted.outputs, strict=True)}
    for at, name in zip(program.inputs, part.inputs, strict=True):
        yield _Traced((number, at), tensors_of[at][0], "", [name], _real(found[at], tensors_of[at][1]))
    for step in program.steps:
        at = step.outputs[0]
        name = tensors_of[at][0] if at in tensors_of else ""
        real = _real(found[at], tensors_of[at][1]) if at in tensors_of else np.empty(0)
        reads = [(number, one) for one in step.inputs]
        yield _Traced((number, at), name, f"{step.kind} of {_node(converted, step)}", reads, real)
    for at, name, port in zip(program.outputs, part.outputs, converted.outputs, strict=True):
        yield _Traced(name, port.name, "", [(number, at)], _real(found[at], port))


def _real(q: np.ndarray, tensor: Held | Port) -> np.ndarray:
    """The numbers that bytes stand for, in the model's order of axes."""
    scale, zero = tensor.scale
    real = scale * (q.astype(np.float64) - zero)
    return real.transpose(TO_FIRST) if tensor.last else real


def _decibels(real: np.ndarray, wanted: np.ndarray) -> float:
    """Signal to noise of a tensor."""
    real = real.reshape(wanted.shape)
    db = decibels(float(np.square(wanted).sum()), float(np.square(real - wanted).sum()))
    return NOISELESS_DB if db is None or not math.isfinite(db) else min(db, NOISELESS_DB)

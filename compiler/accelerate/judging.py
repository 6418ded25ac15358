"""How near the int8 file is to the model as it was given, and which of its operators is at fault where it is not."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from compiler.accelerate.convert import Converted, Held, Port
from compiler.accelerate.flatbuffer import Step
from compiler.accelerate.interpreter import to_bytes, to_floats
from compiler.accelerate.reference import Difference, differences, evaluate
from compiler.contract import QuantizeOptions
from compiler.errors import Disagreement
from compiler.quantize.calibrate import Evaluated, decibels
from compiler.quantize.layers import ids_of
from compiler.quantize.samples import Sample

LEAST_SNR_DB = 10.0
"""What every output has of signal to noise against float64 unless more is asked for, or no artifact is written."""
NOISELESS_DB = 100.0
"""What counts for a tensor without noise, where losses are compared."""
SHOWN = 4
"""Operators that a notice names."""

Run = Callable[[Sample], Mapping[str, np.ndarray]]
"""Outputs by name, in float32, for inputs by name."""


class Comparison:
    """A converted model beside the one that it was made of, on samples."""

    def __init__(self, model: Path, options: QuantizeOptions, samples: Sequence[Sample], converted: Converted) -> None:
        self.evaluated, self.samples, self.converted = Evaluated(model, options), samples, converted

    def bytes_of(self, sample: Sample) -> dict[int, np.ndarray]:
        """A sample as the file takes it, by the numbers of its inputs."""
        program, ports = self.converted.program, self.converted.inputs
        return {
            number: to_bytes(np.asarray(sample[port.name]), port.to_json()).reshape(program.tensors[number].shape)
            for number, port in zip(program.inputs, ports, strict=True)
        }

    def run(self, sample: Sample) -> dict[str, np.ndarray]:
        """The outputs by the int8 operators of `kernels`: what stands in for LiteRT where that is not installed."""
        program, found = self.converted.program, evaluate(self.converted.program, self.bytes_of(sample))
        return {
            port.name: to_floats(found[number], port.to_json())
            for number, port in zip(program.outputs, self.converted.outputs, strict=True)
        }

    def judge(self, run: Run, snr_db: float, largest_error: float | None = None) -> list[Mapping[str, Any]]:
        """Of each output: signal to noise against the given model in float64, and the largest error.

        That error is in output steps (`worst_steps`), as it is (`max_absolute`), and over the largest value of the
        reference (`max_relative`). Raises Disagreement below `snr_db`, and where `max_relative` is beyond
        `largest_error`, with the operator at which most is lost.
        """
        signal: dict[str, float] = {}
        noise: dict[str, float] = {}
        worst: dict[str, float] = {}
        largest: dict[str, float] = {}
        units: dict[str, float] = {}
        steps = {port.name: port.to_json()["scale"] for port in self.converted.outputs}
        for sample in self.samples:
            found, wanted = run(sample), self.evaluated.outputs(sample)
            for name, array in wanted.items():
                error = found[name].astype(np.float64) - array
                signal[name] = signal.get(name, 0.0) + float(np.square(array).sum())
                noise[name] = noise.get(name, 0.0) + float(np.square(error).sum())
                worst[name] = max(worst.get(name, 0.0), float(np.abs(error).max(initial=0.0)))
                largest[name] = max(largest.get(name, 0.0), float(np.abs(array).max(initial=0.0)))
                unit = np.spacing(np.maximum(np.abs(array), np.finfo(np.float32).tiny).astype(np.float32))
                units[name] = max(units.get(name, 0.0), float((np.abs(error) / unit).max(initial=0.0)))
        agreement: list[Mapping[str, Any]] = []
        for name in signal:
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
                    "worst_steps": worst[name] / steps[name],
                    "max_absolute": worst[name],
                    "max_relative": relative,
                    "max_ulp": units[name],
                    "least_snr_db": snr_db,
                    "samples": len(self.samples),
                }
            )
        return agreement

    def differences(self) -> list[str]:
        """A notice of the operators that LiteRT computes otherwise than `kernels`, of the same operands, if any.

        Raises Disagreement where one is off by more than a step, with its node.
        """
        litert = import_module("ai_edge_litert.interpreter")
        runs = litert.Interpreter(
            model_content=self.converted.model,
            experimental_op_resolver_type=litert.OpResolverType.BUILTIN_REF,
            experimental_preserve_all_tensors=True,
        )
        runs.allocate_tensors()
        program = self.converted.program
        for number, array in self.bytes_of(self.samples[0]).items():
            runs.set_tensor(number, array)
        runs.invoke()
        made = {*program.inputs, *(number for step in program.steps for number in step.outputs)}
        found = differences(program, {number: runs.get_tensor(number) for number in made})
        for one in found:
            if one.most > 1:
                raise Disagreement(
                    f"{one.step.kind} of {self._node(one.step)} is off by {one.most} steps in LiteRT from what its "
                    f"rules give, at {one.count} of {one.elements} elements",
                    fix="report this model, with the version of ai-edge-litert",
                )
        return [self._describe(found)] if found else []

    def _describe(self, found: Sequence[Difference]) -> str:
        shown = ", ".join(
            f"{one.step.kind} of {self._node(one.step)} ({one.count} of {one.elements})" for one in found[:SHOWN]
        )
        others = " and others" if len(found) > SHOWN else ""
        return f"LiteRT rounds otherwise than this compiler's int8 operators, by one step: {shown}{others}"

    def _node(self, step: Step) -> str:
        name = self.converted.program.tensors[step.outputs[0]].name
        return self.converted.origin.get(name, name)[:100]

    def blame(self) -> str:
        """Where most of the signal is lost, on the first sample, as the end of a sentence; empty where nothing shows.

        Results of operators are compared with the given model's in float64, by name; what an operator loses is the
        signal to noise of its worst operand less its own.
        """
        sample, program = self.samples[0], self.converted.program
        ids = ids_of(self.evaluated.loaded(sample).graph)
        tensors: list[tuple[int, str, Held | Port]]
        tensors = [(one.number, name, one) for name, one in self.converted.held.items()]
        tensors += [(at, one.name, one) for at, one in zip(program.outputs, self.converted.outputs, strict=True)]
        named = {number: (name, one) for number, name, one in tensors if name in ids}
        wanted = self.evaluated.values(sample, [ids[name] for name, _ in named.values()])
        found = evaluate(program, self.bytes_of(sample))
        known: dict[int, float] = {}
        worst: tuple[float, str] | None = None
        for step in (*(Step("", (), (number,), {}) for number in program.inputs), *program.steps):
            number = step.outputs[0]
            known[number] = before = min((known[one] for one in step.inputs if one in known), default=NOISELESS_DB)
            array = wanted.get(ids[named[number][0]]) if number in named else None
            if array is None or np.size(array) != found[number].size:
                continue
            known[number] = _decibels(found[number], named[number][1], np.asarray(array))
            lost = before - known[number]
            if step.kind and (worst is None or lost > worst[0]):
                worst = lost, f"{step.kind} of {self._node(step)}: {before:.1f} dB before it, {known[number]:.1f} after"
        return f"; most is lost at {worst[1]}" if worst else ""


def _decibels(q: np.ndarray, tensor: Held | Port, wanted: np.ndarray) -> float:
    """Signal to noise of a tensor of the file."""
    scale, zero = tensor.scale
    real = scale * (q.astype(np.float64) - zero)
    real = (real.transpose(0, 3, 1, 2) if tensor.last else real).reshape(wanted.shape)
    db = decibels(float(np.square(wanted).sum()), float(np.square(real - wanted).sum()))
    return NOISELESS_DB if db is None or not math.isfinite(db) else min(db, NOISELESS_DB)

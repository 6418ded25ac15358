"""What a model takes and gives, found fit before it runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from compiler.pack.loader.arrays import _as_array, _checked_output, _demand_apart
from compiler.pack.loader.bindings import Binding
from compiler.pack.loader.errors import InputError
from compiler.pack.loader.gpu import _is_on_gpu, _on_gpu, _overlap
from compiler.pack.loader.interface import DeviceArray
from compiler.pack.loader.specs import Array, OpenSpec, TensorSpec, _aligned
from compiler.pack.loader.strings import _Strings


class _Ports:
    """Inputs and outputs of a binding: a program on GPU number `device`, if it is `on_gpu`."""

    def __init__(self, binding: Binding, on_gpu: bool, device: int) -> None:
        self.binding = binding
        self.on_gpu = on_gpu
        self.device = device
        self.has_capacity = binding.has_sizes

    def strings(self) -> _Strings | None:
        """For one run; None where nothing is of strings."""
        return _Strings(self.binding.words) if self.binding.has_strings else None

    def as_strings(self, results: list[Any], strings: _Strings | None) -> list[Any]:
        """Results of a run, those of strings as such."""
        if strings is None:
            return results
        specs = zip(self.binding.outputs, results, strict=True)
        return [strings.of(result) if spec.dtype == "string" else result for spec, result in specs]

    def input(self, spec: TensorSpec, value: Any, strings: _Strings | None = None) -> Array | DeviceArray:
        """An input, found fit."""
        if spec.dtype == "string" and strings is not None:
            return _as_array(spec, strings.numbers(spec, value))
        if self.on_gpu and isinstance(spec, OpenSpec) and _is_on_gpu(value):
            raise InputError(
                f"input {spec.name!r} is in the memory of a GPU, and has axes that are open. Fix: copy it to the host"
            )
        found = _on_gpu(f"input {spec.name!r}", spec, value, self.device) if self.on_gpu else None
        return _as_array(spec, value) if found is None else found

    def flat(
        self, inputs: Sequence[Any], out: Sequence[Any] | None, strings: _Strings | None = None
    ) -> tuple[list[Any], list[Any]]:
        """Inputs and outputs that are in order, found fit."""
        if self.has_capacity and out is not None and self.is_of_program(inputs, out):
            return self.of_program(inputs, out)
        for kind, given, specs in (("inputs", inputs, self.binding.inputs), ("outputs", out, self.binding.outputs)):
            if given is not None and len(given) != len(specs):
                raise InputError(
                    f"{len(given)} {kind} for {len(specs)}. Fix: give {', '.join(map(str, specs)) or 'none'}"
                )
        strings = strings or self.strings()
        arrays = [self.input(spec, value, strings) for spec, value in zip(self.binding.inputs, inputs, strict=True)]
        return arrays, self.results(list(out) if out is not None else [None] * len(self.binding.outputs), arrays)

    def is_of_program(self, inputs: Sequence[Any], out: Sequence[Any]) -> bool:
        """Whether these are as many as an open binding's program takes and fills: more than the model does."""
        binding = self.binding
        return (len(inputs), len(out)) == (len(binding.program_inputs), len(binding.program_outputs))

    def of_program(self, inputs: Sequence[Any], out: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """What an open binding's program itself takes and fills, found fit."""
        takes, fills = (
            [TensorSpec(*spec) for spec in specs]
            for specs in (self.binding.program_inputs, self.binding.program_outputs)
        )
        arrays = [self.input(spec, value) for spec, value in zip(takes, inputs, strict=True)]
        results = [self.output(spec, array, arrays) for spec, array in zip(fills, out, strict=True)]
        _demand_apart([(spec.name, array) for spec, array in zip(fills, results, strict=True)], arrays)
        return arrays, results

    def results(
        self, given: Sequence[Any], arrays: Sequence[Any], kept: Mapping[str, Array] | None = None
    ) -> list[Any]:
        """The arrays that a run fills: those kept, those given, once they are found fit, and new ones."""
        there = kept or {}
        results: list[Any] = []
        checked: list[tuple[str, Any]] = []
        for spec, array in zip(self.binding.outputs, given, strict=True):
            if spec.name in there:
                results.append(there[spec.name])
            elif array is None or isinstance(spec, OpenSpec):
                results.append(array if self.has_capacity else _aligned(spec))
            else:
                results.append(self.output(spec, array, arrays))
                checked.append((spec.name, results[-1]))
        _demand_apart(checked, arrays)
        return results

    def output(self, spec: TensorSpec, array: Any, arrays: Sequence[Any]) -> Array | DeviceArray:
        """A preallocated output, found fit; one in the host's memory may still be shared with an input's."""
        found = _on_gpu(f"output {spec.name!r}", spec, array, self.device) if self.on_gpu else None
        if found is None:
            return _checked_output(spec, array)
        if any(isinstance(one, DeviceArray) and one.address and _overlap(one, found) for one in arrays):
            raise InputError(f"output {spec.name!r} shares memory with an input. Fix: give an array of its own")
        return found

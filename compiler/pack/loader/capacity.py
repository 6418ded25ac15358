"""Arrays of open axes: as large as these may become."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from compiler.pack.loader.arrays import _checked_output, _demand_apart
from compiler.pack.loader.bindings import Binding
from compiler.pack.loader.errors import InputError, RunError
from compiler.pack.loader.interface import DeviceArray
from compiler.pack.loader.specs import Array, OpenSpec, TensorSpec, _aligned


class _Capacity:
    """Arrays of an open binding's program: as large as its axes may become, and zero beyond what was put into them."""

    def __init__(self, binding: Binding) -> None:
        self.binding = binding
        self._inputs: list[Array | None] = [None] * len(binding.inputs)
        self._filled: list[tuple[int, ...]] = [(0,) * len(spec.shape) for spec in binding.inputs]
        self.sizes = [np.zeros((), np.int64) for _ in binding.open]
        self._outputs: list[Array | None] = [None] * len(binding.outputs)
        self._found = [np.zeros((), np.int64) for _ in binding.program_outputs[len(binding.outputs) :]]

    def take(self, arrays: Sequence[Array | DeviceArray], state: Sequence[Array] = ()) -> list[Array | DeviceArray]:
        """What the program takes for inputs: those that are as large as may be, themselves, a state, and all sizes."""
        shapes = [array.spec.shape if isinstance(array, DeviceArray) else array.shape for array in arrays]
        if said := self.binding.misfit(shapes):
            raise InputError(said)
        self.size(shapes)
        return [*(self._padded(at, array) for at, array in enumerate(arrays)), *state, *self.sizes]

    def size(self, shapes: Sequence[tuple[int, ...]]) -> None:
        """Tells the program the sizes that inputs of these shapes have."""
        sizes = self.binding.sizes_of(shapes)
        for dimension, size in zip(self.binding.open, self.sizes, strict=True):
            size[...] = sizes[dimension.name]

    def _padded(self, at: int, array: Array | DeviceArray) -> Array | DeviceArray:
        if isinstance(array, DeviceArray) or array.shape == self.binding.inputs[at].shape:
            return array
        return self.keep(at, array)

    def keep(self, at: int, array: Array) -> Array:
        """An input at capacity that has this array at its beginning, and zeros beyond; always the same memory."""
        spec, shape = self.binding.inputs[at], array.shape
        kept = self._inputs[at]
        if kept is None:
            kept = self._inputs[at] = _aligned(spec, np.zeros)
        before = self._filled[at]
        for axis, (old, new) in enumerate(zip(before, shape, strict=True)):
            if old > new:
                inside = (slice(min(pair)) for pair in zip(before[:axis], shape[:axis], strict=True))
                kept[(*inside, slice(new, old), *map(slice, before[axis + 1 :]))] = 0
        # Whatever interrupts the copy, no more than this is other than zero.
        self._filled[at] = tuple(map(max, before, shape))
        kept[tuple(map(slice, shape))] = array
        self._filled[at] = shape
        return kept

    def blank(self, given: Sequence[Array | None]) -> list[Array]:
        """What the program fills; a given array for an output that has but one shape is filled itself."""
        for at, spec in enumerate(self.binding.outputs):
            if isinstance(spec, OpenSpec):
                kept = self._outputs[at]
                self._outputs[at] = _aligned(spec) if kept is None else kept
            else:
                self._outputs[at] = _aligned(spec) if given[at] is None else given[at]
        return [*(array for array in self._outputs if array is not None), *self._found]

    def results(self, given: Sequence[Array | None], inputs: Sequence[Array | DeviceArray]) -> list[Array]:
        """The outputs of the run that filled what `blank` gave, at their sizes; given arrays are filled.

        Raises InputError where the data were not what the model takes.
        """
        self.check()
        here = [array for array in inputs if isinstance(array, np.ndarray)]
        return [self._result(at, array, here) for at, array in enumerate(given)]

    def check(self) -> None:
        """Raises InputError where the data of the last run were not what the model takes."""
        for limit in self.binding.limits:
            number = self._number(limit.output)
            if limit.low <= number <= limit.high:
                continue
            if limit.sizes:
                raise InputError(f"{limit.says}: they are {' and '.join(str(self._number(at)) for at in limit.sizes)}")
            raise InputError(f"{limit.says}: {number} was found, and {limit.low} to {limit.high} can be")

    def _number(self, output: int) -> int:
        return int(self._found[output - len(self.binding.outputs)])

    def _result(self, at: int, given: Array | None, inputs: Sequence[Array]) -> Array:
        spec, whole = self.binding.outputs[at], self._outputs[at]
        assert whole is not None
        if not isinstance(spec, OpenSpec):
            self._outputs[at] = None
            return whole
        shape = self.shape(at, spec)
        part = whole[tuple(map(slice, shape))]
        if given is not None:
            array = _checked_output(TensorSpec(spec.name, spec.dtype, shape), given)
            _demand_apart([(spec.name, array)], inputs)
            np.copyto(array, part)
            return given
        if not part.flags.c_contiguous or 2 * part.size < whole.size:
            return np.array(part, order="C")
        self._outputs[at] = None
        return part

    def shape(self, at: int, spec: OpenSpec) -> tuple[int, ...]:
        """Of an output, by what the program says of its sizes. Raises RunError for sizes that there cannot be."""
        numbers = self.binding.sizes[at]
        found = tuple(
            most if number is None else int(self._found[number - len(self.binding.outputs)])
            for most, number in zip(spec.shape, numbers, strict=True)
        )
        if any(not 0 <= size <= most for size, most in zip(found, spec.shape, strict=True)):
            raise RunError(f"output {spec.name!r} has shape {found}, and at most {spec.shape}. Fix: report this model")
        return found

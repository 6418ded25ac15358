"""Runs that were prepared once: on arrays that stay, and on copies of small ones."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from compiler.pack.loader.arrays import _may_fill
from compiler.pack.loader.bindings import Binding
from compiler.pack.loader.capacity import _Capacity
from compiler.pack.loader.interface import _point, _run_of, _tensors
from compiler.pack.loader.library import _Library
from compiler.pack.loader.specs import Array, OpenSpec, TensorSpec, _aligned, _beginning, _filled, _nothing


class _Fixed:
    """A run on arrays that stay where they are: its C tensors are made once. Calling it gives what `tw_run` does."""

    def __init__(
        self,
        library: _Library,
        instance: ctypes.c_void_p,
        binding: Binding,
        arrays: Sequence[Any],
        results: Sequence[Any],
    ) -> None:
        taken, in_shapes = _tensors(binding.program_inputs)
        filled, out_shapes = _tensors(binding.program_outputs)
        kept = [_point(tensor, array) for tensor, array in zip(taken, arrays, strict=False)]
        kept += [_point(tensor, array) for tensor, array in zip(filled, results, strict=False)]
        self._kept = (taken, filled, in_shapes, out_shapes, kept, arrays, results)
        self.call: Callable[[], int] = _run_of(library.calls, instance, taken, filled)


class _Quick:
    """What a model of small arrays keeps for `run`: memory of its own, to which and from which they are copied.

    Copying costs less than finding out where an array lies.
    """

    def __init__(
        self,
        library: _Library,
        instance: ctypes.c_void_p,
        binding: Binding,
        reads: Mapping[str, Array] | None = None,
        writes: Mapping[str, Array] | None = None,
    ) -> None:
        """Inputs in `reads` and outputs in `writes`, by name, are there: `run` neither takes nor gives them."""
        read, written = reads or {}, writes or {}
        own = [read[spec.name] if spec.name in read else _aligned(spec) for spec in binding.inputs]
        results = [written[spec.name] if spec.name in written else _aligned(spec) for spec in binding.outputs]
        self._fixed = _Fixed(library, instance, binding, own, results)
        self._takes = [
            (spec.name, array.dtype, array.shape, array)
            for spec, array in zip(binding.inputs, own, strict=True)
            if spec.name not in read
        ]
        self._fills = [
            (spec.name, array.dtype, array.shape, array)
            for spec, array in zip(binding.outputs, results, strict=True)
            if spec.name not in written
        ]

    def poison(self, byte: int) -> None:
        """Fills the outputs that a run copies."""
        for _, _, _, own in self._fills:
            _filled(own, byte)

    # Here each tenth of a microsecond counts: a zip would take three of them.

    def named(
        self, inputs: Mapping[str, Any], out: Mapping[str, Any] | None, again: bool
    ) -> dict[str, Any] | int | None:
        """Outputs by name, in arrays of `out` where there is any.

        What `tw_run` gave, where it failed; None for arrays that are not as they mostly are.
        """
        if len(inputs) != len(self._takes):
            return None
        for name, dtype, shape, own in self._takes:
            array = inputs.get(name)
            if type(array) is not np.ndarray or array.dtype is not dtype or array.shape != shape:
                return None
            own[...] = array
        if not out:
            return self._fixed.call() or {name: own.copy() for name, _, _, own in self._fills}
        if len(out) != len(self._fills):
            return None
        found = {}
        for name, dtype, shape, _ in self._fills:
            array = out.get(name)
            if type(array) is not np.ndarray or array.dtype is not dtype or array.shape != shape:
                return None
            found[name] = array
        if not _may_fill(found.values(), inputs.values()):
            return None
        if failed := self._fixed.call():
            return failed
        for name, _, _, own in self._fills:
            found[name][...] = own
        return found

    def flat(self, inputs: Sequence[Any], out: Sequence[Any] | None, again: bool) -> list[Any] | int | None:
        """The same in order."""
        if len(inputs) != len(self._takes):
            return None
        for at, (_, dtype, shape, own) in enumerate(self._takes):
            array = inputs[at]
            if type(array) is not np.ndarray or array.dtype is not dtype or array.shape != shape:
                return None
            own[...] = array
        if out is None:
            return self._fixed.call() or [own.copy() for _, _, _, own in self._fills]
        if len(out) != len(self._fills):
            return None
        found: list[Array] = []
        for _, dtype, shape, _ in self._fills:
            array = out[len(found)]
            if type(array) is not np.ndarray or array.dtype is not dtype or array.shape != shape:
                return None
            found.append(array)
        if not _may_fill(found, inputs):
            return None
        if failed := self._fixed.call():
            return failed
        for at, (_, _, _, own) in enumerate(self._fills):
            found[at][...] = own
        return found


class _QuickOpen:
    """The same for a binding with open axes: what follows from shapes is worked out when they change."""

    def __init__(self, library: _Library, instance: ctypes.c_void_p, binding: Binding) -> None:
        self._binding = binding
        self._capacity = _Capacity(binding)
        takes = [self._capacity.keep(at, _nothing(spec)) for at, spec in enumerate(binding.inputs)]
        self._outputs = self._capacity.blank([None] * len(binding.outputs))
        self._fixed = _Fixed(library, instance, binding, [*takes, *self._capacity.sizes], self._outputs)
        self._takes = [(spec.name, array.dtype, array) for spec, array in zip(binding.inputs, takes, strict=True)]
        self._names = [spec.name for spec in binding.outputs]
        self._shapes: list[tuple[int, ...]] = []
        self._views: list[Array] = []
        self._results: list[tuple[tuple[int, ...], Array]] = [
            ((), array) for array in self._outputs[: len(binding.outputs)]
        ]

    def poison(self, byte: int) -> None:
        """Fills the outputs that a run copies."""
        for array in self._outputs[: len(self._names)]:
            _filled(array, byte)

    def named(
        self, inputs: Mapping[str, Any], out: Mapping[str, Any] | None, again: bool
    ) -> dict[str, Array] | int | None:
        """As that of `_Quick`, where no `out` is given; `again`: only for the shapes of the last run.

        Raises as `_Capacity.results` does.
        """
        if out or len(inputs) != len(self._takes):
            return None
        found = self.flat([inputs.get(name) for name, _, _ in self._takes], None, again)
        return dict(zip(self._names, found, strict=True)) if isinstance(found, list) else found

    def flat(self, inputs: Sequence[Any], out: Sequence[Any] | None, again: bool) -> list[Array] | int | None:
        """The same in order."""
        if out is not None or len(inputs) != len(self._takes):
            return None
        for array, (_, dtype, _) in zip(inputs, self._takes, strict=True):
            if type(array) is not np.ndarray or array.dtype is not dtype:
                return None
        arrays: list[Array] = list(inputs)
        shapes = [array.shape for array in arrays]
        if shapes != self._shapes and (again or not self._enter(shapes, arrays)):
            return None
        for view, array in zip(self._views, arrays, strict=True):
            view[...] = array
        if failed := self._fixed.call():
            return failed
        self._capacity.check()
        return [self._result(at, spec) for at, spec in enumerate(self._binding.outputs)]

    def _enter(self, shapes: list[tuple[int, ...]], arrays: Sequence[Array]) -> bool:
        """Makes ready for arrays of other shapes than the last; False for shapes that do not fit."""
        self._shapes = []
        if self._binding.misfit(shapes):
            return False
        self._capacity.size(shapes)
        for at, array in enumerate(arrays):
            self._capacity.keep(at, array)
        self._views = [_beginning(whole, shape) for (_, _, whole), shape in zip(self._takes, shapes, strict=True)]
        self._shapes = shapes
        return True

    def _result(self, at: int, spec: TensorSpec) -> Array:
        if not isinstance(spec, OpenSpec):
            return self._outputs[at].copy()
        shape = self._capacity.shape(at, spec)
        before, view = self._results[at]
        if shape != before:
            view = _beginning(self._outputs[at], shape)
            self._results[at] = (shape, view)
        return view.copy()

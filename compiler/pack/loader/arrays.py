"""Inputs and outputs in the host's memory, found fit."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from compiler.pack.loader.errors import InputError
from compiler.pack.loader.interface import DeviceArray
from compiler.pack.loader.specs import _SMALL, Array, OpenSpec, TensorSpec


def _shape_of(value: Any) -> tuple[int, ...] | None:
    """An array's or a nested list's shape; None if it is unknown."""
    shape = getattr(value, "shape", None)
    if shape is None and isinstance(value, DeviceArray):
        shape = value.spec.shape
    if shape is None and isinstance(value, (list, tuple, int, float, bool)):
        try:
            shape = np.shape(value)
        except ValueError:
            return None
    return None if shape is None else tuple(int(dim) for dim in shape)


def _check_names(kind: str, given: Mapping[str, Any], specs: Sequence[TensorSpec]) -> None:
    known = [spec.name for spec in specs]
    for name in given:
        if name not in known:
            raise InputError(f"unknown {kind} {name!r}. Fix: the model's are {', '.join(map(repr, known)) or 'none'}")


def _as_array(spec: TensorSpec, value: Any) -> Array:
    """An input as an array that fits its spec. Raises InputError naming the input and the fix."""
    if not isinstance(value, (np.ndarray, np.generic)):
        value = _converted(spec, value)
    array = np.asarray(value)
    if array.dtype.name == spec.dtype != spec.carrier:  # ml_dtypes' own
        array = array.view(spec.numpy)
    if array.dtype != spec.numpy:
        raise InputError(f"input {spec.name!r} is {array.dtype}, not {spec.dtype}. Fix: {_how_to_fix(spec)}")
    if isinstance(spec, OpenSpec):
        if said := spec.misfit(array.shape):
            raise InputError(said)
    elif array.shape != spec.shape:
        raise InputError(
            f"input {spec.name!r} has shape {array.shape}. Fix: give {spec.shape}, or compile for that shape"
        )
    strided = array.flags.aligned and not any(stride % array.itemsize for stride in array.strides)
    return array if strided else np.ascontiguousarray(array)


def _how_to_fix(spec: TensorSpec) -> str:
    if spec.dtype in _SMALL:
        return f"give its codes in uint8, one to a byte, or an array of ml_dtypes.{spec.dtype}"
    return f".astype({spec.numpy.name!r})"


def _converted(spec: TensorSpec, value: Any) -> Array:
    try:
        if hasattr(value, "__dlpack__"):
            return np.from_dlpack(value)
        return np.asarray(value, dtype=spec.numpy)
    except Exception as reason:  # DLPack's producers raise what they like
        raise InputError(
            f"input {spec.name!r} cannot be read as {spec}: {reason}. "
            "Fix: give a numpy array, or a detached tensor in host memory"
        ) from reason


def _checked_output(spec: TensorSpec, array: Array) -> Array:
    """A preallocated output, as the array to fill. Raises InputError naming the output and the fix."""
    if not isinstance(array, np.ndarray):
        raise InputError(f"output {spec.name!r} is a {type(array).__name__}. Fix: give a numpy array of {spec}")
    if array.dtype.name == spec.dtype != spec.carrier:
        array = array.view(spec.numpy)
    if array.dtype != spec.numpy or array.shape != spec.shape:
        raise InputError(f"output {spec.name!r} is {array.dtype}{list(array.shape)}. Fix: give {spec}")
    if not array.flags.writeable or not array.flags.aligned or any(stride % array.itemsize for stride in array.strides):
        raise InputError(f"output {spec.name!r} is read-only or misaligned. Fix: give an array of numpy.empty")
    return array


def _demand_apart(outputs: Iterable[tuple[str, Any]], inputs: Iterable[Any]) -> None:
    """Raises InputError for an output, beside its name, in memory of the host that an input may have too."""
    there = [(name, array) for name, array in outputs if isinstance(array, np.ndarray)]
    if not there:
        return
    shared = _shared([array for _, array in there], [one for one in inputs if isinstance(one, np.ndarray)])
    if shared is not None:
        name = next(name for name, array in there if array is shared)
        raise InputError(f"output {name!r} shares memory with an input. Fix: give an array of its own")


FEW_PAIRS = 8
"""Pairs of arrays that are compared one by one: that takes as long as to find where two arrays lie."""


def _may_fill(outputs: Collection[Array], inputs: Collection[Array]) -> bool:
    """Whether outputs can be written, and lie apart from the inputs as far as numpy's arrays know.

    Of two arrays without a base each has memory of its own, but for those that another library made so: where inputs
    are copied that does no harm.
    """
    if len(outputs) * len(inputs) > FEW_PAIRS:
        return all(one.flags.behaved for one in outputs) and _shared(outputs, inputs) is None
    for one in outputs:
        if not one.flags.behaved:
            return False
        for other in inputs:
            if one.base is None is other.base:
                if one is other:
                    return False
            elif np.may_share_memory(one, other):
                return False
    return True


def _shared(outputs: Collection[Array], inputs: Collection[Array]) -> Array | None:
    """The first of these outputs of which an address is between the first and the last one of an input; None: of none.

    It is what `np.may_share_memory` says of each pair. Where there are many, only arrays are compared that may lie in
    memory of the same array, each output with all inputs at once.
    """
    if len(outputs) * len(inputs) <= FEW_PAIRS:
        return next((one for one in outputs if any(np.may_share_memory(one, other) for other in inputs)), None)
    of_inputs, of_outputs = list(map(_owner, inputs)), list(map(_owner, outputs))
    both = {*of_inputs}.intersection(of_outputs)
    if 0 in of_inputs or 0 in of_outputs:
        both.update(of_inputs, of_outputs)
    taken = sorted(_addresses(one) for one, owner in zip(inputs, of_inputs, strict=True) if owner in both and one.size)
    begins = [begin for begin, _ in taken]
    ends = list(itertools.accumulate((end for _, end in taken), max))
    for one, owner in zip(outputs, of_outputs, strict=True):
        if owner in both and one.size:
            begin, end = _addresses(one)
            before = bisect.bisect_left(begins, end)  # inputs that begin before the output ends
            if before and ends[before - 1] > begin:
                return one
    return None


def _owner(array: Array) -> int:
    """What says in which array's memory an array lies; 0 for memory of something else."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return id(array) if array.flags.owndata else 0


def _addresses(array: Array) -> tuple[int, int]:
    """Where an array's memory begins and ends."""
    ways = [(extent - 1) * stride for extent, stride in zip(array.shape, array.strides, strict=True)]
    first: int = array.__array_interface__["data"][0]
    return first + sum(way for way in ways if way < 0), first + sum(way for way in ways if way > 0) + array.itemsize


def _returned(spec: TensorSpec, given: Mapping[str, Any], result: Any) -> Any:
    """The caller's own array where one was given."""
    array = given.get(spec.name)
    return result if array is None else array

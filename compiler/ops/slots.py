"""Slots of a kernel from the types of a node, and what definitions and references ask of their inputs."""

from __future__ import annotations

import numpy as np

from compiler.ir.kernel import Slot
from compiler.ir.tensor import DType, TensorType
from compiler.ops.operator import Arrays, Types, Unsupported


def given(types: Types, position: int) -> TensorType:
    """The type of an input that the operator cannot do without. Raises Unsupported when it is absent."""
    found = types[position] if position < len(types) else None
    if found is None:
        raise Unsupported(f"input {position} is absent but required", "export the model again")
    return found


def present(types: Types, position: int) -> bool:
    """Whether the optional input at `position` is given."""
    return position < len(types) and types[position] is not None


def arrays_at(arrays: Arrays, *positions: int) -> tuple[np.ndarray, ...]:
    """Inputs of a reference that the operator cannot do without."""
    found = tuple(arrays[position] for position in positions)
    return tuple(array for array in found if array is not None)


def optional(arrays: Arrays, position: int) -> np.ndarray | None:
    """An input of a reference that may be absent."""
    return arrays[position] if position < len(arrays) else None


def at_least_f32(array: np.ndarray) -> np.ndarray:
    """For references: a half type in float32, as numpy multiplies no matrices of halves; other dtypes as they are."""
    half = array.dtype.kind not in "iub" and array.dtype.itemsize < 4
    return array.astype(np.float32) if half else array


def slot_names(types: Types) -> tuple[str, ...]:
    """The slot of each input position: x0, x1, ... over those that are there, empty for an absent one."""
    names: list[str] = []
    for type in types:
        names.append("" if type is None else f"x{sum(map(bool, names))}")
    return tuple(names)


def input_slots(types: Types) -> tuple[Slot, ...]:
    """x0, x1, ... for the inputs that are there, in order; those that are absent have none."""
    there = [type for type in types if type is not None]
    return tuple(Slot(f"x{place}", type) for place, type in enumerate(there))


def output_slots(outputs: tuple[TensorType, ...]) -> tuple[Slot, ...]:
    """y0, y1, ... for the outputs that are asked for."""
    return tuple(Slot(f"y{place}", type) for place, type in enumerate(outputs))


def accumulator_of(dtype: DType) -> DType:
    """The dtype in which sums over elements of `dtype` are carried out: halves in f32, small integers in i32."""
    if dtype in (DType.F16, DType.BF16):
        return DType.F32
    if dtype in (DType.BOOL, DType.I8, DType.U8, DType.I16, DType.U16):
        return DType.I32
    return dtype

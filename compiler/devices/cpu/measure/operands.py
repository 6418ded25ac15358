"""Memory that a kernel is timed on: operands with data in them, cold weights, warm activations."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from compiler.devices.cpu.measure.timer import Region
from compiler.ir.kernel import Kernel, Routine
from compiler.ir.packing import Steered
from compiler.ir.tensor import DType
from compiler.measure.memory import PAGE, allocate
from compiler.measure.pattern import greatest_sizes, pattern, reads_indices

MOST_COPIES = 1024


@dataclass(frozen=True)
class Operands:
    """Pointer tables, one for each copy of the weights, and what is to be warm; `memory` keeps all of it alive."""

    tables: np.ndarray
    """uintp[copies, pointers]."""
    scratch: np.ndarray
    scratch_stride: int
    cold: ctypes.Array[Region]
    """Empty where the weights are to be found in a cache."""
    warm: ctypes.Array[Region]
    memory: tuple[np.ndarray, ...]


def lay_out(
    operands: Sequence[tuple[DType, int]],
    weights: Sequence[bool],
    writes: int,
    kernel: Kernel | Routine,
    scratch_bytes: int,
    lanes: int,
    cold_bytes: int,
    seed: int,
    *,
    in_memory: bool = False,
    steered: Mapping[int, Steered] | None = None,
) -> Operands:
    """Memory for a kernel's pointers, each (dtype, elements), the last `writes` of which it writes.

    Where `weights` holds, an operand exists so many times that all copies together fill `cold_bytes` (0: once). A
    kernel that takes them in turn finds none of them in a cache of that size; with `in_memory` none is to be in any
    cache. Floats are in [0.1, 1), so that nothing is denormal and nothing overflows; those of `steered` operands, by
    position, are what their packing gives as a specimen. Sizes leave nothing out (`greatest_sizes`).

    These are warmed, the warmest last: scratch, which all kernels of a lane share; what is written, which in an arena
    lies where something has just died; what is read, which has just been made.
    """
    random = np.random.default_rng(seed)
    zero = reads_indices(kernel)
    sizes = {at: size for at, slot in enumerate(kernel.inputs) if (size := greatest_sizes(kernel).get(slot.name))}
    weight_bytes = sum(dtype.bytes * count for (dtype, count), weight in zip(operands, weights, strict=True) if weight)
    copies = min(max(1, -(-cold_bytes // weight_bytes)), MOST_COPIES) if weight_bytes else 1
    tables = np.empty((copies, len(operands)), np.uintp)
    memory: list[np.ndarray] = []
    warm: list[Region] = []
    written: list[Region] = []
    cold: list[Region] = []
    for position, ((dtype, count), weight) in enumerate(zip(operands, weights, strict=True)):
        size = dtype.bytes * count
        stride = -(-size // 64) * 64 if weight and copies > 1 else size
        slab = allocate(stride * (copies if weight else 1))
        memory.append(slab)
        tables[:, position] = slab.ctypes.data + (stride * np.arange(copies) if weight else 0)
        if position >= len(operands) - writes:
            written.append(Region(slab.ctypes.data, size))
            continue
        if steered and position in steered:
            data = steered[position].specimen().view(np.uint8)
        elif position in sizes:
            data = np.full(count, sizes[position], dtype.numpy).view(np.uint8)
        else:
            data = np.resize(pattern(dtype, random, zero=zero), count).view(np.uint8)
        for at in range(0, len(slab), stride) if size else ():
            slab[at : at + size] = data
        if not weight:
            warm.append(Region(slab.ctypes.data, size))
        elif in_memory:
            cold.append(Region(slab.ctypes.data, len(slab)))
    scratch_stride = -(-scratch_bytes // PAGE) * PAGE
    scratch = allocate(scratch_stride * lanes)
    own = Region(scratch.ctypes.data, len(scratch))
    return Operands(tables, scratch, scratch_stride, _regions(cold), _regions([own, *written, *warm]), tuple(memory))


def _regions(regions: Sequence[Region]) -> ctypes.Array[Region]:
    return (Region * len(regions))(*regions)

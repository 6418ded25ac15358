"""KernelGraph: kernels joined by buffers.

Here views and in-place aliases are decided; where a buffer lies is not yet.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from compiler.contract.canonical import LATER, MARK, canonical_text
from compiler.encodings import find_once
from compiler.encodings.encoding import Encodings, Use
from compiler.errors import VerifyError
from compiler.ir.index import Index
from compiler.ir.kernel import Kernel, Routine
from compiler.ir.tensor import DType, Layout, TensorType
from compiler.ir.text import print_kernel_graph


@dataclass(frozen=True)
class Buffer:
    """A tensor in memory.

    The element at a logical index lies at `offset` + sum of `strides` * physical index of `storage`. Buffers of one
    storage may overlap: a Concat's operands are written straight into slices of its output. Strides and offset are in
    elements and belong to the layout's physical dimensions.
    """

    id: int
    type: TensorType
    layout: Layout
    storage: int
    strides: tuple[int, ...]
    offset: int = 0
    name: str = ""
    """The model's name for it, when it has one: data, never an identifier."""
    element: DType | None = None
    """What an element is in memory where that is not the dtype kernels compute with: the job's precision. Like a
    layout, it is lowering's matter."""
    unread: bool = field(default=False, metadata={MARK: LATER})
    """Of a result: whether what lies beyond the bounds of the kernel that makes it may be anything
    (`compiler.fuse.sizes.unread`)."""
    margins: tuple[int, ...] = field(default=(), metadata={MARK: LATER})
    """Of a result: for each dimension how many elements behind a size of it are read, so that only those must be what
    the kernel that makes it says; -1: all. Empty where nothing is known of any."""

    def __repr__(self) -> str:
        """Its canonical text: keys of stages and plans are hashed from it."""
        return canonical_text(self)

    @staticmethod
    def whole(id: int, type: TensorType, layout: Layout | None = None, name: str = "") -> Buffer:
        """A buffer that fills a storage of its own, with the same id."""
        layout = layout or Layout.plain(type.rank)
        return Buffer(id, type, layout, id, row_major(layout.physical(type.dims)), 0, name)

    @property
    def dtype(self) -> DType:
        """Of the elements in memory: they are converted to and from `type.dtype` where they are loaded and stored."""
        return self.element or self.type.dtype

    @property
    def bytes(self) -> int:
        """Of all its elements as they lie in memory; padding of blocks and gaps of strides do not count."""
        return self.type.elements * self.dtype.bytes

    @property
    def is_contiguous(self) -> bool:
        """Whether its elements fill one stretch of memory, in the order of its physical dimensions."""
        extents = self.layout.physical(self.type.dims)
        return all(
            extent == 1 or stride == expected
            for extent, stride, expected in zip(extents, self.strides, row_major(extents), strict=True)
        )

    @property
    def span(self) -> int:
        """Elements from the storage's beginning to just past the last element."""
        extents = self.layout.physical(self.type.dims)
        if 0 in extents:
            return self.offset
        return (
            self.offset + 1 + sum((extent - 1) * stride for extent, stride in zip(extents, self.strides, strict=True))
        )

    def address(self, index: tuple[Index, ...]) -> Index:
        """The element offset of a logical index."""
        total = Index((), self.offset)
        for (axis, block), stride in zip(self.layout.dims, self.strides, strict=True):
            inner = self.layout.block_of(axis)
            position = index[axis] % inner if block else index[axis] // inner if inner else index[axis]
            total = total + position * stride
        return total

    def __str__(self) -> str:
        place = "" if self.storage == self.id and not self.offset else f" in s{self.storage}+{self.offset}"
        element = f" as {self.element}" if self.element else ""
        return f"b{self.id}: {self.type}{element} {self.layout}{place}"


def row_major(extents: tuple[int, ...]) -> tuple[int, ...]:
    """Strides, in elements, of a dense array."""
    return tuple(math.prod(extents[axis + 1 :]) for axis in range(len(extents)))


@dataclass(frozen=True)
class Call:
    """A kernel applied to buffers, in the order of its slots.

    `in_place` pairs (output, input) positions whose elements are read and written at the same point only, so that they
    may share memory when the input dies here. `sources` are the model's node names, for reports.
    """

    kernel: Kernel | Routine
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    in_place: tuple[tuple[int, int], ...] = ()
    sources: tuple[str, ...] = ()

    def __str__(self) -> str:
        outputs = ", ".join(f"b{buffer}" for buffer in self.outputs)
        inputs = ", ".join(f"b{buffer}" for buffer in self.inputs)
        return f"{outputs} = {self.kernel.family}({inputs})"


@dataclass(frozen=True)
class KernelGraph:
    """Calls in execution order over buffers. Constants are given by buffer, in logical (unpacked) form.

    `halves` says whether kernels may take floats as bf16, so that constants tell of zeros that these leave out too.
    """

    buffers: Mapping[int, Buffer]
    calls: tuple[Call, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    constants: Mapping[int, np.ndarray] = field(default_factory=dict)
    halves: bool = False

    @cached_property
    def readers(self) -> Mapping[int, tuple[int, ...]]:
        """Positions of the calls that read a buffer."""
        found: dict[int, list[int]] = {buffer: [] for buffer in self.buffers}
        for position, call in enumerate(self.calls):
            for buffer in dict.fromkeys(call.inputs):
                found[buffer].append(position)
        return {buffer: tuple(positions) for buffer, positions in found.items()}

    def encodings(self, buffer: int, use: Use) -> Encodings:
        """In which a buffer may be kept for a use, besides dense; none but for constants.

        None for a recurrence where no call that reads the buffer is one.
        """
        if buffer not in self.constants:
            return ()
        if use is Use.RECURRENCE and not any(map(self._is_sequential, self.readers[buffer])):
            return ()
        whole = Use.BF16_PRODUCT if use is Use.PRODUCT and self.halves else use
        return find_once(self.constants[buffer], whole)

    def _is_sequential(self, call: int) -> bool:
        kernel = self.calls[call].kernel
        return isinstance(kernel, Kernel) and bool(kernel.sequential)

    @cached_property
    def writer(self) -> Mapping[int, int]:
        """Position of the call that writes a buffer."""
        return {buffer: position for position, call in enumerate(self.calls) for buffer in call.outputs}

    @cached_property
    def lying_in(self) -> Mapping[int, tuple[int, ...]]:
        """The buffers of a storage."""
        found: dict[int, list[int]] = {}
        for id, buffer in self.buffers.items():
            found.setdefault(buffer.storage, []).append(id)
        return {storage: tuple(ids) for storage, ids in found.items()}

    @cached_property
    def storage_bytes(self) -> Mapping[int, int]:
        """Bytes of each storage: up to the end of the last buffer in it."""
        sizes: dict[int, int] = {}
        for buffer in self.buffers.values():
            sizes[buffer.storage] = max(sizes.get(buffer.storage, 0), buffer.span * buffer.dtype.bytes)
        return sizes

    def verify(self) -> None:
        """Raises VerifyError unless each call's buffers fit its slots and are written before they are read.

        Writes and reads are compared storage by storage. Kernels must be sound, and stay inside their slots.
        """
        ready = {self.buffers[buffer].storage for buffer in (*self.inputs, *self.constants)}
        for buffer in self.buffers.values():
            try:
                buffer.layout.verify(buffer.type.rank)
            except ValueError as error:
                raise VerifyError(f"buffer `{buffer}`: {error}") from error
            if len(buffer.strides) != len(buffer.layout.dims):
                raise VerifyError(f"buffer `{buffer}` has {len(buffer.strides)} strides for layout {buffer.layout}")
        for position, call in enumerate(self.calls):
            call.kernel.verify()
            if isinstance(call.kernel, Kernel):
                call.kernel.verify_inside()
            slots = (*call.kernel.inputs, *call.kernel.outputs)
            if len(slots) != len(call.inputs) + len(call.outputs):
                raise self._fault(
                    position, f"binds {len(call.inputs) + len(call.outputs)} buffers to {len(slots)} slots"
                )
            for slot, id in zip(slots, (*call.inputs, *call.outputs), strict=True):
                if self.buffers[id].type != slot.type:
                    raise self._fault(position, f"binds `{self.buffers[id]}` to slot `{slot}`")
            for id in call.inputs:
                if self.buffers[id].storage not in ready:
                    raise self._fault(position, f"reads b{id} before it is written")
            ready.update(self.buffers[id].storage for id in call.outputs)
        for id in self.outputs:
            if self.buffers[id].storage not in ready:
                raise VerifyError(f"output b{id} is never written")

    def _fault(self, position: int, what: str) -> VerifyError:
        around = self.calls[max(0, position - 5) : position + 5]
        listing = "\n".join(f"  {'>' if call is self.calls[position] else ' '} {call}" for call in around)
        return VerifyError(f"call {position} `{self.calls[position]}` {what}\n{listing}\n{self.calls[position].kernel}")

    def __str__(self) -> str:
        return print_kernel_graph(self)

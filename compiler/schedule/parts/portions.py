"""A part of a kernel graph as a kernel graph of its own, whose inputs and outputs are what it shares with others."""

from __future__ import annotations

from dataclasses import replace

from compiler.ir.buffers import Buffer, Call, KernelGraph
from compiler.ir.plans.parts import Operand, Part, Parts, Portion
from compiler.ir.tensor import DType, TensorType


def portion(kernels: KernelGraph, parts: Parts, part: Part) -> Portion:
    """One of the parts.

    What the caller has is a port as in the whole graph. An edge is a port of bytes, in which the buffers of its storage
    lie. Of a storage that several parts write, each has it as input and as output.
    """
    return _Portion(kernels, parts, part).made()


class _Portion:
    def __init__(self, kernels: KernelGraph, parts: Parts, part: Part) -> None:
        self.kernels = kernels
        self.calls = [kernels.calls[at] for at in part.calls]
        self.fresh = max(kernels.buffers) + 1
        self.operands = {kernels.buffers[id].storage: Operand("input", at) for at, id in enumerate(kernels.inputs)}
        self.operands |= {edge.storage: Operand("edge", at) for at, edge in enumerate(parts.edges)}
        self.operands |= {kernels.buffers[id].storage: Operand("output", at) for at, id in enumerate(kernels.outputs)}
        self.edges = {edge.storage: edge for edge in parts.edges}
        inside = {*part.calls}
        self.made_elsewhere = {
            kernels.buffers[id].storage
            for at, call in enumerate(kernels.calls)
            if at not in inside
            for id in call.outputs
        } | {kernels.buffers[id].storage for id in kernels.inputs}

    def made(self) -> Portion:
        read = self._storages([id for call in self.calls for id in call.inputs])
        written = self._storages([id for call in self.calls for id in call.outputs])
        touched = dict.fromkeys([*read, *written])
        inputs = [one for one in touched if one in self.operands and one in self.made_elsewhere and one in read]
        inputs += [one for one in written if one in self.edges and one in self.made_elsewhere and one not in inputs]
        outputs = [one for one in written if one in self.operands]
        bound = dict.fromkeys(id for call in self.calls for id in (*call.inputs, *call.outputs))
        kept = {id: self.kernels.buffers[id] for id in bound}
        sources = {buffer.storage for buffer in kept.values()} & self.kernels.constants.keys()
        kept |= {id: self.kernels.buffers[id] for id in sources}
        ports = {storage: self._port(storage) for storage in (*inputs, *outputs)}
        renamed = {id: self.fresh + at for at, id in enumerate(kept) if id in self.edges}
        buffers = {renamed.get(id, id): replace(buffer, id=renamed.get(id, id)) for id, buffer in kept.items()}
        found = KernelGraph(
            {**buffers, **{port.id: port for port in ports.values()}},
            tuple(_renamed(call, renamed) for call in self.calls),
            tuple(ports[storage].id for storage in inputs),
            tuple(ports[storage].id for storage in outputs),
            {id: self.kernels.constants[id] for id in kept if id in self.kernels.constants},
        )
        found.verify()
        return Portion(found, *(tuple(self.operands[one] for one in each) for each in (inputs, outputs)))

    def _storages(self, ids: list[int]) -> list[int]:
        """Of buffers that are no constants, each once."""
        storages = (self.kernels.buffers[id].storage for id in ids)
        return [one for one in dict.fromkeys(storages) if one not in self.kernels.constants]

    def _port(self, storage: int) -> Buffer:
        operand = self.operands[storage]
        if operand.space == "edge":
            return Buffer.whole(storage, TensorType(DType.U8, (self.edges[storage].bytes,)))
        own = self.kernels.inputs if operand.space == "input" else self.kernels.outputs
        return self.kernels.buffers[own[operand.at]]


def _renamed(call: Call, ids: dict[int, int]) -> Call:
    inputs, outputs = (tuple(ids.get(id, id) for id in each) for each in (call.inputs, call.outputs))
    return replace(call, inputs=inputs, outputs=outputs)

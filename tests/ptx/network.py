"""A whole network on the PTX that NVRTC emits for it: its launches one after another, in the order of its plan."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from compiler.codegen.weights import Weights
from compiler.devices.cuda.codegen.lowered import unit_text
from compiler.devices.cuda.emit.flow import Flow, Node
from compiler.devices.cuda.emit.launches import launches
from compiler.devices.cuda.emit.program import ALIGNMENT, cut_in_units, launched_kernels, lower_cuda_calls
from compiler.devices.cuda.target import CudaTarget
from compiler.encodings.aside import Octets
from compiler.ir.buffers import KernelGraph
from compiler.ir.plans.plan import Plan
from tests.ptx.device import ptx_of
from tests.ptx.machine import Machine
from tests.ptx.memory import GlobalMemory

MEMORY = 1 << 27
RESIDENT = 4
"""Blocks of a persistent kernel that are resident, and so launched."""


@dataclass(frozen=True)
class Emitted:
    """What is launched for a plan, and the constants."""

    kernels: KernelGraph
    plan: Plan
    flow: Flow
    weights: Octets
    target: CudaTarget

    @staticmethod
    def of(kernels: KernelGraph, plan: Plan, target: CudaTarget) -> Emitted:
        """As `emit_cuda` does, but for the host."""
        lowered = lower_cuda_calls(kernels, plan, target)
        nodes, weights = launches(plan, lowered), Weights(ALIGNMENT)
        if plan.residents:
            flow = Flow.of_persistent(kernels, plan, lowered, nodes, target, weights)
        else:
            flow = Flow.of(kernels, plan, lowered, nodes, launched_kernels(nodes, lowered), weights)
        assert not flow.decisions, "the host decides"
        return Emitted(kernels, plan, flow, weights.bytes(), target)

    def run(
        self,
        inputs: Mapping[str, np.ndarray],
        times: int = 1,
        *,
        races: bool = True,
        changed: Callable[[str], str] = str,
    ) -> list[np.ndarray]:
        """The outputs of the last of several inferences, in the graph's order; of PTX that was `changed`. Raises Fault.

        Of resident blocks accesses to global memory are checked too.
        """
        memory = GlobalMemory(MEMORY)
        kernels, plan = self.kernels, self.plan
        places = {
            "SPACE_WEIGHTS": _put(memory, np.frombuffer(self.weights, np.uint8)),
            "SPACE_ARENA": memory.allocate(max(plan.arena_bytes, 1)),
            "SPACE_SCRATCH": memory.allocate(max(self.flow.scratch_bytes, 1)),
            "SPACE_COUNTERS": _put(memory, np.zeros(max(self.flow.counter_bytes, 1), np.uint8)),
        }
        given = [_put(memory, inputs[kernels.buffers[id].name or ""]) for id in kernels.inputs]
        found = [memory.allocate(max(kernels.buffers[id].type.bytes, 1)) for id in kernels.outputs]
        ports = {"SPACE_INPUT": given, "SPACE_OUTPUT": found}
        machines = self._machines(memory, races, changed)
        for _ in range(times):
            for node in self.flow.nodes:
                bases = [
                    ports[one.space][one.port] if one.space in ports else places[one.space] for one in node.operands
                ]
                arguments = [base + one.at for base, one in zip(bases, node.operands, strict=True)]
                self._launch(machines[node.kernel.name], node, arguments)
        outputs = [kernels.buffers[id].type for id in kernels.outputs]
        return [
            memory.get(address, type.bytes).view(type.dtype.numpy).reshape(type.dims)
            for address, type in zip(found, outputs, strict=True)
        ]

    def _launch(self, machine: Machine, node: Node, arguments: Sequence[int]) -> None:
        kernel = node.kernel
        grid = RESIDENT if self.plan.residents else kernel.grid
        raw = [address.to_bytes(8, "little") for address in arguments]
        machine.launch(kernel.name, [grid], [kernel.block], raw, kernel.shared_bytes, max(kernel.cluster, 1))

    def _machines(self, memory: GlobalMemory, races: bool, changed: Callable[[str], str]) -> dict[str, Machine]:
        """Of each kernel the machine that has its unit; all have one memory."""
        found: dict[str, Machine] = {}
        launched = {node.kernel.name: node.kernel for node in self.flow.nodes}
        for unit in cut_in_units(list(launched.values())):
            resident, text = RESIDENT if self.plan.residents else 0, ptx_of(unit_text(unit), self.target.architecture)
            machine = Machine(changed(text), memory, resident, races, between=resident > 0)
            found |= {kernel.name: machine for kernel in unit}
        return found


def _put(memory: GlobalMemory, array: np.ndarray) -> int:
    octets = np.frombuffer(np.ascontiguousarray(array).tobytes(), np.uint8)
    address = memory.allocate(max(octets.size, 1))
    memory.put(address, octets)
    return address

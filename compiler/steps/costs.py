"""What kernels cost, from records where all that is compared has some, else by the model: `ir.machine.Costs`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from compiler.devices.device import Backend
from compiler.fuse.joins import Join, joins, promising
from compiler.ir.buffers import Call, KernelGraph
from compiler.ir.machine import Record, Setting, Workload
from compiler.ir.tile import Cost
from compiler.knowledge.known import measured_seconds
from compiler.tuning.tune import propose, workload_key


@dataclass(frozen=True)
class KernelCosts:
    """`Costs` of one backend. Workloads that are equal are looked at once."""

    backend: Backend
    lanes: int
    precision: str
    measured: Mapping[str, float]
    """By workload key, seconds under the best tile that was measured."""
    modelled: dict[str, float] = field(default_factory=dict, repr=False, compare=False)

    def of(self, kernels: KernelGraph, calls: Sequence[Call]) -> tuple[Cost, ...]:
        kernels = self.backend.stored(kernels, self.precision)
        workloads = [self.backend.workload_of(kernels, call) for call in calls]
        keys = [workload_key(workload) for workload in workloads]
        if all(key in self.measured for key in keys):
            return tuple(Cost(self.measured[key], "record") for key in keys)
        return tuple(Cost(self.model(key, workload), "model") for key, workload in zip(keys, workloads, strict=True))

    def on(self, backend: Backend, precision: str) -> KernelCosts:
        """The same for a backend of which more is known, or another precision.

        What was modelled stays where neither is new.
        """
        alike = (backend.target, precision) == (self.backend.target, self.precision)
        return replace(self, backend=backend, precision=precision, modelled=self.modelled if alike else {})

    def model(self, key: str, workload: Workload) -> float:
        """Seconds under the tile that the model thinks best."""
        if key not in self.modelled:
            best, *_ = propose(self.backend.legal_tiles, workload, self.lanes, precision=self.precision)
            self.modelled[key] = best.seconds
        return self.modelled[key]


def kernel_costs(
    backend: Backend, records: Sequence[Record], setting: Setting, lanes: int, precision: str
) -> KernelCosts:
    """Costs by the records that count for a backend in a setting."""
    return KernelCosts(backend, lanes, precision, measured_seconds(records, backend.target, setting))


def offered_joins(kernels: KernelGraph, costs: KernelCosts, without_steps: frozenset[str]) -> tuple[Join, ...]:
    """The joins that the backend has algorithms for and that the model does not rule out."""
    if "joins" in without_steps:
        return ()
    return promising(kernels, joins(kernels, costs.backend.joins), replace(costs, measured={}))

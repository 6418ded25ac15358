"""What kernels cost, from records where all that is compared has some, else by the model: `ir.machine.Costs`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from compiler.devices.device import Backend
from compiler.encodings.quantised import QuantisedWeights
from compiler.fuse.joins import Join, joins, promising
from compiler.ir.buffers import Call, KernelGraph
from compiler.ir.machine import Record, Setting, Workload
from compiler.ir.tile import Cost
from compiler.knowledge.carried import holds
from compiler.knowledge.kinds import KERNEL
from compiler.knowledge.known import identity, measured_seconds
from compiler.knowledge.records import Records
from compiler.tuning.proposal import Proposal
from compiler.tuning.tune import propose, workload_key


@dataclass(frozen=True)
class KernelCosts:
    """`Costs` of one backend. Workloads that are equal are looked at once."""

    backend: Backend
    lanes: int
    precision: str
    measured: Mapping[str, float]
    """By workload key, seconds under the best tile that was measured."""
    earlier: Mapping[str, Sequence[Record]] = field(default_factory=dict, repr=False, compare=False)
    """By workload key, what was measured of code of earlier compilers, best first."""
    recalled: dict[str, float | None] = field(default_factory=dict, repr=False, compare=False)
    """Of those, what holds of the workloads that were asked for."""
    modelled: dict[str, Proposal] = field(default_factory=dict, repr=False, compare=False)
    is_stored: bool = False
    """Whether the kernels that are asked for have the elements in memory that they are to have."""

    def of(self, kernels: KernelGraph, calls: Sequence[Call]) -> tuple[Cost, ...]:
        """Seconds of each call by records where all are measured, else of all by the cost model."""
        kernels = kernels if self.is_stored else self.backend.stored(kernels, self.precision)
        workloads = [self.backend.workload_of(kernels, call) for call in calls]
        keys = [workload_key(workload) for workload in workloads]
        costs = self.recalling(dict(zip(keys, workloads, strict=True)))
        if all(key in costs.measured for key in keys):
            return tuple(Cost(costs.measured[key], "record") for key in keys)
        return tuple(Cost(self.model(key, workload), "model") for key, workload in zip(keys, workloads, strict=True))

    def recalling(self, workloads: Mapping[str, Workload]) -> KernelCosts:
        """The same with what was measured of these kernels, by key, where it was of the code that they have now."""
        found = {}
        for key in sorted(workloads.keys() & self.earlier.keys() - self.measured.keys()):
            if key not in self.recalled:
                self.recalled[key] = self._recalled(workloads[key], self.earlier[key])
            if (seconds := self.recalled[key]) is not None:
                found[key] = seconds
        return replace(self, measured={**self.measured, **found}) if found else self

    def _recalled(self, workload: Workload, records: Sequence[Record]) -> float | None:
        """Seconds of the best that holds; code is generated for legal tiles alone."""
        legal = {
            identity(option.tile.to_json()): option.tile
            for option in propose(self.backend.legal_tiles, workload, self.lanes, math.inf, self.precision)
        }
        for record in records:
            tile = legal.get(identity(record.variant))
            if tile is not None and holds(record, partial(self.backend.source_of, workload, tile)):
                return record.seconds
        return None

    def on(self, backend: Backend, precision: str) -> KernelCosts:
        """The same for a backend of which more is known, or another precision, and for kernels with stored elements.

        What was modelled stays where neither is new.
        """
        alike = (backend.target, precision) == (self.backend.target, self.precision)
        modelled, recalled = (self.modelled, self.recalled) if alike else ({}, {})
        changed = replace(self, backend=backend, precision=precision, modelled=modelled, recalled=recalled)
        return replace(changed, is_stored=True)

    def model(self, key: str, workload: Workload) -> float:
        """Seconds under the tile that the model thinks best."""
        return self._best(key, workload).seconds

    def readers_of_codes(self, kernels: KernelGraph) -> int:
        """Calls that read a constant as the codes that it was made from, under the tiles that the model thinks best."""
        workloads = (self.backend.workload_of(kernels, call) for call in kernels.calls)
        best = (self._best(workload_key(workload), workload) for workload in workloads)
        return sum(QuantisedWeights.is_used_by(one.tile.algorithm) for one in best)

    def _best(self, key: str, workload: Workload) -> Proposal:
        if key not in self.modelled:
            best, *_ = propose(self.backend.legal_tiles, workload, self.lanes, precision=self.precision)
            self.modelled[key] = best
        return self.modelled[key]


def kernel_costs(
    backend: Backend, records: Sequence[Record], setting: Setting, lanes: int, precision: str
) -> KernelCosts:
    """Costs by the records that count for a backend in a setting."""
    target, records = backend.target, Records.of(records)
    measured = measured_seconds(records, target, setting)
    earlier: dict[str, list[Record]] = {}
    for record in sorted(records.find(KERNEL, target), key=lambda record: record.seconds):
        if record.threads == 1 and record.workload not in measured and setting.is_like(record):
            earlier.setdefault(record.workload, []).append(record)
    return KernelCosts(backend, lanes, precision, measured, earlier)


def offered_joins(kernels: KernelGraph, costs: KernelCosts, without_steps: frozenset[str]) -> tuple[Join, ...]:
    """The joins that the backend has algorithms for and that the model does not rule out."""
    if "joins" in without_steps:
        return ()
    return promising(kernels, joins(kernels, costs.backend.joins), replace(costs, measured={}, earlier={}))

"""What kernels take in fp32 and in bf16 or fp16, and what a model takes that has some in one and some in the other.

By the model of costs alone, with the rates of the cores at hand, so that the same is chosen whatever was measured
before. The other precision is the short one of the kind of device. What a kernel takes depends on its neighbours: on
CPUs a result lies in memory as bf16 only where its writer and all its readers take it so, on GPUs its writer decides.
A kernel in the short precision may still have an algorithm of fp32, which the search of tiles decides.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property

from compiler.contract.kinds import AUTO
from compiler.devices.device import Backend
from compiler.ir.buffers import KernelGraph
from compiler.ir.machine import Workload
from compiler.ir.region import Region
from compiler.tuning.error_budget import allowed_error
from compiler.tuning.proposal import Proposal
from compiler.tuning.tune import propose, workload_key

FP32 = "fp32"


@dataclass(frozen=True)
class PrecisionCosts:
    """Of the kernels of one model. A choice is the set of calls, by position, that are short.

    tolerance  of which algorithms that are not exact may spend a part
    short      the other precision than fp32
    """

    backend: Backend
    lanes: int
    plain: KernelGraph
    tolerance: float
    short: str
    _stored: dict[frozenset[int], KernelGraph] = field(default_factory=dict, repr=False)
    _options: dict[tuple[str, str], list[Proposal]] = field(default_factory=dict, repr=False)

    @property
    def calls(self) -> frozenset[int]:
        """All of them."""
        return frozenset(range(len(self.plain.calls)))

    def stored(self, chosen: frozenset[int]) -> KernelGraph:
        """The kernels with the elements that they have in memory under a choice."""
        if chosen not in self._stored:
            self._stored[chosen] = self.backend.stored(self.plain, AUTO, self.calls - chosen)
        return self._stored[chosen]

    def seconds(self, chosen: frozenset[int]) -> list[float]:
        """Of each call on one lane under a choice; nothing of regions, whose calls are in fp32 under every choice."""
        kernels = self.stored(chosen)
        return [
            0.0 if isinstance(call.kernel, Region) else self._best(kernels, at, AUTO if at in chosen else FP32)
            for at, call in enumerate(kernels.calls)
        ]

    @cached_property
    def multiplying(self) -> frozenset[int]:
        """The calls that some algorithm multiplies in the short precision."""
        workloads = {at: self.backend.workload_of(self.plain, self.plain.calls[at]) for at in self.calls}
        able = {at: one for at, one in workloads.items() if not isinstance(one.kernel, Region)}
        tiles = {
            at: [{option.tile for option in self._proposed(one, precision)} for precision in (FP32, AUTO)]
            for at, one in able.items()
        }
        return frozenset(at for at, (plain, every) in tiles.items() if every - plain)

    @cached_property
    def changed(self) -> frozenset[int]:
        """The calls that it changes: they multiply in it, or results or weights of theirs lie in memory so."""
        every = self.stored(self.calls)
        return self.multiplying | {at for at in self.calls if stored_short(every, at)}

    def _best(self, kernels: KernelGraph, at: int, precision: str) -> float:
        return self._proposed(self.backend.workload_of(kernels, kernels.calls[at]), precision)[0].seconds

    def _proposed(self, workload: Workload, precision: str) -> list[Proposal]:
        key = workload_key(workload), precision
        if key not in self._options:
            self._options[key] = propose(self.backend.legal_tiles, workload, self.lanes, self._allowed, precision)
        return self._options[key]

    @cached_property
    def _allowed(self) -> float:
        """What an algorithm that is not exact may add."""
        legal, plain = self.backend.legal_tiles, self.plain
        workloads = [
            self.backend.workload_of(plain, call) for call in plain.calls if not isinstance(call.kernel, Region)
        ]
        return allowed_error([propose(legal, one, self.lanes, math.inf, FP32) for one in workloads], self.tolerance)


def stored_short(kernels: KernelGraph, at: int) -> list[int]:
    """What a call writes, and its weights, as far as that lies in memory in 16 bits."""
    call = kernels.calls[at]
    weights = [id for id in call.inputs if id in kernels.constants]
    return [id for id in (*call.outputs, *weights) if kernels.buffers[id].element]

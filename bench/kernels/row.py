"""One group of nodes: our kernels for it, and the peers' layers."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import onnx

from bench.engines.catalogue import OURS
from bench.engines.driver import Layer
from bench.kernels.groups import Group, Plan, group
from bench.kernels.profile import Profile
from bench.kernels.wording import describe
from bench.zoo.flops import static_shapes


@dataclass(frozen=True)
class Kernel:
    """One kernel call of our artifact.

    gflop    operations as its definition states them, padding and elementwise work included; None where it has none
             that are counted
    of_peak  its operations per second over what the core reaches at nothing but multiply-adds; fewer operations than
             the definition's (Winograd) may take it above 1
    """

    family: str
    tile: str
    gflop: float | None
    us: float
    of_peak: float | None


@dataclass(frozen=True)
class Row:
    """What a group costs in each engine, in microseconds; a peer that needs no layer for it has none."""

    what: str
    nodes: tuple[str, ...]
    kernels: tuple[Kernel, ...]
    share: float
    peers: Mapping[str, float]

    @property
    def us(self) -> float:
        """Of all our kernels."""
        return sum(kernel.us for kernel in self.kernels)

    @property
    def best_us(self) -> float | None:
        """Of the fastest peer, provided that each has layers for the group."""
        return min(self.peers.values()) if self.peers and all(self.peers.values()) else None

    @property
    def lost_us(self) -> float | None:
        """By how much the fastest peer is faster; negative where we are."""
        return None if self.best_us is None else self.us - self.best_us

    def to_json(self) -> dict[str, Any]:
        """Plain JSON."""
        kernels = [asdict(kernel) for kernel in self.kernels]
        counted = {"kernels": kernels, "us": self.us, "share": self.share, "peers_us": dict(self.peers)}
        return {"what": self.what, "nodes": list(self.nodes), **counted, "lost_us": self.lost_us}


def rows_of(model: onnx.ModelProto, calls: Sequence[Mapping[str, Any]], profile: Profile) -> list[Row]:
    """All layers of all engines, in the order of the model's nodes. `calls` are those of our artifact's plan.

    What a group costs an engine is the median over the rounds of all its layers' sum.
    """
    shapes = static_shapes(model)
    ours = [
        _kernel(call, layers, profile.peak)
        for call, layers in zip(calls, zip(*profile.plans[OURS], strict=True), strict=True)
    ]
    whole = sum(kernel.us for kernel in ours)
    peers = [engine for engine in profile.plans if engine != OURS]

    def row(found: Group) -> Row:
        nodes = [model.graph.node[at] for at in found.nodes]
        kernels = tuple(ours[at] for at in found.layers[OURS][0]) if OURS in found.layers else ()
        theirs = {peer: 1e6 * _seconds(profile.plans[peer], found.layers.get(peer, ())) for peer in peers}
        share = sum(kernel.us for kernel in kernels) / whole
        return Row(describe(nodes, shapes), tuple(node.name for node in nodes), kernels, share, theirs)

    return [row(found) for found in group(model.graph, profile.plans, frozenset((OURS,)))]


def _kernel(call: Mapping[str, Any], layers: Sequence[Layer], peak: float) -> Kernel:
    seconds = statistics.median(layer.seconds for layer in layers)
    flops = call["flops"]
    of_peak = flops / seconds / peak if flops and seconds else None
    return Kernel(call["family"], call["tile"], 1e-9 * flops if flops else None, 1e6 * seconds, of_peak)


def _seconds(plans: Sequence[Plan], layers: Sequence[Sequence[int]]) -> float:
    """Median over the plans of their layers' sum; 0 where there are none."""
    sums = [math.fsum(plan[at].seconds for at in positions) for plan, positions in zip(plans, layers, strict=False)]
    return statistics.median(sums) if sums else 0.0

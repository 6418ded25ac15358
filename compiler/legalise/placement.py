"""Which node runs where, why, and what that costs by the profile's formula.

    accelerator  macs / profile.macs, and elements / profile.elements for operators that sum no products
    a part       profile.call + bytes brought in / profile.sent + bytes brought back / profile.received
    weights      what exceeds profile.memory, / profile.streamed
    CPU          macs / cpu.macs, and elements / cpu.elements

Operators that only say how a tensor is seen cost nothing. These are estimates: nothing is run, and nothing overlaps.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from compiler.ir.graph import Graph, Node
from compiler.legalise.profile import Profile
from compiler.legalise.program import Types
from compiler.ops import having
from compiler.ops.traits import Trait
from compiler.rewrite.gain import operations

SEEN = having(Trait.RESHAPE) | {"Identity"}
SUMS = having(Trait.CONTRACTION)


@dataclass(frozen=True)
class Cpu:
    """What a CPU computes in int8: multiply-accumulates, and elements of results of other operators, per second."""

    macs: float
    elements: float
    source: str


CPUS: Mapping[str, Cpu] = MappingProxyType(
    {
        "cortex-a53": Cpu(2.5e9, 1.5e8, "four cores of 1.5 GHz: MobileNet v2 in 122 ms (Coral); elements assumed"),
        "cortex-a76": Cpu(1.2e10, 6e8, "four cores of 2.4 GHz, assumed: dot products and a wider core"),
    }
)


@dataclass(frozen=True)
class Place:
    """A node on the accelerator, or on the CPU with the reason; its seconds on either."""

    node: Node
    reason: str | None
    accelerator: float
    cpu: Mapping[str, float]

    @property
    def is_on_accelerator(self) -> bool:
        """Whether nothing keeps the node from the accelerator."""
        return self.reason is None


@dataclass(frozen=True)
class Placement:
    """Every node's place, in order.

    parts     how many parts run on the accelerator; `handovers` how often execution goes from one to the other
    transfer  seconds of calls, transfers and weights brought again
    """

    places: tuple[Place, ...]
    parts: int
    handovers: int
    transfer: float

    @property
    def share(self) -> float:
        """Of the nodes that compute something, how many run on the accelerator: 0 to 1."""
        some = [place for place in self.places if place.node.op not in SEEN]
        return sum(place.is_on_accelerator for place in some) / len(some) if some else 1.0

    def seconds(self, cpu: str) -> float:
        """Of an inference, by the formula, with the rest on this CPU."""
        computed = sum(one.accelerator if one.is_on_accelerator else one.cpu[cpu] for one in self.places)
        return computed + self.transfer

    def to_json(self) -> dict[str, Any]:
        """The sums."""
        return {
            "nodes": len(self.places),
            "share": round(self.share, 4),
            "parts": self.parts,
            "handovers": self.handovers,
            "transfer_s": self.transfer,
            "seconds": {name: self.seconds(name) for name in CPUS},
        }


def place(graph: Graph, profile: Profile) -> Placement:
    """Where each node runs."""
    types = Types(graph.values)
    places: list[Place] = []
    stopped: Node | None = None
    for node in graph.nodes:
        reason = profile.refusal(node, types, graph.constants)
        if reason is None and stopped is not None:
            reason = f"it comes after {stopped.op} {stopped.source!r}, and {profile.name} has one part alone"
        elif reason is not None and profile.parts == "first" and stopped is None:
            stopped = node
        places.append(Place(node, reason, *_seconds(graph, node, profile)))
    parts = _parts(places)
    transfer = sum(_transfer(graph, part, profile) for part in parts)
    weights = _weights(graph, [place.node for part in parts for place in part], profile)
    transfer += max(weights - profile.cost.memory, 0) / profile.cost.streamed
    changes = sum(one.is_on_accelerator != two.is_on_accelerator for one, two in itertools.pairwise(places))
    return Placement(tuple(places), len(parts), changes, transfer)


def _parts(places: Sequence[Place]) -> list[list[Place]]:
    parts: list[list[Place]] = []
    begun = False
    for one in places:
        if one.is_on_accelerator:
            if not begun:
                parts.append([])
            parts[-1].append(one)
        begun = one.is_on_accelerator
    return parts


def _transfer(graph: Graph, part: Sequence[Place], profile: Profile) -> float:
    made = {value for place in part for value in place.node.outputs}
    inside = {id(place.node) for place in part}
    read = {value for place in part for value in place.node.used} - made - graph.constants.keys()
    given = {
        value
        for value in made
        if value in graph.outputs or any(id(reader) not in inside for reader in graph.readers[value])
    }
    size = profile.cost.bytes
    sent = sum(graph.type(value).elements for value in read) * size / profile.cost.sent
    return profile.cost.call + sent + sum(graph.type(v).elements for v in given) * size / profile.cost.received


def _weights(graph: Graph, nodes: Sequence[Node], profile: Profile) -> int:
    read = {value for node in nodes for value in node.used if value in graph.constants}
    return sum(graph.type(value).elements for value in read) * profile.cost.bytes


def _seconds(graph: Graph, node: Node, profile: Profile) -> tuple[float, dict[str, float]]:
    if node.op in SEEN:
        return 0.0, dict.fromkeys(CPUS, 0.0)
    if node.op in SUMS:
        macs = operations(node, graph.type) / 2
        return macs / profile.cost.macs, {name: macs / cpu.macs for name, cpu in CPUS.items()}
    elements = max(sum(graph.type(value).elements for value in node.outputs), graph.type(node.used[0]).elements)
    return elements / profile.cost.elements, {name: elements / cpu.elements for name, cpu in CPUS.items()}

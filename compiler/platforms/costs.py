"""A graph on a platform as a problem: what each operator takes on each device, or why it cannot run there.

    formula      sums of products: max(macs / rate, bytes moved / rate); other operators: elements / rate
    accelerator  the same without bytes, and only what the profile carries out; weights that do not fit are streamed
    records      what the file says, else the formula, else it cannot run there

Operators that only say how a tensor is seen cost nothing and run anywhere. An elementwise operator of which the only
operand is a product that nothing else reads costs nothing where that product runs: the kernel's end does it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from compiler.contract.legalisation import PROFILES
from compiler.contract.platform import Accelerator, Formula, Platform, PlatformDevice, Records
from compiler.contract.platform import Link as LinkSaid
from compiler.errors import OptionsError
from compiler.ir.graph import Graph, Node
from compiler.legalise.placement import SEEN, SUMS
from compiler.legalise.profile import Profile, as_given, open_profile
from compiler.legalise.program import Types
from compiler.ops import OPERATORS, having
from compiler.ops.traits import Trait
from compiler.platforms.problem import HOST_INPUT, UNSUPPORTED, Device, Link, Problem, Tensor
from compiler.rewrite.gain import operations

PRODUCTS = SUMS | having(Trait.RECURRENT)
JOINED = having(Trait.ELEMENTWISE) | SEEN | {"BatchNormalization"}
"""Operators that go into the kernel of the one before them."""
MOST_RECORDS = 32 << 20
"""Bytes of a file of records."""


@dataclass(frozen=True)
class Refused:
    """A node that cannot run on a device, and why."""

    node: str
    operator: str
    device: str
    reason: str


@dataclass(frozen=True)
class Costs:
    """A problem of operators, which of them join the kernel before them, and what cannot run where."""

    problem: Problem
    joins: tuple[bool, ...]
    refused: tuple[Refused, ...]


def costs_of(graph: Graph, platform: Platform, folder: Path) -> Costs:
    """The graph's nodes as units; `folder` has the files that the platform names.

    Raises OptionsError for an operator, a profile or a file of records that is not there or makes no sense, and for a
    node that no device can run.
    """
    refused: list[Refused] = []
    seconds: dict[str, list[float]] = {}
    kinds: dict[str, Device] = {}
    for name, one in platform.devices.items():
        model = _Model(graph, name, one, folder)
        row = []
        for node in graph.nodes:
            taken, reason = model.node_s(node)
            row.append(taken)
            if reason is not None:
                refused.append(Refused(node.source or node.op, node.op, name, reason))
        seconds[name] = row
        kinds[name] = model.device(platform)
    for at, node in enumerate(graph.nodes):
        if all(row[at] == UNSUPPORTED for row in seconds.values()):
            why = "; ".join(one.reason for one in refused if one.node == (node.source or node.op))
            raise OptionsError(
                f"no device of the platform runs {node.op} {node.source!r:.80}: {why:.300}",
                fix="let a device run it: a formula for the host, or its name in an accelerator's operators",
            )
    copies = platform.names()
    return Costs(
        Problem(
            names=[node.source or node.op for node in graph.nodes],
            before=_before(graph),
            seconds=[seconds[kind] for _, kind in copies],
            weights=[
                {id: graph.type(id).elements for id in node.used if id in graph.constants} for node in graph.nodes
            ],
            tensors=_tensors(graph),
            devices=[_named(kinds[kind], name) for name, kind in copies],
            links=_links(platform),
            host=[name for name, _ in copies].index(platform.host) if platform.host else 0,
        ),
        tuple(node.op in JOINED for node in graph.nodes),
        tuple(refused),
    )


def _named(device: Device, name: str) -> Device:
    return Device(**{**device.__dict__, "name": name})


class _Model:
    """What nodes take on one kind of device."""

    def __init__(self, graph: Graph, name: str, said: PlatformDevice, folder: Path) -> None:
        self.graph, self.name, self.said = graph, name, said
        self.profile: Profile | None = None
        self.recorded: Mapping[str, float] = {}
        if said.accelerator is not None:
            self.profile = _profile(said.accelerator, folder)
            _demand_operators(f"devices.{name}.accelerator.operators", said.accelerator.operators)
        if said.formula is not None:
            _demand_operators(f"devices.{name}.formula.unsupported", said.formula.unsupported)
        if said.records is not None:
            self.recorded = _records(f"devices.{name}.records", said.records, folder)

    def device(self, platform: Platform) -> Device:
        """Its facts."""
        memory = platform.memories[self.said.memory] if self.said.memory else None
        shared = {"space": self.said.memory, "bytes": memory.bytes, "handover_s": memory.handover} if memory else {}
        if self.said.accelerator is not None:
            assert self.profile is not None
            given, cost = self.said.accelerator, self.profile.cost
            shared |= {
                "memory": cost.memory if given.memory is None else given.memory,
                "streamed": given.streamed or cost.streamed,
                "call_s": cost.call if given.call is None else given.call,
                "element_bytes": cost.bytes,
            }
        elif (one := self.said.records or self.said.formula) is not None:
            shared |= {"call_s": one.call, "element_bytes": one.element_bytes}
        return Device(self.name, self.name, **shared)  # type: ignore[arg-type]

    def node_s(self, node: Node) -> tuple[float, str | None]:
        """Seconds of a node, or UNSUPPORTED and why."""
        for key in (node.source, node.op):
            if key in self.recorded:
                return self.recorded[key], None
        if self.said.accelerator is not None:
            return self._on_accelerator(node, self.said.accelerator)
        if self.said.formula is None:
            if node.op in SEEN:
                return 0.0, None
            return UNSUPPORTED, f"{self.name}'s records have no time for it"
        formula = self.said.formula
        if node.op in formula.unsupported:
            return UNSUPPORTED, f"{self.name} does not support {node.op}"
        return self._by_formula(node, formula), None

    def _by_formula(self, node: Node, formula: Formula) -> float:
        if node.op in SEEN or ends_product(self.graph, node):
            return 0.0
        if node.op in PRODUCTS:
            rate = formula.depthwise if formula.depthwise and is_depthwise(self.graph, node) else formula.macs
            seconds = operations(node, self.graph.type) / 2 / rate
            if formula.bytes is not None:
                touched = {*node.used, *node.outputs}
                moved = sum(self.graph.type(value).elements for value in touched) * formula.element_bytes
                steps = self.graph.type(node.used[0]).dims[0] if node.op in having(Trait.RECURRENT) else 1
                seconds = max(seconds, moved * steps / formula.bytes)
        else:
            seconds = elements_of(self.graph, node) / formula.elements
        return formula.operator + seconds

    def _on_accelerator(self, node: Node, given: Accelerator) -> tuple[float, str | None]:
        assert self.profile is not None
        if node.op in SEEN:
            return 0.0, None
        if node.op not in given.operators:
            reason = self.profile.refusal(node, Types(self.graph.values), self.graph.constants)
            if reason is not None:
                return UNSUPPORTED, reason
        if ends_product(self.graph, node):
            return 0.0, None
        cost = self.profile.cost
        if node.op in PRODUCTS:
            return given.operator + operations(node, self.graph.type) / 2 / (given.macs or cost.macs), None
        return given.operator + elements_of(self.graph, node) / (given.elements or cost.elements), None


def is_depthwise(graph: Graph, node: Node) -> bool:
    """Whether a convolution has a group for each channel of its operand."""
    return node.op == "Conv" and node.attrs.get("group", 1) == graph.type(node.used[0]).dims[1] != 1


def ends_product(graph: Graph, node: Node) -> bool:
    """Whether an operator is done on the results of a product before they are stored."""
    moving = [value for value in node.used if value not in graph.constants]
    if node.op not in having(Trait.ELEMENTWISE) or len(moving) != 1 or len(graph.readers[moving[0]]) != 1:
        return False
    before = graph.producer.get(moving[0])
    return before is not None and before.op in PRODUCTS


def elements_of(graph: Graph, node: Node) -> int:
    """Elements that an operator makes, or those of its first operand where these are more."""
    read = graph.type(node.used[0]).elements if node.used and node.op != "Gather" else 0
    return max(sum(graph.type(value).elements for value in node.outputs), read)


def _before(graph: Graph) -> list[tuple[int, ...]]:
    made = {value: at for at, node in enumerate(graph.nodes) for value in node.outputs}
    return [tuple(sorted({made[value] for value in node.used if value in made})) for node in graph.nodes]


def tensor_ids(graph: Graph) -> list[int]:
    """The values that are a problem's tensors, in order: what is read or given to the caller, and no constant."""
    made = [value for node in graph.nodes for value in node.outputs]
    outputs = {*graph.outputs} & {*made}
    return [value for value in (*graph.inputs, *made) if value in outputs or graph.readers[value]]


def _tensors(graph: Graph) -> list[Tensor]:
    made = {value: at for at, node in enumerate(graph.nodes) for value in node.outputs}
    readers: dict[int, int] = {}
    for at, node in enumerate(graph.nodes):
        for value in node.used:
            readers[value] = readers.get(value, 0) | 1 << at
    return [
        Tensor(
            graph.type(value).elements,
            made.get(value, HOST_INPUT),
            readers.get(value, 0),
            value in graph.outputs and value in made,
        )
        for value in tensor_ids(graph)
    ]


def _links(platform: Platform) -> dict[tuple[int, int], Link]:
    copies: dict[str, list[int]] = {}
    for at, (_, kind) in enumerate(platform.names()):
        copies.setdefault(kind, []).append(at)
    found: dict[tuple[int, int], Link] = {}
    for name, said in platform.links.items():
        first, second = said.between
        pairs = [(a, b) for a in copies[first] for b in copies[second] if a != b and (first != second or a < b)]
        for at, (a, b) in enumerate(pairs):
            own = name if len(pairs) == 1 else f"{name}.{at}"
            for ends, rate in (((a, b), said.bytes), ((b, a), said.back or said.bytes)):
                one = _link(own, ends, rate, said, b)
                if ends not in found or one.latency_s < found[ends].latency_s:
                    found[ends] = one
    return found


def _link(name: str, ends: tuple[int, int], rate: float, said: LinkSaid, second: int) -> Link:
    return Link(name, said.latency, rate, ends, None if said.overlaps else second)


def _profile(said: Accelerator, folder: Path) -> Profile:
    if not isinstance(said.profile, str):
        return as_given(said.profile)
    beside = folder / said.profile
    return open_profile(said.profile if said.profile in PROFILES or not beside.is_file() else str(beside))


def _demand_operators(field: str, said: tuple[str, ...]) -> None:
    for one in said:
        if one not in OPERATORS:
            raise OptionsError(
                f"{field} names {one!r:.60}, which is no operator that is known here",
                fix="write ONNX's name of an operator: docs/operators.md lists them",
            )


def _records(field: str, said: Records, folder: Path) -> dict[str, float]:
    found = said.times if said.file is None else _read(f"{field}.file", said.file, folder)
    assert found is not None, "a platform has either"
    return {name: value / (said.clock or 1.0) for name, value in found.items()}


def _read(field: str, file: str, folder: Path) -> dict[str, float]:
    path = folder / file
    try:
        if path.stat().st_size > MOST_RECORDS:
            raise OptionsError(f"{field}: {file!r:.80} has more than {MOST_RECORDS} bytes", fix="give times alone")
        found = json.loads(path.read_text())
    except OSError as error:
        raise OptionsError(
            f"{field}: {file!r:.80} cannot be read: {error.strerror}",
            fix="write a file beside the platform's: a JSON object of nodes and their seconds",
        ) from None
    except ValueError as error:
        raise OptionsError(f"{field}: {file!r:.80} is no JSON: {error}", fix="correct it") from None
    if not isinstance(found, dict):
        raise OptionsError(f"{field}: {file!r:.80} is no JSON object", fix='write {"conv1": 0.0012}')
    for name, value in found.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
            raise OptionsError(
                f"{field}: {file!r:.80} says {value!r:.40} of {name!r:.60}", fix="write a number of at least 0"
            )
    return found

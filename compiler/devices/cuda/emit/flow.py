"""Launches as graphs, and what the host decides between them.

Without regions all launches are one graph. A region ends a graph: those launched before it, and those after it, are
graphs of their own, and so are those of its bodies. What was launched in an earlier graph has ended when one of a later
graph begins, since all are launched in one stream; so edges are kept within graphs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from compiler.codegen.host_tables import Operand, operand
from compiler.codegen.weights import Weights
from compiler.devices.cuda.codegen.lowered import COUNTER_BYTES, CudaLowered
from compiler.devices.cuda.codegen.regions import CudaBody, CudaRegion, Spot, Step
from compiler.devices.cuda.emit.launches import Launch, launches, scratch_offsets
from compiler.devices.cuda.emit.persistent import persistent
from compiler.devices.cuda.target import CudaTarget
from compiler.ir.buffers import KernelGraph
from compiler.ir.plans.plan import Plan
from compiler.ir.region import Loop


@dataclass(frozen=True)
class Node:
    """A launch of a kernel on operands.

    Of which calls of the plan, after which earlier nodes of its graph, by position.
    """

    kernel: CudaLowered
    calls: tuple[int, ...]
    after: tuple[int, ...]
    operands: tuple[Operand, ...]


@dataclass(frozen=True)
class Decision:
    """A loop, or (None) a choice between two sequences, with where the host reads what it decides by (`CudaRegion`)."""

    loop: Loop | None
    bodies: tuple[int, ...]
    trips: Operand | None
    going: Operand | None
    again: Operand | None


@dataclass(frozen=True)
class Item:
    """Of a sequence: a graph or a decision, by position."""

    graph: int | None = None
    decision: int | None = None


@dataclass(frozen=True)
class Flow:
    """All launches in graphs, each a range of `nodes`, and sequences of graphs and decisions, of which 0 is the model.

    And the bytes that scratch and counters need in all. Of a persistent kernel `times_at` is where counters say when
    calls ran.
    """

    nodes: tuple[Node, ...]
    graphs: tuple[range, ...]
    decisions: tuple[Decision, ...]
    sequences: tuple[tuple[Item, ...], ...]
    scratch_bytes: int
    counter_bytes: int
    times_at: int | None = None

    @staticmethod
    def of(
        kernels: KernelGraph,
        plan: Plan,
        lowered: Sequence[CudaLowered],
        nodes: Sequence[Launch],
        launched: Sequence[CudaLowered],
        weights: Weights,
    ) -> Flow:
        """`lowered` is in call order, `launched` has the kernel of each launch.

        Constants are added to `weights` as they are met.
        """
        pieces, scratch_bytes = scratch_offsets(plan, lowered, nodes)
        given = _given(kernels, plan, lowered, pieces, weights)
        flow = _Flow()
        flow.sequence(
            [_Launched(node, kernel, node.calls) for node, kernel in zip(nodes, launched, strict=True)], lowered, given
        )
        return Flow(
            tuple(flow.nodes),
            tuple(flow.graphs),
            tuple(flow.decisions),
            tuple(flow.sequences),
            scratch_bytes,
            COUNTER_BYTES * flow.counters,
        )

    @staticmethod
    def of_persistent(
        kernels: KernelGraph,
        plan: Plan,
        lowered: Sequence[CudaLowered],
        nodes: Sequence[Launch],
        target: CudaTarget,
        weights: Weights,
    ) -> Flow:
        """All launches as one persistent kernel (`persistent`). Raises VerifyError for kernels that cannot be so."""
        pieces, scratch_bytes = scratch_offsets(plan, lowered, nodes)
        given = _given(kernels, plan, lowered, pieces, weights)
        calls = tuple(call for node in nodes for call in node.calls)
        one = persistent(nodes, lowered, {call: given(call) for call in calls}, plan.residents, target)
        node = Node(one.kernel, calls, (), one.operands)
        return Flow((node,), (range(1),), (), ((Item(graph=0),),), scratch_bytes, one.counter_bytes, one.times_at)


@dataclass(frozen=True)
class _Launched:
    """A launch, its kernel, and the calls of the whole plan that it carries out."""

    launch: Launch
    kernel: CudaLowered
    calls: tuple[int, ...]


Given = Callable[[int], list[Operand]]
"""What a call of a plan is given, but for its counters."""


def _given(
    kernels: KernelGraph, plan: Plan, lowered: Sequence[CudaLowered], pieces: Sequence[int], weights: Weights
) -> Given:
    """`pieces` are where each call's scratch memory begins. Constants are added to `weights` as they are met."""

    def given(call: int) -> list[Operand]:
        bound, kernel = kernels.calls[call], lowered[call]
        rows = [
            operand(kernels, plan, id, kernel.packings.get(slot), weights)
            for slot, id in enumerate((*bound.inputs, *bound.outputs))
        ]
        return rows + [Operand("SPACE_SCRATCH", 0, pieces[call])] * (kernel.scratch_bytes > 0)

    return given


@dataclass
class _Flow:
    """What was found so far. `begun` is where the graph begins that is not ended."""

    nodes: list[Node] = field(default_factory=list)
    graphs: list[range] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)
    sequences: list[tuple[Item, ...]] = field(default_factory=list)
    counters: int = 0
    begun: int = 0

    def sequence(
        self,
        each: Sequence[_Launched],
        lowered: Sequence[CudaLowered],
        given: Given,
        last: Callable[[], None] = lambda: None,
    ) -> int:
        """Launches one plan's launches, in its order, then what is `last`; the position of the sequence."""
        number = len(self.sequences)
        self.sequences.append(())
        items: list[Item] = []
        at: dict[int, int] = {}
        for position, one in enumerate(each):
            if isinstance(one.kernel, CudaRegion):
                (call,) = one.launch.calls
                items += self._region(one.kernel, given(call), one.calls)
                at.clear()
                continue
            rows = [row for call in one.launch.calls for row in (*given(call), *self._counters(lowered[call]))]
            at[position] = len(self.nodes)
            after = tuple(at[earlier] for earlier in one.launch.after if earlier in at)
            self.nodes.append(Node(one.kernel, one.calls, after, tuple(rows)))
        last()
        items += self._ended()
        self.sequences[number] = tuple(items)
        return number

    def _ended(self) -> Iterator[Item]:
        """The graph that was begun, if there is anything in it."""
        if self.begun < len(self.nodes):
            self.graphs.append(range(self.begun, len(self.nodes)))
            yield Item(graph=len(self.graphs) - 1)
        self.begun = len(self.nodes)

    def _counters(self, kernel: CudaLowered) -> list[Operand]:
        if not kernel.counters:
            return []
        self.counters += kernel.counters
        return [Operand("SPACE_COUNTERS", 0, COUNTER_BYTES * (self.counters - kernel.counters))]

    def _step(self, step: Step, given: Sequence[Operand], calls: tuple[int, ...]) -> None:
        """After all others of its graph."""
        awaited = {earlier for node in self.nodes[self.begun :] for earlier in node.after}
        after = tuple(at for at in range(self.begun, len(self.nodes)) if at not in awaited)
        rows = [_found(spot, given) for spot in step.given] + self._counters(step.kernel)
        self.nodes.append(Node(step.kernel, calls, after, tuple(rows)))

    def _region(self, region: CudaRegion, given: Sequence[Operand], calls: tuple[int, ...]) -> Iterator[Item]:
        """Ends a graph and decides. `calls` are the region's in the whole plan, each of which is in a launch of it."""
        if region.entry_step:
            self._step(region.entry_step, given, calls)
        yield from self._ended()
        number = len(self.decisions)
        read = [_found(spot, given) if spot else None for spot in (region.trips, region.going, region.again)]
        self.decisions.append(Decision(region.loop, (), *read))

        def turn() -> None:
            if region.turn_step:
                self._step(region.turn_step, given, calls)

        bodies = tuple(self._body(body, given, calls, turn) for body in region.bodies)
        self.decisions[number] = Decision(region.loop, bodies, *read)
        yield Item(decision=number)

    def _body(self, body: CudaBody, given: Sequence[Operand], calls: tuple[int, ...], last: Callable[[], None]) -> int:
        each = [
            _Launched(launch, body.lowered[call], calls)
            for launch in launches(body.plan, body.lowered)
            for call in launch.calls
        ]
        return self.sequence(each, body.lowered, lambda call: [*_operands(body, call, given)], last)


def _operands(body: CudaBody, call: int, given: Sequence[Operand]) -> Iterator[Operand]:
    """What a call of a body is given, where `given` are the arguments of its region."""
    bound, kernel = body.kernels.calls[call], body.lowered[call]
    for slot, id in enumerate((*bound.inputs, *bound.outputs)):
        buffer = body.kernels.buffers[id]
        place, offset = body.plan.places[buffer.storage], buffer.offset * buffer.dtype.bytes
        if place.space == "constant":
            yield given[body.uses[call, slot].slot].behind(0 if slot in kernel.packings else offset)
        elif place.space == "arena":
            yield _found(body.arena, given).behind(place.at + offset)
        else:
            spot = (body.inputs if place.space == "input" else body.outputs)[place.at]
            yield _found(spot, given).behind(offset)
    if kernel.scratch_bytes:
        yield _found(body.scratch, given)


def _found(spot: Spot, given: Sequence[Operand]) -> Operand:
    return given[spot.argument].behind(spot.offset)

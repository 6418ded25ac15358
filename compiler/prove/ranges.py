"""Ranges of a model's inputs, derived by walking to what they are used for.

Each reader of positions, lengths and the like demands an interval of what it reads (`demands`). One abstract walk over
intervals brings all demands to the inputs: forwards it finds what every value on the way may hold, given what is known
of the inputs; backwards it asks, of each operand of a value that may leave what is demanded of it, an interval that
suffices (`transfer`). What several readers ask of a value is met; an interval that would leave nothing is not taken,
since the value may not reach that reader in the first place (of a Where one branch). Inputs only ever become narrower,
so that the walk ends, and what a last walk forwards shows within its demand is proven. The rest is `unproven`: drawn at
random, it may lead outside.

What a body of a region (`compiler.ir.region`) demands of what it is given, the node demands of its operands: a walk of
its own finds that. What an iteration hands to the next is not followed round.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from compiler.ir.graph import Graph, Node
from compiler.ir.region import WHILE
from compiler.prove.demands import Demand, Weight, demands
from compiler.prove.interval import Interval, of_array, rounded_down, rounded_up, whole
from compiler.prove.transfer import Site, backward, forward, transfer_of

MOST_ROUNDS = 16
"""Walks there and back; each narrows an input, and few models need more than three."""
FEW_TURNS = 16
"""Iterations that a loop runs at most where random inputs say how often."""
MOST_HINTS = 64
"""Different intervals that hints may want; each takes a walk."""
MOST_UNPROVEN = 100
"""Demands that are reported."""


@dataclass(frozen=True)
class InputRange:
    """The numbers that an input takes, and the demands that led there."""

    interval: Interval
    causes: tuple[Demand, ...]

    @property
    def why(self) -> str:
        """What demands the range, each reason once."""
        return "; ".join(dict.fromkeys(map(str, self.causes)))


@dataclass(frozen=True)
class Unproven:
    """A demand that the ranges do not keep, and the inputs on which the value depends."""

    demand: Demand
    inputs: tuple[int, ...]


@dataclass(frozen=True)
class Derived:
    """Ranges by input, of inputs of which something is demanded, and the demands that may not be kept."""

    ranges: Mapping[int, InputRange]
    unproven: tuple[Unproven, ...]


def derive(graph: Graph) -> Derived:
    """The ranges of a graph's inputs. Equal graphs give equal ranges."""
    found = sorted([*demands(graph), *_inner(graph)], key=lambda demand: demand.weight)
    must = [demand for demand in found if demand.weight is Weight.MUST]
    walk = _Walk(graph)
    walk.settle(must)
    open_ = walk.open(must)
    if any(demand.also for demand in open_):
        must = [replace(one, wanted=one.also) if one.also and one in open_ else one for one in must]
        walk = _Walk(graph)
        walk.settle(must)
    unproven = tuple(_dependent(graph, demand) for demand in walk.open(must)[:MOST_UNPROVEN])
    walk.narrow([demand for demand in found if demand.weight is Weight.DOMAIN])
    for alike in _widest([demand for demand in found if demand.weight is Weight.HINT]):
        walk.narrow(alike, untouched=True)
    order = {demand.value: at for at, demand in reversed([*enumerate(found)])}
    ranges = {
        value: InputRange(walk.ranges[value], tuple(sorted(causes, key=lambda one: order[one.value])))
        for value, causes in walk.causes.items()
    }
    return Derived(ranges, tuple(one for one in unproven if one.inputs))


def _inner(graph: Graph) -> Iterator[Demand]:
    """What the regions of a graph demand of their operands."""
    for node in graph.nodes:
        is_loop = node.op == WHILE
        if is_loop and node.inputs[0] is not None:
            yield Demand(node.inputs[0], Interval(0, FEW_TURNS), node, "a number of iterations", Weight.HINT)
        for body in node.bodies.values():
            given = zip(body.graph.inputs[1 if is_loop else 0 :], node.inputs[2 if is_loop else 1 :], strict=True)
            ranges = derive(body.graph).ranges
            for inside, value in given:
                if inside in ranges and value is not None:
                    why = f"what its body reads as {ranges[inside].why}"
                    weight = min(cause.weight for cause in ranges[inside].causes)
                    yield Demand(value, ranges[inside].interval, node, why, weight)


def _widest(hints: Iterable[Demand]) -> list[list[Demand]]:
    """Those that want the same numbers together, who wants most first; the rest does not count."""
    alike: dict[Interval, list[Demand]] = {}
    for hint in hints:
        alike.setdefault(hint.wanted, []).append(hint)
    return sorted(alike.values(), key=lambda some: some[0].wanted.low - some[0].wanted.high)[:MOST_HINTS]


@dataclass
class _Need:
    interval: Interval
    causes: list[Demand]


class _Walk:
    """The state of a walk: what is known of the inputs. `causes` has those that were narrowed, and by which demands."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.ranges = {value: whole(graph.type(value).dtype) for value in graph.inputs}
        self.causes: dict[int, list[Demand]] = {}
        self._constants: dict[int, Interval] = {}
        self._ways: dict[frozenset[int], tuple[Node, ...]] = {}

    def _way_to(self, values: frozenset[int]) -> tuple[Node, ...]:
        """The nodes through which demands of values are walked back, in the graph's order."""
        if values not in self._ways:
            self._ways[values] = self._found_way(values)
        return self._ways[values]

    def _found_way(self, values: Iterable[int]) -> tuple[Node, ...]:
        seen: set[int] = set()
        waiting = [*values]
        on_the_way: set[int] = set()
        while waiting:
            value = waiting.pop()
            node = self.graph.producer.get(value)
            if value in seen or node is None or transfer_of(node.op) is None:
                continue
            seen.add(value)
            on_the_way.add(node.outputs[0])
            waiting += node.used
        return tuple(node for node in self.graph.nodes if node.outputs and node.outputs[0] in on_the_way)

    def settle(self, must: Sequence[Demand]) -> None:
        """Narrows inputs until all demands are kept, or nothing helps."""
        for _ in range(MOST_ROUNDS):
            if not self.open(must):
                return
            if not self.narrow(must) and not self.narrow(must, shares=True):
                return

    def open(self, must: Sequence[Demand]) -> list[Demand]:
        """Demands that may not be kept."""
        known = self._forward(self._way_to(frozenset(demand.value for demand in must)))
        return [demand for demand in must if self._known(known, demand.value) not in demand.wanted]

    def narrow(self, of: Sequence[Demand], *, shares: bool = False, untouched: bool = False) -> bool:
        """One walk there and back; whether an input became narrower. With `untouched` those alone that never did."""
        nodes = self._way_to(frozenset(demand.value for demand in of))
        known = self._forward(nodes)
        needs: dict[int, _Need] = {}
        for demand in of:
            self._ask(needs, known, demand.value, demand.wanted, [demand])
        for node in reversed(nodes):
            for place, output in enumerate(node.outputs):
                if (need := needs.get(output)) is not None:
                    self._ask_operands(needs, known, self._site(node, known, place, shares), need)
        taken = [
            self._take(value, needs[value])
            for value in self.graph.inputs
            if value in needs and not (untouched and value in self.causes)
        ]
        return any(taken)

    def _ask_operands(self, needs: dict[int, _Need], known: Mapping[int, Interval], site: Site, need: _Need) -> None:
        for position, operand in enumerate(site.node.inputs):
            if operand is None:
                continue
            asked = backward(site, position, need.interval)
            if asked is not None:
                self._ask(needs, known, operand, asked, need.causes)

    def _ask(
        self,
        needs: dict[int, _Need],
        known: Mapping[int, Interval],
        value: int,
        asked: Interval,
        causes: Sequence[Demand],
    ) -> None:
        """Adds to what is needed of a value, unless it is kept anyway or would leave nothing."""
        have = self._known(known, value)
        there = needs.get(value)
        if not self.graph.type(value).dtype.is_float:
            asked = Interval(rounded_up(asked.low), rounded_down(asked.high))
        met = asked.meet(there.interval) if there else asked
        if have in asked or met.meet(have).is_empty:
            return
        needs[value] = _Need(met, [*(there.causes if there else ()), *causes])

    def _take(self, value: int, need: _Need) -> bool:
        met = self.ranges[value].meet(need.interval)
        if met.is_empty or met == self.ranges[value]:
            return False
        self.ranges[value] = met
        causes = self.causes.setdefault(value, [])
        causes += [cause for cause in need.causes if cause not in causes]
        return True

    def _forward(self, nodes: Iterable[Node]) -> dict[int, Interval]:
        known = dict(self.ranges)
        for node in nodes:
            for place, output in enumerate(node.outputs):
                known[output] = forward(self._site(node, known, place, shares=False))
        return known

    def _site(self, node: Node, known: Mapping[int, Interval], place: int, shares: bool) -> Site:
        graph = self.graph
        args = tuple(None if value is None else self._known(known, value) for value in node.inputs)
        types = tuple(None if value is None else graph.type(value) for value in node.inputs)
        return Site(node, args, types, tuple(graph.type(value) for value in node.outputs), place, shares)

    def _known(self, known: Mapping[int, Interval], value: int) -> Interval:
        if value in known:
            return known[value]
        if value not in self.graph.constants:
            return self._at_the_end(value)
        if value not in self._constants:
            self._constants[value] = of_array(self.graph.constants[value])
        return self._constants[value]

    def _at_the_end(self, value: int) -> Interval:
        """Of a value from which the walk goes no further: what its operator promises of it."""
        node = self.graph.producer[value]
        types = tuple(None if operand is None else self.graph.type(operand) for operand in node.inputs)
        results = tuple(self.graph.type(output) for output in node.outputs)
        return forward(Site(node, (None,) * len(node.inputs), types, results, node.outputs.index(value)))


def _dependent(graph: Graph, demand: Demand) -> Unproven:
    """With the inputs from which the value is computed."""
    seen: set[int] = set()
    waiting = [demand.value]
    while waiting:
        value = waiting.pop()
        if value not in seen:
            seen.add(value)
            node = graph.producer.get(value)
            waiting += node.used if node else ()
    return Unproven(demand, tuple(value for value in graph.inputs if value in seen))

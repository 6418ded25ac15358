"""Loops and branches as regions: their body once, as a graph of its own (`compiler.ir.region`).

A body is walked like everything else, on values of which nothing but their types is known (`whiles` does so for
loops). Of the nodes that this makes, those that depend on what an iteration is given are its body; the others are
computed once, before it. Where a region will not do, the walk is taken back, and the caller writes the loop out, or
computes both branches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import fields, replace
from itertools import chain
from typing import Protocol

from compiler.errors import Refusal
from compiler.frontend.assembly import Assembly
from compiler.frontend.open.extent import Extent, Numbers, Size, is_open
from compiler.frontend.open.values import Demand, Narrower, OpenValues
from compiler.ir.graph import Attr, Body, Graph, Node, Value
from compiler.ir.region import CONDITIONAL
from compiler.ir.tensor import TensorType
from compiler.ops import having
from compiler.ops.operator import Unsupported
from compiler.ops.traits import Trait

LEAST_WORK = 1 << 16
"""Elements that branches make, and contractions read, from which on only the one is computed that is taken: less costs
about as much as what a region costs beside its work, and both branches are then fused into what is around them."""
PRODUCTS = having(Trait.CONTRACTION) | having(Trait.WINDOW) | having(Trait.RECURRENT)


class Walk(Protocol):
    """What of the walk over the model an attempt may have to take back."""

    graph: Assembly
    values: OpenValues
    refusals: list[Refusal]
    notices: list[str]
    refused: int
    depth: int
    state: int | None
    streams: int
    left_out: int


@contextmanager
def attempt(walk: Walk) -> Iterator[None]:
    """Takes back all that was done where what is inside raises Unsupported or Narrower, which goes on to the caller.

    What is built behind it is of the node that was being read before.
    """
    source = walk.values.source
    kept = [(one, _state(one)) for one in (walk.graph, walk.values)]
    refusals, notices = [*walk.refusals], [*walk.notices]
    numbers = walk.refused, walk.depth, walk.state, walk.streams, walk.left_out
    try:
        yield
    except (Unsupported, Narrower):
        for one, state in kept:
            for name, value in state.items():
                setattr(one, name, value)
        walk.refusals[:], walk.notices[:] = refusals, notices
        walk.refused, walk.depth, walk.state, walk.streams, walk.left_out = numbers
        raise
    finally:
        walk.values.source = source


def _state(one: Assembly | OpenValues) -> dict[str, object]:
    """Copies of the containers that it consists of."""
    held = {field.name: getattr(one, field.name) for field in fields(one)}
    return {name: copy(value) for name, value in held.items() if isinstance(value, dict | list | set)}


def conditional_region(
    walk: Walk, condition: int, branches: Sequence[Callable[[], Sequence[int | None]]]
) -> tuple[int, ...]:
    """Results of the first branch where the condition, a scalar of bool, holds, else of the second.

    Raises Unsupported where their shapes differ, they are too small to be worth it, or a node was refused.
    """
    graph, values, source = walk.graph, walk.values, walk.values.source
    pieces, results, demands, work = [], [], [], 0
    for branch in branches:
        piece = Piece(walk)
        refused = walk.refused
        found = [values.at_run_time(there(id)) for id in branch()]
        if walk.refused > refused or any(id < 0 for id in found):
            raise Unsupported("a node of a branch was refused", "")
        piece.demand_closed([values.shape(id) for id in found])
        piece.demand_plain(found)
        demands.append(piece.demanded())
        nodes = piece.taken_out()
        work += sum(_work(graph, node) for node in nodes)
        pieces.append((piece, nodes))
        results.append(found)
    if work < LEAST_WORK:
        raise Unsupported("its branches are small", "")
    for one, other in zip(*results, strict=True):
        demand_same(values, one, other)
    given = len(results[0])
    for at, own in enumerate(demands):
        for _, scalar, low, _ in own:
            for other, found in enumerate(results):
                found.append(scalar if other == at else values.scalar(low))
    made = [{id for node in nodes for id in node.outputs} for _, nodes in pieces]
    read = [
        {id for node in nodes for id in node.used} | {*found} for (_, nodes), found in zip(pieces, results, strict=True)
    ]
    outer = sorted({id for each, own in zip(read, made, strict=True) for id in each - own if id not in graph.constants})
    bodies = [piece.body(nodes, outer, found) for (piece, nodes), found in zip(pieces, results, strict=True)]
    outputs = tuple(graph.value(graph.type(id), "") for id in results[0])
    attrs: dict[str, Attr] = {"then": bodies[0], "else": bodies[1]}
    graph.node(Node(CONDITIONAL, (condition, *outer), outputs, attrs, source))
    for id, one in zip(outputs, results[0], strict=True):
        if one in values.shapes:
            values.shapes[id] = values.shapes[one]
    for id, (says, _, low, high) in zip(outputs[given:], chain.from_iterable(demands), strict=True):
        values.demand(id, low, high, says)
    return outputs[:given]


class Piece:
    """The nodes that are made from now on, to be cut out as a body."""

    def __init__(self, walk: Walk) -> None:
        self.walk = walk
        self.graph, self.values, self.first = walk.graph, walk.values, len(walk.graph.nodes)
        values = walk.values
        self.sizes, self.demands, self.streams = set(values.sizes), len(values.demands), walk.streams
        self.scalars, self.made = dict(values.scalars), set(values.made)

    def input(self, type: TensorType, shape: Numbers) -> int:
        """A value of which nothing but its type and shape is known."""
        id = self.graph.value(type, "")
        if is_open(shape):
            self.values.shapes[id] = shape
        return id

    @property
    def fresh(self) -> set[Size]:
        """Sizes that are found inside."""
        return {size for size in self.values.sizes if size not in self.sizes}

    def demand_closed(self, shapes: Iterable[Numbers]) -> None:
        """Raises Unsupported for a shape with a size that is found inside."""
        fresh = self.fresh
        for dim in (dim for shape in shapes for dim in shape):
            if isinstance(dim, Extent) and (found := dim.sizes & fresh):
                raise Unsupported(f"a result of its body has the size {min(map(str, found))}, found inside", "")

    def demand_plain(self, ids: Iterable[int]) -> None:
        """Raises Unsupported where a value that goes in or out is of strings, or what is inside is more than a graph.

        Each iteration draws other numbers.
        """
        if any(id in self.graph.texts for id in ids):
            raise Unsupported("it carries or gives strings", "")
        if self.walk.streams > self.streams:
            raise Unsupported("it draws random numbers", "")

    def demanded(self) -> list[Demand]:
        """What must hold of data inside, which the graph around it is to demand of what leaves the body."""
        found = self.values.demands[self.demands :]
        del self.values.demands[self.demands :]
        return found

    def taken_out(self) -> list[Node]:
        """The nodes, no longer in the graph; what was found to be computed by them is to be computed again."""
        nodes = self.graph.nodes[self.first :]
        del self.graph.nodes[self.first :]
        self.values.scalars, self.values.made = self.scalars, self.made
        return nodes

    def cut(self, inputs: Sequence[int], results: Sequence[int], same: dict[int, int]) -> tuple[Body, list[int]]:
        """The body, and what it reads of the graph around it; nodes that depend on no input stay there.

        `same` are inputs that are what a value outside is.
        """
        nodes, inside = [], {*inputs}
        graph, made = self.graph, self.graph.nodes[self.first :]
        del graph.nodes[self.first :]
        for node in made:
            node = replace(node, inputs=tuple(id if id is None else same.get(id, id) for id in node.inputs))
            if inside.isdisjoint(node.used):
                graph.node(node)
            else:
                inside.update(node.outputs)
                nodes.append(node)
        for node in nodes:
            for id in node.outputs:
                graph.producer.pop(id, None)
        results = [same.get(id, id) for id in results]
        read = {id for node in nodes for id in node.used} | {*results}
        outer = sorted(id for id in read - inside if id not in graph.constants)
        return self.body(nodes, [*inputs, *outer], results), outer

    def body(self, nodes: Sequence[Node], inputs: Sequence[int], results: Sequence[int]) -> Body:
        """A graph of these nodes as far as the results need them; a result that is given, or twice, is copied."""
        graph, own = self.graph, [*nodes]
        made = {id for node in nodes for id in node.outputs}
        outputs: list[int] = []
        for id in results:
            if id not in made or id in outputs:
                copied = graph.value(graph.type(id), "")
                own.append(Node("Identity", (id,), (copied,), {}, self.values.source))
                id = copied
            outputs.append(id)
        needed, live = {*outputs}, []
        for node in reversed(own):
            if needed.intersection(node.outputs):
                live.append(node)
                needed.update(node.used)
        read = {id for node in live for id in node.used}
        constants = [id for id in graph.constants if id in read]
        order = [*inputs, *constants, *(id for node in reversed(live) for id in node.outputs)]
        new = {id: at for at, id in enumerate(order)}
        return Body(
            Graph(
                {new[id]: Value(new[id], graph.type(id), graph.values[id].name) for id in order},
                tuple(_renumbered(node, new) for node in reversed(live)),
                tuple(new[id] for id in inputs),
                tuple(new[id] for id in outputs),
                {new[id]: graph.constants[id] for id in constants},
            )
        )


def _renumbered(node: Node, new: Mapping[int, int]) -> Node:
    inputs = tuple(None if id is None else new[id] for id in node.inputs)
    return replace(node, inputs=inputs, outputs=tuple(new[id] for id in node.outputs))


def there(id: int | None) -> int:
    """Raises Unsupported for a value that is absent."""
    if id is None:
        raise Unsupported("a value that it carries or gives is absent", "export the model again")
    return id


def demand_same(values: OpenValues, one: int, other: int) -> None:
    """Raises Unsupported for values of different types or shapes."""
    mine, yours = values.graph.type(one), values.graph.type(other)
    if mine != yours or values.shape(one) != values.shape(other):
        before, after = (
            f"{kind.dtype}[{', '.join(map(str, values.shape(id)))}]" for id, kind in ((one, mine), (other, yours))
        )
        raise Unsupported(f"a value is {before} once and {after} then", "give it one shape")


def _work(graph: Assembly, node: Node) -> int:
    """Elements that a node makes, and that it reads where it multiplies them."""
    if node.bodies:
        return LEAST_WORK
    read = node.used if node.op in PRODUCTS else ()
    return sum(graph.type(id).elements for id in (*read, *node.outputs))

"""The graph while it is rewritten: what rules view, with producers and readers kept up to date, and the edits.

A node is named by its first output. Its position is that of the node of the given graph that it stands for; positions
only fix the order of work and of the result, which is sorted once at the end.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable

import numpy as np

from compiler.encodings.aside import aside
from compiler.errors import InternalError
from compiler.ir.graph import Graph, Node, Value
from compiler.rewrite.gain import VIEWS, TypeOf, Work, work
from compiler.rewrite.maps import FOLLOWING, MAPS, alone, distance
from compiler.rewrite.measure import ALONE, ConstantOf, weight
from compiler.rewrite.view import Rewrite, View

SHARED_BYTES = 4096
"""Constants up to this size are compared by content, so that equal ones become one value."""


class Program(View):
    """A graph under edit. Value ids are never reused: those given out by `fresh` start behind the graph's."""

    against = "the program would not become smaller, since what it replaces is needed elsewhere"
    """Why a rewrite is refused that is no progress by `falls`."""

    def __init__(self, graph: Graph) -> None:
        super().__init__()
        self.values = dict(graph.values)
        self.inputs, self.outputs = frozenset(graph.inputs), frozenset(graph.outputs)
        self._graph = graph
        self._next_id = graph.next_id
        self.position: dict[int, int] = {}
        self._by_content: dict[tuple[str, tuple[int, ...], bytes], int] = {}
        self._alias: dict[int, int] = {}
        self.reading = {value: {} for value in graph.values}
        for value, array in graph.constants.items():
            self._add_constant(value, array)
        for place, node in enumerate(graph.nodes):
            self._add(node, place)

    def ordered(self) -> list[int]:
        """Every node, by its first output, each after what it reads; positions become the places in this order."""
        keys = [node.outputs[0] for node in self._sorted()]
        self.position = {key: place for place, key in enumerate(keys)}
        return keys

    def graph(self) -> Graph:
        """What the program is now, verified."""
        nodes = tuple(self._sorted())
        graph = Graph(self.values, nodes, self._graph.inputs, self._graph.outputs, self.constants).with_nodes(nodes)
        graph.verify()
        return graph

    # What would happen

    def dying(self, root: Node, rewrite: Rewrite) -> list[Node]:
        """The nodes that nothing needs any more once `rewrite` has replaced `root`, itself included."""
        kept = {value for node in rewrite.nodes for value in node.used}
        kept |= {value for value in rewrite.same.values() if value not in root.outputs}
        dead = [root, *rewrite.replaced]
        gone = {node.outputs[0] for node in dead}
        for node in dead:
            for value in node.used:
                maker = self.made_by.get(value)
                if maker is None or maker.outputs[0] in gone:
                    continue
                if all(
                    v not in kept and v not in self.outputs and self.reading[v].keys() <= gone for v in maker.outputs
                ):
                    gone.add(maker.outputs[0])
                    dead.append(maker)
        return dead

    def falls(self, root: Node, rewrite: Rewrite) -> bool:
        """Whether the measure (see `measure`) is smaller once `rewrite` has replaced `root`."""
        type_of, dying = self._types_with(rewrite), self.dying(root, rewrite)
        before = weight(dying, type_of, self.constants.get)
        after = weight((*rewrite.nodes, *self._copies(rewrite)), type_of, self._constant_with(rewrite))
        after += ALONE * self._more_alone(root, rewrite, dying)
        if before != after or len(rewrite.nodes) != 1:
            return after < before
        (new,) = rewrite.nodes
        return new.op in VIEWS and self._chain(new) < self._chain(root)

    def gain(self, root: Node, rewrite: Rewrite) -> Work:
        """The work that is saved once `rewrite` has replaced `root`."""
        type_of = self._types_with(rewrite)
        return work(self.dying(root, rewrite), type_of) - work((*rewrite.nodes, *self._copies(rewrite)), type_of)

    def _more_alone(self, root: Node, rewrite: Rewrite, dying: list[Node]) -> int:
        """By how much the number of maps that follow no sum grows, among the nodes and among the maps after them."""
        made = {value: node for node in rewrite.nodes for value in node.outputs}

        def after(value: int) -> Node | None:
            value = rewrite.same.get(value, value)
            return made[value] if value in made else self.made_by.get(value)

        type_of = self._types_with(rewrite)

        def more(nodes: Iterable[Node]) -> int:
            return sum(alone(node, after, type_of) - alone(node, self.made_by.get, type_of) for node in nodes)

        grown = sum(alone(node, after, type_of) for node in rewrite.nodes)
        grown -= sum(alone(node, self.made_by.get, type_of) for node in dying)
        old = [value for node in (root, *rewrite.replaced) for value in node.outputs if self.reading[value]]
        changed = [v for v in old if distance(v, self.made_by.get, type_of) != distance(v, after, type_of)]
        return grown + more(self._maps_after(changed, {node.outputs[0] for node in dying}))

    def _maps_after(self, values: list[int], gone: set[int]) -> list[Node]:
        """The maps that come after some values, without anything between but maps, as far as `distance` looks."""
        found: dict[int, Node] = {}
        for _ in range(FOLLOWING if values else 0):
            readers = {key: self.made_by[key] for value in values for key in self.reading[value] if key not in gone}
            new = {key: node for key, node in readers.items() if node.op in MAPS and key not in found}
            found |= new
            values = list(new)
        return list(found.values())

    def _types_with(self, rewrite: Rewrite) -> TypeOf:
        return lambda value: rewrite.types[value] if value in rewrite.types else self.type(value)

    def _constant_with(self, rewrite: Rewrite) -> ConstantOf:
        return lambda value: rewrite.constants[value] if value in rewrite.constants else self.constants.get(value)

    def _copies(self, rewrite: Rewrite) -> list[Node]:
        return [Node("Identity", (new,), (old,)) for old, new in rewrite.same.items() if self._must_copy(old, new)]

    def _chain(self, node: Node | None) -> int:
        """How many views follow each other above a view, along the longest way through first inputs."""
        length = 0
        while node is not None and node.op in VIEWS:
            length += 1
            node = self.made_by.get(node.used[0]) if node.used else None
        return length

    # Edits

    def apply(self, root: Node, rewrite: Rewrite) -> list[Node]:
        """Puts the right side in the place of `root`, drops what dies with it; the nodes whose surroundings changed."""
        gone = (root, *rewrite.replaced)
        place = min(self.position[node.outputs[0]] for node in gone)
        keys = [self.made_by[value].outputs[0] for node in gone for value in node.used if value in self.made_by]
        for node in gone:
            self._remove(node)
        for value, type in rewrite.types.items():
            self.values[value] = Value(value, type)
            self.reading.setdefault(value, {})
        for value, array in rewrite.constants.items():
            self._add_constant(value, array)
        new = []
        for node in rewrite.nodes:
            new.append(self._add(node, place))
        for old, value in rewrite.same.items():
            new += self._redirect(root, old, value, place)
        above = [self.made_by[key] for key in keys if key in self.position]  # as they are after the edits
        self._drop_dead([*new, *above])
        changed = [value for node in new for value in node.outputs]
        changed += [self._alias.get(value, value) for value in (*rewrite.same.values(), *rewrite.constants)]
        below = [reader for value in changed for reader in self.readers(value)]
        return [node for node in (*new, *above, *below) if self.alive(node)]

    def alive(self, node: Node) -> bool:
        """Whether the node is still part of the program: what defines its first output."""
        return self.made_by.get(node.outputs[0]) is node

    def drop_unread(self) -> list[Node]:
        """Removes every node that no graph output needs."""
        before = {key: self.made_by[key] for key in self.position}
        self._drop_dead(list(before.values())[::-1])
        return [node for key, node in before.items() if key not in self.position]

    def _redirect(self, root: Node, old: int, value: int, place: int) -> list[Node]:
        """Makes every reader of `old` read the equal `value`. Returns the nodes that are new."""
        value = self._alias.get(value, value)
        if old not in self.outputs:
            return self._replace_reads(old, value)
        if self._must_copy(old, value):
            return [self._add(Node("Identity", (value,), (old,), {}, root.source), place)]
        return self._rename(value, old)

    def _must_copy(self, old: int, value: int) -> bool:
        """Whether a graph output equals a value that must keep its own id as well."""
        return old in self.outputs and (value in self.outputs or value not in self.made_by)

    def _rename(self, value: int, old: int) -> list[Node]:
        """The producer of `value` defines the graph output `old` instead, under the output's id and name."""
        maker = self.made_by[value]
        place = self.position[maker.outputs[0]]
        readers = self._replace_reads(value, old)
        del self.reading[value], self.values[value]
        self._alias[value] = old
        self._remove(maker)
        outputs = tuple(old if output == value else output for output in maker.outputs)
        return [self._add(Node(maker.op, maker.inputs, outputs, maker.attrs, maker.source), place), *readers]

    def _replace_reads(self, old: int, value: int) -> list[Node]:
        changed = []
        for key in list(self.reading[old]):
            node, place = self.made_by[key], self.position[key]
            self._remove(node)
            inputs = tuple(value if read == old else read for read in node.inputs)
            changed.append(self._add(Node(node.op, inputs, node.outputs, node.attrs, node.source), place))
        return changed

    def _add(self, node: Node, place: int) -> Node:
        """Enters a node; where an input is a constant that an equal one stands for, the node reads that one."""
        inputs = tuple(value if value is None else self._alias.get(value, value) for value in node.inputs)
        if inputs != node.inputs:
            node = Node(node.op, inputs, node.outputs, node.attrs, node.source)
        key = node.outputs[0]
        self.position[key] = place
        for value in node.outputs:
            if value in self.made_by:
                raise InternalError(f"rewriting defines %{value} twice: `{self.made_by[value]}` and `{node}`")
            self.made_by[value] = node
        for value in node.used:
            uses = self.reading[value]
            uses[key] = uses.get(key, 0) + 1
        return node

    def _remove(self, node: Node) -> None:
        key = node.outputs[0]
        del self.position[key]
        for value in node.outputs:
            del self.made_by[value]
        for value in node.used:
            self.reading[value].pop(key, None)

    def _drop_dead(self, nodes: list[Node]) -> None:
        """Removes those of `nodes` that nothing reads, and then what only they read."""
        pending = list(nodes)
        while pending:
            node = pending.pop(0)
            if self.alive(node) and all(v not in self.outputs and not self.reading[v] for v in node.outputs):
                self._remove(node)
                pending += [maker for value in node.used if (maker := self.made_by.get(value)) is not None]

    def _add_constant(self, value: int, array: np.ndarray) -> None:
        self.constants[value] = aside(array)
        if array.nbytes > SHARED_BYTES or value in self.outputs:
            return
        kept = self._by_content.setdefault((array.dtype.name, array.shape, array.tobytes()), value)
        if kept != value:
            self._alias[value] = kept
            if self.reading[value]:
                self._replace_reads(value, kept)

    def _sorted(self) -> list[Node]:
        """Every node after what it reads, otherwise by position."""
        waiting: dict[int, int] = {}
        for key in self.position:
            makers = {self.made_by[v].outputs[0] for v in self.made_by[key].used if v in self.made_by}
            waiting[key] = len(makers)
        ready = [(self.position[key], key) for key, count in waiting.items() if not count]
        heapq.heapify(ready)
        ordered = []
        while ready:
            node = self.made_by[heapq.heappop(ready)[1]]
            ordered.append(node)
            for reader in {reader: None for value in node.outputs for reader in self.reading[value]}:
                waiting[reader] -= 1
                if not waiting[reader]:
                    heapq.heappush(ready, (self.position[reader], reader))
        if len(ordered) != len(self.position):
            raise InternalError("rewriting made the graph cyclic")
        return ordered


def content_key(node: Node, commutes: bool) -> tuple[object, ...]:
    """Equal for nodes that compute the same."""
    inputs: tuple[object, ...] = tuple(sorted(node.used)) if commutes else node.inputs
    return node.op, inputs, len(node.outputs), repr(sorted(node.attrs.items()))

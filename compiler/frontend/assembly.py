"""The graph under construction: values, constants and nodes by id, and the finished, live, numbered Graph."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from compiler.encodings.aside import aside
from compiler.frontend.reading.strings import gives_text, is_text
from compiler.ir.graph import Graph, Node, Value
from compiler.ir.tensor import DType, TensorType

OFFERED_ELEMENTS = 64
"""Longest list that a user is asked to write into options."""


@dataclass
class Assembly:
    """Mutable while the front end walks the model; `finish` hands out the frozen Graph."""

    values: dict[int, Value] = field(default_factory=dict)
    constants: dict[int, np.ndarray] = field(default_factory=dict)
    nodes: list[Node] = field(default_factory=list)
    inputs: list[int] = field(default_factory=list)
    producer: dict[int, Node] = field(default_factory=dict)
    words: dict[str, int] = field(default_factory=dict)
    """The number of each string of the model that was met."""
    texts: set[int] = field(default_factory=set)
    """Values whose elements are numbers of strings."""
    entered: dict[int, tuple[np.ndarray, int]] = field(default_factory=dict)
    """Arrays of bodies by Python's identity of them, which holds as long as they are kept here, with the ids of their
    constants."""

    def value(self, kind: TensorType, name: str) -> int:
        """A new value's id."""
        id = len(self.values)
        self.values[id] = Value(id, kind, name)
        return id

    def input(self, kind: TensorType, name: str) -> int:
        """A new graph input's id."""
        id = self.value(kind, name)
        self.inputs.append(id)
        return id

    def input_at(self, position: int, kind: TensorType, name: str) -> int:
        """A new graph input's id; it comes before those from `position` on."""
        id = self.value(kind, name)
        self.inputs.insert(position, id)
        return id

    def constant(self, array: np.ndarray, name: str) -> int:
        """A new constant's id; the array becomes read-only. Strings are entered by their numbers."""
        if is_text(array):
            id = self.constant(self.numbers_of(array), name)
            self.texts.add(id)
            return id
        array = aside(array)
        if array.flags.writeable:
            array.flags.writeable = False
        id = self.value(TensorType(DType.of(array.dtype), tuple(array.shape)), name)
        self.constants[id] = array
        return id

    def numbers_of(self, strings: np.ndarray) -> np.ndarray:
        """The number of each string, a new one where it has none."""
        flat = [self.words.setdefault(str(item), len(self.words)) for item in strings.flat]
        return np.array(flat, np.int64).reshape(strings.shape)

    def are_texts(self, ids: Iterable[int | None]) -> list[bool]:
        """Which of some values are strings."""
        return [id in self.texts for id in ids if id is not None]

    def shared(self, array: np.ndarray, name: str) -> int:
        """The id of a constant of a body: one for each array, however often the body stands in the program."""
        known = self.entered.get(id(array))
        if known is None:
            known = self.entered[id(array)] = array, self.constant(array, name)
        return known[1]

    def node(self, node: Node) -> None:
        """Appends a node whose output values exist. Raises Unsupported for strings where it takes none."""
        if self.texts and gives_text(node.op, self.are_texts(node.inputs)):
            self.texts.update(node.outputs)
        self.nodes.append(node)
        self.producer.update(dict.fromkeys(node.outputs, node))

    def rename(self, id: int, name: str) -> None:
        """Names a value that a node or a constant of an expansion defined."""
        self.values[id] = replace(self.values[id], name=name)

    def type(self, id: int) -> TensorType:
        """Element type and shape of a value."""
        return self.values[id].type

    def inputs_behind(self, id: int) -> list[str]:
        """Names of the graph inputs that a value depends on and that may be given: numbers and short lists of them."""
        found = {root for root in self.roots(id) if self._is_short(self.type(root))}
        return [self.values[id].name for id in sorted(found)]

    def roots(self, id: int) -> set[int]:
        """The graph inputs that a value depends on."""
        found: set[int] = set()
        inputs = set(self.inputs)
        stack, seen = [id], {id}
        while stack:
            current = stack.pop()
            if current in self.producer:
                fresh = [used for used in self.producer[current].used if used not in seen]
                seen.update(fresh)
                stack.extend(fresh)
            elif current in inputs:
                found.add(current)
        return found

    @staticmethod
    def _is_short(kind: TensorType) -> bool:
        elements = math.prod(kind.capacity)
        return elements <= 1 or (kind.rank == 1 and elements <= OFFERED_ELEMENTS)

    def finish(self, outputs: Sequence[tuple[str, int]]) -> Graph:
        """The Graph with these outputs, in order.

        An output that is an input, a constant or another output gets an Identity.
        """
        ids: dict[int, None] = {}
        for name, id in outputs:
            if id in ids or id not in self.producer:
                copy = self.value(self.type(id), name)
                self.node(Node("Identity", (id,), (copy,), {}, source=name))
                ids[copy] = None
            else:
                self.rename(id, name)
                ids[id] = None
        nodes = self._live(ids)
        return _numbered(self, nodes, tuple(ids))

    def _live(self, outputs: Iterable[int]) -> list[Node]:
        needed = set(outputs)
        live: list[Node] = []
        for node in reversed(self.nodes):
            if needed.intersection(node.outputs):
                live.append(node)
                needed.update(node.used)
        return live[::-1]


def _numbered(assembly: Assembly, nodes: Sequence[Node], outputs: Sequence[int]) -> Graph:
    """Ids without holes: inputs, then constants, then results in order."""
    read = {id for node in nodes for id in node.used}
    order = [
        *assembly.inputs,
        *(id for id in assembly.constants if id in read),
        *(id for node in nodes for id in node.outputs),
    ]
    new: Mapping[int, int] = {old: position for position, old in enumerate(order)}
    return Graph(
        values={new[id]: replace(assembly.values[id], id=new[id]) for id in order},
        nodes=tuple(
            replace(
                node,
                inputs=tuple(None if id is None else new[id] for id in node.inputs),
                outputs=tuple(new[id] for id in node.outputs),
            )
            for node in nodes
        ),
        inputs=tuple(new[id] for id in assembly.inputs),
        outputs=tuple(new[id] for id in outputs),
        constants={new[id]: array for id, array in assembly.constants.items() if id in new},
    )

"""A part of a program, cut out as a small graph, and put back."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from compiler.ir.graph import Graph, Node
from compiler.rewrite.program import Program
from compiler.rewrite.view import No, Rewrite

ABOVE, BELOW = 1, 2
"""How far around the nodes that a choice touches producers and readers are looked at: fusion joins a kernel with those
maps."""


@dataclass(frozen=True, eq=False)
class Region:
    """A small graph whose inputs and outputs are where it was cut out of a larger one.

    free  those of its inputs and outputs that are inner values of the larger one: they lie in memory as fusion likes
          them to
    """

    graph: Graph
    free: frozenset[int]

    @cached_property
    def structure(self) -> str:
        """Equal for regions that differ only in ids, names and the numbers of constants with several elements.

        24 hex digits.
        """
        numbers: dict[int, int] = {}
        graph = self.graph

        def number(value: int) -> int:
            return numbers.setdefault(value, len(numbers))

        def operand(value: int | None) -> object:
            if value is None:
                return None
            if value not in graph.constants or value in numbers:
                return number(value)
            array = graph.constants[value]
            return number(value), str(graph.type(value)), array.item() if array.size == 1 else None

        inputs = [(number(value), str(graph.type(value)), value in self.free) for value in graph.inputs]
        nodes = [
            (
                node.op,
                [operand(value) for value in node.inputs],
                sorted(node.attrs.items()),
                [(number(value), str(graph.type(value))) for value in node.outputs],
            )
            for node in graph.nodes
        ]
        outputs = [(operand(value), value in self.free) for value in graph.outputs]
        return hashlib.sha256(repr((inputs, nodes, outputs)).encode()).hexdigest()[:24]


def around(program: Program, keys: Iterable[int]) -> frozenset[int]:
    """Nodes (by their first outputs) with those ABOVE and BELOW steps away, and what a Concat among them joins.

    ABOVE counts steps to producers, BELOW steps to readers; a PadBeyond on the way is no step, since it is always
    joined with what makes its operand. Nodes with bodies are never among them.
    """
    above, below = set(keys), set(keys)
    for _ in range(ABOVE):
        above |= _reached(program, above, _producers)
    for _ in range(BELOW):
        below |= _reached(program, below, _readers)
    inside = {key for key in above | below if not program.made_by[key].bodies}
    joins = [key for key in inside if program.made_by[key].op == "Concat"]
    return frozenset(inside.union(*(_producers(program, key) for key in joins)))


def _reached(program: Program, keys: Iterable[int], step: Callable[[Program, int], set[int]]) -> set[int]:
    """The nodes a step away, and those behind each PadBeyond among them."""
    found: set[int] = set()
    last = {other for key in keys for other in step(program, key)}
    while last := last - found:
        found |= last
        last = {other for key in last if program.made_by[key].op == "PadBeyond" for other in step(program, key)}
    return found


def _producers(program: Program, key: int) -> set[int]:
    return {program.made_by[value].outputs[0] for value in program.made_by[key].used if value in program.made_by}


def _readers(program: Program, key: int) -> set[int]:
    return {reader for value in program.made_by[key].outputs for reader in program.reading[value]}


def cut(program: Program, keys: Iterable[int]) -> Region:
    """The nodes of these names, ordered by `program.position`: each must come after what it reads."""
    nodes = [program.made_by[key] for key in sorted(keys, key=lambda key: program.position[key])]
    names = {node.outputs[0] for node in nodes}
    made = {value for node in nodes for value in node.outputs}
    read = dict.fromkeys(value for node in nodes for value in node.used)
    inputs = tuple(value for value in read if value not in made and value not in program.constants)
    outputs = tuple(
        value
        for node in nodes
        for value in node.outputs
        if value in program.outputs or not program.reading[value].keys() <= names
    )
    graph = Graph(
        {value: program.values[value] for value in (*read, *made)},
        tuple(nodes),
        inputs,
        outputs,
        {value: program.constants[value] for value in read if value in program.constants},
    )
    return Region(graph, frozenset((*inputs, *outputs)) - program.inputs - program.outputs)


def with_ids(after: Graph, before: Graph, first: int) -> Graph:
    """`after`, in which every value that `before` lacks has an id from `first` on: no id is used for a second value."""
    new = {value: first + at for at, value in enumerate(sorted(after.values.keys() - before.values.keys()))}

    def id(value: int) -> int:
        return new.get(value, value)

    return replace(
        after,
        values={id(value): replace(known, id=id(value)) for value, known in after.values.items()},
        nodes=tuple(_renamed(node, new) for node in after.nodes),
        constants={id(value): array for value, array in after.constants.items()},
    )


def _renamed(node: Node, ids: Mapping[int, int]) -> Node:
    """The node that reads and defines other ids; itself where it mentions none of them."""
    if ids.keys().isdisjoint((*node.used, *node.outputs)):
        return node
    inputs = tuple(value if value is None else ids.get(value, value) for value in node.inputs)
    return Node(node.op, inputs, tuple(ids.get(value, value) for value in node.outputs), node.attrs, node.source)


def put_back(program: Program, before: Graph, after: Graph, why: str) -> No | None:
    """Puts `after` in the place of `before`, a graph cut out of the program; the reason if the program cannot take it.

    Only nodes that differ are touched. An id that is in both graphs stands for the same value; others get new ids in
    the program.
    """
    stay = {node.outputs[0]: node for node in after.nodes}
    gone = [node for node in before.nodes if stay.get(node.outputs[0]) != node]
    was = {node.outputs[0]: node for node in before.nodes}
    added = [node for node in after.nodes if was.get(node.outputs[0]) != node]
    if not gone or not all(program.alive(node) for node in gone):
        return No("another choice changed what it replaces")
    ids = {value: program.fresh() for value in sorted(after.values.keys() - before.values.keys())}
    nodes = tuple(_renamed(node, ids) for node in added)
    types = {ids[value]: known.type for value, known in after.values.items() if value in ids}
    constants = {ids[value]: array for value, array in after.constants.items() if value in ids}
    if reason := _unfit(program, gone, nodes, constants):
        return reason
    root, *others = gone
    program.apply(root, Rewrite(nodes, types, constants, {}, why, tuple(others)))
    return None


def _unfit(
    program: Program, gone: list[Node], nodes: tuple[Node, ...], constants: Mapping[int, np.ndarray]
) -> No | None:
    """Why nodes cannot stand in the place of others: something is missing then, or would depend on itself."""
    names = {node.outputs[0] for node in gone}
    made = {value for node in nodes for value in node.outputs}
    lost = {value for node in gone for value in node.outputs} - made
    if any(value in program.outputs or not program.reading[value].keys() <= names for value in lost):
        return No("another choice reads what would vanish")
    here = made | constants.keys()
    read = {value for node in nodes for value in node.used} - here
    if any(value in lost or not _is_there(program, value) for value in read):
        return No("another choice removed what it reads")
    if _is_cyclic(program, nodes, names):
        return No("the program would become cyclic")
    return None


def _is_there(program: Program, value: int) -> bool:
    return value in program.made_by or value in program.constants or value in program.inputs


def _is_cyclic(program: Program, nodes: tuple[Node, ...], gone: set[int]) -> bool:
    """Whether one of `nodes` would need its own result once they stand in the place of those that are `gone`."""
    makers = {value: node for value, node in program.made_by.items() if node.outputs[0] not in gone}
    makers |= {value: node for node in nodes for value in node.outputs}
    done: set[int] = set()
    path: set[int] = set()
    pending = [(node, False) for node in nodes]
    while pending:
        node, is_done = pending.pop()
        key = node.outputs[0]
        if is_done:
            path.discard(key)
            done.add(key)
        elif key not in done:
            path.add(key)
            pending.append((node, True))
            above = {makers[value].outputs[0]: makers[value] for value in node.used if value in makers}
            if above.keys() & path:
                return True
            pending += [(maker, False) for maker in above.values()]
    return False

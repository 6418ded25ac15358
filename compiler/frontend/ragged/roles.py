"""Which axes of a model's tensors count tokens, or texts: those whose sizes follow when the model is loaded at others.

A model at fixed sizes has lost how its shapes came about; two loads that differ in one size show it. Constants show
what positions do: that of a longer text begins with that of a shorter one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from compiler.errors import Refusal, UnsupportedModel
from compiler.ir.graph import Graph, Node


@dataclass(frozen=True)
class Role:
    """Of an axis: its size is `factor`, times the number of tokens, times the number of texts, as the two say."""

    factor: int
    tokens: bool = False
    texts: bool = False


Roles = tuple[Role, ...]


@dataclass(frozen=True)
class Seen:
    """A model of one text of `length` tokens, and what other sizes show of it, by id of its values.

    roles   of each axis
    shorter constants of the model of a text of one token less
    several constants of the model of two texts
    """

    graph: Graph
    length: int
    roles: Mapping[int, Roles]
    shorter: Mapping[int, np.ndarray]
    several: Mapping[int, np.ndarray]

    def level(self, id: int) -> str:
        """`tokens` where an axis counts tokens, `texts` where one counts texts alone, else empty."""
        axes = self.roles[id]
        return "tokens" if any(axis.tokens for axis in axes) else "texts" if any(axis.texts for axis in axes) else ""

    def token_axes(self, id: int) -> list[int]:
        """The axes of a value that count tokens."""
        return [at for at, axis in enumerate(self.roles[id]) if axis.tokens]

    def text_axis(self, id: int) -> int | None:
        """The axis of a value that counts texts and no tokens; None where there is none."""
        return next((at for at, axis in enumerate(self.roles[id]) if axis.texts and not axis.tokens), None)


def refused(reason: str, node: Node | None = None, fix: str = "compile it without ragged") -> UnsupportedModel:
    """The error for a model, and one of its nodes, that does not keep texts apart."""
    said = Refusal(reason, fix, node.source if node else "", node.op if node else "")
    return UnsupportedModel("the model's texts cannot share an axis of tokens", refusals=(said,))


def see(graph: Graph, shorter: Graph, several: Graph, length: int) -> Seen:
    """The roles of all axes.

    `graph` is the model of one text of `length` tokens, `shorter` of one with a token less, `several` of two texts.

    Raises UnsupportedModel where the model has other nodes at other sizes, or mixes tokens into other axes.
    """
    roles: dict[int, Roles] = {}
    constants: list[dict[int, np.ndarray]] = [{}, {}]
    maps = [_same(graph, other) for other in (shorter, several)]
    for id in graph.values:
        if id not in maps[0] or id not in maps[1]:
            continue
        shapes = [graph.type(id).dims, shorter.type(maps[0][id]).dims, several.type(maps[1][id]).dims]
        node = graph.producer.get(id)
        if len({*map(len, shapes)}) > 1:
            raise refused("its result has another rank for other numbers of texts or tokens", node)
        roles[id] = tuple(_role(length, sizes, node) for sizes in zip(*shapes, strict=True))
        if id in graph.constants:
            for found, other, same in zip(constants, (shorter, several), maps, strict=True):
                found[id] = other.constants[same[id]]
    return Seen(graph, length, roles, *constants)


def _role(length: int, sizes: tuple[int, ...], node: Node | None) -> Role:
    size, shorter, several = sizes
    tokens, texts = size != shorter, size != several
    factor = size // length if tokens else size
    if (texts and several != 2 * size) or (tokens and (factor != 1 or (size, shorter) != (length, length - 1))):
        raise refused(f"an axis of its result has {size}, {shorter} or {several} elements, which mixes tokens", node)
    return Role(factor, tokens, texts)


def _same(graph: Graph, other: Graph) -> dict[int, int]:
    """The ids of another graph's values for those of a graph with the same nodes."""
    pairs = [*zip(graph.inputs, other.inputs, strict=True)]
    if len(graph.nodes) != len(other.nodes):
        raise refused(
            f"it has {len(graph.nodes)} operators, and {len(other.nodes)} for another number of texts or tokens"
        )
    for one, two in zip(graph.nodes, other.nodes, strict=True):
        if one.op != two.op or len(one.inputs) != len(two.inputs) or len(one.outputs) != len(two.outputs):
            raise refused("it is another operator for another number of texts or tokens", one)
        both = (*zip(one.inputs, two.inputs, strict=True), *zip(one.outputs, two.outputs, strict=True))
        pairs += [(a, b) for a, b in both if a is not None and b is not None]
    found = dict(pairs)
    if wrong := next(((a, b) for a, b in pairs if found[a] != b and a not in graph.constants), None):
        raise refused("what it reads depends on the number of texts or tokens", graph.producer.get(wrong[0]))
    return found


def before(axes: Sequence[Role], at: int) -> int:
    """Elements of the axes before one, in the model of one text."""
    return int(np.prod([axis.factor for axis in axes[:at]], dtype=np.int64))

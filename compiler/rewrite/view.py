"""What a rule may see of the graph, and the draft in which it writes what should be there instead."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from compiler.errors import InternalError
from compiler.ir.graph import Attr, Node, Value
from compiler.ir.tensor import DType, TensorType
from compiler.ops import OPERATORS


@dataclass(frozen=True)
class No:
    """The left side is there, but the rule must not be applied; the reason goes into the report."""

    reason: str


@dataclass(frozen=True)
class Rewrite:
    """What replaces a node.

    nodes      new nodes, in order; one that defines an output of a replaced node keeps that id
    types      of the values that are new
    constants  new ones
    same       outputs of the replaced node that equal a value already there
    why        what happened, in one phrase
    replaced   further nodes that the new ones stand for: these define all outputs of those
    """

    nodes: tuple[Node, ...]
    types: Mapping[int, TensorType]
    constants: Mapping[int, np.ndarray]
    same: Mapping[int, int]
    why: str
    replaced: tuple[Node, ...] = ()


class View:
    """A graph as rules read it: values, their producers and readers, constants."""

    def __init__(self) -> None:
        self.values: dict[int, Value] = {}
        self.constants: dict[int, np.ndarray] = {}
        self.inputs: frozenset[int] = frozenset()
        self.outputs: frozenset[int] = frozenset()
        self.made_by: dict[int, Node] = {}
        self.reading: dict[int, dict[int, int]] = {}
        """Of each value: how often each node, named by its first output, reads it."""
        self.derived: dict[tuple[object, ...], tuple[int, np.ndarray]] = {}
        """Constants that rules made from others, by what they are, with their ids: made once, however many nodes want
        them."""
        self._next_id = 0

    def type(self, value: int) -> TensorType:
        """The type of a value. Raises KeyError if the program has no such value."""
        return self.values[value].type

    def dims(self, value: int) -> tuple[int, ...]:
        """The extents of a value. Raises KeyError if the program has no such value."""
        return self.values[value].type.dims

    def producer(self, value: int | None, *ops: str) -> Node | None:
        """The node that defines a value; with `ops`, only where it is one of these operators."""
        node = None if value is None else self.made_by.get(value)
        return node if node is not None and (not ops or node.op in ops) else None

    def readers(self, value: int) -> tuple[Node, ...]:
        """The nodes that read a value, each once."""
        return tuple(self.made_by[key] for key in self.reading[value])

    def constant(self, value: int | None) -> np.ndarray | None:
        """The array of a constant; None for a value that is computed, and for an input that is absent."""
        return None if value is None else self.constants.get(value)

    def scalar(self, value: int | None) -> float | None:
        """The number a constant of one element holds; None for anything else."""
        array = self.constant(value)
        return float(array.reshape(-1)[0]) if array is not None and array.size == 1 else None

    def operands(self, node: Node) -> Iterator[tuple[int, np.ndarray]]:
        """The (value, constant) pairs of a node with two inputs, one of them constant."""
        if len(node.used) == 2:
            a, b = node.used
            for value, other in ((a, b), (b, a)):
                if (array := self.constants.get(other)) is not None and value not in self.constants:
                    yield value, array

    def enclosed(self, root: Node, swallowed: Iterable[Node]) -> No | None:
        """The reason why nodes cannot vanish into what replaces `root`: something else needs a value of theirs."""
        inside = {root.outputs[0], *(node.outputs[0] for node in swallowed)}
        for key in sorted(inside - {root.outputs[0]}):
            for value in self.made_by[key].outputs:
                if value in self.outputs:
                    return No(f"%{value} is a graph output and must stay")
                if outside := [reader for reader in self.reading[value] if reader not in inside]:
                    return No(f"%{value} is also read by {self.made_by[min(outside)].op} %{min(outside)}")
        return None

    def draft(self, root: Node) -> Draft:
        """An empty draft of what replaces `root`."""
        return Draft(self, root)

    def fresh(self) -> int:
        """An id that no value has or had."""
        self._next_id += 1
        return self._next_id - 1


@dataclass
class Draft:
    """What replaces `root`, while it is written: new constants and nodes, then `done` or `same`."""

    view: View
    root: Node
    _nodes: list[Node] = field(default_factory=list)
    _types: dict[int, TensorType] = field(default_factory=dict)
    _constants: dict[int, np.ndarray] = field(default_factory=dict)

    def constant(self, array: np.ndarray) -> int:
        """A new constant."""
        value = self.view.fresh()
        array = np.asarray(array)
        self._constants[value] = array
        self._types[value] = TensorType(DType.of(array.dtype), array.shape)
        return value

    def derived(self, key: tuple[object, ...], make: Callable[[], np.ndarray]) -> int:
        """A constant that `make` computes from others; equal `key`s give one value in the whole program."""
        if key not in self.view.derived:
            self.view.derived[key] = self.view.fresh(), make()
        value, array = self.view.derived[key]
        if value not in self.view.constants:
            self._constants[value] = array
            self._types[value] = TensorType(DType.of(array.dtype), array.shape)
        return value

    def made_type(self, value: int) -> TensorType | None:
        """The type of a value that was written here; None for any other."""
        return self._types.get(value)

    def node(
        self, op: str, inputs: tuple[int | None, ...], attrs: Mapping[str, Attr] | None = None, source: str = ""
    ) -> int:
        """A new node with one output, which is new as well. `source` is the root's unless given."""
        (value,) = self.nodes(op, inputs, 1, attrs, source)
        return value

    def nodes(
        self,
        op: str,
        inputs: tuple[int | None, ...],
        count: int,
        attrs: Mapping[str, Attr] | None = None,
        source: str = "",
    ) -> tuple[int, ...]:
        """A new node with `count` outputs."""
        values = tuple(self.view.fresh() for _ in range(count))
        node = Node(op, inputs, values, dict(attrs or {}), source or self.root.source)
        types = tuple(None if i is None else self._types[i] if i in self._types else self.view.type(i) for i in inputs)
        self._types |= dict(zip(values, OPERATORS[op].infer(node, types), strict=True))
        self._nodes.append(node)
        return values

    def done(self, why: str) -> Rewrite:
        """The last node written defines the root's first output, whose id and type stay."""
        last, old = self._nodes[-1], self.root.outputs[0]
        found, declared = self._types.pop(last.outputs[0]), self.view.type(old)
        if found != declared:
            raise InternalError(f"a rule replaces `{self.root}` of type {declared} by `{last}` of type {found}")
        nodes = (*self._nodes[:-1], Node(last.op, last.inputs, (old,), last.attrs, last.source))
        return Rewrite(nodes, self._types, self._constants, {}, why)

    def outputs(self, *values: int, why: str, replaced: tuple[Node, ...] = ()) -> Rewrite:
        """Nodes written here define the outputs of the root, then of the nodes `replaced`, in the order of `values`.

        Each of `replaced` is another node.
        """
        old = dict(zip(values, (value for node in (self.root, *replaced) for value in node.outputs), strict=True))
        nodes = [Node(n.op, n.inputs, tuple(old.get(v, v) for v in n.outputs), n.attrs, n.source) for n in self._nodes]
        for value, kept in old.items():
            if (found := self._types.pop(value)) != self.view.type(kept):
                raise InternalError(f"a rule replaces %{kept} of type {self.view.type(kept)} by one of type {found}")
        return Rewrite(tuple(nodes), self._types, self._constants, {}, why, replaced)

    def same(self, *values: int, why: str) -> Rewrite:
        """Each output of the root equals the value at its place, of the same type."""
        return Rewrite((), {}, {}, dict(zip(self.root.outputs, values, strict=True)), why)

    def folded(self, arrays: tuple[np.ndarray, ...], why: str) -> Rewrite:
        """The outputs of the root are constants and keep their ids."""
        return Rewrite((), {}, dict(zip(self.root.outputs, arrays, strict=True)), {}, why)

"""Caches of fewer bits: states that hold in bf16, or in int8 with a scale of each position and head, what was fp32.

The graph says so: where a run appends rows to a cache, the rows are rounded before, and what reads the cache reads it
through a conversion, which kernels do where they load. So fusion, plans, states and proof take such caches as they take
a model that was exported with them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from compiler.contract.options import CACHE_OF_MODEL
from compiler.errors import OptionsError
from compiler.ir.border import Border
from compiler.ir.graph import Attr, Graph, Node, Value
from compiler.ir.tensor import DType, TensorType

KINDS: Mapping[str, DType] = {"bf16": DType.BF16, "int8": DType.I8}
SCALE = ".scale"
"""What ends the names of the input and the output that hold the scales of a cache in int8."""
MOST_CODE = 127
LEAST_SCALE = 1e-30
"""Of a row of zeros, whose codes are 0 with any scale."""
WRITERS: Mapping[str, int] = {"TensorScatter": 1, "ScatterElements": 2, "ScatterND": 2}
"""Operators that write rows into their first input, and the position of the rows among their inputs."""
MOVERS = (*WRITERS, "Concat", "Transpose")
CODES: Mapping[DType, int] = {DType.F32: 1, DType.I8: 3, DType.BF16: 16}
"""Of types, as attributes of nodes name them."""


def with_cache(graph: Graph, border: Border, kind: str, pairs: Mapping[str, str]) -> tuple[Graph, Border]:
    """A model whose caches among the states `pairs`, by name of the output the input, are of another type.

    `kind` is that of the option `cache`. Caches are fp32 tensors whose output is their input with rows written into it
    or behind it. In int8 a row of the last axis, one position of one head, has a scale, in a state beside the cache
    that is named like it and ends in SCALE. Other states stay as they are. Raises OptionsError where none is a cache.
    """
    if kind == CACHE_OF_MODEL:
        return graph, border
    ids = {graph.values[id].name: id for id in (*graph.inputs, *graph.outputs)}
    paths = {into: path for out, into in pairs.items() if (path := _path(graph, ids[into], ids[out], kind))}
    if not paths:
        raise OptionsError(
            f"cache is {kind}, and no state is a cache in fp32 to which the model appends rows",
            fix="leave cache out; carry names states (docs/options.md)",
        )
    changed = _Change(graph, KINDS[kind]).changed({value for path in paths.values() for value in path})
    if KINDS[kind] is DType.BF16:
        return changed, border
    scaled = {out: into for out, into in pairs.items() if into in paths}
    growth = border.growth
    if growth:
        axes = {into + SCALE: growth.axes[into] for into in scaled.values()}
        growth = replace(growth, axes={**growth.axes, **axes})
    scales = {out + SCALE: into + SCALE for out, into in scaled.items()}
    return changed, replace(border, growth=growth, scales=scales)


def _path(graph: Graph, into: int, out: int, kind: str) -> tuple[int, ...]:
    """The values from an input to the output that it becomes, both with; empty where the two are no such cache."""
    if graph.type(into).dtype is not DType.F32 or graph.type(into).rank < 3:
        return ()
    path = [out]
    while path[-1] != into:
        node = graph.producer.get(path[-1])
        if node is None or node.op not in MOVERS or (kind == "int8" and not _keeps_last(graph, node)):
            return ()
        path.append(next(iter(node.used)))
    return tuple(path) if len(path) > 1 and path[-1] == into else ()


def _keeps_last(graph: Graph, node: Node) -> bool:
    """Whether whole rows of the last axis are moved."""
    last = graph.type(node.outputs[0]).rank - 1
    if node.op == "Transpose":
        perm = node.attrs["perm"]
        return isinstance(perm, tuple) and perm[-1] == last
    if node.op == "ScatterND":
        indices = node.inputs[1]
        return indices is not None and graph.type(indices).dims[-1] <= last
    axis = node.attrs["axis"]
    return isinstance(axis, int) and axis % (last + 1) != last


@dataclass
class _Change:
    """Of a graph: the values of caches become those of another type, `kind`."""

    graph: Graph
    kind: DType
    values: dict[int, Value] = field(default_factory=dict)
    constants: dict[int, np.ndarray] = field(default_factory=dict)
    nodes: list[Node] = field(default_factory=list)
    read: dict[int, int] = field(default_factory=dict)
    """By id of a cache the value in fp32 that other nodes read instead."""
    scales: dict[int, int] = field(default_factory=dict)
    """By id of a cache in int8 its scales."""

    def changed(self, caches: set[int]) -> Graph:
        """The graph in which these values are of the other type; they keep their ids."""
        graph = self.graph
        self.values = dict(graph.values)
        self.constants = dict(graph.constants)
        for id in caches:
            value = graph.values[id]
            self.values[id] = replace(value, type=TensorType(self.kind, value.type.shape))
        for id in graph.inputs:
            if id in caches and self.kind is DType.I8:
                self.scales[id] = self._value(DType.F32, self._row(id), graph.values[id].name + SCALE)
        for node in graph.nodes:
            if node.outputs[0] in caches:
                self._moved(node, caches)
            else:
                inputs = tuple(self._as_read(id) if id in caches else id for id in node.inputs)
                self.nodes.append(replace(node, inputs=inputs))
        return replace(
            graph,
            values=self.values,
            nodes=tuple(self.nodes),
            constants=self.constants,
            inputs=tuple(self._with_scales(graph.inputs)),
            outputs=tuple(self._with_scales(graph.outputs)),
        ).with_nodes(tuple(self.nodes))

    def _with_scales(self, ids: Sequence[int]) -> Iterator[int]:
        for id in ids:
            yield id
            if id in self.scales:
                yield self.scales[id]

    def _row(self, id: int) -> tuple[int, ...]:
        """The shape of a value's scales."""
        return (*self.graph.type(id).dims[:-1], 1)

    def _moved(self, node: Node, caches: set[int]) -> None:
        """A node that writes into a cache or moves one, for codes and for scales."""
        parts = {WRITERS[node.op]} if node.op in WRITERS else {*range(1, len(node.inputs))}
        codes, scales = list(node.inputs), list(node.inputs)
        for at, id in enumerate(node.inputs):
            if id is None or (at and at not in parts):
                continue
            if id in caches:
                codes[at], scales[at] = id, self.scales.get(id)
            else:
                codes[at], scales[at] = self._rounded(node, id)
        self.nodes.append(replace(node, inputs=tuple(codes)))
        if self.kind is not DType.I8:
            return
        (out,) = node.outputs
        if node.op == "ScatterElements":
            assert codes[1] is not None
            scales[1] = self._first(node, codes[1])
        name = self.graph.values[out].name
        self.scales[out] = self._value(DType.F32, self._row(out), name + SCALE if name else "")
        self.nodes.append(replace(node, inputs=tuple(scales), outputs=(self.scales[out],)))

    def _rounded(self, node: Node, rows: int) -> tuple[int, int | None]:
        """Rows as they lie in a cache, and their scales."""
        kind = self.graph.type(rows)
        if self.kind is DType.BF16:
            return self._cast(rows, DType.BF16, node.source), None
        shape = self._row(rows)
        sizes = self._node("Abs", (rows,), kind, node.source)
        largest = self._node(
            "ReduceMax", (sizes, None), TensorType(DType.F32, shape), node.source,
            axes=(len(shape) - 1,), keepdims=1, noop_with_empty_axes=0,
        )  # fmt: skip
        steps = self._node("Mul", (largest, self._number(1 / MOST_CODE)), TensorType(DType.F32, shape), node.source)
        scales = self._node("Max", (steps, self._number(LEAST_SCALE)), TensorType(DType.F32, shape), node.source)
        blocks = {"axis": len(shape) - 1, "block_size": kind.dims[-1], "output_dtype": CODES[DType.I8]}
        made = TensorType(DType.I8, kind.shape)
        return self._node("QuantizeLinear", (rows, scales, None), made, node.source, **blocks), scales

    def _as_read(self, cache: int) -> int:
        """A cache in fp32."""
        if cache not in self.read:
            kind = self.graph.type(cache)
            source = node.source if (node := self.graph.producer.get(cache)) else ""
            if self.kind is DType.BF16:
                self.read[cache] = self._cast(cache, DType.F32, source)
            else:
                blocks = {"axis": kind.rank - 1, "block_size": kind.dims[-1]}
                given = (cache, self.scales[cache], None)
                self.read[cache] = self._node("DequantizeLinear", given, kind, source, **blocks)
        return self.read[cache]

    def _cast(self, id: int, to: DType, source: str) -> int:
        made = TensorType(to, self.graph.type(id).shape)
        return self._node("Cast", (id,), made, source, to=CODES[to], saturate=1, round_mode="up")

    def _first(self, node: Node, indices: int) -> int:
        """The indices of the first element of each row."""
        kind = self.graph.type(indices)
        last = kind.rank - 1
        made = TensorType(kind.dtype, (*kind.dims[:-1], 1))
        given = (indices, None, None, None, None)
        return self._node("Slice", given, made, node.source, starts=(0,), ends=(1,), axes=(last,), steps=(1,))

    def _number(self, number: float) -> int:
        id = self._value(DType.F32, ())
        self.constants[id] = np.array(number, np.float32)
        return id

    def _node(self, op: str, inputs: tuple[int | None, ...], kind: TensorType, source: str, **attrs: Attr) -> int:
        made = self._value(kind.dtype, kind.dims)
        self.nodes.append(Node(op, inputs, (made,), attrs, source))
        return made

    def _value(self, dtype: DType, shape: Sequence[int], name: str = "") -> int:
        id = max(self.values) + 1
        self.values[id] = Value(id, TensorType(dtype, tuple(shape)), name)
        return id

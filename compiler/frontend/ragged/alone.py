"""Texts of given lengths one by one, each by the unpacked model of exactly its length, in one graph.

Its inputs are those of the packed graph but for the offsets, which its structure is made of. It shares no operator with
what packing adds, but for slices at the beginning and a Concat at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate

from compiler.frontend.ragged.segments import Writer
from compiler.ir.graph import Graph
from compiler.ir.tensor import TensorType
from compiler.ops.operator import Operator


def one_by_one(
    lengths: Sequence[int], model: Callable[[int], Graph], are_tokens: Sequence[bool], operators: Mapping[str, Operator]
) -> Graph:
    """The graph for texts of these lengths; `model` gives that of one text of a length.

    are_tokens  of each output: whether it has a row for each token, rather than one for each text
    """
    writer = Writer(operators)
    models = {length: model(length) for length in dict.fromkeys(lengths)}
    first = next(iter(models.values()))
    total = sum(lengths)
    inputs = [
        writer.graph.input(TensorType(first.type(id).dtype, (total,)), first.values[id].name) for id in first.inputs
    ]
    rows: list[list[int]] = [[] for _ in first.outputs]
    for start, length in zip(accumulate((0, *lengths)), lengths, strict=False):
        graph = models[length]
        ends = {"starts": (start,), "ends": (start + length,), "axes": (0,), "steps": (1,)}
        parts = [writer.node("Slice", id, None, None, None, None, **ends) for id in inputs]
        found = _inlined(writer, graph, parts)
        for at, (id, is_token) in enumerate(zip(found, are_tokens, strict=True)):
            shape = writer.shape(id)
            rows[at].append(writer.reshape(id, shape[1:] if is_token else shape))
    results = [each[0] if len(each) == 1 else writer.node("Concat", *each, axis=0) for each in rows]
    names = [first.values[id].name for id in first.outputs]
    return writer.graph.finish([*zip(names, results, strict=True)])


def _inlined(writer: Writer, graph: Graph, parts: Sequence[int]) -> list[int]:
    """The outputs of a graph of one text whose tokens are `parts`."""
    made: dict[int | None, int | None] = {None: None}
    for id, part in zip(graph.inputs, parts, strict=True):
        made[id] = writer.reshape(part, graph.type(id).dims)
    made |= {id: writer.graph.shared(array, "") for id, array in graph.constants.items()}
    for node in graph.nodes:
        writer.source = node.source
        found = writer.nodes(node.op, [made[id] for id in node.inputs], node.attrs, len(node.outputs))
        made.update(zip(node.outputs, found, strict=True))
    return [id for id in (made[id] for id in graph.outputs) if id is not None]

"""The graph of a model file as it was sent, for people to look at: also of one that is refused.

Nothing is inferred and no tensor is read, so that external data is not needed, and what makes a model malformed (a
tensor that nobody defines, a cycle) can be looked at too.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from onnx import AttributeProto, GraphProto, NodeProto, TensorProto, TypeProto

from compiler.errors import MalformedModel, ModelTooLarge
from compiler.frontend.reading.decode import source_of
from compiler.frontend.reading.limits import Limits
from compiler.frontend.reading.model import text
from compiler.frontend.reading.read import parse
from compiler.frontend.reading.tensors import DTYPES

FORMAT_VERSION = 1
STEP = "uploaded"
KINDS = frozenset(AttributeProto.AttributeType.values())
LONGEST = 120
"""Characters of an attribute, or entries of a list of numbers, that are kept."""
MOST_BYTES = 16 << 20
"""Of the answer as JSON."""


def outline(model: Path | bytes, limits: Limits | None = None) -> dict[str, Any]:
    """The graph in the form of an artifact's graph.json, with one step, `uploaded`, and no kernels.

    A value has a `type` where the file declares one, and of a constant its number of elements. A node has the name by
    which a refusal names it; `inside` are those of the nodes in its subgraphs. Nodes come after those they read, where
    there is such an order, and dead ones are there too.

    Raises MalformedModel for what is not whole ONNX, ModelTooLarge past a limit.
    """
    proto, _ = parse(model, limits or Limits())
    if not proto.HasField("graph"):
        raise MalformedModel("the file holds no ONNX graph", fix="send the .onnx file itself")
    made = _outline(proto.graph)
    if len(json.dumps(made)) > MOST_BYTES:
        raise ModelTooLarge(f"its graph of {len(proto.graph.node)} nodes is too large to be shown")
    return made


def _outline(graph: GraphProto) -> dict[str, Any]:
    numbers: dict[str, int] = {}
    values: dict[str, dict[str, Any]] = {}

    def number(name: str) -> int:
        return numbers.setdefault(name, len(numbers))

    for info in (*graph.input, *graph.output, *graph.value_info):
        if declared := _type(info.type):
            values.setdefault(text(info.name), {"type": declared})
    for tensor in graph.initializer:
        values[text(tensor.name)] = _constant(tensor)
    constants = {text(tensor.name) for tensor in graph.initializer}
    nodes = []
    for node, position in _ordered(graph.node):
        inside = [*_inside(node)]
        reads = [number(name) if name else None for name in map(text, node.input)]
        captured = {name for inner, _ in inside for name in map(text, inner.input) if name in numbers}
        reads += [number(name) for name in sorted(captured - {*map(text, node.input)})]
        attributes = {text(one.name): _attribute(one) for one in node.attribute}
        nodes.append(
            {
                "op": _operator(node),
                "name": source_of(node, position),
                "reads": reads,
                "writes": [number(name) for name in map(text, node.output) if name],
                **({"attributes": attributes} if attributes else {}),
                **({"inside": [source_of(inner, at) for inner, at in inside]} if inside else {}),
            }
        )
    inputs = [number(name) for one in graph.input if (name := text(one.name)) not in constants]
    outputs = [number(text(one.name)) for one in graph.output]
    named = {str(at): {"name": name, **values.get(name, {})} for name, at in numbers.items()}
    step = {"name": STEP, "inputs": inputs, "outputs": outputs, "nodes": nodes, "applied": []}
    return {"format_version": FORMAT_VERSION, "values": named, "steps": [step], "kernels": []}


def _operator(node: NodeProto) -> str:
    """The operator with its domain, unless that is ai.onnx."""
    domain, operator = text(node.domain), text(node.op_type)
    return operator if domain in ("", "ai.onnx") else f"{domain}::{operator}"


def _inside(node: NodeProto) -> Iterator[tuple[NodeProto, int]]:
    """The nodes of a node's subgraphs at any depth, each with its position in its own."""
    for attribute in node.attribute:
        for graph in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
            for position, inner in enumerate(graph.node):
                yield inner, position
                yield from _inside(inner)


def _ordered(nodes: Sequence[NodeProto]) -> list[tuple[NodeProto, int]]:
    """Each after the nodes whose outputs it reads, with its position in the file; those of a cycle come last."""
    writer = {name: at for at, node in enumerate(nodes) for name in node.output if name}
    waits = [{writer[name] for name in node.input if name in writer} for node in nodes]
    readers: list[list[int]] = [[] for _ in nodes]
    for at, awaited in enumerate(waits):
        for one in awaited:
            readers[one].append(at)
    left = [len(awaited) for awaited in waits]
    if all(one < at for at, awaited in enumerate(waits) for one in awaited):
        return [(node, at) for at, node in enumerate(nodes)]
    ready = [at for at, count in enumerate(left) if not count]
    for at in ready:
        for reader in readers[at]:
            left[reader] -= 1
            if not left[reader]:
                ready.append(reader)
    return [(nodes[at], at) for at in (*ready, *(at for at, count in enumerate(left) if count))]


def _type(kind: TypeProto) -> str:
    """As a value's type prints, with names of open dimensions and `?` where nothing is said; empty for no tensor."""
    if not kind.HasField("tensor_type"):
        return ""
    element = _element(kind.tensor_type.elem_type)
    if not kind.tensor_type.HasField("shape"):
        return element
    dims = kind.tensor_type.shape.dim
    sizes = [str(dim.dim_value) if dim.HasField("dim_value") else text(dim.dim_param) or "?" for dim in dims]
    return f"{element}[{', '.join(sizes)}]"


def _element(code: int) -> str:
    if code in DTYPES:
        return str(DTYPES[code])
    return TensorProto.DataType.Name(code).lower() if code in TensorProto.DataType.values() else "?"


def _constant(tensor: TensorProto) -> dict[str, Any]:
    elements = 1
    for dim in tensor.dims:
        elements *= dim
    return {
        "type": f"{_element(tensor.data_type)}[{', '.join(map(str, tensor.dims))}]",
        "constant": {"elements": elements},
    }


def _attribute(attribute: AttributeProto) -> str:
    match attribute.type:
        case AttributeProto.INT:
            said = str(attribute.i)
        case AttributeProto.FLOAT:
            said = str(attribute.f)
        case AttributeProto.STRING:
            said = attribute.s[:LONGEST].decode("utf-8", "replace")
        case AttributeProto.INTS:
            said = _listed(attribute.ints)
        case AttributeProto.FLOATS:
            said = _listed(attribute.floats)
        case AttributeProto.TENSOR:
            said = str(_constant(attribute.t)["type"])
        case AttributeProto.GRAPH:
            said = f"a graph of {len(attribute.g.node)} nodes"
        case other:
            said = AttributeProto.AttributeType.Name(other).lower() if other in KINDS else "?"
    return said if len(said) <= LONGEST else f"{said[:LONGEST]}…"


def _listed(numbers: Iterable[float]) -> str:
    return f"({', '.join(str(number) for number, _ in zip(numbers, range(LONGEST), strict=False))})"

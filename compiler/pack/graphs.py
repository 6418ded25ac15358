"""graph.json: the model's graph after each step, and which operators each kernel carries out.

A value keeps its id from the front end to the buffers, so the steps share one table of values, and two steps are
compared by ids.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from compiler.ir.buffers import Call, KernelGraph
from compiler.ir.graph import Graph, Node

FORMAT_VERSION = 1
LONGEST = 120
"""Characters of an attribute that are kept: a region's body is far longer."""
SAMPLED = 1 << 18
"""Elements of a constant whose statistics are taken, evenly spread over all of it."""


@dataclass(frozen=True)
class Applied:
    """A rule of rewriting, or a choice, that made a step's graph of the one before; `where` names a node."""

    what: str
    where: str
    why: str
    note: str = ""


@dataclass(frozen=True)
class Step:
    """A graph as a step of the pipeline left it, and what the step did."""

    name: str
    graph: Graph
    applied: tuple[Applied, ...] = ()


def graph_json(steps: Sequence[Step], kernels: KernelGraph) -> dict[str, Any]:
    """All of it. `kernels` has for each call the numbers of nodes of the last step that it computes.

    A node that several kernels compute is there for each; one that is in none is a view, or was computed while
    compiling.
    """
    return {"format_version": FORMAT_VERSION, **steps_json(steps), "kernels": _kernels(steps[-1].graph, kernels)}


def steps_json(steps: Sequence[Step]) -> dict[str, Any]:
    """The part of it that needs no kernels: `values`, and `steps`."""
    values: dict[int, dict[str, Any]] = {}
    for step in steps:
        for id, value in step.graph.values.items():
            if id not in values:
                named = {"name": value.name} if value.name else {}
                values[id] = {"type": str(value.type), **named}
            if id in step.graph.constants and "constant" not in values[id]:
                values[id]["constant"] = statistics(step.graph.constants[id])
    return {"values": {str(id): values[id] for id in sorted(values)}, "steps": [_step(step) for step in steps]}


def statistics(array: np.ndarray) -> dict[str, Any]:
    """The count of elements, and the least, largest, mean and share of zeros of what is finite of a sample."""
    flat = array.reshape(-1)
    taken = flat[:: max(1, -(-flat.size // SAMPLED))].astype(np.float64)
    finite = taken[np.isfinite(taken)]
    found: dict[str, Any] = {"elements": int(array.size)}
    if taken.size < flat.size:
        found["sampled"] = int(taken.size)
    if finite.size:
        found |= {
            "min": _rounded(finite.min()),
            "max": _rounded(finite.max()),
            "mean": _rounded(finite.mean()),
            "zeros": _rounded((finite == 0).mean()),
        }
    if finite.size < taken.size:
        found["not_finite"] = int(taken.size - finite.size)
    return found


def _rounded(value: np.floating) -> float:
    """To six digits: sums of floats may differ in the last ones from machine to machine."""
    return float(f"{float(value):.6g}")


def _step(step: Step) -> dict[str, Any]:
    return {
        "name": step.name,
        "inputs": list(step.graph.inputs),
        "outputs": list(step.graph.outputs),
        "nodes": [_node(node) for node in step.graph.nodes],
        "applied": [
            {"what": one.what, "where": one.where, "why": one.why, **({"note": one.note} if one.note else {})}
            for one in step.applied
        ],
    }


def _node(node: Node) -> dict[str, Any]:
    attributes = {name: _text(value) for name, value in sorted(node.attrs.items())}
    return {
        "op": node.op,
        **({"name": node.source} if node.source else {}),
        "reads": list(node.inputs),
        "writes": list(node.outputs),
        **({"attributes": attributes} if attributes else {}),
    }


def _text(value: object) -> str:
    text = str(value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


def _kernels(graph: Graph, kernels: KernelGraph) -> list[list[int]]:
    maker = {value: number for number, node in enumerate(graph.nodes) for value in node.outputs}
    return [_computed(graph, maker, call) for call in kernels.calls]


def _computed(graph: Graph, maker: Mapping[int, int], call: Call) -> list[int]:
    """The nodes between what a call reads and what it writes."""
    found: set[int] = set()
    open_values, read = [*call.outputs], {*call.inputs}
    while open_values:
        number = maker.get(open_values.pop())
        if number is None or number in found:
            continue
        found.add(number)
        open_values += [value for value in graph.nodes[number].used if value not in read]
    return sorted(found)

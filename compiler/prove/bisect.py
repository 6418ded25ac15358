"""Finds the first call of a kernel graph whose result leaves the reference.

Calls run one by one, in order, each storage in memory of its own, so that neither the order of a plan nor its reuse of
memory can be at fault. What remains wrong is the kernel, its definition, or the rewriting before it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NoReturn, Protocol

import numpy as np

from compiler.contract import LayerError, OutputError
from compiler.errors import Disagreement, InputsError
from compiler.ir.buffers import Buffer, KernelGraph
from compiler.ir.graph import Graph, Node
from compiler.ir.open_shapes import OpenShapes
from compiler.measure.memory import allocate, operand, read_buffer, write_buffer
from compiler.ops import OPERATORS
from compiler.prove.agree import compare, distance
from compiler.prove.reference import Operators, evaluate_graph
from compiler.prove.sizes import cut, own_outputs

PLAN_FAULT = "plan"
"""In the details of a Disagreement: each call alone agrees, so that the order or the shared memory of a plan is at
fault."""
ACCUMULATED = 0.1
"""A call whose inputs already carry this part of the tolerance may only have been the last straw."""


class Stepper(Protocol):
    """Runs single calls of the kernel graph, as the program would."""

    def run(self, position: int, operands: Sequence[np.ndarray]) -> None:
        """Runs all tiles of the call at `position`.

        `operands` are its inputs, then its outputs, in slot order: each the flat memory of a buffer from its first
        element to the end of its storage, in the buffer's dtype and physical layout, to be written in place. Constants
        come as the kernel graph holds them; what a kernel wants packed, the stepper packs.
        """
        ...


def bisect(
    graph: Graph,
    kernels: KernelGraph,
    stepper: Stepper,
    inputs: Mapping[int, np.ndarray],
    operators: Operators,
    tolerance: float,
    *,
    program: str = "the program",
    slices: int = 1,
) -> NoReturn:
    """Raises Disagreement that names the first diverging node of a program that disagrees on `inputs` (by value id).

    A buffer is compared with the value of the same id in `graph`, the unrewritten one: rewriting never changes what an
    id means. Where every call alone agrees, the Disagreement says that the plan (order or shared memory) is at fault;
    `program` is what it calls what was run.

    Where `kernels` are for one of several `slices` of a batch, they compute the first one.
    """
    errors: dict[int, float] = {}
    unchecked: list[int] = []
    wanted = _values(graph, kernels, inputs, operators, slices)
    for position, found in _stepped(graph, kernels, stepper, inputs, wanted):
        for id, error in found.items():
            errors[id] = distance(graph.values[id], error)
            if errors[id] > tolerance:
                raise _diverges(graph, kernels, position, id, errors, tolerance, unchecked)
        unchecked = [] if found else [*unchecked, position]
    raise _plan_fault(kernels, errors, tolerance, unchecked, program)


def layer_errors(
    graph: Graph,
    kernels: KernelGraph,
    stepper: Stepper,
    inputs: Mapping[int, np.ndarray],
    operators: Operators,
    slices: int = 1,
) -> tuple[LayerError, ...]:
    """How far each call's results are from the values of the same ids in `graph`, the unrewritten one, on `inputs`.

    Where `kernels` are for one of several `slices` of a batch, they compute the first one.
    """
    rows: list[LayerError] = []
    known: dict[int, float] = {}
    wanted, plain = (_values(graph, kernels, inputs, operators, slices, wide=wide) for wide in (True, False))
    for position, found in _stepped(graph, kernels, stepper, inputs, wanted):
        call = kernels.calls[position]
        before = max((known[id] for id in call.inputs if id in known), default=0.0)
        for id, error in found.items():
            value = graph.values[id]
            rows.append(
                LayerError(
                    position,
                    tuple(call.sources),
                    call.kernel.family,
                    value.name or f"%{id}",
                    _plain(error.max_absolute),
                    _plain(error.max_relative),
                    _plain(error.max_ulp),
                    _plain(before),
                    _plain(compare([plain[id]], [wanted[id]], [value])[0].max_relative) if id in plain else None,
                )
            )
        known |= {id: error.max_relative for id, error in found.items()}
    return tuple(rows)


def _values(
    graph: Graph,
    kernels: KernelGraph,
    inputs: Mapping[int, np.ndarray],
    operators: Operators,
    slices: int,
    *,
    wide: bool = True,
) -> dict[int, np.ndarray]:
    """What `graph` has of the results of calls, by id; empty where rounding an index leads outside of a tensor."""
    made = [id for call in kernels.calls for id in call.outputs if _has_counterpart(graph, kernels.buffers[id], slices)]
    try:
        evaluated = evaluate_graph(graph, inputs, operators, keep=made, wide=wide)
    except InputsError:
        if wide:
            raise
        return {}
    return {id: _first(array, kernels.buffers[id]) for id, array in evaluated.items() if id in made}


def _stepped(
    graph: Graph,
    kernels: KernelGraph,
    stepper: Stepper,
    inputs: Mapping[int, np.ndarray],
    wanted: Mapping[int, np.ndarray],
) -> Iterator[tuple[int, dict[int, OutputError]]]:
    """Runs call after call; of each its position, and the errors of its results that are `wanted`, by id."""
    inputs = {id: _first(inputs[id], kernels.buffers[id]) for id in kernels.inputs}
    memories = {storage: allocate(count) for storage, count in kernels.storage_bytes.items()}
    for buffer in kernels.buffers.values():
        if buffer.unread or buffer.margins:  # what a kernel leaves there is compared with zeros
            memories[buffer.storage][:] = 0
    for id, array in {**kernels.constants, **inputs}.items():
        write_buffer(memories[kernels.buffers[id].storage], kernels.buffers[id], array)
    for position, call in enumerate(kernels.calls):
        buffers = [kernels.buffers[id] for id in (*call.inputs, *call.outputs)]
        stepper.run(position, [operand(memories[buffer.storage], buffer) for buffer in buffers])
        yield (
            position,
            {
                id: compare(
                    [read_buffer(memories[kernels.buffers[id].storage], kernels.buffers[id])],
                    [wanted[id]],
                    [graph.values[id]],
                )[0]
                for id in dict.fromkeys(call.outputs)
                if id in wanted
            },
        )


def demand_same_meaning(
    graph: Graph,
    shapes: OpenShapes | None,
    inputs: Mapping[int, np.ndarray],
    exact: tuple[Graph, OpenShapes | None],
    given: Mapping[int, np.ndarray],
    tolerance: float,
    sizes: str,
) -> None:
    """Raises Disagreement where a graph that leaves dimensions open does not mean what the model does at exact sizes.

    graph, inputs  the one with open dimensions, and what it takes; without shapes the one with room for caches
    exact, given   the model at these sizes, with the sizes that follow from data, and what it takes
    sizes          in words
    """
    meant = cut(*exact, evaluate_graph(exact[0], given, OPERATORS))
    found = cut(graph, shapes, evaluate_graph(graph, inputs, OPERATORS))
    if shapes is None:
        found = [got[tuple(map(slice, want.shape))] for got, want in zip(found, meant, strict=False)]
    for value, want, got in zip(own_outputs(*exact), meant, found, strict=True):
        if got.shape != want.shape or distance(value, compare([got], [want], [value])[0]) > tolerance:
            raise Disagreement(
                f"output {value.name!r} at {sizes} is not what the model gives there: dimensions were opened wrongly",
                fix="report this model, it is our fault; until then give the options dims or inputs these values",
            )


def _has_counterpart(graph: Graph, buffer: Buffer, slices: int) -> bool:
    """Whether a buffer holds the value of its id, or one of several slices of it."""
    if buffer.id not in graph.values:
        return False
    value, part = graph.type(buffer.id), buffer.type
    if value == part or slices == 1 or value.dtype is not part.dtype or value.rank != part.rank:
        return value == part
    longer = [(whole, own) for whole, own in zip(value.dims, part.dims, strict=True) if whole != own]
    return len(longer) == 1 and longer[0][0] == slices * longer[0][1]


def _first(array: np.ndarray, buffer: Buffer) -> np.ndarray:
    """Of a value the part that a buffer holds."""
    return array[tuple(slice(extent) for extent in buffer.type.dims)]


def _diverges(
    graph: Graph,
    kernels: KernelGraph,
    position: int,
    id: int,
    errors: Mapping[int, float],
    tolerance: float,
    unchecked: Sequence[int],
) -> Disagreement:
    call, value = kernels.calls[position], graph.values[id]
    node: Node | None = graph.producer.get(id)
    name, operator = (node.source, node.op) if node else ("", "")
    before = max((errors[buffer] for buffer in call.inputs if buffer in errors), default=0.0)
    message = (
        f"node {name!r} ({operator}) is the first to leave the float64 reference: "
        f"its result {value.name or f'%{id}'!r} is off by {errors[id]:.3g} of its largest value, "
        f"{tolerance:.3g} is accepted; kernel {call.kernel.family} computes it"
    )
    if unchecked:
        message += f", after {len(unchecked)} kernels whose results the model does not name"
    if before > ACCUMULATED * tolerance:
        message += f"; its inputs were already off by {before:.3g}"
        fix = "if the model is ill-conditioned, accept a larger tolerance; otherwise report this model: it is our fault"
    else:
        fix = "report this model: the kernel or a rewrite before it is wrong, which is our fault"
    details: dict[str, Any] = {
        "node": name,
        "operator": operator,
        "value": value.name or f"%{id}",
        "call": position,
        "kernel": call.kernel.family,
        "sources": [*call.sources],
        "unchecked": [source for at in unchecked for source in kernels.calls[at].sources],
        "error": _plain(errors[id]),
        "input_error": _plain(before),
        "tolerance": tolerance,
    }
    return Disagreement(message, fix=fix, details=details)


def _plan_fault(
    kernels: KernelGraph, errors: Mapping[int, float], tolerance: float, unchecked: Sequence[int], program: str
) -> Disagreement:
    worst = max(errors.values(), default=0.0)
    return Disagreement(
        f"{program} leaves the float64 reference, yet each of its {len(kernels.calls)} calls alone, "
        f"in memory of its own, agrees within {worst:.3g} ({tolerance:.3g} is accepted): "
        "the plan is at fault, in its order or in what shares memory",
        fix="compile with threads=1 to see whether the order is at fault, and report this model: it is our fault",
        details={
            PLAN_FAULT: True,
            "error": _plain(worst),
            "tolerance": tolerance,
            "unchecked": [source for at in unchecked for source in kernels.calls[at].sources],
        },
    )


def _plain(error: float) -> float | None:
    """A number for JSON, which has no infinity: None is a result not finite where the reference is, or the reverse."""
    return error if math.isfinite(error) else None

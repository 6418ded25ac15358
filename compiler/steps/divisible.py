"""What keeps a model from several devices, or from a browser, by its graph alone.

It is asked before a job is queued, and when it begins.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from compiler.errors import Refusal, UnsupportedModel
from compiler.ir.border import AS_IT_IS, PLAIN, RANDOM_STATE, Border
from compiler.ir.graph import Graph, Node
from compiler.ir.open_shapes import OpenShapes
from compiler.ir.region import WHILE
from compiler.ir.tensor import DType

BROWSER_BYTES = 2 << 30
"""Of weights and of all that is alive at once: offsets in a module are signed numbers of 32 bits."""
ANOTHER_TARGET = "compile for a cpu target"
ONE_DEVICE = "compile for one device: leave devices and objective out"


def division_problem(graph: Graph, shapes: OpenShapes | None, border: Border) -> UnsupportedModel | None:
    """The error for a model that no plan for several devices can hold yet, with a refusal for each node that is why.

    None where kernels of the model may be given to any of the devices.
    """
    refusals = (
        *_decided(graph),
        *_sizes(graph, shapes, ONE_DEVICE),
        *_strings(graph, border, ONE_DEVICE),
        *_random(graph, border),
    )
    if not refusals and (shapes is not None or border != PLAIN):
        refusals = (Refusal("it has strings, or tensors whose sizes data decide at run time", ONE_DEVICE),)
    if not refusals:
        return None
    return UnsupportedModel(
        f"the model cannot be divided among several devices yet: {refusals[0].reason}",
        fix=refusals[0].fix,
        refusals=refusals,
    )


def browser_problem(graph: Graph, shapes: OpenShapes | None, border: Border) -> UnsupportedModel | None:
    """The error for a model that no program in a browser can be yet, with a refusal for each node that is why."""
    fix = f"leave it out of the model, or {ANOTHER_TARGET}"
    refusals = (
        *_sizes(graph, shapes, fix),
        *_strings(graph, border, ANOTHER_TARGET),
        *_halves(graph),
        *_memory(graph),
    )
    if not refusals and (border.outside != AS_IT_IS or border.inputs or border.outputs):
        refusals = (Refusal("callers give it strings, sequences or optional values", ANOTHER_TARGET),)
    if not refusals:
        return None
    said = f"the model cannot be compiled for browsers yet: {refusals[0].reason}"
    return UnsupportedModel(said, fix=refusals[0].fix, refusals=refusals)


def _halves(graph: Graph) -> Iterator[Refusal]:
    """What is computed in fp16, which compilers for WebAssembly do not have; constants are read as fp32."""
    halves = {id for id in graph.values if graph.type(id).dtype is DType.F16 and id not in graph.constants}
    nodes = (node for node in graph.nodes if halves & {*node.used, *node.outputs})
    yield from _of_nodes("it computes in fp16", nodes, f"convert the model to fp32, or {ANOTHER_TARGET}")


def _memory(graph: Graph) -> Iterator[Refusal]:
    needed = sum(array.nbytes for array in graph.constants.values()) + peak_bytes(graph)
    if needed > BROWSER_BYTES and graph.nodes:
        largest = max(
            graph.nodes, key=lambda node: sum(graph.type(value).bytes for value in (*node.used, *node.outputs))
        )
        yield Refusal(
            f"it takes {needed / 2**30:.1f} GiB of memory, and a program in a browser has {BROWSER_BYTES >> 30} GiB",
            f"bind smaller shapes, or {ANOTHER_TARGET}",
            largest.source,
            largest.op,
        )


def peak_bytes(graph: Graph) -> int:
    """Most bytes alive at once when the nodes run in order; constants are not counted."""
    last = {value: position for position, node in enumerate(graph.nodes) for value in node.used}
    last |= dict.fromkeys(graph.outputs, len(graph.nodes))
    ends: dict[int, list[int]] = {}
    for value, position in last.items():
        if value not in graph.constants:
            ends.setdefault(position, []).append(value)
    alive = peak = sum(graph.type(value).bytes for value in graph.inputs)
    for position, node in enumerate(graph.nodes):
        alive += sum(graph.type(value).bytes for value in node.outputs)
        peak = max(peak, alive)
        alive -= sum(graph.type(value).bytes for value in ends.get(position, ()))
        alive -= sum(graph.type(value).bytes for value in node.outputs if value not in last)
    return peak


def _sizes(graph: Graph, shapes: OpenShapes | None, fix: str) -> Iterator[Refusal]:
    """Options bind dimensions of inputs to one size each, so that data alone say what is open."""
    if shapes is not None:
        numbers = {number for axes in shapes.outputs for number in axes if number is not None}
        numbers |= {limit.output for limit in shapes.limits}
        makers = (_maker(graph, graph.outputs[number]) for number in sorted(numbers))
        yield from _of_nodes("data say while it runs how large a tensor is", makers, fix)


def _strings(graph: Graph, border: Border, otherwise: str) -> Iterator[Refusal]:
    texts = [id for id in graph.inputs if graph.values[id].name in border.inputs]
    readers = (node for id in texts for node in graph.nodes if id in node.used)
    makers = (_maker(graph, id) for id in graph.outputs if graph.values[id].name in border.outputs)
    fix = "turn strings into numbers before the model and behind it, or " + otherwise
    yield from _of_nodes("it takes strings", readers, fix)
    yield from _of_nodes("it gives strings", makers, fix)


def _random(graph: Graph, border: Border) -> Iterator[Refusal]:
    if border.random:
        states = {id for id in graph.inputs if graph.values[id].name == RANDOM_STATE}
        fix = "draw them before the model and give them as an input, or " + ONE_DEVICE
        yield from _of_nodes("it draws random numbers", (n for n in graph.nodes if states & {*n.used}), fix)


def _decided(graph: Graph) -> Iterator[Refusal]:
    for node in graph.nodes:
        if node.bodies:
            what = "how often it runs" if node.op == WHILE else "which branch runs"
            yield Refusal(f"{what} is decided while it runs", ONE_DEVICE, node.source, node.op)


def _of_nodes(reason: str, nodes: Iterable[Node | None], fix: str = ONE_DEVICE) -> Iterator[Refusal]:
    """One for each node of the model, of which several of the graph may have come."""
    found = {node.source if node else "": node for node in nodes}
    for source, node in found.items():
        yield Refusal(reason, fix, source, node.op if node else "")


def _maker(graph: Graph, id: int) -> Node | None:
    """The node that makes a value; where that is of no node of the model, the nearest before it that is."""
    made_by = {output: node for node in graph.nodes for output in node.outputs}
    nodes = [made_by[id]] if id in made_by else []
    for node in nodes:
        if node.source:
            return node
        nodes += [made_by[one] for one in node.used if one in made_by and made_by[one] not in nodes]
    return None

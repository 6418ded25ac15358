"""Prints the nouns; `compiler.ir.parsing.parse` reads what is printed here back to equal ones.

One line for each node, block, buffer, call and task. Names that come from a model are data: they appear as JSON strings
and nowhere else. Constants of up to INLINE elements are printed in full, larger ones by a digest.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from compiler.ir.index import print_axes
from compiler.ir.tensor import DType, TensorType

if TYPE_CHECKING:  # each of these prints itself with what is here
    from compiler.ir.buffers import Buffer, Call, KernelGraph
    from compiler.ir.graph import Attr, Graph, Node
    from compiler.ir.kernel import Kernel, Routine, Slot
    from compiler.ir.machine import Workload
    from compiler.ir.plans.plan import Place, Plan

INLINE = 16
"""Elements of a constant up to which they are printed."""


def print_graph(graph: Graph) -> str:
    """A graph: its inputs and outputs, its constants, its nodes in order, and values that none of these mention."""
    inputs = ", ".join(_value(graph, value) for value in graph.inputs)
    outputs = ", ".join(f"%{value}" for value in graph.outputs)
    lines = [f"graph({inputs}) -> ({outputs})"]
    for value, array in graph.constants.items():
        declared = graph.values[value].type if value in graph.values else None
        lines.append(f"  {_value(graph, value)} = {print_constant(array, declared)}")
    for node in graph.nodes:
        lines.append(f"  {_node(graph, node)}")
        for name, body in node.bodies.items():
            lines.append(f"    {name}: " + print_graph(body.graph).replace("\n", "\n    "))
    mentioned = {*graph.inputs, *graph.constants, *(value for node in graph.nodes for value in node.outputs)}
    lines += [f"  value {_value(graph, value)}" for value in graph.values if value not in mentioned]
    return "\n".join(lines)


def print_constant(array: np.ndarray, declared: TensorType | None = None) -> str:
    """A constant; its own type is printed where it is not the declared one."""
    type = TensorType(DType.of(array.dtype), tuple(array.shape))
    typed = "" if type == declared else f" {type}"
    if array.size > INLINE:
        return f"const{typed} sha256 {json.dumps(digest(array))}"
    # The shortest digits that give the same element back; a BF16 has no such form and is printed as the F64 it equals,
    # and so are small types, or as the I64.
    kept = type.dtype is not DType.BF16 and not type.dtype.is_small
    shown = array if kept else array.astype(np.float64 if type.dtype.is_float else np.int64)
    return f"const{typed} {{{', '.join(str(element) for element in shown.reshape(-1))}}}"


def digest(array: np.ndarray) -> str:
    """64 bits of the SHA-256 of an array's elements in row-major order."""
    return hashlib.sha256(array.tobytes()).hexdigest()[:16]


def print_kernel(kernel: Kernel) -> str:
    """A kernel: its slots, its shared axes, its blocks in order."""
    lines = [f"kernel {name(kernel.family)}({_slots(kernel.inputs, kernel.temps, kernel.outputs)})"]
    indent = "  "
    if kernel.shared:
        lines.append(f"  for {print_axes(kernel.shared, kernel.sequential)}")
        indent = "    "
    return "\n".join([*lines, *(f"{indent}{block}" for block in kernel.blocks)])


def print_routine(routine: Routine) -> str:
    """A routine on one line: family, name, slots, parameters."""
    head = f"routine {name(routine.family)} {name(routine.name)}"
    params = f" {{{print_attrs(routine.params).strip()}}}" if routine.params else ""
    return f"{head}({_slots(routine.inputs, (), routine.outputs)}){params}"


def print_kernel_graph(graph: KernelGraph) -> str:
    """A kernel graph: buffers, constants, and calls in order; a kernel is defined where it is called first."""
    inputs = ", ".join(f"b{buffer}" for buffer in graph.inputs)
    outputs = ", ".join(f"b{buffer}" for buffer in graph.outputs)
    lines = [f"kernels({inputs}) -> ({outputs})"]
    lines += [f"  {print_buffer(buffer)}" for buffer in graph.buffers.values()]
    for buffer, array in graph.constants.items():
        declared = graph.buffers[buffer].type if buffer in graph.buffers else None
        lines.append(f"  b{buffer} = {print_constant(array, declared)}")
    known: dict[str, str] = {}
    for call in graph.calls:
        text = str(call.kernel)
        if text not in known:
            known[text] = f"k{len(known)}"
            lines.append(f"  {known[text]}: " + text.replace("\n", "\n  "))
        lines.append(f"  {_call(call, known[text])}")
    return "\n".join(lines)


def print_workload(workload: Workload) -> str:
    """A workload: its kernel or routine, then its buffers in the order of the slots.

    `constant` marks an input that may be packed; before it stand the words of the encodings in which it may be kept.
    """
    lines = ["workload", "  " + str(workload.kernel).replace("\n", "\n  ")]
    for buffer, constant, encodings in zip(workload.inputs, workload.constant, workload.encodings, strict=True):
        words = [encoding.word for encoding in encodings if encoding.word]
        lines.append(f"  {' '.join((*words, 'constant' if constant else 'input'))} {print_buffer(buffer)}")
    lines += [f"  output {print_buffer(buffer)}" for buffer in workload.outputs]
    return "\n".join(lines)


def print_buffer(buffer: Buffer) -> str:
    """A buffer: type, layout, place in its storage; strides where they are not those of a dense array."""
    element = f" as {buffer.element}" if buffer.element else ""
    text = f"b{buffer.id}: {buffer.type}{element} {buffer.layout}"
    if buffer.storage != buffer.id or buffer.offset:
        text += f" in s{buffer.storage} + {buffer.offset}"
    if buffer.strides != buffer.whole(buffer.id, buffer.type, buffer.layout).strides:
        text += f" strides ({', '.join(map(str, buffer.strides))})"
    if buffer.margins:
        text += f" margins ({', '.join(map(str, buffer.margins))})"
    return text + (" unread" if buffer.unread else "") + quoted(buffer.name)


def print_plan(plan: Plan) -> str:
    """A plan: the tile of each call, its tasks in order, the place of each storage."""
    lines = [f"plan {plan.lanes} lanes, arena {plan.arena_bytes}, {json.dumps(plan.scheduler)}, {plan.predicted_s!r} s"]
    if plan.most_handover_s < math.inf:
        lines.append(f"  where a hand-over takes at most {plan.most_handover_s!r} s")
    if plan.residents:
        lines.append(f"  {plan.residents} blocks of a multiprocessor stay")
    if plan.devices != ("",):
        lines.append(f"  devices {', '.join(map(json.dumps, plan.devices))}")
    lines += [
        f"  memory {number} of device {memory.device}, arena {memory.arena_bytes}"
        for number, memory in enumerate(plan.more_memories, 1)
    ]
    lines += [f"  call {call}: {count} tiles of {tile}" for call, (tile, count) in enumerate(plan.tiles)]
    lines += [f"  {task}" for task in plan.tasks]
    lines += [f"  s{storage} {_place(place)}" for storage, place in plan.places.items()]
    lines += [f"  also s{storage} {_place(place)}" for storage, place in plan.replicas]
    return "\n".join(lines)


def print_attrs(attrs: Mapping[str, Attr]) -> str:
    """Attributes by name, each after a space."""
    return "".join(f" {name(key)}={_attr(value)}" for key, value in sorted(attrs.items()))


def name(text: str) -> str:
    """A name as it is where it is a word, else as a JSON string."""
    return text if text.isascii() and text.isidentifier() else json.dumps(text)


def quoted(text: str) -> str:
    """A name from the model after a space; nothing for an empty one."""
    return f" {json.dumps(text)}" if text else ""


def _value(graph: Graph, id: int) -> str:
    value = graph.values.get(id)
    return f"%{id}" if value is None else f"%{id}: {value.type}{quoted(value.name)}"


def _node(graph: Graph, node: Node) -> str:
    outputs = ", ".join(_value(graph, value) for value in node.outputs)
    inputs = ", ".join("_" if value is None else f"%{value}" for value in node.inputs)
    source = f" from {json.dumps(node.source)}" if node.source else ""
    return f"{outputs} = {name(node.op)}({inputs}){print_attrs(node.attrs)}{source}"


def _attr(value: Attr) -> str:
    if isinstance(value, tuple):
        return f"({', '.join(map(_attr, value))}{',' if len(value) == 1 else ''})"
    return json.dumps(value) if isinstance(value, str) else repr(value)


def _slots(inputs: tuple[Slot, ...], temps: tuple[Slot, ...], outputs: tuple[Slot, ...]) -> str:
    parts = (("in", inputs), ("temp", temps), ("out", outputs))
    return "; ".join(", ".join(f"{word} {slot}" for slot in slots) for word, slots in parts if slots)


def _call(call: Call, kernel: str) -> str:
    outputs = ", ".join(f"b{buffer}" for buffer in call.outputs)
    inputs = ", ".join(f"b{buffer}" for buffer in call.inputs)
    over = f" in_place ({', '.join(f'{output}: {input}' for output, input in call.in_place)})" if call.in_place else ""
    sources = f" from {', '.join(map(json.dumps, call.sources))}" if call.sources else ""
    return f"{outputs} = {kernel}({inputs}){over}{sources}"


def _place(place: Place) -> str:
    memory = f" of memory {place.memory}" if place.memory else ""
    return f"at {place.space} {place.at}{memory}, {place.bytes} bytes"

"""Reads the compiler's nouns from their text, with which tests write programs: `parse_x(str(x)) == x`.

Nothing is verified here beyond what is needed to build the noun; call its `verify`. Every function raises ParseError,
which names the line and what was expected there. Arrays that are printed by their digest are passed in.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import numpy as np

from compiler.ir.buffers import Buffer, Call, KernelGraph
from compiler.ir.expr import Expr
from compiler.ir.graph import Graph, Node, Value
from compiler.ir.index import Axis, Index
from compiler.ir.kernel import Kernel, Routine
from compiler.ir.parsing import grammar, parse
from compiler.ir.parsing.tokens import Cursor
from compiler.ir.plans.plan import Copy, Memory, Place, Plan, Task, Wait
from compiler.ir.tensor import DType, Layout, TensorType
from compiler.ir.text import digest
from compiler.ir.tile import Level, Tile

Arrays = Mapping[int, np.ndarray]


def parse_type(text: str) -> TensorType:
    """A type: `f32[1, 64]`. Raises ParseError."""
    at = Cursor(text)
    type = grammar.tensor_type(at)
    at.end()
    return type


def parse_layout(text: str, rank: int = 0) -> Layout:
    """`rank` is that of the tensor, which `plain` does not tell."""
    at = Cursor(text)
    layout = grammar.layout(at, rank)
    at.end()
    return layout


def parse_index(text: str, axes: Iterable[Axis], types: Mapping[str, DType] | None = None) -> Index:
    """An index over these axes; `types` are those of the slots that its indirect parts load from."""
    at = Cursor(text)
    index = grammar.index(at, {axis.name: axis for axis in axes}, types or {})
    at.end()
    return index


def parse_expr(text: str, axes: Iterable[Axis], types: Mapping[str, DType]) -> Expr:
    """An expression over these axes and slots."""
    at = Cursor(text)
    expr = grammar.expr(at, {axis.name: axis for axis in axes}, types)
    at.end()
    return expr


def parse_kernel(text: str) -> Kernel:
    """A kernel, as `compiler.ir.text` prints it. Raises ParseError."""
    at = Cursor(text)
    kernel = parse.kernel(at)
    at.end()
    return kernel


def parse_routine(text: str) -> Routine:
    """A routine, as `compiler.ir.text` prints it. Raises ParseError."""
    at = Cursor(text)
    routine = parse.routine(at)
    at.end()
    return routine


def parse_graph(text: str, arrays: Arrays | None = None) -> Graph:
    """A graph; `arrays` holds, by value, the constants that the text tells by their digest."""
    at = Cursor(text)
    values: dict[int, Value] = {}
    constants: dict[int, np.ndarray] = {}
    nodes: list[Node] = []
    at.expect("graph")
    inputs = at.listed(lambda: _value(at, values), "(", ")")
    at.expect("->")
    outputs = at.listed(lambda: _reference(at), "(", ")")
    while at.peek("%") or at.peek("="):
        defined = at.repeated(lambda: _value(at, values)) if at.peek("%") else ()
        at.expect("=")
        if at.peek("const") and not at.peek("const", "("):  # a node's operator may be named so
            if len(defined) != 1 or defined[0] not in values:
                raise at.fault("one typed value before a constant; here")
            id = defined[0]
            constants[id] = _constant(at, values[id].type, (arrays or {}).get(id))
        else:
            nodes.append(_node(at, defined))
    while at.accept("value"):
        _value(at, values)
    at.end()
    return Graph(values, tuple(nodes), inputs, outputs, constants)


def _reference(at: Cursor) -> int:
    at.expect("%")
    return at.integer()


def _value(at: Cursor, values: dict[int, Value]) -> int:
    """A value, entered into `values` where its type is stated."""
    id = _reference(at)
    if at.accept(":"):
        type = grammar.tensor_type(at)
        values[id] = Value(id, type, at.optional_string())
    return id


def _node(at: Cursor, outputs: tuple[int, ...]) -> Node:
    op = at.name()
    inputs = at.listed(lambda: None if at.accept("_") else _reference(at), "(", ")")
    attrs = grammar.attrs(at)
    return Node(op, inputs, outputs, attrs, at.string() if at.accept("from") else "")


def parse_kernel_graph(text: str, arrays: Arrays | None = None) -> KernelGraph:
    """A kernel graph; `arrays` holds, by buffer, the constants that the text tells by their digest."""
    at = Cursor(text)
    at.expect("kernels")
    inputs = at.listed(lambda: at.identity("b", "a buffer"), "(", ")")
    at.expect("->")
    outputs = at.listed(lambda: at.identity("b", "a buffer"), "(", ")")
    buffers: dict[int, Buffer] = {}
    constants: dict[int, np.ndarray] = {}
    kernels: dict[str, Kernel | Routine] = {}
    calls: list[Call] = []
    while at.next.kind != "end":
        if at.peek(at.next.text, ":") and at.next.text.startswith("k"):
            name = at.word()
            at.expect(":")
            kernels[name] = parse.kernel(at) if at.peek("kernel") else parse.routine(at)
        elif at.peek(at.next.text, ":"):
            buffer = parse.buffer(at)
            buffers[buffer.id] = buffer
        else:
            results = (
                at.repeated(lambda: at.identity("b", "a buffer, its definition or a kernel"))
                if not at.peek("=")
                else ()
            )
            at.expect("=")
            if at.peek("const"):
                if len(results) != 1 or results[0] not in buffers:
                    raise at.fault("one declared buffer before a constant; here")
                id = results[0]
                constants[id] = _constant(at, buffers[id].type, (arrays or {}).get(id))
            else:
                calls.append(_call(at, results, kernels))
    return KernelGraph(buffers, tuple(calls), inputs, outputs, constants)


def _call(at: Cursor, outputs: tuple[int, ...], kernels: Mapping[str, Kernel | Routine]) -> Call:
    if at.next.text not in kernels:
        raise at.fault(f"a kernel ({', '.join(kernels)})")
    kernel = kernels[at.word()]
    inputs = at.listed(lambda: at.identity("b", "a buffer"), "(", ")")
    in_place = at.listed(lambda: _pair(at), "(", ")") if at.accept("in_place") else ()
    return Call(kernel, inputs, outputs, in_place, at.repeated(at.string) if at.accept("from") else ())


def _pair(at: Cursor) -> tuple[int, int]:
    output = at.integer()
    at.expect(":")
    return (output, at.integer())


def parse_plan(text: str) -> Plan:
    """A plan, as `compiler.ir.text` prints it. Raises ParseError."""
    at = Cursor(text)
    at.expect("plan")
    lanes = at.integer()
    at.expect("lanes", ",", "arena")
    arena_bytes = at.integer()
    at.expect(",")
    scheduler = at.string()
    at.expect(",")
    predicted_s = at.number()
    at.expect("s")
    most_handover_s = math.inf
    if at.accept("where"):
        at.expect("a", "hand", "-", "over", "takes", "at", "most")
        most_handover_s = at.number()
        at.expect("s")
    residents = 0
    if at.next.kind == "number":
        residents = at.integer()
        at.expect("blocks", "of", "a", "multiprocessor", "stay")
    devices = at.repeated(at.string) if at.accept("devices") else ("",)
    memories: list[Memory] = []
    while at.accept("memory"):
        if at.integer() != len(memories) + 1:
            raise at.fault(f"memory {len(memories) + 1} before")
        at.expect("of", "device")
        device = at.integer()
        at.expect(",", "arena")
        memories.append(Memory(device, at.integer()))
    tiles: list[tuple[Tile, int]] = []
    tasks: list[Task | Copy] = []
    places: dict[int, Place] = {}
    while at.accept("call"):
        if at.integer() != len(tiles):
            raise at.fault(f"the tiles of call {len(tiles)} before")
        at.expect(":")
        count = at.integer()
        at.expect("tiles", "of")
        tiles.append((_tile(at), count))
    while at.peek("lane"):
        tasks.append(_task(at))
    replicas: list[tuple[int, Place]] = []
    while at.next.kind != "end":
        also = at.accept("also")
        storage = at.identity("s", "a storage")
        place = _place(at)
        if also:
            replicas.append((storage, place))
        else:
            places[storage] = place
    return Plan(
        lanes,
        tuple(tasks),
        tuple(tiles),
        places,
        arena_bytes,
        scheduler,
        predicted_s,
        most_handover_s,
        devices,
        tuple(memories),
        tuple(replicas),
        residents,
    )


def _place(at: Cursor) -> Place:
    at.expect("at")
    space, position = at.word("a space"), at.integer()
    memory = 0
    if at.accept("of"):
        at.expect("memory")
        memory = at.integer()
    at.expect(",")
    size = at.integer()
    at.expect("bytes")
    return Place(space, position, size, memory)


def parse_tile(text: str) -> Tile:
    """A tile, as `str` prints it. Raises ParseError."""
    at = Cursor(text)
    tile = _tile(at)
    at.end()
    return tile


def _tile(at: Cursor) -> Tile:
    algorithm = at.word("an algorithm")
    levels: list[Level] = []
    scopes: list[tuple[str, str]] = []
    while at.peek(at.next.text, "("):
        name = at.word("a level")
        at.expect("(")
        extents = []
        while not at.accept(")"):
            axis = at.word("an axis")
            at.expect(":")
            extents.append((axis, at.integer()))
        levels.append(Level(name, tuple(extents)))
    while at.peek(at.next.text, "@"):
        temp = at.word("a temporary")
        at.expect("@")
        scopes.append((temp, at.word("a scope")))
    return Tile(algorithm, tuple(levels), tuple(scopes))


def _task(at: Cursor) -> Task | Copy:
    at.expect("lane")
    lane = at.integer()
    device = 0
    if at.accept("of"):
        at.expect("device")
        device = at.integer()
    at.expect(":")
    if at.accept("copy"):
        return _copy(at, lane, device)
    at.expect("call")
    call = at.integer()
    at.expect("tiles")
    first = at.integer()
    at.expect("..")
    last = at.integer()
    beside = at.accept("beside")
    return Task(call, lane, first, last, _waits(at), beside, device)


def _copy(at: Cursor, lane: int, device: int) -> Copy:
    storage = at.identity("s", "a storage")
    begin = at.integer()
    at.expect("..")
    end = at.integer()
    at.expect("memory")
    source = at.integer()
    at.expect("->")
    target = at.integer()
    return Copy(storage, source, target, begin, end, lane, _waits(at), device)


def _waits(at: Cursor) -> tuple[Wait, ...]:
    return at.repeated(lambda: _wait(at)) if at.accept("after") else ()


def _wait(at: Cursor) -> Wait:
    count = at.integer()
    at.expect("of", "lane")
    return Wait(at.integer(), count)


def _constant(at: Cursor, declared: TensorType, array: np.ndarray | None) -> np.ndarray:
    """An array printed by `text.print_constant`; where that is a digest it is `array`, which must have that digest."""
    at.expect("const")
    type = grammar.tensor_type(at) if at.next.text in {one.value for one in DType} else declared
    if at.accept("sha256"):
        fault = at.fault("an array with this digest to be given")
        if at.string() != (digest(array) if array is not None else None):
            raise fault
        assert array is not None  # no digest is None
        return array
    fault = at.fault(f"{type.elements} elements")
    elements = at.listed(lambda: _element(at), "{", "}")
    if len(elements) != type.elements:
        raise fault
    return np.array(elements, dtype=type.dtype.numpy).reshape(type.dims)


def _element(at: Cursor) -> float | int | bool:
    if at.peek("True") or at.peek("False"):
        return at.word() == "True"
    return at.number()

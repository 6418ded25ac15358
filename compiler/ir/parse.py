"""Reads the nouns from their text: `parse_x(str(x)) == x`.

Nothing is verified here beyond what is needed to build the noun; call its `verify`. Every function raises ParseError,
which names the line and what was expected there. Arrays that are printed by their digest are passed in.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import numpy as np

from compiler.ir import grammar
from compiler.ir.buffers import Buffer, Call, KernelGraph, row_major
from compiler.ir.encoding import ENCODINGS, SPARSE_WORD, Encoding, Encodings, Sparse
from compiler.ir.expr import Expr
from compiler.ir.graph import Graph, Node, Value
from compiler.ir.index import Axis, Index
from compiler.ir.kernel import Block, Kernel, Routine, Slot, Store
from compiler.ir.machine import Workload
from compiler.ir.plan import Copy, Memory, Place, Plan, Task, Wait
from compiler.ir.tensor import DType, Layout, TensorType
from compiler.ir.tile import Level, Tile
from compiler.ir.tokens import Cursor

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
    kernel = _kernel(at)
    at.end()
    return kernel


def parse_routine(text: str) -> Routine:
    """A routine, as `compiler.ir.text` prints it. Raises ParseError."""
    at = Cursor(text)
    routine = _routine(at)
    at.end()
    return routine


def parse_workload(text: str) -> Workload:
    """A workload; whether its buffers fit its kernel is for `verify` to say."""
    at = Cursor(text)
    at.expect("workload")
    kernel = _kernel(at) if at.peek("kernel") else _routine(at)
    inputs: list[Buffer] = []
    constant: list[bool] = []
    encodings: list[Encodings] = []
    words = [encoding.word for encoding in ENCODINGS if encoding.word]
    while any(map(at.peek, ("input", "constant", *words))) or _is_sparse(at):
        encodings.append((*(one for one in ENCODINGS if not one.word or at.accept(one.word)), *_sparse(at)))
        constant.append(at.word() == "constant")
        inputs.append(_buffer(at))
    outputs: list[Buffer] = []
    while at.accept("output"):
        outputs.append(_buffer(at))
    at.end()
    return Workload(kernel, tuple(inputs), tuple(outputs), tuple(constant), tuple(encodings))


def _is_sparse(at: Cursor) -> bool:
    return at.next.kind == "word" and at.next.text.startswith(f"{SPARSE_WORD}_")


def _sparse(at: Cursor) -> Encodings:
    """The sparse encodings that come next."""
    found: list[Encoding] = []
    while _is_sparse(at):
        fault = at.fault("a sparse encoding")
        try:
            found.append(Sparse.read(at.word()))
        except ValueError as error:
            raise fault from error
    return tuple(found)


def _kernel(at: Cursor) -> Kernel:
    at.expect("kernel")
    family = at.name()
    inputs, temps, outputs = _slots(at)
    types = {slot.name: slot.type.dtype for slot in (*inputs, *temps, *outputs)}
    blocks: list[Block] = []
    shared: tuple[Axis, ...] = ()
    sequential: tuple[Axis, ...] = ()
    if _begins_loops(at):
        at.expect("for")
        shared, sequential = grammar.axis_list(at)
        if at.accept(":"):  # no shared axes: these are the first block's own
            blocks.append(_block(at, (), shared, sequential, types))
            shared = sequential = ()
    while _begins_loops(at) or at.peek(at.next.text, "["):
        axes: tuple[Axis, ...] = ()
        ordered: tuple[Axis, ...] = ()
        if _begins_loops(at):
            at.expect("for")
            axes, ordered = grammar.axis_list(at)
            at.expect(":")
        blocks.append(_block(at, shared, axes, ordered, types))
    return Kernel(family, inputs, outputs, tuple(blocks), temps, shared, sequential)


def _begins_loops(at: Cursor) -> bool:
    return at.peek("for") and not at.peek("for", "[")


def _slots(at: Cursor) -> tuple[tuple[Slot, ...], tuple[Slot, ...], tuple[Slot, ...]]:
    """The inputs, temporaries and outputs between brackets, each after its word."""
    found: dict[str, list[Slot]] = {"in": [], "temp": [], "out": []}
    at.expect("(")
    while not at.accept(")"):
        word = at.next.text
        if word not in found:
            raise at.fault("`in`, `temp`, `out` or `)`")
        at.expect(word)
        name = at.word("a slot")
        at.expect(":")
        found[word].append(Slot(name, grammar.tensor_type(at)))
        if not at.accept(",") and not at.accept(";") and not at.peek(")"):
            raise at.fault("`,`, `;` or `)`")
    return tuple(found["in"]), tuple(found["temp"]), tuple(found["out"])


def _block(
    at: Cursor,
    shared: tuple[Axis, ...],
    axes: tuple[Axis, ...],
    sequential: tuple[Axis, ...],
    types: Mapping[str, DType],
) -> Block:
    scope = {axis.name: axis for axis in (*shared, *axes)}
    stores = at.repeated(lambda: _store(at, scope, types))
    at.expect("=")
    reduction: tuple[Axis, ...] = ()
    monoid, accumulator = "", None
    if at.peek(at.next.text, "<"):
        monoid = at.word("a monoid")
        at.expect("<")
        accumulator = grammar.dtype(at)
        at.expect(">")
        if not at.peek("."):
            reduction, _ = grammar.axis_list(at)
        at.expect(".")
    scope |= {axis.name: axis for axis in reduction}
    values = at.repeated(lambda: grammar.expr(at, scope, types))
    return Block(axes, values, stores, reduction, monoid, accumulator, sequential)


def _store(at: Cursor, axes: Mapping[str, Axis], types: Mapping[str, DType]) -> Store:
    fault = at.fault(f"a slot ({', '.join(types)})")
    slot = at.word(fault.expected)
    if slot not in types:
        raise fault
    return Store(slot, at.listed(lambda: grammar.index(at, axes, types), "[", "]"))


def _routine(at: Cursor) -> Routine:
    at.expect("routine")
    family, name = at.name(), at.name()
    inputs, _, outputs = _slots(at)
    params = {}
    if at.accept("{"):
        params = grammar.attrs(at)
        at.expect("}")
    return Routine(family, name, inputs, outputs, params)


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
            constants[id] = grammar.constant(at, values[id].type, (arrays or {}).get(id))
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
            kernels[name] = _kernel(at) if at.peek("kernel") else _routine(at)
        elif at.peek(at.next.text, ":"):
            buffer = _buffer(at)
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
                constants[id] = grammar.constant(at, buffers[id].type, (arrays or {}).get(id))
            else:
                calls.append(_call(at, results, kernels))
    return KernelGraph(buffers, tuple(calls), inputs, outputs, constants)


def _buffer(at: Cursor) -> Buffer:
    id = at.identity("b", "a buffer")
    at.expect(":")
    type = grammar.tensor_type(at)
    element = grammar.dtype(at) if at.accept("as") else None
    layout = grammar.layout(at, type.rank)
    storage, offset = id, 0
    if at.accept("in"):
        storage = at.identity("s", "a storage")
        at.expect("+")
        offset = at.integer()
    if at.accept("strides"):
        strides = at.listed(at.integer, "(", ")")
    else:
        strides = row_major(layout.physical(type.dims))
    margins = at.listed(at.integer, "(", ")") if at.accept("margins") else ()
    unread = at.accept("unread")
    return Buffer(id, type, layout, storage, strides, offset, at.optional_string(), element, unread, margins)


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

"""Reads workloads from their text, as records and requests for a kernel's source hold them.

`parse_workload(str(workload)) == workload`. Nothing is verified here beyond what is needed to build the noun; call its
`verify`. Every function raises ParseError, which names the line and what was expected there. `tests/parse.py` reads the
other nouns by what is here.
"""

from __future__ import annotations

from collections.abc import Mapping

from compiler.encodings import is_word, read
from compiler.encodings.encoding import DENSE, Encoding, Encodings
from compiler.ir.buffers import Buffer, row_major
from compiler.ir.index import Axis
from compiler.ir.kernel import Block, Kernel, Routine, Slot, Store
from compiler.ir.machine import Workload
from compiler.ir.parsing import grammar
from compiler.ir.parsing.tokens import Cursor
from compiler.ir.tensor import DType


def parse_workload(text: str) -> Workload:
    """A workload; whether its buffers fit its kernel is for `verify` to say."""
    at = Cursor(text)
    at.expect("workload")
    computation = kernel(at) if at.peek("kernel") else routine(at)
    inputs: list[Buffer] = []
    constant: list[bool] = []
    encodings: list[Encodings] = []
    while _is_encoding(at) or at.peek("input") or at.peek("constant"):
        found = [DENSE]
        while _is_encoding(at):
            found.append(_encoding(at))
        encodings.append(tuple(found))
        constant.append(at.word() == "constant")
        inputs.append(buffer(at))
    outputs: list[Buffer] = []
    while at.accept("output"):
        outputs.append(buffer(at))
    at.end()
    return Workload(computation, tuple(inputs), tuple(outputs), tuple(constant), tuple(encodings))


def _is_encoding(at: Cursor) -> bool:
    return at.next.kind == "word" and is_word(at.next.text)


def _encoding(at: Cursor) -> Encoding:
    fault = at.fault("an encoding")
    try:
        return read(at.word())
    except ValueError as error:
        raise fault from error


def kernel(at: Cursor) -> Kernel:
    """A kernel, as `compiler.ir.text` prints it."""
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


def routine(at: Cursor) -> Routine:
    """A routine, as `compiler.ir.text` prints it."""
    at.expect("routine")
    family, name = at.name(), at.name()
    inputs, _, outputs = _slots(at)
    params = {}
    if at.accept("{"):
        params = grammar.attrs(at)
        at.expect("}")
    return Routine(family, name, inputs, outputs, params)


def buffer(at: Cursor) -> Buffer:
    """A buffer's declaration: type, element, layout, place in its storage."""
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

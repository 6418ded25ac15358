"""Caches that grow by Concat, as states of one size: there is room for all of a text, and a scalar says its length.

Exporters write `present = Concat(past, new)`. Where the option `carry` makes the one the other in the next run, input
`past` has its greatest size, the rows that count are those up to a length that the program is given and gives, and
`present` is the same memory with the new rows behind them (`appended`). Other inputs that are as long as `present`,
such as masks, have room as well.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from compiler.contract import CompileOptions, kinds
from compiler.contract.options import CARRY_AUTO
from compiler.errors import OptionsError
from compiler.frontend.open.extent import Number, Size, is_open
from compiler.frontend.open.values import INDEX, OpenValues, of_size
from compiler.frontend.reading.model import Call, Input, Model, key_of, quoted
from compiler.ir.border import Growth

USUAL_ROOM = 4096
"""Rows of caches for which options say no number."""


@dataclass(frozen=True)
class Growing:
    """What a model says of its caches that grow.

    pairs  by name of the output that a cache becomes its input
    axes   along which axis it grows, by name of the input
    names  of the dimensions that are the rows before a run
    after  of those that are the rows after it
    rows   that a run appends, as far as is known
    room   rows for which there is memory, once the model is bound
    """

    pairs: Mapping[str, str]
    axes: Mapping[str, int]
    names: frozenset[str]
    after: frozenset[str]
    rows: int = 1
    room: int = 0

    @property
    def size(self) -> Size:
        """The rows before a run."""
        return Size(min(self.names), 0, self.room - self.rows)

    @property
    def length(self) -> tuple[str, str]:
        """Names of the input and of the output that hold the rows before and after a run."""
        return f"length:{min(self.names)}", f"length:{min(self.names)}:next"

    def with_rows(self, rows: int) -> Growing:
        """With what a run appends. Raises OptionsError where caches differ in it."""
        if self.rows != 1:
            raise OptionsError(
                f"a run appends {self.rows} rows to one cache and {rows} to another",
                fix='name the states that grow alike, such as {"carry": {"present.0.key": "past_key_values.0.key"}}',
            )
        return replace(self, rows=rows)

    def bound(self, known: Mapping[str, int]) -> Growing:
        """With the room that dimensions say, as far as they are known. Raises OptionsError where it is none."""
        given = {name: known[name] for name in sorted(self.names | self.after) if name in known}
        if len({*given.values()}) > 1:
            listed = " and ".join(f"{quoted(name)} {size}" for name, size in given.items())
            raise OptionsError(
                f"caches that are states have room for one number of tokens, and dims say {listed}",
                fix="bind each of them to the longest text, or one of them alone",
            )
        room = next(iter(given.values()), USUAL_ROOM)
        if room < self.rows:
            raise OptionsError(
                f"caches have room for {room} tokens, and a run appends {self.rows}",
                fix=f"bind {quoted(min(self.names))} to the longest text",
            )
        return replace(self, room=room)

    def axes_of(self, entry: Input) -> tuple[Number | None, ...]:
        """Of each axis of an input the size that it has before or after a run; None for one that does not grow."""
        before = of_size(self.size)
        sizes = {**dict.fromkeys(self.names, before), **dict.fromkeys(self.after, before + self.rows)}
        return tuple(sizes.get(key_of(entry, axis)) for axis in range(len(entry.shape or ())))


def growing(model: Model, options: CompileOptions) -> Growing | None:
    """The caches of a model to which Concat appends, of those that `carry` names or permits; None where there are none.

    An axis whose size is a number already does not grow.
    """
    if not options.carry or options.devices or options.kind != kinds.CPU.name:
        return None
    inputs = {one.name: one for one in model.body.inputs}
    made = {call.outputs[0]: call for call in model.body.calls if call.op == "Concat" and not call.domain}
    pairs: dict[str, str] = {}
    axes: dict[str, int] = {}
    names: set[str] = set()
    after: set[str] = set()
    for out in model.body.outputs:
        entry = inputs.get(made[out].inputs[0]) if out in made else None
        if entry is None or (options.carry != CARRY_AUTO and options.named_states.get(out) != entry.name):
            continue
        axis = _axis(made[out], entry)
        if axis is None or entry.name in axes:
            continue
        pairs[out], axes[entry.name] = entry.name, axis
        names.add(key_of(entry, axis))
        declared = model.body.declared.get(out, ())
        if len(declared) > axis and isinstance(whole := declared[axis], str):
            after.add(whole)
    if not pairs:
        return None
    words = re.compile("|".join(rf"\b{re.escape(name)}\b" for name in names))
    symbols = {dim for one in inputs.values() for dim in one.shape or () if isinstance(dim, str)}
    after = {dim for dim in symbols if dim in after or words.search(dim)}
    return Growing(pairs, axes, frozenset(names), frozenset(after - names))


def _axis(call: Call, entry: Input) -> int | None:
    """The axis along which a Concat appends to an input, where that has no number yet."""
    axis, shape = call.attrs.get("axis"), entry.shape
    if len(call.inputs) != 2 or not isinstance(axis, int) or shape is None or not -len(shape) <= axis < len(shape):
        return None
    return axis % len(shape) if not isinstance(shape[axis], int) else None


def enter_caches(
    values: OpenValues, caches: Growing, lengths: Mapping[str, tuple[Number | None, ...]]
) -> dict[str, int]:
    """Makes the length an input, and gives inputs with room for rows as the model sees them, by name.

    `lengths` says by name which sizes their axes have.
    """
    graph, size = values.graph, caches.size
    inputs = {graph.values[id].name: id for id in graph.inputs}
    given = graph.input(INDEX, caches.length[0])
    values.sizes[size] = given
    found = {}
    for name, axes in lengths.items():
        id = inputs[name]
        shape = tuple(dim if one is None else one for dim, one in zip(graph.type(id).dims, axes, strict=True))
        if name not in caches.axes:
            values.shapes[id] = shape
            continue
        found[name] = values.settled(id, shape, padded=False)
        values.roomy[found[name]] = id, caches.axes[name]
        values.growing.add(id)
    return found


def leave_caches(
    values: OpenValues, caches: Growing, results: Sequence[tuple[str, int]]
) -> tuple[Growth, list[tuple[str, int]]]:
    """How caches grow, and the results of the model with the length behind them.

    Raises OptionsError for a cache to which the model does not append where it lies, and for another result that grows.
    """
    graph = values.graph
    results = [(name, values.at_run_time(id)) for name, id in results]
    if loose := [name for name, id in results if is_open(values.shape(id)) and name not in caches.pairs]:
        raise OptionsError(
            f"output {loose[0]!r:.100} is as long as the caches that are states, and is none itself",
            fix="name every cache that grows in carry, or leave that output out of the model",
        )
    made = {name: graph.type(id) for name, id in results}
    read = {graph.values[id].name: graph.type(id) for id in graph.inputs}
    for out, into in caches.pairs.items():
        if made[out] != read[into]:
            raise OptionsError(
                f"cache {into!r:.100} cannot be a state: what output {out!r:.100} appends to is not the cache as it is",
                fix="leave carry out, or name the states without it",
            )
    before, after = caches.length
    dims = {**dict.fromkeys(caches.names, 0), **dict.fromkeys(caches.after, caches.rows)}
    growth = Growth((before, after), caches.rows, caches.room, caches.pairs, caches.axes, dims)
    return growth, [*results, (after, values.scalar(of_size(caches.size) + caches.rows))]

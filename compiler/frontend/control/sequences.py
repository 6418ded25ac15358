"""Sequences whose length is known when compiling: tuples of values, which no node ever holds.

A sequence has a handle, a number below REFUSED, which stands where a value's id stands. Only the operators here, and
those that pass on what they are given, take one. Positions must be known when compiling.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Protocol

import numpy as np

from compiler.frontend.control.bodies import part, run_body
from compiler.frontend.control.unroll import Walk
from compiler.frontend.reading.model import AttrValue, Body, Call, Expansion
from compiler.frontend.scope import REFUSED, Scope
from compiler.ir.tensor import static
from compiler.ops.operator import Unsupported

Ids = tuple[int | None, ...]
AGAIN = "export the model again"
PASSING = frozenset(("Identity", "If", "Loop", "Optional", "OptionalGetElement", "OptionalHasElement"))
"""Operators that take sequences as they take tensors."""


class Sequences:
    """Those of a walk, by handle."""

    def __init__(self) -> None:
        self._elements: list[Ids] = []

    def enter(self, elements: Ids) -> int:
        """The handle of a sequence. Raises Unsupported for one of sequences."""
        if any(id is None or is_sequence(id) for id in elements):
            raise Unsupported("an element of its sequence is no tensor", "make sequences of tensors")
        self._elements.append(elements)
        return REFUSED - len(self._elements)

    def of(self, handle: int | None) -> Ids:
        """The elements. Raises Unsupported for what is no sequence."""
        if handle is None or not is_sequence(handle):
            raise Unsupported("it takes a sequence, and is given a tensor", AGAIN)
        return self._elements[REFUSED - 1 - handle]


def is_sequence(id: int | None) -> bool:
    """Whether it is a handle."""
    return id is not None and id < REFUSED


class Sequencing(Walk, Protocol):
    """What sequences ask of the walk over the model."""

    sequences: Sequences


def empty(walk: Sequencing, call: Call, ids: Ids, scope: Scope) -> Ids:
    """SequenceEmpty."""
    return (walk.sequences.enter(()),)


def construct(walk: Sequencing, call: Call, ids: Ids, scope: Scope) -> Ids:
    """SequenceConstruct."""
    return (walk.sequences.enter(ids),)


def insert(walk: Sequencing, call: Call, ids: Ids, scope: Scope) -> Ids:
    """SequenceInsert: before a position, or at the end."""
    elements = walk.sequences.of(ids[0])
    place = _position(walk, ids, 2, len(elements), len(elements), len(elements))
    return (walk.sequences.enter((*elements[:place], ids[1], *elements[place:])),)


def at(walk: Sequencing, call: Call, ids: Ids, scope: Scope) -> Ids:
    """SequenceAt."""
    elements = walk.sequences.of(ids[0])
    return (elements[_position(walk, ids, 1, len(elements), len(elements) - 1, -1)],)


def erase(walk: Sequencing, call: Call, ids: Ids, scope: Scope) -> Ids:
    """SequenceErase: of the last element, where no position is given."""
    elements = walk.sequences.of(ids[0])
    place = _position(walk, ids, 1, len(elements), len(elements) - 1, -1)
    return (walk.sequences.enter((*elements[:place], *elements[place + 1 :])),)


def length(walk: Sequencing, call: Call, ids: Ids, scope: Scope) -> Ids:
    """SequenceLength."""
    count = np.array(len(walk.sequences.of(ids[0])), np.int64)
    return (walk.graph.constant(count, scope.label(call.outputs[0])),)


def _position(walk: Sequencing, ids: Ids, which: int, count: int, most: int, default: int) -> int:
    """A position up to `most` in a sequence of `count`, of which negative ones count from behind its end."""
    id = ids[which] if len(ids) > which else None
    if id is None:
        place = default
    else:
        known = walk.graph.constants.get(id)
        if known is None:
            raise Unsupported("its position is not known when compiling", walk.how_to_fix(id))
        if known.size != 1 or known.dtype.kind not in "iu":
            raise Unsupported(f"its position is {known.tolist()!s:.40}", "give one whole number")
        place = int(known.reshape(()))
    if not -count <= place <= most:
        raise Unsupported(f"its position is {place} in a sequence of {count}", AGAIN)
    return place + count if place < 0 else place


def split(walk: Sequencing, call: Call, ids: Ids, scope: Scope) -> Ids:
    """SplitToSequence: parts of equal or of given sizes along an axis; without sizes of one each."""
    assert ids[0] is not None
    kind = walk.values.type(ids[0])
    axis = _int(call, "axis", 0)
    if not -kind.rank <= axis < kind.rank:
        raise Unsupported(f"axis {axis} is none of {kind}", AGAIN)
    axis %= kind.rank
    (extent,) = static(kind.shape[axis : axis + 1])
    sizes = _sizes(walk, ids[1] if len(ids) > 1 else None, extent)
    drops = len(ids) < 2 and not _int(call, "keepdims", 1)
    bounds = np.cumsum([0, *sizes])
    parts = [
        _piece(walk, call, scope, ids[0], axis, (int(low), int(high)), drops)
        for low, high in itertools.pairwise(bounds)
    ]
    return (walk.sequences.enter(tuple(parts)),)


def _sizes(walk: Sequencing, id: int | None, extent: int) -> list[int]:
    if id is None:
        return [1] * extent
    known = walk.graph.constants.get(id)
    if known is None:
        raise Unsupported("the sizes of its parts are not known when compiling", walk.how_to_fix(id))
    if known.ndim == 0:
        step = int(known)
        if step < 1:
            raise Unsupported(f"its parts have the size {step}", AGAIN)
        return [min(step, extent - begin) for begin in range(0, extent, step)]
    sizes = [int(size) for size in known.reshape(-1)]
    if sum(sizes) != extent or min(sizes, default=0) < 0:
        raise Unsupported(f"its parts have the sizes {sizes!s:.60} of {extent}", AGAIN)
    return sizes


def _piece(
    walk: Sequencing, call: Call, scope: Scope, id: int, axis: int, ends: tuple[int, int], drops: bool
) -> int | None:
    calls = [Call("Slice", ("x", "low", "high", "axis"), ("piece" if drops else "y",))]
    if drops:
        calls.append(Call("Squeeze", ("piece", "axis"), ("y",)))
    low, high = (np.array([end], np.int64) for end in ends)
    constants: Mapping[str, np.ndarray] = {"low": low, "high": high, "axis": np.array([axis], np.int64)}
    return part(walk, call, scope, (id,), Expansion(("x",), ("y",), tuple(calls), constants))


def concat(walk: Sequencing, call: Call, ids: Ids, scope: Scope) -> Ids:
    """ConcatFromSequence: along an axis, or along a new one."""
    elements = walk.sequences.of(ids[0])
    axis = _int(call, "axis", 0)
    if not elements:
        raise Unsupported("it joins a sequence without elements", AGAIN)
    names = tuple(f"x{place}" for place in range(len(elements)))
    calls: list[Call] = []
    rows = names
    if _int(call, "new_axis", 0):
        rows = tuple(f"row{place}" for place in range(len(elements)))
        calls = [Call("Unsqueeze", (name, "axes"), (row,)) for name, row in zip(names, rows, strict=True)]
    joined = Call("Concat", rows, ("y",), {"axis": axis})
    constants = {"axes": np.array([axis], np.int64)}
    return (part(walk, call, scope, elements, Expansion(names, ("y",), (*calls, joined), constants)),)


def each(walk: Sequencing, call: Call, ids: Ids, scope: Scope) -> Ids:
    """SequenceMap: a body applied to the elements of a sequence, with those of others beside it, or with tensors."""
    body: AttrValue | None = call.attrs.get("body")
    count = len(walk.sequences.of(ids[0]))
    if not isinstance(body, Body) or len(body.inputs) != len(ids) or len(body.outputs) != len(call.outputs):
        raise Unsupported("its body does not fit its inputs and outputs", AGAIN)
    if any(is_sequence(id) and len(walk.sequences.of(id)) != count for id in ids):
        raise Unsupported("its sequences have different lengths", AGAIN)
    rows: list[Ids] = []
    for turn in range(count):
        walk.count()
        given = [walk.sequences.of(id)[turn] if is_sequence(id) else id for id in ids]
        rows.append(run_body(walk, call, body, scope, str(turn), given))
        if REFUSED in rows[-1]:
            return (REFUSED,) * len(call.outputs)
    return tuple(walk.sequences.enter(tuple(row[place] for row in rows)) for place in range(len(call.outputs)))


def optional(walk: Sequencing, call: Call, ids: Ids, scope: Scope) -> Ids:
    """Optional: what it holds, or nothing."""
    return ids[:1] or (None,)


def has_element(walk: Sequencing, call: Call, ids: Ids, scope: Scope) -> Ids:
    """OptionalHasElement: whether there is an input; one that is a tensor always has its element."""
    there = np.array(bool(ids) and ids[0] is not None)
    return (walk.graph.constant(there, scope.label(call.outputs[0])),)


def element(walk: Sequencing, call: Call, ids: Ids, scope: Scope) -> Ids:
    """OptionalGetElement of a tensor: `y = x`."""
    if not ids or ids[0] is None:
        raise Unsupported("it asks for the element of an optional that has none", AGAIN)
    return ids[:1]


def _int(call: Call, name: str, default: int) -> int:
    value = call.attrs.get(name, default)
    if not isinstance(value, int):
        raise Unsupported(f"attribute {name!r} is {value!r:.40}", AGAIN)
    return value


SEQUENCES: Mapping[str, Callable[[Sequencing, Call, Ids, Scope], Ids]] = {
    "ConcatFromSequence": concat,
    "Optional": optional,
    "OptionalGetElement": element,
    "OptionalHasElement": has_element,
    "SequenceAt": at,
    "SequenceConstruct": construct,
    "SequenceEmpty": empty,
    "SequenceErase": erase,
    "SequenceInsert": insert,
    "SequenceLength": length,
    "SequenceMap": each,
    "SplitToSequence": split,
}

"""How often a loop runs that counts: its condition compares a counter that it carries with what no iteration changes.

TensorFlow's loops are exported so: without a trip count, with `Less(counter + 1, steps)` as the condition of the next
iteration, or with several such comparisons joined by `And`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from compiler.frontend.open.extent import Number, least, low
from compiler.frontend.open.values import OpenValues, as_number
from compiler.frontend.reading.model import Body, Call
from compiler.frontend.scope import REFUSED, Scope

COMPARISONS = {"Less": (0, 1, 0), "Greater": (1, 0, 0), "LessOrEqual": (0, 1, 1), "GreaterOrEqual": (1, 0, 1)}
"""Which operand is the counter, which its limit, and how much further than the limit it may count."""
RENAMING = ("Identity", "Cast")


class Walk(Protocol):
    """What counting asks of the walk over the model."""

    values: OpenValues


def counted(walk: Walk, body: Body, ids: Sequence[int | None], scope: Scope) -> Number | None:
    """How many iterations a Loop has by its condition, if the first one runs; None where it does not count.

    ids  what the Loop is given: trip count, condition, carried values
    """
    return _Counting(walk, body, ids, scope).iterations(body.outputs[0])


class _Counting:
    def __init__(self, walk: Walk, body: Body, ids: Sequence[int | None], scope: Scope) -> None:
        self.walk, self.body, self.scope = walk, body, scope
        self.makers: dict[str, Call] = {name: call for call in body.calls for name in call.outputs if name}
        carried = [one.name for one in body.inputs[2:]]
        self.first = dict(zip(carried, ids[2:], strict=True))
        self.next = dict(zip(carried, map(self.renamed, body.outputs[1:]), strict=False))

    def iterations(self, condition: str) -> Number | None:
        """After how many iterations a condition does not hold any more."""
        call = self.makers.get(self.renamed(condition))
        if call is None or call.domain:
            return None
        if call.op == "And":
            one, other = map(self.iterations, call.inputs)
            return None if one is None or other is None else least(one, other)
        if call.op not in COMPARISONS:
            return None
        counter, limit, further = COMPARISONS[call.op]
        begin, end = self.begin(call.inputs[counter]), self.unchanged(call.inputs[limit])
        if begin is None or end is None:
            return None
        steps = end + further - begin
        if low(steps) >= 1:
            return steps
        return 1 if isinstance(steps, int) else None  # the condition is asked when an iteration has run

    def renamed(self, name: str) -> str:
        """The name of which a value is a copy."""
        while (call := self.makers.get(name)) is not None and call.op in RENAMING and not call.domain:
            name = call.inputs[0]
        return name

    def begin(self, name: str) -> Number | None:
        """The first value of the counter that is one more under this name."""
        after = self.renamed(name)
        call = self.makers.get(after)
        if call is None or call.op != "Add" or call.domain:
            return None
        for counter, step in (call.inputs, call.inputs[::-1]):
            before = self.renamed(counter)
            if self.next.get(before) == after and self.unchanged(step) == 1:
                return self.number(self.first[before])
        return None

    def unchanged(self, name: str) -> Number | None:
        """A whole number that is the same in every iteration."""
        name = self.renamed(name)
        if name in self.body.constants:
            held = self.body.constants[name]
            is_whole = isinstance(held, np.ndarray) and held.size == 1 and held.dtype.kind in "iu"
            return int(held.reshape(-1)[0]) if is_whole else None  # type: ignore[union-attr]
        if name in self.makers or name in (one.name for one in self.body.inputs[:2]):
            return None
        if name in self.first:
            return self.number(self.first[name]) if self.next.get(name) == name else None
        slot = self.scope.find(name)
        return self.number(slot) if isinstance(slot, int) else None

    def number(self, id: int | None) -> Number | None:
        """The whole number that a scalar holds."""
        if id is None or id == REFUSED:
            return None
        elements = self.walk.values.elements.get(id)
        if elements is not None and elements.size == 1:
            return as_number(elements.reshape(-1)[0])
        known = self.walk.values.known(id)
        return int(known.reshape(-1)[0]) if known is not None and known.size == 1 and known.dtype.kind in "iu" else None

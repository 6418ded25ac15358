"""If: the branch that a known condition takes; else a region, or both branches and a choice while running.

Exporters write an If for each way of calling a model, such as the sampling rates of speech, and shapes that fit one
branch need not fit the other. A branch that does not take the sizes that the model is compiled for is left out: a run
whose condition asks for it is an error.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from compiler.errors import Refusal
from compiler.frontend.control.regions import Walk as Attempted
from compiler.frontend.control.regions import attempt, conditional_region
from compiler.frontend.control.sequences import is_sequence
from compiler.frontend.open.measured import chosen, truth
from compiler.frontend.open.values import Narrower
from compiler.frontend.reading.model import Body, Call, Foreign, quoted
from compiler.frontend.scope import REFUSED, Scope
from compiler.ir.tensor import DType
from compiler.ops.operator import Unsupported

Ids = tuple[int | None, ...]
BRANCHES = ("then_branch", "else_branch")


class Walk(Attempted, Protocol):
    """What branches ask of the walk over the model."""

    regions: bool

    def body(self, body: Body, scope: Scope) -> None:
        """Walk over the calls of a body, whose inputs the scope already binds."""
        ...

    def refuse(self, refusal: Refusal) -> None:
        """One more node that cannot be compiled."""
        ...

    def how_to_fix(self, *ids: int) -> str:
        """Which inputs to give values for, so that values are known."""
        ...

    def knows(self, call: Call) -> bool:
        """Whether there is a way for calls of this operator at all."""
        ...


@dataclass(frozen=True)
class Refused:
    """Nodes of a branch cannot be compiled: why, as far as that is listed, and how many they are."""

    refusals: Sequence[Refusal]
    count: int

    def __str__(self) -> str:
        return str(self.refusals[0]) if self.refusals else f"{self.count} of its nodes cannot be compiled"


def conditional(walk: Walk, call: Call, ids: Ids, scope: Scope) -> Ids:
    """If with a known condition is the branch taken, the other one is not looked at; else one of both results."""
    assert ids[0] is not None
    condition = walk.graph.constants.get(ids[0])
    if condition is not None and condition.size != 1:
        raise Unsupported(f"its condition has {condition.size} elements", "give a scalar condition")
    if condition is not None:
        return _branch(walk, call, BRANCHES[not condition.reshape(())], scope)
    taken = truth(walk.values, ids[0])
    if walk.regions:
        both_ways = [partial(_branch, walk, call, name, scope) for name in BRANCHES]
        try:
            with attempt(walk):
                return conditional_region(walk, taken, both_ways)
        except (Unsupported, Narrower):
            walk.values.source = scope.source(call.source)
    flags = (taken, walk.values.node("Not", (taken,)))
    found = [_tried(walk, call, name, scope, flag) for name, flag in zip(BRANCHES, flags, strict=True)]
    walk.values.source = scope.source(call.source)
    one, other = found
    if isinstance(one, tuple) and isinstance(other, tuple):
        return _one_of(walk, call, ids[0], taken, one, other)
    by_sizes = _is_by_sizes(walk, ids[0])
    if not by_sizes and (isinstance(one, tuple) or isinstance(other, tuple)) and _is_known(walk, call, found):
        return _without(walk, taken, found, ids[0])
    if narrower := [each for each in found if isinstance(each, Narrower)]:
        ranges = [each.beside() if by_sizes and each.low == each.high else each for each in narrower]
        raise max(ranges, key=lambda each: each.high - each.low)
    return _neither(walk, call, found)


def _tried(walk: Walk, call: Call, name: str, scope: Scope, flag: int) -> Ids | Refused | Narrower:
    """The results of a branch that runs where a flag is true; or why there are none, and nothing is done then."""
    before, listed = walk.refused, len(walk.refusals)
    why: Refused | None = None
    try:
        with attempt(walk), walk.values.guarded(flag):
            results = _branch(walk, call, name, scope)
            if walk.refused > before:
                why = Refused(walk.refusals[listed:], walk.refused - before)
                raise Unsupported(str(why), "")
            return results
    except Narrower as narrower:
        return narrower
    except Unsupported:
        if why is None:
            raise
        return why


def _one_of(walk: Walk, call: Call, condition: int, taken: int, one: Ids, other: Ids) -> Ids:
    """The results of one branch where a scalar (bool) is true, else of the other."""
    if REFUSED in (*one, *other):
        return (REFUSED,) * len(call.outputs)
    results: list[int | None] = []
    for mine, yours in zip(one, other, strict=True):
        if mine is None or yours is None:
            raise Unsupported("a branch has a result that is absent", "export the model again")
        if is_sequence(mine) or is_sequence(yours):
            reason = "its branches give sequences, and only data choose between them"
            raise Unsupported(reason, walk.how_to_fix(condition))
        try:
            results.append(chosen(walk.values, taken, mine, yours))
        except Unsupported as no:
            raise Unsupported(no.reason, walk.how_to_fix(condition)) from None
    return tuple(results)


def _is_known(walk: Walk, call: Call, found: Sequence[Ids | Refused | Narrower]) -> bool:
    """Whether the branch without results fails at its sizes alone: it has no operator that is not known at all."""
    which = next(place for place, each in enumerate(found) if not isinstance(each, tuple))
    body = call.attrs[BRANCHES[which]]
    assert isinstance(body, Body)
    return all(map(walk.knows, _calls(body)))


def _calls(body: Body) -> Iterator[Call]:
    """Those of a body and of all inside it."""
    for call in body.calls:
        yield call
        for value in call.attrs.values():
            if isinstance(value, Body):
                yield from _calls(value)


def _is_by_sizes(walk: Walk, id: int) -> bool:
    """Whether a value follows from sizes alone, so that there are ranges of these in which it is known."""
    return walk.values.known(id) is not None or walk.graph.roots(id) <= {*walk.values.sizes.values()}


def _without(walk: Walk, taken: int, found: Sequence[Ids | Refused | Narrower], condition: int) -> Ids:
    """The results of the only branch that has some; what the condition is, is demanded."""
    which = next(place for place, each in enumerate(found) if isinstance(each, tuple))
    results, why = found[which], found[1 - which]
    assert isinstance(results, tuple)
    says = f"the condition of If {walk.values.source!r:.100} must be {str(not which).lower()}"
    left_out = f"its {BRANCHES[1 - which].replace('_', ' ')} does not take the sizes that the model is compiled for"
    walk.values.demand(walk.values.cast(taken, DType.I64), 1 - which, 1 - which, f"{says}: {left_out}")
    walk.left_out += 1
    walk.notices.append(f"{says}, else a run is an error: {left_out} ({why!s:.300}); {walk.how_to_fix(condition)}")
    return results


def _neither(walk: Walk, call: Call, found: Sequence[Ids | Refused | Narrower]) -> Ids:
    """What becomes of an If of which a branch that is needed has no results: all that stands in its way is listed."""
    for each in found:
        if isinstance(each, Refused):
            for refusal in each.refusals:
                walk.refuse(refusal)
            walk.refused += each.count - len(each.refusals)
    return (REFUSED,) * len(call.outputs)


def _branch(walk: Walk, call: Call, which: str, scope: Scope) -> Ids:
    """The results of one branch."""
    body = call.attrs.get(which)
    if not isinstance(body, Body) or body.inputs or len(body.outputs) != len(call.outputs):
        raise Unsupported("its branch does not fit its outputs", "export the model again")
    inner = scope.inner()
    walk.body(body, inner)
    results: list[int | None] = []
    for name in body.outputs:
        slot = inner.find(name)
        if isinstance(slot, Foreign):
            raise Unsupported(f"its result {quoted(name)} is {slot.what}", "use a type from bool to double")
        results.append(slot)
    return tuple(results)

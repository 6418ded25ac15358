"""The logs of rewriting and fusion, grouped so that a person can read them."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import TypeVar

from compiler.fuse.joins import Verdict
from compiler.fuse.refusal import Refusal as Apart
from compiler.ir.tile import Cost
from compiler.pack.explanation import Entry, Explanation
from compiler.pack.graphs import Applied
from compiler.rewrite import Application, Refusal
from compiler.rewrite.choices import CHOICES
from compiler.rewrite.choose import Decision
from compiler.rewrite.gain import Work
from compiler.rewrite.rules import RULES

ELLIPSIS = "…"
PARTICULAR = re.compile(
    r"(?<!\w)'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|%\w+|(?<![\w.])\d+(?:\.\d+)?(?:e[+-]?\d+)?(?!\w)"
)
"""What a reason says of one place alone: names from the model, values, numbers."""

Item = TypeVar("Item")


def explain(
    log: Sequence[Application],
    refusals: Sequence[Refusal],
    apart: Sequence[Apart],
    decisions: Sequence[Decision] = (),
    joins: Sequence[Verdict] = (),
) -> Explanation:
    """Equal logs give equal explanations, whatever they were taken from."""
    decisions = (*decisions, *map(_of_join, joins))
    taken = [one for one in decisions if not one.reason]
    left = [one for one in decisions if one.reason]
    return Explanation(_applied(log), _refused(refusals), _evaluated(taken), _evaluated(left), _apart(apart))


def applications(log: Sequence[Application]) -> tuple[Applied, ...]:
    """What rewriting did, in its order, each with what it saved."""
    return tuple(Applied(f"{one.rule} ({one.kind})", one.where, one.why, str(one.gain)) for one in log)


def made(log: Sequence[Decision]) -> tuple[Applied, ...]:
    """The choices that were made, each with the costs that decided."""
    return tuple(Applied(one.choice, one.where, one.why, _times([one])) for one in log if not one.reason)


def _of_join(verdict: Verdict) -> Decision:
    """Kernels that may be one, as a choice."""
    before = Cost(math.fsum(cost.seconds for cost in verdict.apart), verdict.apart[0].source)
    why = f"{len(verdict.apart)} kernels as one"
    return Decision(f"{verdict.join.kind} join", verdict.join.where, why, before, verdict.joined, verdict.reason)


def _applied(log: Sequence[Application]) -> tuple[Entry, ...]:
    """By rule; who saved most operations first, then most bytes."""
    equations = {rule.name: rule.equation for rule in (*RULES, *CHOICES)}
    found: list[tuple[Work, Entry]] = []
    for members in _grouped(log, lambda one: (one.rule, one.kind)).values():
        first, saved = members[0], sum((one.gain for one in members), Work())
        equation = equations.get(first.rule, "") or _shared(tuple(one.why for one in members))
        found.append((saved, Entry(f"{first.rule} ({first.kind})", equation, len(members), first.where, str(saved))))
    found.sort(key=lambda one: (-one[0].operations, -one[0].bytes, -one[1].count, one[1].what))
    return tuple(entry for _, entry in found)


def _refused(refusals: Sequence[Refusal]) -> tuple[Entry, ...]:
    groups = _grouped(refusals, lambda one: (one.rule, general(one.reason)))
    return _often(
        Entry(members[0].rule, _shared(tuple(one.reason for one in members)), len(members), members[0].where)
        for members in groups.values()
    )


def _evaluated(decisions: Sequence[Decision]) -> tuple[Entry, ...]:
    """By choice and reason, with the seconds of the regions around them without and with the choice.

    Those that would save most come first.
    """
    found: list[tuple[float, Entry]] = []
    for members in _grouped(decisions, lambda one: (one.choice, general(one.reason), one.before.is_modelled)).values():
        first = members[0]
        before, after = _seconds(members)
        said = _shared(tuple(one.reason or one.why for one in members))
        found.append((before - after, Entry(first.choice, said, len(members), first.where, _times(members))))
    found.sort(key=lambda one: (-one[0], -one[1].count, one[1].what, one[1].why))
    return tuple(entry for _, entry in found)


def _times(decisions: Sequence[Decision]) -> str:
    """Of what is around them, without and with the choice; all have their costs from the same source."""
    before, after = _seconds(decisions)
    source = "by the model" if decisions[0].before.is_modelled else "measured"
    return f"{1e6 * before:.1f} us without, {1e6 * after:.1f} us with it, {source}"


def _seconds(decisions: Sequence[Decision]) -> tuple[float, float]:
    return math.fsum(one.before.seconds for one in decisions), math.fsum(one.after.seconds for one in decisions)


def _apart(refusals: Sequence[Apart]) -> tuple[Entry, ...]:
    groups = _grouped(refusals, lambda one: (one.step, general(one.reason)))
    return _often(
        Entry(
            members[0].step,
            _shared(tuple(one.reason for one in members)),
            len(members),
            f"{members[0].where}: {members[0].kernels}",
        )
        for members in groups.values()
    )


def general(reason: str) -> str:
    """A reason without what is particular to a place: equal for what was refused for the same reason."""
    return PARTICULAR.sub(ELLIPSIS, reason)


def _shared(reasons: tuple[str, ...]) -> str:
    """The reason itself where it is the same everywhere."""
    return reasons[0] if len(set(reasons)) == 1 else general(reasons[0])


def _often(entries: Iterable[Entry]) -> tuple[Entry, ...]:
    return tuple(sorted(entries, key=lambda entry: (-entry.count, entry.what, entry.why)))


def _grouped(items: Iterable[Item], key: Callable[[Item], Hashable]) -> Mapping[Hashable, list[Item]]:
    found: dict[Hashable, list[Item]] = defaultdict(list)
    for item in items:
        found[key(item)].append(item)
    return found

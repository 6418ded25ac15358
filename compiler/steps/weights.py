"""What is reported of the values of weights, and which kernels read less for them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from compiler.encodings import REPORTED
from compiler.encodings.encoding import Use
from compiler.encodings.finding import Reported
from compiler.forms.uses import uses_of
from compiler.ir.buffers import KernelGraph
from compiler.ir.tile import Menu
from compiler.pack.explanation import Entry


def weights_report(kernels: KernelGraph, menus: Sequence[Menu]) -> tuple[tuple[str, tuple[Entry, ...]], ...]:
    """A title for each kind of finding, and weights by shape and kind, those that gain most first."""
    return tuple((kind.title, _entries(kind, kernels, menus)) for kind in REPORTED)


def weights_notices(menus: Sequence[Menu]) -> list[str]:
    """What a user should know of how weights are read."""
    algorithms = [menu.best.tile.algorithm for menu in menus]
    return [notice for kind in REPORTED for notice in kind.notices(algorithms)]


def _entries(kind: type[Reported], kernels: KernelGraph, menus: Sequence[Menu]) -> tuple[Entry, ...]:
    known: dict[int, Reported | None] = {}
    members: defaultdict[tuple[str, str, bool], list[tuple[Reported, str]]] = defaultdict(list)
    for shape, id, use, algorithm, where in _weights(kernels, menus):
        if id not in known:
            known[id] = kind.of(kernels.constants[id], use)
        if (found := known[id]) is not None:
            used = kind.is_used_by(algorithm) and (use is Use.PRODUCT or bool(kernels.encodings(id, use)))
            members[shape, found.words, used].append((found, where))
    ordered = sorted(members.items(), key=lambda one: -sum(found.gain for found, _ in one[1]))
    return tuple(
        Entry(f"{shape}: {words}", kind.summary([one for one, _ in each]), len(each), each[0][1], kind.note(used))
        for (shape, words, used), each in ordered
    )


def _weights(kernels: KernelGraph, menus: Sequence[Menu]) -> Iterator[tuple[str, int, Use, str, str]]:
    """Constants that calls multiply by: type, buffer, how they are read, by which algorithm, at which nodes."""
    for call, menu in zip(kernels.calls, menus, strict=True):
        for slot, id in zip(call.kernel.inputs, call.inputs, strict=True):
            uses = uses_of(call.kernel, slot) if id in kernels.constants else ()
            for use in (Use.PRODUCT, Use.RECURRENCE):
                if use in uses:
                    where = ", ".join(call.sources) or call.kernel.family
                    yield str(slot.type), id, use, menu.best.tile.algorithm, where

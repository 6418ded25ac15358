"""What is reported of weights that share few values: which codebooks they have, and which kernels look them up."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from compiler.encodings.codebook import SharedValues, looks_up, shared_values_of
from compiler.forms.recurrence import recurs_by
from compiler.forms.sparse import multiplies_by
from compiler.ir.buffers import KernelGraph
from compiler.ir.tile import Menu
from compiler.pack.explanation import Entry

MEGABYTE = 1e6


def shared_report(kernels: KernelGraph, menus: Sequence[Menu]) -> tuple[Entry, ...]:
    """Weights by shape and codebook, those that save most first, and what becomes of them."""
    known: dict[int, SharedValues | None] = {}
    found: defaultdict[tuple[str, str, bool], list[tuple[SharedValues, str]]] = defaultdict(list)
    for call, menu in zip(kernels.calls, menus, strict=True):
        for slot, id in zip(call.kernel.inputs, call.inputs, strict=True):
            if id not in kernels.constants or not (recurs_by(call.kernel, slot) or multiplies_by(call.kernel, slot)):
                continue
            if id not in known:
                known[id] = shared_values_of(kernels.constants[id])
            shared = known[id]
            if shared is not None:
                where = ", ".join(call.sources) or call.kernel.family
                found[str(slot.type), shared.form, looks_up(menu.best.tile.algorithm)].append((shared, where))
    return tuple(
        Entry(f"{shape}: {form}", _said([one for one, _ in members]), len(members), members[0][1], _note(looked_up))
        for (shape, form, looked_up), members in sorted(
            found.items(), key=lambda one: -sum(shared.saved_bytes for shared, _ in one[1])
        )
    )


def _said(each: Sequence[SharedValues]) -> str:
    """Values, zeros among them, and what is saved, of tensors together."""
    most, zeros = max(one.values for one in each), sum(one.zeros for one in each)
    share = f", {100 * zeros / sum(one.elements for one in each):.1f} % zeros" if zeros else ""
    dense = sum(4 * one.elements for one in each) / MEGABYTE
    kept = sum(one.bytes for one in each) / MEGABYTE
    return f"{most} values{share}; {kept:.2f} MB for {dense:.2f} MB in fp32"


def _note(looked_up: bool) -> str:
    if looked_up:
        return "kept as indices and looked up"
    return (
        "multiplied dense, which is faster or all there is; for CPUs large ones are stored as indices unless their "
        "kernel transforms them"
    )

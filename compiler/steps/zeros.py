"""What is reported of zeros in weights: how they lie, and which kernels leave them out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from compiler.encodings.encoding import Use
from compiler.encodings.zeros import Zeros, leaves_out, zeros_of
from compiler.forms.recurrence import recurs_by
from compiler.forms.sparse import multiplies_by
from compiler.ir.buffers import KernelGraph
from compiler.ir.tile import Menu
from compiler.pack.explanation import Entry

INTEGER = "integer"
"""How the names of algorithms end that multiply whole numbers, none of which is NaN or infinite."""


def zeros_report(kernels: KernelGraph, menus: Sequence[Menu]) -> tuple[Entry, ...]:
    """Weights by shape and by how their zeros lie, the largest first, and what becomes of the zeros."""
    known: dict[int, Zeros | None] = {}
    found: defaultdict[tuple[str, str, bool], list[tuple[Zeros, str]]] = defaultdict(list)
    for call, menu in zip(kernels.calls, menus, strict=True):
        for slot, id in zip(call.kernel.inputs, call.inputs, strict=True):
            recurs = recurs_by(call.kernel, slot)
            if id in kernels.constants and (recurs or multiplies_by(call.kernel, slot)):
                if id not in known:
                    constant = kernels.constants[id]
                    known[id] = zeros_of(constant.reshape(-1, constant.shape[-1]) if recurs else constant)
                zeros = known[id]
                if zeros is not None:
                    where = ", ".join(call.sources) or call.kernel.family
                    left_out = not recurs or bool(kernels.encodings(id, Use.RECURRENCE))
                    omitted = left_out and leaves_out(menu.best.tile.algorithm)
                    found[str(slot.type), zeros.form, omitted].append((zeros, where))
    return tuple(
        Entry(f"{shape}: {form}", _shares([zeros for zeros, _ in members]), len(members), members[0][1], _note(omitted))
        for (shape, form, omitted), members in sorted(
            found.items(), key=lambda one: -sum(zeros.elements for zeros, _ in one[1])
        )
    )


def _shares(each: Sequence[Zeros]) -> str:
    """Of zeros, from the least to the greatest, and what else can be said of them together."""
    least, most = (f"{100 * end(zeros.share for zeros in each):.1f}" for end in (min, max))
    lines, equal = sum(zeros.zero_lines for zeros in each), sum(zeros.equal_lines for zeros in each)
    inputs = sum(zeros.zero_inputs for zeros in each)
    said = [f"{least} % zeros" if least == most else f"{least} to {most} % zeros"]
    said += [f"{lines} lines zero throughout"] if lines else []
    said += [f"{equal} lines equal to others"] if equal else []
    said += [f"{inputs} inputs unread"] if inputs else []
    said += [str(one.combined) for one in each[:1] if one.combined]
    return "; ".join(said)


def _note(omitted: bool) -> str:
    return "kept and multiplied without zeros" if omitted else "kept dense, which is faster or all there is"


def zeros_notices(menus: Sequence[Menu]) -> list[str]:
    """That zero weights are left out, where they are: it shows where an activation is not finite."""
    taken = [menu.best.tile.algorithm for menu in menus]
    count = sum(leaves_out(algorithm) and not algorithm.endswith(INTEGER) for algorithm in taken)
    if not count:
        return []
    kernels = "1 kernel multiplies" if count == 1 else f"{count} kernels multiply"
    return [
        f"{kernels} no zero weights: a NaN or an infinity among activations need not reach results to which only zero "
        "weights link it; the option sparsity=off multiplies every weight"
    ]

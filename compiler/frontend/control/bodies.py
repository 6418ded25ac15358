"""Bodies that a call holds, and pieces of program that stand for a part of it, walked where the call stands."""

from __future__ import annotations

from collections.abc import Sequence

from compiler.frontend.control.unroll import Walk
from compiler.frontend.reading.model import Body, Call, Expansion, Foreign
from compiler.frontend.scope import REFUSED, Scope
from compiler.ops.operator import Unsupported

Ids = tuple[int | None, ...]


def run_body(walk: Walk, call: Call, body: Body, scope: Scope, label: str, given: Sequence[int | None]) -> Ids:
    """The results of a body of a call, for values of its inputs; all REFUSED where a node of it was refused."""
    prefix = f"{scope.source(call.source)}/{label}/" if scope.named else scope.prefix
    inner = Scope(scope.opsets, prefix, scope.named, scope.defines, scope)
    inner.slots.update({one.name: id for one, id in zip(body.inputs, given, strict=True)})
    refused = walk.refused
    walk.body(body, inner)
    results: list[int | None] = []
    for name in body.outputs:
        slot = inner.find(name)
        if isinstance(slot, Foreign) or slot is None:
            said = "absent" if slot is None else slot.what
            raise Unsupported(f"the result {name!r:.100} of its body is {said}", "use a type from bool to double")
        results.append(slot)
    return (REFUSED,) * len(results) if walk.refused > refused or REFUSED in results else tuple(results)


def part(walk: Walk, call: Call, scope: Scope, ids: Ids, expansion: Expansion) -> int | None:
    """The one result of an expansion that stands for a part of `call`."""
    if REFUSED in ids:
        return REFUSED
    part = Call(call.op, ("",) * len(ids), (call.op,), {}, source=call.source)
    unnamed = Scope(scope.opsets, scope.source(call.source), named=False, defines=scope.defines or call.op)
    (result,) = walk.expand(part, ids, unnamed, expansion, None)
    return result

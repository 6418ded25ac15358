"""Scan of opset 8, whose states and sources have a batch as their first axis: one Scan of opset 9 for each element."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from compiler.frontend.control.bodies import part
from compiler.frontend.control.unroll import Walk, scan
from compiler.frontend.reading.model import AttrValue, Call, Expansion
from compiler.frontend.scope import REFUSED, Scope
from compiler.ops.operator import Unsupported

Ids = tuple[int | None, ...]


def scan_of_any_opset(walk: Walk, call: Call, ids: Ids, scope: Scope) -> Ids:
    """Scan in the form that the opset of the scope gives it."""
    return scan(walk, call, ids, scope) if (scope.opsets.get("") or 0) >= 9 else _scan_of_batch(walk, call, ids, scope)


def _scan_of_batch(walk: Walk, call: Call, ids: Ids, scope: Scope) -> Ids:
    """Inputs (lengths, states [N, ...] ..., sources [N, steps, ...] ...); results with a batch as first axis."""
    if not ids or ids[0] is not None:
        raise Unsupported("its sequences have lengths of their own", "export the model with opset 9 or newer")
    given = [id for id in ids[1:] if id is not None]
    sizes = {walk.values.type(id).shape[:1] for id in given}
    if len(given) != len(ids) - 1 or len(sizes) != 1 or not all(sizes):
        raise Unsupported("its inputs have not one batch", "export the model again")
    ((batch,),) = sizes
    if not isinstance(batch, int) or batch < 1:
        raise Unsupported(f"it has a batch of {batch}", "bind that dimension to a number above 0")
    attrs: dict[str, AttrValue] = {name: value for name, value in call.attrs.items() if name != "directions"}
    if "directions" in call.attrs:
        attrs["scan_input_directions"] = call.attrs["directions"]
    plain = replace(call, inputs=call.inputs[1:], attrs=attrs)
    rows: list[Ids] = []
    for place in range(batch):
        rows.append(scan(walk, plain, tuple(_row(walk, call, scope, id, place) for id in given), scope))
        if REFUSED in rows[-1]:
            return (REFUSED,) * len(call.outputs)
    return tuple(_stacked(walk, call, scope, column) for column in zip(*rows, strict=True))


def _row(walk: Walk, call: Call, scope: Scope, id: int, place: int) -> int | None:
    gather = Call("Gather", ("x", "place"), ("y",), {"axis": 0})
    return part(walk, call, scope, (id,), Expansion(("x",), ("y",), (gather,), {"place": np.array(place, np.int64)}))


def _stacked(walk: Walk, call: Call, scope: Scope, column: Ids) -> int | None:
    names, rows = (tuple(f"{kind}{place}" for place in range(len(column))) for kind in ("x", "row"))
    calls = [Call("Unsqueeze", (name, "axes"), (row,)) for name, row in zip(names, rows, strict=True)]
    joined = Call("Concat", rows, ("y",), {"axis": 0})
    constants = {"axes": np.array([0], np.int64)}
    return part(walk, call, scope, column, Expansion(names, ("y",), (*calls, joined), constants))

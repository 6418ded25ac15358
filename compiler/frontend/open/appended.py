"""What a loop appends to, as a cache: where the value has room for it, it is written there, and nothing is copied."""

from __future__ import annotations

from collections.abc import Sequence

from compiler.frontend.open.extent import Number, Numbers, high, is_open
from compiler.frontend.open.site import iota
from compiler.frontend.open.values import OpenValues, Rows


def appended(values: OpenValues, ids: Sequence[int], begin: Number, shape: Numbers, axis: int) -> int | None:
    """Two values one after another along an axis, with `begin` elements in the first and this shape in all.

    None unless the first has room for the second (`OpenValues.roomy`). Raises Rows where a state has room for others.
    """
    if len(ids) != 2 or ids[0] not in values.roomy:
        return None
    (room, along), more = values.roomy[ids[0]], values.at_run_time(ids[1])
    dims, kind = values.graph.type(room).dims, values.graph.type(more)
    if room in values.growing and along == axis and dims[axis] != high(shape[axis]):
        raise Rows(kind.dims[axis])
    if along != axis or dims != tuple(map(high, shape)):
        return None
    steps = values.reshape(iota(values, kind.dims[axis]), tuple(-1 if at == axis else 1 for at in range(kind.rank)))
    places = values.node("Add", (steps, values.scalar(begin)))
    spread = values.node("Expand", (places, None), {"shape": kind.dims})
    found = values.node("ScatterElements", (room, spread, more), {"axis": axis, "reduction": "none"})
    if is_open(shape):
        values.shapes[found] = shape
    return found

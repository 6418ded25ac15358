"""NonMaxSuppression: the boxes that are chosen, as rows of batch, class and box, in a number that data decide."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from compiler.frontend.open.extent import Extent, high
from compiler.frontend.open.measured import positions_of
from compiler.frontend.open.site import OpenSite, fitted, same
from compiler.frontend.open.values import as_number
from compiler.frontend.open.views import Results
from compiler.ir.graph import Attr, Node
from compiler.ir.tensor import DType
from compiler.ops.boxes import SELECT, check_boxes
from compiler.ops.operator import Unsupported

LIMIT, OVERLAP, LEAST = 2, 3, 4
"""Inputs of one element."""


def non_max_suppression(site: OpenSite) -> Results:
    """The rows of all batches and classes one after another; of each at most as many as the limit says."""
    values = site.values
    (batches, spatial, _), (others, classes, places) = _shapes(site)
    batches, spatial = same(values, batches, others), same(values, spatial, places)
    shapes = ((batches, spatial, site.shape(0)[2]), (batches, classes, spatial))
    pair = (fitted(values, id, shape) for id, shape in zip((site.given(0), site.given(1)), shapes, strict=True))
    site = replace(site, ids=(*pair, *site.ids[2:]))
    check_boxes(site.kind(0), site.kind(1))
    _check_overlap(site)
    most = min(_limit(site), high(spatial))
    outer = (high(batches), high(classes))
    if not most * outer[0] * outer[1]:
        return [values.constant(np.zeros((0, 3), np.int64))]
    if (whole := _constant(site)) is not None:
        return [values.constant(whole)]
    limit = values.cast(_scalar(site, LIMIT, "max_output_boxes_per_class"), DType.I64)
    overlap = _scalar(site, OVERLAP, "iou_threshold")
    least = () if _is_absent(site, LEAST) else (_scalar(site, LEAST, "score_threshold"),)
    ids = (site.given(0), site.given(1), values.scalar(spatial), limit, overlap, *least)
    attrs: dict[str, Attr] = {"most": most, "center_point_box": site.integer("center_point_box", 0)}
    found, counts = values.node_of(SELECT, ids, attrs, 2)
    counts = values.settled(counts, (batches, classes))
    rows = values.node("Unsqueeze", (counts, None), {"axes": (2,)})
    flags = values.node("Less", (values.constant(np.arange(most, dtype=np.int64)), rows))
    line = (outer[0] * outer[1] * most,)
    kept, count = positions_of(values, values.reshape(flags, line))
    boxes = values.node("Gather", (values.reshape(found, line), kept), {"axis": 0})
    row = values.node("Div", (kept, values.scalar(most)))
    batch = values.node("Div", (row, values.scalar(outer[1])))
    turns = values.node("Mul", (batch, values.scalar(outer[1])))
    columns = [batch, values.node("Sub", (row, turns)), boxes]
    apart = [values.node("Unsqueeze", (column, None), {"axes": (1,)}) for column in columns]
    return [values.settled(values.node("Concat", apart, {"axis": 1}), (count, 3))]


def _shapes(site: OpenSite) -> list[tuple[int | Extent, ...]]:
    """Those of boxes and scores. Raises Unsupported where they have not three axes each."""
    shapes = [site.shape(0), site.shape(1)]
    if [len(shape) for shape in shapes] != [3, 3]:
        check_boxes(site.kind(0), site.kind(1))
    return shapes


def _is_absent(site: OpenSite, position: int) -> bool:
    return position >= len(site.ids) or site.ids[position] is None


def _limit(site: OpenSite) -> int:
    """The most boxes of a class that may be asked for; what only data say is as many as there are."""
    if _is_absent(site, LIMIT):
        return 0
    known = site.values.known(site.given(LIMIT))
    if known is None:
        return high(site.shape(0)[1])
    return max(high(as_number(known.reshape(-1)[0])), 0) if known.size == 1 else 0


def _check_overlap(site: OpenSite) -> None:
    """Raises Unsupported for a limit that ONNX does not permit, where it is known."""
    known = None if _is_absent(site, OVERLAP) else site.values.graph.constants.get(site.given(OVERLAP))
    if known is not None and known.size == 1 and not 0 <= float(known.reshape(())) <= 1:
        raise Unsupported(f"iou_threshold is {float(known.reshape(())):g}", "give one from 0 to 1")


def _scalar(site: OpenSite, position: int, name: str) -> int:
    """An input of one element as a scalar; absent it is 0. Raises Unsupported."""
    values = site.values
    if _is_absent(site, position):
        return values.constant(np.zeros((), np.float32))
    id = site.given(position)
    kind = values.graph.type(id)
    if kind.elements != 1:
        raise Unsupported(f"input {name!r} has {kind.elements} elements", "give a scalar")
    return id if kind.rank == 0 else values.reshape(id, ())


def _constant(site: OpenSite) -> np.ndarray | None:
    """The result where every input is a constant."""
    arrays = tuple(None if id is None else site.values.graph.constants.get(id) for id in site.ids)
    if any(array is None and id is not None for array, id in zip(arrays, site.ids, strict=True)):
        return None
    node = Node(site.op, (), (), dict(site.attrs))
    (found,) = site.values.operators[site.op].reference(node, arrays)
    return found

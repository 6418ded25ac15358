"""Choosing boxes: NonMaxSuppression, and the compiler's own form of it, whose results have a size that is known.

A box may be chosen where its score is greater than the threshold; NaN is greater than nothing, and without a threshold
every other score is. In falling order of scores, the lower index first among equals, a box is chosen unless its
intersection over union with one that is chosen already is greater than a limit. What overlaps is decided in float32
whatever a reference is given: at equality a wider type would choose otherwise, and not better. All sums and products
are rounded one by one, in the order that ONNX Runtime has.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from compiler.ir.graph import Node
from compiler.ir.kernel import Kernel, Routine
from compiler.ir.tensor import DType, TensorType
from compiler.ops.attributes import number_of
from compiler.ops.operator import NOT_IN_ONNX, Arrays, Operator, Types, Unsupported
from compiler.ops.slots import arrays_at, given, input_slots, optional, output_slots, present

SELECT = "SelectBoxes"
NO_THRESHOLD = 5
"""Inputs without the last one, the least score."""


def check_boxes(boxes: TensorType, scores: TensorType) -> None:
    """Raises Unsupported where boxes are no f32[batch, n, 4], or scores no f32[batch, classes, n]."""
    fits = boxes.rank == scores.rank == 3 and boxes.shape[0] == scores.shape[0] and boxes.shape[1] == scores.shape[2]
    if not fits or boxes.shape[2] != 4 or {boxes.dtype, scores.dtype} != {DType.F32}:
        raise Unsupported(
            f"boxes are {boxes} and scores {scores}", "give boxes float[b, n, 4] and scores float[b, classes, n]"
        )


def _infer_select(node: Node, types: Types) -> tuple[TensorType, ...]:
    boxes, scores = given(types, 0), given(types, 1)
    check_boxes(boxes, scores)
    scalars = [(2, DType.I64), (3, DType.I64), (4, DType.F32)]
    scalars += [(NO_THRESHOLD, DType.F32)] * present(types, NO_THRESHOLD)
    for position, dtype in scalars:
        if given(types, position) != TensorType(dtype, ()):
            raise Unsupported(f"its input {position} is {given(types, position)}", f"give a scalar {dtype}")
    outer = scores.shape[:2]
    return TensorType(DType.I64, (*outer, int(number_of(node, "most", 0)))), TensorType(DType.I64, outer)


def _define_select(node: Node, types: Types, outputs: tuple[TensorType, ...]) -> Routine:
    """Routine `select_boxes`: for each row of scores the places of the boxes chosen, zero behind them; their number."""
    params = {"centred": bool(node.attrs.get("center_point_box", 0)), "bounded": present(types, NO_THRESHOLD)}
    return Routine(SELECT, "select_boxes", input_slots(types), output_slots(outputs), params)


def _reference_select(node: Node, arrays: Arrays) -> tuple[np.ndarray, ...]:
    boxes, scores, size, limit, overlap = arrays_at(arrays, 0, 1, 2, 3, 4)
    least = optional(arrays, NO_THRESHOLD)
    most = int(number_of(node, "most", 0))
    real = max(int(size), 0)
    found = np.zeros((*scores.shape[:2], most), np.int64)
    counts = np.zeros(scores.shape[:2], np.int64)
    rows = _chosen(boxes[:, :real], scores[:, :, :real], min(int(limit), most), overlap, least, _is_centred(node))
    for place, chosen in rows:
        found[place][: len(chosen)] = chosen
        counts[place] = len(chosen)
    return found, counts


def _reference_suppression(node: Node, arrays: Arrays) -> tuple[np.ndarray, ...]:
    boxes, scores = arrays_at(arrays, 0, 1)
    limit, overlap, least = (optional(arrays, position) for position in (2, 3, 4))
    count = 0 if limit is None else int(limit.reshape(()))
    rows = _chosen(boxes, scores, count, np.zeros(()) if overlap is None else overlap, least, _is_centred(node))
    found = [(*place, box) for place, chosen in rows for box in chosen]
    return (np.array(found, np.int64).reshape(-1, 3),)


def _is_centred(node: Node) -> bool:
    return bool(node.attrs.get("center_point_box", 0))


def _chosen(
    boxes: np.ndarray, scores: np.ndarray, limit: int, overlap: np.ndarray, least: np.ndarray | None, centred: bool
) -> Iterator[tuple[tuple[int, ...], list[int]]]:
    """For each batch and class the places of the boxes chosen: the best that is left, then what it leaves."""
    narrow, most = scores.astype(np.float32), overlap.astype(np.float32).reshape(())
    edges = _edges(boxes.astype(np.float32), centred)
    for place in np.ndindex(*scores.shape[:2]):
        row = narrow[place]
        may = ~np.isnan(row) if least is None else row > least.astype(np.float32).reshape(())
        left = np.flatnonzero(may)
        left = left[np.argsort(-row[left], kind="stable")]
        chosen: list[int] = []
        while left.size and len(chosen) < limit:
            best, left = left[0], left[1:]
            chosen.append(int(best))
            left = left[~(_overlaps(edges[place[0]][:, left], edges[place[0]][:, best, None]) > most)]
        yield place, chosen


def _edges(boxes: np.ndarray, centred: bool) -> np.ndarray:
    """[batch, 4, n]: least and greatest x, least and greatest y."""
    one, two, three, four = np.moveaxis(boxes, -1, 0)
    if centred:
        across, down = three / 2, four / 2
        return np.stack([one - across, one + across, two - down, two + down], axis=1)
    return np.stack([*_ordered(two, four), *_ordered(one, three)], axis=1)


def _ordered(one: np.ndarray, other: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    is_greater = one >= other
    return np.where(is_greater, other, one), np.where(is_greater, one, other)


def _overlaps(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Intersection over union; 0 where there is no area."""
    with np.errstate(all="ignore"):
        first = [np.where(one[at] < other[at], other[at], one[at]) for at in (0, 2)]
        last = [np.where(other[at] < one[at], other[at], one[at]) for at in (1, 3)]
        apart = (last[0] <= first[0]) | (last[1] <= first[1])
        common = (last[0] - first[0]) * (last[1] - first[1])
        areas = [(box[1] - box[0]) * (box[3] - box[2]) for box in (one, other)]
        union = areas[0] + areas[1] - common
        apart |= (common <= 0) | (areas[0] <= 0) | (areas[1] <= 0) | (union <= 0)
        return np.asarray(np.where(apart, 0, common / union))


def _refuse(node: Node, types: Types) -> tuple[TensorType, ...]:
    raise Unsupported("the size of its output depends on data", "end the model before this node and run it on the host")


def _refuse_definition(node: Node, types: Types, outputs: tuple[TensorType, ...]) -> Kernel:
    raise Unsupported("the size of its output depends on data", "end the model before this node and run it on the host")


OPERATORS: tuple[Operator, ...] = (Operator("NonMaxSuppression", _refuse, _reference_suppression, _refuse_definition),)
OWN: tuple[Operator, ...] = (Operator(SELECT, _infer_select, _reference_select, _define_select, opsets=NOT_IN_ONNX),)
"""`SelectBoxes(boxes, scores, size, limit, overlap, [least])`: of the first `size` boxes at most `limit` for each row
of scores. Attributes `center_point_box`, as in NonMaxSuppression, and `most`, at how many results end."""

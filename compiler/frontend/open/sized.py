"""The operators of which data decide how large their results are, and what each becomes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from compiler.frontend.open.boxes import non_max_suppression
from compiler.frontend.open.measured import compress, non_zero
from compiler.frontend.open.site import OpenSite
from compiler.frontend.open.unique import unique
from compiler.frontend.open.values import OpenValues
from compiler.frontend.open.views import Results

MEASURED: Mapping[str, Callable[[OpenSite], Results]] = {
    "NonZero": non_zero,
    "Compress": compress,
    "NonMaxSuppression": non_max_suppression,
    "Unique": unique,
}
"""Operators whose results have as many elements as data say."""
DECIDING: Mapping[str, int] = {"NonZero": 0, "Compress": 1}
"""The input that decides it; of others every input does, and their rules take constants too."""


def is_sized_by_data(values: OpenValues, op: str, ids: Sequence[int | None]) -> bool:
    """Whether how large results are is left to run time: what decides it is no constant, or some axis is open."""
    if op not in MEASURED:
        return False
    place = DECIDING.get(op)
    if place is None or values.concerns(ids):
        return True
    id = ids[place] if place < len(ids) else None
    return id is not None and id not in values.graph.constants

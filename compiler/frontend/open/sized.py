"""The operators whose results are as large as data say, and what each becomes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from compiler.frontend.open import data_dependent
from compiler.frontend.open.boxes import non_max_suppression
from compiler.frontend.open.measured import compress, non_zero
from compiler.frontend.open.resized import resize
from compiler.frontend.open.site import OpenSite
from compiler.frontend.open.unique import unique
from compiler.frontend.open.values import OpenValues
from compiler.frontend.open.views import Results, Rule

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


HELD: Mapping[str, tuple[int, int]] = {
    "AffineGrid": (1, 1),
    "BlackmanWindow": (0, 0),
    "CenterCropPad": (1, 0),
    "HammingWindow": (0, 0),
    "HannWindow": (0, 0),
}
"""Operators that are expanded: the input that says a shape or a size to what they are made of, and how many of its
first sizes are those of the first input."""
DATA_DEPENDENT: Mapping[str, tuple[tuple[int, ...], Rule]] = {
    "Expand": ((1,), data_dependent.expand),
    "OneHot": ((1,), data_dependent.one_hot),
    "Pad": ((1, 3), data_dependent.pad),
    "Reshape": ((1,), data_dependent.reshape),
    "Resize": ((1, 2, 3), resize),
    "Slice": ((3, 4), data_dependent.slice_),
    "Split": ((1,), data_dependent.split),
    "Tile": ((1,), data_dependent.tile),
    "Trilu": ((1,), data_dependent.triangle),
}
"""By operator: the inputs that say sizes, places or counts, and what becomes of a call of which only data say them."""


def is_data_dependent(values: OpenValues, op: str, ids: Sequence[int | None]) -> bool:
    """Whether a size, place or count of a call is said by data alone, and there is a rule for that."""
    places, _ = DATA_DEPENDENT.get(op, ((), None))
    return any(id is not None and values.known(id) is None for id in (ids[at] for at in places if at < len(ids)))

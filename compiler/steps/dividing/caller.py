"""What the caller's thread takes of a core that is a device, for each inference: measured, recorded, foreseen.

It copies inputs, submits the inference and takes its result. Where the process has no more cores than devices it does
so on one of theirs.
"""

from __future__ import annotations

from collections.abc import Sequence

from compiler.ir.buffers import KernelGraph
from compiler.ir.machine import Record
from compiler.knowledge.kinds import CALLER_BYTES, CALLER_S

LONGEST_CALLER_S = 1.0
"""No record is believed that says that the caller's thread takes longer for one inference."""
USUAL_S, USUAL_BYTE_S = 1.5e-4, 1e-10
"""What it takes where no model's division has run yet: for an inference, and for each byte that is copied for it.

On virtual machines of two cores 0.6 MB took 104 to 300 us, as busy as they were."""


def caller_seconds(record: Record | None) -> float | None:
    """What the caller's thread took for an inference, as recorded; None where the record does not say."""
    said = record.variant.get(CALLER_S) if record else None
    return float(said) if isinstance(said, float | int) and 0 <= said <= LONGEST_CALLER_S else None


def usual_seconds(bytes: int) -> float:
    """What the caller's thread is taken to take for an inference that copies so many bytes, without any record."""
    return USUAL_S + bytes * USUAL_BYTE_S


def copied_bytes(kernels: KernelGraph) -> int:
    """Of the model's inputs, which the loader copies for each inference in flight."""
    return sum(kernels.buffers[id].span * kernels.buffers[id].dtype.bytes for id in kernels.inputs)


def foreseen(records: Sequence[Record], model: str, bytes: int) -> Record | None:
    """The record by which the caller's thread is foreseen for a model that copies so many bytes, None without any.

    Of other models' on this hardware the last of one that copied most nearly as many: what this one took counts for
    what is planned after it has run.
    """
    off: list[tuple[int, int, Record]] = []
    for at, one in enumerate(records):
        size = one.variant.get(CALLER_BYTES)
        if one.workload != model and caller_seconds(one) is not None and isinstance(size, int):
            off.append((abs(size - bytes), -at, one))
    return min(off, key=lambda one: one[:2])[2] if off else None

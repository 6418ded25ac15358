"""Measure kernels of another worker's compilation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from compiler.contract import CompileOptions
from compiler.steps.tiling.another import tune_kernels
from worker.attempt.helper_requests import More

if TYPE_CHECKING:
    from worker.attempt.child import Outbox, Spec


def work(spec: Spec, outbox: Outbox) -> dict[str, Any]:
    """The report."""
    assert spec.answers is not None
    post = More(outbox.send, spec.answers)
    measured = tune_kernels(
        spec.kernels["tasks"],
        spec.kernels["terms"],
        CompileOptions.from_json(spec.options),
        spec.records,
        outbox.event,
        spec.stop_requested,
        lambda seconds, measured: post.next(seconds, measured, spec.stop_requested),
    )
    return {"measured": measured}

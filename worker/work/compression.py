"""Give the weights of a model a form that saves time or memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from compiler.compress import compress
from compiler.contract import CompressOptions
from worker.work import not_measured

if TYPE_CHECKING:
    from worker.attempt.child import Outbox, Spec


def work(spec: Spec, outbox: Outbox) -> dict[str, Any]:
    """The report."""
    (_, model), *data = spec.inputs
    report = compress(
        model,
        spec.output,
        CompressOptions.from_json(spec.options),
        dict(spec.samples),
        outbox.event,
        dict(data),
        records=spec.records,
        stop_requested=spec.stop_requested,
        measure=spec.measures,
    ).to_json()
    if not spec.measures:
        not_measured(report, outbox, "write")
    return report

"""Give the weights of a model a form that saves time or memory."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from compiler.compress import compress
from compiler.contract import CompressOptions, Event
from worker.work import NOT_MEASURED

if TYPE_CHECKING:
    from worker.attempt.child import Outbox, Spec


def work(spec: Spec, outbox: Outbox) -> dict[str, Any]:
    """The report."""
    (_, model), *data = spec.inputs
    finish = str(spec.finish)
    report = compress(
        model,
        spec.output,
        CompressOptions.from_json(spec.options),
        dict(spec.samples),
        outbox.event,
        dict(data),
        records=spec.records,
        stop_requested=lambda: os.path.exists(finish),
        measure=spec.measures,
    ).to_json()
    if not spec.measures:
        report["notices"] = [*report["notices"], NOT_MEASURED]
        outbox.event(Event("notice", "write", 1.0, NOT_MEASURED))
    return report

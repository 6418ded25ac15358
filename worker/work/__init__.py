"""What the process that does a job does, a module for each kind; they are named in `compiler.contract.job_kinds`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from compiler.contract import Event

if TYPE_CHECKING:
    from worker.attempt.child import Outbox

NOT_MEASURED = (
    "built by a worker that does not measure: tiles were chosen by the cost model and by earlier measurements"
)


def not_measured(report: dict[str, Any], outbox: Outbox, phase: str) -> None:
    """Adds the notice to a report, and sends it."""
    report["notices"] = [*report["notices"], NOT_MEASURED]
    outbox.event(Event("notice", phase, 1.0, NOT_MEASURED))

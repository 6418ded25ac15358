"""Compile a model."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from compiler.contract import CompileOptions, CompileReport, Event, kinds
from compiler.pipeline import compile_model
from compiler.request import Host, Request
from worker.attempt.helper_requests import Mailbox
from worker.work import NOT_MEASURED

if TYPE_CHECKING:
    from worker.attempt.child import Outbox, Spec


def work(spec: Spec, outbox: Outbox) -> dict[str, Any]:
    """The report."""
    options = CompileOptions.from_json(spec.options)
    (_, model), *data = spec.inputs
    finish = str(spec.finish)

    def first(made: Path, come: CompileReport) -> None:
        os.replace(made, spec.first)
        outbox.send({"kind": "first", "report": come.to_json()})

    host = Host(
        spec.records,
        outbox.event,
        stop_requested=lambda: os.path.exists(finish),
        measure=spec.measures,
        memory_bytes=spec.limits.memory_bytes,
        helpers=Mailbox(outbox.send, spec.answers) if spec.answers else None,
        first=first,
    )
    request = Request(model, spec.output, options, dict(data), dict(spec.samples))
    report = compile_model(request, host).to_json()
    if not spec.measures and not kinds.of(options.compiled_for).whole:
        report["notices"] = [*report["notices"], NOT_MEASURED]
        outbox.event(Event("notice", "agree", 1.0, NOT_MEASURED))
    return report

"""Compile a model."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from compiler.contract import CompileOptions, CompileReport, Event, kinds
from compiler.pipeline import compile_model
from worker.mailbox import Mailbox
from worker.work import NOT_MEASURED

if TYPE_CHECKING:
    from worker.child import Outbox, Spec


def work(spec: Spec, outbox: Outbox) -> dict[str, Any]:
    """The report."""
    options = CompileOptions.from_json(spec.options)
    (_, model), *data = spec.inputs
    finish = str(spec.finish)

    def first(made: Path, come: CompileReport) -> None:
        os.replace(made, spec.first)
        outbox.send({"kind": "first", "report": come.to_json()})

    report = compile_model(
        model,
        spec.output,
        options,
        records=spec.records,
        observe=outbox.event,
        stop_requested=lambda: os.path.exists(finish),
        measure=spec.measures,
        data=dict(data),
        memory_bytes=spec.limits.memory_bytes,
        samples=dict(spec.samples),
        helpers=Mailbox(outbox.send, spec.answers) if spec.answers else None,
        first=first,
    ).to_json()
    if not spec.measures and not kinds.of(options.compiled_for).whole:
        report["notices"] = [*report["notices"], NOT_MEASURED]
        outbox.event(Event("notice", "agree", 1.0, NOT_MEASURED))
    return report

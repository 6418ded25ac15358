"""Compile a model."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from compiler.contract import CompileOptions, CompileReport, kinds
from compiler.pipeline import compile_model
from compiler.request import Host, Request
from worker.attempt.helper_requests import Mailbox
from worker.race.after import raced
from worker.work import not_measured

if TYPE_CHECKING:
    from worker.attempt.child import Outbox, Spec


def work(spec: Spec, outbox: Outbox) -> dict[str, Any]:
    """The report."""
    began = time.monotonic()
    options = CompileOptions.from_json(spec.options)
    (_, model), *data = spec.inputs

    def first(made: Path, come: CompileReport) -> None:
        os.replace(made, spec.first)
        outbox.send({"kind": "first", "report": come.to_json()})

    host = Host(
        spec.records,
        outbox.event,
        stop_requested=spec.stop_requested,
        measure=spec.measures,
        memory_bytes=spec.limits.memory_bytes,
        helpers=Mailbox(outbox.send, spec.answers) if spec.answers else None,
        first=first,
    )
    request = Request(model, spec.output, options, dict(data), dict(spec.samples))
    made = compile_model(request, host)
    report = replace(made, compared=raced(spec, options, made, began)).to_json()
    if not spec.measures and not kinds.of(options.compiled_for).whole:
        not_measured(report, outbox, "agree")
    return report

"""Measure kernels of another worker's compilation."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from compiler.contract import CompileOptions
from compiler.steps.another import tune_kernels
from worker.attempt.helper_requests import More

if TYPE_CHECKING:
    from worker.attempt.child import Outbox, Spec


def work(spec: Spec, outbox: Outbox) -> dict[str, Any]:
    """The report."""
    finish, answers = str(spec.finish), spec.answers
    assert answers is not None

    def stop() -> bool:
        return os.path.exists(finish)

    post = More(outbox.send, answers)
    measured = tune_kernels(
        spec.kernels["tasks"],
        spec.kernels["terms"],
        CompileOptions.from_json(spec.options),
        spec.records,
        outbox.event,
        stop,
        lambda seconds, measured: post.next(seconds, measured, stop),
    )
    return {"measured": measured}

"""Bring a model to an accelerator with few operators."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from compiler.contract import LegaliseOptions
from compiler.legalise import legalise

if TYPE_CHECKING:
    from worker.attempt.child import Outbox, Spec


def work(spec: Spec, outbox: Outbox) -> dict[str, Any]:
    """The report."""
    (_, model), *data = spec.inputs
    options = LegaliseOptions.from_json(spec.options)
    return legalise(model, spec.output, options, dict(spec.samples), outbox.event, dict(data))

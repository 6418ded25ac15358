"""Make a model in 8-bit integers of one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from compiler.contract import QuantizeOptions
from compiler.quantize import quantize

if TYPE_CHECKING:
    from worker.attempt.child import Outbox, Spec


def work(spec: Spec, outbox: Outbox) -> dict[str, Any]:
    """The report."""
    (_, model), *data = spec.inputs
    options = QuantizeOptions.from_json(spec.options)
    return quantize(model, spec.output, options, dict(spec.samples), outbox.event, dict(data)).to_json()

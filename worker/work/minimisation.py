"""Find the smallest part of a model that fails as the whole does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from compiler.contract import CompileOptions
from compiler.minimise import minimise

if TYPE_CHECKING:
    from worker.attempt.child import Outbox, Spec


def work(spec: Spec, outbox: Outbox) -> dict[str, Any]:
    """The report."""
    (_, model), *data = spec.inputs
    return minimise(
        model,
        spec.output,
        CompileOptions.from_json(spec.options["compile"]),
        spec.options["seconds"],
        dict(data),
        dict(spec.samples),
        observe=outbox.event,
        scratch=spec.scratch,
        stop_requested=spec.stop_requested,
    ).to_json()

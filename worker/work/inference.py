"""Run an artifact once, have it generate, or have it give an output in pieces."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from compiler.contract import Event
from compiler.runner import infer
from worker.work.generation import generate
from worker.work.pieces import tell_pieces

if TYPE_CHECKING:
    from worker.attempt.child import Outbox, Spec


def work(spec: Spec, outbox: Outbox) -> dict[str, Any]:
    """The report."""
    outbox.event(Event("phase", "run", 0.0))
    if "generate" in spec.options:
        return generate(spec, outbox)
    if spec.options.get("pieces"):
        return tell_pieces(spec, outbox)
    (_, artifact), (_, arrays) = spec.inputs
    return infer(artifact, arrays, spec.output, spec.options.get("threads"), spec.options.get("seed"))

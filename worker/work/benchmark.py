"""Time artifacts against each other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from compiler.contract import BenchmarkOptions
from compiler.runner import benchmark

if TYPE_CHECKING:
    from worker.attempt.child import Outbox, Spec


def work(spec: Spec, outbox: Outbox) -> dict[str, Any]:
    """The report."""
    return benchmark(spec.inputs, BenchmarkOptions.from_json(spec.options), outbox.event, dict(spec.samples))

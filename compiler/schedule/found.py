"""What a scheduler gives: a plan, and how long it took to find."""

from __future__ import annotations

from dataclasses import dataclass

from compiler.ir.plan import Plan


@dataclass(frozen=True)
class Found:
    """A plan, and the wall seconds until it was there; of several schedulers each is told the time of all of them."""

    plan: Plan
    seconds: float

"""What a scheduler gives: a plan, and how long it took to find."""

from __future__ import annotations

from dataclasses import dataclass

from compiler.ir.plans.plan import Plan


@dataclass(frozen=True)
class Found:
    """A plan, and the wall seconds until it was there.

    `spans` are begin and end of each of its tasks as the prediction has them, in seconds; empty where a scheduler does
    not say. One that is `trusted` is taken in place of the first where neither it was run nor a record says how long it
    takes. `between_s` is between what the model of costs thinks that the truth lies; None where it does not say.
    """

    plan: Plan
    seconds: float
    trusted: bool = False
    spans: tuple[tuple[float, float], ...] = ()
    between_s: tuple[float, float] | None = None

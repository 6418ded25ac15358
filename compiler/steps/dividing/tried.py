"""Divisions that were tried: what each reached, as recorded, and which of them is taken."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from compiler.contract import PointReport
from compiler.contract.devices import Within
from compiler.encodings.aside import Octets
from compiler.ir.machine import Record
from compiler.knowledge.kinds import CLEAR_LATENCY_S, CLEAR_S, PARTS_ALONE_S, PARTS_S
from compiler.pack.divided import Divided
from compiler.schedule.parts.corrections import Ran
from compiler.steps.dividing.caller import caller_seconds
from compiler.steps.dividing.proof import Came

QUIET = 0.9
"""Where less of a period than this is the devices' own, others disturbed it."""


@dataclass(frozen=True)
class Tried:
    """A division that was emitted and proved; `record` says what was measured of it, None where nothing may be.

    `wins` says that one inference through it is certainly faster than by the program of one device.
    """

    found: Divided
    weights: Octets
    came: Came
    record: Record | None
    wins: bool = False

    @property
    def ratio(self) -> float:
        """Of one inference through it to one by the program of one device, as recorded."""
        said = self.record.variant.get("ratio") if self.record else None
        return said if isinstance(said, float) else 1.0

    @property
    def latency_s(self) -> float:
        """Of one inference by itself through the parts: as recorded, else as predicted."""
        said = self.record.variant.get("latency_s") if self.record else None
        return said if isinstance(said, float) else self.found.parts.predicted_s

    @property
    def ran(self) -> Ran | None:
        """What the parts took beside each other, as recorded; None where nothing was measured."""
        if (seconds := self._of_parts(PARTS_S)) is None:
            return None
        return Ran(self.found.parts, seconds, caller_seconds(self.record), self._of_parts(PARTS_ALONE_S) or ())

    def _of_parts(self, name: str) -> list[float] | None:
        """Seconds of each part that the record tells; None where it does not."""
        seconds = self.record.variant.get(name) if self.record else None
        if not isinstance(seconds, list) or len(seconds) != len(self.found.parts.parts):
            return None
        return seconds if all(isinstance(one, float) for one in seconds) else None

    @property
    def busiest_s(self) -> float:
        """Of the device with most to do, for a frame, or of states: as recorded, but for states, else as predicted."""
        parts = self.found.parts
        return max(self.ran.busiest_s, parts.carried_s) if self.ran else parts.period_s

    @property
    def period_s(self) -> float:
        """From one end of an inference to the next with many in flight: as recorded, else as predicted."""
        return self.record.seconds if self.record else self.found.parts.period_s

    @property
    def judged_s(self) -> float:
        """As `period_s`, where it was measured without the time that others took of the devices' cores meanwhile."""
        return self._clear(CLEAR_S, self.period_s)

    @property
    def judged_latency_s(self) -> float:
        """As `latency_s`, likewise."""
        return self._clear(CLEAR_LATENCY_S, self.latency_s)

    def _clear(self, name: str, clock_s: float) -> float:
        """A figure of the record, which can only be less than what the clock said."""
        said = self.record.variant.get(name) if self.record else None
        return min(said, clock_s) if isinstance(said, float) and said > 0 else clock_s

    def point(self, *, is_picked: bool) -> PointReport:
        """As the report tells it."""
        parts, measured = self.found.parts, self.record is not None
        kernels = tuple(len(part.calls) for part in parts.parts)
        return PointReport(
            parts.scheduler,
            kernels,
            parts.period_s,
            parts.predicted_s,
            self.period_s if measured else None,
            self.latency_s if measured else None,
            is_picked,
        )


def picked_of(tried: Sequence[Tried], objective: str | Within) -> tuple[Tried, str]:
    """The greatest throughput, of those within a bound of latency; if none is, the least latency and a notice.

    Where nothing was measured they are judged as predicted. Candidates run one after another, and a neighbour that
    comes for a second meets one of them: what it took of their cores does not count. `tried` is not empty.
    """
    bound_ms = objective.latency_ms if isinstance(objective, Within) else inf
    within = [one for one in tried if one.judged_latency_s <= bound_ms / 1e3]
    if within:
        return min(within, key=lambda one: one.judged_s), disturbed(tried)
    fastest = min(tried, key=lambda one: one.judged_latency_s)
    how = "measured" if fastest.record else "predicted"
    return fastest, (
        f"no division ends an inference within {bound_ms:g} ms: the fastest of {len(tried)} takes "
        f"{1e3 * fastest.judged_latency_s:.3g} ms ({how}) and is taken"
    )


def disturbed(tried: Sequence[Tried]) -> str:
    """A notice where others held the devices' cores while candidates were measured; empty where they hardly did."""
    least = min(tried, key=lambda one: one.judged_s / one.period_s)
    if least.judged_s > QUIET * least.period_s:
        return ""
    return (
        "other threads held the devices' cores while divisions were measured, and what they took does not count: "
        f"{1e3 * least.period_s:.3g} ms by the clock were {1e3 * least.judged_s:.3g} ms ({least.found.parts.scheduler})"
    )


def is_faster(record: Record | None) -> bool:
    """Whether a record says that one inference through the parts is certainly faster than on one device."""
    high = record.variant.get("high") if record else None
    return isinstance(high, float) and 0 < high < 1

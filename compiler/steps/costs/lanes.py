"""What the lanes of a plan cost each other, from records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from compiler.ir.machine import Record
from compiler.ir.plans.lanes import Handover, LaneCosts
from compiler.ir.target import Target
from compiler.knowledge.kinds import BYTE_S, UPGRADE_S
from compiler.knowledge.known import known_handovers
from compiler.knowledge.making import handover_record
from compiler.session import Session

LONGEST_BYTE_S = 1e-6
"""No record is believed that says a byte takes longer: memory itself is a thousand times as fast."""
WAKE_SECONDS = 1e-6
"""From a lane's seeing that it may run to its running."""
USUAL = {"near": Handover.of(50.0, 5e-12, 2e-11), "far": Handover.of(300.0, 3e-11, 1.7e-10)}
"""As it was measured on virtual machines of two cores, for hardware of which one state was never seen."""


def lane_costs(handover: Record | None) -> LaneCosts:
    """What a schedule has to know of lanes, for cores in the state that the hand-over is of; None: not known."""
    return LaneCosts(synchronisation_seconds(handover), byte_seconds(handover), upgrade_seconds(handover))


def synchronisation_seconds(handover: Record | None) -> float:
    """Seconds that splitting one kernel over lanes costs beside its work.

    These are a hand-over there and one back, and waking up to the task.
    """
    return 2 * handover.seconds + WAKE_SECONDS if handover else 4 * WAKE_SECONDS


def split_seconds(session: Session) -> float:
    """Seconds that splitting one kernel over the lanes of a job costs beside its work, with the cores as they are.

    0 for one lane.
    """
    return synchronisation_seconds(session.handover) if session.lanes > 1 else 0.0


def byte_seconds(handover: Record | None) -> float:
    """How much longer a byte takes to be read that another lane wrote; 0 where the record does not say."""
    return _detail(handover, BYTE_S) or 0.0


def upgrade_seconds(handover: Record | None) -> float:
    """How many seconds longer a byte takes to be written that another lane has read since the writer wrote it.

    0 where the record does not say.
    """
    return _detail(handover, UPGRADE_S) or 0.0


def _detail(handover: Record | None, what: str) -> float | None:
    """A figure of the record's variant, None where it says nothing that can be true."""
    known = handover.variant.get(what) if handover else None
    is_known = isinstance(known, float | int) and not isinstance(known, bool) and 0 <= known <= LONGEST_BYTE_S
    return float(known) if is_known and known is not None else None


def handovers(records: Sequence[Record], target: Target) -> Mapping[str, Record]:
    """By state of the cores, `near` or `far`, the last record of this hardware of what a hand-over costs in it.

    Those of single pairs of cores are not among them.
    """
    return {state_of(record): record for record in known_handovers(records, target)}


def elsewhere(handover: Record | None, records: Sequence[Record], target: Target) -> Record | None:
    """What a hand-over costs in the state that the cores are not in, by the records or as it usually is.

    None where their own state is unknown.
    A record that does not tell of UPGRADE_S is completed by what that usually is.
    """
    if handover is None:
        return None
    other = USUAL["far" if state_of(handover) == "near" else "near"]
    known = handovers(records, target).get(other.state)
    if known is None:
        return handover_record(other, target)
    if _detail(known, UPGRADE_S) is None:
        return replace(known, variant={**known.variant, UPGRADE_S: other.upgrade_s})
    return known


def state_of(handover: Record | None) -> str:
    """Of the cores, by what a hand-over between them costs."""
    return Handover.of(1e9 * handover.seconds).state if handover else ""

"""What the lanes of a plan cost each other, from records; and the measurements that make those."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from compiler.devices.cpu.device import handover_record
from compiler.devices.cpu.measure.beside import RUNS, beside_of, measure_beside
from compiler.devices.cpu.measure.handover import Handover
from compiler.devices.cpu.measure.machine import CpuMachine
from compiler.devices.cpu.target import CpuTarget
from compiler.ir.lanes import LaneCosts
from compiler.ir.machine import Machine, Record, Setting, Trial, Workload
from compiler.ir.target import Target
from compiler.ir.tile import Menu
from compiler.knowledge.budget import TuningBudget
from compiler.knowledge.kinds import BYTE_S, HANDOVER, PAIR, STATE, UPGRADE_S
from compiler.knowledge.making import Searched, search_marker
from compiler.knowledge.records import Records
from compiler.session import Session
from compiler.steps.plans import state_of
from compiler.tuning.shared import WORTH_S

LONGEST_BYTE_S = 1e-6
"""No record is believed that says a byte takes longer: memory itself is a thousand times as fast."""
WAKE_SECONDS = 1e-6
"""From a lane's seeing that it may run to its running."""
USUAL = {"near": Handover.of(50.0, 5e-12, 2e-11), "far": Handover.of(300.0, 3e-11, 1.7e-10)}
"""As it was measured on virtual machines of two cores, for hardware of which one state was never seen."""
DIGITS = 24
"""Hexadecimal, of a digest."""


def lane_costs(
    handover: Record | None, records: Sequence[Record], target: Target, setting: Setting, workloads: Sequence[str]
) -> LaneCosts:
    """What a schedule of these workloads (keys) has to know, for cores in the state that the hand-over is of; None: nobody knows."""
    found = beside_of(records, target, setting, state_of(handover))
    beside = {key: found[key] for key in dict.fromkeys(workloads) if key in found}
    return LaneCosts(meeting_seconds(handover), byte_seconds(handover), upgrade_seconds(handover), beside)


def meeting_seconds(handover: Record | None) -> float:
    """What splitting one kernel over lanes costs beside its work: a hand-over there and one back, and waking up to the task."""
    return 2 * handover.seconds + WAKE_SECONDS if handover else 4 * WAKE_SECONDS


def split_seconds(session: Session) -> float:
    """What splitting one kernel over the lanes of a job costs beside its work, with the cores as they are; 0 for one lane."""
    return meeting_seconds(session.handover) if session.lanes > 1 else 0.0


def byte_seconds(handover: Record | None) -> float:
    """How much longer a byte takes to be read that another lane wrote; 0 where the record does not say."""
    return _told(handover, BYTE_S) or 0.0


def upgrade_seconds(handover: Record | None) -> float:
    """How much longer a byte takes to be written that another lane has read since the writer wrote it; 0 where the record does not say."""
    return _told(handover, UPGRADE_S) or 0.0


def _told(handover: Record | None, what: str) -> float | None:
    """A figure of the record's variant, None where it says nothing that can be true."""
    known = handover.variant.get(what) if handover else None
    is_known = isinstance(known, float | int) and not isinstance(known, bool) and 0 <= known <= LONGEST_BYTE_S
    return float(known) if is_known and known is not None else None


def handovers(records: Sequence[Record], target: Target) -> Mapping[str, Record]:
    """By state of the cores, `near` or `far`, the last record of this hardware that says what a hand-over costs in it."""
    return {state_of(record): record for record in Records.of(records).find(HANDOVER, target)}


def elsewhere(handover: Record | None, records: Sequence[Record], target: Target) -> Record | None:
    """What a hand-over costs in the state that the cores are not in, by the records or as it usually is; None where their own state is not known.

    A record that does not tell of UPGRADE_S is completed by what that usually is.
    """
    if handover is None or not isinstance(target, CpuTarget):
        return None
    other = USUAL["far" if state_of(handover) == "near" else "near"]
    known = handovers(records, target).get(other.state)
    if known is None:
        return handover_record(other, target)
    if _told(known, UPGRADE_S) is None:
        return replace(known, variant={**known.variant, UPGRADE_S: other.upgrade_s})
    return known


def measured_beside(
    machine: Machine | None,
    menus: Sequence[Menu],
    workloads: Sequence[Workload],
    known: Sequence[Record],
    state: str,
    budget: TuningBudget,
) -> list[Record]:
    """New records of the calls' kernels, each by its best tile on one lane, beside a load; `menus` and `workloads` are in call order.

    The kernels that take most of the model come first, until their share of the budget is spent or somebody is in a hurry; one that takes so long that
    measuring it would spend all of that is left out. What `known` has
    records of in this state is not measured, nor is anything where the same kernels were with as large a budget; the last record says that they were.
    None where there is no machine, a machine of one lane, or one that is no CPU.
    """
    if not isinstance(machine, CpuMachine) or machine.lanes < 2 or budget.seconds <= 0:
        return []
    uses = Counter(menu.workload for menu in menus)
    trials = {
        menu.workload: (Trial(workload, menu.workload, menu.best.tile, 1), menu.best.cost.seconds)
        for menu, workload in zip(menus, workloads, strict=True)
        if menu.best.cost.source != "model" and menu.best.cost.seconds > WORTH_S
    }
    marker = _marker(machine, {key: trial for key, (trial, _) in trials.items()}, state, budget)
    here = Records.of(known).find(PAIR, machine.target, setting=machine.setting, state=state)
    done = {record.workload for record in here}
    share = budget.share("beside")
    wanted = [key for key in trials if key not in done and RUNS * trials[key][1] <= share.seconds]
    was_done = Records(here).was_searched(PAIR, marker.workload, machine.target, machine.setting, budget.seconds)
    if not wanted or was_done:
        return []
    wanted.sort(key=lambda key: (-uses[key] * trials[key][1], key))
    with share.spending():
        end = machine.clock() + share.left()
        found = [one for one in measure_beside(machine, [trials[key][0] for key in wanted], end) if one.is_plausible]
    moved = any(record.variant[STATE] != state for record in found)
    return found if moved or machine.hurry() else [*found, marker]


def _marker(machine: CpuMachine, trials: Mapping[str, Trial], state: str, budget: TuningBudget) -> Record:
    """Says with which budget these kernels were measured beside a load, in which state of the cores."""
    space = sorted((key, str(trial.tile)) for key, trial in trials.items())
    return search_marker(
        hashlib.sha256(repr((space, state)).encode()).hexdigest()[:DIGITS],
        f"{len(trials)} kernels beside a load; the seconds that there were for it",
        machine.target,
        machine.setting,
        Searched(budget.seconds, state=state),
        budget.granted("beside"),
        len(trials),
        kind=PAIR,
        lanes=2,
    )

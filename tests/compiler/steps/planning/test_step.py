from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from compiler.codegen.build import find_toolchain
from compiler.codegen.calls import workload_of
from compiler.contract import CompileOptions
from compiler.devices.cpu.device import CpuBackend
from compiler.devices.cpu.emit.lower import count_tiles
from compiler.devices.cpu.measure.stages import CpuStageClock
from compiler.devices.cpu.target import this_machine
from compiler.devices.kinds import propose
from compiler.fuse import fuse
from compiler.ir.machine import Record, Setting
from compiler.ir.plans.lanes import Handover
from compiler.ir.plans.plan import Plan
from compiler.ir.tile import Cost, Menu, Variant
from compiler.knowledge.kinds import STAGE
from compiler.knowledge.making import handover_record
from compiler.knowledge.records import Records
from compiler.measure.compare import Comparison
from compiler.measure.plans import Raced
from compiler.measure.spread import Spread
from compiler.schedule.gpu.resident import ResidentBlocks
from compiler.session import Session
from compiler.steps.planning import choice as choosing
from compiler.steps.planning.guards import NEAR_S
from compiler.steps.planning.step import Planned, Scheduled, planned, why_not_persistent
from compiler.tuning.tune import workload_key
from tests.compiler.networks import Network, graph_of

TARGET = replace(this_machine(), lanes=2)
SETTING = Setting("cache", "gcc 12")
NEAR, FAR = (handover_record(one, TARGET) for one in (Handover.of(50.0, 5e-12), Handover.of(300.0, 3e-11)))
OPTIONS = CompileOptions(threads=2, tuning_budget_s=60)


def branches() -> Scheduled:
    """Four convolutions of one input, each followed by another, added up."""
    net = Network()
    x = net.input(1, 16, 12, 12)
    ends = []
    for kernel in (1, 3, 1, 3):
        first = net.node("Conv", [x, net.weight(16, 16, kernel, kernel)], (1, 16, 12, 12), pads=[kernel // 2] * 4)
        ends.append(net.node("Conv", [first, net.weight(16, 16, 3, 3)], (1, 16, 12, 12), pads=[1] * 4))
    total = ends[0]
    for end in ends[1:]:
        total = net.node("Add", [total, end], (1, 16, 12, 12))
    kernels = fuse(graph_of(net.model([total]))).kernels
    workloads = [workload_of(kernels, call) for call in kernels.calls]
    menus = []
    for at, workload in enumerate(workloads):
        tiles = [one.tile for one in propose(workload, TARGET, 2)[:2]]
        costs = (Cost(1e-3 * (1 + at % 3 + number), "record") for number in range(len(tiles)))
        variants = (
            Variant(one, count_tiles(workload, one, TARGET), 1, cost) for one, cost in zip(tiles, costs, strict=True)
        )
        menus.append(Menu(workload_key(workload), tuple(variants)))
    return Scheduled(kernels, workloads, menus, 2, CpuBackend(TARGET, find_toolchain()), SETTING, NEAR)


HERE = branches()


def raced(plans: Sequence[Plan], winner: str) -> list[Raced]:
    """Half the time for plans of one scheduler."""
    ratios = [0.5 if plan.scheduler == winner else 1.0 for plan in plans]
    return [Raced(Spread.of([one * 1e-3] * 5), Comparison(one, one, one)) for one in ratios]


def run(scheduled: Scheduled, known: list[Record], winner: str = "") -> Planned:
    """Plans; where there is a `winner`, it is found in a race, whose records become known."""
    race = (lambda plans: raced(plans, winner)) if winner else None
    session = replace(Session.of(OPTIONS), records=Records(known))
    made = planned(scheduled, session, None, race)
    known[:] = session.records
    return made


def stage_records(scheduled: Scheduled, monkeypatch: pytest.MonkeyPatch) -> list[Record]:
    """A record of every stage that is asked for until no other is.

    Of one lane each takes ten times what it is predicted to.
    """
    known: list[Record] = []
    asked: dict[str, int] = {}
    answer = CpuStageClock.seconds

    def asking(self: CpuStageClock, tiles: object, tasks: Sequence[object]) -> float | None:
        asked[self._name(tiles, tasks)] = len({task.lane for task in tasks})  # type: ignore[arg-type,attr-defined]
        return answer(self, tiles, tasks)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(CpuStageClock, "seconds", asking)
        while True:
            run(scheduled, [scheduled.handover, *known])  # type: ignore[list-item]
            fresh = asked.keys() - {one.workload for one in known}
            if not fresh:
                return known
            for name in sorted(fresh):
                variant = {"state": scheduled.state, **SETTING.to_json()}
                seconds = 1e-3 if asked[name] == 1 else 1e-1
                reported = (
                    name,
                    STAGE.name,
                    "",
                    TARGET.name,
                    TARGET.hardware,
                    variant,
                    2,
                    seconds,
                    seconds,
                    seconds,
                    9,
                )
                known.append(Record(STAGE.name, *reported))


def test_what_won_on_far_cores_is_found_again_on_near_ones_also_if_stages_were_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(choosing, "HOPE", 1e9)
    monkeypatch.setattr(choosing, "MOST_OTHERS", 99)
    there = replace(HERE, handover=FAR)
    known = [FAR, NEAR, *stage_records(there, monkeypatch)]
    won = run(there, known, "stages").plan
    assert won.scheduler == "stages"
    here = run(HERE, known)
    assert here.plan.most_handover_s == NEAR_S
    (other,) = here.others
    assert (other.tasks, other.tiles) == (won.tasks, won.tiles)
    kinds = {(one.kind, one.variant.get("state")) for one in here.records}
    assert kinds >= {("handover", "far"), ("stage", "far"), ("plan", "far")}
    assert run(HERE, [*here.records, NEAR]).others == (other,)


def test_a_second_plan_that_stores_much_of_the_weights_twice_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choosing, "HOPE", 1e9)
    monkeypatch.setattr(choosing, "MOST_OTHERS", 99)
    known = [FAR, NEAR]
    assert run(replace(HERE, handover=FAR), known, "early_start").plan.scheduler == "early_start"
    assert run(HERE, known).others
    weights = sum(array.nbytes for array in HERE.kernels.constants.values())
    for part, others in ((0.02, 1), (0.04, 0)):
        monkeypatch.setattr("compiler.devices.cpu.device.repacked_bytes", lambda *_, part=part: int(part * weights))
        assert len(run(HERE, known).others) == others


def test_the_record_of_a_handover_in_the_other_state_is_told_as_it_is() -> None:
    """Also where what it lacks is completed: another compilation has to find it as this one did."""
    earlier = replace(FAR, variant={"state": "far", "byte_s": 3e-11})
    for known in (FAR, earlier):
        assert [one for one in run(HERE, [NEAR, known]).records if one.kind == "handover"] == [known]


def test_cores_whose_state_is_not_known_have_one_plan() -> None:
    assert run(replace(HERE, handover=None), []).others == ()


def test_who_asks_for_blocks_that_stay_in_vain_is_told_why() -> None:
    scheduled = branches()
    families = dict.fromkeys(call.kernel.family for call in scheduled.kernels.calls)
    convolutions = [name for name in families if "Conv" in name]

    def accepts(call: int, variant: Variant) -> bool:
        return scheduled.kernels.calls[call].kernel.family not in convolutions

    assert convolutions
    said = "calls are launched one after another"
    refusing = why_not_persistent(scheduled, ResidentBlocks(accepts, lambda calls: None))
    assert refusing == f"a persistent kernel cannot carry out {', '.join(convolutions)}: {said}"
    longer = why_not_persistent(scheduled, ResidentBlocks(lambda *_: True, lambda calls: None))
    assert longer == f"a persistent kernel would take longer by the model: {said}"

from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from compiler.codegen import build
from compiler.codegen.build import environment_compiler, find_toolchain
from compiler.codegen.calls import workload_of
from compiler.devices.cpu import device as cpu
from compiler.devices.cpu.codegen.lowered import Lowered
from compiler.devices.cpu.device import CpuBackend, LibraryStepper, build_trials
from compiler.devices.cpu.emit.lower import count_tiles, lower
from compiler.devices.cpu.measure.machine import _kernel
from compiler.devices.cpu.target import PROFILES, CpuTarget, this_machine
from compiler.devices.kinds import propose
from compiler.errors import Disagreement
from compiler.fuse import fuse
from compiler.ir.buffers import KernelGraph
from compiler.ir.kernel import Kernel
from compiler.ir.machine import Record, Setting, Trial, Workload
from compiler.ir.plans.lanes import Handover, LaneCosts
from compiler.ir.plans.plan import Plan
from compiler.ir.tile import Cost, Menu, Tile, Variant
from compiler.knowledge.kinds import HANDOVER
from compiler.knowledge.making import handover_record
from compiler.measure.memory import allocate, operand, read_buffer, write_buffer
from compiler.ops import OPERATORS
from compiler.prove.bisect import bisect
from compiler.prove.reference import evaluate_graph
from compiler.schedule import schedule
from compiler.steps.costs.lanes import byte_seconds, upgrade_seconds
from compiler.trace import never_stops
from compiler.tuning.tune import workload_key
from tests.compiler.devices.cpu.library import draws
from tests.compiler.networks import Network, graph_of, networks

TARGET = this_machine()
BACKEND = CpuBackend(TARGET, find_toolchain())


def planned(kernels: KernelGraph) -> Plan:
    menus = []
    for call in kernels.calls:
        workload = workload_of(kernels, call)
        best = propose(workload, TARGET, 1)[0]
        variant = Variant(best.tile, count_tiles(workload, best.tile, TARGET), 1, Cost(best.seconds, "model"))
        menus.append(Menu(workload_key(workload), (variant,)))
    return schedule(kernels, menus, 1, LaneCosts())[0].plan


def test_random_networks_lowered_call_by_call_and_placed_in_one_arena_agree() -> None:
    """Memory as the plan shares it: in place, in slices, reused.

    Each network is run twice, so that what was left behind shows.
    """
    random = np.random.default_rng(1)
    for model in draws(networks(), 14):
        graph = graph_of(model)
        kernels = fuse(graph).kernels
        if not all(isinstance(call.kernel, Kernel) for call in kernels.calls):
            continue
        plan = planned(kernels)
        stepper = LibraryStepper(kernels, plan, TARGET, find_toolchain(), {})
        arena = allocate(plan.arena_bytes)
        memories = {storage: allocate(count) for storage, count in kernels.storage_bytes.items()}
        for storage, place in plan.places.items():
            if place.space == "arena":
                memories[storage] = arena[place.at : place.at + place.bytes]
        for _ in range(2):
            inputs = {id: random.uniform(-1, 1, graph.type(id).dims).astype(np.float32) for id in graph.inputs}
            for id, array in {**kernels.constants, **inputs}.items():
                write_buffer(memories[kernels.buffers[id].storage], kernels.buffers[id], array)
            for position, call in enumerate(kernels.calls):
                buffers = [kernels.buffers[id] for id in (*call.inputs, *call.outputs)]
                stepper.run(position, [operand(memories[buffer.storage], buffer) for buffer in buffers])
            wanted = evaluate_graph(graph, inputs, OPERATORS, keep=list(graph.outputs))
            for id in kernels.outputs:
                got = read_buffer(memories[kernels.buffers[id].storage], kernels.buffers[id])
                np.testing.assert_allclose(got, wanted[id], rtol=1e-4, atol=1e-4, err_msg=f"{graph}\n{kernels}\n{plan}")


def small() -> KernelGraph:
    net = Network()
    x = net.node("Conv", [net.input(1, 8, 6, 6), net.weight(16, 8, 3, 3)], (1, 16, 6, 6), pads=[1] * 4)
    return fuse(graph_of(net.model([net.node("Softmax", [x], (1, 16, 6, 6), axis=1)]))).kernels


def test_trials_are_built_timed_and_recorded() -> None:
    kernels = small()
    trials = []
    for call in kernels.calls:
        workload = workload_of(kernels, call)
        trials += [Trial(workload, workload_key(workload), option.tile, 1) for option in propose(workload, TARGET, 1)]
    built = build_trials(trials, TARGET, find_toolchain(), 2)
    assert built is not None
    assert [entry.tiles for entry in built.entries] == [count_tiles(t.workload, t.tile, TARGET) for t in trials]
    machine = BACKEND.cores(0)
    assert machine is not None
    # The clock stands still: however long the C compiler takes, the time is not over.
    records = list(replace(machine, samples=3, clock=lambda: 0.0).measure(trials, 1.0))
    assert [record.workload for record in records] == [trial.key for trial in trials]
    assert all(record.seconds > 0 and record.hardware == TARGET.hardware for record in records)


def test_a_tile_that_computes_something_else_cannot_win_and_is_told_with_its_source(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One that leaves its last tile task undone, which makes it the fastest, and one that does nothing at all."""
    kernels = small()
    workload = workload_of(kernels, kernels.calls[0])
    tiles = [option.tile for option in propose(workload, TARGET, 1) if option.tile.algorithm == "contraction"][:4]
    most = max(tiles, key=lambda tile: count_tiles(workload, tile, TARGET))
    least = next(tile for tile in tiles if tile != most)
    faults = {most: "end -= 1;", least: "end = begin;"}
    assert count_tiles(workload, most, TARGET) > 1

    def broken(name: str, workload: Workload, tile: Tile, target: CpuTarget) -> Lowered:
        lowered = lower(name, workload, tile, target)
        head = "long begin, long end) {"
        assert lowered.text.count(head) == 1
        return replace(lowered, text=lowered.text.replace(head, f"{head} {faults.get(tile, '')}"))

    monkeypatch.setattr(cpu, "lower", broken)
    notices: list[str] = []
    sources: dict[str, str] = {}
    trials = [Trial(workload, "key", tile, 1) for tile in tiles]
    with BACKEND.machine(0, never_stops, Setting(), notices.append, sources.__setitem__) as machine:
        assert machine is not None
        for _ in range(2):  # what is out stays out
            kept = [Tile.from_json(one.variant) for one in machine.measure(trials, 60.0)]
            assert least not in kept
            assert [tile for tile in tiles if tile not in faults] == [tile for tile in kept if tile not in faults]
    assert any(f"({least}) is measured no further: output 0 differs" in notice for notice in notices)
    assert len(notices) == len(sources)
    assert any(faults[least] in source for source in sources.values())


def test_of_right_tiles_of_every_algorithm_none_is_dropped() -> None:
    kernels = small()
    notices: list[str] = []
    with BACKEND.machine(0, never_stops, Setting(), notices.append, lambda title, text: None) as machine:
        assert machine is not None
        for call in kernels.calls:
            workload = workload_of(kernels, call)
            options = {option.tile.algorithm: option.tile for option in propose(workload, TARGET, 1, math.inf)}
            trials = [Trial(workload, workload_key(workload), tile, 1) for tile in options.values()]
            assert len([*machine.measure(trials, 60.0)]) == len(trials)
            for trial in trials:
                alone = machine._results.fault(workload, f"{trial.key} alone", _kernel(machine.prepare(trial)), ())
                assert alone == "", trial.tile
    assert not notices


def test_the_timer_is_compiled_once_and_kernels_are_in_a_file_for_each_compiler(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kernels = small()
    workload = workload_of(kernels, kernels.calls[0])
    trials = [Trial(workload, "key", option.tile, 1) for option in propose(workload, TARGET, 1)][:2]
    once, units = build._compile, Counter[str]()

    def counted(root: Path, unit: str, *rest: Any) -> None:
        units[unit] += 1
        once(root, unit, *rest)

    monkeypatch.setattr(build, "_compile", counted)
    for jobs in (1, 2, 1):
        assert build_trials(trials, TARGET, find_toolchain(), jobs) is not None
    assert units["timer.c"] <= 1
    assert (units["kernels_0.c"], units["kernels_1.c"]) == (3, 1)


def test_a_build_of_trials_is_called_off_when_someone_is_in_a_hurry() -> None:
    kernels = small()
    workload = workload_of(kernels, kernels.calls[0])
    trials = [Trial(workload, "key", option.tile, 1) for option in propose(workload, TARGET, 1)]
    assert build_trials(trials, TARGET, find_toolchain(), 2, stop_requested=lambda: True) is None
    machine = BACKEND.cores(0, stop_requested=lambda: True)
    assert machine is not None
    assert list(machine.measure(trials, 30.0)) == []


def test_a_target_that_is_elsewhere_has_no_machine_and_no_handover() -> None:
    elsewhere = replace(BACKEND, target=next(profile for profile in PROFILES if not profile.is_here))
    assert elsewhere.cores(0) is None
    assert elsewhere.handover((), measure=True) is None
    assert elsewhere.with_rates((), measure=True) == (elsewhere, [])


def test_constants_that_fill_half_the_last_cache_are_found_in_memory() -> None:
    kernels = small()
    whole = sum(array.nbytes for array in kernels.constants.values())
    assert whole > 0
    for l3_bytes, weights in ((2 * whole, "cache"), (2 * whole - 1, "memory")):
        backend = replace(BACKEND, target=replace(TARGET, l3_bytes=l3_bytes))
        setting = backend.setting(kernels)
        assert (setting.weights, setting.toolchain) == (weights, BACKEND.toolchain.version)
        prepared, records = backend.prepared(kernels, (), measure=False)
        assert prepared.target.rates == replace(TARGET.rates, in_memory=weights == "memory")
        assert not records


def handed_over(ns: float, *, hardware: str = TARGET.hardware, upgrade_s: float | None = 0.0) -> Record:
    """Of an earlier version, which did not ask for it, without an `upgrade_s`."""
    seconds = 1e-9 * ns
    spread = (seconds, seconds, seconds)
    variant = {} if upgrade_s is None else {"upgrade_s": upgrade_s}
    return Record(HANDOVER.name, "", "", "", TARGET.name, hardware, variant, 2, *spread, 1)


@pytest.mark.parametrize(("measured", "counts"), [(55.0, 60.0), (150.0, 185.0)])
def test_the_cores_state_is_measured_and_a_record_of_that_state_counts(
    measured: float, counts: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpu, "measure_handover", lambda library: Handover.of(measured, 2e-11, 1e-10))
    known = [handed_over(60.0), handed_over(185.0), handed_over(measured, hardware="elsewhere")]
    assert BACKEND.handover(known, measure=True) == handed_over(counts)
    (far,) = [one for one in (known[:1], known[1:2]) if handed_over(counts) not in one]
    new = BACKEND.handover(far, measure=True)
    assert new is not None
    assert new.seconds == pytest.approx(1e-9 * measured)
    assert new.variant == {"state": Handover.of(measured).state, "byte_s": 2e-11, "upgrade_s": 1e-10}
    assert BACKEND.handover([*known, new], measure=True) == new


def test_a_record_that_does_not_tell_of_upgrades_is_measured_again_where_that_is_allowed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cpu, "measure_handover", lambda library: Handover.of(55.0, 2e-11, 1e-10))
    whole, earlier = handed_over(60.0), handed_over(60.0, upgrade_s=None)
    new = BACKEND.handover([earlier], measure=True)
    assert new is not None
    assert new.seconds == pytest.approx(55e-9)
    assert upgrade_seconds(new) == 1e-10
    assert BACKEND.handover([whole, earlier], measure=True) == whole
    assert BACKEND.handover([earlier], measure=False) == earlier
    assert upgrade_seconds(earlier) == 0.0


def test_a_pair_of_cores_has_records_of_its_own_beside_the_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[object] = []

    def measure_pair(library: bytes, pair: tuple[int, int]) -> Handover:
        measured.append(pair)
        return Handover.of(300.0 if pair == (1, 3) else 60.0, 3e-11, 1.5e-10)

    monkeypatch.setattr(cpu, "measure_handover", lambda library: Handover.of(50.0))
    monkeypatch.setattr(cpu, "measure_pair", measure_pair)
    states = ["far", "near"]
    monkeypatch.setattr(cpu, "state_of_pair", lambda library, pair: states.pop(0))
    machine = handed_over(55.0)
    far = BACKEND.handover([machine], measure=True, pair=(1, 3))
    near = BACKEND.handover([machine], measure=True, pair=(0, 3))
    assert far is not None
    assert near is not None
    assert far.seconds == pytest.approx(300e-9)
    assert (far.variant["pair"], far.variant["state"]) == ([1, 3], "far")
    assert far.description == "from a store on core 1 to its being seen on core 3; the cores are far"
    known = [Record.from_json(json.loads(json.dumps(one.to_json()))) for one in (machine, far, near)]
    assert BACKEND.handover(known, measure=True, pair=(1, 3)) == far
    assert BACKEND.handover(known, measure=False, pair=(0, 3)) == near
    assert BACKEND.handover(known, measure=False, pair=(0, 1)) is None
    assert BACKEND.handover(known, measure=False) == BACKEND.handover(known, measure=True) == machine
    assert measured == [(1, 3), (0, 3)], "once for each pair"
    again = BACKEND.handover(known, measure=True, pair=(1, 3))
    assert again == far, "they seemed near, and measured anew they are far"
    assert BACKEND.handovers(known, [(0, 3), (1, 2)], measure=False) == {(0, 3): near}
    assert measured == [(1, 3), (0, 3), (1, 3)]
    assert states == []


def test_what_a_handover_was_measured_to_cost_is_what_its_record_says_again() -> None:
    measured = Handover.of(300.0, 3e-11, 1.5e-10)
    record = Record.from_json(json.loads(json.dumps(handover_record(measured, TARGET).to_json())))
    assert record.is_plausible
    assert record.seconds == pytest.approx(300e-9)
    assert (record.variant["state"], byte_seconds(record), upgrade_seconds(record)) == ("far", 3e-11, 1.5e-10)


def test_without_measuring_the_last_record_of_a_handover_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu, "measure_handover", lambda library: pytest.fail("measured"))
    known = [handed_over(60.0), handed_over(185.0)]
    assert BACKEND.handover(known, measure=False) == known[1]
    assert BACKEND.handover((), measure=False) is None


def test_the_rates_of_this_machine_are_measured_once_and_not_without_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    assert BACKEND.with_rates((), measure=False) == (BACKEND, [])
    backend, records = replace(BACKEND, target=replace(TARGET, l3_bytes=2**22)).with_rates((), measure=True)
    assert backend.target.rates != TARGET.rates
    monkeypatch.setattr(cpu, "measure_rates", lambda library, target: pytest.fail("measured again"))
    for leave in (True, False):
        again, known = BACKEND.with_rates(records, measure=leave)
        assert (again.target.rates, known) == (backend.target.rates, records)


def test_steps_that_all_agree_put_the_blame_on_the_plan() -> None:
    net = Network()
    x = net.node("Conv", [net.input(1, 8, 6, 6), net.weight(16, 8, 3, 3)], (1, 16, 6, 6), pads=[1] * 4)
    graph = graph_of(net.model([net.node("Softmax", [x], (1, 16, 6, 6), axis=1)]))
    kernels = fuse(graph).kernels
    stepper = LibraryStepper(kernels, planned(kernels), TARGET, find_toolchain(), {})
    inputs = {graph.inputs[0]: np.linspace(-1, 1, 288, dtype=np.float32).reshape(1, 8, 6, 6)}
    with pytest.raises(Disagreement, match="the plan is at fault"):
        bisect(graph, kernels, stepper, inputs, OPERATORS, 1e-4)


def test_kernels_of_a_program_are_not_compiled_again_to_run_one_by_one() -> None:
    net = Network()
    kernels = fuse(graph_of(net.model([net.node("Softmax", [net.input(2, 9)], (2, 9), axis=1)]))).kernels
    plan, backend = planned(kernels), replace(BACKEND, objects={})
    backend.emit(kernels, plan)
    units = {*backend.objects}
    with backend.stepper(kernels, plan):
        assert units == {*backend.objects} != set()


def test_the_users_compiler_is_taken_from_the_environment() -> None:
    assert environment_compiler({"CC": "clang"}) == "clang"
    assert environment_compiler({}) == ""

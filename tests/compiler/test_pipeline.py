from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from bench.zoo import ZOO
from compiler.__main__ import main
from compiler.codegen import scalars as c_scalar
from compiler.contract import PHASES, CompileOptions, Event
from compiler.devices.cpu.device import CpuBackend
from compiler.devices.cpu.emit.program import emit
from compiler.devices.cpu.measure.timer import Timer
from compiler.devices.cpu.target import PROFILES, runs_here, this_machine
from compiler.devices.device import Runner
from compiler.disabled import EnabledPasses, enabled_passes
from compiler.errors import Disagreement, UnsupportedModel
from compiler.fuse import fuse
from compiler.ir.graph import Graph, Node
from compiler.ir.plans.lanes import Handover
from compiler.ir.plans.plan import Plan, Task
from compiler.knowledge.making import handover_record
from compiler.measure import plans as races
from compiler.pack.loader import Model
from compiler.prove.array_module import ArrayModule
from compiler.rewrite import EXACT, Rule
from compiler.rewrite.view import Rewrite, View
from compiler.steps import proving
from compiler.steps.planning.guards import NEAR_S, Guarded
from compiler.tuning import helpers as helping
from tests.compiler.conftest import Compiled
from tests.compiler.networks import Network
from tests.compiling import compile_file
from tests.device_arrays.stand_in import DeviceArray, uploaded

Compile = Callable[..., Compiled]
UNMEASURED = CompileOptions(threads=1, tuning_budget_s=0)
BUDGET_S = 600
"""More than all there is to measure takes, also on a machine that is busy with other things."""


@pytest.fixture(autouse=True)
def short_races(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of BUDGET_S each plan would have two seconds of both cores; which one is taken is not what is looked at."""
    monkeypatch.setattr(races, "MOST_S", races.LEAST_S)


@pytest.fixture
def near_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine whose cores stay near to each other.

    Virtual cores move, and what was measured while they were far counts there alone: who compiles again measures what
    is missing.
    """
    monkeypatch.setattr(Timer, "handover", lambda timer, rounds: 70.0)


def judged(model: Path, artifact: Path, lanes: int | None = None) -> None:
    """The artifact gives what another runtime gives."""
    with Model(artifact, lanes=lanes) as ours:
        inputs = ours.random_inputs(5)
        theirs = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"]).run(None, inputs)
        for got, want in zip(ours.run(inputs).values(), theirs, strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4 * float(np.abs(want).max(initial=1e-3)))


@pytest.mark.parametrize("name", [entry.name for entry in ZOO if entry.name.startswith("tiny_")])
def test_a_tiny_network_compiles_into_an_artifact_that_agrees(name: str, compiled: Compile) -> None:
    one = compiled(name)
    assert one.report.tolerance > 0
    assert max(error.max_relative for error in one.report.errors) <= one.report.tolerance
    assert 0 < one.report.kernels < one.report.kernels_before_fusion
    assert set(one.report.phase_seconds) == set(PHASES)
    judged(one.model, one.artifact)


def test_one_network_on_two_lanes_agrees(compiled: Compile) -> None:
    one = compiled("tiny_inception", 2, split=True)
    assert one.report.threads == 2
    judged(one.model, one.artifact)
    judged(one.model, one.artifact, lanes=1)


def test_measured_records_leave_as_events_and_give_the_same_bytes_when_they_come_back(
    compiled: Compile, tmp_path: Path
) -> None:
    model = compiled("tiny_cnn").model
    events: list[Event] = []
    options = CompileOptions(threads=1, tuning_budget_s=BUDGET_S)
    first = compile_file(model, tmp_path / "0.tw", options, observe=events.append)
    records = [event.data for event in events if event.kind == "record"]
    kernels = [record for record in records if record["kind"] == "kernel"]
    assert {record["kind"] for record in records} == {"kernel", "machine", "search", "plan"}
    texts = {event.data["workload"]: event.data["text"] for event in events if event.kind == "workload"}
    assert set(texts) == {record["workload"] for record in kernels}
    assert len(kernels) == first.records_measured > 0
    fractions = [event.fraction for event in events]
    assert fractions == sorted(fractions)
    tiles = {(one["workload"], *(str(one["variant"][part]) for part in ("algorithm", "levels"))) for one in kernels}
    for number, budget in ((1, 0), (2, 0), (3, BUDGET_S)):
        events.clear()
        again = CompileOptions(threads=1, tuning_budget_s=budget)
        report = compile_file(model, tmp_path / f"{number}.tw", again, records, observe=events.append)
        assert (report.records_measured, report.records_reused) == (0, len(tiles))
        assert not [event for event in events if event.kind == "record"]
    assert (tmp_path / "1.tw").read_bytes() == (tmp_path / "2.tw").read_bytes()
    assert (report.rank_correlation is None) == (report.ranked_kernels == 0)


def test_records_edited_by_hand_make_no_compilation_fail(compiled: Compile, tmp_path: Path) -> None:
    """Whatever they say of the machine, the kernels or the cores.

    What nobody can have measured is left out, the rest may make it slow.
    """
    one = compiled("tiny_cnn")
    events: list[Event] = []
    options = CompileOptions(threads=2, tuning_budget_s=BUDGET_S, tuning_trials=12)
    first = compile_file(one.model, tmp_path / "0.tw", options, observe=events.append)
    assert first.ranked_kernels > 0
    assert first.rank_correlation is not None
    assert -1 <= first.rank_correlation <= 1
    records = [dict(event.data) for event in events if event.kind == "record"]
    edits: list[dict[str, Any]] = [
        *({"seconds": seconds} for seconds in (0, 1e-320, float("nan"), 9e15)),
        {"threads": 0},
        {"threads": 2**53},
        {"variant": {}},
        {"description": "[" + "9" * 5000 + ", #]"},
        {"compiler": "0.0.1"},
    ]
    reported = (
        "byte_s",
        "upgrade_s",
        "state",
        "spans",
        "ratio",
        "low",
        "high",
        "found_s",
        "budget_s",
        "lanes",
    )
    lies: list[Any] = [True, "near", [], -1, 1e308, float("inf"), float("nan"), 10**400]
    lying = [
        {**record, "variant": {name: lie if name in reported else value for name, value in record["variant"].items()}}
        for lie in lies
        for record in records
    ]
    edited = [{}, {"kind": "kernel"}, *lying, *({**record, **edit} for edit in edits for record in records)]
    for budget, known in ((0, edited), (BUDGET_S, edited[::-1])):
        again = CompileOptions(threads=2, tuning_budget_s=budget, tuning_trials=0)
        assert compile_file(one.model, tmp_path / "1.tw", again, known).errors


@pytest.mark.usefixtures("near_cores")
def test_on_two_lanes_a_second_compilation_measures_nothing_either(compiled: Compile, tmp_path: Path) -> None:
    model = compiled("tiny_cnn").model
    options = CompileOptions(threads=2, tuning_budget_s=BUDGET_S, tuning_trials=4)
    events: list[Event] = []
    compile_file(model, tmp_path / "0.tw", options, observe=events.append)
    records = [event.data for event in events if event.kind == "record"]
    kinds = {record["kind"] for record in records}
    assert {"kernel", "machine", "search", "handover", "plan"} <= kinds
    assert kinds <= {"kernel", "machine", "search", "handover", "plan", "stage"}
    events.clear()
    reports = [compile_file(model, tmp_path / f"{at}.tw", options, records, observe=events.append) for at in (1, 2)]
    assert not [event for event in events if event.kind == "record"]
    assert [report.records_measured for report in reports] == [0, 0]
    assert (tmp_path / "1.tw").read_bytes() == (tmp_path / "2.tw").read_bytes()


@pytest.mark.usefixtures("near_cores")
def test_schedules_are_measured_once_and_their_records_decide_from_then_on(compiled: Compile, tmp_path: Path) -> None:
    """Of a model with branches, for cores in one state; equal records give equal bytes, with and without a budget.

    It is so small that waking a second lane does not pay, and nothing would be run.
    """
    model = compiled("tiny_inception").model
    options = CompileOptions(threads=2, tuning_budget_s=BUDGET_S, tuning_trials=40)
    events: list[Event] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("compiler.steps.planning.choice.HOPE", 1e9)
        first = compile_file(model, tmp_path / "0.tw", options, observe=events.append)
        records = [dict(event.data) for event in events if event.kind == "record"]
        plans = [record for record in records if record["kind"] == "plan"]
        assert len(plans) == sum(one.measured_s is not None for one in first.plans) > 1
        assert {record["variant"]["state"] for record in plans} == {"near"}
        assert len({one.scheduler.split()[0] for one in first.plans}) > 1
        assert [one.taken for one in first.plans].count(True) == 1
        for number, budget in ((1, BUDGET_S), (2, BUDGET_S), (3, 0)):
            events.clear()
            again = CompileOptions(threads=2, tuning_budget_s=budget, tuning_trials=40)
            report = compile_file(model, tmp_path / f"{number}.tw", again, records, observe=events.append)
            assert not [event for event in events if event.kind == "record"]
            reported = [(one.scheduler, one.measured_s, one.taken) for one in report.plans if one.measured_s]
            assert reported == [(one.scheduler, one.measured_s, one.taken) for one in first.plans if one.measured_s]
        faster = [{**one, "variant": {**one["variant"], "ratio": 0.5, "low": 0.4, "high": 0.6}} for one in plans[1:]]
        report = compile_file(model, tmp_path / "4.tw", options, [*records, *faster])
    assert (tmp_path / "1.tw").read_bytes() == (tmp_path / "2.tw").read_bytes()
    (taken,) = [one for one in report.plans if one.taken]
    assert (taken.ratio, taken is report.plans[0]) == (0.5, False)
    judged(model, tmp_path / "0.tw")
    judged(model, tmp_path / "4.tw")


def test_the_first_artifact_is_made_while_helpers_measure(compiled: Compile, tmp_path: Path) -> None:
    class Gone:
        """Helpers that are there, and give nothing."""

        asked: ClassVar[list[str]] = []

        def offer(self, terms: helping.Terms, tasks: Sequence[helping.Task]) -> int:
            self.asked.append(f"offered {len(tasks)}")
            return 1

        def take(self, seconds: float, measured: int) -> helping.Given:
            self.asked.append("taken")
            return helping.Given()

        def over(self) -> None:
            raise AssertionError("nothing is left to others")

    helpers = Gone()
    options = CompileOptions(threads=1, tuning_budget_s=BUDGET_S, tuning_trials=6)
    report = compile_file(
        compiled("tiny_cnn").model,
        tmp_path / "m.tw",
        options,
        helpers=helpers,
        first=lambda made, come: helpers.asked.append("first"),
    )
    assert report.records_measured >= 6
    who, begun, first, *later = helpers.asked
    assert (who, first, set(later)) == ("offered 0", "first", {"taken"})
    assert begun != "offered 0"
    assert all(report.phase_seconds[phase] > 0 for phase in PHASES)
    judged(compiled("tiny_cnn").model, tmp_path / "m.tw")


@pytest.mark.parametrize("scheduler", ["early_start", "stages"])
def test_a_scheduler_that_is_asked_for_is_not_measured(scheduler: str, compiled: Compile, tmp_path: Path) -> None:
    model = compiled("tiny_inception").model
    options = CompileOptions(threads=2, tuning_budget_s=0, scheduler=scheduler)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys.modules["compiler.schedule.schedule"], "_predicted", lambda found: -found.plan.lanes)
        report = compile_file(model, tmp_path / "m.tw", options)
    (plan,) = report.plans
    assert (plan.scheduler.split()[0], plan.lanes, plan.measured_s) == (scheduler, 2, None)
    judged(model, tmp_path / "m.tw")


def test_after_a_stop_request_the_best_found_so_far_is_emitted_and_proven(compiled: Compile, tmp_path: Path) -> None:
    model = compiled("tiny_cnn").model
    events: list[Event] = []

    def stop_requested() -> bool:
        return any(event.kind == "record" and event.data["kind"] == "kernel" for event in events)

    options = CompileOptions(threads=1, tuning_budget_s=BUDGET_S)
    report = compile_file(model, tmp_path / "m.tw", options, observe=events.append, stop_requested=lambda: True)
    assert report.records_measured == 0
    assert [notice for notice in report.notices if notice.startswith("finished early on request: 0 of ")]
    assert report.errors
    judged(model, tmp_path / "m.tw")
    # A request that comes while the first batch's records arrive: those are kept, and no second batch is begun.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("compiler.tuning.search.FIRST_BATCH", 2)
        report = compile_file(model, tmp_path / "n.tw", options, observe=events.append, stop_requested=stop_requested)
    assert report.records_measured == 2
    assert [notice for notice in report.notices if notice.startswith("finished early on request: 2 of ")]
    judged(model, tmp_path / "n.tw")


def test_two_builds_without_measuring_are_equal(compiled: Compile, tmp_path: Path) -> None:
    one = compiled("tiny_mobile")
    compile_file(one.model, tmp_path / "again.tw", UNMEASURED)
    assert (tmp_path / "again.tw").read_bytes() == one.artifact.read_bytes()


def test_a_wrong_kernel_is_found_and_the_node_named(
    compiled: Compile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lowering that turns the bound of a clamp into another is caught, and nothing is left behind."""
    net = Network()
    x = net.node("Conv", [net.input(1, 8, 6, 6), net.weight(8, 8, 1, 1)], (1, 8, 6, 6))
    x = net.node("MaxPool", [x], (1, 8, 6, 6), kernel_shape=[3, 3], pads=[1] * 4)
    x = net.node("Elu", [x], (1, 8, 6, 6), alpha=0.7182)
    x = net.node("MaxPool", [x], (1, 8, 6, 6), kernel_shape=[3, 3], pads=[1] * 4)
    onnx.save(net.model([x]), tmp_path / "model.onnx")
    wrong = replace(
        c_scalar.C,
        literal=lambda value, dtype: c_scalar.literal(0.9 if abs(float(value) - 0.7182) < 1e-6 else value, dtype),
    )
    monkeypatch.setattr("compiler.codegen.expressions.Emitter.dialect", wrong)
    with pytest.raises(Disagreement) as caught:
        compile_file(tmp_path / "model.onnx", tmp_path / "model.tw", UNMEASURED)
    assert "n2_Elu" in str(caught.value) or "n2_Elu" in str(caught.value.details)
    assert [path.name for path in tmp_path.iterdir()] == ["model.onnx"]


def forgotten_elu(view: View, node: Node) -> Rewrite:
    """Elu(x) = x."""
    return view.draft(node).same(node.used[0], why="a rule that is wrong")


def test_a_wrong_rule_is_found_by_a_reference_that_no_rule_has_touched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    net = Network()
    x = net.node("Conv", [net.input(1, 8, 6, 6), net.weight(8, 8, 1, 1)], (1, 8, 6, 6))
    x = net.node("MaxPool", [net.node("Elu", [x], (1, 8, 6, 6))], (1, 8, 6, 6), kernel_shape=[3, 3], pads=[1] * 4)
    onnx.save(net.model([x]), tmp_path / "model.onnx")
    wrong = Rule(EXACT, ("Elu",), forgotten_elu)
    applied: list[str] = []

    def with_wrong(without: Sequence[str]) -> EnabledPasses:
        kept = enabled_passes(without)
        return replace(kept, rules=(*kept.rules, wrong))

    def noted(graph: Graph, *args: Any, **others: Any) -> Any:
        applied.append(" ".join(node.op for node in graph.nodes))
        return fuse(graph, *args, **others)

    monkeypatch.setattr("compiler.session.enabled_passes", with_wrong)
    monkeypatch.setattr("compiler.pipeline.fuse", noted)
    with pytest.raises(Disagreement):
        compile_file(tmp_path / "model.onnx", tmp_path / "model.tw", UNMEASURED)
    assert applied == ["Conv MaxPool"]
    assert [path.name for path in tmp_path.iterdir()] == ["model.onnx"]


@pytest.mark.parametrize("state", ["near", "far"])
def test_a_wrong_plan_for_cores_in_the_other_state_fails_and_is_named(
    state: str, compiled: Compile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seeded after its verification: it runs the kernels in the opposite order.

    The plan for the cores as they are is right.
    """
    model = compiled("tiny_inception").model

    def with_wrong(plan: Plan, *args: object) -> Guarded:
        tasks = tuple(Task(one.call, 0, one.first, one.last) for one in plan.runs[::-1])
        wrong = replace(plan, tasks=tasks)
        if state == "near":
            return Guarded(replace(plan, most_handover_s=NEAR_S), (wrong,))
        return Guarded(plan, (replace(wrong, most_handover_s=NEAR_S),))

    monkeypatch.setattr("compiler.steps.planning.step.guarded", with_wrong)
    handed_over = handover_record(Handover.of(60.0 if state == "near" else 300.0), this_machine()).to_json()
    with pytest.raises(Disagreement) as caught:
        compile_file(model, tmp_path / "model.tw", CompileOptions(threads=2, tuning_budget_s=0), [handed_over])
    assert caught.value.details["plan"] is True
    assert f"its plan for cores that are {'far' if state == 'near' else 'near'}" in caught.value.message
    assert not (tmp_path / "model.tw").exists()


def test_a_failed_compilation_leaves_an_older_artifact_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    net = Network()
    onnx.save(net.model([net.node("Relu", [net.input(1, 8)], (1, 8))]), tmp_path / "model.onnx")
    (tmp_path / "model.tw").write_bytes(b"older")
    right = emit

    def broken(*args: Any, **named: Any) -> Any:
        program = right(*args, **named)
        raise Disagreement(f"seeded, after {len(program.sources)} sources")

    monkeypatch.setattr("compiler.devices.cpu.device.emit", broken)
    with pytest.raises(Disagreement, match="seeded"):
        compile_file(tmp_path / "model.onnx", tmp_path / "model.tw", UNMEASURED)
    assert (tmp_path / "model.tw").read_bytes() == b"older"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.onnx", "model.tw"]


CROSS = [profile.name for profile in PROFILES if profile.machine == "x86_64" and runs_here(profile)]


@pytest.mark.parametrize("target", CROSS)
def test_every_profile_of_this_machine_builds_and_runs(target: str, compiled: Compile, tmp_path: Path) -> None:
    model = compiled("tiny_mobile").model
    report = compile_file(model, tmp_path / "m.tw", CompileOptions(target=target, threads=1, tuning_budget_s=0))
    assert report.target == target
    judged(model, tmp_path / "m.tw")


def odd_network() -> onnx.ModelProto:
    """Outputs that are an input, a constant or one value twice; strange names; inputs that are not read.

    A reversed slice, too.
    """
    x = helper.make_tensor_value_info("the/image:0", TensorProto.FLOAT, [2, 8])
    unused = helper.make_tensor_value_info("unused", TensorProto.INT64, [3])
    constant = numpy_helper.from_array(np.arange(6, dtype=np.float32).reshape(2, 3), "k")
    ends = [numpy_helper.from_array(np.array([v]), n) for v, n in ((-1, "s"), (-(2**63) + 1, "e"), (1, "a"), (-1, "p"))]
    nodes = [
        helper.make_node("Identity", ["the/image:0"], ["same"], name="i"),
        helper.make_node("Identity", ["k"], ["constant out"], name="j"),
        helper.make_node("Slice", ["the/image:0", "s", "e", "a", "p"], ["turned"], name='quote"\\back'),
        helper.make_node("Softmax", ["turned"], ["soft"], name="while"),
        helper.make_node("Neg", ["soft"], ["one"]),
        helper.make_node("Neg", ["soft"], ["two"]),
    ]
    outs = [("same", [2, 8]), ("constant out", [2, 3]), ("turned", [2, 8]), ("one", [2, 8]), ("two", [2, 8])]
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in outs]
    graph = helper.make_graph(nodes, "odd", [x, unused], outputs, initializer=[constant, *ends])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def test_outputs_that_are_inputs_constants_or_twins(tmp_path: Path) -> None:
    onnx.save(odd_network(), tmp_path / "model.onnx")
    compile_file(tmp_path / "model.onnx", tmp_path / "model.tw", UNMEASURED)
    judged(tmp_path / "model.onnx", tmp_path / "model.tw")


def shifted_slices() -> onnx.ModelProto:
    """The first rows of one Concat become the last rows of another of the same size.

    Nothing else needs them any more by then.
    """
    net = Network()
    high, low = (net.node("Softmax", [net.input(rows, 40)], (rows, 40)) for rows in (24, 8))
    both = net.node("Concat", [high, low], (32, 40), axis=0)
    largest = net.node("ReduceMax", [net.node("MatMul", [both, net.weight(40, 40)], (32, 40))], (1, 1))
    scaled = net.node("Mul", [high, largest], (24, 40))
    mixed = net.node("MatMul", [net.weight(8, 24), scaled], (8, 40))
    return net.model([net.node("Softmax", [net.node("Concat", [mixed, scaled], (32, 40), axis=0)], (32, 40))])


def test_paddings_that_differ_in_the_sign_of_zero_are_kernels_of_their_own(tmp_path: Path) -> None:
    """They compare equal as numbers, and what divides by them does not."""
    x, *zeros = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [size])
        for name, size in (("x", 9), ("a", 13), ("b", 13))
    )
    nodes = [helper.make_node("Pad", ["x", "ends", value], [y]) for value, y in (("plus", "a"), ("minus", "b"))]
    constants = [
        numpy_helper.from_array(array, name)
        for name, array in (
            ("ends", np.array([2, 2])),
            ("plus", np.array(0.0, np.float32)),
            ("minus", np.array(-0.0, np.float32)),
        )
    ]
    graph = helper.make_graph(nodes, "zeros", [x], zeros, initializer=constants)
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), tmp_path / "zeros.onnx"
    )
    compile_file(tmp_path / "zeros.onnx", tmp_path / "zeros.tw", UNMEASURED)
    with Model(tmp_path / "zeros.tw") as ours:
        found = ours.run({"x": np.ones(9, np.float32)})
    assert [np.signbit(found[name][[0, 1, -2, -1]]).tolist() for name in ("a", "b")] == [[False] * 4, [True] * 4]


@pytest.mark.parametrize("threads", [1, 2])
def test_what_moves_to_another_place_of_a_concat_is_not_written_over_what_is_read(threads: int, tmp_path: Path) -> None:
    onnx.save(shifted_slices(), tmp_path / "model.onnx")
    compile_file(tmp_path / "model.onnx", tmp_path / "model.tw", replace(UNMEASURED, threads=threads))
    judged(tmp_path / "model.onnx", tmp_path / "model.tw")


def test_the_command_line_dumps_every_step_as_numbered_text(
    compiled: Compile, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = compiled("tiny_cnn").model
    options = json.dumps({"threads": 1, "tuning_budget_s": 0})
    arguments = [str(model), "--out", str(tmp_path / "m.tw"), "--dump", str(tmp_path / "dump"), "--options", options]
    assert main(arguments) == 0
    said = capsys.readouterr()
    assert "operators in" in said.out
    assert "[  0%] load" in said.err
    files = sorted((tmp_path / "dump").iterdir(), key=lambda path: int(path.name.split("_")[0]))
    titles = [path.stem.split("_", 1)[1] for path in files]
    assert titles == [
        "load",
        "rewrite",
        "rewrite_log",
        "choose",
        "choose_log",
        "fuse",
        "fuse_refusals",
        "tile",
        "joins",
        "explanation",
        "schedule",
        "schedules",
        "budget",
        "emit",
    ]
    texts = dict(zip(titles, (path.read_text() for path in files), strict=True))
    assert texts["load"].startswith("graph(")
    assert "kernel " in texts["fuse"]
    assert texts["schedule"].startswith("plan 1 lanes")
    assert "void k0_" in texts["emit"]
    assert main([str(model), "--out", str(tmp_path / "m.tw"), "--json", "--options", options]) == 0
    assert json.loads(capsys.readouterr().out)["kernels"] > 0


def test_the_command_line_exits_with_1_and_the_reason(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bad.onnx").write_bytes(b"no model at all")
    for arguments, reason in (
        ([str(tmp_path / "bad.onnx")], "bad.onnx"),
        ([str(tmp_path / "missing.onnx")], "missing.onnx"),
        ([str(tmp_path / "bad.onnx"), "--target", "cpu:abacus"], "cpu:abacus"),
        ([str(tmp_path / "bad.onnx"), "--options", "{"], "bad.onnx"),
        ([str(tmp_path / "bad.onnx"), "--options", '{"colour": 1}'], "colour"),
    ):
        assert main(arguments) == 1
        assert reason in capsys.readouterr().err
    assert not (tmp_path / "bad.tw").exists()


def test_an_operator_without_a_definition_is_refused_by_name(tmp_path: Path) -> None:
    net = Network()
    onnx.save(net.model([net.node("StringNormalizer", [net.input(1, 8)], (1, 8))]), tmp_path / "model.onnx")
    with pytest.raises(UnsupportedModel, match="StringNormalizer"):
        compile_file(tmp_path / "model.onnx", tmp_path / "model.tw", UNMEASURED)


@pytest.mark.parametrize("from_s", [0.0, 1e9])
def test_a_reference_that_takes_long_is_evaluated_in_the_devices_arrays(
    from_s: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    freed: list[bool] = []
    module = ArrayModule("the stand-in", uploaded, DeviceArray.get, lambda: freed.append(True))
    monkeypatch.setattr(CpuBackend, "runner", property(lambda self: Runner(Model, arrays=lambda: module)))
    monkeypatch.setattr(proving, "ON_DEVICE_FROM_S", from_s)
    net = Network()
    x = net.input(2, 8)
    y = net.node("Softmax", [net.node("MatMul", [x, net.weight(8, 5)], (2, 5))], (2, 5), axis=1)
    onnx.save(net.model([y]), tmp_path / "model.onnx")
    said: list[Event] = []
    compile_file(tmp_path / "model.onnx", tmp_path / "model.tw", UNMEASURED, observe=said.append)
    reported = [event.message for event in said if event.kind == "notice" and "reference" in event.message]
    evaluations = 0 if from_s else module.there["MatMul"]
    assert bool(evaluations) == (from_s == 0.0)
    assert reported == ([f"float64 reference: {2 * evaluations} nodes by the stand-in"] if evaluations else [])
    assert freed == [True] * bool(evaluations)

"""What a plan fails to write shows in the proof, though runs of a process share their memory."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

from compiler.contract import CompileOptions
from compiler.devices.cpu.target import this_machine
from compiler.errors import Disagreement
from compiler.ir.plans.lanes import Handover
from compiler.ir.plans.plan import Plan
from compiler.knowledge.making import handover_record
from compiler.pack.loader import Model
from compiler.pack.loader.quick import _Quick
from compiler.steps import proving
from compiler.steps.planning.guards import NEAR_S, Guarded
from tests.compiler.networks import Network
from tests.compiling import compile_file

COPIED, IN_PLACE = 8, 48
"""Sides of images whose outputs a run copies, and of those that it writes itself."""
FAR = handover_record(Handover.of(300.0), this_machine()).to_json()


@pytest.fixture(params=[COPIED, IN_PLACE])
def model(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Two convolutions and a pool: what flows between them lies in memory."""
    net = Network()
    x = net.input(1, 8, request.param, request.param)
    dims = (1, 8, request.param, request.param)
    for _ in range(2):
        x = net.node("Conv", [x, net.weight(8, 8, 3, 3)], dims, pads=[1] * 4)
    onnx.save(net.model([x]), tmp_path / "model.onnx")
    return tmp_path / "model.onnx"


@pytest.mark.parametrize("lacks", [0, -1])
def test_a_plan_that_lacks_a_task_fails_by_the_first_inputs(
    lacks: int, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seeded after its verification, as the second of two plans: the first wrote what is lacking just before."""

    def with_wrong(plan: Plan, *args: object) -> Guarded:
        tasks = list(plan.tasks)
        del tasks[lacks]
        return Guarded(plan, (replace(plan, tasks=tuple(tasks), most_handover_s=NEAR_S),))

    monkeypatch.setattr("compiler.steps.planning.step.guarded", with_wrong)
    monkeypatch.setattr(proving, "AGREE_SECONDS", 0.0)
    options = CompileOptions(threads=2, tuning_budget_s=0)
    with pytest.raises(Disagreement) as caught:
        compile_file(model, tmp_path / "model.tw", options, [FAR])
    assert caught.value.details["plan"] is True


def test_poison_is_in_all_that_a_run_fills_and_in_none_of_its_results(model: Path, tmp_path: Path) -> None:
    compile_file(model, tmp_path / "model.tw", CompileOptions(threads=1, tuning_budget_s=0), measure=False)
    with Model(tmp_path / "model.tw") as loaded:
        inputs = [*loaded.random_inputs().values()]
        (right,) = loaded.run_flat(inputs)
        given = loaded.poison()
        quick = loaded._program.quick
        assert (given is None) == isinstance(quick, _Quick) == (right.shape[-1] == COPIED)
        own = quick._fills[0][-1] if isinstance(quick, _Quick) else given[0] if given else None
        assert own is not None
        assert np.isnan(own).all()
        (found,) = loaded.run_flat(inputs, given)
        np.testing.assert_array_equal(found, right)

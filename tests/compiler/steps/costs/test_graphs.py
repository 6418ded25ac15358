"""What small programs cost: branches side by side, what differs from one source, unknown kernels measured once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import pytest

from compiler.contract import CompileOptions
from compiler.devices.device import Backend
from compiler.devices.kinds import backend_of
from compiler.fuse import fuse
from compiler.ir.machine import Record, Setting, Trial
from compiler.ir.tensor import DType
from compiler.knowledge.budget import Share, TuningBudget
from compiler.rewrite.program import Program
from compiler.rewrite.region import Region, cut
from compiler.steps.costs.graphs import BATCH, FAVOURITES, FusedCosts, Measuring, least_seconds, program_key
from compiler.steps.costs.kernels import kernel_costs
from tests.compiler.rewrite.sketch import Sketch

CHAIN, BRANCHES = [(), (0,), (1,)], [(), (), ()]


@pytest.fixture(scope="module")
def backend() -> Backend:
    return backend_of(CompileOptions(), {})


@dataclass
class Fake:
    """A machine on which every tile takes so many seconds, and each measurement one second of a clock."""

    seconds: dict[str, float] = field(default_factory=dict)
    otherwise: float = 1e-5
    now: float = 0.0
    measured: list[Trial] = field(default_factory=list)
    lanes: int = 1
    hardware: str = ""

    def measure(self, trials: Sequence[Trial], deadline_s: float) -> Iterator[Record]:
        ends = self.now + deadline_s
        for trial in trials:
            if self.now >= ends:
                return
            self.now += 1
            self.measured.append(trial)
            taken = self.seconds.get(trial.key, self.otherwise)
            variant = {**trial.tile.to_json(), "lanes": 1}
            yield Record("kernel", trial.key, "", "", "", "", variant, 1, taken, taken, taken, 9)


def products(*widths: int, rows: int = 64) -> Region:
    """Products of one input, as inside of a program."""
    s = Sketch(0, DType.F32)
    x = s.x(rows, 64)
    made = [s("Softmax", s("MatMul", x, s.normal(64, width)), axis=-1) for width in widths]
    program = Program(s.graph(*made))
    program.ordered()
    return cut(program, program.made_by)


def share_of(seconds: float, trials: int | None = None, clock: Callable[[], float] = lambda: 0.0) -> Share:
    """All of a budget for choices."""
    return TuningBudget(seconds, trials, clock=clock, shares={"choices": 1.0}).share("choices")


def costs(backend: Backend, machine: Fake | None = None, seconds: float = 1e9, lanes: int = 1) -> FusedCosts:
    measuring = Measuring(machine, share_of(seconds, clock=lambda: machine.now)) if machine else None
    return FusedCosts(kernel_costs(backend, [], Setting(), lanes, "fp32"), measuring=measuring)


def test_branches_run_side_by_side_and_chains_do_not() -> None:
    each = [4.0, 4.0, 4.0]
    assert least_seconds(each, CHAIN, 1, 0.0) == least_seconds(each, BRANCHES, 1, 0.0) == 12
    assert least_seconds(each, BRANCHES, 3, 10.0) == 4, "one on each lane"
    assert least_seconds(each, CHAIN, 3, 10.0) == 12, "sharing a kernel costs more than it saves"
    assert least_seconds(each, CHAIN, 2, 0.5) == 7.5, "each is shared by both lanes"
    assert least_seconds([6.0, 1.0, 1.0], BRANCHES, 2, 10.0) == 6, "the longest path"
    assert least_seconds([], [], 2, 1.0) == 0


def test_one_kernel_less_is_a_call_less(backend: Backend) -> None:
    found = costs(backend).estimates([products(16), products(16, 16)])
    assert 2 * found[0].seconds == pytest.approx(found[1].seconds)
    assert {one.source for one in found} == {"model"}


def test_inner_values_lie_as_fusion_likes_them() -> None:
    s = Sketch(0, DType.F32)
    graph = s.graph(s("Conv", s.x(1, 8, 6, 6), s.normal(8, 8, 3, 3)))
    inner = frozenset((*graph.inputs, *graph.outputs))
    for free in (frozenset(), inner):
        buffers = fuse(graph, free=free).kernels.buffers
        assert all(buffers[value].layout.is_plain != (value in free) for value in inner)


def test_what_differs_is_measured_or_modelled_alike_and_what_is_shared_does_not_matter(backend: Backend) -> None:
    machine = Fake()
    asked = costs(backend, machine)
    contest = [products(16, 24, 40), products(16, 64)]
    (verdict,) = asked.verdicts([contest])
    assert {one.source for one in verdict.costs} == {"record"}
    widths = {trial.workload.outputs[0].type.dims[-1] for trial in machine.measured}
    assert widths == {24, 40, 64}, "what both have in common is not measured"
    assert verdict.differing_s[0] == 0 < verdict.differing_s[1]
    asked.measuring = None
    (third,) = asked.verdicts([[*contest, products(16, 63)]])
    assert {one.source for one in third.costs} == {"model"}, "of one of the kernels nothing is known"


def test_estimates_are_the_models_whatever_was_measured(backend: Backend) -> None:
    asked = costs(backend, Fake(otherwise=1e-3))
    contest = [products(24, 40), products(64)]
    before = asked.estimates(contest)
    asked.verdicts([contest])
    assert asked.estimates(contest) == before


def test_a_second_time_nothing_is_measured_and_the_verdict_is_the_same(backend: Backend) -> None:
    machine = Fake(otherwise=3e-6)
    first = costs(backend, machine)
    contest = [products(24, 40), products(64)]
    verdicts = first.verdicts([contest])
    assert 0 < len(machine.measured) <= FAVOURITES * 6
    assert [record for _, record in first.fresh]
    known = FusedCosts(first.kernels, measuring=Measuring(machine, share_of(1e9)))
    before = len(machine.measured)
    assert known.verdicts([contest]) == verdicts
    assert len(machine.measured) == before
    assert not known.fresh


def test_what_nobody_can_have_measured_is_no_record_and_no_cost(backend: Backend) -> None:
    machine = Fake(otherwise=0.0)
    broken = costs(backend, machine)
    contest = [products(24, 40), products(64)]
    verdicts = broken.verdicts([contest])
    assert machine.measured
    assert not broken.fresh
    assert not broken.kernels.measured
    assert verdicts == costs(backend).verdicts([contest])


def test_what_was_measured_decides_against_the_model(backend: Backend) -> None:
    apart, joined = products(24, 40), products(64)
    modelled = costs(backend).estimates([apart, joined])
    assert modelled[1].seconds < modelled[0].seconds
    machine = Fake()
    asked = costs(backend, machine)
    asked.verdicts([[apart, joined]])
    slow = {trial.key: 1e-2 for trial in machine.measured if trial.workload.outputs[0].type.dims[-1] == 64}
    (verdict,) = costs(backend, Fake(slow)).verdicts([[apart, joined]])
    assert verdict.costs[1].seconds > verdict.costs[0].seconds


def test_measuring_ends_with_its_budget_and_the_model_decides_what_is_left(backend: Backend) -> None:
    machine = Fake()
    contests = [[products(width, width + 8), products(2 * width + 8)] for width in range(16, 176, 8)]
    asked = costs(backend, machine, seconds=3 * BATCH + 3)
    sources = [verdict.costs[0].source for verdict in asked.verdicts(contests)]
    assert len(machine.measured) == 3 * BATCH + 3
    assert set(sources) == {"record", "model"}
    assert asked.measuring is not None
    assert asked.measuring.share.spent == len(machine.measured)


def test_a_program_that_the_model_thinks_much_slower_is_not_measured(backend: Backend) -> None:
    machine = Fake()
    (verdict,) = costs(backend, machine).verdicts([[products(16), products(512)]])
    assert not machine.measured
    assert verdict.costs[0].source == "model"


def test_no_more_tiles_are_measured_than_a_share_of_those_allowed() -> None:
    options = CompileOptions(tuning_budget_s=20, tuning_trials=50)
    share = TuningBudget(options.tuning_budget_s, options.tuning_trials).share("choices")
    assert (share.seconds, share.trials) == (1.6, 4)


def test_each_verdict_takes_what_those_before_left_of_the_share(backend: Backend) -> None:
    machine = Fake()
    asked = costs(backend, machine, seconds=BATCH + 3)
    for width in range(16, 176, 8):
        asked.verdicts([[products(width, width + 8), products(2 * width + 8)]])
    assert len(machine.measured) == BATCH + 3


def test_choices_weighed_with_as_large_a_budget_are_not_measured_again(backend: Backend) -> None:
    spent = Measuring(Fake(), share_of(2.0, 5))
    program = program_key([], ["a choice"])
    record = spent.record(program, 5, backend.target, Setting())

    def was_done(seconds: float, trials: int | None, program: str = program, setting: Setting | None = None) -> bool:
        return Measuring(Fake(), share_of(seconds, trials)).was_done(
            program, [record], backend.target, setting or Setting()
        )

    assert record.is_plausible
    assert was_done(2.0, 5)
    assert was_done(1.0, 4)
    assert not was_done(3.0, 5)
    assert not was_done(2.0, 6)
    assert not was_done(2.0, None)
    assert not was_done(2.0, 5, program_key([], ["another choice"]))
    assert not was_done(2.0, 5, setting=Setting("memory"))

"""One search divided among this process and others, which are played here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from compiler.devices.kinds import propose
from compiler.trace import Trace
from compiler.tuning.helpers import Given, Task, Terms, fanned_out
from compiler.tuning.search import Budget, Contest, Search
from compiler.tuning.tune import workload_key
from tests.compiler.tuning.fakes import SETTING, TARGET, WORKLOADS, FakeMachine

TERMS = Terms(2, "fp32", 0.0, SETTING.to_json(), 1.0)


@dataclass
class Played:
    """Helpers that give these answers, the last one again and again; `asked` is what they were asked, in order."""

    answers: list[Given]
    there: bool = True
    asked: list[str] = field(default_factory=list)

    def offer(self, terms: Terms, tasks: Sequence[Task]) -> bool:
        self.asked.append("offer")
        return self.there

    def take(self, seconds: float, measured: int) -> Given:
        self.asked.append("take")
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]

    def over(self) -> None:
        self.asked.append("over")


def divided(helpers: Played, machine: FakeMachine, stopped: bool = False, slept: list[float] | None = None) -> Search:
    """A search that was divided; every look at its clock takes a second."""
    ticks = iter(range(1_000_000))
    contests = [Contest(workload_key(one), one, 1, propose(one, TARGET, 2)) for one in WORKLOADS]
    search = Search(contests, machine, Budget(3_000.0, None, lambda: float(next(ticks))), lambda: stopped, 2)
    sleep = (slept if slept is not None else []).append
    assert list(fanned_out(search, helpers, TERMS, Trace(), TARGET, SETTING, sleep)) or not machine.asked
    return search


def test_what_was_offered_is_taken_back_once_nothing_is_left() -> None:
    keys = tuple(workload_key(one) for one in WORKLOADS)
    helpers = Played([Given(keys), Given()])
    machine = FakeMachine()
    search = divided(helpers, machine)
    assert helpers.asked == ["offer", "take", "take", "over"]
    assert search.measured == len({(trial.key, trial.tile) for trial in machine.asked}) > len(WORKLOADS)


def test_what_was_offered_is_taken_back_when_the_owner_wants_the_best_so_far() -> None:
    """Kernels that were just taken for this process are not kept from others, and others do not go on."""
    helpers = Played([Given((workload_key(WORKLOADS[0]),), pending=2)])
    machine = FakeMachine()
    divided(helpers, machine, stopped=True)
    assert helpers.asked == ["offer", "take", "over"]
    assert not machine.asked


def test_others_are_waited_for_no_longer_than_the_budget_allows() -> None:
    helpers = Played([Given(pending=2)])
    slept: list[float] = []
    assert divided(helpers, FakeMachine(), slept=slept).spent == 1.0
    assert len(slept) == helpers.asked.count("take") - 1 > 1
    assert helpers.asked[-1] == "over"


def test_nothing_is_taken_where_there_is_nobody() -> None:
    helpers = Played([Given()], there=False)
    divided(helpers, FakeMachine())
    assert helpers.asked == ["offer"]

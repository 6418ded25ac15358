"""Trials divided among this process and others, which are played here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from compiler.devices.kinds import propose, tiles_of
from compiler.ir.machine import Record, Trial
from compiler.knowledge.kinds import AGAIN
from compiler.knowledge.known import identity
from compiler.trace import Trace
from compiler.tuning.helpers import WORTH_TRIALS, DividedMachine, Given, Task, Terms, with_mark
from compiler.tuning.menus import Tiler
from compiler.tuning.search import Budget, Contest, Search
from compiler.tuning.tune import measure_for_another, workload_key
from tests.compiler.tuning.fakes import SETTING, TARGET, WORKLOADS, FakeMachine, record_of, seconds_of

TERMS = Terms(2, "fp32", SETTING.to_json())
KEYS = [workload_key(one) for one in WORKLOADS]
TRIALS = [
    Trial(one, key, option.tile, 1)
    for one, key in zip(WORKLOADS, KEYS, strict=True)
    for option in propose(one, TARGET, 2)[:3]
]
"""Some of each kernel."""


def record(trial: Trial) -> Record:
    return record_of(trial, seconds_of(trial.tile))


@dataclass
class Played:
    """Helpers that give these answers, the last one again and again; `asked` is what they were asked, in order."""

    answers: list[Given]
    others: int = 1
    asked: list[str] = field(default_factory=list)
    tasks: list[Task] = field(default_factory=list)

    def offer(self, terms: Terms, tasks: Sequence[Task]) -> int:
        self.asked.append("offer")
        self.tasks = [*tasks]
        return self.others

    def take(self, seconds: float, measured: int) -> Given:
        self.asked.append("take")
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]

    def over(self) -> None:
        self.asked.append("over")


@dataclass
class Sharing:
    """Helpers of which one measures all kernels but the first that are offered, on a device like this one's."""

    machine: FakeMachine = field(default_factory=FakeMachine)
    tasks: list[Task] = field(default_factory=list)
    reported: bool = True

    def offer(self, terms: Terms, tasks: Sequence[Task]) -> int:
        self.tasks, self.reported = [*tasks], False
        return 1

    def take(self, seconds: float, measured: int) -> Given:
        if self.reported or not self.tasks:
            return Given()
        self.reported = True
        first, *others = self.tasks
        of = dict(zip(KEYS, WORKLOADS, strict=True))
        trials = [
            Trial(of[task.key], task.key, option.tile, 1)
            for task in others
            for option in propose(of[task.key], TARGET, 2)
            if option.tile.to_json() in task.tiles
        ]
        again = {task.key for task in others if task.again}
        found = self.machine.measure(trials, 1.0)
        records = tuple(with_mark(one) if one.workload in again else one.to_json() for one in found)
        return Given((first.key,), records, 0, 1.0, {"two": len(records)})

    def over(self) -> None:
        raise AssertionError("all was measured")


def divided(helpers: Played | Sharing, machine: FakeMachine, stopped: bool = False) -> DividedMachine:
    """Every look at its clock takes a second, as does a wait."""
    ticks = iter(range(1_000_000))
    return DividedMachine(
        machine,
        helpers,
        TERMS,
        TARGET,
        lambda: stopped,
        clock=lambda: float(next(ticks)),
        sleep=lambda seconds: None,
    )


def test_each_trial_is_measured_by_one() -> None:
    others = tuple(record(trial).to_json() for trial in TRIALS if trial.key != KEYS[0])
    helpers = Played([Given((KEYS[0],), pending=2), Given((), others, 0, 4.0, {"two": len(others)}), Given()])
    here = FakeMachine()
    machine = divided(helpers, here)
    found = [*machine.measure(TRIALS, 1_000.0)]
    assert helpers.asked == ["offer", "take", "take"]  # nothing to take back
    assert [trial.key for trial in here.asked] == [KEYS[0]] * 3
    assert {(one.workload, identity(one.variant)) for one in found} == {
        (trial.key, identity(trial.tile.to_json())) for trial in TRIALS
    }
    assert len(found) == len(TRIALS)
    assert [machine.elsewhere.made(one) for one in found] == [one.workload != KEYS[0] for one in found]
    assert machine.elsewhere.seconds == 4.0


def test_what_a_helper_was_given_and_did_not_measure_is_measured_here() -> None:
    """A kernel that is done, and of which nothing came, is not done."""
    some = [trial for trial in TRIALS if trial.key == KEYS[1]][:1]
    helpers = Played([Given((KEYS[0],)), Given((), tuple(record(one).to_json() for one in some), 0, 4.0, {"two": 1})])
    here = FakeMachine()
    found = [*divided(helpers, here).measure(TRIALS, 1_000.0)]
    assert len(found) == len(TRIALS)
    assert {*here.asked} == {*TRIALS} - {*some}


def test_records_of_nobody_asked_for_count_for_nothing() -> None:
    """Another tile of a kernel, another device, and the same one twice."""
    asked = [*TRIALS[:2], *TRIALS[3:]]
    foreign = {**record(TRIALS[3]).to_json(), "hardware": "elsewhere"}
    twice = [record(TRIALS[4]).to_json()] * 2
    helpers = Played([Given((), (record(TRIALS[2]).to_json(), foreign, *twice))])
    here = FakeMachine()
    assert len([*divided(helpers, here).measure(asked, 1_000.0)]) == len(asked)
    assert {*here.asked} == {*asked} - {TRIALS[4]}


def test_what_was_offered_is_taken_back_when_the_owner_wants_the_best_so_far() -> None:
    """Kernels that were just taken for this process are not kept from others, and others do not go on."""
    helpers, here = Played([Given((KEYS[0],), pending=2)]), FakeMachine()
    assert not [*divided(helpers, here, stopped=True).measure(TRIALS, 1_000.0)]
    assert helpers.asked == ["offer", "take", "over"]
    assert not here.asked


def test_others_are_waited_for_no_longer_than_the_budget_allows() -> None:
    helpers, here = Played([Given(pending=2, seconds=10.0)]), FakeMachine()
    assert not [*divided(helpers, here).measure(TRIALS, 50.0)]
    assert 2 < helpers.asked.count("take") <= 20  # of 50 seconds others took ten, and each look two
    assert helpers.asked[-1] == "over"
    assert not here.asked


def test_nothing_is_taken_where_there_is_nobody() -> None:
    helpers, here = Played([Given()], others=0), FakeMachine()
    assert len([*divided(helpers, here).measure(TRIALS, 1_000.0)]) == len(TRIALS) == len(here.asked)
    assert helpers.asked == ["offer"]


def test_few_trials_are_offered_only_to_who_has_built_them() -> None:
    few = TRIALS[: WORTH_TRIALS - 1]
    helpers, here = Played([Given((), tuple(record(one).to_json() for one in TRIALS))]), FakeMachine()
    machine = divided(helpers, here)
    assert [*machine.measure(few, 1_000.0)]
    assert not helpers.asked
    assert not helpers.tasks
    assert [*machine.measure(TRIALS, 1_000.0)]
    again = [*TRIALS[:2]]
    helpers.answers = [Given((), tuple(with_mark(record(one)) for one in again))]
    assert [one.variant[AGAIN] for one in machine.measure(again, 1_000.0)] == [True, True]
    assert [(task.key, task.again) for task in helpers.tasks] == [(KEYS[0], True)]


def test_helpers_begin_before_this_process_does() -> None:
    """What was offered is not offered again once it is to be measured."""
    helpers, here = (
        Played([Given((KEYS[0],)), Given((), tuple(record(one).to_json() for one in TRIALS))]),
        FakeMachine(),
    )
    machine = divided(helpers, here)
    machine.begin(TRIALS, 1_000.0)
    assert helpers.asked == ["offer"]
    assert not here.asked
    assert len([*machine.measure(TRIALS, 1_000.0)]) == len(TRIALS)
    machine.end()
    assert helpers.asked == ["offer", "take", "take"]


def test_what_was_offered_and_is_not_to_be_measured_is_taken_back() -> None:
    helpers = Played([Given()])
    machine = divided(helpers, FakeMachine())
    machine.begin(TRIALS, 1_000.0)
    machine.end()
    assert helpers.asked == ["offer", "over"]


def test_a_divided_search_finds_what_one_alone_finds() -> None:
    """Decisions do not depend on who measures; only the batches are larger."""

    def searched(helpers: Sharing | None) -> tuple[Search, FakeMachine]:
        machine = FakeMachine()
        contests = [Contest(workload_key(one), one, 1, propose(one, TARGET, 2)) for one in WORKLOADS]
        search = Search(contests, machine, Budget(3_000.0), lanes=2)
        if helpers is not None:
            split = divided(helpers, machine)
            search.machine, search.elsewhere = split, split.elsewhere
        assert [*search.run()]
        return search, machine

    helpers = Sharing()
    alone, divided_search = searched(None)[0], searched(helpers)[0]
    assert helpers.machine.asked
    assert divided_search.exhausted
    assert divided_search.total == alone.total
    assert [one.options[one.leader].tile for one in divided_search.contests] == [
        one.options[one.leader].tile for one in alone.contests
    ]


def test_a_helper_measures_legal_tiles_alone_until_there_is_no_more() -> None:
    legal = [trial.tile.to_json() for trial in TRIALS if trial.key == KEYS[0]]
    wrong = {**legal[0], "algorithm": "unheard_of"}
    machine, asked, reported = FakeMachine(), [], []
    tasks = [Task(KEYS[0], str(WORKLOADS[0]), [*legal[:2], wrong], 5.0)]
    rest = [[Task(KEYS[0], str(WORKLOADS[0]), legal[:2], 5.0, again=True)], []]

    def more(seconds: float, measured: int) -> Sequence[Task]:
        asked.append(measured)
        return rest.pop(0)

    tiler = Tiler(TARGET, tiles_of(TARGET), lambda workload, tile: 4)
    trace = Trace(lambda event: reported.append(event.data))
    assert measure_for_another(tasks, TERMS, tiler, machine, trace, more) == 4
    assert asked == [2, 2]
    assert [one["variant"].get(AGAIN, False) for one in reported] == [False, False, True, True]
    assert all(trial.tile.to_json() in legal for trial in machine.asked)

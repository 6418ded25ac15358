"""What records say of cores, which may be anything."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from compiler.contract import CompileOptions
from compiler.devices.cpu.target import this_machine
from compiler.ir.machine import Record, Setting
from compiler.knowledge.kinds import ALONE_S, CORES, TOGETHER_S
from compiler.knowledge.making import Once, cores_record, record_of
from compiler.knowledge.records import Records
from compiler.measure.cores import CoreSeconds
from compiler.schedule.solvers.ideals import Division
from compiler.steps.dividing import core_speeds
from compiler.steps.dividing.core_speeds import LONGEST_S, cores_known, levelled, program_known, seconds_by
from compiler.steps.dividing.costs import by_programs
from compiler.steps.dividing.devices import Devices

TOOK = CoreSeconds((1e-3, 2e-3), (1.5e-3, 2.5e-3))


def test_a_record_says_what_was_measured() -> None:
    record = cores_record("m", "two cores", this_machine(), {"plan": "p", "cores": [0, 1]}, TOOK)
    assert record.seconds == 2.5e-3
    assert record.threads == 2
    assert seconds_by(record, 2) == TOOK
    assert seconds_by(record, 3) is None
    assert seconds_by(None, 2) is None


@pytest.mark.parametrize(
    "lie", [None, "soon", 1e-3, [1e-3], [1e-3, 0.0], [1e-3, -1.0], [1e-3, 2 * LONGEST_S], [1, "2"]]
)
@pytest.mark.parametrize("of", [ALONE_S, TOGETHER_S])
def test_what_nobody_can_have_measured_is_not_believed(of: str, lie: Any) -> None:
    variant = {ALONE_S: [1e-3, 1e-3], TOGETHER_S: [1e-3, 1e-3], of: lie}
    record = record_of(CORES, "m", CORES.name, "two cores", this_machine(), variant, Once(1e-3), 2)
    assert seconds_by(record, 2) is None


@pytest.mark.parametrize(
    ("seconds", "levels"),
    [
        ([], []),
        ([4.0, 6.0], [4.0, 6.0]),
        ([4.0, 4.2], [4.1, 4.1]),
        ([1.0, 2.0, 1.05, 2.1], [1.025, 2.05, 1.025, 2.05]),
        ([1.0, 1.2, 1.09], [1.045, 1.2, 1.045]),
    ],
)
def test_cores_that_are_nearly_equally_fast_are_taken_to_be_equal(seconds: list[float], levels: list[float]) -> None:
    found = levelled(seconds)
    assert found == pytest.approx(levels)
    assert len({*found}) == len({*levels})


def known(records: list[Record], names: tuple[str, ...] = ("cpu:0", "cpu:1"), emulator: str = "") -> Record | None:
    """What is known of cores where nothing may be measured, of a plan "p" of a model "m"."""
    session = SimpleNamespace(
        backend=SimpleNamespace(runner=SimpleNamespace(emulator=emulator), target=this_machine()),
        records=Records(records),
        may_measure=False,
    )
    built = SimpleNamespace(tiles=SimpleNamespace(setting=Setting()), plans=SimpleNamespace(plan="p"))
    asked = CompileOptions(devices=names)
    devices = Devices(asked, asked.named_devices, (), (0, 0))
    return cores_known(cast("Any", session), devices, cast("Any", None), cast("Any", built), "m", Path())


def test_a_record_is_of_one_plan_on_the_same_cores_in_one_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core_speeds, "plan_digest", lambda plan: plan)
    identity = {"plan": "p", "cores": [0, 1], **Setting().to_json()}

    def of(model: str = "m", **changed: Any) -> Record:
        return cores_record(model, "by hand", this_machine(), {**identity, **changed}, TOOK)

    mine, later = of(), cores_record("m", "later", this_machine(), identity, TOOK)
    others = [of("n"), of(plan="q"), of(cores=[1, 0]), of(weights="memory"), of(toolchain="another")]
    assert known(others) is None
    assert known([mine, *others]) == mine
    assert known([mine, later]) == later
    assert known([mine, cores_record("m", "false", this_machine(), identity, CoreSeconds((0.0,), (1.0,)))]) == mine
    one = cores_record("m", "one", this_machine(), {**identity, "cores": [0]}, CoreSeconds((1e-3,), (1e-3,)))
    assert known([one], ("cpu:0", "cuda:0")) is None, "a GPU beside it is not measured so"
    assert known([mine], emulator="qemu") is None, "times under it mean nothing"


def test_a_program_of_another_target_is_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """By an artifact of which it is the one part; where nothing may be measured the last record counts."""
    opened: list[int] = []
    model = SimpleNamespace(random_inputs=lambda seed: {}, inputs=())
    monkeypatch.setattr(core_speeds, "core_seconds", lambda block, cores, stop: CoreSeconds((7e-3,), (7e-3,)))
    records = Records()
    session = SimpleNamespace(
        records=records,
        may_measure=True,
        options=SimpleNamespace(seed=1),
        budget=SimpleNamespace(stop_requested=lambda: False),
        add_records=lambda found: [records.add(one) for one in found],
    )

    def asked(core: int) -> Record | None:
        def open_it() -> Any:
            opened.append(core)
            return nullcontext(model)

        identity = {"plan": "p", "cores": [core], **Setting().to_json()}
        return program_known(cast("Any", session), this_machine(), "m", identity, open_it)

    found = asked(1)
    assert found is not None
    assert seconds_by(found, 1) == CoreSeconds((7e-3,), (7e-3,))
    assert [*records] == [found]
    assert asked(1) == found
    assert opened == [1]
    session.may_measure = False
    assert (asked(0), opened) == (None, [1])


def test_calls_are_as_much_slower_as_the_program_that_a_core_has() -> None:
    """Two cores of one target that differ by less than a tenth are equal; what has no record stays as it is."""
    division = Division([[], [0]], [[1e-3, 3e-3], [2e-3, 2e-3], [1e-3, 7e-3], [4e-3, 4e-3]])

    def record(seconds: float) -> Record:
        return cores_record("m", "one core", this_machine(), {}, CoreSeconds((seconds,), (seconds,)))

    found = by_programs(division, {1: record(5.8e-3), 2: record(6.2e-3)}, (0, 1, 1, 2))
    assert found.seconds[0] == [1e-3, 3e-3]
    assert found.seconds[1] == pytest.approx([3e-3, 3e-3])
    assert found.seconds[2] == pytest.approx([0.75e-3, 5.25e-3])
    assert found.seconds[3] == [4e-3, 4e-3]
    assert by_programs(division, {}, (0, 1, 1, 2)) == division

"""Records: looked up by kind, device, workload, setting and state as one would find them by reading all.

Each kind is made in one way.
"""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path

import pytest

from compiler.devices.cpu.target import PROFILES
from compiler.errors import InternalError
from compiler.ir.buffers import Buffer
from compiler.ir.machine import Record, Setting, Trial, Workload
from compiler.ir.plans.lanes import Handover
from compiler.ir.tile import Level, Tile
from compiler.knowledge import making
from compiler.knowledge.carried import carried, present
from compiler.knowledge.kinds import AGAIN, KERNEL, KINDS, PLAN, SEARCH, SOURCE, STAGE, STATE, Kind
from compiler.knowledge.known import identity
from compiler.knowledge.records import Records, covers
from compiler.measure.cores import CoreSeconds
from tests.parse import parse_kernel

TARGET = replace(PROFILES[0], hardware="here", lanes=2)
ELSEWHERE = replace(TARGET, hardware="elsewhere")
SETTING, OTHER = Setting("cache", "gcc 12"), Setting("memory", "gcc 12")
MAP = parse_kernel("kernel Relu(in x0: f32[5, 7]; out y0: f32[5, 7]) for i:5, j:7 y0[i, j] = max(x0[i, j], 0.0:f32)")
WORKLOAD = Workload(MAP, (Buffer.whole(0, MAP.inputs[0].type),), (Buffer.whole(1, MAP.outputs[0].type),), (False,))
TRIAL = Trial(WORKLOAD, "key", Tile("loops", (Level("register", (("i", 5),)),)), 2)
TOOK = making.Once(2e-6)


def one_of(kind: Kind, target: object, workload: str, setting: Setting, state: str, seconds: float) -> Record:
    variant = {**setting.to_json(), STATE: state}
    name, hardware = target.name, target.hardware  # type: ignore[attr-defined]
    return Record(kind.name, workload, "", "", name, hardware, variant, 1, seconds, seconds, seconds, 1)


def test_records_are_found_as_by_reading_all_of_them() -> None:
    """Seed 5: a thousand records of three kinds; every question is answered by as many, in the same order."""
    chance = random.Random(5)
    records = [
        one_of(
            chance.choice((KERNEL, STAGE, PLAN)),
            chance.choice((TARGET, ELSEWHERE)),
            chance.choice("abc"),
            chance.choice((SETTING, OTHER)),
            chance.choice(("near", "far")),
            1e-6 * at,
        )
        for at in range(1, 1001)
    ]
    index = Records(records)
    assert [*index] == records
    assert len(index) == 1000
    answers = 0
    for kind in (KERNEL, STAGE, PLAN):
        for workload in (None, "a", "c"):
            for setting in (None, SETTING):
                for state in (None, "far"):
                    read = [
                        one
                        for one in records
                        if (one.kind, one.target, one.hardware) == (kind.name, TARGET.name, "here")
                        and workload in (None, one.workload)
                        and (setting is None or setting.is_of(one))
                        and state in (None, one.variant[STATE])
                    ]
                    assert index.find(kind, TARGET, workload=workload, setting=setting, state=state) == read
                    answers += len(read)
    assert answers > 1000
    assert index.find(SEARCH, TARGET) == []
    assert index.find(KERNEL, TARGET, workload="nobody measured it") == []


def test_what_is_known_is_not_added_again() -> None:
    first = one_of(KERNEL, TARGET, "a", SETTING, "near", 1e-6)
    index = Records([first])
    assert not index.add(Record.from_json(json.loads(json.dumps(first.to_json()))))
    assert index.add(replace(first, seconds=2e-6))
    assert len(index) == 2
    assert first in index
    assert replace(first, samples=7) not in index
    assert Records.of(index) is index
    assert index[-1].seconds == 2e-6


def test_a_search_counts_for_no_larger_budget() -> None:
    marker = making.search_marker("space", "", TARGET, SETTING, making.Searched(60.0, 5, exhausted=False), 1e-3, 5)
    index = Records([marker])
    assert index.was_searched(SEARCH, "space", TARGET, SETTING, 60.0, 5)
    assert not index.was_searched(SEARCH, "space", TARGET, SETTING, 60.1, 5)
    assert not index.was_searched(SEARCH, "space", TARGET, SETTING, 60.0, 6)
    assert not index.was_searched(SEARCH, "space", TARGET, SETTING, 60.0)
    assert not index.was_searched(SEARCH, "space", TARGET, OTHER, 60.0, 5)
    assert not index.was_searched(SEARCH, "space", ELSEWHERE, SETTING, 60.0, 5)
    assert not index.was_searched(STAGE, "space", TARGET, SETTING, 60.0, 5)
    assert covers({"exhausted": True, "seconds": 0.1, "trials": 1}, 1e9, None)


def test_every_kind_is_made_as_the_table_says() -> None:
    """The keys of each variant, in the order in which artifacts and databases have had them."""
    setting = ["weights", "toolchain"]
    tile = ["algorithm", "levels", "scopes"]
    here = (TARGET, SETTING)
    reached = {"scheduler": "stages", "lanes": 2, STATE: "near", "plan": "p", "beside": "q", "ratio": 1.0}
    made = {
        KERNEL.name: (
            making.kernel_record(TRIAL, *here, TOOK, "code", {STATE: "near"}),
            [*tile, "lanes", *setting, SOURCE, STATE],
        ),
        "machine": (making.machine_record("fma_per_ns", "one", TARGET, TOOK, 1), []),
        "handover": (making.handover_record(Handover.of(50.0, 1e-12, 2e-12), TARGET), [STATE, "byte_s", "upgrade_s"]),
        "stage": (making.stage_record("s", "", *here, TOOK, "far", 1, 2, "code"), ["lanes", STATE, *setting, SOURCE]),
        SEARCH.name: (
            making.search_marker("s", "", *here, making.Searched(1.0, None, False, "near"), 1.0, 3),
            ["seconds", "trials", "exhausted", STATE, *setting],
        ),
        PLAN.name: (making.plan_record("m", "", TARGET, reached, TOOK, 2), [*reached]),
        "cores": (
            making.cores_record("m", "", TARGET, {"plan": "p", "cores": [0]}, CoreSeconds((1e-3,), (2e-3,))),
            ["plan", "cores", "alone_s", "together_s"],
        ),
        "stream": (making.stream_record("m", "", TARGET, {"parts": "p", "ratio": 1.0}, 1e-3, 2), ["parts", "ratio"]),
    }
    assert made.keys() == KINDS.keys()
    for name, (record, keys) in made.items():
        assert (record.kind, record.target, record.hardware) == (name, TARGET.name, "here")
        assert [*record.variant] == keys
        assert record.is_plausible
        KINDS[name].check(record.variant)
    marker = making.stages_marker("m", "", *here, "far", 0.5, 0.4, 2)
    assert (marker.kind, [*marker.variant], marker.seconds) == ("stage", ["budget_s", STATE, *setting], 0.4)


def test_a_field_that_the_table_lacks_is_refused() -> None:
    with pytest.raises(InternalError, match="kind kernel holds speed, "):
        making.kernel_record(TRIAL, TARGET, SETTING, TOOK, "code", {"speed": 1})
    assert AGAIN in KERNEL.fields


def test_the_page_on_architecture_names_every_kind() -> None:
    page = (Path(__file__).parents[3] / "docs" / "architecture.md").read_text()
    reported = page[page.index("- **Record**") : page.index("## Rooms")]
    assert KINDS
    assert [name for name in KINDS if f"`{name}`" not in reported] == []


@pytest.mark.parametrize("lie", [[], {"a": 1}, None, 10**400, float("nan")])
def test_a_record_whose_state_was_edited_stops_nobody(lie: object) -> None:
    """Of an earlier compiler, beside one that holds: what a key cannot be is no key."""
    earlier = replace(one_of(KERNEL, TARGET, "a", SETTING, "near", 1e-6), compiler="0.0.1")
    held = replace(earlier, variant={**earlier.variant, SOURCE: "digest", "algorithm": "loops", "levels": []})
    edited = replace(held, variant={**held.variant, STATE: lie, AGAIN: lie})
    sources = {identity(held.variant): lambda: "digest"}
    found = carried(Records([edited, held]), "a", sources, TARGET, SETTING)
    assert present(held) in found
    assert len(found) == 2

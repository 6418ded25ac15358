from __future__ import annotations

import json
import math
from typing import Any

import pytest

from compiler.contract import generator
from compiler.ir.machine import LEAST_SECONDS, MOST_SECONDS, Record, Setting, plausible

SETTING = Setting("cache", "gcc 12")
RECORD = Record("kernel", "key", "Conv", "", "cpu", "here", {**SETTING.to_json()}, 1, 1e-3, 1e-3, 1e-3, 9)


def test_what_was_measured_is_plausible_also_after_it_was_stored() -> None:
    plain = json.loads(json.dumps(RECORD.to_json()))
    assert plausible([plain, {**plain, "seconds": 1}, {**plain, "id": 3}]) == [
        RECORD,
        Record.from_json({**plain, "seconds": 1}),
        RECORD,
    ]


@pytest.mark.parametrize(
    "change",
    [
        {"seconds": 0.0},
        {"seconds": -1.0},
        {"seconds": 1e-320},
        {"seconds": math.nan},
        {"seconds": math.inf},
        {"seconds": 2.0**53},
        {"seconds": "1e-3"},
        {"threads": 0},
        {"threads": "1"},
        {"variant": None},
        {"variant": ["cache"]},
        *({text: None} for text in ("kind", "workload", "operator", "description", "target", "hardware", "compiler")),
        *({text: 7} for text in ("kind", "workload", "operator", "description", "target", "hardware", "compiler")),
        {"seconds": LEAST_SECONDS / 2},
        {"seconds": MOST_SECONDS * 2},
    ],
)
def test_what_nobody_can_have_measured_counts_for_nothing(change: dict[str, Any]) -> None:
    assert plausible([{**RECORD.to_json(), **change}]) == []


@pytest.mark.parametrize("seconds", [LEAST_SECONDS, MOST_SECONDS])
def test_the_shortest_and_the_longest_that_can_be_measured_count(seconds: float) -> None:
    assert len(plausible([{**RECORD.to_json(), "seconds": seconds}])) == 1


@pytest.mark.parametrize("name", sorted(Record.__dataclass_fields__))
def test_a_record_that_lacks_a_field_counts_for_nothing(name: str) -> None:
    plain = RECORD.to_json()
    del plain[name]
    assert plausible([plain]) == []


def test_a_setting_is_weights_and_toolchain_and_a_record_of_it_is_by_this_compiler_or_by_another() -> None:
    assert SETTING.is_of(RECORD)
    assert not Setting("memory", "gcc 12").is_of(RECORD)
    assert not Setting("cache", "clang 19").is_of(RECORD)
    other = Record.from_json({**RECORD.to_json(), "compiler": generator() + "x"})
    assert not SETTING.is_of(other)
    assert SETTING.is_like(other)
    assert not Setting("memory", "gcc 12").is_like(other)

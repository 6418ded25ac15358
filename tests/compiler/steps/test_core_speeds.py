"""What records say of cores, which may be anything."""

from __future__ import annotations

from typing import Any

import pytest

from compiler.devices.cpu.target import this_machine
from compiler.knowledge.kinds import ALONE_S, CORES, TOGETHER_S
from compiler.knowledge.making import Once, cores_record, record_of
from compiler.measure.cores import CoreSeconds
from compiler.steps.core_speeds import LONGEST_S, seconds_by

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

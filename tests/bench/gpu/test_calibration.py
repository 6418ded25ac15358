from __future__ import annotations

from typing import Any

import pytest

from bench.gpu.calibration import calibrated
from compiler.schedule import PERSISTENT


def row(depth: int, joins: int, fan_in: int, longer_us: float | None) -> dict[str, Any]:
    ms = None if longer_us is None else 0.1 + 1e-3 * longer_us
    return {"scheduler": "streams", "depth": depth, "joins": joins, "fan_in": fan_in, "predicted_ms": 0.1, "ms": ms}


def test_what_launches_and_joins_add_is_found_again() -> None:
    counts = [(20, 0, 0), (10, 3, 1), (12, 7, 2), (30, 1, 1), (9, 9, 8)]
    longer = [0.4 * depth - 0.5 * joins + 0.1 * fan_in for depth, joins, fan_in in counts]
    rows = [row(*count, us) for count, us in zip(counts, longer, strict=True)]
    persistent = row(9, 9, 1, -50.0) | {"scheduler": PERSISTENT}
    found = calibrated([*rows, row(9, 9, 1, None), persistent])
    assert found
    assert [found.launch_us, found.join_us, found.fan_in_us] == pytest.approx([0.4, -0.5, 0.1])
    assert found.plans == 5
    assert found.left_us == pytest.approx(0.0, abs=1e-9)
    assert "+0.40 µs for each launch of the longest chain, -0.50 µs for each of these that waits" in str(found)
    assert "+0.10 µs for each further stream" in str(found)


def test_what_is_not_explained_is_told() -> None:
    pairs = [(counts, us) for counts in ((10, 0, 0), (10, 1, 0), (10, 1, 1)) for us in (-1.0, 1.0)]
    found = calibrated([row(*counts, 2.0 * counts[1] + us) for counts, us in pairs])
    assert found
    assert [found.launch_us, found.join_us, found.fan_in_us, found.left_us] == pytest.approx([0.0, 2.0, 0.0, 1.0])


def test_too_few_plans_or_no_joins_tell_nothing() -> None:
    assert calibrated([]) is None
    assert calibrated([row(10, 1, 0, 1.0), row(20, 0, 0, 1.0), row(20, 2, 1, 1.0)]) is None
    assert calibrated([row(depth, 0, 0, 1.0) for depth in (10, 20, 30, 40)]) is None
    assert calibrated([row(depth, 1, 1, 1.0) for depth in (10, 20, 30, 40)]) is None

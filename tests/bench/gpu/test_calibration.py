from __future__ import annotations

from typing import Any

import pytest

from bench.gpu.calibration import calibrated


def row(depth: int, joins: int, longer_us: float | None) -> dict[str, Any]:
    ms = None if longer_us is None else 0.1 + 1e-3 * longer_us
    return {"depth": depth, "joins": joins, "predicted_ms": 0.1, "ms": ms}


def test_what_launches_and_joins_add_is_found_again() -> None:
    counts = [(20, 0), (10, 3), (12, 7), (30, 1)]
    found = calibrated([*(row(depth, joins, 0.4 * depth - 0.5 * joins) for depth, joins in counts), row(9, 9, None)])
    assert found
    assert [found.launch_us, found.join_us] == pytest.approx([0.4, -0.5])
    assert found.plans == 4
    assert found.left_us == pytest.approx(0.0, abs=1e-9)
    assert "+0.40 µs for each launch of the longest chain, -0.50 µs for each of these that joins" in str(found)


def test_what_is_not_explained_is_told() -> None:
    found = calibrated([row(10, 0, 1.0), row(10, 0, -1.0), row(10, 1, 3.0), row(10, 1, 1.0)])
    assert found
    assert [found.launch_us, found.join_us, found.left_us] == pytest.approx([0.0, 2.0, 1.0])


def test_too_few_plans_or_no_joins_tell_nothing() -> None:
    assert calibrated([]) is None
    assert calibrated([row(10, 1, 1.0), row(20, 0, 1.0)]) is None
    assert calibrated([row(10, 0, 1.0), row(20, 0, 1.0), row(30, 0, 2.0)]) is None

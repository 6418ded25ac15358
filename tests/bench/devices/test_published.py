"""The fit to published times, of the smaller networks."""

from __future__ import annotations

from bench.devices.published import CORAL, fitted, table


def test_rows_are_predicted_and_shown_beside_what_was_published() -> None:
    small = tuple(row for row in CORAL if row.name in ("SqueezeNet", "MobileNet v1", "MobileNet v2", "Inception v1"))
    found = fitted(small)
    assert max(map(abs, found["arm"].errors.values())) < 0.25
    text = table(small, found)
    assert "| MobileNet v1 | 164 |" in text
    assert text.count("\n|") == 2 + len(small)

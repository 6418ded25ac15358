from __future__ import annotations

import pytest

from bench.ranges.run import Row, main, table
from bench.ranges.subjects import SUBJECTS


def test_each_subject_is_timed_at_its_opt_and_inside_of_its_range() -> None:
    for one in SUBJECTS:
        ranges = {name: size for name, size in one.dims.items() if not isinstance(size, int)}
        assert {name: size["opt"] for name, size in ranges.items()} in [dict(sizes) for sizes in one.sizes]
        for sizes in one.sizes:
            assert all(ranges[name]["min"] <= size <= ranges[name]["max"] for name, size in sizes.items())
            assert one.at(sizes).keys() == one.dims.keys()


def test_the_table_marks_the_size_that_the_range_is_tuned_for() -> None:
    text = table([Row("m", {"n": 4}, True, 2e-3, 1e-3, 3e-3, 0.0), Row("m", {"n": 8}, False, 1e-3, 1e-3, 1e-3, 0.0)])
    assert "| m | 4* | 2.00 | 1.00 | 2.00 | 1.50 |" in text
    assert "| m | 8 | 1.00 | 1.00 | 1.00 | 1.00 |" in text


def test_an_unknown_model_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["mystery"])
    assert ended.value.code == 2
    assert "no such model: mystery" in capsys.readouterr().err

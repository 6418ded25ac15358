"""The picture of the README is drawn from the table of results, and is the one that lies in the tree."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from bench import bars

TABLE = """# Results

## fp32, one thread

| model | ours ms | ONNX Runtime ms | OpenVINO ms | ours / best | error |
|---|---:|---:|---:|---:|---:|
| slow (3 rounds) | 20.0 | 10 | 40.5 | 2.00 | 1e-6 |
| fast | 1.5 | 3.0 | 4.0 | 0.500 (0.4..0.6) | 1e-6 |
| geometric mean of 2 | | | | **1.00** | |

## another

| fast | 9 | 9 | 9 | 1 | 1 |
"""


def test_times_are_those_of_the_section_the_best_ratio_first() -> None:
    found = bars.times(TABLE, ["slow", "fast"])
    assert [(row.network, row.ms, row.ratio) for row in found] == [
        ("fast", (1.5, 3.0, 4.0), 0.5),
        ("slow", (20.0, 10.0, 40.5), 2.0),
    ]


def test_a_network_that_the_table_lacks_is_named() -> None:
    with pytest.raises(ValueError, match="has no alexnet"):
        bars.times(TABLE, ["fast", "alexnet"])


def test_a_bar_is_as_long_as_its_part_of_the_slowest_time() -> None:
    picture = ET.fromstring(bars.drawn(bars.times(TABLE, ["fast"])))
    colours = [colour for _, colour in bars.ENGINES]
    lengths = [
        float(one.attrib["width"])
        for one in picture.iter("{http://www.w3.org/2000/svg}rect")
        if one.attrib["fill"] in colours and float(one.attrib["x"]) == bars.LEFT and float(one.attrib["y"]) > bars.TOP
    ]
    whole = bars.WIDTH - bars.LEFT - bars.RIGHT
    assert lengths == pytest.approx([whole * 1.5 / 4, whole * 3 / 4, whole], abs=0.06)
    texts = [one.text for one in picture.iter("{http://www.w3.org/2000/svg}text")]
    assert {"fast", "1.5", "3", "4", "0.50"} <= set(texts)


def test_the_picture_in_the_tree_is_what_the_command_draws(tmp_path: Path) -> None:
    assert bars.main(["--out", str(tmp_path / "bars.svg")]) == 0
    assert (tmp_path / "bars.svg").read_text() == bars.PICTURE.read_text()
    assert len(bars.NETWORKS) == 10


def test_the_ratios_of_the_table_are_about_those_of_its_times() -> None:
    for row in bars.times(bars.RESULTS.read_text()):
        assert row.ratio == pytest.approx(row.ms[0] / min(row.ms[1:]), abs=0.02), row.network

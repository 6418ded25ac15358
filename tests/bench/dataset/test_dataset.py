from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from bench.dataset.collect import FAR, Asked, picked
from bench.dataset.judge import HEAD, at_rates, judged, table, untuned
from bench.dataset.run import main, read
from compiler.ir.parsing.parse import parse_workload
from compiler.ir.tile import Level, Tile
from compiler.tuning.tune import workload_key

TILES = [Tile("contraction", (Level("register", (("m", at + 1),)),)) for at in range(8)]


def row(kernel: str, cost: float | None, first: float, again: float, uses: int = 1) -> dict[str, Any]:
    measured = {"first_s": first, "again_s": again}
    return {"model": "net", "target": "cpu", "workload": kernel, "uses": uses, "untuned_s": cost, **measured}


def test_a_cost_is_judged_by_the_second_measurement_of_what_it_chooses() -> None:
    """The tile that was luckiest at first is as slow as others when it is measured again."""
    rows = [row("a", 1.0, 3.0, 3.0), row("a", 2.0, 1.0, 2.0), row("b", 1.0, 1.0, 1.0, uses=5), row("b", 2.0, 4.0, 4.0)]
    found = judged(rows, untuned)
    assert (found.kernels, found.chosen) == (2, (3.0 + 5 * 1.0) / (2.0 + 5 * 1.0))
    assert math.isnan(found.ranks)


def test_ranks_are_compared_within_kernels_beside_those_of_two_measurements() -> None:
    rising = [row("a", at, 10.0 * at, 10.0 * at) for at in range(1, 5)]
    falling = [row("b", at, 0.1 * at, 0.1 * (5 - at)) for at in range(1, 5)]
    assert judged(rising, untuned).ranks == judged(rising, untuned).ceiling == pytest.approx(1.0)
    both = judged([*rising, *falling], untuned)
    assert [both.ranks, both.ceiling] == pytest.approx([0.0, 0.0])


def test_a_tile_that_is_not_proposed_is_not_chosen_but_may_be_the_best() -> None:
    found = judged([row("a", None, 1.0, 1.0), row("a", 5.0, 2.0, 2.0)], untuned)
    assert found.chosen == 2.0


def test_favourites_by_either_cost_are_measured_and_of_others_those_that_are_not_far_behind() -> None:
    plain = dict(zip(TILES[:6], [1.0, 2.0, 3.0, 3.5, 3.9, 1.01 * FAR], strict=True))
    rated = dict(zip(TILES[4:], [4.0, 2.0, 1.0, 3.0], strict=True))
    asked = Asked(kernels=1, favourites=2, others=2, seed=0)
    found = picked(plain, rated, asked, "0123456789abcdef")
    assert found[:4] == [TILES[0], TILES[1], TILES[6], TILES[5]]
    assert len(found) == len({*found}) == 6
    assert found == picked(plain, rated, asked, "0123456789abcdef")
    assert {*picked(plain, rated, Asked(1, 2, 9, 0), "0123456789abcdef")} == {*TILES}


def test_a_layer_is_measured_and_read_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "tiles.jsonl"
    sizes = ["--kernels", "1", "--favourites", "2", "--others", "1", "--out", str(out)]
    assert main(["product-0", *sizes]) == 0
    rows = read(out)
    assert 2 <= len(rows) <= 5
    assert all(one["first_s"] > 0 and one["again_s"] > 0 and at_rates(one) > 0 for one in rows)
    assert all(Tile.from_json(one["tile"]).to_json() == one["tile"] for one in rows)
    head, kernel = map(json.loads, out.read_text().splitlines()[:2])
    assert {"hardware", "target", "caches", "rates", "compiler"} == {*head}
    assert workload_key(parse_workload(kernel["text"])) == kernel["workload"] == rows[0]["workload"]
    assert HEAD in capsys.readouterr().out
    assert table(rows).count("\n") == 3
    assert main(["product-0", *sizes]) == 0
    assert read(out) == rows, "a kernel is measured once"


@pytest.mark.parametrize("arguments", [["no_such_network"], ["product-0", "--kernels", "0"], []])
def test_wrong_arguments_are_told(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert capsys.readouterr().err

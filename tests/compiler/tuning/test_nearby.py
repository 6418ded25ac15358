from __future__ import annotations

from dataclasses import replace

import pytest

from compiler.ir.machine import Record, Setting
from compiler.ir.tile import Level, Tile
from compiler.tuning.nearby import Nearby

SETTING = Setting()
SHAPES = "f32[1, {c}, 56, 56] <0 2 3 1>, f32[{c}, {c}, 3, 3] -> f32[1, {c}, 56, 56] <0 2 3 1>"


def tile(rows: int, block: int) -> Tile:
    return Tile("contraction", (Level("block", (("m", block),)), Level("register", (("m", rows), ("n", 32)))))


def record(workload: str, at: Tile, seconds: float, channels: int = 64, hardware: str = "here") -> Record:
    variant = {**at.to_json(), "lanes": 1, **SETTING.to_json()}
    shapes = SHAPES.format(c=channels)
    return Record("kernel", workload, "Conv", shapes, "cpu", hardware, variant, 1, seconds, seconds, seconds, 9)


TILES = [tile(14, 56), tile(7, 56), tile(3, 9)]


def test_a_near_shape_tells_by_its_inner_tiles_how_far_each_was_behind() -> None:
    records = [record("near", tile(14, 28), 1.0), record("near", tile(14, 112), 3.0), record("near", tile(7, 28), 2.0)]
    hints = Nearby(records, "cpu", "here", SETTING).hints("asked", "Conv", SHAPES.format(c=96), TILES)
    assert hints == {TILES[0]: 1.0, TILES[1]: 2.0}


def test_descriptions_that_nobody_measured_hint_at_nothing() -> None:
    """Edited by hand: as many dimensions as none has, numbers without end, extents that are no numbers."""
    strange = [
        replace(record("a", tile(14, 28), 1.0), description=SHAPES.format(c=64).replace("56, 56", "#, 56")),
        replace(record("b", tile(14, 28), 1.0), description=SHAPES.format(c="9" * 5000)),
        replace(
            record("c", tile(14, 28), 1.0),
            variant={**SETTING.to_json(), "algorithm": "x", "levels": {"L1": {"m": float("inf")}}, "scopes": {}},
        ),
    ]
    nearby = Nearby([*strange, record("near", tile(14, 28), 1.0, 72)], "cpu", "here", SETTING)
    assert nearby.hints("asked", "Conv", SHAPES.format(c=72), TILES) == {TILES[0]: 1.0}
    assert Nearby(strange, "cpu", "here", SETTING).hints("asked", "Conv", SHAPES.format(c=72), TILES) == {}


def test_code_of_another_version_of_the_compiler_is_near_hardware() -> None:
    older = [
        replace(record("asked", at, seconds), compiler="0.0.1") for at, seconds in ((TILES[0], 2.0), (TILES[1], 1.0))
    ]
    hints = Nearby(older, "cpu", "here", SETTING).hints("asked", "Conv", SHAPES.format(c=72), TILES)
    assert hints == {TILES[0]: 2.0, TILES[1]: 1.0}


def test_the_nearest_of_several_shapes_is_asked() -> None:
    records = [
        record("far", tile(14, 28), 1.0, 128),
        record("far", tile(7, 28), 2.0, 128),
        record("near", tile(14, 28), 3.0, 80),
        record("near", tile(7, 28), 1.0, 80),
    ]
    hints = Nearby(records, "cpu", "here", SETTING).hints("asked", "Conv", SHAPES.format(c=72), TILES)
    assert hints == {TILES[0]: 3.0, TILES[1]: 1.0}


@pytest.mark.parametrize(
    ("operator", "shapes"),
    [
        ("Conv", SHAPES.format(c=130)),
        ("MatMul", SHAPES.format(c=64)),
        ("Conv", SHAPES.format(c=64).replace("<0 2 3 1>", "")),
        ("Conv", "f32[] -> f32[]"),
    ],
)
def test_another_operator_layout_or_size_is_not_near(operator: str, shapes: str) -> None:
    records = [record("known", tile(14, 28), 1.0), record("known", tile(7, 28), 2.0)]
    assert Nearby(records, "cpu", "here", SETTING).hints("asked", operator, shapes, TILES) == {}


def test_the_workload_itself_on_near_hardware_is_compared_by_its_whole_tiles_and_counts_more() -> None:
    records = [
        record("near", tile(14, 28), 1.0, 80),
        record("near", tile(7, 28), 2.0, 80),
        record("asked", TILES[0], 6.0, hardware="there"),
        record("asked", TILES[1], 4.0, hardware="there"),
        record("asked", tile(7, 28), 1.0, hardware="there"),
    ]
    hints = Nearby(records, "cpu", "here", SETTING).hints("asked", "Conv", SHAPES.format(c=64), TILES)
    assert hints == {TILES[0]: 1.5, TILES[1]: 1.0}


def test_other_targets_kinds_and_the_workloads_own_records_give_no_hints() -> None:
    known = record("asked", TILES[0], 1.0)
    assert Nearby([known], "cpu", "here", SETTING).hints("asked", "Conv", SHAPES.format(c=64), TILES) == {}
    assert (
        Nearby([record("near", TILES[0], 1.0)], "other", "here", SETTING).hints(
            "asked", "Conv", known.description, TILES
        )
        == {}
    )


def test_a_record_whose_variant_is_no_tile_gives_no_hint() -> None:
    good, bad = record("near", tile(14, 28), 1.0, 80), record("near", tile(7, 28), 2.0, 80)
    for variant in ({}, {"algorithm": "contraction", "levels": 7, "scopes": {}}, {"weights": ["cache"]}):
        broken = replace(bad, variant={**SETTING.to_json(), **variant})
        hints = Nearby([good, broken], "cpu", "here", SETTING).hints("asked", "Conv", SHAPES.format(c=64), TILES)
        assert hints == {TILES[0]: 1.0}

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compiler.ir.tile import HIERARCHY, Level, Tile

AXES = st.sampled_from(["k", "n", "m", "oy", "ox", "b"])
LEVELS = st.lists(st.sampled_from([*HIERARCHY, "tensor_core", "a"]), unique=True, max_size=5)
EXTENTS = st.dictionaries(AXES, st.integers(1, 4096), max_size=3).map(lambda extents: tuple(extents.items()))


@st.composite
def tiles(draw: st.DrawFn) -> Tile:
    levels = tuple(Level(name, draw(EXTENTS)) for name in draw(LEVELS))
    scopes = draw(st.dictionaries(st.sampled_from(["t0", "t1", "t10", "t2"]), st.sampled_from(["register", "L1"])))
    return Tile(draw(st.sampled_from(["loops", "contraction"])), levels, tuple(scopes.items()))


def shuffled(plain: Any, random: Any) -> Any:
    """The same JSON with the keys of every object in another order."""
    if not isinstance(plain, dict):
        return plain
    keys = list(plain)
    random.shuffle(keys)
    return {key: shuffled(plain[key], random) for key in keys}


@settings(derandomize=True, deadline=None, max_examples=300)
@given(tiles(), st.randoms(use_true_random=False))
def test_a_tile_is_equal_to_itself_in_whatever_order_a_database_returns_its_keys(tile: Tile, random: Any) -> None:
    plain = tile.to_json()
    for stored in (json.loads(json.dumps(plain, sort_keys=True)), shuffled(plain, random)):
        again = Tile.from_json(stored)
        assert again == tile
        assert str(again) == str(tile)
        assert json.dumps(again.to_json()) == json.dumps(plain)


def test_levels_are_kept_outermost_first_and_axes_by_their_roles() -> None:
    tile = Tile("contraction", (Level("vector", (("n", 8),)), Level("block", (("k", 64), ("n", 32), ("m", 6)))))
    assert str(tile) == "contraction block(m:6 n:32 k:64) vector(n:8)"


@pytest.mark.parametrize(
    "plain",
    [
        {},
        {"algorithm": "loops", "levels": {}},
        {"algorithm": "loops", "levels": [], "scopes": {}},
        {"algorithm": "loops", "levels": {"L1": 3}, "scopes": {}},
        {"algorithm": "loops", "levels": {"L1": {"m": "wide"}}, "scopes": {}},
        {"algorithm": "loops", "levels": {}, "scopes": "register"},
    ],
)
def test_what_is_no_tile_is_refused(plain: dict[str, Any]) -> None:
    with pytest.raises((KeyError, ValueError)):
        Tile.from_json(plain)

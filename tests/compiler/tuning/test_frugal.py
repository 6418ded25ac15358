"""Which tile leaves most of a device to other kernels, at little loss."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from compiler.ir.tile import Tile
from compiler.tuning.frugal import LESS, SLOWER, frugal
from compiler.tuning.proposal import Proposal

SHARES = st.sampled_from([0.1, 0.25, 0.5, 1.0])


def options(*found: tuple[float, float]) -> list[Proposal]:
    """Of seconds and shares."""
    return [Proposal(Tile(str(at)), seconds, share=share) for at, (seconds, share) in enumerate(found)]


def seconds(of: Sequence[Proposal]) -> dict[int, float]:
    return {at: option.seconds for at, option in enumerate(of)}


def test_the_tile_that_takes_up_least_comes_first_and_what_is_slow_or_saves_little_not_at_all() -> None:
    fast, large, larger, slow, hardly = (1.0, 1.0), (1.1, 0.5), (1.2, 0.25), (2.0, 0.1), (1.2, 0.75)
    found = options(fast, large, larger, slow, hardly)
    assert frugal(found, seconds(found), 0) == [2, 1]


def test_what_is_not_known_is_not_offered() -> None:
    found = options((1.0, 1.0), (1.1, 0.5), (1.1, 0.25))
    assert frugal(found, {0: 1.0, 1: 1.1}, 0) == [1]


def test_what_is_faster_than_the_one_that_was_taken_is_not_offered_as_its_slower_companion() -> None:
    """Where hints put a tile before those that the model thinks faster."""
    found = options((1.0, 0.25), (1.2, 1.0), (1.3, 0.5))
    assert frugal(found, seconds(found), 1) == [2]


@given(st.lists(st.tuples(st.sampled_from([1.0, 1.2, 1.5, 3.0]), SHARES), min_size=1, max_size=8), st.data())
def test_all_that_is_offered_saves_enough_and_is_fast_enough(
    drawn: list[tuple[float, float]], data: st.DataObject
) -> None:
    found = options(*drawn)
    fast = data.draw(st.sampled_from(range(len(found))))
    taken = [option.share * option.seconds for option in found]
    offered = frugal(found, seconds(found), fast)
    assert [taken[at] for at in offered] == sorted(taken[at] for at in offered)
    for at, option in enumerate(found):
        enough = taken[at] <= LESS * taken[fast] and option.share < found[fast].share
        assert (at in offered) == (enough and 1.0 <= option.seconds / found[fast].seconds <= SLOWER)


def test_where_all_tiles_keep_a_whole_lane_at_work_none_is_frugal() -> None:
    found = options((1.0, 1.0), (0.5, 1.0), (2.0, 1.0))
    assert frugal(found, seconds(found), 0) == []

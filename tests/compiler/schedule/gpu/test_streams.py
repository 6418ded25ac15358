"""Streams against every other way.

The edges that remain, how many streams there are, and how few edges lie between them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

from hypothesis import given, settings

from compiler.schedule.gpu.streams import crossings, elsewhere, reduced, streams
from tests.compiler.schedule.solvers.test_early_start import Graph, graphs

Before = Sequence[Sequence[int]]


def paths(before: Before) -> list[set[int]]:
    """For each launch those from which a path leads to it."""
    found: list[set[int]] = []
    for earlier in before:
        found.append({*earlier}.union(*(found[one] for one in earlier)))
    return found


def without(before: Before, launch: int, edge: int) -> list[list[int]]:
    return [[one for one in earlier if (at, one) != (launch, edge)] for at, earlier in enumerate(before)]


@given(graphs())
@settings(max_examples=200)
def test_the_reduction_keeps_every_order_and_no_edge_that_others_imply(graph: Graph) -> None:
    before, _ = graph
    left = reduced(before)
    assert paths(left) == paths(before)
    assert all({*few} <= {*all_} for few, all_ in zip(left, before, strict=True))
    for launch, earlier in enumerate(left):
        for one in earlier:
            assert paths(without(left, launch, one)) != paths(left)


def most_joined(before: Before) -> int:
    """Of all ways to let each launch follow at most one predecessor, none of them twice, the most followers."""
    return max(sum(one is not None for one in chosen) for chosen in ways_to_follow(before))


def ways_to_follow(before: Before) -> Iterator[tuple[int | None, ...]]:
    """For each launch the predecessor that it follows, or None; no two follow the same."""
    for chosen in product(*((None, *earlier) for earlier in before)):
        taken = [one for one in chosen if one is not None]
        if len(taken) == len({*taken}):
            yield chosen


@given(graphs(most=8))
@settings(max_examples=200)
def test_no_other_streams_leave_fewer_launches_that_wait_for_others(graph: Graph) -> None:
    before = reduced(graph[0])
    waits = elsewhere(before, streams(before))
    least = min(
        sum(bool({*earlier} - {one}) for one, earlier in zip(chosen, before, strict=True))
        for chosen in ways_to_follow(before)
    )
    assert sum(map(bool, waits)) == least
    assert sum(waits) == crossings(before, streams(before))


@given(graphs(most=8))
@settings(max_examples=200)
def test_there_are_no_more_streams_and_edges_between_them_than_there_must_be(graph: Graph) -> None:
    before = reduced(graph[0])
    found = streams(before)
    joined = most_joined(before)
    assert max(found) + 1 == len({*found}) == len(before) - joined
    assert crossings(before, found) == sum(map(len, before)) - joined


@given(graphs())
@settings(max_examples=200)
def test_a_launch_follows_on_its_stream_one_that_it_waits_for(graph: Graph) -> None:
    """So a stream orders nothing that edges do not, and launches without an order are on different streams."""
    before = reduced(graph[0])
    found = streams(before)
    last: dict[int, int] = {}
    for launch, stream in enumerate(found):
        assert stream not in last or last[stream] in before[launch]
        assert stream in last or stream == len(last)
        last[stream] = launch


def test_a_launch_whose_predecessor_has_a_follower_takes_it_where_that_can_follow_another() -> None:
    """Launch 2 inherits from 0 first; 3 can follow only 0, and 2 also 1."""
    before = ((), (), (0, 1), (0,))
    assert streams(before) == (0, 1, 1, 0)
    assert crossings(before, streams(before)) == 1


def test_a_launch_with_one_predecessor_follows_it_before_one_with_several_and_the_longer_way_before_the_shorter() -> (
    None
):
    """Launch 3 waits for two, whichever it follows; of 4 and 5, which both wait for 2, 5 leads further."""
    before = ((), (), (0,), (0, 1), (2,), (2,), (5,))
    found = streams(before)
    assert (found[2], found[3]) == (found[0], found[1])
    assert found[5] == found[6] == found[2] != found[4]


def test_a_chain_is_one_stream_and_nothing_has_none() -> None:
    assert streams(((), (0,), (1,))) == (0, 0, 0)
    assert streams(()) == ()

"""Where a problem falls into blocks that can be scheduled one by one.

Between two blocks in series every call of the one comes before every call of the next: in a graph without loose ends,
exactly one tensor is live there. A block may fall into branches in parallel, a branch into blocks again, and so on:
the series-parallel decomposition (Valdes, Tarjan and Lawler, "The recognition of series parallel digraphs", SIAM J.
Comput. 11, 1982). What is not of that kind is left whole, or cut where few tensors are live, which no longer keeps
every best schedule.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

Before = Sequence[Sequence[int]]


def series(before: Before, calls: Sequence[int]) -> list[tuple[int, ...]]:
    """The most blocks such that all calls of one come before all of the next."""
    ancestors = ancestors_within(before, calls)
    order = sorted(calls, key=lambda call: (ancestors[call].bit_count(), call))
    common = [-1]  # for each position the calls that come before all from there on
    for call in reversed(order):
        common.append(common[-1] & ancestors[call])
    common.reverse()
    blocks: list[tuple[int, ...]] = []
    block: list[int] = []
    seen = 0
    for at, call in enumerate(order, 1):
        block.append(call)
        seen |= 1 << call
        if seen & ~common[at] == 0:
            blocks.append(tuple(sorted(block)))
            block = []
    return blocks


def branches(before: Before, calls: Sequence[int]) -> list[tuple[int, ...]]:
    """Parts without an edge between them: the weakly connected components, by their first calls."""
    part_of: dict[int, list[int]] = {}
    inside = {*calls}
    for call in calls:
        joined = [call]
        for other in {id(part_of[one]): part_of[one] for one in before[call] if one in inside}.values():
            joined += other
        for one in joined:
            part_of[one] = joined
    return sorted({id(part): tuple(sorted(part)) for part in part_of.values()}.values())


def ancestors_within(before: Before, calls: Sequence[int]) -> dict[int, int]:
    """For each of some calls in ascending order, as bits, those of them that it must come after."""
    found: dict[int, int] = {}
    for call in calls:
        bits = 0
        for one in before[call]:
            if one in found:
                bits |= found[one] | 1 << one
        found[call] = bits
    return found


def live_after(before: Before, calls: Sequence[int]) -> list[int]:
    """How many tensors are live after each of some calls, run in this order.

    Calls whose results have the same readers left count as one: they write parts of one tensor.
    """
    readers: dict[int, list[int]] = {call: [] for call in calls}
    for call in calls:
        for one in before[call]:
            if one in readers:
                readers[one].append(call)
    live: dict[int, tuple[int, ...]] = {}
    found = []
    for call in calls:
        live[call] = tuple(readers[call])
        for one in before[call]:
            if one in live:
                live[one] = tuple(reader for reader in live[one] if reader > call)
        live = {one: left for one, left in live.items() if left}
        found.append(len({*live.values()}))
    return found


def narrow(before: Before, calls: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Parts of some calls, cut wherever few tensors are live and the next call makes them more.

    Few are no more than at the narrowest place of the middle half of the calls. In a network of cells that read the two
    cells before them these are the cells. One part where there is no such place.
    """
    live = live_after(before, calls)
    rising = [at for at in range(len(calls) - 1) if live[at] < live[at + 1]]
    quarter = len(calls) // 4
    fewest = min((live[at] for at in rising if quarter <= at < len(calls) - quarter), default=0)
    ends = [0, *(at + 1 for at in rising if live[at] <= fewest), len(calls)]
    return [calls[first:last] for first, last in pairwise(ends)]


def halves(before: Before, calls: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Two parts of at least two calls, cut where fewest tensors are live and, of such places, nearest to the middle."""
    live = live_after(before, calls)
    quarter = len(calls) // 4
    places = range(max(quarter, 1), max(len(calls) - quarter, 2))
    at = min(places, key=lambda place: (live[place - 1], abs(2 * place - len(calls)), place))
    return calls[:at], calls[at:]

"""Frugal tiles: little slower than the fastest, with less of the device at work meanwhile.

What they leave is free for kernels beside them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from compiler.tuning.proposal import Proposal

SLOWER = 1.6
"""Times the fastest tile's seconds: the longest that is offered beside it."""
LESS = 0.8
"""The part of the fastest tile's seconds times its share of the device that a frugal tile takes at most.

What is not clearly less brings nothing that the model could tell.
"""


def frugal(options: Sequence[Proposal], seconds: Mapping[int, float], fast: int) -> list[int]:
    """Positions of the options that keep so much less of the device at work than the `fast` one, least first.

    Only those count of which `seconds` are known. None is faster than the `fast` one, which hints may have put before
    what the model thinks faster. Where every tile keeps all of the device at work, as on a lane of a CPU, there are
    none.
    """

    def taken(at: int) -> float:
        return options[at].share * seconds[at]

    found = [
        at
        for at in seconds
        if options[at].share < options[fast].share
        and seconds[fast] <= seconds[at] <= SLOWER * seconds[fast]
        and taken(at) <= LESS * taken(fast)
    ]
    return sorted(found, key=lambda at: (taken(at), seconds[at], at))

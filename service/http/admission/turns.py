"""Turns of each owner in each lane, so that no owner takes the means of all others."""

from __future__ import annotations

import asyncio
import uuid
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from service.errors import TooManyAtOnce
from service.http.admission.limits import Crowd, Lane


@dataclass
class _Queue:
    taken: int = 0
    waiting: deque[asyncio.Future[None]] = field(default_factory=deque)


class Turns:
    """The turns of one process; to be used inside one event loop."""

    def __init__(self, crowds: Mapping[Lane, Crowd]) -> None:
        self._crowds = crowds
        self._queues: dict[tuple[Lane, uuid.UUID], _Queue] = {}

    async def take(self, lane: Lane, owner: uuid.UUID) -> None:
        """Wait for a turn, first come, first served; `give` ends it. Raises `TooManyAtOnce`."""
        crowd = self._crowds.get(lane)
        if crowd is None:
            return
        queue = self._queues.setdefault((lane, owner), _Queue())
        if queue.taken < crowd.at_once:
            queue.taken += 1
            return
        if len(queue.waiting) >= crowd.waiting:
            raise _too_many(lane, crowd)
        turn = asyncio.get_running_loop().create_future()
        queue.waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.give(lane, owner)
            else:
                queue.waiting.remove(turn)
            raise

    def give(self, lane: Lane, owner: uuid.UUID) -> None:
        """End a turn that was taken; the one who has waited longest takes it over."""
        if lane not in self._crowds:
            return
        queue = self._queues[lane, owner]
        while queue.waiting:
            turn = queue.waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        queue.taken -= 1
        if queue.taken == 0:
            del self._queues[lane, owner]


def _too_many(lane: Lane, crowd: Crowd) -> TooManyAtOnce:
    most = crowd.at_once + crowd.waiting
    return TooManyAtOnce(
        f"{most} {lane.value} of this owner are open already",
        fix="let some of them end, then ask again",
        details={"limit": most, "of": lane.value},
    )

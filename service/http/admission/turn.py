"""The turn in a lane that a request has taken, until it gives it back or takes one in another."""

from __future__ import annotations

import uuid

from service.http.admission.limits import Lane
from service.http.admission.turns import Turns

TURN = "tilewright.turn"
"""Under which a request's scope has its `Turn`."""


class Turn:
    """Of one request of an owner; it has none before the first `change`."""

    def __init__(self, turns: Turns, owner: uuid.UUID) -> None:
        self._turns = turns
        self._owner = owner
        self._lane: Lane | None = None

    async def change(self, lane: Lane) -> None:
        """Give back the turn it has, and wait for one in this lane. Raises `TooManyAtOnce`, and has none then."""
        self.end()
        await self._turns.take(lane, self._owner)
        self._lane = lane

    def end(self) -> None:
        """Give back the turn it has, if any."""
        lane, self._lane = self._lane, None
        if lane is not None:
            self._turns.give(lane, self._owner)

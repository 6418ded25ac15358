"""An answer that stands for a moment: made once at a time, however many ask for it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

Answer = TypeVar("Answer")


class Kept(Generic[Answer]):
    """What `make` answers, made anew when it is older than `stands_s` seconds; to be used inside one event loop.

    Who asks while it is being made waits for that one. With `stands_s` 0 it is made for each who asks later.
    """

    def __init__(self, make: Callable[[], Awaitable[Answer]], stands_s: float) -> None:
        self._make = make
        self._stands_s = stands_s
        self._made: tuple[float, Answer] | None = None
        self._making: asyncio.Task[Answer] | None = None

    async def get(self) -> Answer:
        """The answer. Raises what making it raises."""
        if self._made is not None and time.monotonic() - self._made[0] < self._stands_s:
            return self._made[1]
        if self._making is None or self._making.done():
            self._making = asyncio.create_task(self._anew())
            self._making.add_done_callback(_looked_at)
        return await asyncio.shield(self._making)  # one asker who goes away takes nothing from the others

    async def _anew(self) -> Answer:
        answer = await self._make()
        self._made = (time.monotonic(), answer)
        return answer


def _looked_at(task: asyncio.Task[Answer]) -> None:
    """An error that nobody waits for any more is no surprise to the event loop."""
    if not task.cancelled():
        task.exception()

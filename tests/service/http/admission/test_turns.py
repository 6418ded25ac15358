from __future__ import annotations

import asyncio
import uuid

import pytest

from service.errors import TooManyAtOnce
from service.http.admission.limits import Crowd, Lane
from service.http.admission.turns import Turns

ADA, EVE = uuid.UUID(int=1), uuid.UUID(int=2)


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_an_owner_has_so_many_turns_and_another_owner_has_as_many() -> None:
    async def body() -> None:
        turns = Turns({Lane.UPLOAD: Crowd(at_once=2, waiting=0)})
        for owner in (ADA, EVE):
            await turns.take(Lane.UPLOAD, owner)
            await turns.take(Lane.UPLOAD, owner)
            with pytest.raises(TooManyAtOnce) as refused:
                await turns.take(Lane.UPLOAD, owner)
            assert refused.value.details == {"limit": 2, "of": "uploads"}
        turns.give(Lane.UPLOAD, ADA)
        await turns.take(Lane.UPLOAD, ADA)
        await turns.take(Lane.STREAM, ADA)  # which has no bound here

    asyncio.run(body())


def test_who_waits_is_served_in_order_and_no_more_wait_than_may() -> None:
    async def body() -> list[int]:
        turns = Turns({Lane.QUERY: Crowd(at_once=1, waiting=3)})
        served: list[int] = []

        async def ask(number: int) -> None:
            await turns.take(Lane.QUERY, ADA)
            served.append(number)
            await asyncio.sleep(0)
            turns.give(Lane.QUERY, ADA)

        asking = [asyncio.create_task(ask(number)) for number in range(4)]
        await settled()
        await asyncio.gather(*asking)
        await turns.take(Lane.QUERY, ADA)
        waiting = [asyncio.create_task(ask(number)) for number in range(4, 7)]
        await settled()
        with pytest.raises(TooManyAtOnce):
            await turns.take(Lane.QUERY, ADA)
        turns.give(Lane.QUERY, ADA)
        await asyncio.gather(*waiting)
        return served

    assert asyncio.run(body()) == list(range(7))


@pytest.mark.parametrize("granted", [False, True])
def test_who_stops_waiting_takes_no_turn_with_him(granted: bool) -> None:
    async def body() -> None:
        turns = Turns({Lane.QUERY: Crowd(at_once=1, waiting=2)})
        await turns.take(Lane.QUERY, ADA)
        leaving = asyncio.create_task(turns.take(Lane.QUERY, ADA))
        await settled()
        staying = asyncio.create_task(turns.take(Lane.QUERY, ADA))
        await settled()
        if granted:
            turns.give(Lane.QUERY, ADA)  # the turn is his, but he has not run since
        leaving.cancel()
        await settled()
        assert staying.done() == granted
        if not granted:
            turns.give(Lane.QUERY, ADA)
        await staying
        turns.give(Lane.QUERY, ADA)
        assert turns._queues == {}, "what is over leaves nothing behind"

    asyncio.run(body())

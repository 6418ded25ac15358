from __future__ import annotations

import asyncio

import pytest

from service.http.responses.cached import Kept


class Maker:
    """Counts how often it made an answer; each waits for `go`."""

    def __init__(self) -> None:
        self.made = 0
        self.go = asyncio.Event()

    async def __call__(self) -> int:
        self.made += 1
        number = self.made
        await self.go.wait()
        if number == 3:
            raise OSError("gone")
        return number


def test_many_who_ask_at_once_share_one_answer_which_stands_for_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [10.0]
    monkeypatch.setattr("service.http.responses.cached.time.monotonic", lambda: now[0])

    async def body() -> None:
        maker = Maker()
        answers = Kept(maker, 1.0)
        asking = [asyncio.create_task(answers.get()) for _ in range(50)]
        await asyncio.sleep(0)
        asking[0].cancel()
        await asyncio.sleep(0)
        maker.go.set()
        assert await asyncio.gather(*asking[1:]) == [1] * 49
        assert (await answers.get(), maker.made) == (1, 1)
        now[0] += 1.0
        assert (await answers.get(), await answers.get(), maker.made) == (2, 2, 2)
        now[0] += 1.0
        with pytest.raises(OSError, match="gone"):
            await answers.get()
        assert (await answers.get(), maker.made) == (4, 4), "an error stands for nobody who asks later"

    asyncio.run(body())

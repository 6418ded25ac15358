"""Runs that wait for cores, replicas of an artifact, and files that take another's place."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tilewright.batching import Busy
from tilewright.errors import UsageError
from tilewright.serving import served as under_test
from tilewright.serving.served import Cores, Served


class Fake:
    """A model that says what its file held, one run at a time; `entered` counts those inside."""

    lanes = 1
    opened = running = 0

    def __init__(self, path: Path) -> None:
        type(self).opened += 1
        self.text = path.read_text()
        if self.text == "broken":
            raise UsageError(f"{path} is broken", fix="mend it")
        if self.text == "strange":
            raise RuntimeError("whatever code may raise")
        self.is_closed = self.is_running = False

    def close(self) -> None:
        assert not self.is_running
        self.is_closed = True

    def run(self, gate: threading.Event | None = None) -> str:
        assert not self.is_running
        assert not self.is_closed
        self.is_running = True
        type(self).running += 1
        if gate:
            assert gate.wait(60)
        type(self).running -= 1
        self.is_running = False
        return self.text


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(under_test, "load", lambda path, lanes: Fake(path))
    Fake.opened = Fake.running = 0
    (tmp_path / "m.tw").write_text("one")
    return tmp_path / "m.tw"


def waited(gate: threading.Event) -> Callable[[Any], str]:
    return lambda model: str(model.run(gate))


def once(model: Any) -> str:
    return str(model.run())


async def until(holds: Callable[[], bool]) -> None:
    for _ in range(6000):
        if holds():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it did not come to that")


def test_as_many_runs_go_side_by_side_as_there_are_cores_and_no_more(file: Path) -> None:
    async def whole() -> None:
        served, gate = Served("m", file, Cores(2)), threading.Event()
        runs = [asyncio.ensure_future(served.do(waited(gate))) for _ in range(5)]
        await until(lambda: served.waiting == 3)
        gate.set()
        assert await asyncio.gather(*runs) == ["one"] * 5
        assert Fake.opened == 2
        served.close()

    asyncio.run(whole())


def test_one_run_more_than_may_wait_is_refused_and_the_others_are_not(file: Path) -> None:
    async def whole() -> None:
        served, gate = Served("m", file, Cores(1), queue=1), threading.Event()
        runs = [asyncio.ensure_future(served.do(waited(gate))) for _ in range(2)]
        await until(lambda: served.waiting == 1)
        with pytest.raises(Busy, match="1 runs wait for the model m"):
            await served.do(once)
        gate.set()
        assert await asyncio.gather(*runs) == ["one", "one"]
        assert await served.do(once) == "one"

    asyncio.run(whole())


def test_who_goes_while_it_waits_leaves_the_queue_and_who_goes_while_it_runs_keeps_the_cores_to_its_end(
    file: Path,
) -> None:
    async def whole() -> None:
        served, gate = Served("m", file, Cores(1)), threading.Event()
        running, waiting = (asyncio.ensure_future(served.do(waited(gate))) for _ in range(2))
        await until(lambda: served.waiting == 1)
        waiting.cancel()
        await until(lambda: served.waiting == 0)
        running.cancel()
        last = asyncio.ensure_future(served.do(once))
        await until(lambda: served.waiting == 1)
        gate.set()
        assert await last == "one"
        assert Fake.opened == 1

    asyncio.run(whole())


def test_lanes_are_given_in_the_order_of_asking_and_none_is_lost() -> None:
    async def whole() -> None:
        cores, order = Cores(2), []

        async def hold(name: str, lanes: int, until: Awaitable[Any] | None = None) -> None:
            async with cores.held(lanes):
                order.append(name)
                await (until or asyncio.sleep(0))

        gate = asyncio.get_running_loop().create_future()
        first = asyncio.ensure_future(hold("a", 1, gate))
        await asyncio.sleep(0)
        rest = [asyncio.ensure_future(hold(name, lanes)) for name, lanes in (("b", 2), ("c", 1), ("d", 9))]
        await asyncio.sleep(0)
        assert order == ["a"], "c has to wait behind b, for which one lane is not enough"
        rest[0].cancel()
        for _ in range(5):
            await asyncio.sleep(0)
        assert order == ["a", "c"]
        gate.set_result(None)
        await asyncio.gather(first, *rest, return_exceptions=True)
        assert order == ["a", "c", "d"]
        assert cores.count == 2
        await hold("e", 2)

    asyncio.run(whole())


def test_a_run_that_fails_gives_back_its_core_and_its_replica(file: Path) -> None:
    def fails(_: Any) -> None:
        raise ValueError("no")

    async def whole() -> None:
        served = Served("m", file, Cores(1))
        for _ in range(3):
            with pytest.raises(ValueError, match="no"):
                await served.do(fails)
        assert await served.do(once) == "one"
        assert Fake.opened == 1

    asyncio.run(whole())


def test_a_file_that_takes_anothers_place_serves_the_next_run_and_loses_none(file: Path) -> None:
    async def whole() -> None:
        served, gate = Served("m", file, Cores(2)), threading.Event()
        before = served.model
        running = asyncio.ensure_future(served.do(waited(gate)))
        await until(lambda: served.waiting == 0)
        assert not await served.reload()
        fresh = file.with_name("fresh")
        fresh.write_text("another")
        fresh.replace(file)
        assert await served.reload()
        assert await served.do(once) == "another"
        assert not before.is_closed  # type: ignore[attr-defined]
        gate.set()
        assert await running == "one"
        assert before.is_closed  # type: ignore[attr-defined]

    asyncio.run(whole())


@pytest.mark.skipif(not under_test.DESCRIPTORS.is_dir(), reason="the system does not name open files")
@pytest.mark.parametrize("text", ["another", "broken"])
def test_requests_from_before_a_file_was_replaced_run_on_the_old_one_and_so_do_replicas_opened_later(
    text: str, file: Path
) -> None:
    async def whole() -> None:
        served, gate = Served("m", file, Cores(2)), threading.Event()
        first = asyncio.ensure_future(served.do(waited(gate)))
        await until(lambda: Fake.running == 1)
        fresh = file.with_name("fresh")
        fresh.write_text(text)
        fresh.replace(file)
        others = [asyncio.ensure_future(served.do(waited(gate))) for _ in range(2)]
        await until(lambda: served.waiting == 1)
        assert await served.reload() == (text == "another")
        gate.set()
        assert await asyncio.gather(first, *others) == ["one"] * 3
        assert await served.do(once) == ("another" if text == "another" else "one")
        served.close()

    asyncio.run(whole())


def test_a_broken_file_is_named_as_it_was_given(file: Path) -> None:
    file.write_text("broken")
    with pytest.raises(UsageError) as refused:
        Served("m", file, Cores(1))
    assert refused.value.message == f"{file} is broken"


@pytest.mark.parametrize("text", ["broken", "strange", None])
def test_a_file_that_cannot_be_loaded_or_is_gone_changes_nothing(text: str | None, file: Path) -> None:
    async def whole() -> None:
        served = Served("m", file, Cores(1))
        file.unlink()
        if text:
            file.write_text(text)
        assert not await served.reload()
        assert await served.do(once) == "one"
        file.write_text("mended")
        assert await served.reload()
        assert await served.do(once) == "mended"

    asyncio.run(whole())

from __future__ import annotations

import ast
import asyncio
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from service import threads
from service.config import Settings
from service.http.app import create_app
from tests.servers import GUARD_S

ROOT = Path(__file__).parents[2]
NAMES = {
    "reconcile",
    "retention",
    "keys",
    "webhooks",
    "connections",
    "events",
    "presence",
    "heartbeat",
    "helping",
    "rounds",
}
"""What a process of the service cannot do without."""
SHORT = {
    ("service/blobs/ahead.py", "Thread"),  # of one read, which raises what the thread raised
    ("service/http/requests/upload.py", "create_task"),  # of one request, which awaits it
    ("service/http/admission/connections.py", "create_task"),  # of one handshake, whose connection is looked at
    ("service/http/requests/waiting.py", "create_task"),
    ("service/http/responses/cached.py", "create_task"),
    ("service/jobs/lifecycle/status_reads.py", "create_task"),  # answers each who asked, also when it is cancelled
}
"""Threads and tasks that are over with what they were begun for, by the file and how they are begun."""


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Threads for whose sake the process would have ended."""
    ended: list[str] = []
    monkeypatch.setattr(threads, "end_process", lambda name, reason: ended.append(name))
    monkeypatch.setattr(threads, "FIRST_PAUSE_S", 0.0)
    return ended


def begun() -> tuple[set[str], set[tuple[str, str]]]:
    """Of all sources of servers: the names of what lasts, and where else threads and tasks are begun."""
    lasting: set[str] = set()
    others: set[tuple[str, str]] = set()
    for path in (*(ROOT / "service").rglob("*.py"), *(ROOT / "worker").rglob("*.py")):
        if path.name == "threads.py":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call):
                continue
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            first = node.args[0] if node.args else None
            if called in ("lasting", "lasting_task"):
                lasting.add(
                    first.value if isinstance(first, ast.Constant) and isinstance(first.value, str) else path.name
                )
            elif called in ("Thread", "create_task"):
                inner = getattr(getattr(first, "func", None), "id", "")
                if inner != "lasting_task":
                    others.add((path.relative_to(ROOT).as_posix(), called))
    return lasting, others


def test_every_thread_of_a_server_lasts_or_is_known_to_be_short() -> None:
    lasting, others = begun()
    assert lasting - {"app.py"} | {"reconcile", "keys", "webhooks"} == NAMES
    assert others == SHORT


@pytest.mark.parametrize("way", ["raises", "returns", "leaves"])
def test_a_thread_that_ends_ends_its_process(ended: list[str], way: str) -> None:
    tries: list[int] = []

    def work() -> None:
        tries.append(1)
        if way == "raises":
            raise OSError("no more descriptors")
        if way == "leaves":
            raise SystemExit

    thread = threads.lasting("it", work, lambda: bool(ended))
    thread.start()
    thread.join()
    assert ended == ["it"]
    assert len(tries) == (threads.TRIES if way == "raises" else 1)


def test_a_thread_that_was_asked_to_stop_ends_alone(ended: list[str]) -> None:
    for work in (lambda: None, lambda: 1 // 0):
        thread = threads.lasting("it", work, lambda: True)
        thread.start()
        thread.join()
    assert ended == []


def test_a_thread_that_fails_now_and_then_goes_on(ended: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "STEADY_S", -1.0)
    tries: list[int] = []

    def work() -> None:
        tries.append(1)
        if len(tries) < 10 * threads.TRIES:
            raise MemoryError

    thread = threads.lasting("it", work, lambda: len(tries) == 10 * threads.TRIES)
    thread.start()
    thread.join()
    assert ended == []


def test_a_task_that_ends_ends_its_process(ended: list[str]) -> None:
    class Ended(Exception):
        pass

    async def work() -> None:
        if ended:
            return
        raise OSError

    asyncio.run(threads.lasting_task("it", work))
    assert ended == ["it"]


def test_the_process_says_why_and_has_a_status_of_its_own() -> None:
    program = (
        "import time; from service import logs, threads; logs.configure(json_lines=True); threads.FIRST_PAUSE_S = 0.0;"
        "threads.lasting('presence', lambda: 1 // 0, lambda: False).start(); time.sleep(600)"
    )
    process = subprocess.run([sys.executable, "-c", program], stderr=subprocess.PIPE, text=True)
    assert process.returncode == threads.STATUS
    last = process.stderr.splitlines()[-1]
    assert '"thread": "presence"' in last
    assert "ZeroDivisionError" in last


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("reconcile", "service.jobs.operations.reconcile.loop"),
        ("retention", "service.jobs.operations.retention.loop"),
        ("keys", "service.jobs.accounts.access.settle_all_along"),
        ("webhooks", "service.jobs.notifications.delivery.Sender.loop"),
        ("connections", "service.http.admission.connections.Connections._watch"),
    ],
)
def test_an_api_process_ends_with_any_of_its_threads(
    settings: Settings, ring: Any, monkeypatch: pytest.MonkeyPatch, name: str, target: str
) -> None:
    ended: list[str] = []
    over = threading.Event()

    def end(name: str, reason: str) -> None:
        ended.append(name)
        over.set()

    def fail(*arguments: Any, **named: Any) -> Any:
        if over.is_set():
            raise asyncio.CancelledError  # the process would be gone
        raise RuntimeError(f"{name} is broken")

    monkeypatch.setattr(threads, "end_process", end)
    monkeypatch.setattr(threads, "FIRST_PAUSE_S", 0.0)
    monkeypatch.setattr(target, fail)
    with TestClient(create_app(settings, ring=ring)):
        assert over.wait(GUARD_S)
    assert set(ended) == {name}

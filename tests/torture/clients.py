"""Clients of the service, who ask until they are answered.

Each request has its idempotency key, and is sent until it is accepted.
"""

from __future__ import annotations

import hashlib
import queue
import threading
import time
import uuid
from collections import Counter
from dataclasses import dataclass, field

import httpx

THREADS = 3
PAUSE_S = 0.2
TIMEOUT_S = 10.0
OPTIONS = '{"threads": 1}'
AGAIN = (429, 503, 507)
"""Answers that ask for another try. 429: uploads that clients gave up on still wait where the database is held up."""


@dataclass(frozen=True)
class Wish:
    """One job that somebody wants. `fresh`: the cache must not answer it."""

    key: str
    model: bytes
    fresh: bool

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.model).hexdigest()


@dataclass
class Clients:
    """Send wishes in threads of their own, from `start` to `stop`."""

    address: str
    key: str = field(repr=False)
    accepted: dict[str, set[uuid.UUID]] = field(default_factory=dict)
    """By the wish's key: each job that an answer named. One is what the service promises."""
    wishes: dict[str, Wish] = field(default_factory=dict)
    """All that was asked for, by key."""
    answers: Counter[str] = field(default_factory=Counter)
    """How often each status came, or that the connection broke."""
    refused: list[str] = field(default_factory=list)
    """Answers that no accident explains."""

    def __post_init__(self) -> None:
        self._waiting: queue.Queue[Wish] = queue.Queue()
        self._ending = threading.Event()
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._serve, daemon=True) for _ in range(THREADS)]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """What is not accepted yet is given up."""
        self._ending.set()
        for thread in self._threads:
            thread.join()

    def ask(self, wish: Wish) -> None:
        """Have it sent until it is accepted."""
        self.wishes[wish.key] = wish
        self._waiting.put(wish)

    @property
    def pending(self) -> int:
        """Wishes that nobody has accepted yet."""
        return len(self.wishes) - len(self.accepted)

    def _serve(self) -> None:
        headers = {"Authorization": f"Bearer {self.key}", "Content-Type": "application/octet-stream"}
        with httpx.Client(base_url=self.address, headers=headers, timeout=TIMEOUT_S, trust_env=False) as http:
            while not self._ending.is_set():
                try:
                    wish = self._waiting.get(timeout=PAUSE_S)
                except queue.Empty:
                    continue
                while not self._ending.is_set() and not self._sent(http, wish):
                    time.sleep(PAUSE_S)

    def _sent(self, http: httpx.Client, wish: Wish) -> bool:
        """Whether the service answered for good; else, or where the connection broke, it is asked again."""
        try:
            answer = http.post(
                "/compile",
                params={"options": OPTIONS, "fresh": wish.fresh},
                headers={"Idempotency-Key": wish.key},
                content=wish.model,
            )
        except httpx.TransportError:
            self._count("connection lost")
            return False
        self._count(str(answer.status_code))
        if answer.status_code == 202:
            with self._lock:
                self.accepted.setdefault(wish.key, set()).add(uuid.UUID(answer.json()["id"]))
            return True
        if answer.status_code not in AGAIN:
            with self._lock:
                self.refused.append(f"{wish.key}: {answer.status_code} {answer.text[:500]}")
        return False

    def _count(self, what: str) -> None:
        with self._lock:
            self.answers[what] += 1

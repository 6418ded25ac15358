"""Sends what webhooks are to be told: a few at a time, few of them of one owner, again and again with growing pauses.

Any number of processes may do this at the same time: an attempt is taken by one guarded UPDATE, and one whose process
dies under it is made again when its lease is over.
"""

from __future__ import annotations

import http.client
import random
import threading
import time
import uuid
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from service.config import Settings
from service.db import usage, webhooks
from service.db.engine import Database
from service.db.models import Delivery
from service.errors import DatabaseUnavailable
from service.jobs.notifications import outbound
from service.jobs.notifications.webhooks import answers, signed
from service.logs import logger

PAUSES_S = (5.0, 60.0, 300.0, 1800.0, 7200.0, 18000.0, 36000.0, 86400.0)
"""Between attempts; after the last one it is given up."""
PAUSES_OF_TESTS = 4
"""As many of these are made for what tells of no job."""
KEEP_TESTS_S = 3600.0
"""How long that is kept once it has ended."""
AT_ONCE, AT_ONCE_OF_ONE = 8, 2
"""Attempts of this process under way, and those of one owner."""
LOOK_EVERY_S, LOOK_AGAIN_S = 1.0, 0.1
FORGET_EVERY_S = 600.0
CHANCE = random.SystemRandom()
GONE = 410
"""A receiver that answers with it wants nothing more."""
MOST_ECHO_BYTES = 1024
"""Of an answer to a challenge."""

log = logger(__name__)


@dataclass(frozen=True)
class Terms:
    """How long an attempt may take, whether private addresses are allowed, how long what ended is kept."""

    within_s: float
    private: bool
    keep_s: float

    @classmethod
    def of(cls, settings: Settings) -> Terms:
        """As the operator says."""
        return cls(settings.webhook_s, settings.webhooks_private, settings.keep_deliveries_days * 86400.0)


class Sender:
    """Of one process. `round` begins what is due; `loop` makes rounds."""

    def __init__(self, db: Database, terms: Terms) -> None:
        self._db = db
        self._terms = terms
        self._pool = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="webhooks")
        self._lock = threading.Lock()
        self._under_way: Counter[uuid.UUID] = Counter()

    def round(self) -> int:
        """Begin what is due and may be begun; how many. Raises `DatabaseUnavailable`."""
        if (free := AT_ONCE - self._count()) <= 0:
            return 0
        with self._db.read() as session:
            due = webhooks.due(session, self._busy(), free)
        begun = [(id, owner) for id, owner in due if self._enter(owner)]
        for delivery_id, owner in begun:
            self._pool.submit(self._attempt, delivery_id, owner)
        return len(begun)

    def loop(self, stop: threading.Event) -> None:
        """Rounds until `stop` is set; a database that is away is waited for."""
        forgotten, begun = time.monotonic(), 0
        while not stop.wait(LOOK_AGAIN_S if begun else LOOK_EVERY_S):
            begun = 0
            try:
                begun = self.round()
                if time.monotonic() - forgotten > FORGET_EVERY_S:
                    forgotten = time.monotonic()
                    with self._db.write() as session:
                        webhooks.forget(session, self._terms.keep_s, min(KEEP_TESTS_S, self._terms.keep_s))
            except DatabaseUnavailable as error:
                log.warning("webhooks are not looked for", error=error.message)
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _attempt(self, delivery_id: uuid.UUID, owner: uuid.UUID) -> None:
        try:
            self._send(delivery_id)
        except DatabaseUnavailable as error:
            log.warning("what became of a webhook was not written", delivery=str(delivery_id), error=error.message)
        except Exception:
            log.exception("a webhook could not be sent", delivery=str(delivery_id))
        finally:
            with self._lock:
                self._under_way[owner] -= 1
                if not self._under_way[owner]:
                    del self._under_way[owner]

    def _send(self, delivery_id: uuid.UUID) -> None:
        with self._db.write() as session:
            delivery = webhooks.take(session, delivery_id, 2 * self._terms.within_s + 10.0)
            if delivery is None:
                return
            webhook = webhooks.of_owner(session, delivery.owner_id, delivery.webhook_id)
            now = usage.now(session)
        if webhook is None:
            return
        sent = signed(delivery, webhook.secret, now)
        status, fault = None, None
        try:
            answer = outbound.post(
                webhook.url,
                sent.body,
                sent.headers,
                within_s=self._terms.within_s,
                private=self._terms.private,
                most=0 if delivery.challenge is None else MOST_ECHO_BYTES,
            )
            status = answer.status
            if not 200 <= status < 300:
                fault = f"it was answered with {status}"
            elif delivery.challenge is not None and not answers(delivery.challenge, answer.body):
                fault = "it was not answered with the challenge"
        except outbound.Refused as refused:
            fault = f"not sent: {refused}"
        except (OSError, ValueError, http.client.HTTPException) as error:
            fault = f"{type(error).__name__}: {error}"[:300]
        with self._db.write() as session:
            again_s = None if fault is None else pause_after(delivery)
            webhooks.settle(session, delivery_id, delivery.attempts, status=status, fault=fault, again_s=again_s)
            if status == GONE:
                webhooks.disable(session, webhook.id, "the receiver wants nothing more (410)")
            elif delivery.challenge is not None and fault is None:
                webhooks.verify(session, webhook.id)
            elif delivery.challenge is not None and again_s is None:
                webhooks.disable(session, webhook.id, "the receiver did not answer the challenge")

    def _count(self) -> int:
        with self._lock:
            return self._under_way.total()

    def _busy(self) -> list[uuid.UUID]:
        with self._lock:
            return [owner for owner, count in self._under_way.items() if count >= AT_ONCE_OF_ONE]

    def _enter(self, owner: uuid.UUID) -> bool:
        with self._lock:
            if self._under_way[owner] >= AT_ONCE_OF_ONE:
                return False
            self._under_way[owner] += 1
            return True


def pause_after(delivery: Delivery) -> float | None:
    """Seconds until the next attempt, a little more or less so that not all come at once; None: there is none."""
    pauses = PAUSES_S if delivery.job_id is not None else PAUSES_S[:PAUSES_OF_TESTS]
    if delivery.attempts > len(pauses):
        return None
    return pauses[delivery.attempts - 1] * CHANCE.uniform(0.9, 1.1)

"""Doorbells: messages that make workers look into the database.

The database is the truth and the broker only a hint: a doorbell may be lost, late or doubled without harm, so
sending one never fails a request. It is sent after the commit of a row whose `published_at` says when, so that nothing
holds the row any more when a worker is woken; `service.jobs.operations.reconcile` sends again what waits too long.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import kombu.exceptions
from celery import Celery

from service.db import jobs
from service.db.engine import Database
from service.errors import NotReady
from service.logs import logger

NO_BROKER = "memory://localhost"
"""The URL of no broker: to Celery that of messages which no other process gets."""
TASK = "worker.drain"
"""The task of the worker that claims jobs of a queue until none is left.

Its argument is the queue's name. `job`, by name, is the id of the job that it was rung for: for whoever watches the
broker, and nothing that a worker goes by.
"""

FAILURES = (kombu.exceptions.KombuError, kombu.exceptions.OperationalError, OSError)

log = logger(__name__)


class Ring(Protocol):
    """Something that can wake the workers of a queue."""

    def __call__(self, queue: str, job: uuid.UUID | None = None) -> None:
        """Send one doorbell, for the sake of `job`. Raises any of `FAILURES` when the broker cannot be reached."""
        ...

    def check(self) -> None:
        """Raises `NotReady` when the broker does not answer."""
        ...


def routed(name: str, args: Sequence[Any], kwargs: Mapping[str, Any], options: object, **_: Any) -> dict[str, str]:
    """Where Celery sends a message: into the queue of the device class that it names."""
    queue = args[0] if args else kwargs.get("queue")
    return {"queue": queue} if name == TASK and isinstance(queue, str) else {}


class CeleryRing:
    """Doorbells through Celery over Redis or Valkey; the message names the task, the queue is its argument.

    Time-outs are short: a broker that hangs holds nobody up for long.
    """

    def __init__(self, broker_url: str) -> None:
        self._app = Celery("tilewright", broker=broker_url, set_as_current=False)
        self._app.conf.update(
            task_serializer="json",
            accept_content=["json"],
            task_ignore_result=True,
            task_publish_retry=False,
            task_send_sent_event=True,
            task_routes=(routed,),
            broker_connection_timeout=1,
            broker_transport_options={"socket_connect_timeout": 1, "socket_timeout": 2, "max_retries": 0},
        )

    def __call__(self, queue: str, job: uuid.UUID | None = None) -> None:
        """Sends the notification that `queue` may have work. Raises what the broker's client raises."""
        about = {} if job is None else {"job": str(job)}
        self._app.send_task(TASK, args=(queue,), kwargs=about, retry=False, ignore_result=True)

    def check(self) -> None:
        """Raises `NotReady` when the broker cannot be reached."""
        try:
            with self._app.connection_for_write() as connection:
                connection.ensure_connection(max_retries=1, interval_start=0, timeout=1)
        except FAILURES as error:
            raise NotReady(f"the broker does not answer: {error}", fix="check TILEWRIGHT_BROKER_URL") from error


class NoRing:
    """No broker: idle workers hear of new jobs from the database alone (`service.db.arrivals`)."""

    def __call__(self, queue: str, job: uuid.UUID | None = None) -> None:
        """Nothing."""

    def check(self) -> None:
        """Nothing can be away."""


def ring_of(broker_url: str) -> Ring:
    """The doorbell of a broker's URL."""
    return NoRing() if broker_url == NO_BROKER else CeleryRing(broker_url)


def announce(db: Database, ring: Ring, job_id: uuid.UUID, queue: str) -> bool:
    """Ring for a job whose row is committed; whether it worked. Never raises for a broker that is down."""
    if try_ring(ring, queue, job_id):
        return True
    with db.write() as session:
        jobs.not_announced(session, job_id)
    return False


def try_ring(ring: Ring, queue: str, job: uuid.UUID | None = None) -> bool:
    """Ring; a failure is logged and answered with False."""
    try:
        ring(queue, job)
    except FAILURES as error:
        log.warning("doorbell failed", queue=queue, error=str(error))
        return False
    return True

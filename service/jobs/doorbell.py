"""Doorbells: messages that make workers look into the database.

The database is the truth and the broker only a hint: a doorbell may be lost, late or doubled without harm, so
sending one never fails a request. It is sent after the commit of a row whose `published_at` says when, so that nothing
holds the row any more when a worker is woken; `service.jobs.reconcile` sends again what waits too long.
"""

from __future__ import annotations

import uuid
from typing import Protocol

import kombu.exceptions
from celery import Celery

from service.db import jobs
from service.db.engine import Database
from service.errors import NotReady
from service.logs import logger

TASK = "worker.drain"
"""The task of the worker that claims jobs of a queue until none is left; its one argument is the queue's name."""

FAILURES = (kombu.exceptions.KombuError, kombu.exceptions.OperationalError, OSError)

log = logger(__name__)


class Ring(Protocol):
    """Something that can wake the workers of a queue."""

    def __call__(self, queue: str) -> None:
        """Send one doorbell. Raises any of `FAILURES` when the broker cannot be reached."""

    def check(self) -> None:
        """Raises `NotReady` when the broker does not answer."""


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
            broker_connection_timeout=1,
            broker_transport_options={"socket_connect_timeout": 1, "socket_timeout": 2, "max_retries": 0},
        )

    def __call__(self, queue: str) -> None:
        self._app.send_task(TASK, args=(queue,), queue=queue, retry=False, ignore_result=True)

    def check(self) -> None:
        """Raises `NotReady` when the broker cannot be reached."""
        try:
            with self._app.connection_for_write() as connection:
                connection.ensure_connection(max_retries=1, interval_start=0, timeout=1)
        except FAILURES as error:
            raise NotReady(f"the broker does not answer: {error}", fix="check TILEWRIGHT_BROKER_URL") from error


def announce(db: Database, ring: Ring, job_id: uuid.UUID, queue: str) -> bool:
    """Ring for a job whose row is committed; whether it worked. Never raises for a broker that is down."""
    if try_ring(ring, queue):
        return True
    with db.write() as session:
        jobs.not_announced(session, job_id)
    return False


def try_ring(ring: Ring, queue: str) -> bool:
    """Ring; a failure is logged and answered with False."""
    try:
        ring(queue)
    except FAILURES as error:
        log.warning("doorbell failed", queue=queue, error=str(error))
        return False
    return True

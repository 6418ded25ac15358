"""Tells an idle worker that jobs have come, by the database alone: for when no broker rings.

PostgreSQL says so itself (`LISTEN`), when a transaction commits that called `tell`. SQLite has a number that changes
with each commit of others, which costs some microseconds to read: an idle worker reads it fifty times a second. Both
are hints, like a doorbell: one that is lost costs the time until the next look.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any, Protocol

import psycopg
import sqlalchemy as sa
from sqlalchemy import exc
from sqlalchemy.orm import Session

from service.db import jobs, tuning_shares
from service.db.engine import Database
from service.db.models import new_id
from service.errors import DatabaseUnavailable

CHANNEL = "tilewright_jobs"
READ_EVERY_S = 0.02
CONNECT_AGAIN_S = 3.0


class Arrivals(Protocol):
    """Of the queues of one worker. To be used in one thread."""

    every_s: float
    """How often to ask `came`; infinite where a descriptor says when."""

    def descriptors(self) -> Sequence[int]:
        """What turns readable when there is reason to ask `came`."""
        ...

    def came(self) -> bool:
        """Whether a job may have come since the last time this was asked. False where the database is away."""
        ...

    def close(self) -> None:
        """Free what it holds."""
        ...


def arrivals(db: Database, queues: Sequence[str]) -> Arrivals:
    """The arrivals of jobs in these queues, from now on."""
    return _Told(db, queues) if db.engine.dialect.name == "postgresql" else _Read(db, queues)


def tell(session: Session, queue: str) -> None:
    """Tell idle workers that a job waits in this queue, when the transaction commits."""
    if session.get_bind().dialect.name == "postgresql":
        session.execute(sa.select(sa.func.pg_notify(CHANNEL, queue)))


class _Read:
    """Reads `PRAGMA data_version`, and asks for the newest job where that has changed."""

    every_s = READ_EVERY_S

    def __init__(self, db: Database, queues: Sequence[str]) -> None:
        self._db, self._queues = db, queues
        self._connection: sa.PoolProxiedConnection | None = None
        self._version: int | None = None
        self._newest = self._offered = new_id()
        self.came()

    def descriptors(self) -> Sequence[int]:
        return ()

    def came(self) -> bool:
        try:
            if self._connection is None:
                self._connection = self._db.engine.raw_connection()
                self._connection.detach()
            cursor = self._connection.cursor()
            (version,) = cursor.execute("PRAGMA data_version").fetchone()
            cursor.close()
            if version == self._version:
                return False
            with self._db.read() as session:
                newest = jobs.newest_waiting(session, self._queues)
                offered = tuning_shares.newest(session)
        except (DatabaseUnavailable, exc.SQLAlchemyError, self._db.engine.dialect.loaded_dbapi.Error):
            return False
        self._version = version
        last = self._newest, self._offered
        self._newest, self._offered = max(newest or last[0], last[0]), max(offered or last[1], last[1])
        return (self._newest, self._offered) != last

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()


class _Told:
    """Listens on a connection of its own, which is opened again some time after it broke."""

    every_s = math.inf

    def __init__(self, db: Database, queues: Sequence[str]) -> None:
        self._db, self._queues = db, frozenset(queues)
        self._connection: psycopg.Connection[Any] | None = None
        self._connect_at = -math.inf
        self._connect()

    def descriptors(self) -> Sequence[int]:
        if self._connection is None:
            self._connect()
        return () if self._connection is None else (self._connection.fileno(),)

    def came(self) -> bool:
        if self._connection is None:
            return False
        came = False
        try:
            self._connection.pgconn.consume_input()
            while (notification := self._connection.pgconn.notifies()) is not None:
                came |= notification.extra.decode() in self._queues
        except psycopg.Error:
            self.close()
            self._connect_at = time.monotonic() + CONNECT_AGAIN_S
        return came

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _connect(self) -> None:
        if time.monotonic() < self._connect_at:
            return
        self._connect_at = time.monotonic() + CONNECT_AGAIN_S
        try:
            opened = self._db.engine.raw_connection()
            connection = opened.driver_connection
            opened.detach()
            assert isinstance(connection, psycopg.Connection)
            connection.autocommit = True
            connection.execute(f"LISTEN {CHANNEL}")
        except (exc.SQLAlchemyError, psycopg.Error):
            return
        self._connection = connection

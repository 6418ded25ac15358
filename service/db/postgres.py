"""Connections to PostgreSQL that wait for nothing for ever.

The server ends statements, waits for locks and idle transactions that last too long. A server that is stopped, or
behind a network that swallows packets, ends nothing: so each call of the driver is bounded here too, and TCP gives a
silent peer up.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import psycopg
import sqlalchemy as sa
from psycopg.abc import RV, PQGen
from sqlalchemy import event

from service.db.plain import dumps

GRACE_S = 5.0
"""What the server gets beyond its own limit to say that it ended a statement."""
KEEPALIVE = {"keepalives": 1, "keepalives_idle": 30, "keepalives_interval": 10, "keepalives_count": 3}
"""A peer that vanished while nothing was asked is noticed within a minute."""


class Expired(psycopg.OperationalError):
    """A call took longer than it may."""


@dataclass(frozen=True)
class Patience:
    """How long a database is waited for, in seconds.

    connect_s    until a connection stands
    statement_s  for one statement; None: for ever, as changing the schema may need
    lock_s       of that, for the lock of a row or table
    idle_s       how long the server keeps a transaction open in which nothing is asked
    """

    connect_s: int = 5
    statement_s: float | None = 30.0
    lock_s: float = 15.0
    idle_s: float = 60.0


PATIENT = Patience()
UNHURRIED = Patience(statement_s=None, lock_s=0.0, idle_s=0.0)
"""For what changes the schema, or copies all; 0 means no limit to the server."""


def postgres_engine(url: sa.URL, patience: Patience) -> sa.Engine:
    """An engine whose every call ends: with an answer, or with an error that says it took too long."""
    silent_ms = 0 if patience.statement_s is None else int(1000 * (patience.statement_s + GRACE_S))
    given = {"connect_timeout": patience.connect_s, **KEEPALIVE, "tcp_user_timeout": silent_ms}
    engine = sa.create_engine(
        url,
        pool_pre_ping=True,
        json_serializer=dumps,
        pool_size=10,
        max_overflow=30,
        connect_args={name: value for name, value in given.items() if name not in url.query},
    )
    bounded = _bounded(None if patience.statement_s is None else patience.statement_s + GRACE_S)

    def connect(dialect: Any, record: Any, words: list[Any], named: dict[str, Any]) -> Any:
        return bounded.connect(*words, **named)

    def prepare(connection: psycopg.Connection[Any], record: Any) -> None:
        connection.autocommit = True
        connection.execute(
            "SELECT set_config('statement_timeout', %s, false), set_config('lock_timeout', %s, false),"
            " set_config('idle_in_transaction_session_timeout', %s, false)",
            [_milliseconds(limit) for limit in (patience.statement_s, patience.lock_s, patience.idle_s)],
        )
        connection.autocommit = False

    event.listen(engine, "do_connect", connect)
    event.listen(engine, "connect", prepare)
    return engine


def _milliseconds(seconds: float | None) -> str:
    return str(int(1000 * (seconds or 0.0)))


def _bounded(limit_s: float | None) -> type[psycopg.Connection[Any]]:
    class Bounded(psycopg.Connection[Any]):
        """A connection that is closed when one call of it takes longer than `limit_s`."""

        def wait(self, gen: PQGen[RV], *how: Any, **more: Any) -> RV:
            """Carry out one call. Raises `psycopg.OperationalError` past the limit."""
            if limit_s is None:
                return super().wait(gen, *how, **more)
            try:
                return super().wait(_until(gen, time.monotonic() + limit_s), *how, **more)
            except Expired:
                self.pgconn.finish()
                raise Expired(f"PostgreSQL did not answer within {limit_s:g} s") from None

    return Bounded


def _until(call: PQGen[RV], deadline: float) -> PQGen[RV]:
    """The same call, which the driver resumes several times a second; raises `Expired` once the time is over."""
    try:
        state = next(call)
        while True:
            ready = yield state
            if time.monotonic() > deadline:
                raise Expired
            state = call.send(ready)
    except StopIteration as done:
        found: RV = done.value
        return found

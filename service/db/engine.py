"""The connection to the database: SQLite on one machine, PostgreSQL on many, one code for both.

Reads and writes are separate calls. On SQLite a write takes the write lock at its first statement
(`BEGIN IMMEDIATE`): a transaction that read first and wanted to write later could only fail as locked.
"""

from __future__ import annotations

import contextlib
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Self

import sqlalchemy as sa
from sqlalchemy import event, exc
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.orm import Session
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.expression import FunctionElement

from service.config import Settings
from service.db.plain import dumps
from service.db.postgres import PATIENT, Patience, postgres_engine
from service.errors import DatabaseFull, DatabaseUnavailable
from service.reserve import NO_RESERVE, Reserve

PRAGMAS = ("synchronous=FULL", "busy_timeout=30000", "foreign_keys=ON", "secure_delete=ON")
"""FULL: an accepted job survives a power cut. Secure: what is deleted leaves the file, not the tables alone."""

WAL_WITHIN_S = 30.0
"""SQLite's own `busy_timeout` does not hold for changing the journal's mode: who comes second is refused at once."""

WRITE_WITHIN_S = 30.0
"""How long a write waits for others, of this process and, by the pragma, of other ones."""

DISPOSE_WITHIN_S = 10.0
"""A connection that is in use when its pool goes is closed by nobody."""

AT_COMMIT = "at_commit"
"""Name in `Session.info` of the list of what is called with the session at the end of a write, before the commit."""


DISK_FULL = "53100"
"""PostgreSQL's state."""


class clock(FunctionElement[float]):  # noqa: N801 - reads as the SQL function it is
    """The database's clock: seconds since 1970 as a float, UTC. Workers' clocks are never compared."""

    type = sa.Double()
    inherit_cache = True


@compiles(clock, "sqlite")
def _clock_sqlite(element: clock, compiler: SQLCompiler, **options: Any) -> str:
    return "((julianday('now') - 2440587.5) * 86400.0)"


@compiles(clock, "postgresql")
def _clock_postgresql(element: clock, compiler: SQLCompiler, **options: Any) -> str:
    return "(extract(epoch from clock_timestamp())::float8)"


class WriteTurns:
    """Writers of this process on SQLite, one at a time, first come, first served.

    SQLite itself lets whoever looks at the right moment write and makes the others sleep up to 0.1 s between two looks:
    beside many writers one could wait for seconds.
    """

    def __init__(self, within_s: float = WRITE_WITHIN_S) -> None:
        self._within_s = within_s
        self._lock = threading.Lock()
        self._waiting: deque[threading.Event] = deque()
        self._taken = False

    @property
    def waiting(self) -> int:
        """How many wait for their turn."""
        with self._lock:
            return len(self._waiting)

    def __enter__(self) -> None:
        """Raises `sqlalchemy.exc.TimeoutError`, which `unavailable` translates."""
        mine = threading.Event()
        with self._lock:
            if not self._taken:
                self._taken = True
                return
            self._waiting.append(mine)
        if mine.wait(self._within_s):
            return
        with self._lock:
            if mine.is_set():  # between the wait and the lock
                return
            self._waiting.remove(mine)
        raise exc.TimeoutError(f"no turn to write within {self._within_s:g} s")

    def __exit__(self, *exception: object) -> None:
        with self._lock:
            if self._waiting:
                self._waiting.popleft().set()
            else:
                self._taken = False


class Database:
    """Holder of one engine. Thread-safe; not to be used across a fork (open a new one in the child)."""

    def __init__(self, url: str, patience: Patience = PATIENT, reserve: Reserve = NO_RESERVE) -> None:
        self.url = sa.make_url(url)
        self.reserve = reserve
        self.engine = _engine(self.url, patience)
        self.writer = self.engine.execution_options(tilewright_writes=True)
        self._reader = self.engine
        self._turns: AbstractContextManager[object] = nullcontext()
        self._sessions = 0
        self._changed = threading.Condition()
        if self.url.get_backend_name() == "postgresql":
            self._reader = self.engine.execution_options(isolation_level="REPEATABLE READ")
        else:
            self._turns = WriteTurns()

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """The database that the settings name, waited for as long as they say."""
        patience = Patience(
            connect_s=settings.database_connect_s,
            statement_s=settings.database_statement_s,
            lock_s=settings.database_lock_s,
            idle_s=settings.database_idle_s,
        )
        return cls(settings.sqlalchemy_url, patience, Reserve.of(settings))

    @contextlib.contextmanager
    def read(self) -> Iterator[Session]:
        """A session over one consistent view, which is given up at the end. Raises `DatabaseUnavailable`."""
        with self._busy(), unavailable(), Session(self._reader, expire_on_commit=False) as session:
            yield session

    @contextlib.contextmanager
    def write(self) -> Iterator[Session]:
        """A session that commits at the end, or rolls back when the block raises. Raises `DatabaseUnavailable`."""
        with (
            self._busy(),
            unavailable(),
            self._turns,
            Session(self.writer, expire_on_commit=False) as session,
            session.begin(),
        ):
            yield session
            for last in session.info.pop(AT_COMMIT, ()):
                last(session)

    @contextlib.contextmanager
    def delete(self) -> Iterator[Session]:
        """The same for a session that deletes or ends something: on a full disk it has the reserve for that."""
        self.reserve.make_room()
        with self.write() as session:
            yield session

    def forget(self) -> None:
        """Let what was deleted leave SQLite's log of writes too, unless somebody reads; PostgreSQL's vacuum does that.

        Raises `DatabaseUnavailable`.
        """
        if self.engine.dialect.name != "sqlite":
            return
        with self._busy(), unavailable(), contextlib.closing(self.engine.raw_connection()) as connection:
            cursor = connection.cursor()
            for pragma in ("busy_timeout=200", "wal_checkpoint(TRUNCATE)", "busy_timeout=30000"):
                cursor.execute(f"PRAGMA {pragma}")
            cursor.close()

    def dispose(self) -> None:
        """Close the connections.

        Waits until the sessions that other threads have open are done, at most `DISPOSE_WITHIN_S`.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._sessions == 0, DISPOSE_WITHIN_S)
        self.engine.dispose()

    @contextlib.contextmanager
    def _busy(self) -> Iterator[None]:
        with self._changed:
            self._sessions += 1
        try:
            yield
        finally:
            with self._changed:
                self._sessions -= 1
                self._changed.notify_all()


def _engine(url: sa.URL, patience: Patience) -> sa.Engine:
    return _sqlite_engine(url) if url.get_backend_name() == "sqlite" else postgres_engine(url, patience)


def _sqlite_engine(url: sa.URL) -> sa.Engine:
    engine = sa.create_engine(url, connect_args={"timeout": 30}, json_serializer=dumps, pool_size=10, max_overflow=30)
    event.listen(engine, "connect", _prepare_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _prepare_sqlite(connection: Any, record: object) -> None:
    connection.isolation_level = None  # the driver opens no transactions of its own: `_begin_sqlite` does
    cursor = connection.cursor()
    for pragma in PRAGMAS:
        cursor.execute(f"PRAGMA {pragma}")
    log_writes_ahead(cursor)
    cursor.close()


def log_writes_ahead(cursor: sqlite3.Cursor) -> None:
    """Change a new file to WAL, which it keeps. Raises `sqlite3.OperationalError` if others hold it too long."""
    end = time.monotonic() + WAL_WITHIN_S
    while True:
        try:
            cursor.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > end:
                raise
            time.sleep(0.02)


def _begin_sqlite(connection: sa.Connection) -> None:
    writes = connection.get_execution_options().get("tilewright_writes", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN DEFERRED")


@contextlib.contextmanager
def unavailable() -> Iterator[None]:
    """Turn a database that does not answer, is locked for too long or full into `DatabaseUnavailable`."""
    try:
        yield
    except (exc.DBAPIError, exc.TimeoutError) as error:
        ours = isinstance(error, exc.DBAPIError) and not isinstance(error, exc.OperationalError | exc.InterfaceError)
        if ours and not getattr(error, "connection_invalidated", False):
            raise  # a statement that is wrong; of a session that the server ended the connection is gone too
        cause = str(getattr(error, "orig", error)).strip().splitlines()
        if _is_full(getattr(error, "orig", None)):
            raise DatabaseFull(
                f"the database failed: {cause[0] if cause else type(error).__name__}",
                fix="make room on the database's disk: delete jobs or models, then retry",
            ) from error
        raise DatabaseUnavailable(
            f"the database failed: {cause[0] if cause else type(error).__name__}",
            fix="check TILEWRIGHT_DATABASE_URL and the database, then retry",
        ) from error


def _is_full(error: object) -> bool:
    """Whether the database has no room: SQLite's code, or that of the memory beside its file, or PostgreSQL's."""
    if isinstance(error, sqlite3.Error):
        code = getattr(error, "sqlite_errorcode", 0)
        return code & 0xFF == sqlite3.SQLITE_FULL or code == sqlite3.SQLITE_IOERR_SHMSIZE
    return getattr(error, "sqlstate", None) == DISK_FULL

from __future__ import annotations

import contextlib
import sqlite3
import threading
import time
from pathlib import Path

import psycopg
import pytest
import sqlalchemy as sa

from service.db import owners
from service.db.engine import Database, WriteTurns, clock, log_writes_ahead, unavailable
from service.db.models import Owner, new_id
from service.errors import DatabaseFull, DatabaseUnavailable


def test_sqlite_is_set_up_to_survive_a_power_cut_and_many_writers(db: Database) -> None:
    if db.engine.dialect.name != "sqlite":
        pytest.skip("PostgreSQL needs no pragmas")
    with db.read() as session:
        pragmas = {
            name: session.connection().exec_driver_sql(f"PRAGMA {name}").scalar()
            for name in ("journal_mode", "synchronous", "busy_timeout", "foreign_keys", "secure_delete")
        }
    assert pragmas == {
        "journal_mode": "wal",
        "synchronous": 2,
        "busy_timeout": 30000,
        "foreign_keys": 1,
        "secure_delete": 1,
    }


def test_a_new_file_that_others_hold_for_a_moment_is_waited_for(tmp_path: Path) -> None:
    """Four processes that migrate a new file at once: SQLite refuses the second change to WAL without waiting."""
    with (
        contextlib.closing(
            sqlite3.connect(tmp_path / "new.db", isolation_level=None, check_same_thread=False)
        ) as other,
        contextlib.closing(sqlite3.connect(tmp_path / "new.db", isolation_level=None, timeout=0)) as ours,
    ):
        other.execute("CREATE TABLE t (x)")
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            ours.execute("PRAGMA journal_mode=WAL")
        let_go = threading.Timer(0.2, other.execute, ("COMMIT",))
        let_go.start()
        log_writes_ahead(ours.cursor())
        let_go.join()
        assert ours.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_what_is_no_database_is_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / "text.db").write_text("not a database\n" * 100)
    with (
        contextlib.closing(sqlite3.connect(tmp_path / "text.db", isolation_level=None)) as ours,
        pytest.raises(sqlite3.DatabaseError, match="not a database"),
    ):
        log_writes_ahead(ours.cursor())


def test_the_databases_clock_counts_seconds_since_1970(db: Database) -> None:
    with db.read() as session:
        first = session.scalar(sa.select(clock()))
    with db.read() as session:
        second = session.scalar(sa.select(clock()))
    assert first is not None
    assert second is not None
    assert abs(first - time.time()) < 3600
    assert second >= first


def test_a_write_that_raises_leaves_nothing(db: Database) -> None:
    def stop() -> None:
        with db.write() as session:
            owners.named(session, "ada")
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        stop()
    with db.read() as session:
        assert session.scalar(sa.select(sa.func.count()).select_from(Owner)) == 0


def test_a_reader_sees_one_consistent_view_and_holds_up_no_writer(db: Database) -> None:
    count = sa.select(sa.func.count()).select_from(Owner)
    with db.read() as reading:
        assert reading.scalar(count) == 0
        with db.write() as writing:
            owners.named(writing, "ada")
        assert reading.scalar(count) == 0
    with db.read() as session:
        assert session.scalar(count) == 1


def test_a_database_that_does_not_answer_is_unavailable() -> None:
    with pytest.raises(DatabaseUnavailable), Database("sqlite:////nowhere/x.db").read() as session:
        session.scalar(sa.select(clock()))


def test_ids_made_later_sort_later() -> None:
    ids = [new_id() for _ in range(1000)]
    assert ids == sorted(ids)
    assert {made.version for made in ids} == {7}


def grow(db: Database) -> None:
    with db.write() as session:
        session.connection().exec_driver_sql("PRAGMA max_page_count = 3")
        session.connection().exec_driver_sql("INSERT INTO t VALUES (zeroblob(1000000))")


def test_a_database_without_room_is_told_from_one_that_is_away(tmp_path: Path) -> None:
    db = Database(f"sqlite:///{tmp_path / 'x.db'}")
    with db.write() as session:
        session.connection().exec_driver_sql("CREATE TABLE t (x)")
    with pytest.raises(DatabaseFull, match="full"):
        grow(db)
    db.dispose()
    for state, kind in (("53100", DatabaseFull), ("57P03", DatabaseUnavailable)):
        error = sa.exc.OperationalError("INSERT", None, psycopg.errors.lookup(state)("no"))
        with pytest.raises(DatabaseUnavailable) as raised, unavailable():
            raise error
        assert type(raised.value) is kind


def test_writers_take_turns_in_the_order_in_which_they_came() -> None:
    turns, order = WriteTurns(), list[int]()

    def write(number: int) -> None:
        with turns:
            order.append(number)

    writers = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    with turns:
        for waiting, writer in enumerate(writers, 1):
            writer.start()
            while turns.waiting < waiting:
                time.sleep(0.001)
    for writer in writers:
        writer.join()
    assert order == list(range(8))
    assert turns.waiting == 0


def test_who_gets_no_turn_gives_up_and_holds_up_nobody() -> None:
    turns = WriteTurns(within_s=0.01)
    with turns, pytest.raises(DatabaseUnavailable, match="no turn to write"), unavailable(), turns:
        pass
    with turns:  # neither the refused one nor an error keeps the turn
        pass

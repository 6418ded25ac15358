"""Servers that are slow, stopped or swallowed: what is asked of them ends all the same."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient
from sqlalchemy.orm import Session

from service.config import Settings
from service.db import migrate
from service.db.engine import Database
from service.db.postgres import Patience
from service.errors import DatabaseUnavailable
from service.http.app import create_app
from service.jobs.accounts import access
from service.jobs.inspection.inspector import Inspector
from tests.servers import GUARD_S, Missing, Postgres, free_port, running_postgres
from tests.service.conftest import RecordingRing

HASTY = Patience(connect_s=2, statement_s=1.0, lock_s=0.2, idle_s=1.0)


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    """A server of this module's own, on TCP, which its tests may stop."""
    try:
        with running_postgres(Postgres(port=free_port())) as started:
            yield started
    except Missing as reason:
        pytest.skip(str(reason))


@pytest.fixture
def hasty(server: Postgres) -> Iterator[Database]:
    database = Database(server.url.render_as_string(hide_password=False), HASTY)
    yield database
    database.dispose()


def family(server: Postgres) -> list[int]:
    """The server's processes."""
    assert server.process is not None
    pids = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]
    found, parents = [server.process.pid], {server.process.pid}
    for pid in pids:
        try:
            if int((Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[1]) in parents:
                found.append(pid)
        except FileNotFoundError:
            continue
    return found


@contextlib.contextmanager
def stopped(server: Postgres) -> Iterator[threading.Timer]:
    """The server does nothing meanwhile; the timer, which is alive while it does, lets it go on after `GUARD_S`."""

    def send(number: signal.Signals) -> None:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    pids = family(server)
    rescue = threading.Timer(GUARD_S, send, [signal.SIGCONT])
    send(signal.SIGSTOP)
    rescue.start()
    try:
        yield rescue
    finally:
        rescue.cancel()
        send(signal.SIGCONT)


def one(session: Session) -> int | None:
    return session.scalar(sa.select(sa.literal(1)))


def test_a_statement_that_takes_too_long_is_ended_by_the_server(hasty: Database) -> None:
    with pytest.raises(DatabaseUnavailable, match="statement timeout"), hasty.read() as session:
        session.execute(sa.text("SELECT pg_sleep(60)"))


def test_a_lock_is_waited_for_a_part_of_that(hasty: Database) -> None:
    with hasty.write() as holder:
        holder.execute(sa.text("SELECT pg_advisory_xact_lock(7)"))
        with pytest.raises(DatabaseUnavailable, match="lock timeout"), hasty.write() as session:
            session.execute(sa.text("SELECT pg_advisory_xact_lock(7)"))


def test_a_transaction_in_which_nothing_is_asked_is_given_up(hasty: Database) -> None:
    there = sa.text("SELECT count(*) FROM pg_stat_activity WHERE pid = :pid")

    def dawdle() -> None:
        with hasty.write() as session:
            mine = session.scalar(sa.text("SELECT pg_backend_pid()"))
            left = 1
            while left:
                with hasty.read() as other:
                    left = other.scalar(there, {"pid": mine}) or 0
            one(session)

    with pytest.raises(DatabaseUnavailable):
        dawdle()


def test_a_server_that_is_stopped_is_given_up_in_time_and_found_again(server: Postgres, hasty: Database) -> None:
    with hasty.read() as session:
        assert one(session) == 1
    with stopped(server) as rescue:
        with pytest.raises(DatabaseUnavailable), hasty.read() as session:
            one(session)
        assert rescue.is_alive()
    with hasty.read() as session:
        assert one(session) == 1


def test_a_transaction_under_way_when_the_server_stops_ends_too(server: Postgres, hasty: Database) -> None:
    def ask() -> None:
        with hasty.read() as session:
            one(session)
            with stopped(server) as rescue:
                try:
                    one(session)
                finally:
                    assert rescue.is_alive()

    with pytest.raises(DatabaseUnavailable, match="did not answer"):
        ask()


def test_a_port_that_takes_connections_and_says_nothing_is_unavailable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"postgresql+psycopg://u:secret@127.0.0.1:{silent.getsockname()[1]}/d"
        with pytest.raises(DatabaseUnavailable), Database(url, HASTY).read() as session:
            session.scalar(sa.select(sa.literal(1)))


def test_the_api_answers_503_while_the_server_is_stopped(server: Postgres, tmp_path: Path) -> None:
    url = server.url.render_as_string(hide_password=False)
    migrate.upgrade(url)
    settings = Settings(
        data_dir=tmp_path,
        database_url=url,
        database_connect_s=2,
        database_statement_s=1,
        reconcile_every_s=3600.0,
    )
    db = Database.of(settings)
    key = access.make_key(db, "ada", ["read"], "test")
    db.dispose()
    app = create_app(settings, ring=RecordingRing(), inspector=Inspector(ready=0))
    with TestClient(app, headers={"Authorization": f"Bearer {key}"}) as client:
        assert client.get("/jobs").status_code == 200
        with stopped(server) as rescue:
            answer = client.get("/jobs")
            assert rescue.is_alive(), "it waited until the server went on"
        assert (answer.status_code, answer.json()["code"]) == (503, "database_unavailable")
        assert client.get("/jobs").status_code == 200

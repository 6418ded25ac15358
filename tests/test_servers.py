from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import redis
import sqlalchemy as sa

from tests import servers
from tests.end_to_end.house import eventually, process
from tests.servers import Databases, Missing, Postgres, Redis, free_port, running_postgres, running_redis

ROOT = Path(__file__).parents[1]


@pytest.fixture
def nothing_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(servers, "DEBIAN", tmp_path)


def test_what_is_missing_is_named_with_the_package(nothing_installed: None) -> None:
    with pytest.raises(Missing, match="apt-get install postgresql"), running_postgres():
        pass


def needs(found: Callable[[], Path]) -> None:
    """Skip where the server that this looks for is not installed."""
    try:
        found()
    except Missing as reason:
        pytest.skip(str(reason))


def test_a_durable_postgres_that_is_killed_comes_back_with_what_was_committed() -> None:
    needs(servers.postgres_programs)
    with running_postgres(Postgres(port=free_port(), durable=True)) as server:
        engine = sa.create_engine(server.url, poolclass=sa.NullPool)
        with engine.begin() as connection:
            connection.exec_driver_sql("CREATE TABLE kept AS SELECT 7 AS number")
        server.kill()
        with pytest.raises(sa.exc.OperationalError):
            engine.connect()
        server.start()
        over_tcp = server.url.set(host="127.0.0.1", port=server.port, password=server.password, query={})
        with sa.create_engine(over_tcp, poolclass=sa.NullPool).connect() as connection:
            assert connection.exec_driver_sql("SELECT number FROM kept").scalar() == 7
            assert connection.exec_driver_sql("SHOW fsync").scalar() == "on"
        wrong = sa.create_engine(over_tcp.set(password="another"), poolclass=sa.NullPool)
        with pytest.raises(sa.exc.OperationalError, match="password"):
            wrong.connect()
    assert not server.folder.exists()


def test_a_redis_that_is_killed_comes_back_with_what_it_wrote_down() -> None:
    needs(servers.redis_program)
    synced = ("--appendonly", "yes", "--appendfsync", "always")
    with running_redis(Redis(password="only here", arguments=(*synced, "--requirepass", "only here"))) as server:
        with redis.Redis.from_url(server.url) as client:
            client.rpush("queue", "doorbell")
        server.kill()
        server.start()
        with redis.Redis.from_url(server.url) as client:
            assert client.llen("queue") == 1
    assert not server.folder.exists()


def test_every_database_is_migrated_and_nobody_elses(databases: Databases) -> None:
    first, second = databases.migrated(), databases.migrated()
    one, other = (sa.create_engine(url, poolclass=sa.NullPool) for url in (first, second))
    with one.begin() as connection:
        connection.exec_driver_sql("INSERT INTO totals VALUES ('a', '{}', 1)")
    with other.connect() as connection:
        assert connection.exec_driver_sql("SELECT count(*) FROM totals").scalar() == 0
        databases.drop(first)
        databases.drop(second)
        with pytest.raises(sa.exc.OperationalError):
            connection.exec_driver_sql("SELECT 1")
        connection.invalidate()


def test_what_an_earlier_user_wrote_or_still_writes_is_not_in_the_emptied_database(databases: Databases) -> None:
    with databases.emptied() as url:
        late = sa.create_engine(url)
        with late.begin() as connection:
            connection.exec_driver_sql("INSERT INTO totals VALUES ('a', '{}', 1)")
        held = late.connect()
        held.exec_driver_sql("UPDATE totals SET value = 2")
    with databases.emptied() as url:
        with sa.create_engine(url, poolclass=sa.NullPool).connect() as connection:
            assert connection.exec_driver_sql("SELECT count(*) FROM totals").scalar() == 0
        with pytest.raises(sa.exc.OperationalError, match="terminating connection"):
            held.exec_driver_sql("SELECT 1")
        held.close()
        with pytest.raises(sa.exc.OperationalError, match="does not exist"):
            late.connect()
    late.dispose()


def test_emptying_leaves_no_row_in_any_table(databases: Databases) -> None:
    with databases.emptied() as url, sa.create_engine(url, poolclass=sa.NullPool).connect() as connection:
        tables = set(sa.inspect(connection).get_table_names())
        emptied = set(servers.EMPTY.removeprefix('DELETE FROM "').removesuffix('"').split('"; DELETE FROM "'))
        assert emptied == tables - {"alembic_version"}


def test_nobody_shares_the_emptied_database(databases: Databases) -> None:
    with databases.emptied() as first, databases.emptied() as second:
        assert first != second


@pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="the kernel ends servers of dead parents on Linux only"
)
def test_a_server_does_not_outlive_a_test_run_that_is_killed() -> None:
    needs(servers.redis_program)
    program = "from tests.servers import *; s = Redis(); s.start(); print(s.process.pid, s.folder, flush=True); input()"
    run = subprocess.Popen(
        [sys.executable, "-c", program], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert run.stdout is not None
    pid, _, folder = run.stdout.readline().strip().partition(" ")
    found = process(int(pid))
    assert found is not None
    os.kill(run.pid, signal.SIGKILL)
    run.communicate()
    eventually(lambda: not found.alive, "the server's end")
    shutil.rmtree(folder)

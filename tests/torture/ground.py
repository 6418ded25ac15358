"""A service in temporary folders on the loopback interface.

All of its processes can be made to die, and are started again.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import secrets
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import httpx

from service.db import migrate
from service.db.engine import Database
from tests.servers import GUARD_S, Databases, Postgres, Redis, free_port, running_postgres, running_redis
from tests.torture import clock, faults, points
from tests.torture.process import Forked
from worker.processes import launch

ROOT = Path(__file__).parents[2]
LEASE_S = 2.0
STOP_PATIENCE_S = 8.0
WORKERS = ("worker-1", "worker-2")
Kind = Literal["sqlite", "postgresql"]

QUICK = {
    "TILEWRIGHT_LEASE_S": str(LEASE_S),
    "TILEWRIGHT_COMPARE": "false",
    "TILEWRIGHT_MAX_LOST_LEASES": "100000",  # a job that we kill again and again must still end
    "TILEWRIGHT_MAX_ATTEMPTS": "100000",
    "TILEWRIGHT_MAX_QUEUED_PER_OWNER": "100000",
    "TILEWRIGHT_RECONCILE_EVERY_S": "0.2",
    "TILEWRIGHT_RING_AGAIN_AFTER_S": "1",
    "TILEWRIGHT_WORKER_ALIVE_S": "5",
    "TILEWRIGHT_LOOK_EVERY_S": "0.5",
    "TILEWRIGHT_SEEN_EVERY_S": "0.5",
    "TILEWRIGHT_GRACEFUL_SHUTDOWN_S": "1",
}
SELDOM = {"TILEWRIGHT_RECONCILE_EVERY_S": "4"}
"""The API reconciles too; here most of it is to be the reconciler's, which is killed at points of its own."""


@dataclass
class Ground:
    """The processes of one service, its database and broker, and the folder `fates` in which points look for theirs."""

    folder: Path
    kind: Kind
    url: str
    redis: Redis
    postgres: Postgres | None
    fault: str = faults.NONE
    log_full: bool = False
    """Whether no process finds room for its log, from its start to its end."""
    port: int = field(default_factory=free_port)
    key: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)
    deaths: int = 0
    """Processes of the service that were found dead and started again."""

    def __post_init__(self) -> None:
        for folder in (self.fates, self.logs):
            folder.mkdir()
        if self.log_full:
            (self.fates / points.LOG_FULL).touch()
        self.db = Database(self.url)
        self.numbers = itertools.count(1)
        rest = [str(self.fates), self.fault]
        self.api = self._supervised("api", ["api", *rest], SELDOM)
        self.reconciler = self._supervised("reconciler", ["reconciler", *rest], {})
        self.workers = tuple(
            self._supervised(
                name, ["worker", *rest, "--queue", "cpu"], {"TILEWRIGHT_SCRATCH_DIR": str(self.scratch(name))}
            )
            for name in WORKERS
        )

    @property
    def fates(self) -> Path:
        return self.folder / "fates"

    @property
    def logs(self) -> Path:
        return self.folder / "logs"

    @property
    def blobs(self) -> Path:
        """The blob store."""
        return self.folder / "data" / "blobs"

    def scratch(self, worker: str) -> Path:
        """A folder for each worker, and with it a device: both run jobs at the same time."""
        return self.folder / f"scratch-{worker}"

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def processes(self) -> tuple[Forked, ...]:
        return (self.api, self.reconciler, *self.workers)

    def deal(self, fate: points.Fate, point: str) -> Path:
        """The next process that comes to this point suffers this; the file that is gone once it has."""
        token = points.token(self.fates, fate, point, next(self.numbers))
        token.touch()
        return token

    def start(self) -> None:
        """Returns when the service is ready. Call from the main thread, without which nothing here lives."""
        for process in self.processes:
            process.start()
        end = time.monotonic() + GUARD_S
        while not self._ready():
            assert time.monotonic() < end, self.log_tails()
            self.mend()
            time.sleep(0.05)

    def mend(self) -> None:
        """Start again what is dead, after the shortest pause however often it has died."""
        for process in self.processes:
            process.deaths = 0
            self.deaths += process.mend()

    def revive_database(self) -> None:
        """SIGKILL for every process of PostgreSQL, and a new start on what it had synced."""
        assert self.postgres is not None
        assert self.postgres.process is not None
        leader = self.postgres.process.pid
        os.kill(leader, signal.SIGSTOP)  # it starts no more of them
        left = launch.descendants(leader)
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.postgres.kill()
        end = time.monotonic() + GUARD_S
        while any(Path(f"/proc/{pid}").exists() for pid in left):
            assert time.monotonic() < end, f"processes {left} of PostgreSQL do not die"
            time.sleep(0.01)
        self.postgres.start()

    def stop(self) -> None:
        """SIGTERM for all, SIGKILL for what does not end."""
        for process in self.processes:
            if process.process is not None:
                process.process.send_signal(signal.SIGCONT)
            process.ask_to_stop()
        for process in self.processes:
            process.stop(STOP_PATIENCE_S)

    def log_tails(self) -> str:
        """The last lines of every process."""
        return "\n".join(f"--- {process.name}\n{process.log_tail()}" for process in self.processes)

    def _ready(self) -> bool:
        with contextlib.suppress(httpx.TransportError):
            # Without `verify=False` each request reads all certificates: 20 ms of a core that others wait for.
            return httpx.get(f"{self.address}/readyz", trust_env=False, verify=False).status_code == 200
        return False

    def _supervised(self, name: str, command: list[str], more: Mapping[str, str]) -> Forked:
        own = {name: value for name, value in os.environ.items() if not name.startswith(("TILEWRIGHT_", "PYTHON"))}
        environment = {
            **own,
            **QUICK,
            "PYTHONPATH": str(ROOT),
            "TILEWRIGHT_DATA_DIR": str(self.folder / "data"),
            "TILEWRIGHT_DATABASE_URL": self.url,
            "TILEWRIGHT_BROKER_URL": self.redis.url,
            "TILEWRIGHT_PORT": str(self.port),
            "TMPDIR": str(self.folder),
            "TILEWRIGHT_API_KEY": self.key,
            **clock.environment(),
            **more,
        }
        return Forked(name, command, environment, self.logs / f"{name}.log")


@contextlib.contextmanager
def prepared(kind: Kind, fault: str = faults.NONE, log_full: bool = False) -> Iterator[Ground]:
    """A ground on an empty database; all of it is gone afterwards. Raises `tests.servers.Missing`."""
    with contextlib.ExitStack() as opened:
        folder = Path(tempfile.mkdtemp(prefix="tw-torture-"))
        opened.callback(shutil.rmtree, folder, ignore_errors=True)
        broker = opened.enter_context(running_redis())
        postgres = opened.enter_context(running_postgres(Postgres(durable=True))) if kind == "postgresql" else None
        (folder / "data").mkdir()
        url = Databases(postgres.url).empty() if postgres else f"sqlite:///{folder / 'data' / 'tilewright.db'}"
        migrate.upgrade(url)
        ground = Ground(folder, kind, url, broker, postgres, fault, log_full)
        opened.callback(ground.db.dispose)
        opened.callback(ground.stop)
        yield ground

"""The whole service as real processes: `tilewright up` on a free port and a data folder of its own."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from tests.servers import GUARD_S
from tilewright.client import Client

ROOT = Path(__file__).parents[2]
LEASE_S = 8.0
"""Shorter than the default, so that a job whose worker was killed is soon taken again; long enough for a loaded
machine.
"""
UP = (sys.executable, "-P", "-m", "tilewright", "up")

T = TypeVar("T")


def eventually(condition: Callable[[], T | None], what: str, pause_s: float = 0.05) -> T:
    """The first true answer of `condition`."""
    end = time.monotonic() + GUARD_S
    while not (answer := condition()):
        assert time.monotonic() < end, f"never: {what}"
        time.sleep(pause_s)
    return answer


@dataclass(frozen=True)
class Process:
    """A process that cannot be mistaken for a later one with its id."""

    pid: int
    parent: int
    started: int
    command: str

    @property
    def alive(self) -> bool:
        """Zombies are dead."""
        found = process(self.pid)
        return found is not None and found.started == self.started


def process(pid: int) -> Process | None:
    """The process with this id, None when there is none or it is a zombie."""
    try:
        state, *fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return None
    return None if state in (b"Z", b"X") else Process(pid, int(fields[0]), int(fields[18]), command)


def processes() -> list[Process]:
    """All that live."""
    return [found for entry in os.listdir("/proc") if entry.isdigit() and (found := process(int(entry)))]


@dataclass(frozen=True)
class House:
    """A running `tilewright up`."""

    up: subprocess.Popen[bytes]
    folder: Path
    url: str
    key: str
    environment: Mapping[str, str]

    @property
    def data(self) -> Path:
        """The data folder."""
        return self.folder / "data"

    @property
    def header(self) -> str:
        """What authenticates a request."""
        return f"Authorization: Bearer {self.key}"

    def client(self) -> Client:
        """A client; to be closed."""
        return Client(self.url, self.key)

    def command_line(self, *arguments: str, status: int = 0) -> subprocess.CompletedProcess[str]:
        """What `tilewright` with these arguments printed; it finds this house through its data folder."""
        command = [sys.executable, "-P", "-m", "tilewright", *arguments]
        environment = {**self.environment, "TILEWRIGHT_DATA_DIR": str(self.data)}
        done = subprocess.run(
            command, cwd=self.folder, env=environment, capture_output=True, text=True, timeout=GUARD_S, check=False
        )
        assert done.returncode == status, done.stdout + done.stderr
        return done

    def part(self, name: str) -> Process:
        """The process of `service` or `worker`."""
        return eventually(lambda: self._part(name), f"a process `-m {name}`")

    def _part(self, name: str) -> Process | None:
        children = [found for found in processes() if found.parent == self.up.pid]
        return next((child for child in children if f" -m {name} " in f"{child.command} "), None)

    def kill(self, name: str) -> Process:
        """SIGKILL for `service` or `worker`; what was killed."""
        victim = self.part(name)
        os.kill(victim.pid, signal.SIGKILL)
        return victim

    def compiling(self) -> list[Process]:
        """Every process that works below the scratch folder of the workers, whoever its parent is now."""
        scratch = str(self.folder / "scratch")

        def works_there(pid: int) -> bool:
            with contextlib.suppress(OSError):
                return os.readlink(f"/proc/{pid}/cwd").startswith(scratch)
            return False

        return [found for found in processes() if works_there(found.pid) or scratch in found.command]

    def log(self) -> str:
        """What its processes printed."""
        logs = [self.folder / "up.log", *sorted((self.data / "logs").glob("*.log"))]
        return "\n".join(f"--- {log.name}\n{log.read_text(errors='replace')[-4000:]}" for log in logs if log.exists())


@contextlib.contextmanager
def running(
    folder: Path,
    command: tuple[str, ...] = UP,
    python_path: str = str(ROOT),
    variables: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[House]:
    """A house in `folder`, with further environment variables; all of its processes are gone afterwards."""
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("TILEWRIGHT_", "PYTHON"))},
        "PYTHONPATH": python_path,
        "TILEWRIGHT_SCRATCH_DIR": str(folder / "scratch"),
        "XDG_STATE_HOME": str(folder / "state"),
        "TILEWRIGHT_LEASE_S": str(LEASE_S),
        "TILEWRIGHT_COMPARE": "false",  # a test of a race asks for one
        **variables,
    }
    ready_file = folder / "ready"
    arguments = [*command, "--port", "0", "--data", str(folder / "data"), "--ready-file", str(ready_file)]
    with (folder / "up.log").open("wb") as log:
        up = subprocess.Popen(arguments, cwd=folder, env=environment, stdout=log, stderr=log)
        try:
            ready = eventually(lambda: _ready(up, ready_file, folder / "up.log"), "ready")
            key = Path(ready["key_file"]).read_text().strip()
            yield House(up, folder, ready["url"], key, environment)
        finally:
            up.terminate()
            try:
                up.wait(GUARD_S)
            finally:
                up.kill()
                up.wait()


def _ready(up: subprocess.Popen[bytes], ready_file: Path, log: Path) -> dict[str, Any] | None:
    assert up.poll() is None, log.read_text()
    return json.loads(ready_file.read_text()) if ready_file.exists() else None

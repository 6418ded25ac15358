"""The servers that `tilewright up` runs on this machine, each a file in the user's state folder while it runs.

They are what a shell finds that was told no address. A file whose process has ended counts for nothing; the next `up`
removes it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path


@dataclass(frozen=True)
class Running:
    """One of them.

    data   its data folder, absolute
    pid    of `tilewright up`, and `begun`, when that process began (clock ticks since the machine started; 0: unknown)
    since  when it was started, in seconds since 1970
    ready  whether it takes requests; until then it starts
    """

    url: str
    key_file: str
    data: str
    pid: int
    begun: int
    since: float
    ready: bool = False

    @property
    def is_alive(self) -> bool:
        """Whether its process lives and is not another one with the same id."""
        begun = begun_at(self.pid)
        return begun is not None and begun == self.begun


def folder() -> Path:
    """Where the files are: `$XDG_STATE_HOME/tilewright/servers`."""
    home = os.environ.get("XDG_STATE_HOME", "")
    root = Path(home) if os.path.isabs(home) else Path.home() / ".local" / "state"
    return root / "tilewright" / "servers"


def begun_at(pid: int) -> int | None:
    """When a process began, in clock ticks; 0 where the system does not say; None for one that has ended."""
    if os.path.isdir("/proc/self"):
        try:
            state, *fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        except OSError:
            return None
        return None if state in (b"Z", b"X") else int(fields[18])
    if os.name != "posix":  # no `up` runs there, and a signal would end the process
        return None
    with contextlib.suppress(PermissionError):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return None
    return 0


def alive(data: Path | None = None) -> list[Running]:
    """Those that run, the newest first; only those of a data folder, if one is named."""
    return [one for _, one in _files() if one.is_alive and data in (None, Path(one.data))]


@contextlib.contextmanager
def registered(server: Running) -> Iterator[Running]:
    """Let a server be found while the block runs: as one that starts, until `announce` says that it is ready.

    Raises OSError where the file cannot be written.
    """
    for file, other in _files():
        if not other.is_alive:
            file.unlink(missing_ok=True)
    folder().mkdir(parents=True, exist_ok=True, mode=0o700)
    try:
        _write(server)
        yield server
    finally:
        _file(server).unlink(missing_ok=True)


def announce(server: Running) -> None:
    """Say of a registered server that it takes requests. Raises OSError."""
    _write(replace(server, ready=True))


def _file(server: Running) -> Path:
    """One for each data folder, in which one server runs at most."""
    return folder() / f"{hashlib.sha256(os.fsencode(server.data)).hexdigest()[:16]}.json"


def _files() -> list[tuple[Path, Running]]:
    """All that are there, the newest first; damaged ones are left out."""
    found = []
    for file in folder().glob("*.json"):
        with contextlib.suppress(OSError, ValueError, TypeError):
            found.append((file, Running(**json.loads(file.read_text()))))
    return sorted(found, key=lambda pair: -pair[1].since)


def _write(server: Running) -> None:
    """Whole or not at all."""
    file = _file(server)
    draft = file.with_name(f".{file.name}.{os.getpid()}")
    draft.write_text(json.dumps(asdict(server)) + "\n")
    draft.replace(file)

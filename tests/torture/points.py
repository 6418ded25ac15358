"""The instructions at which a process may be made to die, to stand still, to lose an answer or to find the disk full.

A point is a function of the program, and whether the fate comes before it or after it. A fate is a file in a folder:
whoever reaches the point and manages to remove the file suffers it, so that each file strikes once, whatever process
comes first. The program knows nothing of this: `arm` wraps the functions when a process starts.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import importlib
import os
import select
import signal
import sys
import time
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from tests.torture.clock import is_settable

Role = Literal["api", "worker", "reconciler"]
Fate = Literal["kill", "stop", "full", "unanswered"]


@dataclass(frozen=True)
class Point:
    """`before` or after `function` of `module`."""

    role: Role
    module: str
    function: str
    before: bool = False
    commits: bool = False
    """The function is one transaction, whose answer may be lost."""
    carrying: int = 0
    """The argument (by position) that must not be empty, or 0: a call that says nothing is no point of a job's life."""


POINTS: Mapping[str, Point] = MappingProxyType(
    {
        "model kept": Point("api", "service.jobs.storage.models", "put", commits=True),
        "job accepted": Point("api", "service.jobs.submission.submit", "submit_all", commits=True),
        "bell rung": Point("api", "service.jobs.scheduling.doorbell", "announce"),
        "job claimed": Point("worker", "service.jobs.scheduling.lease", "claim", commits=True),
        "child started": Point("worker", "worker.attempt.supervise", "supervise", before=True),
        "heartbeat committed": Point("worker", "service.jobs.scheduling.lease", "heartbeat", commits=True, carrying=2),
        "child ended": Point("worker", "worker.attempt.supervise", "supervise"),
        "artifact stored": Point("worker", "worker.attempt.outcome", "store"),
        "outcome on its way": Point("worker", "service.jobs.scheduling.lease", "succeed", before=True),
        "outcome committed": Point("worker", "service.jobs.scheduling.lease", "succeed", commits=True),
        "round begun": Point("reconciler", "service.jobs.operations.reconcile", "reconcile", before=True),
        "round committed, nobody rung": Point(
            "reconciler", "service.jobs.scheduling.doorbell", "try_ring", before=True
        ),
    }
)
"""By what has just happened when the process dies."""

FULL: Mapping[str, Role] = MappingProxyType({"upload": "api", "artifact": "worker"})
"""Blobs in whose middle a process of this role finds the disk full."""

BETWEEN_BEATS_S = 0.2
"""A process that is stopped in the middle of a write stops all others on SQLite, whose lock it holds: its lease cannot
expire.
"""

PROGRAM: Mapping[Role, str] = MappingProxyType(
    {"api": "service.http.app", "worker": "worker.__main__", "reconciler": "service.__main__"}
)
"""Loads all that a process of this role will ever use, so that every name for a function is found."""


def token(folder: Path, fate: Fate, point: str, number: int) -> Path:
    """The file that brings a fate about once it is there."""
    return folder / f"{fate}@{point}@{number}"


def stopped(folder: Path, number: int) -> Path:
    """The file that names the process which the stop of this number has befallen."""
    return folder / f"stopped-{number}"


def arm(role: Role, folder: Path) -> None:
    """Make this process suffer the fates in `folder` that are meant for its role.

    Under libfaketime `time.sleep` waits by `select`: the library subtracts the clock that it shows from deadlines of
    the one that it leaves alone, and where the clock was set a sleep may then fail with EINVAL.
    """
    importlib.import_module(PROGRAM[role])
    for name, point in POINTS.items():
        if point.role == role:
            replace(point.module, point.function, functools.partial(_fated, folder=folder, point=name, place=point))
    if is_settable():
        replace("time", "sleep", lambda _: _sleep)
    _arm_log(folder)
    _arm_database(folder)
    for name, whose in FULL.items():
        if whose == role:
            _arm_disk(folder, name)


def _sleep(seconds: float) -> None:
    select.select((), (), (), seconds)


def replace(module: str, function: str, wrap: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    """Put a wrapped function wherever a loaded module has a name for the function."""
    original = getattr(importlib.import_module(module), function)
    wrapped = functools.wraps(original)(wrap(original))
    for loaded in tuple(sys.modules.values()):
        for name, value in tuple(getattr(loaded, "__dict__", {}).items()):
            if value is original:
                setattr(loaded, name, wrapped)


def _fated(function: Callable[..., Any], folder: Path, point: str, place: Point) -> Callable[..., Any]:
    def wrapped(*arguments: Any, **named: Any) -> Any:
        if place.before:
            meet(folder, point)
        result = function(*arguments, **named)
        # An idle worker claims nothing time and again: that is no point either.
        if not place.before and result is not None and (place.carrying == 0 or arguments[place.carrying]):
            meet(folder, point)
        return result

    return wrapped


def meet(folder: Path, point: str) -> None:
    """Suffer what waits at this point, if anything does."""
    for file in folder.glob(f"*@{point}@*"):
        with contextlib.suppress(FileNotFoundError):
            file.unlink()
            fate, _, number = file.name.split("@")
            if fate == "unanswered":
                from service.errors import DatabaseUnavailable

                raise DatabaseUnavailable("the connection broke before the answer came")
            if fate == "stop":
                stopped(folder, int(number)).write_text(str(os.getpid()))
                time.sleep(BETWEEN_BEATS_S)
            os.kill(os.getpid(), signal.SIGKILL if fate == "kill" else signal.SIGSTOP)
            return


LOG_FULL = "log-full"
"""While this file is among the fates, nobody's log finds room."""


def _arm_log(folder: Path) -> None:
    """Give the log an `os` of its own, whose disk is full while `LOG_FULL` says so."""
    logs: Any = importlib.import_module("service.logs")
    own = types.ModuleType("os")
    own.__dict__.update(vars(os))

    def write(descriptor: int, text: memoryview) -> int:
        if (folder / LOG_FULL).exists():
            raise OSError(errno.ENOSPC, "No space left on device")
        return os.write(descriptor, text)

    vars(own)["write"] = write
    logs.os = own


def _arm_database(folder: Path) -> None:
    """Let commits find the disk full while `full@database` is among the fates."""
    import sqlite3

    import sqlalchemy as sa

    def commit(connection: Any) -> None:
        writes = connection.get_execution_options().get("tilewright_writes", False)
        if writes and (folder / DATABASE_FULL).exists():
            error = sqlite3.OperationalError("database or disk is full")
            error.sqlite_errorcode = sqlite3.SQLITE_FULL
            raise sa.exc.OperationalError("COMMIT", None, error)

    sa.event.listen(sa.Engine, "commit", commit)


DATABASE_FULL = "database-full"
"""While this file is among the fates, nobody's transaction finds room."""


def _arm_disk(folder: Path, point: str) -> None:
    """Give the blob store an `os` of its own, whose disk may be full after half a block."""
    spool: Any = importlib.import_module("service.blobs.spool")
    own = types.ModuleType("os")
    own.__dict__.update(vars(os))

    def write(descriptor: int, block: memoryview) -> int:
        for file in folder.glob(f"full@{point}@*"):
            with contextlib.suppress(FileNotFoundError):
                file.unlink()
                os.write(descriptor, bytes(block)[: len(block) // 2])
                block.release()  # the error's traceback holds this frame, which must not hold the store's buffer
                raise OSError(errno.ENOSPC, "No space left on device")
        return os.write(descriptor, block)

    vars(own)["write"] = write
    spool.os = own

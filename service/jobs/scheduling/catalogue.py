"""The capability catalogue: `operators` and `targets`, as the workers' compiler knows them.

The API never loads a compiler.

An entry of `operators`:

    {"name": str, "domain": str, "opsets": [oldest, newest] or null, "known_when_compiling": [input names],
     "limits": str, "family": str, "how": "kernel" | "folded" | "rewritten" | "inlined" | "function"}

An entry of `targets`:

    {"name": str, "description": str, "precisions": [names]}

and of a profile whatever facts its kind of device has. `worker.devices.catalogue` makes both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from service.db import catalogue
from service.db.engine import Database

NAMES = ("operators", "targets")
KEEP_S = 30 * 24 * 3600.0
"""How long what an older compiler version published is kept."""


@dataclass(frozen=True)
class Published:
    """A catalogue as it was published last.

    By a worker with this version of the compiler, at this time (seconds since 1970).
    """

    compiler: str
    entries: list[dict[str, Any]]
    published_at: float


def publish(db: Database, name: str, compiler: str, entries: Sequence[dict[str, Any]]) -> None:
    """Make these the entries of `name`, one of `NAMES`, for a version of the compiler.

    Any worker may, any number of times.
    """
    with db.write() as session:
        catalogue.put(session, name, compiler, entries)
        catalogue.forget(session, name, KEEP_S)


def newest(db: Database, name: str) -> Published | None:
    """What was published last under `name`; None before any worker has started."""
    with db.read() as session:
        row = catalogue.newest(session, name)
        return None if row is None else Published(row.compiler, row.entries, row.published_at)


def entries(db: Database, name: str) -> list[dict[str, Any]]:
    """The entries published last under `name`; none before any worker has started."""
    found = newest(db, name)
    return found.entries if found else []

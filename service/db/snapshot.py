"""A copy of an SQLite database while it is used, and what rows of it name."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Mapping
from pathlib import Path

from service.db import kept, retention
from service.db.engine import Database, unavailable
from service.errors import DatabaseUnavailable

PAGES = 2000
"""Copied at a time; writers go on between."""


def take(db: Database, target: Path) -> None:
    """Copy the whole database, as it is at one moment, into a new file of mode 0600. Raises `DatabaseUnavailable`."""
    target.unlink(missing_ok=True)
    os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    with unavailable(), contextlib.closing(db.engine.raw_connection()) as source:
        driver = source.driver_connection
        assert isinstance(driver, sqlite3.Connection), "only SQLite is copied so"
        try:
            with contextlib.closing(sqlite3.connect(target)) as copy:
                driver.backup(copy, pages=PAGES)
                copy.execute("PRAGMA journal_mode=DELETE")  # one file, whole by itself
                (said,) = copy.execute("PRAGMA integrity_check(1)").fetchone()
        except sqlite3.Error as error:
            raise DatabaseUnavailable(f"the copy failed: {error}", fix="see that there is room, then retry") from error
    if said != "ok":
        raise DatabaseUnavailable(f"the database is damaged: {said}", fix="restore it from an earlier backup")


def named(db: Database) -> Mapping[str, int | None]:
    """Every key that a row names, and its length; None where that is not known."""
    with db.read() as session:
        keys = sorted(set(retention.referenced(session)) - {""})
        lengths: dict[str, int] = {}
        for at in range(0, len(keys), retention.BATCH):
            lengths |= kept.lengths(session, keys[at : at + retention.BATCH])
    return {key: lengths.get(key) for key in keys}

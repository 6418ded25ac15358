"""Bring the database to a step of its history, all or nothing, however many processes try at once.

A step that the programs before it can work on says so in its name: `0018_for_0016` is step 18, and programs whose
newest step is 16 or later go on working on a database that is there. Others are for programs that know them alone.
"""

from __future__ import annotations

import contextlib
import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory

from service.db.engine import Database, unavailable
from service.db.postgres import UNHURRIED
from service.errors import Misconfigured, NotReady

LOCK = 0x7469_6C65
"""PostgreSQL's advisory lock under which the schema changes."""

STEP = re.compile(r"(?P<number>\d{4})(_for_(?P<oldest>\d{4}))?")
"""The name of a step."""


class UnknownStep(Misconfigured):
    """A newer program has changed the database: no waiting and no migration of this one mends that."""


def upgrade(url: str, revision: str = "head") -> None:
    """Apply what is missing up to `revision`; nothing where a later step is there on which this program works.

    Raises `DatabaseUnavailable`, and `NotReady` for an unknown step.
    """
    with connected(url) as connection:
        if not is_later_and_usable(_step(connection), _newest()):
            command.upgrade(_config(connection), revision)


def downgrade(url: str, revision: str) -> None:
    """Take back everything after `revision` (`base`: everything), with the data in it."""
    with connected(url) as connection:
        command.downgrade(_config(connection), revision)


def require_usable(db: Database) -> None:
    """Raises `NotReady` unless the database is at this program's newest step, or at a later one that is for it too."""
    newest = _newest()
    with db.read() as session:
        present = _step(session.connection())
    if present != newest and not is_later_and_usable(present, newest):
        raise NotReady(f"the database is at step {present}, not {newest}", fix="run python -m service migrate")


def is_later_and_usable(present: str | None, newest: str) -> bool:
    """Whether a program whose newest step is `newest` works on a database that a newer one brought to `present`."""
    there, own = STEP.fullmatch(present or ""), STEP.fullmatch(newest)
    if there is None or own is None or there["oldest"] is None:
        return False
    return there["oldest"] <= own["number"] < there["number"]


def _newest() -> str:
    """The newest step of this program's history."""
    return str(ScriptDirectory.from_config(_config(None)).get_current_head())


def _step(connection: sa.Connection) -> str | None:
    """Where the database is.

    Raises `UnknownStep` for a step that this program's history does not have, and that is not for it either.
    """
    present = MigrationContext.configure(connection).get_current_revision()
    known = {script.revision for script in ScriptDirectory.from_config(_config(None)).walk_revisions()}
    if present is not None and present not in known and not is_later_and_usable(present, _newest()):
        raise UnknownStep(
            f"the database is at step {present}, which this program does not know: a newer one has been here",
            fix="start the newer version, which migrated it, or restore the backup that was made before",
        )
    return present


@contextlib.contextmanager
def connected(url: str) -> Iterator[sa.Connection]:
    """A connection inside one transaction that holds the lock for changing the schema and commits at the end.

    On SQLite foreign keys are off meanwhile, because changing a table means replacing it; they are checked
    before the commit.
    """
    database = Database(url, UNHURRIED)
    try:
        with unavailable(), database.writer.connect() as connection:
            if connection.dialect.name == "sqlite":
                raw = connection.connection.driver_connection
                assert raw is not None
                raw.execute("PRAGMA foreign_keys=OFF")  # has no effect once the transaction is open
                with connection.begin():
                    yield connection
                    if broken := connection.exec_driver_sql("PRAGMA foreign_key_check").all():
                        raise sa.exc.IntegrityError(
                            "foreign_key_check", None, ValueError(f"dangling rows: {broken[:3]}")
                        )
            else:
                with connection.begin():
                    connection.execute(sa.select(sa.func.pg_advisory_xact_lock(LOCK)))
                    yield connection
    finally:
        database.dispose()


def _config(connection: sa.Connection | None) -> Config:
    spec = importlib.util.find_spec("migrations")
    if spec is None or spec.origin is None:
        raise NotReady("the package 'migrations' is not installed", fix="install the whole wheel")
    config = Config()
    config.set_main_option("script_location", str(Path(spec.origin).parent).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    return config

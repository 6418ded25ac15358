from __future__ import annotations

import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from service.db import migrate
from service.db.engine import Database
from service.db.models import JobState, Row
from service.errors import NotReady

ROOT = Path(__file__).parents[2]
POSTGRES = os.environ.get("TILEWRIGHT_TEST_POSTGRES_URL", "")
STEPS = [step.revision for step in ScriptDirectory(str(ROOT / "migrations")).walk_revisions()][::-1]


@pytest.fixture(params=["sqlite", "postgresql"] if POSTGRES else ["sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'history.db'}"
    engine = sa.create_engine(POSTGRES)
    with engine.begin() as connection:
        connection.exec_driver_sql("DROP SCHEMA public CASCADE")
        connection.exec_driver_sql("CREATE SCHEMA public")
    engine.dispose()
    return POSTGRES


@pytest.fixture
def db(url: str) -> Iterator[Database]:
    database = Database(url)
    yield database
    database.dispose()


def tables(db: Database) -> set[str]:
    with db.read() as session:
        return set(sa.inspect(session.connection()).get_table_names())


def filler(column: sa.Column[Any], keys: dict[str, uuid.UUID]) -> Any:
    """A value for a column, the same for columns that refer to each other."""
    if column.name == "state":
        return JobState.SUCCEEDED
    if column.name in keys:
        return keys[column.name]
    kinds: tuple[tuple[type[Any], Any], ...] = (
        (sa.Uuid, uuid.uuid4()),
        (sa.Boolean, True),
        (sa.JSON, {"deep": [1, None, "é"]}),
        (sa.Double, 1.5),
        (sa.BigInteger, 1 << 40),
        (sa.String, "text"),
    )
    return next(value for kind, value in kinds if isinstance(column.type, kind))


def fill(db: Database) -> dict[str, Any]:
    """One row in every table, every column set."""
    keys = {"owner_id": uuid.uuid4(), "job_id": uuid.uuid4()}
    rows: dict[str, Any] = {}
    with db.write() as session:
        for table in Row.metadata.sorted_tables:
            names = {"id": {"owners": keys["owner_id"], "jobs": keys["job_id"]}.get(table.name, uuid.uuid4())}
            values = {column.name: filler(column, {**keys, **names}) for column in table.columns}
            for text in ("model_digest", "digest"):
                if text in values:
                    values[text] = "text"
            session.execute(sa.insert(table).values(values))
            rows[table.name] = tuple(values.values())
    return rows


def contents(db: Database) -> dict[str, Any]:
    with db.read() as session:
        return {table.name: tuple(session.execute(sa.select(table)).one()) for table in Row.metadata.sorted_tables}


def test_the_history_goes_up_and_down_step_by_step(url: str, db: Database) -> None:
    for step in STEPS:
        migrate.upgrade(url, step)
    assert tables(db) == {"alembic_version", *Row.metadata.tables}
    for step in ["base", *STEPS][-2::-1]:
        migrate.downgrade(url, step)
    assert tables(db) == {"alembic_version"}


def test_data_is_held_and_the_way_down_and_up_again_is_open_with_data(url: str, db: Database) -> None:
    migrate.upgrade(url)
    rows = fill(db)
    migrate.upgrade(url)
    assert contents(db) == rows
    migrate.downgrade(url, "base")
    assert tables(db) == {"alembic_version"}
    migrate.upgrade(url)
    assert contents_are_empty(db)
    fill(db)


def contents_are_empty(db: Database) -> bool:
    with db.read() as session:
        return all(session.execute(sa.select(table)).first() is None for table in Row.metadata.sorted_tables)


def test_the_history_ends_where_the_models_are(url: str, db: Database) -> None:
    migrate.upgrade(url)
    with db.read() as session:
        context = MigrationContext.configure(session.connection(), opts={"compare_type": True})
        assert compare_metadata(context, Row.metadata) == []


def test_a_database_that_is_behind_is_not_ready(url: str, db: Database) -> None:
    with pytest.raises(NotReady, match="None"):
        migrate.require_current(db)
    migrate.upgrade(url)
    migrate.require_current(db)


def test_a_step_that_fails_leaves_nothing(url: str, db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    from alembic.operations import Operations

    create = Operations.create_table

    def failing(self: Operations, name: str, *columns: Any, **more: Any) -> Any:
        if name == "events":
            raise RuntimeError("power cut")
        return create(self, name, *columns, **more)

    monkeypatch.setattr(Operations, "create_table", failing)
    with pytest.raises(RuntimeError, match="power cut"):
        migrate.upgrade(url)
    assert tables(db) == set()
    monkeypatch.undo()
    migrate.upgrade(url)
    assert "events" in tables(db)


def test_processes_that_migrate_at_once_do_it_once(url: str, db: Database) -> None:
    code = "import sys; from service.db import migrate; migrate.upgrade(sys.argv[1])"
    command = [sys.executable, "-c", code, url]
    many = [subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) for _ in range(4)]
    said = [process.communicate()[1] for process in many]
    assert [process.returncode for process in many] == [0] * 4, said
    migrate.require_current(db)


def test_foreign_keys_that_dangle_stop_a_migration(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'x.db'}"
    migrate.upgrade(url)
    with pytest.raises(sa.exc.IntegrityError, match="dangling"), migrate.connected(url) as connection:
        connection.exec_driver_sql("INSERT INTO models VALUES ('nobody', 'd', 1, 'k', 0.0)")


@pytest.mark.parametrize(
    "statement",
    ["DELETE FROM models", "INSERT INTO events VALUES ('00000000000000000000000000000001', 1, 'state', '{}', 0.0)"],
)
def test_references_to_nothing_are_refused(url: str, db: Database, statement: str) -> None:
    migrate.upgrade(url)
    fill(db)

    def run() -> None:
        with db.write() as session:
            session.connection().exec_driver_sql(statement)

    with pytest.raises(sa.exc.IntegrityError):
        run()

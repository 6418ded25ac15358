"""An upgrade while the release before works on: which steps of the history it may meet, and that it can then."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from service.db import jobs, migrate
from service.db.engine import Database
from service.db.models import Job, JobState
from service.errors import NotReady
from tests.migrations.side_by_side import obstacles
from tests.migrations.test_history import JOB, STEPS, contents, insert, value

ALONE = {
    "0002": [
        *("ck_jobs_kind is a new rule", "jobs.blocked_by is new and may not be empty"),
        *("jobs.finish_requested is new and may not be empty", "jobs.kind is new and may not be empty"),
        *("models.files is new and may not be empty", "tuning_records.imported is new and may not be empty"),
        *("workers.compiler is new and may not be empty", "workers.queue is gone"),
        *("workers.queues is new and may not be empty", "workers.started_at is new and may not be empty"),
    ],
    "0004": ["models.used_at is new and may not be empty"],
    "0006": ["jobs.samples_bytes is new and may not be empty"],
}
"""Steps that stop the programs of the step before, and what of them does."""


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database that `schemas` brings to the newest step."""
    return tmp_path_factory.mktemp("steps") / "history.db"


@pytest.fixture(scope="module")
def schemas(file: Path) -> dict[str, sa.MetaData]:
    """The tables at each step."""
    url = f"sqlite:///{file}"
    db = Database(url)
    found = {step: sa.MetaData() for step in STEPS}
    for step, schema in found.items():
        migrate.upgrade(url, step)
        with db.read() as session:
            schema.reflect(session.connection())
    db.dispose()
    return found


@pytest.fixture
def url(schemas: dict[str, sa.MetaData], file: Path, tmp_path: Path) -> str:
    """A database at the newest step, without a row."""
    return f"sqlite:///{shutil.copy(file, tmp_path / 'new.db')}"


@pytest.fixture
def db(url: str) -> Iterator[Database]:
    database = Database(url)
    yield database
    database.dispose()


def put(db: Database, step: str) -> None:
    """The database says that it is at this step."""
    with db.write() as session:
        session.execute(sa.text("UPDATE alembic_version SET version_num = :step"), {"step": step})


def test_it_is_known_which_steps_stop_the_programs_before_them(schemas: dict[str, sa.MetaData]) -> None:
    found = {new: obstacles(schemas[old], schemas[new]) for old, new in itertools.pairwise(STEPS)}
    assert {step: reasons for step, reasons in found.items() if reasons} == ALONE


def test_a_step_is_for_the_programs_that_its_name_says(schemas: dict[str, sa.MetaData]) -> None:
    """Of a step `0018_for_0016`; and no later one is for older programs than one before it."""
    numbers = {step[:4]: step for step in STEPS}
    assert sorted(numbers) == [*numbers]
    oldest = ""
    for step in STEPS:
        named = migrate.STEP.fullmatch(step)
        assert named is not None, step
        since = named["oldest"] or named["number"]
        assert oldest <= since <= named["number"], step
        oldest = since
        assert obstacles(schemas[numbers[since]], schemas[step]) == []


@pytest.mark.parametrize("step", [step for step in STEPS if step >= max(ALONE)])
def test_what_programs_of_a_step_write_and_read_is_there_at_the_newest(
    schemas: dict[str, sa.MetaData], db: Database, step: str
) -> None:
    """Every column of theirs is written, read, changed and read again, as they name them."""
    with db.write() as session:
        for table in schemas[step].sorted_tables:
            if table.name == "alembic_version":
                continue
            row = {column.name: value(column) for column in table.columns}
            session.execute(sa.insert(table).values(row))
            session.execute(sa.update(table).values(row))
            assert [dict(found) for found in session.execute(sa.select(table)).mappings()] == [row], table.name


BEFORE = {"name": "VARCHAR(9)", "state": "TEXT CONSTRAINT state CHECK (state IN ('a', 'b'))"}
"""Columns of a table, by their definitions."""


def schema(columns: dict[str, str]) -> sa.MetaData:
    found = sa.MetaData()
    with sa.create_engine("sqlite://").begin() as connection:
        body = ", ".join(f"{name} {definition}" for name, definition in columns.items())
        connection.exec_driver_sql(f"CREATE TABLE t (id INTEGER PRIMARY KEY, {body})")
        found.reflect(connection)
    return found


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({"name": "VARCHAR(10)", "more": "INTEGER NOT NULL DEFAULT 0", "other": "TEXT UNIQUE"}, []),
        ({"state": "TEXT CONSTRAINT state CHECK (state IN ('a', 'b', 'c'))"}, []),
        ({"name": "VARCHAR(8)"}, ["t.name is VARCHAR(8), not VARCHAR(9)"]),
        ({"name": "INTEGER"}, ["t.name is INTEGER, not VARCHAR(9)"]),
        ({"name": "VARCHAR(9) NOT NULL"}, ["t.name may no longer be empty"]),
        ({"state": "TEXT, CONSTRAINT once UNIQUE (name)"}, ["t: UniqueConstraint of name is a new rule"]),
        ({"more": "INTEGER NOT NULL"}, ["t.more is new and may not be empty"]),
        ({"state": "TEXT CONSTRAINT state CHECK (state IN ('a'))"}, ["state allows less"]),
        ({"name": "VARCHAR(9) REFERENCES t (id)"}, ["t: name -> t.id is a new rule"]),
        ({"more": "INTEGER REFERENCES t (id)"}, []),
    ],
)
def test_obstacles_are_found(change: dict[str, str], found: list[str]) -> None:
    assert obstacles(schema(BEFORE), schema({**BEFORE, **change})) == found


def test_what_is_gone_is_an_obstacle() -> None:
    assert obstacles(schema(BEFORE), schema({"state": BEFORE["state"]})) == ["t.name is gone"]
    assert obstacles(schema(BEFORE), sa.MetaData()) == ["t is gone"]


@pytest.mark.parametrize(
    ("present", "newest", "usable"),
    [
        ("0018_for_0016", "0016", True),
        ("0018_for_0016", "0017_for_0016", True),
        ("0018_for_0017", "0016", False),
        ("0018", "0017", False),
        ("0016_for_0014", "0017", False),
        ("9999", "0017", False),
        (None, "0017", False),
    ],
)
def test_a_later_step_is_for_programs_from_the_one_that_it_names(
    present: str | None, newest: str, usable: bool
) -> None:
    assert migrate.is_later_and_usable(present, newest) is usable


def test_a_program_goes_on_at_a_later_step_that_is_for_it_and_leaves_it_as_it_is(url: str, db: Database) -> None:
    own = STEPS[-1][:4]
    put(db, f"9000_for_{own}")
    migrate.require_usable(db)
    migrate.upgrade(url)
    migrate.require_usable(db)
    assert contents(db)
    put(db, "9000_for_8000")
    with pytest.raises(migrate.UnknownStep, match="9000_for_8000"):
        migrate.require_usable(db)
    with pytest.raises(migrate.UnknownStep, match="9000_for_8000"):
        migrate.upgrade(url)
    put(db, STEPS[-2])
    with pytest.raises(NotReady, match=f"is at step {STEPS[-2]}"):
        migrate.require_usable(db)


def test_a_kind_of_job_that_only_a_newer_program_knows_is_passed_over(db: Database) -> None:
    with db.write() as session:
        for name in ("owners", "models"):
            insert(session, name)
        insert(session, "jobs", **{"jobs.queue": "cpu", "state": "QUEUED", "blocked_by": 0, "compiler": None})
        assert jobs.best(session, ["cpu"], compiler="0.1.0") == JOB
        session.connection().exec_driver_sql("PRAGMA ignore_check_constraints=ON")
        session.execute(sa.update(Job).values(kind="dream"))
        assert jobs.best(session, ["cpu"], compiler="0.1.0") is None
        assert not jobs.any_ready(session, ["cpu"], sa.select(Job.owner_id).where(sa.false()), compiler="0.1.0")
        assert session.scalar(sa.select(Job.state)) == JobState.QUEUED

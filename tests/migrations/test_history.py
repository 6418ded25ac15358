from __future__ import annotations

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
from sqlalchemy.orm import Session

from service.db import migrate, records
from service.db.engine import Database
from service.db.models import ApiKey, Job, Model, Row, TuningRecord
from service.db.records import Wanted
from service.errors import NotReady

ROOT = Path(__file__).parents[2]
STEPS = [step.revision for step in ScriptDirectory(str(ROOT / "migrations")).walk_revisions()][::-1]


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database."""
    if request.param == "postgresql":
        return str(request.getfixturevalue("empty_postgres_url"))
    return f"sqlite:///{tmp_path / 'history.db'}"


@pytest.fixture
def db(url: str) -> Iterator[Database]:
    database = Database(url)
    yield database
    database.dispose()


def tables(db: Database) -> set[str]:
    with db.read() as session:
        return set(sa.inspect(session.connection()).get_table_names())


OWNER, JOB, DIGEST = uuid.UUID(int=1), uuid.UUID(int=2), "d" * 64
NAMED: dict[str, Any] = {
    "owners.id": OWNER,
    "jobs.id": JOB,
    "owner_id": OWNER,
    "job_id": JOB,
    "digest": DIGEST,
    "model_digest": DIGEST,
    "state": "SUCCEEDED",
    "jobs.kind": "compile",
    "jobs.options": {"target": "cpu:x86-64-v3"},
    "jobs.queue": "cpu:x86-64-v3",
    "models.files": [],
}
"""Columns whose value is not free, by table and column or by column alone."""

Contents = dict[str, list[dict[str, Any]]]


def reflected(session: Session) -> list[sa.Table]:
    """The tables as they are at the present step, parents before children; the models tell of the newest only."""
    metadata = sa.MetaData()
    metadata.reflect(session.connection())
    return [table for table in metadata.sorted_tables if table.name != "alembic_version"]


def value(column: sa.Column[Any], **given: Any) -> Any:
    """What to write into a column: what was given, what it must be, or something of its type."""
    for name in (column.name, f"{column.table.name}.{column.name}"):
        if name in (known := {**NAMED, **given}):
            found = known[name]
            is_text = isinstance(column.type, sa.String)
            return found.hex if isinstance(found, uuid.UUID) and is_text else found
    kinds: tuple[tuple[type[Any], Any], ...] = (
        (sa.CHAR, uuid.UUID(int=9).hex),
        (sa.Uuid, uuid.UUID(int=9)),
        (sa.Boolean, True),
        (sa.JSON, {"deep": [1, None, "é"]}),
        (sa.Double, 1.5),
        (sa.BigInteger, 1 << 40),
        (sa.String, "text"),
    )
    return next(value for kind, value in kinds if isinstance(column.type, kind))


def insert(session: Session, name: str, **given: Any) -> None:
    """A row with every column set."""
    table = next(table for table in reflected(session) if table.name == name)
    session.execute(sa.insert(table).values({column.name: value(column, **given) for column in table.columns}))


def fill(db: Database) -> Contents:
    """One row in every table, every column set; what was written."""
    with db.write() as session:
        for table in reflected(session):
            session.execute(sa.insert(table).values({column.name: value(column) for column in table.columns}))
    return contents(db)


def contents(db: Database) -> Contents:
    """Every row of every table, by its columns' names."""
    with db.read() as session:
        return {
            table.name: [dict(row) for row in session.execute(sa.select(table)).mappings()]
            for table in reflected(session)
        }


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
    assert all(len(found) == 1 for found in rows.values())
    migrate.upgrade(url)
    assert contents(db) == rows
    migrate.downgrade(url, "base")
    assert tables(db) == {"alembic_version"}
    migrate.upgrade(url)
    assert not any(contents(db).values())
    fill(db)


REPORTS_OF_THE_LIVING = {"workers"}
"""Tables that a step may empty: whoever lives reports again within seconds."""


DERIVED = {"blobs", "record_operators"}
"""Tables that a step fills from others."""


@pytest.mark.parametrize("step", STEPS[:-1])
def test_what_was_written_at_a_step_survives_every_later_one_and_the_way_back(
    url: str, db: Database, step: str
) -> None:
    migrate.upgrade(url, step)
    before = fill(db)
    migrate.upgrade(url)
    after = contents(db)
    for name, (row,) in before.items():
        if name not in REPORTS_OF_THE_LIVING:
            assert len(after[name]) == 1, name
            assert {column: after[name][0][column] for column in row} == row, name
    assert all(rows == [] for name, rows in after.items() if name not in {*before, *DERIVED})
    migrate.downgrade(url, step)
    kept = contents(db)
    assert kept.keys() == before.keys()
    for name in before.keys() - REPORTS_OF_THE_LIVING:
        (row,), (expected,) = kept[name], before[name]
        assert row.keys() == expected.keys(), name
        assert {column for column in row if row[column] != expected[column]} <= {"queue"}, name


def test_the_models_read_what_was_written_at_the_first_step(url: str, db: Database) -> None:
    migrate.upgrade(url, STEPS[0])
    fill(db)
    migrate.upgrade(url)
    with db.read() as session:
        job = session.scalars(sa.select(Job)).one()
        model = session.scalars(sa.select(Model)).one()
        record = session.scalars(sa.select(TuningRecord)).one()
    assert (job.id, job.kind, job.blocked_by, job.finish_requested, job.cloned_from) == (
        JOB,
        "compile",
        0,
        False,
        None,
    )
    assert (model.owner_id, model.digest, model.files) == (OWNER, DIGEST, [])
    assert (record.job_id, record.imported) == (JOB, False)


def test_a_job_that_waited_at_0001_waits_in_the_queue_of_its_target(url: str, db: Database) -> None:
    """At 0001 there was one queue for all targets of a kind of device."""
    migrate.upgrade(url, "0001")
    with db.write() as session:
        for name in ("owners", "models"):
            insert(session, name)
        insert(session, "jobs", **{"jobs.queue": "cpu"})
    migrate.upgrade(url, "0003")
    assert contents(db)["jobs"][0]["queue"] == "cpu:x86-64-v3"
    migrate.downgrade(url, "0001")
    assert contents(db)["jobs"][0]["queue"] == "cpu"


def test_the_way_back_to_0001_removes_what_it_cannot_hold_and_nothing_else(url: str, db: Database) -> None:
    migrate.upgrade(url, "0003")
    split, bundle, benchmark = "e" * 64, uuid.UUID(int=3), uuid.UUID(int=4)
    kept = fill(db)
    with db.write() as session:
        insert(session, "models", digest=split, files=[{"path": "w", "sha256": "f", "bytes": 1, "key": "k"}])
        unlike = {"idempotency_key": None}
        insert(session, "jobs", **{"jobs.id": bundle}, model_digest=split, **unlike)
        nothing = {"model_digest": None, "cache_key": None, "artifact_id": None}
        insert(session, "jobs", **{"jobs.id": benchmark, "jobs.kind": "benchmark"}, **nothing, **unlike)
        for number, job_id in enumerate((bundle, benchmark), 10):
            insert(session, "events", job_id=job_id)
            insert(session, "artifacts", id=uuid.UUID(int=number), job_id=job_id)
            insert(session, "tuning_records", id=uuid.UUID(int=number), job_id=job_id)
        insert(session, "benchmarks", job_id=benchmark)
        insert(session, "job_needs", job_id=benchmark, artifact_id=uuid.UUID(int=10))
        insert(session, "tuning_records", id=uuid.UUID(int=20), job_id=None)
        insert(session, "tuning_records", id=uuid.UUID(int=21), model_digest=None)
    migrate.downgrade(url, "0001")
    left = contents(db)
    for name in left.keys() - REPORTS_OF_THE_LIVING:
        (row,), (expected,) = left[name], kept[name]
        assert {column for column in row if row[column] != expected[column]} <= {"queue"}, name
    migrate.upgrade(url)


def test_records_written_at_0002_are_found_by_the_operators_of_their_kernels(url: str, db: Database) -> None:
    migrate.upgrade(url, "0003")
    names = {20: "Conv+Add+Relu", 21: "Conv", 22: "Gemm+...+Relu"}
    with db.write() as session:
        for name in ("owners", "models", "jobs"):
            insert(session, name)
        for number, operator in names.items():
            insert(session, "tuning_records", id=uuid.UUID(int=number), operator=operator)
    migrate.upgrade(url)

    def found(operator: str) -> set[int]:
        with db.read() as session:
            page = records.page(session, OWNER, Wanted({"operator": operator}), before=None, limit=9)
            return {record.id.int for record in page}

    asked = ("Conv", "Relu", "Conv+Add+Relu", "Gemm", "...", "Con")
    assert [found(one) for one in asked] == [{20, 21}, {20, 22}, {20}, {22}, set(), set()]


def test_the_bytes_of_every_row_of_0002_are_known_with_their_length(url: str, db: Database) -> None:
    migrate.upgrade(url, "0003")
    data = [{"path": "w", "sha256": "f", "bytes": 30, "key": "of-data"}]
    with db.write() as session:
        for name in ("owners",):
            insert(session, name)
        insert(session, "models", bytes=100, files=data, blob_key="of-onnx")
        insert(session, "uploads", parts=[{"key": "of-piece", "bytes": 5}, {"key": "of-piece", "bytes": 5}])
        insert(session, "jobs", **{"jobs.created_at": 77.0})
        insert(session, "artifacts", bytes=7, blob_key="of-artifact")
        insert(session, "inferences", input_key="", output_key="of-output", output_bytes=9)
    migrate.upgrade(url)
    known = {row["key"]: row["bytes"] for row in contents(db)["blobs"]}
    assert known == {"of-data": 30, "of-onnx": 70, "of-piece": 5, "of-artifact": 7, "of-output": 9}
    assert contents(db)["models"][0]["used_at"] == 77.0


def test_the_history_ends_where_the_models_are(url: str, db: Database) -> None:
    migrate.upgrade(url)
    with db.read() as session:
        context = MigrationContext.configure(session.connection(), opts={"compare_type": True})
        assert compare_metadata(context, Row.metadata) == []


def test_a_database_that_is_behind_is_not_ready(url: str, db: Database) -> None:
    with pytest.raises(NotReady, match="None"):
        migrate.require_usable(db)
    migrate.upgrade(url)
    migrate.require_usable(db)


def test_a_database_of_a_newer_program_is_told_apart_from_one_that_is_behind(url: str, db: Database) -> None:
    migrate.upgrade(url)
    with db.write() as session:
        session.execute(sa.text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(NotReady, match="9999") as newer:
        migrate.require_usable(db)
    assert "start the newer version" in newer.value.fix
    with pytest.raises(NotReady, match="9999"):
        migrate.upgrade(url)


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


AT_ONCE = """
import multiprocessing, sys
from service.db import migrate
forked = multiprocessing.get_context("fork")
many = [forked.Process(target=migrate.upgrade, args=(sys.argv[1],)) for _ in range(4)]
for process in many:
    process.start()
for process in many:
    process.join()
    print(process.exitcode)
"""
"""Forked after the imports, which take longer than the history, they meet more surely than if each began anew."""


def test_processes_that_migrate_at_once_do_it_once(url: str, db: Database) -> None:
    done = subprocess.run([sys.executable, "-c", AT_ONCE, url], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.split()) == (0, ["0"] * 4), done.stderr
    migrate.require_usable(db)


def test_foreign_keys_that_dangle_stop_a_migration(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'x.db'}"
    migrate.upgrade(url)
    with pytest.raises(sa.exc.IntegrityError, match="dangling"), migrate.connected(url) as connection:
        connection.exec_driver_sql(
            "INSERT INTO models (owner_id, digest, bytes, blob_key, files, created_at, used_at) "
            "VALUES ('x', 'd', 1, 'k', '[]', 0, 0)"
        )


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


def test_on_the_way_back_to_0004_no_key_is_let_in_that_was_barred_or_would_end(url: str, db: Database) -> None:
    migrate.upgrade(url)
    bob, ways = uuid.UUID(int=11), ("plain", "ending", "barred", "revoked")
    free = {"expires_at": None, "revoked_at": None}
    with db.write() as session:
        insert(session, "owners", suspended_at=None, deleted_at=None)
        insert(session, "owners", **{"owners.id": bob, "owners.name": "bob"}, suspended_at=5.0, deleted_at=None)
        for number, label in enumerate(ways, start=20):
            given = free | {"ending": {"expires_at": 9e9}, "revoked": {"revoked_at": 3.0}}.get(label, {})
            whose = bob if label == "barred" else OWNER
            insert(session, "api_keys", id=uuid.UUID(int=number), digest=label, label=label, owner_id=whose, **given)
    migrate.downgrade(url, "0004")
    left = {row["label"]: row["revoked_at"] for row in contents(db)["api_keys"]}
    assert left["plain"] is None
    assert left["ending"] == 9e9
    assert left["barred"] is not None
    assert left["revoked"] == 3.0


def test_webhooks_from_before_there_were_challenges_count_as_verified(url: str, db: Database) -> None:
    migrate.upgrade(url, "0017")
    fill(db)
    migrate.upgrade(url)
    (webhook,), (delivery,) = contents(db)["webhooks"], contents(db)["deliveries"]
    assert webhook["verified_at"] == webhook["created_at"]
    assert delivery["challenge"] is None


def test_at_0022_each_owner_keeps_a_key_that_manages_keys(url: str, db: Database) -> None:
    migrate.upgrade(url, "0021")
    compilers = [("ada", ["read"]), ("ada", ["compile"]), ("ada", ["compile", "read"])]
    held = [*compilers, ("ops", ["compile"]), ("ops", ["admin"])]
    ids = {"ada": uuid.uuid4().hex, "ops": uuid.uuid4().hex}
    with db.write() as session:
        tables = {table.name: table for table in reflected(session)}
        for owner, id in ids.items():
            given = {column.name: value(column) for column in tables["owners"].columns}
            session.execute(sa.insert(tables["owners"]).values({**given, "id": id, "name": owner}))
        for number, (owner, scopes) in enumerate(held):
            given = {column.name: value(column) for column in tables["api_keys"].columns}
            given |= {"id": uuid.UUID(int=10 + number).hex, "digest": f"{number:064x}", "label": f"{owner} {number}"}
            given |= {"scopes": scopes, "revoked_at": None, "owner_id": ids[owner], "created_at": float(number)}
            session.execute(sa.insert(tables["api_keys"]).values(given))
    migrate.upgrade(url)
    with db.read() as session:
        found = {key.label: key.scopes for key in session.scalars(sa.select(ApiKey))}
    kept = {f"{owner} {number}": scopes for number, (owner, scopes) in enumerate(held)}
    assert found == kept | {"ada 1": ["compile", "keys"]}

from __future__ import annotations

import itertools
import random
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from service.db import owners, records
from service.db.engine import Database
from service.db.models import Job, JobState, Model, TuningRecord, new_id
from service.db.records import FEW, FILTERS, Place, Wanted, operators_of

BEGIN = 1.79e9
COUNT = 40_000
BATCH = 2_000
"""Inserted at once: one call of the database may take half a minute at most, on a busy machine too."""
OPERATORS = ["Conv+Relu", "Conv", "Gemm", *(f"Op{number}+Add+Relu" for number in range(37))]
FREQUENT: dict[str, Any] = {
    "kind": "kernel",
    "operator": "Conv+Relu",
    "workload": f"{7:024x}",
    "target": "cpu:t0",
    "hardware": "cpu:t0/a",
    "job_id": uuid.UUID(int=1),
    "model_digest": f"{1:064x}",
    "threads": 1,
    "imported": False,
}
RARE: dict[str, Any] = {
    **FREQUENT,
    "kind": "model",
    "operator": "Nothing",
    "target": "cpu:t3",
    "hardware": "cpu:t3/b",
    "threads": 99,
    "imported": True,
}


SORTS_A_PAGE = "USE TEMP B-TREE FOR ORDER BY"
"""The ids of a page that the table of operators gave are put in order once more."""


def questions() -> Iterator[Wanted]:
    """What `GET /tuning-records` may be asked: nothing, each filter, each pair, each with a time."""
    for names in itertools.chain([()], *(itertools.combinations(FILTERS, count) for count in (1, 2))):
        for values in itertools.product(*(sorted({FREQUENT[name], RARE[name]}, key=str) for name in names)):
            where = dict(zip(names, values, strict=True))
            yield Wanted(where)
            if len(where) < 2:
                yield Wanted(where, since=BEGIN + COUNT / 4)
                yield Wanted(where, since=BEGIN + 10, until=BEGIN + COUNT / 2)


def fill(db: Database, count: int, owner: str = "ada") -> uuid.UUID:
    """So many records: nine in ten of the owner who is returned, unevenly spread over each column."""
    chance = random.Random(0)
    with db.write() as session:
        mine, other = owners.named(session, owner), owners.named(session, "eve")
        session.execute(sa.insert(Model), [_model(mine, number) for number in range(20)])
        session.execute(sa.insert(Job), [_job(mine, number) for number in range(100)])
        for first in range(0, count, BATCH):
            numbers = range(first, min(first + BATCH, count))
            rows = [_record(chance, other if number % 10 == 0 else mine, number, count) for number in numbers]
            records.add(session, rows)
    return mine


def _model(owner: uuid.UUID, number: int) -> dict[str, Any]:
    return {"owner_id": owner, "digest": f"{number:064x}", "bytes": 1, "blob_key": "k", "files": []}


def _job(owner: uuid.UUID, number: int) -> dict[str, Any]:
    return {
        "id": uuid.UUID(int=number),
        "owner_id": owner,
        "model_digest": f"{number % 20:064x}",
        "options": {},
        "body_hash": "",
        "queue": "cpu",
        "state": JobState.SUCCEEDED,
    }


def _record(chance: random.Random, owner: uuid.UUID, number: int, count: int) -> dict[str, Any]:
    job = number * 100 // count
    target = chance.choices(range(4), [80, 10, 9, 1])[0]
    return {
        "id": new_id(),
        "owner_id": owner,
        "job_id": uuid.UUID(int=job),
        "model_digest": f"{job % 20:064x}",
        "imported": number % 100 == 1,
        "kind": chance.choices(["kernel", "stage", "plan", "model"], [970, 20, 9, 1])[0],
        "operator": chance.choices(OPERATORS, [40, 20, 8, *[1] * 37])[0],
        "workload": f"{chance.randrange(4000):024x}",
        "description": "Conv+Relu: f32[1, 64, 56, 56], f32[64, 64, 1, 1], f32[64] -> f32[1, 64, 56, 56]",
        "target": f"cpu:t{target}",
        "hardware": f"cpu:t{target}/{chance.choices('ab', [9, 1])[0]}",
        "variant": {"algorithm": "contraction", "levels": {"block": {"m": chance.randrange(400), "n": 64}}},
        "threads": chance.choices([1, 4], [95, 5])[0],
        "seconds": chance.random(),
        "p10": 0.1,
        "p90": 0.2,
        "samples": 31,
        "compiler": "0.1.0",
        "created_at": BEGIN + number,
    }


def by_operators(wanted: Wanted) -> bool:
    """Whether the table of operators gives a page's ids."""
    return "operator" in wanted.where and not any(name in wanted.where for name in FEW)


def plan(session: Session, question: sa.Select[Any]) -> str:
    """How the database would answer, in its own words."""
    connection = session.connection()
    how = {"sqlite": "EXPLAIN QUERY PLAN "}.get(connection.dialect.name, "EXPLAIN ")
    text = str(question.compile(connection, compile_kwargs={"literal_binds": True}))
    return "\n".join(str(row[-1]) for row in connection.exec_driver_sql(how + text.replace("%", "%%")))


def walks(reported: str) -> list[str]:
    """Lines of a plan that read more than an index leads to, or sort."""
    return [line for line in reported.splitlines() if "SCAN" in line or "B-TREE" in line or "Seq Scan" in line]


def test_an_index_that_holds_the_order_serves_every_question(db: Database) -> None:
    owner = fill(db, 300)
    before: Place = (BEGIN + 200, new_id())
    with db.read() as session:
        if session.connection().dialect.name == "postgresql":  # of so few rows it would else read or sort all
            for way in ("seqscan", "sort", "incremental_sort", "bitmapscan"):
                session.execute(sa.text(f"SET LOCAL enable_{way} = off"))
        for wanted in questions():
            for place in (None, before):
                reported = plan(session, records.paged(owner, wanted, before=place, limit=101))
                if by_operators(wanted):
                    assert "ix_record_operators_owner_id_operator" in reported, (wanted, reported)
                    assert reported.count("Sort Key") <= 1, (wanted, reported)
                    reported = reported.replace(SORTS_A_PAGE, "").replace("Sort", "")
                assert "tuning_records" in reported, (wanted, reported)
                assert walks(reported) == [], (wanted, reported)
                assert "Sort" not in reported, (wanted, reported)


def test_one_record_is_found_by_its_key(db: Database) -> None:
    with db.read() as session:
        reported = plan(session, sa.select(TuningRecord).where(TuningRecord.id == new_id()))
    assert walks(reported.replace("Seq Scan", "")) == []


@pytest.mark.slow
def test_of_40000_records_no_question_reads_all(db: Database) -> None:
    owner = fill(db, COUNT)
    with db.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        if connection.dialect.name == "postgresql":
            connection.exec_driver_sql("VACUUM ANALYZE tuning_records, record_operators")
    before: Place = (BEGIN + COUNT / 10, new_id())
    with db.read() as session:
        for wanted in questions():
            for place in (None, before):
                reported = plan(session, records.paged(owner, wanted, before=place, limit=101))
                reported = reported.replace(SORTS_A_PAGE, "") if by_operators(wanted) else reported
                assert walks(reported) == [], (wanted, reported)
        page = records.page(session, owner, Wanted(), before=before, limit=100)
        assert [record.created_at for record in page] == [
            BEGIN + number for number in range(COUNT // 10 - 1, 0, -1) if number % 10
        ][:100]
        wanted = Wanted({"operator": "Conv", "target": "cpu:t1"}, since=BEGIN + 500, until=BEGIN + 0.9 * COUNT)
        page = records.page(session, owner, wanted, before=None, limit=10**6)
        seen = {(one.operator, one.target, BEGIN + 500 <= one.created_at < BEGIN + 0.9 * COUNT) for one in page}
        assert len(page) > 500
        assert seen == {("Conv", "cpu:t1", True), ("Conv+Relu", "cpu:t1", True)}


def test_a_kernel_is_found_by_each_operator_that_it_contains_and_by_its_whole_name(db: Database) -> None:
    owner = fill(db, 300)
    with db.read() as session:
        every = session.scalars(sa.select(TuningRecord).where(TuningRecord.owner_id == owner)).all()
        for operator in ("Conv", "Relu", "Add", "Conv+Relu", "Relu+Conv", "Con", "+", ""):
            for where in ({}, {"kind": "kernel"}, {"model_digest": f"{1:064x}"}, {"workload": every[0].workload}):
                expected = [
                    (one.created_at, one.id)
                    for one in every
                    if operator in {one.operator, *one.operator.split("+")}
                    and all(getattr(one, name) == value for name, value in where.items())
                ]
                expected.sort(reverse=True)
                wanted = Wanted({"operator": operator, **where})
                first = records.page(session, owner, wanted, before=None, limit=7)
                rest = records.page(session, owner, wanted, before=expected[6], limit=999) if expected[7:] else []
                assert [(one.created_at, one.id) for one in [*first, *rest]] == expected, wanted
    assert operators_of("Conv+Conv+Relu") == ["Conv", "Conv+Conv+Relu", "Relu"]
    assert operators_of("Conv+Add+...+Relu") == ["Add", "Conv", "Conv+Add+...+Relu", "Relu"]

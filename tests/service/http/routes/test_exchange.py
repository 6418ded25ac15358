from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient

from compiler.ir.machine import Record
from service.db.engine import Database
from service.db.models import TuningRecord, Workload
from service.http.routes.exchange import BATCH_BYTES, _batches
from service.jobs.accounts import access
from service.jobs.scheduling import lease
from service.jobs.tuning import exchange
from service.jobs.tuning.records import records_for

HEADER: dict[str, Any] = {"format": "tilewright-records", "version": 1}
TEXT = {"type": "workload", "workload": "b7c4f1", "text": "workload text"}


@pytest.fixture
def admin(db: Database, client: TestClient) -> dict[str, str]:
    """Headers of an administrator who is the client's owner."""
    return {"Authorization": f"Bearer {access.make_key(db, 'ada', ['admin'], 'test')}"}


@pytest.fixture
def line(record: dict[str, Any]) -> dict[str, Any]:
    """A record as an export writes it."""
    return {"type": "record", **record, "created_at": 1.7e9}


def body(*lines: object) -> bytes:
    return b"".join(line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n" for line in lines)


def brought(client: TestClient, headers: dict[str, str], *lines: object) -> dict[str, Any]:
    answer = client.post("/tuning-records/import", content=body(*lines), headers=headers)
    assert answer.status_code == 200, answer.text
    made: dict[str, Any] = answer.json()
    return made


def counts(there: dict[str, Any]) -> tuple[int, int, int]:
    return there["imported"], there["there_already"], there["refused"]


def rows(db: Database) -> int:
    with db.read() as session:
        return session.scalar(sa.select(sa.func.count()).select_from(TuningRecord)) or 0


def test_what_one_owner_exports_another_imports_once(
    client: TestClient,
    db: Database,
    admin: dict[str, str],
    stranger: dict[str, str],
    claimed: Callable[..., lease.Claim],
    record: dict[str, Any],
) -> None:
    client.post("/compile", files={"model": "m"})
    measured = [{**record, "seconds": n + 0.5, "variant": {"b": n, "a": [1, 2.5]}} for n in range(3)]
    lease.heartbeat(db, claimed(), [], lease.Measured(measured, {record["workload"]: "text\nof it"}))
    answer = client.get("/tuning-records/export", headers=admin)
    assert answer.headers["content-type"] == "application/x-ndjson"
    lines = [json.loads(one) for one in answer.content.splitlines()]
    assert {**lines[0], "compiler": ""} == {**HEADER, "compiler": ""}
    assert [one["type"] for one in lines[1:]] == ["workload", *["record"] * 3]
    assert all(set(one) == {"type", "created_at", *record} for one in lines[2:])
    for expected in ((3, 0, 0), (0, 3, 0)):
        done = client.post("/tuning-records/import", content=answer.content, headers=stranger).json()
        assert counts(done["records"]) == expected
        assert (done["lines"], done["refusals"]) == (5, [])
    theirs, ours = (
        sorted(client.get("/tuning-records", headers=headers).json()["records"], key=lambda one: one["seconds"])
        for headers in (stranger, admin)
    )
    for mine, other in zip(ours, theirs, strict=True):
        assert (other["imported"], other["job"], other["model"]) == (True, None, None)
        assert {name: other[name] for name in (*record, "created_at")} == {
            name: mine[name] for name in (*record, "created_at")
        }
    assert client.get(f"/tuning-records/{theirs[0]['id']}", headers=stranger).json()["workload_text"] == "text\nof it"
    again = client.get("/tuning-records/export", headers=stranger).content
    assert sorted(again.splitlines()) == sorted(answer.content.splitlines())
    assert client.get("/tuning-records?imported=true").json()["records"] == []


def test_one_line_that_is_bad_keeps_no_other_out_and_is_told(
    client: TestClient, admin: dict[str, str], line: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange, "MAX_LINE_BYTES", 10_000)
    monkeypatch.setattr(exchange, "MAX_TEXT_BYTES", 1000)
    monkeypatch.setattr(exchange, "MAX_VARIANT_BYTES", 1000)
    deep = b'{"type": "record", "variant": ' + b'{"a":' * 900 + b"1" + b"}" * 901 + b"\n"
    bad: list[tuple[object, str]] = [
        (b"no json\n", "not JSON"),
        (b"[]\n", "not a JSON object"),
        ({"type": "model"}, "'model'"),
        ({**line, "seconds": None}, "'seconds'"),
        ({**line, "seconds": -1}, "'seconds'"),
        ({**line, "samples": 2**60}, "'samples'"),
        ({**line, "operator": "a\0b"}, "'operator'"),
        ({**line, "hardware": "é" * 251}, "'hardware'"),
        ({**line, "variant": {"a": "x" * 1000}}, "'variant'"),
        ({**line, "created_at": None}, "'created_at'"),
        ({**line, "created_at": True}, "'created_at'"),
        ({**line, "created_at": time.time() + 1e6}, "future"),
        ({**line, "created_at": -1.0}, "before 1970"),
        ({**line, "description": "x" * 10_000}, "longer than 10000 bytes"),
        ({**TEXT, "workload": ""}, "'workload'"),
        ({**TEXT, "text": "x" * 1001}, "'text'"),
        ({**TEXT, "text": "a\0"}, "U+0000"),
        ({**TEXT, "text": "another"}, "another text"),
    ]
    done = brought(client, admin, HEADER, TEXT, line, b"\n", *(one for one, _ in bad), {**line, "seconds": 9.0})
    assert counts(done["records"]) == (2, 0, len(bad) - 4)
    assert counts(done["workloads"]) == (1, 0, 4)
    assert [one["line"] for one in done["refusals"]] == list(range(5, 5 + len(bad)))
    for (_, expected), reported in zip(bad, done["refusals"], strict=True):
        assert expected in reported["reason"]
    nested = brought(client, admin, HEADER, deep)
    assert counts(nested["records"]) == (0, 0, 1)


def test_many_refusals_are_counted_and_the_first_are_told(client: TestClient, admin: dict[str, str]) -> None:
    done = brought(client, admin, HEADER, *([b"x\n"] * (2 * exchange.BATCH)))
    assert (done["records"]["refused"], len(done["refusals"])) == (2 * exchange.BATCH, exchange.TOLD_REFUSALS)
    assert done["lines"] == 2 * exchange.BATCH + 1


def test_a_text_that_is_there_is_not_replaced(
    client: TestClient, db: Database, admin: dict[str, str], line: dict[str, Any]
) -> None:
    brought(client, admin, HEADER, TEXT)
    done = brought(client, admin, HEADER, {**TEXT, "text": "another"}, {**line, "variant": {"x": 1, "y": 2}})
    assert counts(done["workloads"]) == (0, 1, 0)
    with db.read() as session:
        assert session.scalars(sa.select(Workload.text)).all() == ["workload text"]
    done = brought(client, admin, HEADER, {**line, "variant": {"y": 2, "x": 1}}, {**line, "variant": {"x": 1, "y": 2}})
    assert counts(done["records"]) == (0, 2, 0)


@pytest.mark.parametrize(
    "first", [b"", b"no json\n", b"[]\n", b'{"format": "x"}\n', b'{"format": "tilewright-records", "version": 2}\n']
)
def test_what_no_export_wrote_is_refused_as_a_whole(
    client: TestClient, db: Database, admin: dict[str, str], line: dict[str, Any], first: bytes
) -> None:
    content = first + body(line) if first else b""
    answer = client.post("/tuning-records/import", content=content, headers=admin)
    assert (answer.status_code, answer.json()["code"]) == (400, "bad_request")
    assert rows(db) == 0


def test_a_body_that_is_too_large_says_what_was_kept_of_it(
    client: TestClient, db: Database, admin: dict[str, str], line: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.http.routes.exchange.BATCH", 2)

    def pieces() -> Iterator[bytes]:
        yield body(HEADER, line, {**line, "seconds": 1.0})
        yield b" " * 100_000

    answer = client.post("/tuning-records/import", content=pieces(), headers=admin)
    assert (answer.status_code, answer.json()["code"]) == (413, "body_too_large")
    assert answer.json()["details"]["done"]["records"]["imported"] == rows(db)


def test_a_batch_is_kept_as_a_whole_or_not_at_all(
    db: Database, owner: uuid.UUID, line: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    work = exchange.Import(db, owner)
    work.take([json.dumps(one).encode() for one in (HEADER, TEXT, line)])

    def failing(*_: object) -> None:
        raise OSError("power cut")

    monkeypatch.setattr("service.jobs.tuning.exchange.records.add", failing)
    with pytest.raises(OSError, match="power cut"):
        work.take([json.dumps(one).encode() for one in ({**TEXT, "workload": "w2"}, {**line, "seconds": 1.0})])
    assert (work.totals.lines, work.totals.records.imported, work.totals.workloads.imported) == (3, 1, 1)
    assert rows(db) == 1
    with db.read() as session:
        assert session.scalar(sa.select(sa.func.count()).select_from(Workload)) == 1


def test_imported_records_take_part_in_later_compilations(
    client: TestClient, db: Database, owner: uuid.UUID, admin: dict[str, str], line: dict[str, Any]
) -> None:
    older = {**line, "seconds": 9.0, "created_at": 1.6e9}
    other = {**line, "hardware": "elsewhere"}
    brought(client, admin, HEADER, line, older, other)
    snapshot = records_for(db, owner, line["target"], line["hardware"])
    assert [one["seconds"] for one in snapshot] == [line["seconds"]]
    assert Record.from_json(snapshot[0]).to_json() == {k: v for k, v in line.items() if k not in ("type", "created_at")}


def test_export_and_import_are_for_administrators(client: TestClient) -> None:
    assert client.get("/tuning-records/export").status_code == 403
    assert client.post("/tuning-records/import", content=b"x").status_code == 403


def test_long_lines_are_kept_before_many_of_them_are_in_memory() -> None:
    lines = [bytes([65 + number]) * 1_000_000 for number in range(20)]

    async def pieces() -> AsyncIterator[bytes]:
        whole = b"\n".join(lines)
        for at in range(0, len(whole), 65_536):
            yield whole[at : at + 65_536]

    async def batches() -> list[list[bytes]]:
        request: Any = SimpleNamespace(stream=pieces)
        return [batch async for batch in _batches(request, 1 << 30)]

    found = asyncio.run(batches())
    assert [line for batch in found for line in batch] == lines
    assert max(sum(map(len, batch)) for batch in found) < BATCH_BYTES + 2_000_000

from __future__ import annotations

import csv
import io
import json
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from importlib import util
from typing import Any

import pyarrow.parquet as pq
import pytest
from fastapi.testclient import TestClient

from service.db import records as rows
from service.db.engine import Database
from service.http.responses.record_files import COLUMNS
from service.jobs.scheduling import lease
from service.jobs.tuning import records
from service.jobs.tuning.records import to_row
from tests.service.databases import any_database

PARQUET = "application/vnd.apache.parquet"


@pytest.fixture
def jobs(client: TestClient, finish: Callable[..., lease.Claim], record: dict[str, Any]) -> list[dict[str, Any]]:
    made = []
    for number in range(2):
        made.append(client.post("/compile", files={"model": f"m{number}"}).json())
        measured = (
            {**record, "seconds": number + 0.5, "workload": f"w{number}"},
            {
                **record,
                "kind": "model",
                "operator": "Gemm",
                "hardware": f"hw-{number}",
                "target": f"cpu:t{number}",
                "threads": number + 1,
            },
        )
        finish(records=measured)
    return made


@pytest.fixture
def measured(db: Database, owner: uuid.UUID, record: dict[str, Any]) -> Callable[..., None]:
    """Puts records in, one for each mapping of changes."""

    def put(*changes: dict[str, Any]) -> None:
        with db.write() as session:
            plain = [{**record, **change} for change in changes]
            made = [to_row(one, owner=owner, job=None, model_digest=None) for one in plain]
            extra = ("created_at", "imported")
            rows.add(
                session,
                [
                    {"imported": False, **row, **{name: one[name] for name in extra if name in one}}
                    for row, one in zip(made, plain, strict=True)
                ],
            )

    return put


def test_a_record_comes_back_as_it_was_measured(
    client: TestClient, jobs: list[dict[str, Any]], record: dict[str, Any]
) -> None:
    found = client.get("/tuning-records", params={"workload": "w0"}).json()["records"][0]
    assert {name: found[name] for name in record} == {**record, "seconds": 0.5, "workload": "w0"}
    assert (found["job"], found["model"], found["imported"]) == (jobs[0]["id"], jobs[0]["model"], False)
    one = client.get(f"/tuning-records/{found['id']}").json()
    assert {name: one[name] for name in found} == found


def test_every_filter_filters(client: TestClient, jobs: list[dict[str, Any]]) -> None:
    filters = {
        "kind": ("model", 2),
        "operator": ("Conv", 2),
        "workload": ("w1", 1),
        "target": ("cpu:t0", 1),
        "hardware": ("hw-1", 3),
        "device": ("hw-0", 1),
        "query": ("conv 1x64x56", 4),
        "job": (jobs[0]["id"], 2),
        "model": (jobs[1]["model"], 2),
        "threads": (4, 2),
        "imported": ("false", 4),
    }
    assert len(client.get("/tuning-records").json()["records"]) == 4
    for name, (value, count) in filters.items():
        answer = client.get("/tuning-records", params={name: value}).json()["records"]
        assert len(answer) == count, name
        assert client.get("/tuning-records", params={name: value, "operator": "Nothing"}).json()["records"] == []
    assert client.get("/tuning-records?imported=true").json()["records"] == []
    assert client.get("/tuning-records?query=1x64%2555").json()["records"] == []
    assert client.get("/tuning-records?query=56&operator=Conv&format=csv").text.count("\n") == 3


def test_times_bound_from_below_inclusively_and_from_above_exclusively(
    client: TestClient, measured: Callable[..., None]
) -> None:
    begin = datetime(2026, 11, 1, tzinfo=UTC).timestamp()
    measured(*({"created_at": begin + second, "workload": f"w{second}"} for second in range(4)))
    since, until = "2026-11-01T00:00:01Z", "2026-11-01T01:00:03+01:00"
    found = client.get("/tuning-records", params={"since": since, "until": until}).json()["records"]
    assert [one["workload"] for one in found] == ["w2", "w1"]
    pages, cursor = [], None
    for _ in range(2):
        params = {"since": since, "until": until, "limit": 1} | ({"cursor": cursor} if cursor else {})
        page = client.get("/tuning-records", params=params).json()
        pages += [one["workload"] for one in page["records"]]
        cursor = page["next_cursor"]
    assert (pages, cursor) == (["w2", "w1"], None)


@any_database
@pytest.mark.parametrize(
    "query",
    [
        "hardware=a&device=b",
        "since=yesterday",
        "since=2026-11-01T00:00:00",
        "threads=-1",
        "threads=99999999999999999999",
        "job=1",
        "format=xml",
        "cursor=x",
        "cursor=AAAA",
        "cursor=f_gAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",  # a time that is no number
        "limit=501",
        "imported=perhaps",
    ],
)
def test_malformed_questions_are_refused(client: TestClient, query: str) -> None:
    answer = client.get(f"/tuning-records?{query}")
    assert (answer.status_code, answer.json()["code"]) == (400, "bad_request")


def test_a_filter_that_no_database_could_hold_finds_nothing(client: TestClient, jobs: list[dict[str, Any]]) -> None:
    answer = client.get("/tuning-records?operator=%00&model=%ff")
    assert (answer.status_code, answer.json()["records"]) == (200, [])


def test_pages_are_joined_by_cursors_also_where_times_are_equal(
    client: TestClient, measured: Callable[..., None]
) -> None:
    measured(*({"created_at": 1000.0 + number // 3, "seconds": float(number)} for number in range(10)))
    everything = client.get("/tuning-records").json()["records"]
    ages = [(one["created_at"], one["id"]) for one in everything]
    assert ages == sorted(ages, reverse=True)
    seen, params = [], {"limit": "3"}
    while True:
        page = client.get("/tuning-records", params=params).json()
        seen += page["records"]
        if page["next_cursor"] is None:
            break
        params["cursor"] = page["next_cursor"]
    assert seen == everything
    assert len(seen) == 10


def test_csv_is_everything_that_matches_with_formulas_made_harmless(
    client: TestClient, measured: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "BATCH", 2)
    measured(*({"seconds": float(number), "workload": f"w{number}"} for number in range(5)))
    measured({"operator": '=cmd|"x"', "description": "+1,2\né", "workload": "-w", "kind": "stage"})
    answer = client.get("/tuning-records?format=csv&limit=1")
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    assert 'filename="tuning-records.csv"' in answer.headers["content-disposition"]
    lines = list(csv.DictReader(io.StringIO(answer.content.decode(), newline="")))
    listed = client.get("/tuning-records").json()["records"]
    assert list(lines[0]) == list(COLUMNS)
    assert [line["id"] for line in lines] == [one["id"] for one in listed]
    assert [float(line["seconds"]) for line in lines] == [one["seconds"] for one in listed]
    assert [json.loads(line["variant"]) for line in lines] == [one["variant"] for one in listed]
    assert [datetime.fromisoformat(line["created_at"]) for line in lines] == [
        datetime.fromisoformat(one["created_at"]) for one in listed
    ]
    odd = lines[0]
    assert (odd["operator"], odd["description"], odd["workload"]) == ('\'=cmd|"x"', "'+1,2\né", "'-w")
    assert (odd["imported"], odd["job"]) == ("false", "")
    only = client.get("/tuning-records?kind=stage", headers={"Accept": "text/csv;q=0.9, */*"}).text
    assert only.count("stage") == 1
    assert "w1" not in only


def test_parquet_is_everything_that_matches_with_types(
    client: TestClient, measured: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "BATCH", 2)
    measured(*({"seconds": float(number), "workload": f"w{number}"} for number in range(5)))
    answer = client.get("/tuning-records", headers={"Accept": PARQUET})
    assert answer.headers["content-type"] == PARQUET
    table = pq.read_table(io.BytesIO(answer.content))
    assert table.column_names == list(COLUMNS)
    kinds = {name: str(table.schema.field(name).type) for name in ("created_at", "threads", "seconds", "imported")}
    assert kinds == {"created_at": "timestamp[us, tz=UTC]", "threads": "int64", "seconds": "double", "imported": "bool"}
    listed = client.get("/tuning-records").json()["records"]
    assert table["id"].to_pylist() == [one["id"] for one in listed]
    assert table["seconds"].to_pylist() == [4.0, 3.0, 2.0, 1.0, 0.0]
    assert [json.loads(text) for text in table["variant"].to_pylist()] == [one["variant"] for one in listed]
    assert table["job"].to_pylist() == [None] * 5


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_a_file_holds_no_more_than_it_may_and_may_hold_nothing(
    client: TestClient, measured: Callable[..., None], monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    def count() -> int:
        data = client.get(f"/tuning-records?format={form}").content
        return data.count(b"\n") - 1 if form == "csv" else int(pq.read_table(io.BytesIO(data)).num_rows)

    assert count() == 0
    monkeypatch.setattr(records, "BATCH", 2)
    monkeypatch.setattr("service.http.routes.records.MOST_IN_A_FILE", 3)
    measured(*({"seconds": float(number)} for number in range(5)))
    assert count() == 3


def test_what_was_measured_is_told_as_text(
    client: TestClient, db: Database, claimed: Callable[..., lease.Claim], record: dict[str, Any]
) -> None:
    client.post("/compile", files={"model": "m"})
    unknown = {**record, "workload": "w2"}
    reported = lease.Measured((record, unknown), {record["workload"]: "workload text"})
    lease.heartbeat(db, claimed(), [], reported)
    with_text, without = (
        client.get("/tuning-records", params={"workload": key}).json()["records"][0]["id"]
        for key in (record["workload"], "w2")
    )
    one = client.get(f"/tuning-records/{with_text}").json()
    assert one["workload_text"] == "workload text"
    assert one["links"]["source"] == f"/tuning-records/{with_text}/source"
    other = client.get(f"/tuning-records/{without}").json()
    assert (other["workload_text"], "source" in other["links"]) == (None, False)
    answer = client.get(f"/tuning-records/{without}/source")
    assert (answer.status_code, answer.json()["code"]) == (404, "source_unknown")
    assert "fresh=true" in answer.json()["fix"]


def test_records_of_another_owner_do_not_exist(
    client: TestClient, jobs: list[dict[str, Any]], stranger: dict[str, str]
) -> None:
    record = client.get("/tuning-records").json()["records"][0]["id"]
    assert client.get("/tuning-records", headers=stranger).json()["records"] == []
    for path in (f"/tuning-records/{record}", f"/tuning-records/{record}/source"):
        assert client.get(path, headers=stranger).status_code == 404
    assert client.get("/tuning-records?format=csv", headers=stranger).text.count("\n") == 1


def test_parquet_is_refused_where_the_server_was_installed_without_it(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(util, "find_spec", lambda name: None if name == "pyarrow" else pytest.fail(name))
    answer = client.get("/tuning-records?format=parquet")
    assert (answer.status_code, answer.json()["code"]) == (400, "bad_request")
    assert "pip install 'tilewright[server,parquet]'" in answer.json()["fix"]
    assert client.get("/tuning-records?format=csv").status_code == 200

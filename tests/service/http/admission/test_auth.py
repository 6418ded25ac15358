from __future__ import annotations

import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient

from service.db.engine import Database
from service.db.models import ApiKey
from service.jobs.accounts import access

PRIVATE = ("/jobs", "/tuning-records", "/workers")


def headers(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


@pytest.mark.parametrize("given", ["", "Bearer twk_wrong", "Basic abc", "Bearer \xff"])
def test_without_a_valid_key_nothing_is_shown(client: TestClient, given: str) -> None:
    for path in PRIVATE:
        answer = client.get(path, headers={"Authorization": given.encode("latin-1")})
        assert (answer.status_code, answer.json()["code"]) == (401, "not_authenticated")
        assert answer.headers["www-authenticate"] == "Bearer"
    assert (
        client.post("/compile", files={"model": b"m"}, headers={"Authorization": given.encode("latin-1")}).status_code
        == 401
    )


def test_the_scope_decides_what_a_key_may_do(client: TestClient, db: Database) -> None:
    reader = headers(access.make_key(db, "ada", ["read"], ""))
    submitter = headers(access.make_key(db, "ada", ["compile"], ""))
    admin = headers(access.make_key(db, "ada", ["admin"], ""))
    answer = client.post("/compile", files={"model": b"m"}, headers=reader)
    assert (answer.status_code, answer.json()["code"]) == (403, "not_allowed")
    job = client.post("/compile", files={"model": b"m"}, headers=submitter).json()["id"]
    assert client.get(f"/jobs/{job}", headers=submitter).status_code == 403
    assert client.get(f"/jobs/{job}", headers=reader).status_code == 200
    assert client.delete(f"/jobs/{job}", headers=reader).status_code == 403
    assert client.delete(f"/jobs/{job}", headers=admin).status_code == 200


def test_a_revoked_key_is_no_key_once_it_is_forgotten(
    client: TestClient, db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = access.make_key(db, "ada", ["read"], "")
    assert client.get("/jobs", headers=headers(key)).status_code == 200
    with db.write() as session:
        session.execute(sa.update(ApiKey).values(revoked_at=1.0))
    assert client.get("/jobs", headers=headers(key)).status_code == 200
    monkeypatch.setattr(access, "REMEMBERED_S", 0.0)
    assert client.get("/jobs", headers=headers(key)).status_code == 401

from __future__ import annotations

import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient

from service.blobs.local import LocalBlobs
from service.config import Settings
from service.db import usage
from service.db.engine import Database
from service.db.models import Owner
from service.jobs.accounts import access
from service.jobs.storage import integrity
from tests.service.conftest import RecordingRing, client_with
from tests.service.databases import any_database


@pytest.fixture
def operator(db: Database) -> dict[str, str]:
    """Headers of an operator."""
    return {"Authorization": f"Bearer {access.make_key(db, 'ops', access.SCOPES, 'operator')}"}


@pytest.fixture
def forgetful(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a key allows is looked up for every request."""
    monkeypatch.setattr(access, "REMEMBERED_S", 0.0)


@pytest.fixture
def client(db: Database, settings: Settings, ring: RecordingRing) -> Iterator[TestClient]:
    """A client of owner `ada` that manages keys too."""
    with client_with(access.ROLES["manager"], db, settings, ring) as made:
        yield made


def bearer(text: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {text}"}


@any_database
def test_who_asks_is_told_the_key_the_limits_and_what_is_used(
    client: TestClient, db: Database, operator: dict[str, str]
) -> None:
    grants = {"stored_bytes": 1000, "device_seconds": 7.5}
    client.patch("/owners/ada", json={"quotas": grants}, headers=operator)
    client.post("/compile", files={"model": b"12345"})
    me = client.get("/me").json()
    assert (me["owner"], me["key"]["role"], me["key"]["state"]) == ("ada", "manager", "valid")
    assert me["key"]["id"] == client.get("/keys").json()["keys"][0]["id"]
    quotas = me["quotas"]
    assert quotas["stored_bytes"] == {"limit": 1000, "used": 5}
    assert quotas["queued_jobs"] == {"limit": 5, "used": 1}, "the setting"
    assert quotas["concurrent_jobs"] == {"limit": None, "used": 0}
    month = f"{datetime.now(UTC):%Y-%m}"
    assert (quotas["device_seconds"]["limit"], quotas["device_seconds"]["month"]) == (7.5, month)


@any_database
@pytest.mark.parametrize("scope", [*access.SCOPES])
def test_every_key_may_ask_whose_it_is(client: TestClient, db: Database, scope: str) -> None:
    reported = client.get("/me", headers=bearer(access.make_key(db, "ada", [scope], "x"))).json()
    assert reported["key"]["scopes"] == [scope]
    assert reported["key"]["label"] == "x"


@any_database
def test_a_key_is_made_shown_once_used_rotated_and_revoked(client: TestClient, forgetful: None) -> None:
    made = client.post("/keys", json={"label": "laptop", "role": "reader", "expires_at": "2096-10-02T07:06:40Z"})
    assert made.status_code == 201
    reported = made.json()
    assert (reported["label"], reported["role"], reported["scopes"], reported["expires_at"]) == (
        "laptop",
        "reader",
        ["read"],
        "2096-10-02T07:06:40Z",
    )
    text = reported.pop("key")
    assert client.get("/jobs", headers=bearer(text)).status_code == 200
    listed = client.get("/keys").json()["keys"]
    assert [one["label"] for one in listed] == ["laptop", "test"]
    assert "twk_" not in client.get("/keys").text
    assert "digest" not in client.get("/keys").text
    rotated = client.post(f"/keys/{reported['id']}/rotate", json={"grace_s": 0}).json()
    assert client.get("/jobs", headers=bearer(text)).status_code == 401
    assert client.get("/jobs", headers=bearer(rotated["key"])).status_code == 200
    again = client.post(f"/keys/{reported['id']}/rotate", json={})
    assert (again.status_code, again.json()["code"]) == (409, "key_ended")
    assert client.delete(f"/keys/{rotated['id']}").json()["state"] == "revoked"
    assert client.get("/jobs", headers=bearer(rotated["key"])).status_code == 401


@any_database
@pytest.mark.parametrize(
    "body",
    [
        {"role": "king"},
        {"scopes": []},
        {"scopes": ["fly"]},
        {"label": "x" * 201},
        {"label": "a\0b"},
        {"expires_at": "1999-01-01T00:00:00Z"},
        {"expires_at": "tomorrow"},
        {"expires_at": 4070908800},
        {"expires_at": True},
        {"expires_at": "2099-01-01T00:00:00"},
        {"owner": "a/b"},
        {"surprise": 1},
    ],
)
def test_a_malformed_key_is_refused(client: TestClient, body: dict[str, Any]) -> None:
    answer = client.post("/keys", json=body)
    assert (answer.status_code, answer.json()["code"]) == (400, "bad_request")
    assert answer.json()["fix"]


@any_database
@pytest.mark.parametrize("scope", access.SCOPES)
def test_keys_are_managed_by_keys_that_may(client: TestClient, db: Database, scope: str) -> None:
    mine = bearer(access.make_key(db, "ada", [scope], "x"))
    victim = client.post("/keys", json={"scopes": ["keys"]}).json()["id"]
    asked = [
        client.post("/keys", json={"scopes": [scope]}, headers=mine),
        client.post(f"/keys/{victim}/rotate", json={"grace_s": 60}, headers=mine),
        client.delete(f"/keys/{victim}", headers=mine),
    ]
    for answer in asked:
        if scope in ("keys", "admin"):
            assert answer.status_code in (200, 201), answer.text
        else:
            assert (answer.status_code, answer.json()["details"]) == (403, {"scope": "keys"})


@any_database
def test_an_owner_has_no_more_valid_keys_than_it_may(client: TestClient, db: Database, settings: Settings) -> None:
    most = settings.max_keys_per_owner
    made = [client.post("/keys", json={"role": "reader"}) for _ in range(most)]
    assert [answer.status_code for answer in made] == [201] * (most - 1) + [403]
    assert (made[-1].json()["code"], made[-1].json()["details"]) == ("quota_exceeded", {"used": most, "limit": most})
    assert client.delete(f"/keys/{made[0].json()['id']}").status_code == 200
    assert client.post("/keys", json={"role": "reader"}).status_code == 201


@any_database
def test_a_key_that_has_expired_says_so(client: TestClient, db: Database, forgetful: None) -> None:
    soon = datetime.now(UTC) + timedelta(days=1)
    made = client.post("/keys", json={"expires_at": soon.isoformat()}).json()
    with db.write() as session:
        session.execute(sa.text("UPDATE api_keys SET expires_at = 1.0 WHERE label = ''"))
    answer = client.get("/jobs", headers=bearer(made["key"]))
    assert (answer.status_code, answer.json()["code"]) == (401, "not_authenticated")
    assert "expired" in answer.json()["detail"]


@any_database
def test_an_owner_is_made_limited_suspended_and_deleted(
    client: TestClient, operator: dict[str, str], forgetful: None
) -> None:
    made = client.post("/owners", json={"name": "bob", "quotas": {"queued_jobs": 1}}, headers=operator)
    assert (made.status_code, made.headers["location"]) == (201, "/owners/bob")
    assert client.post("/owners", json={"name": "bob"}, headers=operator).json()["code"] == "owner_exists"
    key = client.post("/keys", json={"owner": "bob"}, headers=operator).json()["key"]
    assert client.post("/compile", files={"model": b"1"}, headers=bearer(key)).status_code == 202
    full = client.post("/compile", files={"model": b"2"}, headers=bearer(key))
    assert (full.status_code, full.json()["code"], full.json()["details"]) == (
        429,
        "queue_full",
        {"limit": 1, "used": 1},
    )
    suspended = client.patch("/owners/bob", json={"suspended": True}, headers=operator).json()
    assert (suspended["state"], suspended["granted"]["queued_jobs"]) == ("suspended", 1)
    barred = client.get("/jobs", headers=bearer(key))
    assert (barred.status_code, barred.json()["code"]) == (403, "owner_suspended")
    assert "resume" in barred.json()["fix"]
    assert client.patch("/owners/bob", json={"suspended": False}, headers=operator).json()["state"] == "active"
    assert client.get("/jobs", headers=bearer(key)).status_code == 200
    for confirm in ({}, {"confirm": "ada"}):
        assert client.delete("/owners/bob", params=confirm, headers=operator).status_code == 400
    gone = client.delete("/owners/bob", params={"confirm": "bob"}, headers=operator)
    assert (gone.status_code, gone.json()["deleted"]["jobs"]) == (200, 1)
    assert client.get("/jobs", headers=bearer(key)).status_code == 401
    assert client.get("/owners/bob", headers=operator).status_code == 404


@any_database
def test_a_body_that_the_owner_has_no_room_for_is_refused_before_it_is_kept(
    client: TestClient, operator: dict[str, str]
) -> None:
    client.patch("/owners/ada", json={"quotas": {"stored_bytes": 50}}, headers=operator)
    large = b"x" * 51
    for answer in (
        client.post("/models", content=large),
        client.post("/models", files={"model": large}),
        client.post("/compile", files={"model": large}),
        client.post("/uploads", json={"bytes": 51}),
    ):
        assert (answer.status_code, answer.json()["code"]) == (403, "quota_exceeded"), answer.text
        assert answer.json()["details"]["limit"] == 50
    assert client.get("/models").json()["models"] == []
    assert client.post("/models", content=b"x" * 50).status_code == 201
    answer = client.post("/models", content=b"y")
    assert (answer.status_code, answer.json()["code"]) == (403, "quota_exceeded")


@any_database
def test_whose_room_is_full_sends_a_lost_model_again_and_nothing_else(
    client: TestClient, db: Database, blobs: LocalBlobs, operator: dict[str, str]
) -> None:
    client.patch("/owners/ada", json={"quotas": {"stored_bytes": 50}}, headers=operator)
    model = b"x" * 50
    digest = client.post("/models", content=model).json()["digest"]
    (blobs.root / digest[:2] / digest).unlink()
    integrity.scrub_all(db, blobs)
    for refused in (
        client.post("/models", content=b"y" * 50),
        client.post("/models", content=b"x" * 51),
        client.post("/uploads", json={"bytes": 51}),
        client.post("/compile", files={"model": b"y" * 50}),
        client.post("/inferences", params={"artifact": str(uuid.uuid4())}, content=b"y"),
    ):
        assert (refused.status_code, refused.json()["code"]) == (403, "quota_exceeded"), refused.text
    assert client.head(f"/models/{digest}").status_code == 404
    assert client.post("/models", content=model).status_code == 200
    assert client.get(f"/models/{digest}/file").content == model
    for sent in (model, b"y"):
        again = client.post("/models", content=sent)
        assert (again.status_code, again.json()["code"]) == (403, "quota_exceeded"), "nothing is lost any more"


@any_database
def test_device_seconds_that_are_had_come_back_with_the_month(
    client: TestClient, db: Database, operator: dict[str, str]
) -> None:
    client.patch("/owners/ada", json={"quotas": {"device_seconds": 0.5}}, headers=operator)
    with db.write() as session:
        ada = session.scalars(sa.select(Owner.id).where(Owner.name == "ada")).one()
        now = usage.now(session)
        usage.tally(session, ada, now, now + 1.0)
        resets = usage.end_of_month(now)
    answer = client.post("/compile", files={"model": b"1"})
    assert (answer.status_code, answer.json()["code"]) == (429, "device_time_used")
    assert 0 < int(answer.headers["retry-after"]) <= resets - now + 1
    assert client.post("/compile", files={"model": b"1"}).json()["details"]["used"] == pytest.approx(1.0)


@any_database
def test_owners_keys_and_entries_come_in_pages(client: TestClient, operator: dict[str, str]) -> None:
    for name in ("bob", "cyd"):
        client.post("/owners", json={"name": name}, headers=operator)
    for path, of, size in (("/owners", "owners", 4), ("/audit", "entries", 2)):
        whole = client.get(path, headers=operator).json()
        assert (len(whole[of]), whole["next_cursor"]) == (size, None)
        cursor: str | None = None
        pages: list[Any] = []
        while not pages or cursor:
            params = {"limit": 1, **({"cursor": cursor} if cursor else {})}
            page = client.get(path, params=params, headers=operator).json()
            pages += page[of]
            cursor = page["next_cursor"]
        assert pages == whole[of]
        assert client.get(path, params={"cursor": "~"}, headers=operator).status_code == 400


@any_database
def test_an_entry_tells_who_did_what_from_where(client: TestClient) -> None:
    answer = client.post("/models", content=b"m")
    (entry,) = client.get("/audit?verb=create").json()["entries"]
    assert entry["object"] == f"/models/{answer.json()['digest']}"
    assert entry["request_id"] == answer.headers["x-request-id"]
    assert entry["key"] == client.get("/me").json()["key"]["id"]
    assert (entry["address"], entry["owner"], entry["outcome"]) == ("testclient", "ada", "done")
    assert client.get("/audit?since=2099-01-01T00:00:00Z").json()["entries"] == []
    assert client.get("/audit", params={"object": entry["object"]}).json()["entries"] == [entry]
    assert client.get("/audit", params={"object": "/models/other"}).json()["entries"] == []

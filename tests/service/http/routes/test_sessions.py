"""Signing in to the page: a link that works once, and a session in a cookie that only the page can use."""

from __future__ import annotations

import re
import time
import uuid
from typing import Any

import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient
from httpx import Response

from service.config import Settings
from service.db.engine import Database
from service.db.models import ApiKey
from service.http.admission import sessions as cookies
from service.jobs.accounts import access, sessions
from tests.service.conftest import RecordingRing, client_with
from tests.service.databases import any_database

OWN = {"Sec-Fetch-Site": "same-origin"}
NO_KEY = {"Authorization": ""}
"""A browser sends no such header; the client's own key is left out."""


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def linked(client: TestClient, **headers: str) -> str:
    """The token of a new link, of the client's key."""
    answer = client.post("/session/links", headers=headers)
    assert answer.status_code == 201, answer.text
    assert answer.headers["cache-control"] == "no-store"
    return str(answer.json()["link"]).rpartition("/")[2]


def signed_in(client: TestClient, key: str) -> dict[str, str]:
    """What a browser sends once a key or a link's token has opened a session; the client itself keeps no cookie."""
    answer = client.post("/session", headers=bearer(key))
    assert answer.status_code == 201, answer.text
    client.cookies.clear()
    return {**NO_KEY, "Cookie": answer.headers["set-cookie"].partition(";")[0]}


def refused(answer: Response, status: int) -> bool:
    return (answer.status_code, answer.json()["code"]) == (
        status,
        {401: "not_authenticated", 403: "not_allowed"}[status],
    )


def test_a_link_opens_one_session_with_what_its_key_allows(client: TestClient, db: Database) -> None:
    token = linked(client)
    browser = signed_in(client, token)
    me = client.get("/me", headers={**browser, **OWN}).json()
    assert (me["owner"], me["key"]["scopes"], me["key"]["label"]) == ("ada", ["read", "compile"], sessions.LABEL)
    assert client.get("/jobs", headers={**browser, **OWN}).status_code == 200
    assert refused(client.post("/session", headers=bearer(token)), 401), "it was used"
    with db.read() as session:
        digests = list(session.scalars(sa.select(ApiKey.digest)))
    assert access.digest_of(token) not in digests


def test_a_link_opens_nothing_but_a_session(client: TestClient) -> None:
    token = bearer(linked(client))
    for method, path in (("GET", "/jobs"), ("GET", "/keys"), ("POST", "/compile"), ("POST", "/session/links")):
        assert refused(client.request(method, path, headers=token), 403), path
    assert client.post("/session", headers=token).status_code == 201


def test_a_link_remembered_from_its_first_use_opens_no_second_session(client: TestClient) -> None:
    token = linked(client)
    assert client.get("/me", headers=bearer(token)).status_code == 200, (
        "it is remembered from now on, with its key's id"
    )
    assert client.post("/session", headers=bearer(token)).status_code == 201
    assert refused(client.post("/session", headers=bearer(token)), 401)


def test_a_new_link_takes_the_place_of_the_one_that_was_not_used(client: TestClient, db: Database) -> None:
    first, second = linked(client), linked(client)
    assert refused(client.post("/session", headers=bearer(first)), 401)
    with db.read() as session:
        assert session.scalar(sa.select(sa.func.count()).select_from(ApiKey)) == 2, "the client's key and one link"
    assert client.post("/session", headers=bearer(second)).status_code == 201


@pytest.mark.parametrize("what", ["link", "key"])
def test_a_link_ends_in_a_day_and_with_its_key(client: TestClient, db: Database, what: str) -> None:
    token = linked(client)
    with db.write() as session:
        rows = {row.label: row for row in session.scalars(sa.select(ApiKey))}
        link = rows[sessions.LINK_LABEL]
        assert link.expires_at is not None
        assert abs(link.expires_at - time.time() - sessions.LINK_S) < 60
        (link if what == "link" else rows["test"]).expires_at = 1.0
    assert refused(client.post("/session", headers=bearer(token)), 401)


def test_a_session_ends_in_a_week_no_later_than_its_key_and_is_revoked_with_it(
    client: TestClient, db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = client.post("/session", headers=bearer(access.make_key(db, "ada", ["read"], "long"))).json()
    assert long["owner"] == "ada"
    ends = time.time() + 3600.0
    key = access.make_key(db, "ada", ["read", "keys"], "short", expires_at=ends)
    browser = signed_in(client, key)
    with db.read() as session:
        made = [row.expires_at for row in session.scalars(sa.select(ApiKey).where(ApiKey.label == sessions.LABEL))]
    (week,) = [end for end in made if end is not None and end != ends]
    assert len(made) == 2
    assert ends in made
    assert abs(week - time.time() - sessions.SESSION_S) < 60
    monkeypatch.setattr(access, "REMEMBERED_S", 0.0)
    mine = client.get("/me", headers=bearer(key)).json()["key"]["id"]
    assert client.get("/jobs", headers={**browser, **OWN}).status_code == 200
    assert client.delete(f"/keys/{mine}", headers=bearer(key)).status_code == 200
    assert refused(client.get("/jobs", headers={**browser, **OWN}), 401)


def test_signing_out_revokes_the_session_and_forgets_the_cookie(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    browser = {**signed_in(client, linked(client)), **OWN}
    other = {**signed_in(client, linked(client)), **OWN}
    monkeypatch.setattr(access, "REMEMBERED_S", 0.0)
    answer = client.delete("/session", headers=browser)
    assert answer.status_code == 204
    name = browser["Cookie"].partition("=")[0]
    assert answer.headers["set-cookie"].startswith(f"{name}=;")
    assert "Max-Age=0" in answer.headers["set-cookie"]
    assert refused(client.get("/me", headers=browser), 401)
    assert client.get("/me", headers=other).status_code == 200
    assert client.get("/me").status_code == 200, "the key itself"


def test_nobody_ends_the_session_of_another(client: TestClient, stranger: dict[str, str]) -> None:
    browser = signed_in(client, linked(client))
    assert client.delete("/session", headers={**stranger, "Cookie": browser["Cookie"]}).status_code == 204
    assert client.get("/me", headers={**browser, **OWN}).status_code == 200


@pytest.mark.parametrize(
    ("headers", "reads", "changes"),
    [
        ({"Sec-Fetch-Site": "same-origin"}, True, True),
        ({"Sec-Fetch-Site": "none"}, True, False),
        ({"Sec-Fetch-Site": "same-site"}, False, False),
        ({"Sec-Fetch-Site": "cross-site"}, False, False),
        ({"Sec-Fetch-Site": "cross-site", "Origin": "http://testserver"}, False, False),
        ({"Sec-Fetch-Site": "same-origin", "Origin": "http://proxied"}, True, True),
        ({"Origin": "http://testserver"}, True, True),
        ({"Origin": "http://testserver:9999"}, False, False),
        ({"Origin": "http://evil.example"}, False, False),
        ({"Origin": "null"}, False, False),
        ({}, True, False),
    ],
    ids=str,
)
def test_a_cookie_counts_for_the_page_alone(
    client: TestClient, headers: dict[str, str], reads: bool, changes: bool
) -> None:
    browser = {**signed_in(client, linked(client)), **headers}
    job = client.post("/compile", files={"model": b"m"}).json()["id"]
    for path in ("/jobs", f"/jobs/{job}"):  # by the router, and ahead of it
        answer = client.get(path, headers=browser)
        assert answer.status_code == 200 if reads else refused(answer, 403), path
    answer = client.post(f"/jobs/{job}/cancel", headers=browser)
    assert answer.status_code == 200 if changes else refused(answer, 403)
    assert client.get(f"/jobs/{job}").json()["state"] == ("CANCELLED" if changes else "QUEUED")
    sent = client.post("/compile", files={"model": b"n"}, headers=browser)
    assert sent.status_code in (200, 202) if changes else refused(sent, 403)


def test_another_page_that_knows_a_key_needs_no_cookie(client: TestClient) -> None:
    assert client.get("/jobs", headers={"Sec-Fetch-Site": "cross-site"}).status_code == 200


@any_database
def test_an_api_key_in_a_cookie_is_none(client: TestClient, db: Database) -> None:
    key = access.make_key(db, "ada", ["read"], "")
    for name in ("tilewright_session", "__Host-tilewright_session"):
        assert refused(client.get("/jobs", headers={**NO_KEY, **OWN, "Cookie": f"{name}={key}"}), 401)


@any_database
@pytest.mark.parametrize(
    ("host", "origin", "name", "secure"),
    [
        ("testserver", "http://testserver", "tilewright_session", False),
        ("127.0.0.1:8750", "http://127.0.0.1:8750", "tilewright_session_8750", False),
        ("[::1]:8750", "http://[::1]:8750", "tilewright_session_8750", False),
        ("tiles.example", "https://tiles.example", "__Host-tilewright_session", True),
        ("tiles.example:8443", "https://tiles.example:8443", "__Host-tilewright_session_8443", True),
    ],
)
def test_scripts_and_other_sites_have_no_part_in_the_cookie(
    client: TestClient, host: str, origin: str, name: str, secure: bool
) -> None:
    answer = client.post("/session", headers={"Host": host, "Origin": origin})
    text, *parts = answer.headers["set-cookie"].split("; ")
    client.cookies.clear()
    assert re.fullmatch(rf"{name}=twb_[\w-]+", text)
    assert set(parts) == {"Path=/", "HttpOnly", "SameSite=Strict", *(["Secure"] if secure else [])}
    browser = {**NO_KEY, **OWN, "Host": host, "Cookie": f"other=1; {text}"}
    assert client.get("/me", headers=browser).status_code == 200
    assert refused(client.get("/me", headers={**browser, "Host": "testserver:1"}), 401), "another service's"


def test_over_tls_the_cookie_is_secure_without_an_origin() -> None:
    scope: dict[str, Any] = {"type": "http", "scheme": "https", "method": "POST", "headers": [(b"host", b"h")]}
    assert cookies.set_cookie(scope, "twb_x").endswith("; Secure")
    assert not cookies.set_cookie({**scope, "scheme": "http"}, "twb_x").endswith("; Secure")


def test_sessions_count_among_the_keys_that_an_owner_may_have(
    db: Database, settings: Settings, ring: RecordingRing
) -> None:
    few = settings.model_copy(update={"max_keys_per_owner": 3})
    with client_with(["read"], db, few, ring) as client:
        assert [client.post("/session").status_code for _ in range(3)] == [201, 201, 403]
        answer = client.post("/session/links")
        assert (answer.status_code, answer.json()["code"]) == (403, "quota_exceeded")
        assert answer.json()["details"] == {"used": 3, "limit": 3}


@any_database
def test_sessions_and_links_are_in_the_list_of_keys_and_the_audit_log(client: TestClient) -> None:
    signed_in(client, linked(client))
    linked(client)
    labels = [one["label"] for one in client.get("/keys").json()["keys"]]
    assert labels == [sessions.LINK_LABEL, sessions.LABEL, "test"]
    entries = client.get("/audit").json()["entries"]
    made = [one["object"] for one in entries if one["verb"] == "create"]
    assert len(made) == 3
    assert all(uuid.UUID(one.removeprefix("/keys/")) for one in made)

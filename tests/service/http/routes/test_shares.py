"""Links to a job: what they open, and everything else, which they do not."""

from __future__ import annotations

import base64
import json
import time
import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from anyio import to_thread
from fastapi.testclient import TestClient

from service.config import Settings
from service.db.engine import Database
from service.db.models import Job, JobState
from service.db.share_links import ShareLink
from service.errors import NotAuthenticated
from service.http.admission import shared_access
from service.http.gate import GatedRoute
from service.http.routes import jobs as jobs_routes
from service.http.routes import routers
from service.jobs.accounts import access
from service.jobs.lifecycle import share_links
from service.jobs.lifecycle.attestation import Signer
from service.jobs.scheduling import lease
from tests.service.databases import any_database
from tests.service.http.asgi import ask, endless
from tests.service.http.test_gate import KEYED, headers, place
from tests.service.http.test_gate import there as there  # a fixture

PARTS = ("plan", "graph", "trace", "report.html")


def share(client: TestClient, job: str, **wanted: Any) -> dict[str, Any]:
    answer = client.post(f"/jobs/{job}/shares", json=wanted)
    assert answer.status_code == 201, answer.text
    made: dict[str, Any] = answer.json()
    return made


def bearer(made: dict[str, Any]) -> dict[str, str]:
    return {"Authorization": f"Bearer {made['token']}"}


def test_a_link_opens_what_the_job_page_shows_and_names_the_page(client: TestClient, there: dict[str, str]) -> None:
    made = share(client, there["job_id"])
    assert made["link"] == f"/#/shared/{there['job_id']}/{made['token']}"
    asked = bearer(made)
    own = client.get(f"/jobs/{there['job_id']}").json()
    assert client.get(f"/jobs/{there['job_id']}", headers=asked).json() == own
    for part in ("report", "log", "events"):
        assert client.get(f"/jobs/{there['job_id']}/{part}", headers=asked).status_code == 200, part
    for part in PARTS:
        same = [client.get(f"/artifacts/{there['artifact_id']}/{part}", headers=by) for by in ({}, asked)]
        assert same[0].status_code == same[1].status_code != 403, part
        assert same[0].content == same[1].content, part
    assert client.get(f"/artifacts/{there['artifact_id']}", headers=asked).status_code == 403


@any_database
@pytest.mark.parametrize("download", [False, True])
def test_a_link_opens_no_other_route(
    client: TestClient, there: dict[str, str], settings: Settings, download: bool
) -> None:
    made = share(client, there["job_id"], download=download)
    opened = shared_access.PAGE | (shared_access.DOWNLOAD if download else set())
    names = {
        (method.lower(), route.path_format): route.name
        for router in routers()
        for route in router.routes
        if isinstance(route, GatedRoute)
        for method in route.methods or ()
    }
    tried = 0
    for operation in KEYED:
        if names[operation.method, operation.path] in opened:
            continue
        tried += 1
        asked = headers(made["token"], operation)
        answer = ask(client.app, operation.method.upper(), place(operation, there), asked, endless())
        assert (answer.status, answer.asked) == (403, 0), operation
    assert tried > 50
    for name in opened:
        assert {method for (method, _), route in names.items() if route == name} <= {"get", "head"}, name


def test_only_the_file_of_its_own_artifact_is_given_away(
    client: TestClient, there: dict[str, str], finish: Callable[..., lease.Claim]
) -> None:
    made = share(client, there["job_id"], download=True)
    other = client.post("/compile?fresh=true", files={"model": b"other"}).json()
    with client.app.state.tilewright.db.write() as session:  # type: ignore[attr-defined]
        session.execute(
            sa.update(Job)
            .where(Job.state == JobState.QUEUED, Job.id != uuid.UUID(other["id"]))
            .values(state="CANCELLED")
        )
    finish()
    artifact = client.get(f"/jobs/{other['id']}").json()["artifact_id"]
    asked = bearer(made)
    assert client.get(f"/artifacts/{artifact}").status_code == 200
    for path in (
        f"/artifacts/{artifact}",
        f"/artifacts/{artifact}/plan",
        f"/jobs/{other['id']}",
        f"/jobs/{other['id']}/log",
    ):
        assert client.get(path, headers=asked).status_code == 404, path
    whole = client.get(f"/artifacts/{there['artifact_id']}", headers=asked)
    assert whole.status_code == 200
    assert whole.content == client.get(f"/artifacts/{there['artifact_id']}").content


def test_a_revoked_link_opens_nothing_and_both_are_told(client: TestClient, there: dict[str, str]) -> None:
    made = share(client, there["job_id"])
    path = f"/jobs/{there['job_id']}/shares"
    assert client.get(path).json()["shares"][0]["state"] == "valid"
    first, again = (client.delete(f"{path}/{made['id']}").json() for _ in range(2))
    assert first == again
    assert first["state"] == "revoked"
    refused = client.get(f"/jobs/{there['job_id']}", headers=bearer(made))
    assert (refused.status_code, refused.json()["code"]) == (401, "not_authenticated")
    assert made["token"] not in client.get(path).text
    verbs = [entry["verb"] for entry in client.get("/audit").json()["entries"]]
    assert "share" in verbs
    assert "revoke" in verbs


def test_links_of_another_owner_are_not_there(
    client: TestClient, there: dict[str, str], stranger: dict[str, str]
) -> None:
    made = share(client, there["job_id"])
    path = f"/jobs/{there['job_id']}/shares"
    answers = [
        client.get(path, headers=stranger),
        client.post(path, json={}, headers=stranger),
        client.delete(f"{path}/{made['id']}", headers=stranger),
    ]
    assert [answer.status_code for answer in answers] == [404, 404, 404]
    assert client.get(f"/jobs/{there['job_id']}", headers=bearer(made)).status_code == 200


def test_a_link_that_was_tampered_with_is_none(client: TestClient, there: dict[str, str]) -> None:
    made = share(client, there["job_id"])
    token = made["token"]
    signed = base64.urlsafe_b64decode(token[4:] + "=" * (-len(token[4:]) % 4))

    def text(content: bytes) -> str:
        return "tws_" + base64.urlsafe_b64encode(content).rstrip(b"=").decode()

    assert text(signed) == token
    flipped = [
        bytes(byte ^ (1 if at == wrong else 0) for at, byte in enumerate(signed)) for wrong in range(len(signed))
    ]
    damaged = [text(one) for one in flipped] + [
        token[:-1],
        token + "A",
        token + "=",
        token[:-1] + "!",
        "tws_",
        "tws_\xe9",
    ]
    last = token[-1]
    damaged += [token[:-1] + other for other in "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz" if other != last]
    here = client.app.state.tilewright  # type: ignore[attr-defined]
    for one in damaged:
        with pytest.raises(NotAuthenticated):
            share_links.enter(here.db, here.signer, one)
    assert share_links.enter(here.db, here.signer, token).opened is not None
    assert client.get(f"/jobs/{there['job_id']}", headers={"Authorization": f"Bearer {damaged[0]}"}).status_code == 401


def test_an_expired_link_opens_nothing_whatever_its_row_says(client: TestClient, there: dict[str, str]) -> None:
    ends = datetime.now(UTC) + timedelta(hours=1)
    made = share(client, there["job_id"], expires_at=ends.isoformat())
    here = client.app.state.tilewright  # type: ignore[attr-defined]
    assert share_links.enter(here.db, here.signer, made["token"], now=ends.timestamp() - 2).expires_at is not None
    with pytest.raises(NotAuthenticated, match="expired"):
        share_links.enter(here.db, here.signer, made["token"], now=ends.timestamp() + 1)
    with here.db.write() as session:
        session.execute(sa.update(ShareLink).values(expires_at=time.time() - 1))
    refused = client.get(f"/jobs/{there['job_id']}", headers=bearer(made))
    assert refused.status_code == 401
    assert "expired" in refused.json()["detail"]
    assert client.get(f"/jobs/{there['job_id']}/shares").json()["shares"][0]["state"] == "expired"


@pytest.mark.parametrize("days", [-1, 366])
def test_a_link_ends_later_than_now_and_within_a_year(client: TestClient, there: dict[str, str], days: int) -> None:
    ends = datetime.now(UTC) + timedelta(days=days)
    answer = client.post(f"/jobs/{there['job_id']}/shares", json={"expires_at": ends.isoformat()})
    assert answer.status_code == 400
    assert answer.json()["fix"]


def test_a_job_has_no_more_links_than_it_may(
    client: TestClient, there: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(share_links, "MOST", 3)
    answers = [client.post(f"/jobs/{there['job_id']}/shares", json={}).status_code for _ in range(4)]
    assert answers == [201, 201, 403, 403], "`there` made the first"


def test_a_link_goes_with_its_job_and_its_owner(client: TestClient, there: dict[str, str], db: Database) -> None:
    kept, gone = share(client, there["job_id"]), client.post("/compile?fresh=true", files={"model": b"gone"}).json()
    lost = share(client, gone["id"])
    assert client.delete(f"/jobs/{gone['id']}").status_code == 200
    assert client.get(f"/jobs/{gone['id']}", headers=bearer(lost)).status_code == 401
    with db.read() as session:
        assert session.get(ShareLink, uuid.UUID(lost["id"])) is None
    client.patch("/owners/ada", json={"suspended": True}, headers=_operator(db))
    assert client.get(f"/jobs/{there['job_id']}", headers=bearer(kept)).status_code == 401


def _operator(db: Database) -> dict[str, str]:
    return {"Authorization": f"Bearer {access.make_key(db, 'ops', ['admin'], '')}"}


def test_another_services_key_signs_no_link(client: TestClient, there: dict[str, str], tmp_path: Path) -> None:
    made = share(client, there["job_id"])
    here = client.app.state.tilewright  # type: ignore[attr-defined]
    other = Signer(tmp_path / "other.pem")
    until = datetime.fromisoformat(made["expires_at"]).timestamp()
    forged = share_links.token_of(other, uuid.UUID(made["id"]), until, download=False)
    assert share_links.token_of(here.signer, uuid.UUID(made["id"]), until, download=False) == made["token"]
    with pytest.raises(NotAuthenticated):
        share_links.enter(here.db, here.signer, forged)


def test_refusals_of_links_are_told(client: TestClient, db: Database) -> None:
    client.get(f"/jobs/{uuid.uuid4()}", headers={"Authorization": "Bearer tws_x"})
    reported = client.get("/audit?verb=open", headers=_operator(db)).json()
    assert "not_authenticated" in json.dumps(reported)


@any_database
def test_a_stream_that_is_open_ends_when_its_link_is_revoked(client: TestClient, queued: Callable[..., Job]) -> None:
    job = queued()
    made = share(client, str(job.id))
    state = client.app.state.tilewright  # type: ignore[attr-defined]
    caller = share_links.enter(state.db, state.signer, made["token"])

    async def followed() -> list[bytes]:
        stream = jobs_routes._stream(state, caller, job.id, 0, 30.0)
        first = [await anext(stream), await anext(stream)]
        await to_thread.run_sync(share_links.revoke, state.db, job.owner_id, job.id, caller.key)
        return [*first, *[line async for line in stream]]

    assert client.portal is not None
    lines = client.portal.call(followed)
    assert b"QUEUED" in lines[0]
    assert len(lines) == 2, "the next keep-alive did not come"

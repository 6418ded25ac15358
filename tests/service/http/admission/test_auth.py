from __future__ import annotations

import json
from collections.abc import Callable

import pytest
import sqlalchemy as sa
from anyio import to_thread
from fastapi.testclient import TestClient

from service.db.engine import Database
from service.db.models import ApiKey, Job
from service.http.routes import jobs as jobs_routes
from service.jobs.accounts import access
from tests.service.databases import any_database
from tests.service.http.asgi import ask
from tests.service.http.test_gate import KEYED, WITH_JSON, Operation, each, filled, place
from tests.service.http.test_gate import headers as headers_of
from tests.service.http.test_gate import there as there  # a fixture

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


LEAVES_NOTHING = {
    *("delete_model", "delete_workload", "delete_upload", "delete_job", "delete_webhook", "purge_job"),
    *("cancel_job", "cancel_batch", "finish_job", "revoke_share", "end_session"),  # these end something
    "preflight_model",  # answers and keeps nothing
    *("label_model", "label_job"),  # names for what there is
    "append_to_upload",  # adds to what was begun; what makes a model of it asks again
    "test_webhook",  # is sent to a receiver that there was
}
"""What changes something and may be done with a key for as long as it is remembered, `REMEMBERED_S`."""
UNFIT = {"minimise_job", "retry_batch"}
"""Nothing that there is here has failed: these have nothing to make, and would make jobs, as others here do."""
LASTING = [one for one in KEYED if one.method not in ("get", "head") and one.name not in LEAVES_NOTHING | UNFIT]


@any_database
@each(LASTING)
def test_what_lasts_is_not_made_with_a_key_that_was_revoked_and_is_remembered(
    operation: Operation, client: TestClient, there: dict[str, str], db: Database
) -> None:
    key = access.make_key(db, "ada", access.SCOPES, "stolen")
    assert client.get("/me", headers=headers(key)).status_code == 200
    with db.write() as session:
        session.execute(sa.update(ApiKey).where(ApiKey.label == "stolen").values(revoked_at=1.0))
    assert client.get("/me", headers=headers(key)).status_code == 200, "it is not remembered"
    body = json.dumps(filled(operation, there)).encode() if operation in WITH_JSON else b"x"
    answer = ask(client.app, operation.method.upper(), place(operation, there), headers_of(key, operation), [body])
    assert (answer.status, answer.problem["code"]) == (401, "not_authenticated"), answer


@pytest.fixture(autouse=True)
def _long_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "REMEMBERED_S", 60.0)


def test_the_list_of_what_leaves_nothing_names_operations_that_there_are() -> None:
    assert {one.name for one in KEYED} >= LEAVES_NOTHING
    assert len(LASTING) > 15


@pytest.mark.parametrize("shared", [False, True])
def test_a_stream_that_is_open_ends_when_its_key_is_revoked(
    client: TestClient, queued: Callable[..., Job], db: Database, monkeypatch: pytest.MonkeyPatch, shared: bool
) -> None:
    monkeypatch.setattr(access, "REMEMBERED_S", 0.0)
    job, state = queued(), client.app.state.tilewright  # type: ignore[attr-defined]
    caller = state.door.enter(access.make_key(db, "ada", ["read"], ""))
    other = state.door.enter(access.make_key(db, "ada", ["read"], "")) if shared else caller

    def revoke() -> None:
        with db.write() as session:
            session.execute(sa.update(ApiKey).where(ApiKey.id == other.key).values(revoked_at=1.0))

    async def followed() -> int:
        stream = jobs_routes._stream(state, caller, job.id, 0, 30.0)
        first = [await anext(stream), await anext(stream)]
        await to_thread.run_sync(revoke)
        later = 0
        async for _ in stream:
            later += 1
            if later == 3:
                break
        return len(first) + later

    assert client.portal is not None
    assert client.portal.call(followed) == (5 if shared else 2), "only its own key ends a stream"


def test_of_all_who_hold_a_key_one_is_asked_to_look_it_up_again(db: Database) -> None:
    door = access.Door(db)
    caller, other = (door.enter(access.make_key(db, "ada", ["read"], "")) for _ in range(2))
    assert [door.is_due(one) for one in (caller, caller, other, other)] == [True, False, True, False]
    assert door.stands(caller)
    assert not door.is_due(caller)
    with db.write() as session:
        session.execute(sa.update(ApiKey).where(ApiKey.id == caller.key).values(revoked_at=1.0))
    assert not door.stands(caller)
    assert door.is_due(caller), "whoever else holds it hears of it too"
    assert door.stands(other)

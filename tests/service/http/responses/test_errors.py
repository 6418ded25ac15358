from __future__ import annotations

import contextlib
import errno

import pytest
import structlog
from fastapi.testclient import TestClient

from compiler import errors as compiler_errors
from compiler.errors import TilewrightError
from service import errors as service_errors
from service import logs
from service.http.responses import errors


def subclasses(kind: type[TilewrightError]) -> set[type[TilewrightError]]:
    return {kind}.union(*(subclasses(child) for child in kind.__subclasses__()))


def test_every_error_has_a_status_that_matches_whose_fault_it_is() -> None:
    for kind in subclasses(TilewrightError):
        answer = errors.response_to(kind("why", fix="how"), "/x")
        assert (answer.status_code < 500) == (kind.fault == "caller"), kind


def test_codes_are_never_shared() -> None:
    kinds = subclasses(service_errors.ServiceError) | subclasses(compiler_errors.TilewrightError)
    own = [kind for kind in kinds if "code" in vars(kind)]  # a class without one is a case of the class above it
    codes = [kind.code for kind in own if kind.__module__.startswith(("compiler", "service"))]
    shared = {code for code in codes if codes.count(code) > 1}
    assert shared <= {"internal"}


def test_every_table_row_is_used() -> None:
    assert set(errors.HEADERS) <= subclasses(TilewrightError)
    assert set(errors.STATUS) <= subclasses(TilewrightError)


def test_a_broken_route_answers_with_a_problem_that_hides_the_cause(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("secret detail")

    monkeypatch.setattr("service.jobs.lifecycle.find.page", broken)
    quiet = TestClient(client.app, headers=dict(client.headers), raise_server_exceptions=False)
    with structlog.testing.capture_logs() as lines:
        answer = quiet.get("/jobs")
    assert (answer.status_code, answer.json()["code"], answer.json()["fault"]) == (500, "internal", "ours")
    assert "secret" not in answer.text
    assert [str(line["exc_info"]) for line in lines] == ["secret detail"], "the log has it"
    quoted = answer.json()["details"]["request"]
    assert quoted == answer.headers["x-request-id"] == lines[0]["request"], "one finds the other by it"
    assert quoted in answer.json()["fix"]


def test_an_internal_error_that_was_foreseen_hides_its_cause_too(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise compiler_errors.InternalError("/srv/secret/file is odd", details={"traceback": "File /srv/secret"})

    monkeypatch.setattr("service.jobs.lifecycle.find.page", broken)
    with structlog.testing.capture_logs() as lines:
        answer = client.get("/jobs")
    assert (answer.status_code, answer.json()["code"]) == (500, "internal")
    assert "secret" not in answer.text
    assert answer.json()["details"] == {"request": answer.headers["x-request-id"]}
    assert [line["error"] for line in lines] == ["/srv/secret/file is odd"]


def test_every_request_has_an_id(client: TestClient) -> None:
    ids = {client.get("/healthz").headers["x-request-id"] for _ in range(3)}
    assert len(ids) == 3


def test_every_operation_is_described(client: TestClient) -> None:
    spec = client.get("/openapi.json").json()
    for path, methods in spec["paths"].items():
        for method, operation in methods.items():
            assert operation["summary"], (method, path)
            assert operation["description"], (method, path)


FULL = {
    "a file": (OSError(errno.ENOSPC, "No space left on device"), "storage_unavailable"),
    "a quota": (OSError(errno.EDQUOT, "Disk quota exceeded"), "storage_unavailable"),
    "the database": (service_errors.DatabaseFull("the database failed"), "database_full"),
    "the blobs": (service_errors.StorageUnavailable("the blob store failed"), "storage_unavailable"),
}


@pytest.mark.parametrize("what", FULL)
def test_whatever_finds_no_room_is_answered_with_507_and_a_code_also_where_the_log_finds_none(
    client: TestClient, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    error, code = FULL[what]

    def full(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("service.jobs.lifecycle.find.page", full)
    with open("/dev/full", "w") as log, contextlib.redirect_stderr(log):
        logs.configure(json_lines=False)
        structlog.configure(cache_logger_on_first_use=False)
        answers = [client.get("/jobs") for _ in range(3)]
    logs.reset()
    assert {(answer.status_code, answer.json()["code"]) for answer in answers} == {(507, code)}


def test_an_error_of_the_system_that_is_not_want_of_room_is_ours(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, "secret")

    monkeypatch.setattr("service.jobs.lifecycle.find.page", broken)
    quiet = TestClient(client.app, headers=dict(client.headers), raise_server_exceptions=False)
    answer = quiet.get("/jobs")
    assert (answer.status_code, answer.json()["code"]) == (500, "internal")
    assert "secret" not in answer.text


def test_of_answers_that_fail_alike_few_are_logged(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: object, **__: object) -> None:
        raise service_errors.DatabaseUnavailable("away")

    monkeypatch.setattr("service.jobs.lifecycle.find.page", away)
    monkeypatch.setattr(errors, "_failures", logs.Seldom(10, within_s=3600.0))
    told: list[str] = []
    monkeypatch.setattr(errors.log, "error", lambda event, **named: told.append(event))
    assert {client.get("/jobs").status_code for _ in range(50)} == {503}
    assert told == ["request failed"] * 10

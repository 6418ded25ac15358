from __future__ import annotations

import os
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from email.message import Message
from http.client import HTTPConnection
from pathlib import Path

import httpx
import pytest

from tests.servers import GUARD_S, free_port

ROOT = Path(__file__).parents[2]


@dataclass
class Running:
    process: subprocess.Popen[bytes]
    client: httpx.Client
    data: Path


one_database = pytest.mark.parametrize("environment", ["sqlite"], indirect=True)
"""On a test that asks the database for nothing but what other tests, which run on both, ask as well."""


@pytest.fixture(params=["sqlite", "postgresql"])
def environment(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, str]:
    """Of a service that finds an empty database."""
    url = "" if request.param == "sqlite" else request.getfixturevalue("empty_postgres_url")
    return {
        **os.environ,
        "TILEWRIGHT_DATA_DIR": str(tmp_path / "data"),
        "TILEWRIGHT_DATABASE_URL": url,
        "TILEWRIGHT_BROKER_URL": f"redis+socket://{tmp_path}/nobody",
        "TILEWRIGHT_PORT": str(free_port()),
        "TILEWRIGHT_GRACEFUL_SHUTDOWN_S": "1",
    }


def answers(process: subprocess.Popen[bytes], client: httpx.Client) -> None:
    """Wait until the service takes requests."""
    end = time.monotonic() + GUARD_S
    while True:
        try:
            client.get("/healthz")
            return
        except httpx.TransportError:
            assert process.poll() is None, "it died"
            assert time.monotonic() < end, "it does not answer"
            time.sleep(0.05)


@pytest.fixture
def service(environment: dict[str, str], tmp_path: Path) -> Iterator[Running]:
    """`python -m service` over an empty data folder, without a broker."""
    process = subprocess.Popen([sys.executable, "-m", "service"], cwd=ROOT, env=environment, stderr=subprocess.DEVNULL)
    with httpx.Client(base_url=f"http://127.0.0.1:{environment['TILEWRIGHT_PORT']}", timeout=GUARD_S) as client:
        try:
            answers(process, client)
            yield Running(process, client, tmp_path / "data")
        finally:
            process.kill()
            process.wait()


def test_it_starts_from_nothing_takes_jobs_without_a_broker_and_stops_with_a_stream_open(service: Running) -> None:
    key_file = service.data / "api_key"
    assert stat.S_IMODE(key_file.stat().st_mode) == 0o600
    service.client.headers["Authorization"] = f"Bearer {key_file.read_text().strip()}"
    ready = service.client.get("/readyz")
    assert ready.status_code == 503
    assert {check["name"]: check["ok"] for check in ready.json()["checks"]} == {
        "database": True,
        "broker": False,
        "blobs": True,
        "workers": False,
    }
    job = service.client.post("/compile", files={"model": b"m"}, data={"options": "{}"}).json()
    assert job["state"] == "QUEUED"
    with service.client.stream("GET", f"/jobs/{job['id']}/events") as stream:
        lines = stream.iter_lines()
        assert next(lines) == "event: state"
        service.process.send_signal(signal.SIGTERM)
        assert service.process.wait(timeout=GUARD_S) is not None


@one_database
def test_a_key_for_another_owner_is_printed_and_works(service: Running, environment: dict[str, str]) -> None:
    made = subprocess.run(
        [sys.executable, "-m", "service", "key", "bob", "--scope", "read"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    headers = {"Authorization": f"Bearer {made.stdout.strip()}"}
    assert service.client.get("/jobs", headers=headers).json() == {"jobs": [], "next_cursor": None}
    assert service.client.post("/compile", files={"model": b"m"}, headers=headers).status_code == 403


@one_database
def test_a_key_of_a_role_that_ends_is_made_and_the_audit_log_tells_of_it(
    service: Running, environment: dict[str, str]
) -> None:
    def make(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "service", "key", *arguments]
        return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)

    made = make("ops", "--role", "operator", "--days", "2")
    service.client.headers["Authorization"] = f"Bearer {made.stdout.strip()}"
    key = service.client.get("/me").json()["key"]
    assert (key["role"], key["state"]) == ("operator", "valid")
    assert key["expires_at"] > key["created_at"]
    reported = service.client.get("/audit").json()["entries"]
    assert [(entry["verb"], entry["object"], entry["address"]) for entry in reported] == [
        ("create", f"/keys/{key['id']}", "console"),
        ("create", "/owners/ops", "console"),
    ]
    for wrong in (("a/b",), ("ops", "--days", "-1"), ("ops", "--role", "reader", "--scope", "read")):
        refused = make(*wrong)
        assert refused.returncode != 0
        assert "Traceback" not in refused.stderr


@one_database
def test_a_sweep_prints_what_it_removed(service: Running, environment: dict[str, str]) -> None:
    swept = subprocess.run(
        [sys.executable, "-m", "service", "sweep"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert dict(line.split() for line in swept.stdout.splitlines()) == dict.fromkeys(
        ("jobs", "artifacts", "uploads", "inferences", "blobs", "temporary", "models", "owners", "audit"), "0"
    )


def test_an_api_refuses_to_start_without_the_walls_that_are_demanded_around_preflights(tmp_path: Path) -> None:
    reported = {**os.environ, "TILEWRIGHT_DATA_DIR": str(tmp_path / "data"), "TILEWRIGHT_REQUIRE_WALLS": "limits,moat"}
    done = subprocess.run(
        [sys.executable, "-m", "service"], cwd=ROOT, env=reported, capture_output=True, text=True, timeout=GUARD_S
    )
    assert done.returncode == os.EX_CONFIG
    assert "demands moat, which this machine cannot raise around preflights" in done.stderr
    assert "there is no wall moat" in done.stderr
    assert not (tmp_path / "data" / "tilewright.db").exists()


def test_an_api_process_over_a_database_at_another_step_ends_and_says_why(tmp_path: Path) -> None:
    """As of several API processes one that is started anew after another version migrated the database."""
    environment = {**os.environ, "TILEWRIGHT_DATA_DIR": str(tmp_path), "TILEWRIGHT_DATABASE_URL": ""}
    done = subprocess.run(
        [sys.executable, "-c", "from service.http.app import from_environment; from_environment()"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "the database is at step None" in done.stderr
    assert "python -m service migrate" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("sqlite:////nowhere/at/all.db", "unable to open database file"),
        ("postgresql+psycopg://u:a-secret@127.0.0.1:1/d", "refused"),
    ],
)
def test_an_unusable_database_is_named_with_the_fix(tmp_path: Path, url: str, reason: str) -> None:
    environment = {**os.environ, "TILEWRIGHT_DATA_DIR": str(tmp_path), "TILEWRIGHT_DATABASE_URL": url}
    done = subprocess.run(
        [sys.executable, "-m", "service", "migrate"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert reason in done.stderr
    assert "a-secret" not in done.stderr
    assert "TILEWRIGHT_DATABASE_URL" in done.stderr
    assert "Traceback" not in done.stderr


def asked(port: str, path: str, key: str = "") -> tuple[int, Message, str]:
    """Status, headers and body of a request over a connection of its own: the kernel deals those out to processes."""
    connection = HTTPConnection("127.0.0.1", int(port), timeout=GUARD_S)
    try:
        connection.request("GET", path, headers={"Authorization": f"Bearer {key}"} if key else {})
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read().decode()
    finally:
        connection.close()


def counted(port: str) -> float:
    """Requests of /healthz that the service has counted."""
    lines = asked(port, "/metrics")[2].splitlines()
    of_all = [one for one in lines if one.startswith("tilewright_http_requests_total") and 'route="/healthz"' in one]
    return sum(float(line.rpartition(" ")[2]) for line in of_all)


def is_free(port: int) -> bool:
    """Whether in the end nobody listens there."""
    end = time.monotonic() + GUARD_S
    while time.monotonic() < end:
        with socket.socket() as tried:
            if tried.connect_ex(("127.0.0.1", port)):
                return True
        time.sleep(0.05)
    return False


@one_database
def test_a_key_may_send_no_more_to_several_processes_than_to_one(environment: dict[str, str], tmp_path: Path) -> None:
    burst = {"TILEWRIGHT_REQUESTS_PER_S": "0.0001", "TILEWRIGHT_REQUESTS_BURST": "10", "TILEWRIGHT_API_PROCESSES": "2"}
    key = "a-key-for-this-test-alone-0123456789"
    environment = {**environment, **burst, "TILEWRIGHT_API_KEY": key}
    process = subprocess.Popen([sys.executable, "-m", "service"], cwd=ROOT, env=environment, stderr=subprocess.DEVNULL)
    address = f"http://127.0.0.1:{environment['TILEWRIGHT_PORT']}"
    try:
        with httpx.Client(base_url=address, timeout=GUARD_S) as client:
            answers(process, client)
        answers_to = [asked(environment["TILEWRIGHT_PORT"], "/me", key) for _ in range(80)]
        process.kill()
        assert process.wait(timeout=GUARD_S) == -signal.SIGKILL
        assert is_free(int(environment["TILEWRIGHT_PORT"])), "processes answer whose parent was killed"
    finally:
        process.kill()
        process.wait()
    statuses = [status for status, _, _ in answers_to]
    assert set(statuses) == {200, 429}
    policies = {headers["ratelimit-policy"] for _, headers, _ in answers_to}
    assert policies == {'"owner";q=5;w=100000'}
    assert 5 <= statuses.count(200) <= 10


def test_several_processes_share_the_port_and_add_up_what_they_count(
    environment: dict[str, str], tmp_path: Path
) -> None:
    environment = {**environment, "TILEWRIGHT_API_PROCESSES": "2"}
    process = subprocess.Popen([sys.executable, "-m", "service"], cwd=ROOT, env=environment, stderr=subprocess.DEVNULL)
    address = f"http://127.0.0.1:{environment['TILEWRIGHT_PORT']}"
    try:
        with httpx.Client(base_url=address, timeout=GUARD_S) as client:
            answers(process, client)
        for _ in range(40):
            assert asked(environment["TILEWRIGHT_PORT"], "/healthz")[0] == 200
        end = time.monotonic() + GUARD_S
        while counted(environment["TILEWRIGHT_PORT"]) < 40:  # a request may be counted after it was answered
            assert time.monotonic() < end
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=GUARD_S) is not None
    finally:
        process.kill()
        process.wait()

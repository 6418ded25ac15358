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
from pathlib import Path

import httpx
import pytest

ROOT = Path(__file__).parents[2]


@dataclass
class Running:
    process: subprocess.Popen[bytes]
    client: httpx.Client
    data: Path


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return {
        **os.environ,
        "TILEWRIGHT_DATA_DIR": str(tmp_path / "data"),
        "TILEWRIGHT_DATABASE_URL": "",
        "TILEWRIGHT_BROKER_URL": f"redis+socket://{tmp_path}/nobody",
        "TILEWRIGHT_PORT": str(free_port()),
        "TILEWRIGHT_GRACEFUL_SHUTDOWN_S": "1",
    }


@pytest.fixture
def service(environment: dict[str, str], tmp_path: Path) -> Iterator[Running]:
    """`python -m service` over an empty data folder, without a broker."""
    process = subprocess.Popen([sys.executable, "-m", "service"], cwd=ROOT, env=environment, stderr=subprocess.DEVNULL)
    with httpx.Client(base_url=f"http://127.0.0.1:{environment['TILEWRIGHT_PORT']}", timeout=30) as client:
        try:
            for _ in range(600):
                try:
                    client.get("/healthz")
                    break
                except httpx.TransportError:
                    assert process.poll() is None, "it died"
                    time.sleep(0.05)
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
        assert service.process.wait(timeout=60) is not None


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


def test_an_unusable_database_is_named_with_the_fix(environment: dict[str, str]) -> None:
    environment["TILEWRIGHT_DATABASE_URL"] = "sqlite:////nowhere/at/all.db"
    done = subprocess.run(
        [sys.executable, "-m", "service", "migrate"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "unable to open database file" in done.stderr
    assert "TILEWRIGHT_DATABASE_URL" in done.stderr
    assert "Traceback" not in done.stderr

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from bench.service import claims
from bench.service.claims import Claims
from tilewright import Client


def test_waits_are_told_in_milliseconds(monkeypatch: pytest.MonkeyPatch) -> None:
    waits = iter([0.004, 0.5, 0.02])
    monkeypatch.setattr(claims, "IDLE_S", 0.0)

    def wait(_: object) -> object:
        job = SimpleNamespace(said={"queue_seconds": next(waits)})
        job.require_success = lambda: job
        return job

    client = SimpleNamespace(compile=lambda *_, **__: None, wait=wait)
    assert claims.claims(cast(Client, client), Path("m"), 3) == Claims(3, 20.0, 500.0)


def test_the_broker_is_stopped_inside_the_block_alone() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()", "valkey-server"], stdin=subprocess.PIPE) as broker:

        def state() -> str:
            return Path(f"/proc/{broker.pid}/stat").read_text().rpartition(")")[2].split()[0]

        with claims.without_broker(os.getpid()):
            for _ in range(1000):
                if state() == "T":
                    break
            assert state() == "T"
        assert state() != "T"
        broker.kill()
    with pytest.raises(ProcessLookupError, match="valkey"):
        claims.below(os.getpid(), b"valkey")

from __future__ import annotations

import contextlib
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


def test_a_process_below_another_is_found_by_a_word_of_its_command() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()", "a-service"], stdin=subprocess.PIPE) as started:
        for _ in range(1000):
            with contextlib.suppress(ProcessLookupError):
                if claims.below(os.getpid(), b"a-service") == started.pid:
                    break
        assert claims.below(os.getpid(), b"a-service") == started.pid
        started.kill()
    with pytest.raises(ProcessLookupError, match="a-service"):
        claims.below(os.getpid(), b"a-service")

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa

from service.db import workers
from service.db.models import Worker
from worker.healthy import main


@pytest.fixture
def report(office: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Has a worker of this name say that it lives; the program asks the same database."""
    monkeypatch.setenv("TILEWRIGHT_DATABASE_URL", office.url)

    def say(name: str) -> None:
        with office.db.write() as session:
            workers.report(session, name, ["cpu"], {}, "0", None)

    return say


def test_a_worker_that_reports_from_this_machine_is_healthy(report: Callable[[str], None]) -> None:
    assert main([]) == 1
    report(f"cpu@{socket.gethostname()}x:7")
    report(f"cpu@x{socket.gethostname()}:7")
    assert main([]) == 1, "those are other machines"
    report(f"cpu@{socket.gethostname()}:7")
    assert main([]) == 0


def test_a_worker_that_no_longer_reports_is_not(report: Callable[[str], None], office: Any) -> None:
    report(f"cpu@{socket.gethostname()}:7")
    with office.db.write() as session:
        session.execute(sa.update(Worker).values(last_seen=1.0))
    assert main([]) == 1


def test_a_worker_is_found_by_the_name_it_was_given(report: Callable[[str], None]) -> None:
    report("the one in the corner")
    assert main([]) == 1
    assert main(["--name", "the one in the corner"]) == 0
    assert main(["--name", "another"]) == 1


def test_a_database_that_does_not_answer_is_no_sign_of_life(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TILEWRIGHT_DATABASE_URL", "sqlite:////nowhere/x.db")
    assert main([]) == 1
    assert "unable to open" in capsys.readouterr().err

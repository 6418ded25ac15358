from __future__ import annotations

import json
import traceback
import uuid
from collections.abc import Callable
from typing import Any

import structlog
from fastapi.testclient import TestClient

from service.db.engine import Database
from service.db.models import Job
from service.jobs.lifecycle.problems import CUT, for_owner, without_stacks
from service.jobs.scheduling import lease
from tests.service.databases import any_database
from worker.limits import Limits
from worker.problems import from_exception

JOB = uuid.UUID(int=7)


def raised() -> OSError:
    try:
        open("/srv/secret/place")  # noqa: SIM115
    except OSError as error:
        return error
    raise AssertionError("there is such a file")


def test_a_fault_of_ours_is_a_plain_sentence_with_the_id_and_the_log_has_the_rest() -> None:
    problem = from_exception(raised(), Limits()).to_json()
    assert "secret" in json.dumps(problem)
    with structlog.testing.capture_logs() as lines:
        shown = for_owner(problem, JOB)
    assert "/srv" not in json.dumps(shown)
    assert __file__ not in json.dumps(shown)
    assert str(JOB) in shown["fix"]
    assert shown["details"] == {"exception": "FileNotFoundError"}
    (line,) = lines
    assert (line["job"], line["problem"]) == (str(JOB), problem)


def test_a_fault_of_the_caller_is_told_as_it_is_and_logged_nowhere() -> None:
    problem = {"code": "malformed_model", "fault": "caller", "message": "m", "fix": "f", "details": {"at": 5}}
    with structlog.testing.capture_logs() as lines:
        assert for_owner(problem, JOB) == problem
    assert lines == []


def test_what_a_process_printed_is_shown_without_stacks() -> None:
    try:
        raised_here = raised()
        raise ValueError("worse") from raised_here
    except ValueError:
        stack = traceback.format_exc()
    fatal = "Fatal Python error: Segmentation fault\n\nCurrent thread 0x00007f (most recent call first):\n"
    fatal += '  File "/x/y.py", line 3 in f\n'
    shown = without_stacks(f"first\n{stack}then\n  indented\n{fatal}last\n")
    assert "/x/y.py" not in shown
    assert __file__ not in shown
    assert "worse" not in shown
    assert shown.count(CUT) == 3
    for line in ("first\n", "then\n", "  indented\n", "Fatal Python error: Segmentation fault\n", "last\n"):
        assert line in shown
    assert without_stacks("") == ""


@any_database
def test_nothing_that_an_owner_can_ask_for_holds_a_path_of_the_worker(
    client: TestClient, db: Database, queued: Callable[..., Job], claimed: Callable[..., lease.Claim]
) -> None:
    job = queued()
    problem = from_exception(raised(), Limits()).to_json()
    assert lease.fail(db, claimed(), problem, log=f"began\n{problem['details']['traceback']}")
    seen: dict[str, Any] = {
        path: client.get(path).text
        for path in (
            f"/jobs/{job.id}",
            "/jobs",
            f"/jobs/{job.id}/events",
            f"/jobs/{job.id}/report",
            f"/jobs/{job.id}/log",
            f"/jobs/{job.id}/log?format=json",
            f"/artifacts/{job.artifact_id}",
        )
    }
    for path, text in seen.items():
        assert "test_problems.py" not in text, path
        assert "/srv/secret" not in text, path
        assert "Traceback" not in text, path
    assert str(job.id) in client.get(f"/jobs/{job.id}").json()["problem"]["fix"]
    assert "began" in seen[f"/jobs/{job.id}/log"]

"""`tilewright share`: links to a job."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.tilewright.fake_server import JOB

Command = Callable[..., Any]
SHARE_ID = "019aa1f7-1b22-7e05-8c3d-4f5a6b7c8d9e"
SHARE: dict[str, Any] = {
    "id": SHARE_ID,
    "job": JOB,
    "download": False,
    "state": "valid",
    "created_at": "2026-11-21T04:00:00.000Z",
    "expires_at": "2026-11-28T04:00:00.000Z",
    "revoked_at": None,
}


@pytest.fixture(autouse=True)
def answers(server: Any) -> None:
    server.answers |= {
        f"/jobs/{JOB}/shares": {"shares": [SHARE], **SHARE, "token": "tws_x", "link": f"/#/shared/{JOB}/tws_x"},
        f"/jobs/{JOB}/shares/{SHARE_ID}": {**SHARE, "state": "revoked"},
    }


def test_share_prints_the_whole_address_and_asks_for_what_was_said(command: Command, server: Any) -> None:
    done = command("share", JOB, "--days", 2, "--download")
    assert done.exit_code == 0, done.output
    assert done.stdout.strip() == f"http://server.test/#/shared/{JOB}/tws_x"
    body = json.loads(server.seen[-1].content)
    assert body["download"] is True
    ends = datetime.fromisoformat(body["expires_at"]) - datetime.now(UTC)
    assert timedelta(days=1.9) < ends <= timedelta(days=2)
    assert json.loads(command("share", JOB, "--json").stdout)["url"].endswith("/tws_x")


def test_links_are_listed_and_revoked(command: Command, server: Any) -> None:
    assert SHARE_ID in command("share", JOB, "--list").stdout
    assert json.loads(command("share", JOB, "--list", "--json").stdout) == {"shares": [SHARE]}
    done = command("share", JOB, "--revoke", SHARE_ID)
    assert (done.exit_code, done.stdout.strip()) == (0, f"{SHARE_ID} revoked")
    assert server.seen[-1].method == "DELETE"

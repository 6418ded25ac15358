"""Commands about keys, owners and who did what."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

Command = Callable[..., Any]
KEY_ID = "019aa1e0-2f11-7c3a-9b52-7d41c0e9a6f3"
KEY: dict[str, Any] = {
    "id": KEY_ID,
    "owner": "ada",
    "label": "laptop",
    "role": "compiler",
    "state": "valid",
    "expires_at": "2027-11-20T09:00:00.000Z",
    "last_used_at": None,
}
NEW = {**KEY, "key": "twk_shown-this-once"}
QUOTAS: dict[str, Any] = {
    "stored_bytes": {"limit": 1 << 30, "used": 1 << 20},
    "queued_jobs": {"limit": 100, "used": 2},
    "concurrent_jobs": {"limit": None, "used": 1},
    "device_seconds": {"limit": 36000.0, "used": 512.5, "month": "2026-11", "resets_at": "2026-12-01T00:00:00Z"},
}
OWNER = {"name": "ada", "state": "active", "created_at": "2026-11-20T09:00:00.000Z", "quotas": QUOTAS}
ENTRY = {
    "at": "2026-11-21T04:00:00.000Z",
    "owner": None,
    "key": None,
    "address": "203.0.113.7",
    "verb": "login",
    "object": "/jobs",
    "outcome": "not_authenticated",
}


@pytest.fixture(autouse=True)
def answers(server: Any) -> None:
    server.answers |= {
        "/me": {"owner": "ada", "key": KEY, "quotas": QUOTAS},
        f"/keys/{KEY_ID}/rotate": NEW,
        f"/keys/{KEY_ID}": {**KEY, "state": "revoked"},
        "/owners/ada": OWNER,
        "/audit": {"entries": [ENTRY], "next_cursor": None},
    }


def body(server: Any) -> Any:
    return json.loads(server.seen[-1].content)


def test_me_shows_key_and_limits(command: Command) -> None:
    done = command("me")
    assert done.exit_code == 0, done.output
    for part in ("owner ada", "role compiler", KEY_ID, "2027-11-20 09:00:00", "1.0 GiB", "1.0 MiB", "36000", "none"):
        assert part in done.stdout, part
    assert json.loads(command("me", "--json").stdout)["quotas"] == QUOTAS


@pytest.mark.parametrize("words", [("keys",), ("keys", "list")])
def test_keys_are_listed(command: Command, server: Any, words: tuple[str, ...]) -> None:
    server.answers["/keys"] = {"keys": [KEY], "next_cursor": None}
    done = command(*words, "--owner", "ada", "-n", 5)
    assert done.exit_code == 0, done.output
    assert dict(server.seen[-1].url.params) == {"owner": "ada", "limit": "5"}
    for part in (KEY_ID, "laptop", "compiler", "valid"):
        assert part in done.stdout
    assert json.loads(command(*words, "--json").stdout) == {"keys": [KEY]}


def test_a_new_key_alone_is_on_standard_output(command: Command, server: Any) -> None:
    server.answers["/keys"] = NEW
    done = command("keys", "make", "--label", "laptop", "--role", "reader", "--expires", "2099-01-01T00:00:00Z")
    assert done.stdout == "twk_shown-this-once\n"
    assert "not shown again" in done.stderr
    assert body(server) == {"label": "laptop", "role": "reader", "expires_at": "2099-01-01T00:00:00Z"}
    assert json.loads(command("keys", "make", "--owner", "bob", "--json").stdout) == NEW
    assert body(server)["owner"] == "bob"


def test_a_key_is_rotated_and_revoked_by_its_id(command: Command, server: Any) -> None:
    assert command("keys", "rotate", KEY_ID, "--grace", 60).stdout == "twk_shown-this-once\n"
    assert body(server) == {"grace_s": 60.0}
    server.answers[f"/keys/{KEY_ID}"] = None
    assert command("keys", "revoke", "not-an-id").exit_code == 2
    assert command("keys", "revoke", KEY_ID).exit_code == 4, "the server has no such key"


def test_owners_are_listed_shown_and_made(command: Command, server: Any) -> None:
    server.answers["/owners"] = {"owners": [OWNER], "next_cursor": None}
    for words in (("owners",), ("owners", "list")):
        assert "active" in command(*words).stdout
        assert json.loads(command(*words, "--json").stdout) == {"owners": [OWNER]}
    assert "ada active" in command("owners", "show", "ada").stdout
    server.answers["/owners"] = OWNER
    assert command("owners", "make", "ada").exit_code == 0
    assert body(server) == {"name": "ada", "quotas": {}}
    assert command("owners", "show", "../keys").exit_code == 2


def test_owners_are_limited_suspended_and_let_in_again(command: Command, server: Any) -> None:
    words = ("--device-seconds", "0.5", "--stored-bytes", "default", "--queued-jobs", 0)
    assert command("owners", "limit", "ada", *words).exit_code == 0
    assert (server.seen[-1].method, body(server)) == (
        "PATCH",
        {"suspended": None, "quotas": {"stored_bytes": None, "queued_jobs": 0, "device_seconds": 0.5}},
    )
    for suspended, word in ((True, "suspend"), (False, "resume")):
        assert command("owners", word, "ada").exit_code == 0
        assert body(server) == {"suspended": suspended, "quotas": {}}
    for wrong in ((), ("--queued-jobs", "many"), ("--stored-bytes", "1.5")):
        assert command("owners", "limit", "ada", *wrong).exit_code == 2


def test_an_owner_is_deleted_only_when_its_name_is_repeated(command: Command, server: Any) -> None:
    server.answers["/owners/ada"] = {"name": "ada", "stopping": 0, "deleted": {"jobs": 3, "artifacts": 1}}
    for confirm in ((), ("--confirm", "bob")):
        assert command("owners", "delete", "ada", *confirm).exit_code == 2
    assert server.seen == []
    assert command("owners", "delete", "ada", "--confirm", "ada").stdout == "deleted ada: 3 jobs, 1 artifacts\n"
    assert dict(server.seen[-1].url.params) == {"confirm": "ada"}
    server.answers["/owners/ada"] = {"name": "ada", "stopping": 2, "deleted": {}}
    assert command("owners", "delete", "ada", "--confirm", "ada").stdout.startswith("2 jobs are told to stop")


def test_entries_are_listed_with_filters(command: Command, server: Any) -> None:
    done = command("audit", "--verb", "login", "--with", KEY_ID, "--object", "/jobs", "-n", 3)
    assert done.exit_code == 0, done.output
    for part in ("login", "not_authenticated", "203.0.113.7", "2026-11-21 04:00:00"):
        assert part in done.stdout, part
    wanted = {"verb": "login", "key": KEY_ID, "object": "/jobs", "limit": "3"}
    assert dict(server.seen[-1].url.params) == wanted
    assert json.loads(command("audit", "--json").stdout) == {"entries": [ENTRY]}


def test_what_comes_back_next_month_is_not_waited_for(command: Command, server: Any) -> None:
    problem = {"code": "device_time_used", "detail": "had", "fix": "wait for the next month"}
    server.answers["/me"] = httpx.Response(429, json=problem, headers={"Retry-After": "777600"})
    done = command("me")
    assert (done.exit_code, len(server.seen)) == (4, 1)
    assert "wait for the next month" in done.stderr


HOOK_ID = "019aa1f5-3c11-7b02-9e6d-1f2a3b4c5d6e"
HOOK: dict[str, Any] = {
    "id": HOOK_ID,
    "url": "https://ci.example.org/",
    "states": ["FAILED"],
    "state": "unverified",
    "created_at": None,
}
SENT: dict[str, Any] = {
    "id": KEY_ID,
    "job": None,
    "state": "waiting",
    "attempts": 2,
    "next_at": "2026-11-21T04:00:00.000Z",
    "fault": "it was answered with 503",
}


def test_webhooks_are_made_tried_looked_at_and_deleted(command: Command, server: Any) -> None:
    server.answers |= {
        "/webhooks": {**HOOK, "secret": "whsec_shown-this-once", "webhooks": [HOOK]},
        f"/webhooks/{HOOK_ID}": {},
        f"/webhooks/{HOOK_ID}/test": SENT,
        f"/webhooks/{HOOK_ID}/deliveries": {"deliveries": [SENT], "next_cursor": None},
    }
    made = command("webhooks", "make", HOOK["url"], "--state", "failed")
    assert made.stdout.strip() == f"{HOOK_ID} whsec_shown-this-once"
    assert body(server) == {"url": HOOK["url"], "states": ["FAILED"]}
    assert HOOK["url"] in command("webhooks").stdout
    assert "unverified" in command("webhooks").stdout
    assert json.loads(command("webhooks", "--json").stdout)["webhooks"] == [HOOK]
    assert "whsec" not in command("webhooks").stdout
    assert KEY_ID in command("webhooks", "test", HOOK_ID).stdout
    assert "503" in command("webhooks", "deliveries", HOOK_ID).stdout.replace("\n", "")
    assert command("webhooks", "delete", HOOK_ID).exit_code == 0
    assert (server.seen[-1].method, server.seen[-1].url.path) == ("DELETE", f"/webhooks/{HOOK_ID}")
    assert command("webhooks", "test", "no-id").exit_code == 2

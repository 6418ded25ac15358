from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator

import pytest
import sqlalchemy as sa

from service.blobs.local import LocalBlobs
from service.db.audit import Wanted
from service.db.engine import Database
from service.db.models import AuditEntry, Job, Owner
from service.errors import DatabaseUnavailable, NotAllowed, NotAuthenticated
from service.jobs.accounts import access, audit, audit_entries
from service.jobs.accounts.access import Caller
from service.jobs.accounts.audit import Asking
from service.jobs.lifecycle import cancel
from service.jobs.operations import removal
from service.jobs.operations.retention import Rules, sweep
from service.jobs.scheduling import lease

REQUEST = "019aa1f0-7c2d-7d10-8a2f-9e4c1b7d5a60"


@pytest.fixture
def asked(db: Database, owner: uuid.UUID) -> Iterator[Asking]:
    """A request of the owner `ada` is being answered."""
    now = Asking(REQUEST, "203.0.113.7", "POST", "/x", owner, caller(db, "ada", "compile").key)
    token = audit.asking.set(now)
    yield now
    audit.asking.reset(token)


def entries(db: Database) -> list[AuditEntry]:
    with db.read() as session:
        return list(session.scalars(sa.select(AuditEntry).order_by(AuditEntry.id)))


def caller(db: Database, owner: str, *scopes: str) -> Caller:
    return access.Door(db).enter(access.make_key(db, owner, scopes, ""))


def test_a_change_and_its_entry_are_one_transaction(db: Database, owner: uuid.UUID, asked: Asking) -> None:
    def change(fails: bool) -> None:
        with db.write() as session:
            session.execute(sa.update(Owner).values(name="lovelace"))
            audit.note(session, "limit", "/owners/ada")
            if fails:
                raise RuntimeError("power cut")

    with pytest.raises(RuntimeError):
        change(fails=True)
    assert entries(db) == []
    change(fails=False)
    (entry,) = entries(db)
    assert (entry.owner_id, entry.key_id, entry.request_id, entry.address) == (
        owner,
        asked.key,
        REQUEST,
        "203.0.113.7",
    )
    assert (entry.verb, entry.object, entry.outcome, entry.untold) == ("limit", "/owners/ada", "done", 0)


def test_what_changes_nothing_leaves_no_entry(db: Database, queued: object, owner: uuid.UUID, asked: Asking) -> None:
    job = queued(b"m")  # type: ignore[operator]
    cancel.cancel(db, owner, job.id)
    cancel.cancel(db, owner, job.id)
    reported = [(entry.verb, entry.object.split("/")[1]) for entry in entries(db)]
    assert reported == [("create", "models"), ("create", "jobs"), ("cancel", "jobs")]


def test_what_stops_before_it_is_removed_is_told_once_as_cancelled(
    db: Database, queued: Callable[..., Job], claimed: Callable[..., lease.Claim], owner: uuid.UUID, asked: Asking
) -> None:
    held = queued(b"m")
    claim = claimed()
    for _ in range(2):
        assert removal.purge(db, owner, held.id).stopping
        assert removal.remove(db, owner, str(held.model_digest), cancel=True).stopping
    assert lease.cancelled(db, claim)
    removal.purge(db, owner, held.id)
    reported = [(entry.verb, entry.object) for entry in entries(db)][2:]
    assert reported == [("cancel", f"/jobs/{held.id}"), ("purge", f"/jobs/{held.id}")]


def test_a_chore_outside_of_a_request_leaves_none(db: Database, owner: uuid.UUID) -> None:
    with db.write() as session:
        audit.note(session, "create", "/x")
    assert entries(db) == []


def test_a_flood_of_refusals_is_counted_and_not_written(
    db: Database, asked: Asking, monkeypatch: pytest.MonkeyPatch
) -> None:
    door = access.Door(db)

    def try_keys(times: int) -> None:
        for number in range(times):
            with pytest.raises(NotAuthenticated):
                door.enter(f"twk_guess_{number}")

    monkeypatch.setattr(audit, "PER_ADDRESS", 4)
    monkeypatch.setattr(audit, "WINDOW_S", 3600.0)
    try_keys(20)
    assert [entry.outcome for entry in entries(db)] == ["not_authenticated"] * 4
    monkeypatch.setattr(audit, "WINDOW_S", 0.0)
    try_keys(1)
    assert [entry.untold for entry in entries(db)] == [0, 0, 0, 0, 16]


def test_many_addresses_together_write_no_more_than_a_process_may(
    db: Database, owner: uuid.UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit, "PER_PROCESS", 5)
    monkeypatch.setattr(audit, "WINDOW_S", 3600.0)
    refusals = audit.Refusals(db)
    for number in range(20):
        token = audit.asking.set(Asking(REQUEST, f"203.0.113.{number}"))
        refusals.note("login", "not_authenticated")
        audit.asking.reset(token)
    assert len({entry.address for entry in entries(db)}) == len(entries(db)) == 5


def test_a_login_with_a_revoked_key_is_told_to_its_owner(db: Database, owner: uuid.UUID) -> None:
    text = access.make_key(db, "ada", ["read"], "")
    revoked = access.Door(db).enter(text)
    with db.write() as session:
        session.execute(sa.text("UPDATE api_keys SET revoked_at = 1.0"))
    mine = caller(db, "ada", "read")
    token = audit.asking.set(Asking(REQUEST, "203.0.113.9", "GET", "/jobs"))
    door = access.Door(db)
    with pytest.raises(NotAuthenticated):
        door.enter(text)
    with pytest.raises(NotAuthenticated):
        door.enter("twk_nobody's")
    audit.asking.reset(token)
    ((entry,), _) = audit_entries.page(db, mine, None, Wanted(), before=None, limit=9)
    assert (entry.owner, entry.row.key_id, entry.row.verb, entry.row.object) == ("ada", revoked.key, "login", "/jobs")


def test_a_database_that_is_away_makes_of_a_refusal_nothing_else(
    db: Database, asked: Asking, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object) -> None:
        raise DatabaseUnavailable("gone")

    monkeypatch.setattr(audit, "_write", away)
    with pytest.raises(NotAuthenticated):
        access.Door(db).enter("twk_x")


def test_an_owner_sees_its_own_entries_and_an_operator_all(db: Database) -> None:
    ada, eve, ops = caller(db, "ada", "read"), caller(db, "eve", "read"), caller(db, "ops", "admin")
    for who in (ada, eve, None):
        token = audit.asking.set(Asking(REQUEST, "a", "GET", "/", who.owner if who else None))
        with db.write() as session:
            audit.note(session, "create", "/x")
        audit.asking.reset(token)

    def seen(who: Caller, owner: str | None = None) -> list[str | None]:
        return [entry.owner for entry in audit_entries.page(db, who, owner, Wanted(), before=None, limit=9)[0]]

    assert seen(ada) == ["ada"]
    assert seen(eve) == ["eve"]
    assert seen(ops) == [None, "eve", "ada"]
    assert seen(ops, "eve") == ["eve"]
    for name in ("ada", "eve"):
        with pytest.raises(NotAllowed):
            seen(eve, name)


def test_entries_are_found_by_what_they_say_in_pages(db: Database, asked: Asking) -> None:
    mine = caller(db, "ada", "read")
    with db.write() as session:
        session.execute(sa.delete(AuditEntry))
        for number in range(5):
            audit.note(session, "create" if number % 2 else "delete", f"/jobs/{number}")

    def found(**wanted: object) -> list[str]:
        rows, _ = audit_entries.page(db, mine, None, Wanted(**wanted), before=None, limit=9)  # type: ignore[arg-type]
        return [entry.row.object[-1] for entry in rows]

    assert found() == list("43210")
    assert found(verb="create") == ["3", "1"]
    assert found(object="/jobs/2", outcome="done") == ["2"]
    assert found(outcome="not_allowed") == []
    assert found(key=asked.key) == list("43210")
    assert found(key=uuid.UUID(int=6)) == []
    assert found(since=1.0) == list("43210")
    assert found(until=1.0) == []
    first, cursor = audit_entries.page(db, mine, None, Wanted(), before=None, limit=3)
    second, end = audit_entries.page(db, mine, None, Wanted(), before=cursor, limit=3)
    assert [entry.row.object[-1] for entry in (*first, *second)] == list("43210")
    assert end is None


def test_entries_go_when_they_are_older_than_they_are_kept(
    db: Database, blobs: LocalBlobs, asked: Asking, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.db.audit.BATCH", 2)
    with db.write() as session:
        for number in range(7):
            audit.note(session, "create", f"/jobs/{number}")
        for number in range(5):
            update = sa.update(AuditEntry).where(AuditEntry.object == f"/jobs/{number}")
            session.execute(update.values(created_at=AuditEntry.created_at - 100.0 * 86400))
    rules = Rules(jobs_s=0.0, uploads_s=1e9, inferences_s=1e9, grace_s=3600.0)
    assert sweep(db, blobs, rules).audit == 0, "0 days: kept for ever"
    kept = Rules(jobs_s=0.0, uploads_s=1e9, inferences_s=1e9, grace_s=3600.0, audit_s=90 * 86400.0)
    assert sweep(db, blobs, kept).audit == 5
    assert [entry.object for entry in entries(db)] == ["/jobs/5", "/jobs/6"]

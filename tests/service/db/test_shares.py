from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable

import pytest

from compiler.contract import CompileOptions
from service.blobs.local import LocalBlobs
from service.db import owners, shares
from service.db.engine import Database
from service.db.models import Share
from service.jobs.accounts.quotas import UNLIMITED
from service.jobs.scheduling import lease
from service.jobs.storage import models
from service.jobs.submission.submit import Submission, submit

Ask = Callable[..., uuid.UUID]


@pytest.fixture
def ask(db: Database, blobs: LocalBlobs) -> Ask:
    """Queues a job of the owner with this name; the owner."""

    def make(name: str, priority: int = 0) -> uuid.UUID:
        with db.write() as session:
            owner = owners.named(session, name)
        model = models.keep(db, owner, blobs.put_bytes(b"model")).digest
        submit(
            db,
            Submission(owner, model, CompileOptions(), fresh=True, priority=priority),
            limits=UNLIMITED,
        )
        return owner

    return make


def served(db: Database) -> lease.Claim:
    claim = lease.claim(db, "w", ["cpu"], 60.0)
    assert claim is not None
    return claim


def used(db: Database, owner: uuid.UUID) -> float:
    with db.read() as session:
        share = session.get(Share, ("cpu", owner))
        return 0.0 if share is None else share.used_s


def test_an_owner_with_many_jobs_does_not_keep_others_waiting(db: Database, ask: Ask) -> None:
    for _ in range(10):
        greedy = ask("greedy")
    modest = ask("modest")
    assert [served(db).owner for _ in range(3)] == [greedy, modest, greedy]


def test_owners_take_turns(db: Database, ask: Ask) -> None:
    for _ in range(6):
        ask("a"), ask("b"), ask("c")
    turns = [served(db).owner for _ in range(18)]
    for first in range(0, 18, 3):
        assert len(set(turns[first : first + 3])) == 3


def test_who_had_long_jobs_waits_for_who_had_short_ones(db: Database, ask: Ask) -> None:
    for _ in range(4):
        long, short = ask("long"), ask("short")
    with db.write() as session:
        shares.charge(session, "cpu", long, 3.5)
    assert Counter(served(db).owner for _ in range(4))[short] == 4


def test_priority_goes_before_fairness(db: Database, ask: Ask) -> None:
    ask("modest")
    greedy = ask("greedy", priority=5)
    with db.write() as session:
        shares.charge(session, "cpu", greedy, 1000.0)
    assert served(db).owner == greedy


def test_who_was_away_has_saved_nothing_up(db: Database, ask: Ask) -> None:
    busy = ask("busy")
    with db.write() as session:
        shares.charge(session, "cpu", busy, 5000.0)
    newcomer = ask("newcomer")
    assert used(db, newcomer) == pytest.approx(5000.0)
    assert used(db, busy) == pytest.approx(5000.0)


def test_what_an_attempt_took_is_charged_to_its_owner(db: Database, ask: Ask) -> None:
    owner = ask("a")
    claim = served(db)
    assert used(db, owner) == pytest.approx(shares.ADVANCE_S)
    assert lease.fail(db, claim, {"code": "x"})
    assert used(db, owner) >= shares.ADVANCE_S

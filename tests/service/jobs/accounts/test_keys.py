from __future__ import annotations

import contextlib
import threading
import uuid
from collections.abc import Callable, Mapping
from random import Random

import pytest
import sqlalchemy as sa

from service.db import usage
from service.db.engine import Database
from service.db.models import ApiKey, Owner
from service.errors import (
    BadRequest,
    KeyEnded,
    NotAllowed,
    NotAuthenticated,
    NotFound,
    OwnerSuspended,
)
from service.jobs.accounts import access, keys, sessions
from service.jobs.accounts.access import ROLES, Caller
from tests.servers import GUARD_S

Hold = Callable[..., Caller]
SOON, LATER = 4e9, 5e9
"""Seconds since 1970, in the years 2096 and 2128."""


@pytest.fixture
def hold(db: Database) -> Hold:
    """The caller with a new key of this owner and role."""

    def make(owner: str = "ada", role: str = "compiler", expires_at: float | None = None) -> Caller:
        return access.Door(db).enter(access.make_key(db, owner, ROLES[role], "first", expires_at=expires_at))

    return make


def row(db: Database, key_id: uuid.UUID) -> ApiKey:
    with db.read() as session:
        return session.get_one(ApiKey, key_id)


def refused(db: Database, text: str) -> str:
    with pytest.raises(NotAuthenticated) as error:
        access.Door(db).enter(text)
    return error.value.message


def test_a_key_makes_another_that_works_and_is_shown_once(db: Database, hold: Hold) -> None:
    caller = hold()
    made = keys.make(db, caller, None, ["read"], "laptop", SOON)
    entered = access.Door(db).enter(made.text)
    assert (entered.owner, sorted(entered.scopes), entered.expires_at) == (caller.owner, ["read"], SOON)
    assert made.text not in str(vars(row(db, made.shown.row.id)))
    listed, following = keys.page(db, caller, None, before=None, limit=10)
    assert [(one.row.label, one.owner, one.state) for one in listed] == [
        ("laptop", "ada", "valid"),
        ("first", "ada", "valid"),
    ]
    assert following is None


@pytest.mark.parametrize(
    ("role", "scopes"),
    [("reader", ["compile"]), ("reader", ["read", "admin"]), ("compiler", ["admin"]), ("compiler", ["read", "admin"])],
)
def test_a_key_makes_none_that_allows_more(db: Database, hold: Hold, role: str, scopes: list[str]) -> None:
    with pytest.raises(NotAllowed):
        keys.make(db, hold(role=role), None, scopes, "", None)


def test_a_key_makes_none_that_lasts_longer(db: Database, hold: Hold) -> None:
    caller = hold(expires_at=SOON)
    with pytest.raises(NotAllowed, match="last longer"):
        keys.make(db, caller, None, ["read"], "", LATER)
    assert keys.make(db, caller, None, ["read"], "", None).shown.row.expires_at == SOON, "as long as its own"
    assert keys.make(db, caller, None, ["read"], "", SOON - 1).shown.row.expires_at == SOON - 1
    with pytest.raises(BadRequest, match="passed"):
        keys.make(db, caller, None, ["read"], "", 1.0)


def test_a_key_that_has_expired_is_refused_and_listed_as_such(db: Database, hold: Hold) -> None:
    caller = hold()
    made = keys.make(db, caller, None, ["read"], "", SOON)
    with db.write() as session:
        session.execute(sa.update(ApiKey).where(ApiKey.id == made.shown.row.id).values(expires_at=2.0))
    assert "expired" in refused(db, made.text)
    assert keys.page(db, caller, None, before=None, limit=1)[0][0].state == "expired"


def test_a_revoked_key_is_refused_and_revoking_again_changes_nothing(db: Database, hold: Hold) -> None:
    caller = hold()
    made = keys.make(db, caller, None, ["read"], "", None)
    ended = keys.revoke(db, caller, made.shown.row.id)
    assert ended.state == "revoked"
    assert "revoked" in refused(db, made.text)
    assert keys.revoke(db, caller, made.shown.row.id).row.revoked_at == ended.row.revoked_at


def test_a_rotated_key_ends_at_once_without_a_grace(db: Database, hold: Hold) -> None:
    caller = hold()
    old = keys.make(db, caller, None, ["read"], "laptop", SOON)
    new = keys.rotate(db, caller, old.shown.row.id, grace_s=0.0, expires_at=None)
    refused(db, old.text)
    assert access.Door(db).enter(new.text).scopes == {"read"}
    assert (new.shown.row.label, new.shown.row.expires_at) == ("laptop", SOON)
    assert row(db, old.shown.row.id).replaced_by == new.shown.row.id
    with pytest.raises(KeyEnded, match="revoked"):
        keys.rotate(db, caller, old.shown.row.id, grace_s=0.0, expires_at=None)


def test_a_grace_lets_both_keys_in_and_makes_no_key_last_longer(db: Database, hold: Hold) -> None:
    caller = hold()
    forever = keys.make(db, caller, None, ["read"], "", None)
    keys.rotate(db, caller, forever.shown.row.id, grace_s=3600.0, expires_at=None)
    assert access.Door(db).enter(forever.text).expires_at is not None
    brief = keys.make(db, caller, None, ["read"], "", SOON)
    with db.write() as session:
        end = sa.update(ApiKey).where(ApiKey.id == brief.shown.row.id).values(expires_at=now(db) + 60.0)
        session.execute(end)
    before = row(db, brief.shown.row.id).expires_at
    keys.rotate(db, caller, brief.shown.row.id, grace_s=3600.0, expires_at=SOON)
    assert row(db, brief.shown.row.id).expires_at == before
    for grace in (-1.0, keys.LONGEST_GRACE_S + 1):
        with pytest.raises(BadRequest, match="grace"):
            keys.rotate(db, caller, brief.shown.row.id, grace_s=grace, expires_at=None)


def now(db: Database) -> float:
    with db.read() as session:
        return usage.now(session)


def test_a_key_that_ends_soon_rotates_into_none_that_lasts_longer(db: Database, hold: Hold) -> None:
    lasting = hold()
    brief = hold(expires_at=SOON)
    made = keys.rotate(db, brief, lasting.key, grace_s=0.0, expires_at=None)
    assert made.shown.row.expires_at == SOON
    other = hold()
    with pytest.raises(NotAllowed, match="last longer"):
        keys.rotate(db, brief, other.key, grace_s=0.0, expires_at=LATER)


def test_a_key_neither_rotates_nor_revokes_one_that_allows_more(db: Database, hold: Hold) -> None:
    operator, compiler = hold(role="operator"), hold(role="compiler")
    with pytest.raises(NotAllowed):
        keys.rotate(db, compiler, operator.key, grace_s=0.0, expires_at=None)
    with pytest.raises(NotAllowed):
        keys.revoke(db, compiler, operator.key)
    assert row(db, operator.key).revoked_at is None


def test_keys_of_another_owner_do_not_exist_but_for_an_operator(db: Database, hold: Hold) -> None:
    mine, hers = hold(), hold("eve")
    with pytest.raises(NotFound):
        keys.revoke(db, hers, mine.key)
    with pytest.raises(NotFound):
        keys.rotate(db, hers, mine.key, grace_s=0.0, expires_at=None)
    with pytest.raises(NotAllowed):
        keys.page(db, hers, "ada", before=None, limit=9)
    with pytest.raises(NotAllowed):
        keys.make(db, hers, "ada", ["read"], "", None)
    operator = hold("ops", "operator")
    made = keys.make(db, operator, "ada", ["read", "compile"], "from above", None)
    assert access.Door(db).enter(made.text).owner == mine.owner
    assert len(keys.page(db, operator, "ada", before=None, limit=9)[0]) == 2
    assert keys.revoke(db, operator, mine.key).state == "revoked"
    with pytest.raises(NotFound):
        keys.make(db, operator, "nobody", ["read"], "", None)


def test_keys_are_listed_in_pages(db: Database, hold: Hold) -> None:
    caller = hold()
    for number in range(4):
        keys.make(db, caller, None, ["read"], str(number), None)
    first, cursor = keys.page(db, caller, None, before=None, limit=3)
    second, end = keys.page(db, caller, None, before=cursor, limit=3)
    assert [one.row.label for one in (*first, *second)] == ["3", "2", "1", "0", "first"]
    assert end is None


def test_the_keys_of_a_suspended_owner_are_refused_with_a_reason_of_their_own(db: Database) -> None:
    text = access.make_key(db, "ada", ["read"], "")
    with db.write() as session:
        session.execute(sa.update(Owner).values(suspended_at=1.0))
    with pytest.raises(OwnerSuspended, match="'ada' is suspended"):
        access.Door(db).enter(text)


def test_the_door_writes_down_when_keys_were_used_and_only_once_for_many_uses(db: Database) -> None:
    door = access.Door(db)
    text = access.make_key(db, "ada", ["read"], "")
    unused = access.Door(db).enter(access.make_key(db, "ada", ["read"], ""))
    caller, *_ = [door.enter(text) for _ in range(5)]
    assert row(db, caller.key).last_used_at is None, "a request writes nothing"
    door.settle()
    used = row(db, caller.key).last_used_at
    assert used is not None
    assert abs(used - now(db)) < 3600
    assert row(db, unused.key).last_used_at is None
    door.settle()
    assert row(db, caller.key).last_used_at == used, "nothing new to write"
    door.enter(text)
    door.settle()
    assert (row(db, caller.key).last_used_at or 0) >= used


def test_a_new_owner_has_a_name_that_fits_into_a_path(db: Database) -> None:
    for name in ("", "a/b", "a b", ".a", "x" * 101, "ä"):
        with pytest.raises(BadRequest, match="no name of an owner"):
            access.make_key(db, name, ["read"], "")
    with pytest.raises(BadRequest, match="nothing"):
        access.make_key(db, "ada", [], "")


def valid(db: Database, key: uuid.UUID) -> bool:
    return row(db, key).revoked_at is None


def line(parent: Mapping[uuid.UUID, uuid.UUID | None], key: uuid.UUID | None) -> list[uuid.UUID]:
    """A key, which made it, and so on."""
    found = []
    while key is not None:
        found.append(key)
        key = parent[key]
    return found


def test_what_a_key_made_ends_with_it_and_nothing_else_does(db: Database, hold: Hold) -> None:
    """Random trees of keys: revoking one ends it and all that came from it; rotating one hands on what came from it."""
    for seed in range(12):
        random = Random(seed)
        root = hold(role="manager")
        made: list[tuple[uuid.UUID, Caller]] = [(root.key, root)]
        parent: dict[uuid.UUID, uuid.UUID | None] = {root.key: None}
        for _ in range(10):
            maker = random.choice(made)[1]
            new = keys.make(db, maker, None, ["read", "keys"], "", None)
            made.append((new.shown.row.id, access.Door(db).enter(new.text)))
            parent[new.shown.row.id] = maker.key
        if seed % 2:
            old, _ = random.choice(made[1:])
            new = keys.rotate(db, root, old, grace_s=0, expires_at=None)
            for child, whose in parent.items():
                if whose == old:
                    parent[child] = new.shown.row.id
            parent[new.shown.row.id] = root.key
            parent.pop(old)
            assert not valid(db, old)
        ended = random.choice([key for key in parent if key != root.key])
        keys.revoke(db, root, ended)
        assert {key: valid(db, key) for key in parent} == {key: ended not in line(parent, key) for key in parent}, seed


LEAVES: Mapping[str, Callable[[Database, Caller], object]] = {
    "a key": lambda db, caller: keys.make(db, caller, None, ["read"], "", None),
    "a key in the place of its own": lambda db, caller: keys.rotate(db, caller, caller.key, grace_s=9, expires_at=None),
    "an end of its own": lambda db, caller: keys.revoke(db, caller, caller.key),
    "a session": lambda db, caller: sessions.begin(db, caller, most=0),
    "a link to a session": lambda db, caller: sessions.invite(db, caller, most=0),
}


@pytest.mark.parametrize("way", ["revoked", "replaced", "made by a key that was", "expired", "suspended"])
@pytest.mark.parametrize("what", LEAVES)
def test_a_key_that_is_remembered_leaves_nothing_once_it_has_ended(
    db: Database, hold: Hold, what: str, way: str
) -> None:
    root = hold(role="manager")
    maker = access.Door(db).enter(keys.make(db, root, None, ["read", "keys"], "", None).text)
    caller = access.Door(db).enter(keys.make(db, maker, None, ["read", "keys"], "", None).text)
    if way == "replaced":
        keys.rotate(db, root, caller.key, grace_s=0, expires_at=None)
    elif way == "expired":
        with db.write() as session:
            session.get_one(ApiKey, caller.key).expires_at = 1.0
    elif way == "suspended":
        with db.write() as session:
            session.execute(sa.update(Owner).values(suspended_at=1.0))
    else:
        keys.revoke(db, root, caller.key if way == "revoked" else maker.key)
    before = count(db)
    with pytest.raises(NotAuthenticated):
        LEAVES[what](db, caller)
    assert count(db) == before


def count(db: Database) -> int:
    with db.read() as session:
        return session.scalar(sa.select(sa.func.count()).select_from(ApiKey)) or 0


def test_no_key_that_is_made_while_its_maker_is_revoked_outlives_it(db: Database, hold: Hold) -> None:
    root = hold(role="manager")
    stolen = access.Door(db).enter(keys.make(db, root, None, ["read", "keys"], "", None).text)
    made: list[keys.Made] = []
    several = threading.Event()

    def steal() -> None:
        with contextlib.suppress(NotAuthenticated):
            while len(made) < 500:
                made.append(keys.make(db, stolen, None, ["read", "keys"], "", None))
                if len(made) >= 8:
                    several.set()

    thieves = [threading.Thread(target=steal) for _ in range(4)]
    for thief in thieves:
        thief.start()
    assert several.wait(GUARD_S)
    keys.revoke(db, root, stolen.key)
    for thief in thieves:
        thief.join(GUARD_S)
    assert 8 <= len(made) < 500
    assert [one.shown.row.id for one in made if valid(db, one.shown.row.id)] == []


def test_an_operators_key_for_another_owner_outlives_the_operators(db: Database, hold: Hold) -> None:
    operator, ada = hold("ops", role="operator"), hold(role="manager")
    made = keys.make(db, operator, "ada", ["read"], "", None).shown.row.id
    own = keys.make(db, operator, None, ["read"], "", None).shown.row.id
    assert (row(db, made).made_by, row(db, own).made_by) == (None, operator.key)
    keys.revoke(db, operator, operator.key)
    assert (valid(db, made), valid(db, own), valid(db, ada.key)) == (True, False, True)

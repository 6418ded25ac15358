from __future__ import annotations

import hashlib
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import sqlalchemy as sa

from service.db.engine import Database
from service.db.models import ApiKey, Owner
from service.errors import BadRequest, NotAuthenticated
from service.jobs.accounts import access


def test_the_local_key_is_made_once_private_and_works(db: Database, tmp_path: Path) -> None:
    file = tmp_path / "api_key"
    access.ensure_local_key(db, file)
    key = file.read_text().strip()
    assert file.stat().st_mode & 0o777 == 0o600
    assert len(key) > 40
    access.ensure_local_key(db, file)
    assert file.read_text().strip() == key
    assert access.Door(db).enter(key).scopes == frozenset(access.SCOPES)
    assert sorted(path.name for path in tmp_path.iterdir() if "key" in path.name) == ["api_key"]


def test_a_key_file_that_outlived_its_database_is_let_in_again(db: Database, tmp_path: Path) -> None:
    file = tmp_path / "api_key"
    file.write_text("twk_from_before\n")
    access.ensure_local_key(db, file)
    assert access.Door(db).enter("twk_from_before").owner == access.Door(db).enter("twk_from_before").owner


def test_several_processes_at_once_agree_on_one_key(db: Database, tmp_path: Path) -> None:
    file = tmp_path / "api_key"
    start = threading.Barrier(6)

    def make(_: int) -> str:
        start.wait()
        access.ensure_local_key(db, file)
        return file.read_text()

    with ThreadPoolExecutor(6) as pool:
        assert len(set(pool.map(make, range(6)))) == 1
    with db.read() as session:
        assert session.scalar(sa.select(sa.func.count()).select_from(ApiKey)) == 1
        assert session.scalar(sa.select(sa.func.count()).select_from(Owner)) == 1


def test_the_database_holds_no_key_only_its_digest(db: Database) -> None:
    key = access.make_key(db, "ada", ["read"], "laptop")
    with db.read() as session:
        row = session.scalars(sa.select(ApiKey)).one()
    assert row.digest == hashlib.sha256(key.encode()).hexdigest()
    assert key not in str(vars(row))


def test_unknown_keys_and_scopes_are_refused(db: Database) -> None:
    with pytest.raises(NotAuthenticated):
        access.Door(db).enter("twk_x")
    with pytest.raises(BadRequest, match="fly"):
        access.make_key(db, "ada", ["fly"], "")


def test_a_replaced_key_of_a_label_is_let_in_no_more_and_may_come_back(db: Database, tmp_path: Path) -> None:
    access.ensure_local_key(db, tmp_path / "api_key")
    for key in ("first", "second"):
        access.replace(db, access.LOCAL_OWNER, key, access.SCOPES, "VARIABLE")
    access.replace(db, "ada", "hers", ["read"], "VARIABLE")
    with pytest.raises(NotAuthenticated):
        access.Door(db).enter("first")
    assert access.Door(db).enter("second").scopes == frozenset(access.SCOPES)
    access.replace(db, access.LOCAL_OWNER, "first", access.SCOPES, "VARIABLE")
    assert access.Door(db).enter("first").scopes == frozenset(access.SCOPES)
    with pytest.raises(NotAuthenticated):
        access.Door(db).enter("second")
    access.replace(db, access.LOCAL_OWNER, None, access.SCOPES, "VARIABLE")
    with pytest.raises(NotAuthenticated):
        access.Door(db).enter("first")
    assert access.Door(db).enter("hers").scopes == {"read"}
    assert access.Door(db).enter((tmp_path / "api_key").read_text().strip()).scopes == frozenset(access.SCOPES)


def test_a_key_that_the_owner_has_under_another_label_stays_that_ones(db: Database, tmp_path: Path) -> None:
    access.ensure_local_key(db, tmp_path / "api_key")
    of_the_file = (tmp_path / "api_key").read_text().strip()
    access.replace(db, access.LOCAL_OWNER, of_the_file, access.SCOPES, "VARIABLE")
    access.replace(db, access.LOCAL_OWNER, "another", access.SCOPES, "VARIABLE")
    assert access.Door(db).enter(of_the_file).scopes == frozenset(access.SCOPES)


def test_when_what_a_key_allows_is_looked_up_again_one_asker_does_it(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    door = access.Door(db)
    key = access.make_key(db, "ada", ["read"], "")
    assert door.remembered(key) is None
    caller = door.enter(key)
    assert door.remembered(key) == caller
    monkeypatch.setattr(access, "REMEMBERED_S", 0.0)
    assert door.remembered(key) is None
    monkeypatch.setattr(access, "REMEMBERED_S", 60.0)
    assert [door.remembered(key) for _ in range(3)] == [caller] * 3

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from service.db import migrate
from service.db.engine import Database
from service.errors import DatabaseUnavailable, NotReady
from worker import schema


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[Database]:
    db = Database(f"sqlite:///{tmp_path / 'new.db'}")
    yield db
    db.dispose()


def test_a_database_at_this_programs_step_is_good(office: Any) -> None:
    schema.wait_for(office.db, 0.0)
    migrate.require_usable(office.db)


def test_one_at_another_step_is_refused_with_the_command_that_mends_it(empty: Database) -> None:
    with pytest.raises(NotReady) as raised:
        schema.wait_for(empty, 0.0)
    assert "python -m service migrate" in raised.value.fix


def test_one_that_is_being_brought_to_this_step_is_waited_for(empty: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema, "_PAUSE_S", 0.01)
    beginning = threading.Timer(0.1, migrate.upgrade, [empty.url.render_as_string(hide_password=False)])
    beginning.start()
    schema.wait_for(empty, 600.0)
    beginning.join()
    migrate.require_usable(empty)


def test_one_that_is_away_is_waited_for_however_long(office: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    away = [True] * 5

    def flaky(db: Database) -> None:
        if away:
            away.pop()
            raise DatabaseUnavailable("away")

    monkeypatch.setattr(schema, "_PAUSE_S", 0.0)
    monkeypatch.setattr(schema, "require_usable", flaky)
    schema.wait_for(office.db, 0.0)
    assert not away


def test_one_that_a_newer_program_has_changed_is_refused_at_once(office: Any) -> None:
    with office.db.write() as session:
        session.execute(sa.text("UPDATE alembic_version SET version_num = 'of a later day'"))
    with pytest.raises(migrate.UnknownStep, match="of a later day") as raised:
        schema.wait_for(office.db, 600.0)
    assert "newer version" in raised.value.fix
    with pytest.raises(migrate.UnknownStep):
        migrate.upgrade(office.url)

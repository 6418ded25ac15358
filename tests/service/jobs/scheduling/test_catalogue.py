from __future__ import annotations

from service.db.engine import Database
from service.jobs.scheduling import catalogue


def test_nothing_is_known_before_a_worker_has_started(db: Database) -> None:
    assert catalogue.newest(db, "operators") is None
    assert catalogue.entries(db, "operators") == []


def test_what_was_published_last_counts_whatever_its_version(db: Database) -> None:
    catalogue.publish(db, "targets", "2", [{"name": "new"}])
    catalogue.publish(db, "targets", "1", [{"name": "rolled back"}])
    found = catalogue.newest(db, "targets")
    assert found is not None
    assert (found.compiler, found.entries) == ("1", [{"name": "rolled back"}])
    assert catalogue.entries(db, "operators") == []


def test_publishing_again_replaces(db: Database) -> None:
    for name in ("a", "b"):
        catalogue.publish(db, "operators", "1", [{"name": name}])
    assert catalogue.entries(db, "operators") == [{"name": "b"}]

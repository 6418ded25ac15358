from __future__ import annotations

import re

import pytest
from fastapi.testclient import TestClient

from service.config import Settings
from service.db.engine import Database
from service.errors import RateLimited
from service.http.admission import rates
from service.http.admission.rates import Rates
from service.http.app import create_app
from service.jobs.accounts import access
from service.jobs.inspection.inspector import Inspector
from tests.service.conftest import RecordingRing
from tests.service.databases import any_database


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_bucket_holds_a_burst_and_fills_again() -> None:
    clock = Clock()
    made = Rates(2.0, 4, clock)
    for left in (3, 2, 1, 0):
        assert dict(made.spend("a"))[b"ratelimit"].startswith(b'"owner";r=%d;' % left)
    with pytest.raises(RateLimited) as refused:
        made.spend("a")
    assert refused.value.details["retry_after_s"] == 1
    assert dict(made.refusal())[b"ratelimit"] == b'"owner";r=0;t=2'
    made.spend("b")
    clock.now += 1.0
    made.spend("a"), made.spend("a")
    with pytest.raises(RateLimited):
        made.spend("a")
    clock.now += 1000.0
    assert dict(made.spend("a"))[b"ratelimit"] == b'"owner";r=3;t=1', "it holds no more than a burst"


def test_a_slow_rate_says_how_long_to_wait() -> None:
    made = Rates(0.1, 1, Clock())
    made.spend("a")
    with pytest.raises(RateLimited) as refused:
        made.spend("a")
    assert refused.value.details["retry_after_s"] == 10


def test_no_more_buckets_are_kept_than_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rates, "MOST_KEYS", 2)
    made = Rates(1.0, 1, Clock())
    for key in ("a", "b"):
        made.spend(key)
    made.spend("c")
    assert list(made._buckets) == ["b", "c"]


@any_database
def test_answers_tell_what_is_left_and_an_owner_who_asks_too_often_is_told_to_wait(
    settings: Settings, db: Database, ring: RecordingRing
) -> None:
    slow = settings.model_copy(update={"requests_per_s": 0.001, "requests_burst": 3})
    key = access.make_key(db, "ada", ["read"], "")
    other = access.make_key(db, "ada", ["read"], "")
    eve = access.make_key(db, "eve", ["read"], "")
    with TestClient(create_app(slow, ring=ring, inspector=Inspector(ready=0))) as client:
        for left in (2, 1, 0):
            answer = client.get("/jobs", headers={"Authorization": f"Bearer {key}"})
            assert answer.status_code == 200
            assert answer.headers["ratelimit-policy"] == '"owner";q=3;w=3000'
            assert re.fullmatch(rf'"owner";r={left};t=\d+', answer.headers["ratelimit"])
        refused = client.get("/jobs", headers={"Authorization": f"Bearer {key}"})
        assert (refused.status_code, refused.json()["code"]) == (429, "rate_limited")
        assert 0 < int(refused.headers["retry-after"]) <= 1000
        assert refused.headers["ratelimit"].startswith('"owner";r=0;')
        assert client.get("/jobs", headers={"Authorization": f"Bearer {other}"}).status_code == 429, "the same owner's"
        assert client.get("/jobs", headers={"Authorization": f"Bearer {eve}"}).status_code == 200
        assert "ratelimit" not in client.get("/healthz").headers

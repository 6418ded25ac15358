from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from compiler.errors import InternalError, SourceUnavailable
from service.db.engine import Database
from service.db.records import Wanted
from service.errors import Busy, NotFound, SourceUnknown
from service.jobs.inspection.inspector import BUSY, FAILED, TIME_LIMIT, Inspector
from service.jobs.inspection.source import source
from service.jobs.scheduling import lease
from service.jobs.tuning import records

RELU = """workload
  kernel Relu(in x0: f32[5, 7]; out y0: f32[5, 7])
    for i:5, j:7
      y0[i, j] = max(x0[i, j], 0.0:f32)
  input b0: f32[5, 7] plain
  output b0: f32[5, 7] plain"""
LOOPS = {"algorithm": "loops", "levels": {}, "scopes": {}}


class Answering:
    """Stands for the sealed process: answers the same to every order, and keeps the orders."""

    def __init__(self, answer: dict[str, Any]) -> None:
        self.answer = answer
        self.orders: list[Mapping[str, Any]] = []

    def ask(self, order: Mapping[str, Any], cpu_s: float) -> dict[str, Any]:
        self.orders.append(order)
        return self.answer


@pytest.fixture
def measured(
    db: Database,
    owner: uuid.UUID,
    queued: Callable[..., Any],
    claimed: Callable[..., lease.Claim],
    record: dict[str, Any],
) -> uuid.UUID:
    """A record whose workload's text is known."""
    queued()
    plain = {**record, "variant": LOOPS, "target": "cpu:aarch64"}
    lease.heartbeat(db, claimed(), [], lease.Measured([plain], {record["workload"]: RELU}))
    return records.page(db, owner, Wanted(), before=None, limit=1)[0][0].id


def test_the_source_is_generated_from_workload_variant_and_target(
    db: Database, owner: uuid.UUID, measured: uuid.UUID
) -> None:
    inspector = Answering({"source": "void k0(void);\0"})
    assert source(db, inspector, owner, measured) == "void k0(void);\N{REPLACEMENT CHARACTER}"
    assert inspector.orders == [{"order": "source", "text": RELU, "variant": LOOPS, "target": "cpu:aarch64"}]


def test_a_sealed_process_generates_it(db: Database, owner: uuid.UUID, measured: uuid.UUID) -> None:
    inspector = Inspector(ready=0)
    try:
        made = source(db, inspector, owner, measured)
    finally:
        inspector.close()
    assert made.startswith('#include "tw_kernel.h"')
    assert "void k0_relu(" in made


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        ({"problem": {"code": "source_unavailable", "message": "no", "fix": "x"}}, SourceUnavailable),
        ({"problem": {"code": TIME_LIMIT, "message": "slow"}}, SourceUnavailable),
        ({"problem": {"code": BUSY, "message": "later"}}, Busy),
        ({"problem": {"code": FAILED, "message": "died"}}, InternalError),
        ({"problem": ["hostile"]}, InternalError),
        ({"source": 5}, InternalError),
        ({}, InternalError),
    ],
)
def test_every_other_answer_is_an_error_of_its_own(
    db: Database, owner: uuid.UUID, measured: uuid.UUID, answer: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        source(db, Answering(answer), owner, measured)


def test_without_the_workloads_text_or_for_another_owner_nothing_is_asked(
    db: Database,
    owner: uuid.UUID,
    queued: Callable[..., Any],
    claimed: Callable[..., lease.Claim],
    record: dict[str, Any],
) -> None:
    queued()
    lease.heartbeat(db, claimed(), [], lease.Measured([record]))
    found = records.page(db, owner, Wanted(), before=None, limit=1)[0][0].id
    inspector = Answering({"source": "x"})
    with pytest.raises(SourceUnknown):
        source(db, inspector, owner, found)
    with pytest.raises(NotFound):
        source(db, inspector, uuid.uuid4(), found)
    assert inspector.orders == []

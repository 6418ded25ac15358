"""Two real workers on one database: the kernels of one tuning are divided among them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa
from onnx import helper, numpy_helper

from compiler.contract import CompileOptions
from service.db import tuning_shares, workers
from service.db.models import JobState, Model, TuningRecord
from service.db.tuning_shares import TuningShare
from service.jobs.accounts.quotas import Limits
from service.jobs.scheduling import fan_out, lease
from service.jobs.scheduling.fan_out import Offer
from service.jobs.scheduling.lease import Measured
from worker.attempt import helper as helping
from worker.attempt.context import WorkerContext
from worker.attempt.fan_out import Answers
from worker.processes.frames import GarbledFrame

WIDTHS = (3, 8, 12, 16, 20, 24)
TRIALS = 24
TILES = [{"algorithm": "loops"}] * 2
TASKS = [{"key": f"k{at}", "text": f"text {at}", "tiles": TILES, "seconds": 60.0, "again": False} for at in range(6)]
MOST_S = 300.0
"""Of what others may measure for an attempt."""
TERMS = {"lanes": 1}


def network() -> bytes:
    """A chain of convolutions, none like another."""
    rng = np.random.default_rng(7)
    nodes, weights = [], []
    for at, (one, two) in enumerate(pairwise(WIDTHS)):
        array = (rng.standard_normal((two, one, 3, 3)) / 8).astype(np.float32)
        weights.append(numpy_helper.from_array(array, f"w{at}"))
        nodes.append(helper.make_node("Conv", [f"v{at}", f"w{at}"], [f"v{at + 1}"], pads=[1, 1, 1, 1]))
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "chain",
        [value("v0", 1, [1, 3, 8, 8])],
        [value(f"v{len(nodes)}", 1, [1, WIDTHS[-1], 8, 8])],
        weights,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    return bytes(model.SerializeToString())


@pytest.fixture
def start(office: Any, tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Start `python -m worker` with a scratch folder, and so a device, of its own; killed at the end of the test."""
    started: list[subprocess.Popen[bytes]] = []

    def begin(name: str, **settings: str) -> subprocess.Popen[bytes]:
        environment = {
            **os.environ,
            "TILEWRIGHT_DATA_DIR": str(tmp_path),
            "TILEWRIGHT_DATABASE_URL": office.url,
            "TILEWRIGHT_BLOB_DIR": str(office.blobs.root),
            "TILEWRIGHT_BROKER_URL": "redis://127.0.0.1:1/0",
            "TILEWRIGHT_SCRATCH_DIR": str(tmp_path / name),
            "TILEWRIGHT_LOOK_EVERY_S": "0.2",
            "TILEWRIGHT_LEASE_S": "2",
            "TILEWRIGHT_FAN_OUT": "true",
            **settings,
        }
        program = f"from worker.app import serve; serve(['cpu'], {name!r})"
        with (tmp_path / f"{name}.log").open("wb") as log:
            started.append(subprocess.Popen([sys.executable, "-P", "-c", program], env=environment, stderr=log))
        return started[-1]

    yield begin
    for process in started:
        process.kill()
        process.wait()


def submitted(office: Any, **options: Any) -> uuid.UUID:
    """A compilation of the network."""
    blob = office.blobs.put_bytes(network())
    with office.db.write() as session:
        if session.get(Model, (office.owner, blob.sha256)) is None:
            session.add(Model(owner_id=office.owner, digest=blob.sha256, bytes=blob.bytes, blob_key=blob.key, files=[]))
    office.model = blob.sha256
    granted = CompileOptions(target="cpu", threads=1, tuning_budget_s=300.0, tuning_trials=TRIALS, **options)
    job_id: uuid.UUID = office.submit(**{**granted.to_json(), "queue": "cpu"})
    return job_id


def shares_of(office: Any, job_id: uuid.UUID) -> list[TuningShare]:
    with office.db.read() as session:
        return list(session.scalars(sa.select(TuningShare).where(TuningShare.job_id == job_id)))


def measured(office: Any, job_id: uuid.UUID) -> Counter[tuple[str, str]]:
    """How often each tile of a kernel was measured, but for those that were measured again beside a leader.

    A leader that was measured once is measured again beside its rivals, whoever measured those before.
    """
    with office.db.read() as session:
        rows = session.scalars(sa.select(TuningRecord).where(TuningRecord.kind == "kernel")).all()
    return Counter((row.workload, str(row.variant.get("levels"))) for row in rows if not row.variant.get("again"))


def both(start: Any, office: Any, eventually: Any, **settings: str) -> list[subprocess.Popen[bytes]]:
    """Two workers that have reported."""
    processes = [start("one", **settings), start("two", **settings)]

    def alive() -> int:
        with office.db.read() as session:
            return len(workers.alive(session, 30.0))

    eventually(lambda: alive() == 2)
    return processes


def test_two_workers_measure_each_kernel_once(office: Any, start: Any, eventually: Any) -> None:
    both(start, office, eventually, TILEWRIGHT_LEASE_S="60")  # a lease that ends would have kernels measured again
    job_id = submitted(office)
    eventually(lambda: office.job(job_id).state == JobState.SUCCEEDED)
    shares = shares_of(office, job_id)
    assert len({share.workload for share in shares}) == len(WIDTHS) - 1
    assert all(share.done_at is not None for share in shares)
    assert not all(share.own for share in shares)
    assert max(measured(office, job_id).values()) == 1
    with office.db.read() as session:
        ((helper, kernels, tiles, seconds),) = tuning_shares.by_helpers(session, job_id)
    assert kernels == len({share.workload for share in shares if not share.own})
    assert tiles >= kernels
    assert seconds > 0
    said = [entry.data["message"] for entry in office.events(job_id) if entry.kind == "progress"]
    assert f"{tiles} tiles measured by others: {tiles} by {helper}" in said


def test_a_killed_helper_loses_nothing(office: Any, start: Any, eventually: Any) -> None:
    processes = dict(zip(("celery@one", "celery@two"), both(start, office, eventually), strict=True))
    job_id = submitted(office)
    helper = eventually(
        lambda: next((share.worker for share in shares_of(office, job_id) if share.worker and not share.own), None),
    )
    processes[helper].send_signal(signal.SIGKILL)
    eventually(lambda: office.job(job_id).state == JobState.SUCCEEDED)
    shares = shares_of(office, job_id)
    assert all(share.done_at is not None and share.worker != helper for share in shares)
    with office.db.read() as session:
        rows = session.scalars(sa.select(TuningRecord).where(TuningRecord.kind == "kernel")).all()
    assert {row.workload for row in rows} == {share.workload for share in shares}


def claimed(office: Any, worker: str) -> lease.Claim:
    """A job that this worker has."""
    office.submit()
    found = lease.claim(office.db, worker, ["cpu"], 30.0)
    assert found is not None
    return found


def test_kernels_are_taken_once_and_come_back(office: Any, record: dict[str, Any]) -> None:
    hardware = {"fingerprint": "h", "fan_out": True}
    first, other = (Offer(claimed(office, "one"), "one", 1, ("cpu", "h"), "c") for _ in range(2))
    assert not fan_out.offer(office.db, first, TERMS, TASKS, MOST_S)  # there is nobody else
    lease.seen(office.db, "two", ["cpu"], {**hardware, "fan_out": False}, "c", None)
    assert not fan_out.offer(office.db, first, TERMS, TASKS, MOST_S)  # nobody who helps
    lease.seen(office.db, "two", ["cpu"], hardware, "c", None)
    assert fan_out.offer(office.db, first, TERMS, TASKS, MOST_S)
    assert fan_out.offer(office.db, other, TERMS, TASKS[:5], MOST_S)

    mine = fan_out.take_own(office.db, first, (), 0.0, 0, set())
    assert (mine.keys, mine.pending) == (("k0", "k1", "k2"), 3)
    assert fan_out.take(office.db, "two", [("cpu", "elsewhere")], "c", 30.0) is None
    assert fan_out.take(office.db, "two", [("cpu", "h")], "another compiler", 30.0) is None
    lost = fan_out.take(office.db, "two", [("cpu", "h")], "c", -1.0)
    assert lost is not None
    assert [task["text"] for task in lost.tasks] == ["text 3", "text 4", "text 5"]
    helper = fan_out.take(office.db, "three", [("cpu", "h")], "c", 30.0)
    assert helper is not None
    assert helper.ids == lost.ids
    measured = Measured(({**record, "workload": "k4"},))
    assert not fan_out.keep(office.db, lost, "two", measured)  # too late: they are another's
    waits = fan_out.take_own(office.db, other, (), 0.0, 0, set())
    assert (waits.keys, waits.pending) == ((), 5)  # the same owner's other job has them measured
    assert fan_out.done(office.db, helper, "three", measured, 3.0, 5)
    seen: set[uuid.UUID] = set()
    over = fan_out.take_own(office.db, first, mine.ids, 2.0, 8, seen)
    assert (over.keys, over.pending, over.by) == ((), 0, {"three": 5})
    assert over.seconds == pytest.approx(3.0)
    assert [one["workload"] for one in over.records] == ["k4"]
    assert fan_out.take_own(office.db, first, (), 0.0, 0, seen).records == []
    freed = fan_out.take_own(office.db, other, (), 0.0, 0, set())
    assert [one["workload"] for one in freed.records] == (["k4"] if "k4" in freed.keys else [])


def offered(office: Any, claim: lease.Claim, number: int = 0) -> Offer:
    """All kernels, offered by the worker `one` beside an idle one."""
    lease.seen(office.db, "two", ["cpu"], {"fingerprint": "h", "fan_out": True}, "c", None)
    made = Offer(claim, "one", number, ("cpu", "h"), "c")
    assert fan_out.offer(office.db, made, TERMS, TASKS, MOST_S)
    return made


def test_what_a_dead_attempt_held_is_not_waited_for(office: Any) -> None:
    """It was held for twice what measuring may take, which is minutes, and the next attempt offers the same kernels."""
    first = claimed(office, "one")
    assert len(fan_out.take_own(office.db, offered(office, first), (), 0.0, 0, set()).keys) == 3
    assert lease.release(office.db, first)
    again = lease.claim(office.db, "one", ["cpu"], 30.0)
    assert again is not None
    assert again.job_id == first.job_id
    assert fan_out.take_own(office.db, offered(office, again), (), 0.0, 0, set()).keys == ("k0", "k1", "k2")


def test_what_a_job_held_that_has_ended_is_not_waited_for(office: Any) -> None:
    first, other = claimed(office, "one"), claimed(office, "one")
    fan_out.take_own(office.db, offered(office, first), (), 0.0, 0, set())
    made = offered(office, other)
    assert fan_out.take_own(office.db, made, (), 0.0, 0, set()).keys == ("k3", "k4", "k5")
    assert lease.cancelled(office.db, first)
    assert fan_out.take_own(office.db, made, (), 0.0, 0, set()).keys == ("k0", "k1", "k2")


def test_an_offer_that_is_over_is_nobodys(office: Any, record: dict[str, Any]) -> None:
    """Neither the same job's next offer nor another job waits for what was taken of it."""
    claim = claimed(office, "one")
    made = offered(office, claim)
    fan_out.take_own(office.db, made, (), 0.0, 0, set())
    helper = fan_out.take(office.db, "two", [("cpu", "h")], "c", 30.0)
    assert helper is not None
    assert fan_out.keep(office.db, helper, "two", Measured(({**record, "workload": "k4"},)))
    fan_out.over(office.db, made)
    assert not fan_out.keep(office.db, helper, "two", Measured())
    assert fan_out.take(office.db, "two", [("cpu", "h")], "c", 30.0) is None
    assert len(fan_out.take_own(office.db, offered(office, claim, 1), (), 0.0, 0, set()).keys) == 3
    assert len(fan_out.take_own(office.db, offered(office, claim, 2), (), 0.0, 0, set()).keys) == 3


def test_workers_that_have_a_job_are_offered_nothing(office: Any) -> None:
    """The search would be cut into pieces for nobody."""
    claim = claimed(office, "one")
    lease.seen(office.db, "two", ["cpu"], {"fingerprint": "h", "fan_out": True}, "c", claim.job_id)
    assert not fan_out.offer(office.db, Offer(claim, "one", 0, ("cpu", "h"), "c"), TERMS, TASKS, MOST_S)


def test_a_worker_goes_on_with_kernels_that_it_measured(office: Any) -> None:
    """Times of one device compare best, and what is measured again is built already."""
    claim = claimed(office, "one")
    made = offered(office, claim)
    mine = fan_out.take_own(office.db, made, (), 0.0, 0, set())
    helper = fan_out.take(office.db, "two", [("cpu", "h")], "c", 30.0, claim.job_id)
    assert helper is not None
    assert fan_out.done(office.db, helper, "two", Measured(), 1.0, 6)
    assert fan_out.take_own(office.db, made, mine.ids, 1.0, 6, set()).keys == ()
    again = [{**task, "again": True} for task in reversed(TASKS)]
    second = replace(made, number=1)
    assert fan_out.offer(office.db, second, TERMS, again, MOST_S) == 1
    mine = fan_out.take_own(office.db, second, (), 0.0, 0, set())
    assert sorted(mine.keys) == ["k0", "k1", "k2"]
    left = fan_out.take_own(office.db, second, mine.ids, 0.5, 6, set())
    assert (left.keys, left.pending) == ((), 3)  # they are the helper's for a while
    helper = fan_out.take(office.db, "two", [("cpu", "h")], "c", 30.0, claim.job_id)
    assert helper is not None
    assert sorted(task["key"] for task in helper.tasks) == ["k3", "k4", "k5"]
    assert fan_out.goes_on(office.db, claim)
    assert lease.cancelled(office.db, claim)
    assert not fan_out.goes_on(office.db, claim)


@pytest.mark.parametrize(
    ("tiles", "parts"),
    [
        ([3] * 30, [30, 21, 12, 9, 9, 9]),  # smaller and smaller
        ([1] * 17, [8, 9]),  # what is left would not be worth the compiler's start
        ([4, 4, 2], [4, 6]),
        ([3, 3], [3, 3]),
        ([6], [6]),
        ([2], [2]),
    ],
)
def test_an_offer_is_taken_in_parts_that_end_at_about_the_same_time(tiles: list[int], parts: list[int]) -> None:
    left, taken = tiles, []
    while left:
        count = fan_out.fair_part(left, sum(tiles))
        assert count > 0
        taken.append(sum(left[:count]))
        left = left[count:]
    assert taken == parts
    assert fan_out.fair_part([], sum(tiles)) == 0


def test_a_lost_helper_s_kernels_are_measured_again_by_others(office: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    claim = claimed(office, "one")
    made = offered(office, claim)
    helper = fan_out.take(office.db, "two", [("cpu", "h")], "c", 30.0)
    assert helper is not None
    assert fan_out.done(office.db, helper, "two", Measured(), 1.0, 6)
    second = replace(made, number=1)
    assert fan_out.offer(office.db, second, TERMS, [{**task, "again": True} for task in TASKS[:3]], MOST_S) == 1
    assert fan_out.take_own(office.db, second, (), 0.0, 0, set()).keys == ()
    monkeypatch.setattr(fan_out, "AGAIN_PATIENCE_S", -60.0)
    assert fan_out.take_own(office.db, second, (), 0.0, 0, set()).keys == ("k0", "k1")


def test_others_measure_no_longer_than_the_job_grants(office: Any) -> None:
    claim = claimed(office, "one")
    made = offered(office, claim)
    assert fan_out.offer(office.db, made, TERMS, [], MOST_S) == 1  # who there is; nothing is written
    helper = fan_out.take(office.db, "two", [("cpu", "h")], "c", 30.0)
    assert helper is not None
    assert fan_out.done(office.db, helper, "two", Measured(), 20.0, 6)
    assert fan_out.offer(office.db, replace(made, number=1), TERMS, TASKS, 19.0) == 0
    assert fan_out.offer(office.db, replace(made, number=1), TERMS, TASKS, 21.0) == 1


@pytest.mark.parametrize("claimable", [False, True])
def test_a_helper_stops_for_a_job_that_it_may_claim_and_for_no_other(
    office: Any, context_with: Callable[..., WorkerContext], monkeypatch: pytest.MonkeyPatch, claimable: bool
) -> None:
    """One that stopped for others would take the same kernels again and again, and measure none."""
    child = """
    if spec["job"] == "tuning":
        end = time.monotonic() + 2.0
        while time.monotonic() < end: time.sleep(0.01)
        for number in (1, 2):
            send(kind="share", number=number, ask="more", seconds=1.0, measured=3)
            answer = os.path.join(spec["answers"], f"answer-{number}")
            while not os.path.exists(answer): time.sleep(0.01)
        send(kind="report", report={"measured": 0})
    """
    monkeypatch.setattr(helping, "places", lambda context, targets: (("cpu", "h"),))
    context = context_with(
        textwrap.dedent(child), name="two", lease_s=0.6, owner_limits=Limits(concurrent_jobs=0 if claimable else 1)
    )
    made = replace(offered(office, claimed(office, "one")), compiler=fan_out.code())
    fan_out.offer(office.db, made, TERMS, TASKS, MOST_S)
    office.submit()
    assert lease.is_ready(office.db, context.queues, context.owner_limits) is claimable
    helping.help_out(context, -1)
    shares = shares_of(office, made.claim.job_id)
    assert [share.done_at is None for share in shares if share.worker] == ([] if claimable else [False] * 6)


@pytest.mark.parametrize(
    "message",
    [
        {"ask": "offer"},
        {"number": 1, "ask": "records"},
        {"number": 1, "ask": "offer", "terms": {}, "tasks": [{"key": "k"}]},
        {"number": 1, "ask": "offer", "terms": {"a": "b" * 5000}, "tasks": []},
        {
            "number": 1,
            "ask": "offer",
            "terms": {},
            "tasks": [{"key": "k", "text": "t", "tiles": TILES, "seconds": 1e9, "again": False}],
        },
        {"number": 1, "ask": "take", "seconds": -1.0, "measured": 0},
    ],
)
def test_a_child_may_ask_for_no_more_than_its_job_grants(office: Any, context: WorkerContext, message: Any) -> None:
    answers = Answers(context, claimed(office, "one"), ("cpu", "h"), office.folder)
    with pytest.raises(GarbledFrame):
        answers.answer(message)
    assert not list(office.folder.glob("answer-*"))

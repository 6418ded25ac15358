"""What a service owes its users after whatever has happened to it.

Each promise reads the books, and tells of every breach.

The books are read when the service has come to rest and its processes are gone.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TypeVar

import orjson
import sqlalchemy as sa

from service.blobs.local import LocalBlobs
from service.blobs.store import KEY_PATTERN
from service.db.models import Artifact, Attempt, Event, Job, JobState, Row, Total, TuningRecord, Usage
from service.jobs.lifecycle.transitions import NEXT, TERMINAL
from tests.torture.child import STEPS
from tests.torture.clients import Clients
from tests.torture.ground import Ground

CLOCK_S = 0.002
"""SQLite's clock ticks in milliseconds."""
SUM_S = 0.001
"""What rounding may add to a sum of seconds that lie between times of 1e9 s, each known to 2e-7 s."""

R = TypeVar("R", bound=Row)


@dataclass(frozen=True)
class Breach:
    """A promise that was broken, of one job or of the whole."""

    text: str
    job: uuid.UUID | None = None


@dataclass(frozen=True)
class Books:
    """All that is left of a run."""

    ground: Ground
    clients: Clients
    kills: int
    clock_was_set: bool = False
    """Times of two writers tell nothing then of who came first."""

    @cached_property
    def jobs(self) -> Sequence[Job]:
        return self._all(Job)

    @cached_property
    def events(self) -> dict[uuid.UUID, list[Event]]:
        """Of each job, in order."""
        found: dict[uuid.UUID, list[Event]] = defaultdict(list)
        for event in sorted(self._all(Event), key=lambda event: event.seq):
            found[event.job_id].append(event)
        return found

    @cached_property
    def attempts(self) -> dict[uuid.UUID, list[Attempt]]:
        """At each job, in order."""
        found: dict[uuid.UUID, list[Attempt]] = defaultdict(list)
        for attempt in sorted(self._all(Attempt), key=lambda attempt: attempt.attempt):
            found[attempt.job_id].append(attempt)
        return found

    @cached_property
    def artifacts(self) -> Sequence[Artifact]:
        return self._all(Artifact)

    @cached_property
    def records(self) -> Sequence[TuningRecord]:
        return self._all(TuningRecord)

    @cached_property
    def totals(self) -> Sequence[Total]:
        return self._all(Total)

    @cached_property
    def usage(self) -> Sequence[Usage]:
        return self._all(Usage)

    def _all(self, table: type[R]) -> Sequence[R]:
        with self.ground.db.read() as session:
            return session.scalars(sa.select(table)).all()


def each_wish_is_one_job(books: Books) -> Iterator[Breach]:
    """Whoever was answered has a job, the same one in each answer; and nobody else has one."""
    made: dict[str | None, list[Job]] = defaultdict(list)
    for job in books.jobs:
        made[job.idempotency_key].append(job)
    for key, wish in books.clients.wishes.items():
        reported, jobs = books.clients.accepted.get(key, set()), made.pop(key, [])
        if len(reported) != 1:
            yield Breach(f"{key} was answered with {len(reported)} jobs: {reported}")
        if {job.id for job in jobs} != reported:
            yield Breach(
                f"{key} was promised {reported} and there are {[job.id for job in jobs]}", next(iter(reported), None)
            )
        for job in jobs:
            if job.model_digest != wish.digest:
                yield Breach(f"{key} asked for another model", job.id)
    for unknown, jobs in made.items():
        yield Breach(f"nobody asked for {unknown}", jobs[0].id)
    for answer in books.clients.refused:
        yield Breach(f"a client was refused: {answer}")


def each_job_ends_once(books: Books) -> Iterator[Breach]:
    """In one of the states that nothing follows, which its last event tells and no other one."""
    for job in books.jobs:
        ends = [event.seq for event in books.events[job.id] if event.data.get("state") in set(map(str, TERMINAL))]
        if job.state not in TERMINAL or job.finished_at is None:
            yield Breach(f"it is {job.state}", job.id)
        elif ends != [job.event_seq]:
            yield Breach(f"it has {job.event_seq} events, of which {ends} are ends", job.id)
        elif books.events[job.id][-1].data["state"] != job.state:
            yield Breach(f"it is {job.state}, its last event says otherwise", job.id)


def each_job_succeeds(books: Books) -> Iterator[Breach]:
    """Whatever was killed: also its own process, or the one above that."""
    for job in books.jobs:
        if job.state == JobState.FAILED:
            yield Breach(f"it failed: {job.problem}", job.id)
        if job.state == JobState.CANCELLED:
            yield Breach("it was cancelled, and nobody asked for that", job.id)


def events_have_no_gaps(books: Books) -> Iterator[Breach]:
    """Events are numbered 1, 2, 3 and so on, and their states follow each other as the table of a job's life says.

    Nothing is told twice in one attempt.
    """
    for job in books.jobs:
        events = books.events[job.id]
        if [event.seq for event in events] != list(range(1, job.event_seq + 1)):
            yield Breach(f"of {job.event_seq} events there are {[event.seq for event in events]}", job.id)
        states = [JobState(event.data["state"]) for event in events if event.kind == "state"]
        for state, following in itertools.pairwise(states):
            if following not in NEXT[state]:
                yield Breach(f"{following} follows {state}", job.id)
        for before, after in itertools.pairwise(
            event for event in events if event.data.get("state") != JobState.RUNNING
        ):
            if before.kind == after.kind == "progress" and after.data["fraction"] <= before.data["fraction"]:
                yield Breach(f"event {after.seq} tells again what event {before.seq} told", job.id)


def attempts_do_not_overlap(books: Books) -> Iterator[Breach]:
    """One at a time, each ended; as many as there were claims, of which each raised the fence."""
    for job in books.jobs:
        attempts = books.attempts[job.id]
        claims = sum(event.data.get("state") == JobState.LEASED for event in books.events[job.id])
        if not len(attempts) == job.attempts == job.fence == claims:
            counted = f"{len(attempts)} attempts are kept, {job.attempts} counted"
            yield Breach(f"{counted}; fence {job.fence}, {claims} claims", job.id)
        if any(attempt.ended_at is None for attempt in attempts):
            yield Breach("an attempt has not ended", job.id)
        for before, after in itertools.pairwise(attempts):
            is_over = before.ended_at is None or after.started_at >= before.ended_at - CLOCK_S
            if not is_over and not books.clock_was_set:
                yield Breach(f"attempt {after.attempt} began before attempt {before.attempt} ended", job.id)


def each_success_has_one_artifact(books: Books) -> Iterator[Breach]:
    """Made by the attempt that ended the job; a job that the cache answered names another's."""
    made = {artifact.id: artifact for artifact in books.artifacts}
    wanted = Counter(job.artifact_id for job in books.jobs if job.state == JobState.SUCCEEDED and not job.cached)
    for job in books.jobs:
        artifact = None if job.artifact_id is None else made.get(job.artifact_id)
        if job.state == JobState.SUCCEEDED and artifact is None:
            yield Breach("it succeeded without an artifact", job.id)
        elif artifact is not None and not job.cached and artifact.receipt["fence"] != job.fence:
            yield Breach(f"its artifact is of fence {artifact.receipt['fence']}, not {job.fence}", job.id)
    for artifact in books.artifacts:
        if wanted[artifact.id] != 1:
            yield Breach(f"artifact {artifact.id} belongs to {wanted[artifact.id]} successes", artifact.job_id)


def blobs_are_whole(books: Books) -> Iterator[Breach]:
    """Every file has the name of what is in it, and an artifact is its model's."""
    blobs = books.ground.blobs
    for path in blobs.glob("??/*"):
        key = path.relative_to(blobs).as_posix()
        if not KEY_PATTERN.fullmatch(key) or hashlib.sha256(path.read_bytes()).hexdigest() != path.name:
            yield Breach(f"blob {key} is not what its name says")
    models = {job.id: job.model_digest for job in books.jobs}
    for artifact in books.artifacts:
        path = blobs / artifact.blob_key
        reported = path.read_text() if path.is_file() else None
        if reported != models[artifact.job_id] or artifact.sha256 != path.name or artifact.bytes != len(reported or ""):
            yield Breach(f"its artifact says {reported!r:.80}", artifact.job_id)


def records_are_kept_once(books: Books) -> Iterator[Breach]:
    """No step of an attempt has two records; the attempt that succeeded has one of each.

    None was written after its attempt.
    """
    seen = Counter((record.job_id, record.variant["fence"], record.variant["step"]) for record in books.records)
    for (job_id, fence, step), times in seen.items():
        if times > 1:
            yield Breach(f"step {step} of fence {fence} was recorded {times} times", job_id)
    for job in books.jobs:
        if job.state == JobState.SUCCEEDED and not job.cached:
            lost = [step for step in range(STEPS) if not seen[job.id, job.fence, step]]
            if lost:
                yield Breach(f"the records of steps {lost} are lost", job.id)
    ends = {
        (attempt.job_id, attempt.attempt): attempt.ended_at for whole in books.attempts.values() for attempt in whole
    }
    for record in books.records:
        end = ends.get((record.job_id, record.variant["fence"])) if record.job_id else None
        if end is not None and record.created_at > end + CLOCK_S and not books.clock_was_set:
            yield Breach(f"a record of fence {record.variant['fence']} was written after its attempt", record.job_id)


def nobody_holds_a_job(books: Books) -> Iterator[Breach]:
    """A job that has ended is nobody's."""
    for job in books.jobs:
        if job.lease_owner is not None or job.lease_until is not None:
            yield Breach(f"{job.lease_owner} holds it until {job.lease_until}", job.id)


def sums_agree_with_rows(books: Books) -> Iterator[Breach]:
    """What is counted with a change is counted once for each."""
    reported: Counter[str] = Counter()
    for total in books.totals:
        labels = orjson.loads(total.labels)
        reported[f"{total.name} {labels['state']}" if "state" in labels else total.name] += round(total.value)
    ended = Counter(f"jobs_ended {job.state}" for job in books.jobs if not job.cached and job.state in TERMINAL)
    expected = ended | Counter(
        {
            "jobs_accepted": len(books.jobs),
            "cache_hits": sum(job.cached for job in books.jobs),
            "leases_lost": sum(job.lost_leases for job in books.jobs),
            "tuning_records": len(books.records),
        }
    )
    for name in sorted({*expected, *(name for name in reported if name.startswith("jobs_ended"))}):
        if reported[name] != expected[name]:
            yield Breach(f"the sum of {name} is {reported[name]}, the rows are {expected[name]}")


def each_second_is_charged_once(books: Books) -> Iterator[Breach]:
    """An owner's device seconds are those of its attempts, however they ended, and so is what the metrics count."""
    had: dict[uuid.UUID, float] = defaultdict(float)
    for job in books.jobs:
        had[job.owner_id] += sum((one.ended_at or one.started_at) - one.started_at for one in books.attempts[job.id])
    charged: dict[uuid.UUID, float] = defaultdict(float)
    for month in books.usage:
        charged[month.owner_id] += month.device_s
    for owner in sorted({*had, *charged}):
        if abs(charged[owner] - had[owner]) > SUM_S:
            yield Breach(f"owner {owner} is charged {charged[owner]:.3f} s, its attempts took {had[owner]:.3f} s")
    counted = sum(total.value for total in books.totals if total.name == "device_seconds")
    if abs(counted - sum(had.values())) > SUM_S:
        yield Breach(f"the sum of device_seconds is {counted:.3f}, all attempts took {sum(had.values()):.3f} s")


def nothing_half_written_stays(books: Books) -> Iterator[Breach]:
    """Only who was killed leaves a file behind, and the sweep finds it."""
    store = LocalBlobs(books.ground.blobs)
    left = len(list(store.temporary.iterdir()))
    if left > books.kills:
        yield Breach(f"{left} temporary files are left of {books.kills} processes that were killed")
    store.sweep(-1.0)
    if stayed := [path.name for path in store.temporary.iterdir()]:
        yield Breach(f"the sweep left {stayed}")


def no_process_is_left(books: Books) -> Iterator[Breach]:
    """What a job has started has ended with it."""
    mark = os.fsencode(books.ground.folder)
    for environment in Path("/proc").glob("[0-9]*/environ"):
        try:
            alive = mark in environment.read_bytes()
            command = environment.with_name("cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if alive:
            yield Breach(f"a process is left: {command:.200}")


PROMISES: tuple[Callable[[Books], Iterator[Breach]], ...] = (
    each_wish_is_one_job,
    each_job_ends_once,
    each_job_succeeds,
    events_have_no_gaps,
    attempts_do_not_overlap,
    each_success_has_one_artifact,
    blobs_are_whole,
    records_are_kept_once,
    nobody_holds_a_job,
    sums_agree_with_rows,
    each_second_is_charged_once,
    nothing_half_written_stays,
    no_process_is_left,
)


def breaches(books: Books) -> list[tuple[str, Breach]]:
    """All that were broken, each with the promise's name."""
    return [(promise.__name__, breach) for promise in PROMISES for breach in promise(books)]


def story(books: Books, job_id: uuid.UUID) -> str:
    """All that is known of one job: its row, its attempts, its events, and what the processes said of it."""
    lines = [f"job {job_id}"]
    for job in books.jobs:
        if job.id == job_id:
            reported = {"state": str(job.state), "fence": job.fence, "key": job.idempotency_key, "problem": job.problem}
            lines.append(f"  {reported}, created {job.created_at:.3f}, finished {job.finished_at}")
    for attempt in books.attempts[job_id]:
        span = f"{attempt.started_at:.3f} to {attempt.ended_at}"
        lines.append(f"  attempt {attempt.attempt}: {span}, {attempt.worker}, {attempt.outcome}")
    for event in books.events[job_id]:
        lines.append(f"  event {event.seq}: {event.created_at:.3f} {event.kind} {event.data}")
    for log in sorted(books.ground.logs.iterdir()):
        said = [line for line in log.read_text(errors="replace").splitlines() if str(job_id) in line]
        lines += [f"  {log.stem}: {line}" for line in said]
    return "\n".join(lines)

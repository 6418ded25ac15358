"""What befalls a service: each fate is a course that is taken step by step, and is over when it has struck.

A course yields while it waits, so that one thread can take many at a time and start again what died meanwhile.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from types import MappingProxyType
from typing import Literal

import redis

from service.jobs.scheduling.doorbell import FAILURES, CeleryRing
from tests.torture import clock, faults
from tests.torture.clients import Clients
from tests.torture.ground import LEASE_S, WORKERS, Ground
from tests.torture.points import DATABASE_FULL, FULL, LOG_FULL, POINTS, Fate, stopped
from tilewright.up.process import Supervised
from worker.processes import launch
from worker.processes.scratch import Folder

STALE_S = LEASE_S + 3.0
"""So long a stopped worker stands still: its job is another's by then."""
AFTERMATH_S = 1.5
"""So long it may try to write before the run can end."""
LATEST_S = 0.5
"""A fate without a point strikes within this time, wherever the program is then."""
WRONG_S = (2.0, 5.0)
"""So long a clock is wrong: some leases are given by the wrong one, and some are judged by it."""
AHEAD_S, BEHIND_S = 3600.0, -20.0
FULL_S = 2.0
DUPLICATES = 30
WIPES = 10

Lane = Literal["worker", "api", "reconciler", "broker", "database", "clock"]
Course = Generator[None, None, None]


@dataclass(frozen=True)
class Scene:
    """Where fates strike."""

    ground: Ground
    clients: Clients
    rng: Random


@dataclass(frozen=True)
class Doom:
    """One kind of fate.

    lane    of each lane only so many are under way as it has processes
    kills   how many processes die by it, of the service or of what it stands on
    weight  how often it is dealt, beside others
    """

    lane: Lane
    course: Callable[[Scene], Course]
    kills: int = 1
    weight: float = 1.0


@dataclass(frozen=True)
class Running:
    """A job's processes, seen from outside: whose they are, their folder, and the id of their launcher."""

    worker: Supervised
    folder: Path
    launcher: int


def at_point(scene: Scene, fate: Fate, point: str) -> Course:
    """Whoever comes to the point suffers it."""
    token = scene.ground.deal(fate, point)
    while token.exists():
        yield


def stopped_at(scene: Scene, point: str) -> Course:
    """A worker stands still past its lease, then goes on: nothing that it writes may count."""
    ground = scene.ground
    token = ground.deal("stop", point)
    while token.exists():
        yield
    said = stopped(ground.fates, int(token.name.rpartition("@")[2]))
    yield from pause(STALE_S)
    if not said.exists() or not (victim := said.read_text()):
        return  # it was killed at that very moment
    for worker in ground.workers:
        if worker.process is not None and worker.process.pid == int(victim):
            send(worker, signal.SIGCONT)
            yield from pause(AFTERMATH_S)


def killed(scene: Scene, choose: Callable[[Scene], Supervised]) -> Course:
    """SIGKILL wherever it is."""
    yield from pause(scene.rng.uniform(0.0, LATEST_S))
    while not send(choose(scene), signal.SIGKILL):
        yield


def child_killed(scene: Scene) -> Course:
    """SIGKILL for the process that does a job."""
    yield from pause(scene.rng.uniform(0.0, LATEST_S))
    while True:
        job = yield from some_job(scene)
        for pid in launch.descendants(job.launcher):
            end(pid)
            return
        yield


def launcher_killed(scene: Scene) -> Course:
    """SIGKILL for the process between worker and job, with which the job dies."""
    yield from pause(scene.rng.uniform(0.0, LATEST_S))
    job = yield from some_job(scene)
    end(job.launcher)


def everything_killed(scene: Scene) -> Course:
    """SIGKILL for a worker and all that it has started, at once: nobody is left to sweep."""
    yield from pause(scene.rng.uniform(0.0, LATEST_S))
    job = yield from some_job(scene)
    below = launch.descendants(job.launcher)
    send(job.worker, signal.SIGKILL)
    for pid in (job.launcher, *below):
        end(pid)


def asked_to_stop(scene: Scene) -> Course:
    """SIGTERM for a worker in the middle of a job, which it gives back."""
    job = yield from some_job(scene)
    send(job.worker, signal.SIGTERM)


def broker_wiped(scene: Scene) -> Course:
    """Every message is lost."""
    yield from pause(scene.rng.uniform(0.0, LATEST_S))
    wipe(scene.ground)


def doorbell_lost(scene: Scene) -> Course:
    """The message of a job that was accepted just now is lost, whenever it is sent."""
    before = len(scene.clients.accepted)
    while len(scene.clients.accepted) == before:
        yield
    for _ in range(WIPES):
        wipe(scene.ground)
        yield


def broker_killed(scene: Scene) -> Course:
    """SIGKILL, a time without a broker, and a new start on what it had written."""
    yield from pause(scene.rng.uniform(0.0, LATEST_S))
    scene.ground.redis.kill()
    yield from pause(scene.rng.uniform(0.0, LATEST_S))
    scene.ground.redis.start()


def doorbells_doubled(scene: Scene) -> Course:
    """Many messages for whatever waits."""
    ring = CeleryRing(scene.ground.redis.url)
    with contextlib.suppress(*FAILURES):
        for _ in range(DUPLICATES):
            ring("cpu")
    yield


def database_killed(scene: Scene) -> Course:
    """SIGKILL for all of PostgreSQL, which recovers what it had synced."""
    yield from pause(scene.rng.uniform(0.0, LATEST_S))
    scene.ground.revive_database()


def database_and_broker_killed(scene: Scene) -> Course:
    """SIGKILL for both at the same moment; the broker stays away longer than the database."""
    yield from pause(scene.rng.uniform(0.0, LATEST_S))
    scene.ground.redis.kill()
    scene.ground.revive_database()
    yield from pause(scene.rng.uniform(0.0, LATEST_S))
    scene.ground.redis.start()


def clock_set(scene: Scene, by_s: float) -> Course:
    """The machine's clock is set while all runs, and set right again."""
    yield from pause(scene.rng.uniform(0.0, LATEST_S))
    clock.set_by(by_s)
    yield from pause(scene.rng.uniform(*WRONG_S))
    clock.set_by(0.0)


def full_for_a_time(scene: Scene, files: tuple[str, ...]) -> Course:
    """Database or log find no room, of every process; then there is room again."""
    yield from pause(scene.rng.uniform(0.0, LATEST_S))
    for file in files:
        (scene.ground.fates / file).touch()
    yield from pause(FULL_S)
    for file in files:
        if file != LOG_FULL or not scene.ground.log_full:
            (scene.ground.fates / file).unlink(missing_ok=True)


def with_full_log(scene: Scene, point: str) -> Course:
    """A blob finds the disk full, and so does the line that would tell of it."""
    (scene.ground.fates / LOG_FULL).touch()
    yield from at_point(scene, "full", point)
    if not scene.ground.log_full:
        (scene.ground.fates / LOG_FULL).unlink(missing_ok=True)


def some_job(scene: Scene) -> Generator[None, None, Running]:
    """Waits until one runs."""
    while not (jobs := under_way(scene.ground)):
        yield
    return scene.rng.choice(jobs)


def under_way(ground: Ground) -> list[Running]:
    """The jobs that run at this moment."""
    found = []
    for name, worker in zip(WORKERS, ground.workers, strict=True):
        for path in (ground.scratch(name) / "jobs").glob("*"):
            signed = Folder(path).signed()
            if signed is not None and all(process.alive for process in signed):
                found.append(Running(worker, path, signed[1].pid))
    return found


def pause(seconds: float) -> Course:
    """Let time pass."""
    latest = time.monotonic() + seconds
    while time.monotonic() < latest:
        yield


def send(process: Supervised, number: signal.Signals) -> bool:
    """Whether there was somebody to send it to."""
    if process.process is None or process.process.poll() is not None:
        return False
    process.process.send_signal(number)
    return True


def end(pid: int) -> None:
    """SIGKILL, unless it has ended."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def wipe(ground: Ground) -> None:
    """FLUSHALL, unless the broker is away: then there is nothing to wipe."""
    with redis.Redis.from_url(ground.redis.url) as client, contextlib.suppress(redis.RedisError):
        client.flushall()


def _dooms() -> dict[str, Doom]:
    """All there are; those of one point by its name."""
    found = {}
    for name, point in POINTS.items():
        # There is less for a reconciler to come to than for the others.
        weight = 0.4 if point.role == "reconciler" else 1.0
        found[f"kill: {name}"] = Doom(point.role, partial(at_point, fate="kill", point=name), weight=weight)
        if point.commits:
            course = partial(at_point, fate="unanswered", point=name)
            found[f"answer lost: {name}"] = Doom(point.role, course, kills=0, weight=0.3)
        if point.role == "worker":
            found[f"stopped past the lease: {name}"] = Doom("worker", partial(stopped_at, point=name), 0, 0.2)
    for name, role in FULL.items():
        found[f"disk full: {name}"] = Doom(role, partial(at_point, fate="full", point=name), kills=0, weight=0.5)
        found[f"disk and log full: {name}"] = Doom(role, partial(with_full_log, point=name), kills=0, weight=0.5)
    return found | {
        "kill: a worker anywhere": Doom(
            "worker", partial(killed, choose=lambda scene: scene.rng.choice(scene.ground.workers)), weight=3.0
        ),
        "kill: the API anywhere": Doom("api", partial(killed, choose=lambda scene: scene.ground.api), weight=2.0),
        "kill: the reconciler anywhere": Doom(
            "reconciler", partial(killed, choose=lambda scene: scene.ground.reconciler)
        ),
        "kill: a child": Doom("worker", child_killed),
        "kill: a launcher": Doom("worker", launcher_killed),
        "kill: a worker with all of its job": Doom("worker", everything_killed),
        "SIGTERM: a worker in mid-job": Doom("worker", asked_to_stop, kills=0, weight=0.5),
        "broker wiped": Doom("broker", broker_wiped, kills=0),
        "doorbell lost": Doom("broker", doorbell_lost, kills=0),
        "doorbells doubled": Doom("broker", doorbells_doubled, kills=0, weight=0.5),
        "database full": Doom("broker", partial(full_for_a_time, files=(DATABASE_FULL,)), 0, 0.5),
        "database and log full": Doom("broker", partial(full_for_a_time, files=(DATABASE_FULL, LOG_FULL)), 0, 0.5),
        "kill: the broker": Doom("broker", broker_killed),
        "kill: PostgreSQL": Doom("database", database_killed),
        "kill: PostgreSQL and the broker": Doom("database", database_and_broker_killed, kills=2),
        "clock an hour ahead": Doom("clock", partial(clock_set, by_s=AHEAD_S), kills=0),
        "clock twenty seconds behind": Doom("clock", partial(clock_set, by_s=BEHIND_S), kills=0),
    }


DOOMS: Mapping[str, Doom] = MappingProxyType(_dooms())
"""All that may befall a service."""


def possible(database: str) -> list[str]:
    """The fates that may befall a service on this database, with this clock."""
    absent = {*([] if database == "postgresql" else ["database"]), *([] if clock.is_settable() else ["clock"])}
    return [name for name, doom in DOOMS.items() if doom.lane not in absent]


OF_BUGS: Mapping[str, Doom] = MappingProxyType(
    {f"kill: {faults.HALF}": Doom("worker", partial(at_point, fate="kill", point=faults.HALF))}
)
"""What only one with a bug can meet."""


def doom(name: str) -> Doom:
    """The fate of this name. Raises `KeyError`."""
    return DOOMS[name] if name in DOOMS else OF_BUGS[name]

"""What this installation can compile, for which devices, and who would do it.

From the workers' catalogue and who is alive.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from compiler.contract import kinds
from service.db import jobs, workers
from service.db.engine import Database
from service.jobs.scheduling import catalogue
from service.jobs.scheduling.catalogue import Published
from service.jobs.submission.runs import RUN

NOTHING_PUBLISHED = "no worker has told yet what it can do: start one with python -m worker"
NOBODY_ALIVE = "no worker is alive: this is what the last one told; jobs wait until one is started"


@dataclass(frozen=True)
class Target:
    """One entry of the catalogue, and what there is for it now.

    measured_by  live workers that measure on such a device and run artifacts there
    built_by     live workers that compile for it, but have no such device
    queued       compilations that wait for one of either
    runs_queued  benchmarks and inferences that wait for one of the first
    notice       why compilations would wait, and for what; empty where a live worker takes them
    """

    entry: Mapping[str, Any]
    measured_by: Sequence[str]
    built_by: Sequence[str]
    queued: int
    runs_queued: int
    notice: str = ""


def nobody(target: str) -> str:
    """What to say when no live worker takes compilations for a target."""
    said = f"no worker that is alive compiles for {target}: jobs wait until one is started"
    kind, profile = kinds.find(target), target.partition(":")[2]
    if kind is None:
        return f"{said} whose compiler knows it"
    if kind.whole:
        return f"{said}, such as python -m worker --queue cpu, or a builder, where {kind.builder} are installed"
    if not kind.here:
        return f"{said}, such as python -m worker --queue build, where {kind.builder} is installed"
    there = f" on a machine with {kind.hardware}" + (f" of {profile}" if profile else "") if kind.hardware else ""
    with_it = f" with {kind.builder}" if kind.builder else ""
    builder = f", or a builder{with_it}" if profile else ""
    return f"{said}, such as python -m worker --queue {kind.device()}{there}{builder}"


@dataclass(frozen=True)
class Operators:
    """What a catalogue says: its entries and the version of the compiler that they are of.

    `notice` is what is to be known beside them; "" for nothing.
    """

    entries: Sequence[Mapping[str, Any]]
    compiler: str | None
    notice: str


@dataclass(frozen=True)
class Targets:
    """The same of targets, with who serves them."""

    targets: Sequence[Target]
    compiler: str | None
    notice: str


def targets(db: Database, worker_alive_s: float) -> Targets:
    """Every target that was published, by name."""
    published = catalogue.newest(db, "targets")
    entries = sorted(published.entries, key=_name) if published else []
    with db.read() as session:
        queues = [queue for entry in entries for queue in (_name(entry), RUN + _name(entry))]
        waiting = jobs.waiting_in(session, queues)
        served = {worker.name: frozenset(worker.queues) for worker in workers.alive(session, worker_alive_s)}
    found = []
    for entry in entries:
        name = _name(entry)
        run = RUN + name
        measured_by = [worker for worker, queues in served.items() if run in queues]
        built_by = [worker for worker, queues in served.items() if name in queues and run not in queues]
        notice = "" if any(name in queues for queues in served.values()) else nobody(name)
        found.append(Target(entry, measured_by, built_by, waiting.get(name, 0), waiting.get(run, 0), notice))
    return Targets(found, published.compiler if published else None, _notice(published, bool(served)))


def operators(db: Database, query: str, worker_alive_s: float) -> Operators:
    """The operators that the compiler takes whose name holds `query`, in any case, by name."""
    published = catalogue.newest(db, "operators")
    with db.read() as session:
        somebody = bool(workers.alive(session, worker_alive_s))
    wanted = query.casefold()
    entries = sorted(published.entries, key=_name) if published else []
    found = [entry for entry in entries if wanted in _name(entry).casefold()]
    return Operators(found, published.compiler if published else None, _notice(published, somebody))


def _name(entry: Mapping[str, Any]) -> str:
    return str(entry["name"])


def _notice(published: Published | None, somebody: bool) -> str:
    if published is None:
        return NOTHING_PUBLISHED
    return "" if somebody else NOBODY_ALIVE

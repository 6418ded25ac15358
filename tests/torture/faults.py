"""Bugs that a process of the service can be given, to show that the promises would find them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import sqlalchemy as sa

from tests.torture.points import meet, replace

NONE = "-"
HALF = "half an outcome"
"""The point between the two transactions of `outcome_in_two_transactions`."""


def fence_ignored(fates: Path) -> None:
    """Whoever writes to a job is believed to hold it."""
    from service.db import jobs
    from service.db.engine import clock
    from service.db.models import JobState

    def unguarded(advance: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(session: Any, job_id: Any, to: JobState, sources: Any, **named: Any) -> Any:
            if to is not JobState.LEASED:
                sources = {JobState.LEASED, JobState.RUNNING}
            return advance(session, job_id, to, sources, **{**named, "fence": None})

        return wrapped

    def believed(extend: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(session: Any, job_id: Any, fence: int, lease_s: float) -> jobs.Held:
            row = jobs.locked(session, job_id)
            row.lease_until = clock() + lease_s
            return jobs.Held(row.state, row.cancel_requested, row.finish_requested)

        return wrapped

    replace("service.db.jobs", "advance", unguarded)
    replace("service.db.jobs", "extend", believed)


def leases_never_expire(fates: Path) -> None:
    """A job whose worker died stays with it."""
    replace("service.db.jobs", "expired", lambda _: lambda *arguments: [])


def outcome_in_two_transactions(fates: Path) -> None:
    """SUCCEEDED is committed before the artifact's row."""
    from service.db.models import JobState
    from service.jobs.lifecycle import transitions
    from service.jobs.stored import artifact

    def torn(succeed: Callable[..., bool]) -> Callable[..., bool]:
        def wrapped(db: Any, claim: Any, report: Any, made: Any, circumstances: Any, **more: Any) -> bool:
            with db.write() as session:
                if not transitions.move(session, claim.job_id, JobState.SUCCEEDED, fence=claim.fence):
                    return False
            meet(fates, HALF)
            with db.write() as session:
                artifact.store(session, claim, report, made, circumstances)
            return True

        return wrapped

    replace("service.jobs.scheduling.lease", "succeed", torn)


def seconds_tallied_twice(fates: Path) -> None:
    """What a heartbeat added to an owner's tally is added again by whatever comes after it."""
    from service.db.engine import clock
    from service.db.models import Attempt

    def forgetful(_: Callable[..., Any]) -> Callable[..., Any]:
        def since_the_start(session: Any, job_id: Any, attempt: int, at_least_s: float) -> tuple[float, float] | None:
            mine = (Attempt.job_id == job_id, Attempt.attempt == attempt, Attempt.ended_at.is_(None))
            row = session.execute(sa.select(Attempt.started_at, clock()).where(*mine)).first()
            return None if row is None or row[1] - row[0] < at_least_s else (row[0], row[1])

        return since_the_start

    replace("service.db.attempts", "untallied", forgetful)


FAULTS: Mapping[str, Callable[[Path], None]] = MappingProxyType(
    {
        "fence ignored": fence_ignored,
        "leases never expire": leases_never_expire,
        "outcome in two transactions": outcome_in_two_transactions,
        "seconds tallied twice": seconds_tallied_twice,
    }
)

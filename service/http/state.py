"""What the routes work with: one object for each running app."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, cast

from fastapi import Depends, Request
from prometheus_client import CollectorRegistry

from service.blobs.store import Blobs
from service.config import Settings
from service.db.engine import Database
from service.http.admission.rates import Rates
from service.http.admission.turns import Turns
from service.http.pools import Pools
from service.http.responses.answers import Answers
from service.http.responses.cached import Kept
from service.jobs.accounts.access import Door
from service.jobs.accounts.quotas import Limits
from service.jobs.inspection.inspector import Inspector
from service.jobs.lifecycle.attestation import Signer
from service.jobs.lifecycle.events import Feed
from service.jobs.lifecycle.status_reads import Board
from service.jobs.operations.health import Check
from service.jobs.operations.statistics import Number
from service.jobs.scheduling.doorbell import Ring


@dataclass(frozen=True)
class State:
    """The settings and the open doors to database, blobs, broker, event logs, states and keys.

    `turns`, `rates`, `trials` and `pools` bound what each caller and each kind of work takes; `checks` and `numbers`,
    which anybody may ask for, are looked up once in a while.
    """

    settings: Settings
    db: Database
    blobs: Blobs
    ring: Ring
    feed: Feed
    board: Board
    answers: Answers
    door: Door
    metrics: CollectorRegistry
    inspector: Inspector
    signer: Signer
    turns: Turns
    rates: Rates
    trials: Rates
    pools: Pools
    checks: Kept[Sequence[Check]]
    numbers: Kept[Sequence[Number]]

    @property
    def limits(self) -> Limits:
        """What an owner may have to whom the operator granted nothing else."""
        return Limits.of(self.settings)


def state_of(app: Any) -> State:
    """The state of a running app."""
    return cast(State, app.state.tilewright)


async def _state(request: Request) -> State:
    return state_of(request.app)


Here = Annotated[State, Depends(_state)]
"""The parameter of a route that needs the state."""

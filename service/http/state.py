"""What the routes work with: one object for each running app."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, cast

from fastapi import Depends, Request
from prometheus_client import CollectorRegistry

from service.blobs.store import Blobs
from service.config import Settings
from service.db.engine import Database
from service.jobs.access import Door
from service.jobs.board import Board
from service.jobs.doorbell import Ring
from service.jobs.events import Feed
from service.jobs.oracle import Oracle
from service.jobs.quotas import Limits


@dataclass(frozen=True)
class State:
    """The settings and the open doors to database, blobs, broker, event logs, states and keys."""

    settings: Settings
    db: Database
    blobs: Blobs
    ring: Ring
    feed: Feed
    board: Board
    door: Door
    metrics: CollectorRegistry
    oracle: Oracle

    @property
    def limits(self) -> Limits:
        """What an owner may have to whom the operator granted nothing else."""
        return Limits.of(self.settings)


async def _state(request: Request) -> State:
    return cast(State, request.app.state.tilewright)


Here = Annotated[State, Depends(_state)]
"""The parameter of a route that needs the state."""

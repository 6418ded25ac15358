"""The ASGI app."""

from __future__ import annotations

import gc
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from anyio import to_thread
from fastapi import FastAPI
from prometheus_client import CollectorRegistry

from compiler.contract import COMPILER_VERSION
from service import logs, traces
from service.blobs.open_blobs import open_blobs
from service.config import Settings
from service.db.engine import Database
from service.db.migrate import require_usable
from service.errors import ServiceError
from service.http import openapi
from service.http.admission import descriptors
from service.http.admission.connections import OF_APP_STATE, Connections
from service.http.admission.limits import crowds, share
from service.http.admission.processes import end_with_parent
from service.http.admission.rates import Rates
from service.http.admission.turns import Turns
from service.http.gate import Ahead
from service.http.metrics import Meter, answers, broken
from service.http.pools import Pools
from service.http.responses import errors
from service.http.responses.answers import Answers
from service.http.responses.cached import Kept
from service.http.responses.headers import RequestIds
from service.http.routes import routers
from service.http.state import State
from service.http.versions import SERVERS, Versioned
from service.jobs.accounts import access
from service.jobs.accounts.access import Door
from service.jobs.inspection.inspector import Inspector
from service.jobs.lifecycle.attestation import Signer
from service.jobs.lifecycle.events import Feed
from service.jobs.lifecycle.status_reads import Board
from service.jobs.notifications.delivery import Sender, Terms
from service.jobs.operations import health, reconcile, retention
from service.jobs.operations.statistics import Number, numbers
from service.jobs.scheduling.doorbell import Ring, ring_of
from service.jobs.storage.integrity import Watched
from service.threads import lasting

TRIALS_PER_MINUTE, TRIALS_AT_ONCE = 10, 30
"""Webhooks of one owner that are made or tried: each has us send something to an address that the owner names."""
WEBHOOKS_PATIENCE_S = 5.0
"""How long attempts that are under way may hold up the end of the process; they are made again."""

log = logs.logger(__name__)

DESCRIPTION = """Send an ONNX model, get back one file that runs it fast.

`POST /compile` answers with a job; follow it at `/jobs/{id}/events`; download `/artifacts/{artifact_id}`.
Every failure is an RFC 9457 problem document with a stable `code`, whose `fault` it is and what would `fix` it.
"""


def create_app(settings: Settings, *, ring: Ring | None = None, inspector: Inspector | None = None) -> FastAPI:
    """The app over a database that is already at its newest step.

    `ring` replaces the doorbell of the settings, `inspector` what reads models for `POST /preflight`.
    """
    inspector = inspector or Inspector(settings.max_preflights_per_owner, walls=settings.require_walls)
    state = _state(settings, ring or ring_of(settings.celery_url), inspector)
    app = FastAPI(
        title="Tilewright",
        version=COMPILER_VERSION,
        description=DESCRIPTION,
        lifespan=_lifespan,
        servers=SERVERS,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        telemetry={"metrics": False, "logs": False, "operation_spans": False},  # metrics and logs are our own
        routes=[route for router in routers() for route in router.routes],
    )
    app.state.tilewright = state
    app.state.broken = broken(state.metrics)
    app.add_middleware(Ahead, routers=routers())  # the innermost: each of the next is around those before
    app.add_middleware(RequestIds)
    app.add_middleware(Meter, answers=answers(state.metrics))
    app.add_middleware(Versioned)
    errors.install(app)
    openapi.install(app)
    return app


def _state(settings: Settings, ring: Ring, inspector: Inspector) -> State:
    db = Database.of(settings)
    blobs = Watched(open_blobs(settings), db)
    alive_s, stands_s = settings.worker_alive_s, settings.probes_stand_s
    mine = share(settings)
    return State(
        settings=settings,
        db=db,
        blobs=blobs,
        ring=ring,
        feed=Feed(db, settings.events_poll_s),
        board=Board(db),
        answers=Answers(),
        door=Door(db),
        metrics=CollectorRegistry(),
        inspector=inspector,
        signer=Signer(settings.signing_key_path),
        turns=Turns(crowds(mine)),
        rates=Rates(mine.requests_per_s, mine.requests_burst),
        trials=Rates(
            TRIALS_PER_MINUTE / 60 / settings.api_processes,
            -(-TRIALS_AT_ONCE // settings.api_processes),
            exceeded=(
                f"webhooks of this owner were made or tried more than {TRIALS_PER_MINUTE} times a minute",
                "wait for as long as Retry-After says",
            ),
        ),
        pools=Pools(),
        checks=Kept(lambda: to_thread.run_sync(health.checks, db, ring, blobs, alive_s), stands_s),
        numbers=Kept(lambda: to_thread.run_sync(_numbers, db, alive_s), stands_s),
    )


def _numbers(db: Database, alive_s: float) -> list[Number]:
    return list(numbers(db, alive_s))


def from_environment() -> FastAPI:
    """The app that the settings describe: what each of several API processes serves.

    Ends the process with status 1 over a database at a step that is not for this program, which it could only harm.
    """
    end_with_parent()
    settings = Settings()
    logs.configure(json_lines=settings.log_json)
    _demand_current(settings)
    app = create_app(settings)
    gc.collect()
    gc.freeze()  # what is there now stays: looking through it again and again would hold up answers
    return app


def _demand_current(settings: Settings) -> None:
    db = Database.of(settings)
    try:
        require_usable(db)
    except ServiceError as error:
        log.error("not served", error=error.message, fix=error.fix)
        raise SystemExit(1) from error
    finally:
        db.dispose()


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[dict[str, Any]]:
    """Reconcile and sweep, each in a thread, and watch connections, for as long as the app runs.

    What is yielded is the state that the server hands to each connection.
    """
    traces.export("tilewright-api")
    state: State = app.state.tilewright
    settings = state.settings
    await to_thread.run_sync(state.blobs.sweep, retention.ABANDONED_S)
    stop = threading.Event()
    works: dict[str, Callable[[], None]] = {
        "reconcile": lambda: reconcile.loop(
            state.db,
            state.ring,
            stop,
            every_s=settings.reconcile_every_s,
            ring_again_after_s=settings.ring_again_after_s,
            max_lost_leases=settings.max_lost_leases,
            worker_alive_s=settings.worker_alive_s,
        ),
        "retention": lambda: retention.loop(
            state.db, state.blobs, stop, every_s=settings.retention_every_s, rules=retention.Rules.of(settings)
        ),
        "keys": lambda: access.settle_all_along(state.door, stop, every_s=access.SETTLE_EVERY_S),
        "webhooks": lambda: Sender(state.db, Terms.of(settings)).loop(stop),
    }
    threads = {name: lasting(name, work, stop.is_set) for name, work in works.items()}
    for thread in threads.values():
        thread.start()
    await to_thread.run_sync(state.inspector.warm)
    connections = Connections(share(settings), descriptors.for_connections(), counted=app.state.broken)
    try:
        async with connections.watched():
            yield {OF_APP_STATE: connections}
    finally:
        stop.set()
        await to_thread.run_sync(state.inspector.close)
        for name, thread in threads.items():
            await to_thread.run_sync(thread.join, WEBHOOKS_PATIENCE_S if name == "webhooks" else None)
        state.db.dispose()

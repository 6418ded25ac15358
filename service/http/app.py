"""The ASGI app."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from anyio import to_thread
from fastapi import FastAPI

from compiler.contract import COMPILER_VERSION
from service.blobs.local import Blobs
from service.config import Settings
from service.db.engine import Database
from service.http import errors
from service.http.requests import RequestIds
from service.http.routes import ROUTERS
from service.http.state import State
from service.jobs import reconcile
from service.jobs.doorbell import CeleryRing, Ring
from service.jobs.events import Feed

ABANDONED_UPLOAD_S = 24 * 3600.0

DESCRIPTION = """Send an ONNX model, get back one file that runs it fast.

`POST /compile` answers with a job; follow it at `/jobs/{id}/events`; download `/artifacts/{artifact_id}`.
Every failure is an RFC 9457 problem document with a stable `code`, whose `fault` it is and what would `fix` it.
"""


def create_app(settings: Settings, *, ring: Ring | None = None) -> FastAPI:
    """The app over a database that is already at its newest step; `ring` replaces the doorbell of the settings."""
    db = Database(settings.sqlalchemy_url)
    state = State(
        settings=settings,
        db=db,
        blobs=Blobs(settings.blob_root),
        ring=ring or CeleryRing(settings.broker_url),
        feed=Feed(db, settings.events_poll_s),
    )
    app = FastAPI(
        title="Tilewright", version=COMPILER_VERSION, description=DESCRIPTION, lifespan=_lifespan, redoc_url=None
    )
    app.state.tilewright = state
    app.add_middleware(RequestIds)
    errors.install(app)
    for router in ROUTERS:
        app.include_router(router)
    return app


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Reconcile in a thread for as long as the app runs."""
    state: State = app.state.tilewright
    settings = state.settings
    await to_thread.run_sync(state.blobs.sweep, ABANDONED_UPLOAD_S)
    stop = threading.Event()
    thread = threading.Thread(
        target=reconcile.loop,
        args=(state.db, state.ring, stop),
        kwargs={
            "every_s": settings.reconcile_every_s,
            "ring_again_after_s": settings.ring_again_after_s,
            "max_lost_leases": settings.max_lost_leases,
            "worker_alive_s": settings.worker_alive_s,
        },
        name="reconcile",
        daemon=True,
    )
    thread.start()
    try:
        yield
    finally:
        stop.set()
        await to_thread.run_sync(thread.join)
        state.db.dispose()

"""Every router of the service, in the order in which the documentation shows them."""

from __future__ import annotations

from fastapi import APIRouter

from service.http.routes import (
    artifacts,
    benchmarks,
    capabilities,
    compile,
    exchange,
    health,
    inferences,
    jobs,
    log,
    metrics,
    models,
    page,
    preflight,
    records,
    uploads,
)

ROUTERS: tuple[APIRouter, ...] = (
    compile.router,
    models.router,
    uploads.router,
    preflight.router,
    jobs.router,
    log.router,
    artifacts.router,
    benchmarks.router,
    inferences.router,
    exchange.router,
    records.router,
    capabilities.router,
    health.router,
    metrics.router,
    page.router,
)

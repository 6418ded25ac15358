"""Every router of the service, in the order in which the documentation shows them."""

from __future__ import annotations

from fastapi import APIRouter

from service.http.routes import (
    artifacts,
    audit,
    batches,
    benchmarks,
    capabilities,
    compile,
    compressions,
    exchange,
    health,
    inferences,
    jobs,
    keys,
    log,
    me,
    metrics,
    models,
    owners,
    page,
    preflight,
    quantizations,
    records,
    uploads,
    webhooks,
)

ROUTERS: tuple[APIRouter, ...] = (
    compile.router,
    models.router,
    uploads.router,
    preflight.router,
    jobs.router,
    batches.router,
    log.router,
    artifacts.router,
    benchmarks.router,
    inferences.router,
    quantizations.router,
    compressions.router,
    exchange.router,
    records.router,
    capabilities.router,
    webhooks.router,
    me.router,
    keys.router,
    owners.router,
    audit.router,
    health.router,
    metrics.router,
    page.router,
)

"""Every router of the service, in the order in which the documentation shows them."""

from __future__ import annotations

from importlib import import_module

from fastapi import APIRouter

from compiler.contract import job_kinds
from service.http.routes import (
    artifacts,
    audit,
    batches,
    capabilities,
    exchange,
    graphs,
    health,
    jobs,
    keys,
    log,
    me,
    metrics,
    models,
    owners,
    page,
    preflight,
    records,
    sessions,
    shares,
    tuning,
    uploads,
    webhooks,
    workloads,
)

ROUTERS: tuple[APIRouter, ...] = (
    models.router,
    workloads.router,
    uploads.router,
    preflight.router,
    jobs.router,
    tuning.router,
    graphs.router,
    shares.router,
    batches.router,
    log.router,
    artifacts.router,
    exchange.router,
    records.router,
    capabilities.router,
    webhooks.router,
    me.router,
    keys.router,
    sessions.router,
    owners.router,
    audit.router,
    health.router,
    metrics.router,
    page.router,
)
"""Those that make no kind of job."""


def routers() -> tuple[APIRouter, ...]:
    """All: what makes jobs, by kind, then the others."""
    return (*(import_module(kind.routes).router for kind in job_kinds.KINDS), *ROUTERS)

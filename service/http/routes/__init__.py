"""Every router of the service, in the order in which the documentation shows them."""

from __future__ import annotations

from fastapi import APIRouter

from service.http.routes import artifacts, compile, health, jobs, page, records

ROUTERS: tuple[APIRouter, ...] = (
    compile.router,
    jobs.router,
    artifacts.router,
    records.router,
    health.router,
    page.router,
)

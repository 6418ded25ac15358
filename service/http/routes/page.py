"""`/`: a plain page that shows readiness, workers and recent jobs, from the same API."""

from __future__ import annotations

from importlib.resources import files

from fastapi import APIRouter
from fastapi.responses import HTMLResponse

POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; "
    "frame-ancestors 'none'"
)

PAGE = files("service.http").joinpath("page.html").read_text()

router = APIRouter()


@router.get("/", include_in_schema=False)
async def page() -> HTMLResponse:
    """The page holds no data; its script asks for the API key and fetches with it."""
    return HTMLResponse(PAGE, headers={"Content-Security-Policy": POLICY})

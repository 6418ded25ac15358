"""What browsers are shown: `/` and its modules (`service/http/web`), `/docs` and `/openapi.json`.

The key lies in the storage of this origin, so no page of it runs a script that is not its own, loads anything from
another host, or can be framed. An artifact for browsers is run by the page's own copy of what such artifacts hold; its
module of WebAssembly imports nothing, so that it can do no more than compute.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterator, Mapping
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from fastapi import Request, Response
from fastapi.responses import HTMLResponse

from compiler.contract import job_kinds
from service.db.plain import dumps
from service.errors import NotFound
from service.http.gate import Gated
from service.http.responses.download import matches
from service.http.responses.error_pages import BY_CODE, PATH, STYLE
from service.http.responses.error_pages import render as error_page
from service.http.responses.problem_samples import SAMPLES

TYPES = {
    ".svg": "image/svg+xml",
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".LICENSE": "text/plain",
}


def _web(folder: Traversable, prefix: str = "") -> Iterator[tuple[str, bytes]]:
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _web(entry, f"{prefix}{entry.name}/")
        elif Path(entry.name).suffix in TYPES:
            yield prefix + entry.name, entry.read_bytes()


WEB: Mapping[str, bytes] = {
    **dict(_web(files("service.http").joinpath("web"))),
    **dict(_web(files("fastapi_swagger").joinpath("resources"), "swagger/")),
    **dict(_web(files("compiler").joinpath("pack", "browser"), "browser/")),
    "job_kinds.js": f"export const KINDS = {list(job_kinds.names())};\n".encode(),
}
"""The page's files by their paths below `/web/`."""


def _etag(content: bytes) -> str:
    return f'"{hashlib.sha256(content).hexdigest()}"'


ETAGS: Mapping[str, str] = {name: _etag(content) for name, content in WEB.items()}

router = Gated()


def _sources(tag: str, page: str) -> str:
    """The texts of these elements as a policy names them, by their hashes (CSP 3, section 8.1)."""
    texts = re.findall(f"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
    return " ".join(f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'" for text in texts)


def _headers(*directives: str) -> dict[str, str]:
    always = ("default-src 'none'", "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'")
    return {"Content-Security-Policy": "; ".join((*always, *directives)), "Referrer-Policy": "no-referrer"}


PAGE_HEADERS = _headers(
    "style-src 'self'", "script-src 'self' 'wasm-unsafe-eval'", "connect-src 'self'", "img-src 'self'"
)
DOCS_HEADERS = _headers("style-src 'self'", "script-src 'self'", "connect-src 'self'", "img-src 'self' data:")
ERROR_HEADERS = _headers(f"style-src {_sources('style', STYLE)}")


@router.get("/", include_in_schema=False)
async def page(request: Request) -> Response:
    """The page holds no data; its modules ask for the API key and fetch with it."""
    return _file(request, "index.html")


@router.get("/web/{name:path}", include_in_schema=False)
async def web(request: Request, name: str) -> Response:
    """One of the page's files. Raises `NotFound`."""
    return _file(request, name)


def _file(request: Request, name: str, headers: Mapping[str, str] = PAGE_HEADERS) -> Response:
    if name not in WEB:
        raise NotFound(f"the page has no file {name!r:.80}", fix="load the page again: it may be of another version")
    return _sent(request, WEB[name], ETAGS[name], TYPES[Path(name).suffix], headers)


@router.get("/docs", include_in_schema=False)
async def docs(request: Request) -> Response:
    """Every operation with its parameters, bodies and answers, to be searched and tried: Swagger UI."""
    return _file(request, "reference.html", DOCS_HEADERS)


@router.get(PATH + "/{code}", include_in_schema=False)
async def error(code: str) -> Response:
    """What a code of a problem means, and what to do about it."""
    kind = BY_CODE.get(code)
    if kind is None:
        raise NotFound("there is no such code", fix="docs/api.md lists them")
    sample = next((one for one in SAMPLES if one.code == code), None)
    example = None if sample is None else {"detail": sample.message, "fix": sample.fix}
    return HTMLResponse(error_page(kind, example), headers=ERROR_HEADERS)


@router.get("/openapi.json", include_in_schema=False)
async def openapi(request: Request) -> Response:
    """The OpenAPI document."""
    return _made(request, "openapi", dumps, "application/json", {})


def _made(request: Request, name: str, make: Any, media_type: str, headers: dict[str, str]) -> Response:
    """What `make` makes of the OpenAPI document, once for each app."""
    kept = request.app.state
    if not hasattr(kept, name):
        text = make(request.app.openapi()).encode()
        setattr(kept, name, (text, _etag(text)))
    text, etag = getattr(kept, name)
    return _sent(request, text, etag, media_type, headers)


def _sent(request: Request, content: bytes, etag: str, media_type: str, headers: Mapping[str, str]) -> Response:
    """The content, unless the caller has it already."""
    headers = {**headers, "ETag": etag, "Cache-Control": "no-cache"}
    if matches(request.headers.get("if-none-match"), etag):
        return Response(status_code=304, headers=headers)
    return Response(content, headers=headers, media_type=media_type)

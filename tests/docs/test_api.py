from __future__ import annotations

import itertools
import json
import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute

from compiler.contract import BenchmarkOptions, job_kinds
from compiler.errors import InternalError, OptionsError, SourceUnavailable, TilewrightError
from service.config import Settings
from service.errors import ArtifactNeverMade, RequestError, ServiceError
from service.http.admission.auth import KEY_HELP
from service.http.app import create_app
from service.http.responses.error_pages import KINDS
from service.http.responses.errors import BY_STATUS, response_to
from service.http.routes import routers
from tests.docs.pages import DOCS, PAGES, commands
from worker import problems

API = "\n".join(page.read_text() for page in sorted(DOCS.glob("api*.md")))
OPEN = ("/", "/docs", "/docs/errors/$CODE", "/openapi.json", "/healthz", "/readyz", "/metrics", "/version")
"""Paths that need no key."""
VARIABLE = re.compile(r"\$[A-Z]+")
ROUTES = [
    route
    for router in routers()
    for route in router.routes
    if isinstance(route, APIRoute) and not route.path.startswith("/web/")  # files of the page: no operations
]
OPERATIONS = sorted((method, route.path) for route in ROUTES for method in route.methods or ())


@dataclass(frozen=True)
class Curl:
    """What one `curl` line asks for."""

    method: str
    path: str
    query: dict[str, list[str]]
    sends_key: bool
    words: tuple[str, ...]

    def fits(self, route: APIRoute) -> bool:
        pattern = re.sub(r"\\{[^}]*\\}", r"\\$[A-Z]+", re.escape(route.path))
        return self.method in (route.methods or ()) and re.fullmatch(pattern, self.path) is not None


def parsed(words: list[str]) -> Curl:
    url = next(word for word in words if word.startswith("$TW/"))
    posts = any(word in ("-F", "-d", "--data-binary") for word in words)
    implied = "POST" if posts else "HEAD" if "-I" in words else "GET"
    method = words[words.index("-X") + 1] if "-X" in words else implied
    parts = urlsplit(url.removeprefix("$TW"))
    return Curl(method, parts.path.removeprefix("/v1"), parse_qs(parts.query), "$KEY" in words, tuple(words))


def curls(text: str) -> list[Curl]:
    return [parsed(words) for words in commands(text) if words[0] == "curl"]


EXAMPLES = [(page, curl) for page in PAGES for curl in curls(page.read_text())]
EVERY_EXAMPLE = pytest.mark.parametrize(
    "curl", [curl for _, curl in EXAMPLES], ids=[f"{page.name} {curl.method} {curl.path}" for page, curl in EXAMPLES]
)


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> FastAPI:
    folder = tmp_path_factory.mktemp("data")
    return create_app(Settings(data_dir=folder, database_url=f"sqlite:///{folder / 'tilewright.db'}"))


@pytest.mark.parametrize(("method", "path"), OPERATIONS)
def test_every_operation_has_a_heading_and_a_curl_line(method: str, path: str) -> None:
    assert f"\n### {method} {path}\n" in API
    routes = [route for route in ROUTES if route.path == path]
    assert any(curl.method == method and curl.fits(route) for curl in curls(API) for route in routes)


def test_the_page_has_a_heading_for_no_operation_that_is_not_there() -> None:
    assert sorted(re.findall(r"^### (GET|HEAD|POST|PUT|PATCH|DELETE) (\S+)$", API, re.MULTILINE)) == OPERATIONS


def test_the_app_has_the_operations_of_the_routers_and_its_own_description(app: FastAPI) -> None:
    described = {(method.upper(), path) for path, found in app.openapi()["paths"].items() for method in found}
    routed = {(method, route.path_format) for route in ROUTES for method in route.methods or ()}
    pages = {("GET", path) for path in ("/", "/docs", "/docs/errors/{code}", "/openapi.json")}
    assert described | pages == routed, "only pages for people, and the contract itself, are not part of it"


@EVERY_EXAMPLE
def test_a_curl_line_asks_for_a_route_with_parameters_that_it_has(curl: Curl, app: FastAPI) -> None:
    fitting = [route for route in ROUTES if curl.fits(route)]
    assert len(fitting) == 1, curl
    known = {
        parameter["name"]
        for parameter in app.openapi()["paths"]
        .get(fitting[0].path_format, {})
        .get(curl.method.lower(), {})
        .get("parameters", ())
        if parameter["in"] == "query"
    }
    assert set(curl.query) <= known
    assert curl.sends_key == (curl.path not in OPEN)


@EVERY_EXAMPLE
def test_a_curl_line_sends_options_that_are_accepted(curl: Curl) -> None:
    parts = [word.removeprefix("options=") for word in curl.words if word.startswith("options=")]
    for text in (*parts, *curl.query.get("options", ())):
        kind = next((kind for kind in job_kinds.KINDS if f"/{kind.name}s" == curl.path), job_kinds.COMPILE)
        assert kind.options is not None
        given = json.loads(text)
        assert given.keys() <= kind.options.from_json(given).to_json().keys()


@pytest.mark.parametrize("page", [DOCS / "api.md", DOCS / "start.md"], ids=lambda page: page.name)
def test_the_address_and_the_key_are_those_of_the_defaults(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TILEWRIGHT_DATA_DIR", "TILEWRIGHT_PORT", "TILEWRIGHT_HOST", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    settings = Settings()
    text = page.read_text()
    assert f"TW=http://{settings.host}:{settings.port}\n" in text
    assert f"Authorization: Bearer $(cat ~/{settings.api_key_file.relative_to(Path.home())})" in text
    assert "Authorization: Bearer" in KEY_HELP


def subclasses(kind: type[TilewrightError]) -> set[type[TilewrightError]]:
    return {kind}.union(*(subclasses(child) for child in kind.__subclasses__()))


def rows(head: str) -> list[list[str]]:
    """The cells of the table under this head, less the head."""
    _, _, rest = API.partition(f"\n{head}\n")
    lines = itertools.takewhile(lambda line: line.startswith("|"), rest.splitlines())
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines][1:]


def test_every_error_of_a_request_has_a_row_with_its_status_and_fault() -> None:
    kinds = subclasses(ServiceError) - {ServiceError, RequestError} | {OptionsError, SourceUnavailable, InternalError}
    kinds = {kind for kind in kinds if kind.__module__ in ("service.errors", "compiler.errors")}
    answers = {kind: response_to(kind("why"), "/").status_code for kind in kinds}
    expected = {(f"`{kind.code}`", str(status), kind.fault) for kind, status in answers.items()}
    router = {(f"`{code}`", str(status), "caller") for status, code in BY_STATUS.items()}
    assert {tuple(row[:3]) for row in rows("| code | status | fault | what to do |")} == expected | router


def test_every_row_of_an_error_is_its_page() -> None:
    shown = [(f"`{kind.code}`", str(kind.status or ""), kind.fault, kind.advice) for kind in KINDS]
    reported = [tuple(row) for row in rows("| code | status | fault | what to do |")]
    of_jobs = [(f"`{c}`", "", row[1], row[2]) for row in rows("| code of a job | fault | |") for c in codes(row[0])]
    answered = {row[0] for row in reported}
    assert shown == reported + [row for row in of_jobs if row[0] not in answered]


def codes(cell: str) -> list[str]:
    return re.findall(r"`(\w+)`", cell)


def test_every_error_of_a_job_has_a_row_with_its_fault() -> None:
    leaves = {kind for kind in subclasses(TilewrightError) if not kind.__subclasses__()}
    ended = {kind for kind in leaves if kind.__module__ in ("compiler.errors", problems.__name__)}
    ended = ended - {OptionsError, SourceUnavailable} | {InternalError, ArtifactNeverMade}
    reported = {
        (code, row[1]) for row in rows("| code of a job | fault | |") for code in re.findall(r"`(\w+)`", row[0])
    }
    assert reported == {(kind.code, kind.fault) for kind in ended} | {
        ("worker_lost", "machine"),
        ("queue_time_limit", "machine"),
    }


def test_every_option_of_a_benchmark_has_a_row_with_its_default() -> None:
    reported = {row[0].strip("`"): json.loads(row[1].strip("`")) for row in rows("| option | default | |")}
    assert reported == BenchmarkOptions().to_json()


def test_every_filter_of_records_has_a_row(app: FastAPI) -> None:
    parameters = {one["name"] for one in app.openapi()["paths"]["/tuning-records"]["get"]["parameters"]}
    named = {name for row in rows("| filter | |") for name in re.findall(r"`(\w+)`", row[0])}
    assert named == parameters - {"format", "limit", "cursor", "accept"}


def test_variables_in_examples_are_defined_on_the_page() -> None:
    for text in (API, (DOCS / "start.md").read_text()):
        used = {name[1:] for curl in curls(text) for name in VARIABLE.findall(" ".join(curl.words))}
        assert {name for name in used if f"\n{name}=" not in text} == set(), text.partition("\n")[0]

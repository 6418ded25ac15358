from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute

from compiler.contract import CompileOptions
from service.config import Settings
from service.http.app import create_app
from service.http.auth import KEY_HELP
from service.http.errors import STATUS
from service.http.routes import ROUTERS
from tests.docs.pages import DOCS, PAGES, ROOT, commands

API = (DOCS / "api.md").read_text()
OPEN = ("/", "/healthz", "/readyz")
"""Paths that need no key."""
VARIABLE = re.compile(r"\$[A-Z]+")
ROUTES = [route for router in ROUTERS for route in router.routes if isinstance(route, APIRoute)]
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
    posts = any(word in ("-F", "--data-binary") for word in words)
    method = words[words.index("-X") + 1] if "-X" in words else "POST" if posts else "GET"
    parts = urlsplit(url.removeprefix("$TW"))
    return Curl(method, parts.path, parse_qs(parts.query), "$KEY" in words, tuple(words))


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
    assert f"## {method} {path}\n" in API
    routes = [route for route in ROUTES if route.path == path]
    assert any(curl.method == method and curl.fits(route) for curl in curls(API) for route in routes)


def test_the_page_has_a_heading_for_no_operation_that_is_not_there() -> None:
    assert sorted(re.findall(r"^## (GET|POST|PUT|PATCH|DELETE) (\S+)$", API, re.MULTILINE)) == OPERATIONS


def test_the_app_has_the_operations_of_the_routers_and_its_own_description(app: FastAPI) -> None:
    described = {(method.upper(), path) for path, found in app.openapi()["paths"].items() for method in found}
    assert described | {("GET", "/")} == set(OPERATIONS), "only the page for people is not part of the contract"
    for path in (app.docs_url, app.openapi_url):
        assert f"`{path}`" in API


@EVERY_EXAMPLE
def test_a_curl_line_asks_for_a_route_with_parameters_that_it_has(curl: Curl) -> None:
    fitting = [route for route in ROUTES if curl.fits(route)]
    assert len(fitting) == 1, curl
    known = {field.alias for field in fitting[0].dependant.query_params}
    assert set(curl.query) <= known
    assert curl.sends_key == (curl.path not in OPEN)


@EVERY_EXAMPLE
def test_a_curl_line_sends_options_that_are_accepted(curl: Curl) -> None:
    parts = [word.removeprefix("options=") for word in curl.words if word.startswith("options=")]
    for text in (*parts, *curl.query.get("options", ())):
        assert CompileOptions.from_json(json.loads(text)) != CompileOptions()


@pytest.mark.parametrize("page", [DOCS / "api.md", ROOT / "README.md"], ids=lambda page: page.name)
def test_the_address_and_the_key_are_those_of_the_defaults(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TILEWRIGHT_DATA_DIR", "TILEWRIGHT_PORT", "TILEWRIGHT_HOST", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    settings = Settings()
    text = page.read_text()
    assert f"TW=http://{settings.host}:{settings.port}\n" in text
    assert f"Authorization: Bearer $(cat ~/{settings.api_key_file.relative_to(Path.home())})" in text
    assert "Authorization: Bearer" in KEY_HELP


def test_every_status_that_an_error_can_have_is_explained() -> None:
    explained = {int(number) for row in re.findall(r"^\| ([\d, ]+) \|", API, re.MULTILINE) for number in row.split(",")}
    assert set(STATUS.values()) <= explained


def test_variables_in_examples_are_defined_on_the_page() -> None:
    for page in (DOCS / "api.md", ROOT / "README.md"):
        text = page.read_text()
        used = {name[1:] for curl in curls(text) for name in VARIABLE.findall(" ".join(curl.words))}
        assert {name for name in used if f"\n{name}=" not in text} == set(), page

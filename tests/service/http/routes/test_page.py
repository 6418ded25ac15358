"""What browsers are shown: no script that is not the page's own, nothing from another host."""

from __future__ import annotations

import base64
import hashlib
import re
from html.parser import HTMLParser

import pytest
from fastapi.testclient import TestClient

from service.http.routes.page import WEB
from tests.service.databases import any_database

LOADS = {"src", "href", "srcset", "action", "data", "poster"}


class Page(HTMLParser):
    """Tags, what they load, and texts of scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.loads: list[str] = []
        self.inline: list[tuple[str, str]] = []
        self.handlers: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.loads += [value or "" for name, value in attrs if name in LOADS]
        self.handlers += [name for name, _ in attrs if name.startswith("on") or name == "style"]

    def handle_data(self, data: str) -> None:
        if self.lasttag in ("script", "style") and data.strip():
            self.inline.append((self.lasttag, data))


def directives(policy: str) -> dict[str, list[str]]:
    parts = [part.split() for part in policy.split(";")]
    return {name: sources for name, *sources in parts}


@any_database
@pytest.mark.parametrize("path", ["/", "/docs", "/docs/errors/not_allowed"])
def test_a_page_runs_and_loads_its_own_alone(client: TestClient, path: str) -> None:
    answer = client.get(path, headers={"Authorization": ""})
    assert answer.status_code == 200
    page = Page(answer.text)
    assert page.tags
    assert all(one.startswith(("/", "#")) and not one.startswith("//") for one in page.loads), page.loads
    assert page.handlers == []
    policy = directives(answer.headers["content-security-policy"])
    for name in ("default-src", "base-uri", "form-action", "frame-ancestors"):
        assert policy[name] == ["'none'"]
    assert not re.search(r"(?<!wasm-)unsafe|\*|https?:", answer.headers["content-security-policy"])
    assert bool(page.inline) == path.startswith("/docs/errors")
    for tag, text in page.inline:
        allowed = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"'sha256-{allowed}'" in policy[f"{tag}-src"], tag
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "no-referrer"


@any_database
def test_the_files_of_the_page_are_there_and_load_no_others(client: TestClient) -> None:
    index = client.get("/")
    policy = directives(index.headers["content-security-policy"])
    assert policy["style-src"] == policy["connect-src"] == ["'self'"]
    assert policy["script-src"] == ["'self'", "'wasm-unsafe-eval'"]
    wanted = {one for text in (index.text, client.get("/docs").text) for one in Page(text).loads if one[:5] == "/web/"}
    found: dict[str, str] = {}
    while missing := wanted - found.keys():
        for path in missing:
            answer = client.get(path, headers={"Authorization": ""})
            assert answer.status_code == 200, path
            again = client.get(path, headers={"If-None-Match": answer.headers["etag"]})
            assert (again.status_code, again.content) == (304, b"")
            found[path] = answer.headers["content-type"].partition(";")[0]
            if path.endswith(".js"):
                wanted |= set(re.findall(r'^import .* from "([^"]+)"', answer.text, re.MULTILINE))
                wanted |= set(re.findall(r'\bimport\("(/web/[^"]+)"\)', answer.text))
                beside = re.findall(r'Worker\(new URL\("\./([^"]+)", import\.meta\.url\)', answer.text)
                wanted |= {f"{path.rpartition('/')[0]}/{name}" for name in beside}
    assert set(found.values()) == {"text/css", "text/javascript", "image/svg+xml"}
    modules = {f"/web/{name}" for name in WEB if not name.endswith((".html", ".LICENSE"))}
    assert modules == set(found), "every file is used"


@any_database
@pytest.mark.parametrize("name", ["nothing.js", "../app.py", "vendor", "%2e%2e/app.py"])
def test_the_page_has_no_other_files(client: TestClient, name: str) -> None:
    assert client.get(f"/web/{name}").status_code == 404


def test_what_others_wrote_is_what_they_published() -> None:
    """htm 3.1.1 with Preact in one module, as its package has it; `docs/decisions/page-without-a-build.md` says why."""
    published = "72284e8e9079c87817145df1110f74e8a2aa040b2fc384922e18dfcb46fc1fd7"
    assert hashlib.sha256(WEB["vendor/htm-preact.js"]).hexdigest() == published
    assert {name for name in WEB if name.endswith(".LICENSE")} == {"vendor/htm.LICENSE", "vendor/preact.LICENSE"}


@any_database
def test_the_document_is_sent_once_to_who_keeps_it(client: TestClient) -> None:
    first = client.get("/openapi.json")
    again = client.get("/openapi.json", headers={"If-None-Match": first.headers["etag"]})
    assert (first.status_code, again.status_code, again.content) == (200, 304, b"")
    assert first.json() == client.app.openapi()  # type: ignore[attr-defined]


@any_database
def test_every_answer_is_taken_for_what_it_is_said_to_be(client: TestClient) -> None:
    for path in ("/healthz", "/jobs", "/nowhere", "/metrics"):
        assert client.get(path).headers.get_list("x-content-type-options") == ["nosniff"], path

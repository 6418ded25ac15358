"""The link to the page that `tilewright up` prints."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from typing import Any

import httpx
import pytest

from tilewright.up import page


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    file = tmp_path / "api_key"
    file.write_text("twk_secret\n")
    return file


def answering(monkeypatch: pytest.MonkeyPatch, answer: httpx.Response | Exception) -> list[Any]:
    """What is asked of the service, which answers this."""
    asked: list[Any] = []

    def post(url: str, **given: Any) -> httpx.Response:
        asked.append((url, given["headers"], given["trust_env"]))
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(httpx, "post", post)
    return asked


def test_a_link_is_asked_for_with_the_key_and_holds_the_address(
    monkeypatch: pytest.MonkeyPatch, key_file: Path
) -> None:
    made = httpx.Response(201, json={"link": "/#/enter/twl_x"}, request=httpx.Request("POST", "http://h:1"))
    asked = answering(monkeypatch, made)
    assert page.link("http://h:1", key_file) == "http://h:1/#/enter/twl_x"
    assert asked == [("http://h:1/session/links", {"Authorization": "Bearer twk_secret"}, False)]


@pytest.mark.parametrize(
    "answer",
    [
        httpx.Response(403, json={"code": "quota_exceeded"}, request=httpx.Request("POST", "http://h:1")),
        httpx.Response(201, text="no JSON", request=httpx.Request("POST", "http://h:1")),
        httpx.Response(201, json={}, request=httpx.Request("POST", "http://h:1")),
        httpx.ConnectError("gone"),
    ],
    ids=["refused", "not JSON", "no link", "gone"],
)
def test_without_a_link_there_is_the_address(
    monkeypatch: pytest.MonkeyPatch, key_file: Path, answer: httpx.Response | Exception
) -> None:
    answering(monkeypatch, answer)
    assert page.link("http://h:1", key_file) == "http://h:1"
    assert page.link("http://h:1", key_file.with_name("missing")) == "http://h:1"


def test_a_browser_is_opened_where_there_is_a_display(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []

    def opens(address: str) -> bool:
        opened.append(address)
        return True

    monkeypatch.setattr(webbrowser, "open", opens)
    monkeypatch.setattr("sys.platform", "linux")
    for name in page.DISPLAYS:
        monkeypatch.delenv(name, raising=False)
    assert page.show("http://h:1") is False
    assert opened == [], "a browser of the terminal is none"
    monkeypatch.setenv("DISPLAY", ":0")
    assert page.show("http://h:1") is True
    assert opened == ["http://h:1"]


def test_a_browser_that_cannot_be_opened_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def opens(address: str) -> bool:
        raise webbrowser.Error(address)

    monkeypatch.setattr(webbrowser, "open", opens)
    monkeypatch.setenv("BROWSER", "none")
    assert page.show("http://h:1") is False

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tilewright import http
from tilewright.client import Client
from tilewright.errors import RequestRefused, ServerUnreachable

ID = "019aa1f0-7c2e-7a4b-9d0e-5b1f6d0c3a11"


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What was slept, without sleeping."""
    found: list[float] = []
    monkeypatch.setattr("tilewright.loops.time.sleep", found.append)
    return found


@pytest.mark.parametrize("trouble", [1, 429, 502, 503, 504])
def test_what_reads_is_tried_again_until_it_is_answered(client: Client, server: Any, trouble: int) -> None:
    server.refusals = [0, trouble, trouble]
    assert client.job(ID).id == ID
    assert len(server.seen) == 3


@pytest.mark.parametrize(("trouble", "error"), [(1, ServerUnreachable), (503, RequestRefused)])
def test_after_several_attempts_it_is_given_up(client: Client, server: Any, trouble: int, error: type) -> None:
    server.refusals = [trouble] * 100
    with pytest.raises(error):
        client.job(ID)
    assert len(server.seen) == http.ATTEMPTS


def test_what_changes_something_is_tried_once(client: Client, server: Any) -> None:
    server.refusals = [0, 1]
    with pytest.raises(ServerUnreachable):
        client.cancel(ID)
    assert len(server.seen) == 1


@pytest.mark.parametrize("status", [400, 401, 404, 409, 422, 500])
def test_an_answer_that_will_not_change_is_not_asked_for_again(client: Client, server: Any, status: int) -> None:
    server.refusals = [status]
    with pytest.raises(RequestRefused) as caught:
        client.job(ID)
    assert caught.value.status == status
    assert len(server.seen) == 1


def test_pauses_grow_and_retry_after_is_honoured(server: Any, pauses: list[float]) -> None:
    with Client("http://server.test", transport=server.transport(), pause_s=1.0) as client:
        server.refusals = [0, 503, 1, 1]
        client.job(ID)
    first, second, asked = pauses
    assert 0.75 <= first <= 1.25
    assert 1.5 <= second <= 2.5
    assert asked == 7


def test_a_wait_of_hours_is_not_obeyed(pauses: list[float]) -> None:
    busy = httpx.MockTransport(lambda request: httpx.Response(503, json={"code": "x"}, headers={"Retry-After": "9999"}))
    with Client("http://server.test", transport=busy, pause_s=1.0) as client, pytest.raises(RequestRefused):
        client.job(ID)
    assert set(pauses) == {http.LONGEST_PAUSE_S}


@pytest.mark.parametrize("answer", [httpx.Response(200, text="<html>"), httpx.Response(200, json=[1])])
def test_another_program_on_the_port_is_no_server(answer: httpx.Response) -> None:
    with (
        Client("http://server.test", transport=httpx.MockTransport(lambda request: answer), pause_s=0.0) as client,
        pytest.raises(ServerUnreachable, match="not a JSON object"),
    ):
        client.job(ID)


def test_an_error_page_that_is_no_problem_document_names_the_address() -> None:
    proxy = httpx.MockTransport(lambda request: httpx.Response(418, text="teapot"))
    with (
        Client("http://server.test", transport=proxy, pause_s=0.0) as client,
        pytest.raises(RequestRefused, match="418") as caught,
    ):
        client.job(ID)
    assert "http://server.test" in caught.value.fix


@pytest.mark.parametrize("url", ["http://[", "no scheme", "ftp://elsewhere"])
def test_an_address_that_is_none_is_told_at_once(url: str) -> None:
    with pytest.raises(ServerUnreachable), Client(url, pause_s=0.0) as client:
        client.job(ID)

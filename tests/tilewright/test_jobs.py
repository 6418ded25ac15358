"""A job that is asked itself, and what notebooks show."""

from __future__ import annotations

import asyncio
import pickle
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import httpx
import pytest

import tilewright
from tests.tilewright.cli.test_server_work import PREFLIGHT, quantizing
from tests.tilewright.fake_server import ARTIFACT, BENCHMARK, JOB, OTHER, FakeServer
from tilewright.benchmark import Benchmark
from tilewright.client import Client
from tilewright.errors import JobFailed, UsageError
from tilewright.wire import Job, Preflight


def shown(fragment: str) -> str:
    """The text of a fragment, which is well formed."""
    return " ".join(ElementTree.fromstring(f"<div>{fragment}</div>").itertext())


def test_a_job_waits_for_its_end_and_tells_what_it_came_to(client: Client, server: FakeServer, model: Path) -> None:
    server.latency_s, server.largest_error = 1e-3, 2e-7
    queued = client.compile(model)
    assert not queued.ended
    seen: list[str] = []
    ended = queued.wait(lambda event: seen.append(event.kind))
    assert (ended.state, ended.latency_s, ended.error) == ("SUCCEEDED", 1e-3, 2e-7)
    assert seen == ["state", "phase", "notice", "state"]
    assert queued.url == f"http://server.test/#/jobs/{JOB}"
    assert ended.wait() is ended


def test_a_job_is_downloaded_after_its_end_under_its_name(
    client: Client, server: FakeServer, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert client.compile(model).download() == Path(f"{ARTIFACT}.tw")
    assert Path(f"{ARTIFACT}.tw").read_bytes() == server.artifact
    server.name = "../nets/net.onnx"
    assert client.job(JOB).download() == Path("net.tw")
    assert client.job(JOB).download(tmp_path / "a.tw") == tmp_path / "a.tw"
    quantizing(server, b"quantised")
    server.state, server.name = "SUCCEEDED", ""
    assert client.job(JOB).download().read_bytes() == b"quantised"
    server.problem = {"message": "it cannot be compiled"}
    server.state = "FAILED"
    with pytest.raises(JobFailed, match="it cannot be compiled"):
        client.job(JOB).download()


def test_every_job_of_a_client_can_be_asked(client: Client, server: FakeServer, model: Path) -> None:
    found = [client.compile(model), *client.compile(model, [{}, {}]), *client.jobs(), client.job(JOB)]
    found += [client.cancel(JOB), client.finish(JOB), client.clone(JOB), client.label(JOB, name="a"), client.wait(JOB)]
    assert {one.url for one in found} == {f"http://server.test/#/jobs/{JOB}"}


def test_a_job_of_the_client_for_event_loops_is_not_asked_itself(server: FakeServer) -> None:
    async def found() -> Job:
        transport = httpx.MockTransport(server.answer)
        async with tilewright.AsyncClient("http://server.test", "k", transport=transport) as client:
            return await client.job(JOB)

    job = asyncio.run(found())
    for ask in (job.wait, job.download, lambda: job.url):
        with pytest.raises(UsageError, match="has no client to ask"):
            ask()
    assert JOB in shown(job._repr_html_())


def test_a_job_goes_to_another_process_without_its_connections(client: Client) -> None:
    job = client.job(JOB)
    again = pickle.loads(pickle.dumps(job))
    assert (again, again.client, job.client) == (job, None, client)


def test_a_notebook_shows_a_job_as_it_is_now(client: Client, server: FakeServer) -> None:
    job = client.job(JOB)
    server.state, server.latency_s, server.largest_error = "SUCCEEDED", 1.08e-3, 2.3e-7
    server.name = "<b>net</b>"
    server.compared = [{"peer": "onnxruntime", "said": "1.54 times as fast"}]
    said = shown(job._repr_html_())
    for part in (JOB, "<b>net</b>", "SUCCEEDED", "1.08 ms", "2.3e-07", "1.54 times as fast", job.url):
        assert part in said
    asked = len(server.seen)
    client.job(JOB)._repr_html_()
    assert len(server.seen) == asked + 1, "what has ended is not asked for again"
    server.refusals = [404]
    assert "QUEUED" in shown(job._repr_html_()), "as it was, where the server does not answer"


def test_a_notebook_shows_a_preflight() -> None:
    said = shown(Preflight.from_json(PREFLIGHT)._repr_html_())
    for part in ("refused: 1 node cannot be compiled", "Conv", "12", "supported", "it is unknown", "use Relu", "batch"):
        assert part in said
    fine = Preflight.from_json({"ok": True, "operators": [], "refusals": []})
    assert "ok: it would be compiled" in shown(fine._repr_html_())


def test_a_notebook_shows_a_benchmark(client: Client, server: FakeServer) -> None:
    queued = client.result(BENCHMARK, Benchmark)
    assert "QUEUED" in shown(queued._repr_html_())
    server.state = "SUCCEEDED"
    said = shown(client.result(BENCHMARK, Benchmark)._repr_html_())
    for part in (ARTIFACT, OTHER, "4.1 ms", "700", "a is faster by 1.23x ± 0.02", "note: "):
        assert part in said


@pytest.mark.parametrize(
    ("value", "said"), [(None, ""), (2.5, "2.5 s"), (1.0801e-3, "1.08 ms"), (2e-6, "2 us"), (0.0, "0 us")]
)
def test_seconds_are_said_in_the_unit_that_fits(value: Any, said: str) -> None:
    from tilewright.notebook import seconds

    assert seconds(value) == said

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tilewright.client import FRUITLESS, Client
from tilewright.errors import BrokenDownload, JobFailed, RequestRefused, ServerUnreachable, UsageError
from tilewright.wire import JobEvent

ID = "019aa1f0-7c2e-7a4b-9d0e-5b1f6d0c3a11"


def test_a_model_is_sent_with_key_options_and_length(client: Client, server: Any, tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(b"onnx" * 1000)
    job = client.compile(tmp_path / "m.onnx", {"threads": 2})
    assert (job.id, job.state) == (ID, "QUEUED")
    (request,) = server.seen
    assert request.content == b"onnx" * 1000
    assert request.headers["content-length"] == "4000"
    assert request.headers["authorization"] == "Bearer twk_key"
    assert request.url.params["options"] == '{"threads": 2}'


def test_a_submission_is_repeated_whole_under_one_idempotency_key(client: Client, server: Any, tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(b"onnx")
    server.refusals = [0, 1, 1]
    client.compile(tmp_path / "m.onnx")
    assert len(server.seen) == 3
    assert len({request.headers["idempotency-key"] for request in server.seen}) == 1
    assert {request.content for request in server.seen} == {b"onnx"}


def test_bytes_can_be_sent_too(client: Client, server: Any) -> None:
    client.compile(b"bytes")
    assert server.seen[0].content == b"bytes"


def test_a_file_that_is_not_there_is_a_usage_error(client: Client) -> None:
    with pytest.raises(UsageError, match="No such file"):
        client.compile("/no/such.onnx")


def test_a_broken_event_stream_goes_on_where_it_stopped(client: Client, server: Any) -> None:
    server.cuts = [75, 150, 0, None]
    seen: list[JobEvent] = []
    job = client.wait(ID, seen.append)
    assert [event.seq for event in seen] == [1, 2, 3, 4]
    assert [event.kind for event in seen] == ["state", "phase", "notice", "state"]
    assert job.state == "SUCCEEDED"
    resumed = [request.headers.get("last-event-id") for request in server.seen if request.url.path.endswith("events")]
    assert resumed[0] is None
    assert resumed[-1] not in (None, "0")


def test_a_server_that_stays_away_ends_the_waiting(client: Client, server: Any) -> None:
    server.refusals = [1] * 100
    with pytest.raises(ServerUnreachable, match="refused"):
        client.wait(ID)
    assert len(server.seen) == FRUITLESS


def test_a_failed_job_raises_with_the_servers_reason(client: Client, server: Any) -> None:
    server.problem = {"code": "malformed_model", "message": "truncated", "fix": "send it whole"}
    server.events[-1] = ("state", {"state": "FAILED"})
    job = client.wait(ID)
    with pytest.raises(JobFailed, match="truncated") as caught:
        job.require_success()
    assert caught.value.fix == "send it whole"


def test_a_problem_document_becomes_an_error_with_code_and_fix(client: Client) -> None:
    with pytest.raises(RequestRefused, match="nothing here") as caught:
        client.report(ID)
    assert caught.value.problem["code"] == "no_such_route"
    assert caught.value.fix == "look elsewhere"


def test_records_are_read_page_by_page(client: Client, server: Any) -> None:
    server.pages = {
        "": {"records": [{"n": 1}, {"n": 2}], "next_cursor": "c"},
        "c": {"records": [{"n": 3}], "next_cursor": None},
    }
    assert [record["n"] for record in client.tuning_records(operator="Conv")] == [1, 2, 3]
    assert server.seen[0].url.params["operator"] == "Conv"
    assert [record["n"] for record in client.tuning_records(limit=2)] == [1, 2]


def test_an_id_that_is_none_never_reaches_a_path(client: Client, server: Any) -> None:
    with pytest.raises(UsageError, match="not an id"):
        client.job("../admin")
    assert server.seen == []


def test_a_download_is_checked_and_put_in_place(client: Client, server: Any, tmp_path: Path) -> None:
    steps: list[tuple[int, int]] = []
    path = client.download(ID, tmp_path / "m.tw", lambda here, whole: steps.append((here, whole)))
    assert path.read_bytes() == server.artifact
    assert steps[-1] == (len(server.artifact), len(server.artifact))
    assert [entry.name for entry in tmp_path.iterdir()] == ["m.tw"]


def test_a_broken_download_is_resumed_by_range(client: Client, server: Any, tmp_path: Path) -> None:
    server.cuts = [3000, 2000, None]
    assert client.download(ID, tmp_path / "m.tw").read_bytes() == server.artifact
    assert [request.headers.get("range") for request in server.seen] == [None, "bytes=3000-", "bytes=5000-"]


def test_a_download_given_up_is_resumed_by_the_next_one(client: Client, server: Any, tmp_path: Path) -> None:
    server.cuts = [3000, *[0] * 20]
    with pytest.raises(ServerUnreachable, match="broke off"):
        client.download(ID, tmp_path / "m.tw")
    assert not (tmp_path / "m.tw").exists()
    server.cuts, server.seen = [], []
    assert client.download(ID, tmp_path / "m.tw").read_bytes() == server.artifact
    assert [request.headers.get("range") for request in server.seen] == ["bytes=3000-"]


def test_a_part_that_is_whole_already_is_only_checked(client: Client, server: Any, tmp_path: Path) -> None:
    (tmp_path / f".m.tw.{ID}.part").write_bytes(server.artifact)
    assert client.download(ID, tmp_path / "m.tw").read_bytes() == server.artifact


def test_damaged_bytes_are_refused_and_removed(client: Client, server: Any, tmp_path: Path) -> None:
    server.etag = f'"{hashlib.sha256(b"other").hexdigest()}"'
    with pytest.raises(BrokenDownload, match="announced"):
        client.download(ID, tmp_path / "m.tw")
    assert list(tmp_path.iterdir()) == []


def test_a_file_without_a_checksum_is_refused(client: Client, server: Any, tmp_path: Path) -> None:
    server.etag = '"weak"'
    with pytest.raises(BrokenDownload, match="no SHA-256"):
        client.download(ID, tmp_path / "m.tw")
    assert not (tmp_path / "m.tw").exists()


def test_importing_tilewright_loads_no_other_package_of_ours() -> None:
    program = (
        "import sys, tilewright, tilewright.cli\n"
        "print(sorted({n.partition('.')[0] for n in sys.modules} & {'compiler', 'service', 'worker', 'migrations', 'celery'}))"
    )
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=root, check=True)
    assert done.stdout.strip() == "[]"

"""The client against the real API over TCP, without a worker: what needs a device is in tests/end_to_end."""

from __future__ import annotations

import asyncio
import hashlib
import shutil
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import httpx
import numpy as np
import pytest
import uvicorn

from compiler.contract import bundle_digest
from service.config import Settings
from service.db import migrate
from service.db.engine import Database
from service.http.app import create_app
from service.jobs.accounts import access
from tests.servers import GUARD_S
from tests.tilewright.messages import message
from tests.tilewright.test_package import model
from tilewright import uploads
from tilewright.asynchronous import AsyncClient
from tilewright.client import Client
from tilewright.download import download
from tilewright.errors import BrokenDownload, JobFailed, RequestRefused, UsageError

pytestmark = pytest.mark.processes

KEY = "twk_" + "0" * 43


class NoRing:
    """There is nobody to wake."""

    def __call__(self, queue: str, job: uuid.UUID | None = None) -> None:
        pass

    def check(self) -> None:
        pass


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("data")


@pytest.fixture(scope="module")
def url(folder: Path) -> Iterator[str]:
    settings = Settings(data_dir=folder, database_url=f"sqlite:///{folder / 'tilewright.db'}")
    migrate.upgrade(settings.sqlalchemy_url)
    db = Database(settings.sqlalchemy_url)
    access.register(db, access.LOCAL_OWNER, KEY, access.SCOPES, "tests")
    db.dispose()
    server = uvicorn.Server(
        uvicorn.Config(create_app(settings, ring=NoRing()), log_level="warning", timeout_graceful_shutdown=1)
    )
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        thread = threading.Thread(target=server.run, args=([listening],))
        thread.start()
        try:
            end = time.monotonic() + GUARD_S
            while not server.started:
                assert thread.is_alive()
                assert time.monotonic() < end
                time.sleep(0.01)
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(GUARD_S)


@pytest.fixture
def real(url: str) -> Iterator[Client]:
    with Client(url, KEY) as client:
        yield client


def test_a_download_of_which_the_server_has_lost_a_bit_ends_with_no_file_and_the_reason(
    real: Client, url: str, folder: Path, tmp_path: Path
) -> None:
    data = np.random.default_rng(8).bytes(9 << 20)
    kept = real.upload(data)
    blob = folder / "blobs" / kept.digest[:2] / kept.digest
    flipped = bytearray(data)
    flipped[5] ^= 64
    blob.write_bytes(flipped)
    with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {KEY}"}) as plain:
        with pytest.raises(httpx.RemoteProtocolError, match="without sending complete"):
            plain.get(f"/models/{kept.digest}/file")
        blob.write_bytes(flipped)
        with pytest.raises(httpx.RemoteProtocolError, match="without sending complete"):
            plain.get(f"/models/{kept.digest}/file", headers={"Range": "bytes=100-"})
    blob.write_bytes(flipped)
    with pytest.raises(RequestRefused) as caught:
        download(real._http, f"/models/{kept.digest}/file", "part", tmp_path / "model.onnx")
    assert caught.value.problem["code"] == "blob_lost"
    assert not (tmp_path / "model.onnx").exists()
    assert real.upload(data).digest == kept.digest
    with pytest.raises(BrokenDownload, match=kept.digest):  # the part that had arrived does not fit
        download(real._http, f"/models/{kept.digest}/file", "part", tmp_path / "model.onnx")
    assert download(real._http, f"/models/{kept.digest}/file", "part", tmp_path / "model.onnx").read_bytes() == data


def test_a_model_with_external_data_is_called_as_the_client_foresees(real: Client, tmp_path: Path) -> None:
    path = model(tmp_path, "w.bin", "sub/v.bin")
    kept = real.upload(path)
    digests = {name: hashlib.sha256((tmp_path / name).read_bytes()).hexdigest() for name in ("w.bin", "sub/v.bin")}
    assert kept.digest == bundle_digest(hashlib.sha256(path.read_bytes()).hexdigest(), digests)
    assert {file["path"]: file["sha256"] for file in kept.files} == digests
    reported: list[tuple[int, int]] = []
    assert real.upload(path, progress=lambda *step: reported.append(step)).digest == kept.digest
    assert len(reported) == 1, "the server has it: nothing is sent"


def test_a_zip_and_a_folder_are_called_as_the_client_foresees(real: Client, tmp_path: Path) -> None:
    folder = tmp_path / "net"
    folder.mkdir()
    model(folder, f"{uuid.uuid4().hex}.bin")
    archive = shutil.make_archive(str(tmp_path / "net"), "zip", tmp_path, "net")
    kept = real.upload(archive)
    assert kept.digest == real.upload(folder).digest
    assert len(kept.files) == 1


def test_a_large_model_arrives_in_pieces(real: Client, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(uploads, "RESUMABLE_FROM", 1 << 20)
    monkeypatch.setattr(uploads, "PIECE", 1 << 20)
    path = tmp_path / "large.onnx"
    path.write_bytes(message(np.random.default_rng(5).bytes((3 << 20) + 77)))
    kept = real.upload(path)
    assert (kept.digest, kept.bytes) == (hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_size)
    folder = tmp_path / "bundle"
    folder.mkdir()
    bundle = model(folder, "w.bin")
    (folder / "w.bin").write_bytes(np.random.default_rng(6).bytes(2 << 20))
    assert [file["bytes"] for file in real.upload(bundle).files] == [2 << 20]


def test_an_upload_goes_on_after_a_piece_that_arrived_in_part(real: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploads, "RESUMABLE_FROM", 1)
    monkeypatch.setattr(uploads, "PIECE", 4 << 20)
    content = np.random.default_rng(7).bytes(6 << 20)
    seen: list[int] = []

    def breaks(here: int, whole: int) -> None:
        seen.append(here)
        if seen.count(3 << 20) == 1 and here == 3 << 20:
            raise httpx.WriteError("the connection was pulled")

    kept = real.upload(content, progress=breaks)
    assert kept.digest == hashlib.sha256(content).hexdigest()
    assert len([here for here in seen if here == 6 << 20]) == 1


def test_jobs_are_queued_by_digest_with_options_and_followed_to_their_end(real: Client) -> None:
    content = uuid.uuid4().bytes
    one = real.compile(content, {"threads": 1}, idempotency_key=f"k-{uuid.uuid4()}")
    two, three = real.compile(hashlib.sha256(content).hexdigest(), [{"threads": 2}, {"threads": 3}], priority=-1)
    assert [job.said["options"]["threads"] for job in (one, two, three)] == [1, 2, 3]
    assert [job.said["priority"] for job in (one, two, three)] == [0, -1, -1]
    assert {one.id, two.id, three.id} <= {job.id for job in real.jobs(kinds=["compile"], states=["QUEUED"])}
    clone = real.clone(three, {"tuning_budget_s": 0})
    assert clone.said["options"] == {**three.said["options"], "tuning_budget_s": 0}
    assert real.finish(two).said["finish_requested"] is True

    waiting = real.benchmark([one, two], {"seconds": 1})
    assert waiting.said["blocked_by"] == 2
    assert real.cancel(waiting).kind == "benchmark"
    assert real.wait(waiting).state == "CANCELLED"
    for job in (one, two, three, clone):
        real.cancel(job)
    ended = real.wait(one)
    with pytest.raises(JobFailed, match="cancelled"):
        ended.require_success()
    assert "CANCELLED" in real.log(one)
    assert real.history(one)["state"] == "CANCELLED"
    with pytest.raises(RequestRefused) as caught:
        real.download(one, "nowhere.tw")
    assert caught.value.status == 410
    removed = real.delete_model(one.said["model"])
    assert (removed["stopping"], removed["deleted"]["jobs"]) == (0, 5)


def test_records_are_exported_and_imported_in_every_form(real: Client, tmp_path: Path) -> None:
    assert list(real.tuning_records(operator="Conv", since="2026-01-01T00:00:00Z")) == []
    assert real.records_to(tmp_path / "r.csv").read_text().startswith("id,job,model")
    assert real.records_to(tmp_path / "r.parquet", "parquet").read_bytes()[:4] == b"PAR1"
    exported = real.export_records(tmp_path / "all.jsonl")
    assert real.import_records(exported)["lines"] == 1


def test_what_the_house_can_do_is_empty_without_workers(real: Client) -> None:
    assert (real.targets(), real.operators(), real.workers()) == ([], [], [])
    assert real.ready()["ready"] is False


def test_a_wrong_key_is_refused_with_its_fix(url: str) -> None:
    with Client(url, "twk_wrong") as stranger, pytest.raises(RequestRefused) as caught:
        next(stranger.jobs())
    assert caught.value.status == 401
    assert caught.value.fix


def test_keys_and_owners_are_managed_and_the_audit_log_tells_of_it(url: str) -> None:
    with Client(url, KEY) as client:
        _manage(client, url)


def _manage(client: Client, url: str) -> None:
    assert client.me()["key"]["role"] == "operator"
    made = client.make_owner("bob", queued_jobs=3)
    assert made["quotas"]["queued_jobs"] == {"limit": 3, "used": 0}
    key = client.make_key(owner="bob", role="manager", label="laptop", expires_at="2099-01-01T00:00:00Z")
    assert (key.owner, key.role, key.state, key.text.startswith("twk_")) == ("bob", "manager", "valid", True)
    with Client(url, key.text) as bob:
        assert bob.me()["owner"] == "bob"
        rotated = bob.rotate_key(key, grace_s=60.0)
        mine = bob.keys()
        assert [(one.label, one.state) for one in mine] == [("laptop", "valid")] * 2
        assert [entry["verb"] for entry in bob.audit()] == ["expire", "rotate"]
        assert bob.revoke_key(rotated.id).state == "revoked"
        with pytest.raises(RequestRefused) as refused:
            list(bob.owners())
        assert refused.value.problem["code"] == "not_allowed"
    assert client.change_owner("bob", suspended=True, queued_jobs=None)["state"] == "suspended"
    assert client.owner("bob")["granted"]["queued_jobs"] is None
    assert "bob" in [one["name"] for one in client.owners()]
    assert client.delete_owner("bob", confirm="bob")["stopping"] == 0
    assert [entry["object"] for entry in client.audit(verb="delete", object="/owners/bob")] == ["/owners/bob"]


def test_a_batch_is_listed_compared_and_cancelled_as_one(real: Client) -> None:
    content = uuid.uuid4().bytes
    first, second = real.compile(content, [{"threads": 1}, {"threads": 2}])
    batch = real.batch(first.batch)
    assert ([job.id for job in batch.jobs], batch.ended) == ([first.id, second.id], False)
    assert batch.id in {one.id for one in real.batches(limit=5)}
    compared = real.compare(batch)
    assert [one["options"] for one in compared["jobs"]] == [{"threads": 1}, {"threads": 2}]
    assert [one["job"] for one in real.compare([second, first])["jobs"]] == [second.id, first.id]
    assert real.cancel_batch(batch).states == {"CANCELLED": 2}
    assert real.batch(batch).ended
    with pytest.raises(UsageError) as caught:
        real.batch("latest")
    assert "tilewright batches" in caught.value.fix


def test_the_asynchronous_client_sends_pieces_and_queues_several_jobs_at_once(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uploads, "RESUMABLE_FROM", 100)
    monkeypatch.setattr(uploads, "PIECE", 1000)
    whole = b"asynchronous" * 300

    async def work() -> tuple[str, set[str], list[str]]:
        async with AsyncClient(url, KEY) as client:
            stored = await client.upload(whole)
            wanted = (client.compile(stored, {"seed": seed}, tags=["aio"]) for seed in range(4))
            jobs = await asyncio.gather(*wanted)
            found = {job.id async for job in client.jobs(tags=["aio"])}
            await asyncio.gather(*(client.cancel(job) for job in jobs))
            states = [(await client.wait(job)).state for job in jobs]
            assert {job.id for job in jobs} == found
            return stored.digest, found, states

    digest, found, states = asyncio.run(work())
    assert digest == hashlib.sha256(whole).hexdigest()
    assert (len(found), states) == (4, ["CANCELLED"] * 4)

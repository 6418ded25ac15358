from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.tilewright.messages import message
from tilewright import uploads
from tilewright.client import Client
from tilewright.errors import RequestRefused, ServerUnreachable, UsageError

MODEL = message(bytes(range(251)) * 40)


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(uploads, "RESUMABLE_FROM", 2000)
    monkeypatch.setattr(uploads, "PIECE", 3000)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def offsets(server: Any) -> list[int]:
    return [int(request.headers["upload-offset"]) for request in server.seen if request.method == "PATCH"]


def test_a_model_that_the_server_has_is_not_sent(client: Client, server: Any) -> None:
    client.upload(MODEL)
    server.seen = []
    steps: list[tuple[int, int]] = []
    client.upload(MODEL, progress=lambda *step: steps.append(step))
    assert [request.method for request in server.seen] == ["HEAD", "GET"]
    assert steps == [(len(MODEL), len(MODEL))]


def test_a_large_model_goes_in_pieces(client: Client, server: Any, tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(MODEL)
    steps: list[tuple[int, int]] = []
    kept = client.upload(tmp_path / "m.onnx", progress=lambda *step: steps.append(step))
    assert kept.bytes == len(MODEL)
    assert offsets(server) == [0, 3000, 6000, 9000]
    assert steps[-1] == (len(MODEL), len(MODEL))
    assert server.sent("/models") == []


@pytest.mark.parametrize("cut", [0, 1234, 3000])
def test_a_broken_piece_goes_on_where_the_server_says(client: Client, server: Any, cut: int) -> None:
    server.upload_cuts = [None, cut]
    assert client.upload(MODEL).bytes == len(MODEL)
    assert offsets(server)[:3] == [0, 3000, 3000 + cut]


def test_another_process_goes_on_with_an_upload_that_broke_off(client: Client, server: Any, tmp_path: Path) -> None:
    server.upload_cuts = [None, None] + [0] * 100
    with pytest.raises(ServerUnreachable, match="broke off"):
        client.upload(MODEL)
    server.upload_cuts, server.seen = [], []
    with Client("http://server.test", "twk_key", transport=server.transport(), pause_s=0.0) as later:
        assert later.upload(MODEL).bytes == len(MODEL)
    assert offsets(server) == [6000, 9000]
    assert [request.method for request in server.sent("/uploads")] == [], "no upload was begun"
    (folder,) = (tmp_path / "state" / "tilewright").iterdir()
    assert list(folder.iterdir()) == [], "what is done is not remembered"


@pytest.mark.parametrize("noted", ["", "no id", "019aa1f0-7c2e-7a4b-9d0e-5b1f6d0c3aff"])
def test_a_note_of_an_upload_that_is_gone_begins_a_new_one(
    client: Client, server: Any, tmp_path: Path, noted: str
) -> None:
    server.upload_cuts = [0] * 100
    with pytest.raises(ServerUnreachable, match="broke off"):
        client.upload(MODEL)
    (note,) = (tmp_path / "state" / "tilewright" / "uploads").iterdir()
    note.write_text(noted)
    server.upload_cuts, server.seen = [], []
    assert client.upload(MODEL).bytes == len(MODEL)
    assert len(server.sent("/uploads")) == 1


def test_an_answer_lost_after_the_last_piece_loses_nothing(client: Client, server: Any) -> None:
    server.upload_cuts = [None, None, None, 3000]
    assert client.upload(MODEL).bytes == len(MODEL)
    assert len(offsets(server)) == 4


def test_a_server_that_stays_away_ends_the_upload(client: Client, server: Any) -> None:
    server.upload_cuts = [0] * 100
    with pytest.raises(ServerUnreachable, match="broke off"):
        client.upload(MODEL)
    assert len(offsets(server)) == uploads.FRUITLESS


def test_a_refused_upload_is_not_tried_again(client: Client, server: Any) -> None:
    server.refusals = [413, 0]
    with pytest.raises(RequestRefused) as caught:
        client.upload(MODEL)
    assert caught.value.status == 413
    assert len(server.seen) == 2


def test_a_file_that_shrinks_meanwhile_is_told(client: Client, server: Any, tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(MODEL)

    def truncate(here: int, whole: int) -> None:
        if here == 3000:
            (tmp_path / "m.onnx").write_bytes(b"")

    with pytest.raises(UsageError, match="became shorter"):
        client.upload(tmp_path / "m.onnx", progress=truncate)


def test_a_small_model_is_sent_again_when_the_connection_breaks(client: Client, server: Any) -> None:
    server.refusals = [0, 1, 1, 0]
    client.upload(b"small")
    assert [request.content for request in server.sent("/models")] == [b"small"] * 3

from __future__ import annotations

import errno
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from service.blobs.local import LocalBlobs
from service.db.models import JobKind, new_id
from service.errors import BlobDamaged, BlobLost
from service.jobs.lease import Claim, Input
from worker.layout import lay_out


def claim(kind: JobKind, *inputs: Input) -> Claim:
    return Claim(new_id(), kind, 1, new_id(), None, inputs, {}, 1, 30.0, False)


@pytest.fixture
def blobs(tmp_path: Path) -> LocalBlobs:
    return LocalBlobs(tmp_path / "blobs")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "inputs"
    folder.mkdir()
    return folder


def file(blobs: LocalBlobs, name: str, content: bytes = b"x") -> Input:
    return Input(name, blobs.put_bytes(content).key)


def test_a_model_comes_first_and_external_data_by_its_paths_follows(blobs: LocalBlobs, folder: Path) -> None:
    given = claim(
        JobKind.COMPILE, file(blobs, "model", b"onnx"), file(blobs, "a/b.bin", b"1"), file(blobs, "model", b"2")
    )
    with ExitStack() as opened:
        laid = lay_out(given, blobs, folder, opened)
        assert [(name, path.read_bytes()) for name, path in laid] == [
            ("model", b"onnx"),
            ("a/b.bin", b"1"),
            ("model", b"2"),
        ]
        for file_of_job, (_, path) in zip(given.inputs, laid, strict=True):
            assert path.samefile(blobs.path(file_of_job.key)), "nothing is copied"


@pytest.mark.parametrize("name", ["../x", "/etc/x", "a/../x", "", "a//b", "./a", "a\0b"])
def test_no_name_becomes_a_path(blobs: LocalBlobs, folder: Path, name: str) -> None:
    given = claim(JobKind.COMPILE, file(blobs, "model"), file(blobs, name))
    with ExitStack() as opened:
        _, (laid, path) = lay_out(given, blobs, folder, opened)
        assert (laid, path.parent) == (name, folder)


def test_one_artifact_may_be_given_twice(blobs: LocalBlobs, folder: Path) -> None:
    artifact = file(blobs, "id", b"artifact")
    with ExitStack() as opened:
        laid = lay_out(claim(JobKind.BENCHMARK, artifact, artifact), blobs, folder, opened)
        assert [(name, path.read_bytes()) for name, path in laid] == [("id", b"artifact")] * 2
        assert laid[0][1] != laid[1][1]


def test_the_arrays_of_an_inference_follow_its_artifact(blobs: LocalBlobs, folder: Path) -> None:
    given = claim(JobKind.INFERENCE, file(blobs, "id", b"artifact"), file(blobs, "inputs", b"npz"))
    with ExitStack() as opened:
        laid = lay_out(given, blobs, folder, opened)
        assert [(name, path.read_bytes()) for name, path in laid] == [("id", b"artifact"), ("inputs", b"npz")]


def test_a_blob_that_is_gone_is_lost(blobs: LocalBlobs, folder: Path) -> None:
    lost = file(blobs, "data")
    given = claim(JobKind.COMPILE, file(blobs, "model", b"onnx"), lost)
    blobs.delete(lost.key)
    with ExitStack() as opened, pytest.raises(BlobLost):
        lay_out(given, blobs, folder, opened)


def test_a_blob_of_another_length_than_its_row_says_is_damaged(blobs: LocalBlobs, folder: Path) -> None:
    given = claim(JobKind.COMPILE, replace(file(blobs, "model", b"onnx"), bytes=5))
    with ExitStack() as opened, pytest.raises(BlobDamaged):
        lay_out(given, blobs, folder, opened)


def test_a_full_disk_is_an_error_of_the_file_system(
    blobs: LocalBlobs, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "hardlink_to", full)
    monkeypatch.setattr(Path, "symlink_to", full)
    given = claim(JobKind.COMPILE, file(blobs, "model", b"onnx"), file(blobs, "data"))
    with ExitStack() as opened, pytest.raises(OSError, match="No space"):
        lay_out(given, blobs, folder, opened)


def test_a_job_keeps_the_file_it_was_given_when_the_blob_is_removed_and_sent_again(
    blobs: LocalBlobs, folder: Path
) -> None:
    """The walls of a job let it read files, not paths: another file of the same name would be refused to it."""
    given = claim(JobKind.COMPILE, file(blobs, "model", b"onnx"))
    with ExitStack() as opened:
        ((_, model),) = lay_out(given, blobs, folder, opened)
        before = model.stat().st_ino
        blobs.delete(given.inputs[0].key)
        blobs.put_bytes(b"onnx")
        assert blobs.path(given.inputs[0].key).stat().st_ino != before
        assert (model.stat().st_ino, model.read_bytes()) == (before, b"onnx")

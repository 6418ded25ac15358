from __future__ import annotations

import errno
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from service.blobs import copies
from service.blobs.local import LocalBlobs
from service.db.models import new_id
from service.errors import BlobDamaged, BlobLost
from service.jobs.scheduling.lease import Claim, Input
from worker.attempt.layout import lay_out, lay_out_samples


def claim(kind: str, *inputs: Input) -> Claim:
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
    given = claim("compile", file(blobs, "model", b"onnx"), file(blobs, "a/b.bin", b"1"), file(blobs, "model", b"2"))
    laid = lay_out(given, blobs, folder)
    assert [(name, path.read_bytes()) for name, path in laid] == [
        ("model", b"onnx"),
        ("a/b.bin", b"1"),
        ("model", b"2"),
    ]
    for file_of_job, (_, path) in zip(given.inputs, laid, strict=True):
        assert not path.samefile(blobs.path(file_of_job.key))


def test_samples_lie_beside_the_inputs_under_names_of_ours(blobs: LocalBlobs, folder: Path) -> None:
    given = replace(
        claim("compile", file(blobs, "model", b"onnx")),
        samples=(file(blobs, "../a.npz", b"1"), file(blobs, "model", b"2")),
    )
    lay_out(given, blobs, folder)
    laid = lay_out_samples(given, blobs, folder)
    assert [(name, path.read_bytes()) for name, path in laid] == [("../a.npz", b"1"), ("model", b"2")]
    assert sorted(path.name for path in folder.iterdir()) == ["0", "sample0", "sample1"]
    for sample, (_, path) in zip(given.samples, laid, strict=True):
        assert not path.samefile(blobs.path(sample.key))


@pytest.mark.parametrize("name", ["../x", "/etc/x", "a/../x", "", "a//b", "./a", "a\0b"])
def test_no_name_becomes_a_path(blobs: LocalBlobs, folder: Path, name: str) -> None:
    given = claim("compile", file(blobs, "model"), file(blobs, name))
    _, (laid, path) = lay_out(given, blobs, folder)
    assert (laid, path.parent) == (name, folder)


def test_one_artifact_may_be_given_twice(blobs: LocalBlobs, folder: Path) -> None:
    artifact = file(blobs, "id", b"artifact")
    laid = lay_out(claim("benchmark", artifact, artifact), blobs, folder)
    assert [(name, path.read_bytes()) for name, path in laid] == [("id", b"artifact")] * 2
    assert laid[0][1] != laid[1][1]


def test_the_arrays_of_an_inference_follow_its_artifact(blobs: LocalBlobs, folder: Path) -> None:
    given = claim("inference", file(blobs, "id", b"artifact"), file(blobs, "inputs", b"npz"))
    laid = lay_out(given, blobs, folder)
    assert [(name, path.read_bytes()) for name, path in laid] == [("id", b"artifact"), ("inputs", b"npz")]


def test_a_blob_that_is_gone_is_lost(blobs: LocalBlobs, folder: Path) -> None:
    lost = file(blobs, "data")
    given = claim("compile", file(blobs, "model", b"onnx"), lost)
    blobs.delete(lost.key)
    with pytest.raises(BlobLost):
        lay_out(given, blobs, folder)


def test_a_blob_of_another_length_than_its_row_says_is_damaged(blobs: LocalBlobs, folder: Path) -> None:
    given = claim("compile", replace(file(blobs, "model", b"onnx"), bytes=5))
    with pytest.raises(BlobDamaged):
        lay_out(given, blobs, folder)


def test_a_full_disk_is_an_error_of_the_file_system(
    blobs: LocalBlobs, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(copies, "_copy_in_kernel", full)
    given = claim("compile", file(blobs, "model", b"onnx"), file(blobs, "data"))
    with pytest.raises(OSError, match="No space"):
        lay_out(given, blobs, folder)


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.EXDEV, errno.EINVAL])
def test_where_the_kernel_does_not_copy_between_files_the_bytes_are_copied_all_the_same(
    blobs: LocalBlobs, folder: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def refuse(source: int, target: int) -> None:
        os.write(target, b"half")
        raise OSError(number, "not here")

    monkeypatch.setattr(copies, "_copy_in_kernel", refuse)
    ((_, path),) = lay_out(claim("compile", file(blobs, "model", b"onnx" * 1000)), blobs, folder)
    assert path.read_bytes() == b"onnx" * 1000


def test_whatever_a_job_does_to_its_input_the_blob_stays_as_it_was(blobs: LocalBlobs, folder: Path) -> None:
    given = claim("compile", file(blobs, "model", b"onnx"))
    blob = blobs.path(given.inputs[0].key)
    before = blob.stat()
    ((_, path),) = lay_out(given, blobs, folder)
    assert path.stat().st_mode & 0o777 == 0o400
    path.chmod(0o600)
    os.utime(path, (1.0, 1.0))
    path.write_bytes(b"taken over")
    after = blob.stat()
    assert blob.read_bytes() == b"onnx"
    assert (after.st_mode, after.st_mtime, after.st_nlink) == (before.st_mode, before.st_mtime, 1)


def test_a_job_keeps_the_file_it_was_given_when_the_blob_is_removed(blobs: LocalBlobs, folder: Path) -> None:
    given = claim("compile", file(blobs, "model", b"onnx"))
    ((_, model),) = lay_out(given, blobs, folder)
    blobs.delete(given.inputs[0].key)
    assert model.read_bytes() == b"onnx"


def test_a_job_is_never_given_bytes_that_changed_at_the_same_length(blobs: LocalBlobs, folder: Path) -> None:
    given = claim("compile", file(blobs, "model", b"onnx"), file(blobs, "w.bin", b"weights"))
    blobs.path(given.inputs[1].key).write_bytes(b"Weights")
    with pytest.raises(BlobDamaged, match=given.inputs[1].key):
        lay_out(given, blobs, folder)
    samples = replace(given, samples=(given.inputs[1],))
    blobs.put_bytes(b"weights")
    blobs.path(given.inputs[1].key).write_bytes(b"Weights")
    with pytest.raises(BlobDamaged):
        lay_out_samples(samples, blobs, folder)
    assert sorted(path.name for path in folder.iterdir()) == ["0"]

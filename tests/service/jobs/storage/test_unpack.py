from __future__ import annotations

import hashlib
import io
import stat
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from service.blobs.local import LocalBlobs
from service.errors import BadRequest, BodyTooLarge
from service.jobs.storage.bundle import Bundle
from service.jobs.storage.pieces import Piece
from service.jobs.storage.unpack import unpack

LIMIT = 100_000


@pytest.fixture
def blobs(tmp_path: Path) -> LocalBlobs:
    return LocalBlobs(tmp_path / "blobs")


def opened(blobs: LocalBlobs, body: bytes, model: str | None = None) -> Bundle:
    stored = blobs.put_bytes(body)
    return unpack(blobs, [Piece(stored.key, stored.bytes)], model=model, limit=LIMIT)


def member(name: str, data: bytes = b"x", **changes: Any) -> bytes:
    """A zip of `m.onnx` and one more member with these fields."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("m.onnx", b"onnx")
        info = zipfile.ZipInfo(name)
        for field, value in changes.items():
            setattr(info, field, value)
        archive.writestr(info, data)
    return file.getvalue()


def test_a_zip_of_windows_has_folders(blobs: LocalBlobs) -> None:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, data in (("net\\", b""), ("net\\m.onnx", b"onnx"), ("net\\weights\\w.bin", b"weights")):
            archive.writestr(zipfile.ZipInfo(name), data)
    found = opened(blobs, file.getvalue())
    assert (found.model.bytes, list(found.data)) == (4, ["weights/w.bin"])


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (member("../evil"), "leads upwards"),
        (member("/etc/passwd"), "absolute"),
        (member("..\\evil"), "leads upwards"),
        (member(".\\m.onnx"), "twice"),
        (member("folder\\", b"bytes"), "folder with bytes"),
        (member("C:x"), "absolute"),
        (member("a\nb"), "control"),
        (member("x" * 400), "longer"),
        (member("./m.onnx"), "twice"),
        (member("link", b"/etc/passwd", external_attr=(stat.S_IFLNK | 0o777) << 16, create_system=3), "link"),
        (member("fifo", b"", external_attr=(stat.S_IFIFO | 0o644) << 16, create_system=3), "link or no file"),
        (member("folder/", b"bytes"), "folder with bytes"),
        (member("bz", b"x", compress_type=zipfile.ZIP_BZIP2), "method 12"),
        (member("xz", b"x", compress_type=zipfile.ZIP_LZMA), "method 14"),
        (b"PK\x03\x04 this is no zip", "damaged"),
        (b"", "damaged"),
        (member("a")[:-30], "damaged"),
    ],
)
def test_a_hostile_or_broken_zip_is_refused_with_its_reason(blobs: LocalBlobs, body: bytes, why: str) -> None:
    with pytest.raises(BadRequest) as refused:
        opened(blobs, body)
    assert why in refused.value.message
    assert refused.value.fix
    assert list(blobs.temporary.iterdir()) == []


def test_an_encrypted_member_is_refused(blobs: LocalBlobs) -> None:
    body = bytearray(member("secret"))
    at = body.rfind(b"PK\x01\x02")
    body[at + 8] |= 1
    with pytest.raises(BadRequest, match="encrypted"):
        opened(blobs, bytes(body))


def test_a_member_is_not_unpacked_past_the_size_that_the_directory_says(blobs: LocalBlobs) -> None:
    body = bytearray(member("zeros", bytes(50_000), compress_type=zipfile.ZIP_DEFLATED))
    at = body.rfind(b"PK\x01\x02")
    struct.pack_into("<I", body, at + 24, 10)
    with pytest.raises(BadRequest, match="damaged"):
        opened(blobs, bytes(body))


def test_a_member_packed_beyond_belief_is_refused_before_it_is_unpacked(tmp_path: Path) -> None:
    blobs = LocalBlobs(tmp_path / "blobs")
    body = member("zeros", bytes(4 << 20), compress_type=zipfile.ZIP_DEFLATED)
    stored = blobs.put_bytes(body)
    with pytest.raises(BadRequest, match="100 to 1"):
        unpack(blobs, [Piece(stored.key, stored.bytes)], model=None, limit=64 << 20)
    (left,) = blobs.keys()
    assert left[0] == stored.key


def test_members_that_share_their_bytes_are_refused_or_counted(blobs: LocalBlobs) -> None:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("m.onnx", bytes(30_000))
        first = archive.infolist()[0]
        for number in range(5):
            again = zipfile.ZipInfo(f"{number}.bin")
            again.header_offset, again.CRC = first.header_offset, first.CRC
            again.file_size, again.compress_size = first.file_size, first.compress_size
            archive.filelist.append(again)
            archive.NameToInfo[again.filename] = again
    with pytest.raises((BadRequest, BodyTooLarge)):
        opened(blobs, file.getvalue())


def test_a_zip_whose_files_exceed_the_limit_is_refused_before_they_are_unpacked(blobs: LocalBlobs) -> None:
    with pytest.raises(BodyTooLarge) as refused:
        opened(blobs, member("zeros", bytes(200_000), compress_type=zipfile.ZIP_DEFLATED))
    assert refused.value.details == {"limit_bytes": LIMIT}
    assert len(list(blobs.keys())) == 1


def test_many_members_and_a_huge_directory_are_refused(blobs: LocalBlobs, zipped: Callable[..., bytes]) -> None:
    names = {f"{number}": b"" for number in range(1001)}
    with pytest.raises(BadRequest, match="1002 files"):
        opened(blobs, zipped({"m.onnx": b"m", **names}))
    huge = {f"{number:0200}": b"" for number in range(9000)}
    with pytest.raises(BadRequest, match="in one piece"):
        opened(blobs, zipped({"m.onnx": b"m", **huge}))


def test_data_outside_the_folder_of_the_model_is_refused(blobs: LocalBlobs, zipped: Callable[..., bytes]) -> None:
    with pytest.raises(BadRequest, match="outside"):
        opened(blobs, zipped({"a/m.onnx": b"m", "b/w.bin": b"w"}))
    with pytest.raises(BadRequest, match="none"):
        opened(blobs, zipped({"w.bin": b"w"}))
    with pytest.raises(BadRequest, match="empty"):
        opened(blobs, zipped({"m.onnx": b""}))


def test_a_zip_of_two_hundred_folders_of_data_is_unpacked_whole(
    blobs: LocalBlobs, zipped: Callable[..., bytes]
) -> None:
    data = {f"layer{number}/w.bin": bytes([number]) * number for number in range(200)}
    bundle = opened(blobs, zipped({"m.onnx": b"m", **data}, zipfile.ZIP_DEFLATED))
    assert {path: blob.sha256 for path, blob in bundle.data.items()} == {
        path: hashlib.sha256(content).hexdigest() for path, content in data.items()
    }
    assert b"".join(blobs.read(bundle.data["layer199/w.bin"].key)) == data["layer199/w.bin"]


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(changes=st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), min_size=1, max_size=6))
def test_a_zip_with_changed_bytes_is_unpacked_or_refused_and_leaves_nothing_half_done(
    blobs: LocalBlobs, changes: list[tuple[int, int]]
) -> None:
    body = bytearray(member("w/a.bin", b"weights" * 20, compress_type=zipfile.ZIP_DEFLATED))
    for at, value in changes:
        body[at % len(body)] = value
    try:
        bundle = opened(blobs, bytes(body))
        assert bundle.model.bytes <= LIMIT
    except (BadRequest, BodyTooLarge):
        pass  # refused with a reason; anything else that is raised fails the test
    assert list(blobs.temporary.iterdir()) == []

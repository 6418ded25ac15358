from __future__ import annotations

import hashlib
import io
import random
import zipfile
from pathlib import Path
from typing import Any

import pytest

from service.blobs import members as subject
from service.blobs.local import LocalBlobs
from service.blobs.members import MAX_MEMBER_BYTES, Member, member, members
from service.blobs.open_blobs import open_blobs
from service.blobs.store import Blobs, key_of
from service.config import Settings
from service.errors import ArtifactUnreadable, BlobDamaged, NotFound, PartTooLarge, ServiceError
from tests.service.s3_server import S3Server

WEIGHTS = random.Random(0).randbytes(3_000_000)


def archive(files: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED, comment: bytes = b"") -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", method) as opened:
        for name, content in files.items():
            opened.writestr(name, content)
        opened.comment = comment
    return made.getvalue()


@pytest.fixture
def local(tmp_path: Path) -> LocalBlobs:
    return LocalBlobs(tmp_path / "blobs")


@pytest.fixture(params=["local", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Blobs:
    if request.param == "local":
        return open_blobs(Settings(data_dir=tmp_path))
    server: S3Server = request.getfixturevalue("s3_server")
    return open_blobs(server.settings(tmp_path, server.bucket()))


@pytest.mark.parametrize("comment", [b"", b"x" * 65_535])
@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_each_file_is_read_by_itself(store: Blobs, method: int, comment: bytes) -> None:
    files = {"manifest.json": b"{}", "weights.bin": WEIGHTS, "source/k0.c": b"int x;\n" * 9999, "empty": b""}
    key = store.put_bytes(archive(files, method, comment)).key
    assert members(store, key) == tuple(Member(name, len(content)) for name, content in files.items())
    assert {name: member(store, key, name) for name in files} == files


def test_a_small_file_costs_little_of_a_large_archive(local: LocalBlobs, monkeypatch: pytest.MonkeyPatch) -> None:
    key = local.put_bytes(archive({"a.txt": b"a", "weights.bin": WEIGHTS, "b.txt": b"b"}, zipfile.ZIP_STORED)).key
    fetched = 0
    read = LocalBlobs.read

    def counted(blobs: LocalBlobs, key: str, start: int = 0, end: int | None = None, **more: Any) -> object:
        nonlocal fetched
        assert end is not None
        fetched += end - start
        return read(blobs, key, start, end, **more)

    monkeypatch.setattr(LocalBlobs, "read", counted)
    assert (member(local, key, "a.txt"), member(local, key, "b.txt")) == (b"a", b"b")
    assert fetched <= 4 * subject.WINDOW


@pytest.mark.parametrize("name", ["nothing", "../a", "/a", "A", "a/", "source"])
def test_only_exact_names_are_found(local: LocalBlobs, name: str) -> None:
    key = local.put_bytes(archive({"a": b"", "source/": b"", "source/k.c": b""})).key
    with pytest.raises(NotFound):
        member(local, key, name)
    assert [one.name for one in members(local, key)] == ["a", "source/k.c"]


def test_a_file_past_the_limit_is_not_unpacked(local: LocalBlobs) -> None:
    key = local.put_bytes(archive({"exact": bytes(MAX_MEMBER_BYTES), "zeros": bytes(MAX_MEMBER_BYTES + 1)})).key
    assert len(member(local, key, "exact")) == MAX_MEMBER_BYTES
    with pytest.raises(PartTooLarge, match="zeros"):
        member(local, key, "zeros")


def test_a_file_that_unpacks_to_more_than_it_says_is_refused(local: LocalBlobs) -> None:
    data = bytearray(archive({"bomb": bytes(64 << 20)}))
    entry = data.rindex(b"PK\x01\x02")
    data[entry + 24 : entry + 28] = (1000).to_bytes(4, "little")
    with pytest.raises(ArtifactUnreadable):
        member(local, local.put_bytes(bytes(data)).key, "bomb")


def test_a_directory_past_the_limit_is_refused_before_it_is_read(local: LocalBlobs) -> None:
    data = archive({f"{number:0200d}": b"" for number in range(9000)}, zipfile.ZIP_STORED)
    with pytest.raises(ArtifactUnreadable, match="one piece"):
        members(local, local.put_bytes(data).key)


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_methods_that_artifacts_do_not_use_are_refused(local: LocalBlobs, method: int) -> None:
    key = local.put_bytes(archive({"a": b"a" * 1000}, method)).key
    with pytest.raises(ArtifactUnreadable, match="packed"):
        member(local, key, "a")


@pytest.mark.parametrize(
    "data", [b"", b"no zip at all", b"PK\x05\x06", archive({"a": b"a"})[:-5]], ids=["empty", "text", "end", "cut"]
)
def test_what_is_no_archive_is_called_damaged(local: LocalBlobs, data: bytes) -> None:
    with pytest.raises(ArtifactUnreadable, match="damaged"):
        members(local, local.put_bytes(data).key)


def test_mutated_archives_are_read_or_refused_and_never_break(local: LocalBlobs) -> None:
    chance = random.Random(20)
    files = {"manifest.json": b"{}" * 50, "source/k0.c": b"int x;\n" * 20, "raw": bytes(range(256))}
    sound = archive(files)
    outcomes = set()
    for _ in range(1500):
        data = bytearray(sound)
        for _ in range(chance.randint(1, 4)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        key = key_of(hashlib.sha256(data).hexdigest())  # it was malformed when it was kept
        (local.root / key).parent.mkdir(exist_ok=True)
        (local.root / key).write_bytes(data)
        for name in files:
            try:
                content = member(local, key, name)
                outcomes.add("read")
                assert len(content) <= MAX_MEMBER_BYTES
            except ServiceError as error:
                outcomes.add(error.code)
    assert {"read", "artifact_unreadable", "not_found"} <= outcomes


@pytest.mark.parametrize("at", ["content", "directory"])
def test_a_file_that_cannot_be_read_because_the_disk_changed_it_is_told_as_that(local: LocalBlobs, at: str) -> None:
    content = b"int x;" * 50
    key = local.put_bytes(archive({"a.c": content}, zipfile.ZIP_STORED)).key
    kept = bytearray((local.root / key).read_bytes())
    kept[kept.index(content) if at == "content" else kept.index(b"PK\1\2")] ^= 64
    (local.root / key).write_bytes(kept)
    with pytest.raises(BlobDamaged):
        member(local, key, "a.c")
    assert [one for _, one in local.set_aside()] == [key]

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from service.blobs.cache import Cache
from service.blobs.local import LocalBlobs
from service.blobs.private import private_folder
from service.errors import NotReady

ROOT = Path(__file__).parents[3]


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture(autouse=True)
def careless(tmp_path: Path) -> None:
    """The folder above hides nothing, as `/var/lib` would not."""
    tmp_path.chmod(0o755)


def test_a_folder_that_was_used_and_everybody_could_read_is_mended(tmp_path: Path) -> None:
    for name in ("blobs", "cache"):
        (tmp_path / name / "tmp").mkdir(parents=True)
        for folder in (tmp_path / name, tmp_path / name / "tmp"):
            folder.chmod(0o755)
    LocalBlobs(tmp_path / "blobs")
    Cache(tmp_path / "cache", 0)
    assert [mode(tmp_path / one) for one in ("blobs", "blobs/tmp", "cache", "cache/tmp")] == [0o700] * 4


def test_blobs_are_their_owners_alone_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        blobs = LocalBlobs(tmp_path / "blobs")
        path = blobs.path(blobs.put_bytes(b"secret").key)
    finally:
        os.umask(before)
    assert [mode(one) for one in (path, path.parent, blobs.root, blobs.temporary)] == [0o600, 0o700, 0o700, 0o700]


def test_an_empty_folder_that_everybody_could_read_is_mended(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty").chmod(0o755)
    private_folder(tmp_path / "empty", ("x",))
    assert mode(tmp_path / "empty") == 0o700


@pytest.mark.parametrize("present", [["notes.txt"], ["lib", "cache"]])
def test_a_folder_of_other_things_is_refused_and_stays_as_it_is(tmp_path: Path, present: list[str]) -> None:
    shared = tmp_path / "shared"
    for name in present:
        (shared / name).mkdir(parents=True)
    shared.chmod(0o755)
    with pytest.raises(NotReady, match="can be read by everybody") as refused:
        private_folder(shared, ("tmp",))
    assert f"{shared / 'tilewright'}" in refused.value.fix
    assert mode(shared) == 0o755
    private_folder(shared / "tilewright", ("tmp",))
    assert mode(shared / "tilewright") == 0o700


def test_a_temporary_folder_of_all_is_never_taken_over(tmp_path: Path) -> None:
    (tmp_path / "all").mkdir()
    (tmp_path / "all").chmod(0o1777)
    with pytest.raises(NotReady):
        private_folder(tmp_path / "all", ("tmp",))
    assert mode(tmp_path / "all") == 0o1777


@pytest.mark.parametrize(("shared", "taken"), [(0o770, True), (0o2770, True), (0o755, False), (0o777, False)])
def test_a_folder_of_another_user_may_be_open_to_a_group_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shared: int, taken: bool
) -> None:
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs").chmod(shared)
    me = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: me + 1)
    try:
        private_folder(tmp_path / "theirs", ("tmp",))
        refused = False
    except NotReady:
        refused = True
    assert (refused, mode(tmp_path / "theirs")) == (not taken, shared)


def test_a_data_folder_of_an_earlier_start_is_mended_and_the_database_is_private(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    data.chmod(0o755)
    (data / "api_key").touch()
    command = [sys.executable, "-m", "service", "migrate"]
    environment = {**os.environ, "TILEWRIGHT_DATA_DIR": str(data), "TILEWRIGHT_DATABASE_URL": ""}
    subprocess.run(command, cwd=ROOT, env=environment, check=True)
    assert (mode(data), mode(data / "tilewright.db")) == (0o700, 0o600)

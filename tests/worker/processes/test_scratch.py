from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from worker.processes.scratch import Folder, folder


@pytest.fixture
def made(tmp_path: Path) -> Folder:
    """A folder as a job has it."""
    made = Folder.of(tmp_path / "scratch", "job-1")
    with folder(made):
        pass
    made.work.mkdir(parents=True)
    return made


def test_a_folder_is_fresh_and_gone_afterwards(tmp_path: Path) -> None:
    made = Folder.of(tmp_path / "scratch", "job-1")
    (made.path / "old").mkdir(parents=True)
    with folder(made):
        assert sorted(entry.name for entry in made.path.iterdir()) == ["answers", "inputs", "work"]
        (made.work / "a").mkdir()
        (made.work / "a" / "file").write_text("x")
    assert not made.path.exists()


def test_folders_deeper_than_any_recursion_are_removed(made: Folder) -> None:
    at = os.open(made.work, os.O_RDONLY)
    for _ in range(3000):
        os.mkdir("d", dir_fd=at)
        below = os.open("d", os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = below
    os.close(at)
    made.remove()
    assert not made.path.exists()


def test_what_links_lead_to_stays(made: Folder, tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept").chmod(0o750)  # whatever this process's umask is
    (tmp_path / "kept" / "file").write_text("x")
    (made.work / "a").mkdir()
    (made.work / "a" / "link").symlink_to(tmp_path / "kept")
    (made.work / "link").symlink_to(tmp_path / "kept")
    made.remove()
    assert not made.path.exists()
    assert (tmp_path / "kept" / "file").read_text() == "x"
    assert (tmp_path / "kept").stat().st_mode & 0o777 == 0o750


def test_folders_that_were_closed_to_everybody_are_removed(made: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    (made.work / "a" / "b").mkdir(parents=True)
    (made.work / "a" / "b" / "file").write_text("x")
    monkeypatch.chdir(made.path.parent)
    here = Path(made.path.name)
    with _bound_by_modes(here.absolute()):
        for path in ("work/a/b", "work/a", "work"):
            (here / path).chmod(0)
        Folder(here).remove()
    assert not made.path.exists()


@contextlib.contextmanager
def _bound_by_modes(path: Path) -> Iterator[None]:
    """Root, whom modes do not bind, becomes somebody else, to whom the folder at `path` belongs."""
    if os.geteuid() != 0:
        yield
        return
    for each in (path.parent, path, *map(Path, _walk(path))):
        os.chown(each, 65534, 65534)
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def _walk(path: Path) -> list[str]:
    return [os.path.join(folder, name) for folder, names, files in os.walk(path) for name in (*names, *files)]

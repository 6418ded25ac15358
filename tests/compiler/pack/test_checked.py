"""Weights are compared with their digest once for each state of their file, or at each load, or never."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from tests.compiler.pack.test_loader import X


@pytest.fixture
def compared(loader: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """Loads an artifact, and says whether weights were compared. Files count as settled at once, and notes are here."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(loader, "_SETTLED_S", -1e9)
    names: list[str] = []
    compare = loader._Files._compare

    def listed(files: object, name: str, size: int, digest: object) -> None:
        names.append(name)
        compare(files, name, size, digest)

    monkeypatch.setattr(loader._Files, "_compare", listed)

    def load(artifact: Path, **options: object) -> list[str]:
        names.clear()
        with loader.Model(artifact, **options) as model:
            assert model.run({"x": X, "n": np.int64(1)})
        return [name for name in names if name == "weights.bin"]

    return load


def test_weights_are_compared_once_for_each_state_of_their_file(
    compared: Callable[..., list[str]], artifact: Path, loader: ModuleType
) -> None:
    assert compared(artifact, verify=False) == []
    assert compared(artifact) == ["weights.bin"]
    assert compared(artifact) == []
    assert compared(artifact, verify=True) == ["weights.bin"]
    files = loader._Files(artifact, False)
    _, place = files.locate("weights.bin")
    files.close()
    with artifact.open("r+b") as whole:  # of the same size and at the same place
        whole.seek(place)
        (first,) = whole.read(1)
        whole.seek(place)
        whole.write(bytes([first ^ 1]))
    for _ in range(2):
        with pytest.raises(loader.ArtifactError, match=r"weights.bin in .* is damaged"):
            compared(artifact)


def test_a_file_that_changed_just_now_is_compared_again(
    compared: Callable[..., list[str]], artifact: Path, loader: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loader, "_SETTLED_S", 1e9)
    assert compared(artifact) == compared(artifact) == ["weights.bin"]


def test_notes_that_others_may_write_mean_nothing_and_none_is_needed(
    compared: Callable[..., list[str]], artifact: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert compared(artifact) == ["weights.bin"]
    notes = tmp_path / "cache" / "tilewright" / "checked"
    assert len([*notes.iterdir()]) == 1
    notes.chmod(0o777)
    assert compared(artifact) == ["weights.bin"]
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert compared(artifact) == compared(artifact) == ["weights.bin"]


def test_the_oldest_notes_go_where_there_are_many(
    compared: Callable[..., list[str]],
    artifact: Path,
    loader: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(loader, "_MOST_NOTES", 3)
    for number in range(5):
        copy = tmp_path / f"{number}.tw"
        copy.write_bytes(artifact.read_bytes())
        assert compared(copy) == ["weights.bin"]
    assert len([*(tmp_path / "cache" / "tilewright" / "checked").iterdir()]) == 3
    assert compared(tmp_path / "4.tw") == []

"""What the loader refuses to load."""

from __future__ import annotations

import contextlib
import subprocess
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from tests.compiler.pack.test_loader import N, X, change, extracted


def test_what_is_not_there_or_no_artifact_is_refused(loader: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "text.tw").write_text("hello")
    with zipfile.ZipFile(tmp_path / "other.zip", "w") as archive:
        archive.writestr("a", "b")
    refused = [
        ("missing.tw", "does not exist.*Fix"),
        ("text.tw", "not a whole .tw archive.*Fix: download it again"),
        ("other.zip", "holds no manifest.json"),
        (".", "holds no manifest.json"),
    ]
    for name, words in refused:
        with pytest.raises(loader.ArtifactError, match=words):
            loader.Model(tmp_path / name)


def test_an_archive_that_is_cut_off_is_refused(loader: ModuleType, artifact: Path) -> None:
    whole = artifact.read_bytes()
    artifact.write_bytes(whole[: len(whole) * 2 // 3])
    with pytest.raises(loader.ArtifactError, match=r"not a whole .tw archive"):
        loader.Model(artifact)


def test_weights_are_not_taken_of_a_file_that_took_the_artifacts_place(loader: ModuleType, artifact: Path) -> None:
    """A binding that is first used then would run by its weights."""
    files = loader._Files(artifact, None)
    begin = files.locate("weights.bin")
    other = artifact.with_suffix(".new")
    other.write_bytes(artifact.read_bytes())
    other.replace(artifact)
    with pytest.raises(loader.ArtifactError, match=r"another file has taken the place of .*Fix: load it again"):
        files.locate("weights.bin")
    files.close()
    again = loader._Files(artifact, None)
    assert again.locate("weights.bin") == begin
    again.close()


@pytest.mark.parametrize("name", ["model.so", "weights.bin"])
def test_a_member_that_is_not_what_the_manifest_promises_is_refused(
    loader: ModuleType, artifact: Path, tmp_path: Path, name: str
) -> None:
    with zipfile.ZipFile(artifact) as archive:
        content = archive.read(name)
    flipped = content[:-1] + bytes([content[-1] ^ 1])
    for damaged in (flipped, content[:-1]):
        with pytest.raises(loader.ArtifactError, match=f"{name} in .* is damaged: .*Fix: download it again"):
            loader.Model(change(artifact, name, damaged, tmp_path / "broken.tw"))


def test_one_flipped_bit_anywhere_in_what_is_loaded_is_found(
    loader: ModuleType, artifact: Path, tmp_path: Path
) -> None:
    whole = bytearray(artifact.read_bytes())
    with zipfile.ZipFile(artifact) as archive:
        begin = archive.getinfo("model.so").header_offset
        end = archive.getinfo("weights.bin").header_offset
        right = archive.read("model.so")
    broken, found = tmp_path / "broken.tw", 0
    for at in range(begin + 200, end, (end - begin) // 15):
        broken.write_bytes(whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :])
        with contextlib.suppress(zipfile.BadZipFile, zlib.error), zipfile.ZipFile(broken) as archive:
            if archive.read("model.so") == right:  # zeros copied from another place
                continue
        found += 1
        with pytest.raises(loader.ArtifactError, match=r"model.so in .* (cannot be read|is damaged)"):
            loader.Model(broken)
    assert found > 10


def test_checking_can_be_left_out(loader: ModuleType, artifact: Path) -> None:
    folder = extracted(artifact)
    (folder / "weights.bin").write_bytes(np.zeros(3, np.float32).tobytes())
    with pytest.raises(loader.ArtifactError, match=r"weights.bin"):
        loader.Model(folder)
    with loader.Model(folder, verify=False) as model:
        np.testing.assert_array_equal(model.run({"x": X, "n": N})["y"], np.full((2, 3), 7, np.float32))


def test_weights_that_were_packed_again_cannot_be_mapped(loader: ModuleType, artifact: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(artifact) as old, zipfile.ZipFile(tmp_path / "m.tw", "w", zipfile.ZIP_DEFLATED) as new:
        for member in old.namelist():
            new.writestr(member, old.read(member))
    with pytest.raises(loader.ArtifactError, match=r"weights.bin in .* cannot be mapped.*do not repack"):
        loader.Model(tmp_path / "m.tw")


@pytest.mark.parametrize("name", ["manifest.json", "model.so", "weights.bin"])
def test_a_folder_without_a_member_is_refused(loader: ModuleType, artifact: Path, name: str) -> None:
    folder = extracted(artifact)
    (folder / name).unlink()
    with pytest.raises(loader.ArtifactError, match=f"holds no {name}"):
        loader.Model(folder)


def test_another_format_version_is_refused(loader: ModuleType, artifact: Path, tmp_path: Path) -> None:
    path = change(artifact, "manifest.json", b'{"format_version": 9}', tmp_path / "m.tw")
    with pytest.raises(loader.ArtifactError, match="format version 9, this loader reads 1"):
        loader.Model(path)
    for damaged in (b"{", b"[]", b"{}"):
        with pytest.raises(loader.ArtifactError, match="damaged"):
            loader.Model(change(artifact, "manifest.json", damaged, tmp_path / "m.tw"))


def test_another_abi_version_is_refused(
    loader: ModuleType, parts: Any, build: Callable[..., bytes], tmp_path: Path
) -> None:
    path = parts.library(build("-DABI=4")).pack(tmp_path / "m.tw").path
    with pytest.raises(
        loader.ArtifactError, match=r"ABI version 4, this loader knows 3.*loader.py inside that artifact"
    ):
        loader.Model(path)


def test_another_architecture_and_no_library_at_all_are_refused(loader: ModuleType, parts: Any, tmp_path: Path) -> None:
    code = parts.program.library
    other = 183 if code[18] == 62 else 62
    foreign = code[:18] + bytes([other]) + code[19:]
    with pytest.raises(loader.WrongMachine, match=r"the artifact is for (aarch64|x86_64), this machine is"):
        loader.Model(parts.library(foreign).pack(tmp_path / "a.tw").path)
    with pytest.raises(loader.WrongMachine, match="cannot be loaded"):
        loader.Model(parts.library(b"no library").pack(tmp_path / "b.tw").path)


def test_a_library_without_the_interface_is_refused(loader: ModuleType, parts: Any, tmp_path: Path) -> None:
    (tmp_path / "empty.c").write_text("int nothing;\n")
    subprocess.run(["gcc", "-shared", "-o", tmp_path / "empty.so", tmp_path / "empty.c"], check=True)
    path = parts.library((tmp_path / "empty.so").read_bytes()).pack(tmp_path / "m.tw").path
    with pytest.raises(loader.ArtifactError, match="not a Tilewright model"):
        loader.Model(path)


def test_lanes_below_one_are_refused(loader: ModuleType, artifact: Path) -> None:
    with pytest.raises(ValueError, match="lanes is 0"):
        loader.Model(artifact, lanes=0)

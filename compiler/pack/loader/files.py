"""The members of an artifact."""

from __future__ import annotations

import hashlib
import json
import os
import struct
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from compiler.pack.loader.checked import _is_noted, _note, _state
from compiler.pack.loader.errors import ArtifactError
from compiler.pack.loader.profiles import _of_profile

FORMAT_VERSION = 1
_PROGRAMS = ("model.so", "model.dll", "model.dylib", "model.wasm")
"""The file of a program, by what it runs on: Linux, Windows, macOS, browsers."""


def _program_of(manifest: Mapping[str, Any], folder: str) -> str:
    """The name of the file that holds the program in a folder."""
    held = manifest.get("files", {})
    return next((name for one in _PROGRAMS if (name := folder + one) in held), folder + _PROGRAMS[0])


class _Files:
    """The members of an artifact, in its archive or in a folder; each is checked as it is read.

    `manifest` is that of one profile, where the artifact has several: of the one named, else of the most able here.
    """

    def __init__(self, path: Path, verify: bool | None, profile: str | None = None) -> None:
        self.path = path
        self.verify = verify
        self._verified: set[str] = set()
        self.archive: zipfile.ZipFile | None = None
        if not path.exists():
            raise ArtifactError(f"{path} does not exist", "give a .tw file, or the folder it was extracted to")
        if path.is_file():
            try:
                self.archive = zipfile.ZipFile(path)
            except (OSError, zipfile.BadZipFile) as reason:
                raise ArtifactError(f"{path} is not a whole .tw archive: {reason}", "download it again") from reason
        try:
            self.manifest = _of_profile(self._manifest(), profile)
        except BaseException:
            self.close()
            raise

    def _manifest(self) -> dict[str, Any]:
        try:
            manifest = json.loads(self._bytes("manifest.json"))
            version = manifest["format_version"]
        except (ValueError, KeyError, TypeError) as reason:
            raise ArtifactError(f"manifest.json of {self.path} is damaged: {reason!r}", "download it again") from reason
        if version != FORMAT_VERSION:
            raise ArtifactError(
                f"{self.path} has format version {version}, this loader reads {FORMAT_VERSION}",
                "use the loader.py inside that artifact",
            )
        return dict(manifest)

    def read(self, name: str) -> bytes:
        """A member's bytes. Raises ArtifactError unless they are those that the manifest promises."""
        content = self._bytes(name)
        if self.verify is not False:
            self._compare(name, len(content), hashlib.sha256(content))
        return content

    def library(self, folder: str) -> bytes:
        """The program in a folder, as each system has it, or browsers."""
        return self.read(_program_of(self.manifest, folder))

    def locate(self, name: str) -> tuple[Path, int]:
        """The file that holds a member's bytes as they are, and where in it they begin.

        Checked like `read`; where `verify` is None, not again as long as the file is as it was.
        """
        path, offset, size = self._place(name)
        if self.verify is False or name in self._verified:
            return path, offset
        part = repr((name, offset, size, self.manifest.get("files", {}).get(name)))
        state = None if self.verify else _state(path, part)
        if state is None or not _is_noted(state):
            digest = hashlib.sha256()
            with open(path, "rb") as file:
                file.seek(offset)
                left = size
                while left and (piece := file.read(min(left, 1 << 20))):
                    digest.update(piece)
                    left -= len(piece)
            self._compare(name, size - left, digest)
            if state is not None and _state(path, part) == state:
                _note(state)
        self._verified.add(name)
        return path, offset

    def close(self) -> None:
        if self.archive:
            self.archive.close()

    def _place(self, name: str) -> tuple[Path, int, int]:
        if not self.archive:
            path = self.path / name
            if not path.is_file():
                raise self._missing(name)
            return path, 0, path.stat().st_size
        try:
            member = self.archive.getinfo(name)
        except KeyError:
            raise self._missing(name) from None
        with open(self.path, "rb") as file:
            opened = self.archive.fp
            if opened is None or not os.path.sameopenfile(file.fileno(), opened.fileno()):
                raise ArtifactError(
                    f"another file has taken the place of {self.path} since it was loaded", "load it again"
                )
            file.seek(member.header_offset)
            header = file.read(30)
        if len(header) < 30 or header[:4] != b"PK\3\4" or member.compress_type != zipfile.ZIP_STORED:
            raise ArtifactError(f"{name} in {self.path} cannot be mapped", "download it again, and do not repack it")
        name_bytes, extra_bytes = struct.unpack_from("<HH", header, 26)
        return self.path, member.header_offset + 30 + name_bytes + extra_bytes, member.file_size

    def _bytes(self, name: str) -> bytes:
        try:
            return self.archive.read(name) if self.archive else (self.path / name).read_bytes()
        except (KeyError, FileNotFoundError):
            raise self._missing(name) from None
        except (OSError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error) as reason:
            said = str(reason) or "the file ends before it"  # an EOFError has no words
            raise ArtifactError(f"{name} in {self.path} cannot be read: {said}", "download it again") from reason

    def _compare(self, name: str, size: int, digest: Any) -> None:
        promised = self.manifest.get("files", {}).get(name)
        if promised is None:
            raise ArtifactError(f"{name} is not in the manifest of {self.path}", "download it again")
        if (size, digest.hexdigest()) != (promised["bytes"], promised["sha256"]):
            raise ArtifactError(
                f"{name} in {self.path} is damaged: {size} bytes with SHA-256 {digest.hexdigest()}, "
                f"not {promised['bytes']} with {promised['sha256']}",
                "download it again",
            )

    def _missing(self, name: str) -> ArtifactError:
        return ArtifactError(
            f"{self.path} holds no {name}", "give a .tw file made by Tilewright, or a folder with all of it"
        )

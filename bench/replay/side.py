"""The compiler as it is at a commit, or as it lies in the working tree, in a folder where nobody changes it."""

from __future__ import annotations

import hashlib
import io
import shutil
import subprocess
import zipfile
from dataclasses import dataclass
from pathlib import Path

from tilewright.errors import UsageError

ROOT = Path(__file__).parents[2]
PACKAGE = "compiler"
LEFT = "__pycache__"


@dataclass(frozen=True)
class Side:
    """A compiler to be run. `tree` is the folder that holds its package, `digest` is of all files of that package."""

    name: str
    tree: Path
    digest: str


def at_commit(commit: str, folder: Path, root: Path) -> Side:
    """The compiler at a commit of the repository at `root`, in `folder`. Raises `UsageError` where there is none."""
    git = ["git", "-C", str(root)]
    asked = [*git, "rev-parse", "--verify", "--quiet", "--short=12", f"{commit}^{{commit}}"]
    found = subprocess.run(asked, capture_output=True, text=True, check=False)
    if found.returncode:
        raise UsageError(f"{commit!r} is no commit of this repository", fix="give a commit, a branch or a tag")
    name = found.stdout.strip()
    packed = subprocess.run([*git, "archive", "--format=zip", name, PACKAGE], capture_output=True, check=False)
    if packed.returncode:
        raise UsageError(f"{commit} has no package {PACKAGE}", fix="give a commit that has one")
    with zipfile.ZipFile(io.BytesIO(packed.stdout)) as archive:
        archive.extractall(folder)
    return Side(name, folder, digest_of(folder / PACKAGE))


def content_at(commit: str, path: str, root: Path) -> bytes | None:
    """A file as it is at a commit of the repository at `root`; None where it is not there."""
    shown = subprocess.run(["git", "-C", str(root), "show", f"{commit}:{path}"], capture_output=True, check=False)
    return None if shown.returncode else shown.stdout


def of_working_tree(folder: Path, root: Path) -> Side:
    """The compiler as it is now in the checkout at `root`, committed or not, copied to `folder`."""
    shutil.copytree(root / PACKAGE, folder / PACKAGE, ignore=shutil.ignore_patterns(LEFT))
    return Side("the working tree", folder, digest_of(folder / PACKAGE))


def digest_of(package: Path) -> str:
    """SHA-256 (hex) over the names and contents of all files of a package, but compiled Python."""
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*")):
        if path.is_file() and LEFT not in path.parts:
            content = hashlib.sha256(path.read_bytes()).hexdigest()
            digest.update(f"{path.relative_to(package).as_posix()}\0{content}\n".encode())
    return digest.hexdigest()

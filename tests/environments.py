"""Environments with what an extra asks for and nothing else, as a user's are: linked from this one, or by pip.

This environment has more than any user's, so that what is missing in a declaration is not missed here.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import venv
import zipfile
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
BUILD = "import setuptools.build_meta as backend; print(backend.build_wheel('.'))"


class Incomplete(Exception):
    """A distribution that an extra asks for is not installed here; the text is its name."""


def build_wheel(folder: Path) -> Path:
    """The wheel, built offline from a copy of the checkout."""
    skip = shutil.ignore_patterns(".*", "__pycache__", "*.egg-info", "build", "dist", "tests", "docs", "bench")
    shutil.copytree(ROOT, folder / "checkout", ignore=skip)
    said = run([sys.executable, "-c", BUILD], folder / "checkout")
    wheel = folder / said.split()[-1]
    (folder / "checkout" / wheel.name).rename(wheel)
    shutil.rmtree(folder / "checkout")
    return wheel


def linked(folder: Path, wheel: Path, extra: str) -> Path:
    """The Python of a new environment: the wheel, and links to what the base install and one extra ask for here.

    Takes no network and a second or two. Raises `Incomplete`.
    """
    python = empty(folder)
    place = Path(run([python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], folder).strip())
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(place)
        (file,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        asked = metadata.PathDistribution(place / Path(file).parent).requires or []
    for distribution in closure(asked, extra).values():
        _link(distribution, place)
    return python


def closure(asked: Sequence[str], extra: str = "") -> dict[str, metadata.Distribution]:
    """Name -> distribution of this environment, of all that these requirements need with an extra, at any depth.

    Raises `Incomplete`.
    """
    found: dict[str, metadata.Distribution] = {}
    seen: set[tuple[str, str]] = set()
    waiting = [(text, one) for text in asked for one in {"", extra}]
    while waiting:
        text, given = waiting.pop()
        requirement = Requirement(text)
        if requirement.marker and not requirement.marker.evaluate({"extra": given}):
            continue
        name = canonicalize_name(requirement.name)
        try:
            found[name] = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            raise Incomplete(name) from None
        for one in {"", *requirement.extras} - {given for known, given in seen if known == name}:
            seen.add((name, one))
            waiting += [(further, one) for further in found[name].requires or []]
    return found


def installed(folder: Path, *arguments: str) -> Path:
    """The Python of a new environment in which pip has installed these; `pip check` found nothing missing."""
    python = empty(folder, pip=True)
    pip(python, "install", *arguments)
    pip(python, "check")
    return python


def pip(python: Path, *arguments: str) -> str:
    """What an environment's pip printed, with the index and the cache of this machine."""
    quiet = ["--quiet", "--disable-pip-version-check", "--no-input", "--root-user-action=ignore"]
    command, *words = arguments
    return run([python, "-m", "pip", command, *(quiet if command == "install" else quiet[1:2]), *words], python.parent)


def run(command: Sequence[str | Path], folder: Path) -> str:
    """What a command printed that succeeds, in an environment without variables for Python or for us."""
    done = subprocess.run(
        list(map(str, command)), cwd=folder, env=variables(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def variables() -> dict[str, str]:
    """The environment variables, but those for Python and for us."""
    ours = re.compile("TILEWRIGHT_|PYTHON|VIRTUAL_ENV")
    return {name: value for name, value in os.environ.items() if not ours.match(name)}


def empty(folder: Path, *, pip: bool = False) -> Path:
    """The Python of a new environment with nothing, or with pip alone."""
    venv.EnvBuilder(symlinks=True, with_pip=pip).create(folder)
    return folder / "bin" / "python"


def _link(distribution: metadata.Distribution, place: Path) -> None:
    """Its files but its programs: hard links, since a job's sandbox does not follow others; copies on another disk."""
    for file in distribution.files or ():
        source, target = Path(str(file.locate())), place / file
        if ".." not in file.parts and source.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                os.link(source, target)
            except OSError:
                shutil.copy2(source, target)

"""What is in the wheel: the five packages, all of each, and nothing beside them."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from email import message_from_bytes
from email.message import Message
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
SHIPPED = ("compiler", "migrations", "service", "tilewright", "worker")
BASE = {"httpx", "numpy", "rich", "typer"}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def names(requirements: list[str]) -> set[str]:
    return {canonicalize_name(Requirement(text).name) for text in requirements}


EXTRAS = {extra: names(requirements) for extra, requirements in PROJECT["optional-dependencies"].items()}
CUPY = EXTRAS["gpu-arrays"] | {"cupy", "cupyx"}
"""A wheel for each version of CUDA has these modules; where none is installed they are their own names."""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """The wheel, built offline from a copy of the whole checkout."""
    source = tmp_path_factory.mktemp("build") / "checkout"
    skip = shutil.ignore_patterns(".*", "__pycache__", "*.egg-info", "build", "dist")
    shutil.copytree(ROOT, source, ignore=skip)
    program = "import setuptools.build_meta as backend; print(backend.build_wheel('out'))"
    (source / "out").mkdir()
    outcome = subprocess.run([sys.executable, "-c", program], cwd=source, capture_output=True, text=True, check=False)
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr
    return zipfile.ZipFile(source / "out" / outcome.stdout.split()[-1])


@pytest.fixture(scope="module")
def metadata(wheel: zipfile.ZipFile) -> Message:
    return message_from_bytes(wheel.read(f"tilewright-{PROJECT['version']}.dist-info/METADATA"))


def test_the_wheel_holds_five_packages_and_its_metadata(wheel: zipfile.ZipFile) -> None:
    top = {name.split("/")[0] for name in wheel.namelist()}
    assert top == {*SHIPPED, f"tilewright-{PROJECT['version']}.dist-info"}


def test_the_wheel_holds_every_file_of_its_packages(wheel: zipfile.ZipFile) -> None:
    here = {
        file.relative_to(ROOT).as_posix()
        for package in SHIPPED
        for file in (ROOT / package).rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }
    there = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert there == here


def test_the_base_install_is_four_libraries(metadata: Message) -> None:
    requirements = [Requirement(text) for text in metadata.get_all("Requires-Dist", [])]
    base = {requirement.name for requirement in requirements if "extra" not in str(requirement.marker or "")}
    assert base == BASE


def test_the_wheel_states_its_license_and_its_command(wheel: zipfile.ZipFile, metadata: Message) -> None:
    folder = f"tilewright-{PROJECT['version']}.dist-info"
    assert metadata["License-Expression"] == "Apache-2.0"
    assert wheel.read(f"{folder}/licenses/LICENSE") == (ROOT / "LICENSE").read_bytes()
    points = wheel.read(f"{folder}/entry_points.txt").decode()
    assert "tilewright = tilewright.cli:main" in points
    assert "[torch_dynamo_backends]\ntilewright = tilewright.pytorch:backend" in points


def imported_distributions(package: str) -> dict[frozenset[str], set[str]]:
    """Distributions -> files of `package` that import them, at any depth, the standard library and ourselves left out.

    Several distributions have modules below one name where that is a namespace, such as `opentelemetry`.
    """
    ours = {*SHIPPED, "bench", *sys.stdlib_module_names}
    providers = packages_distributions()
    found: dict[frozenset[str], set[str]] = {}
    for file in sorted((ROOT / package).rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            roots = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.module and not node.level:
                roots = [node.module]
            for root in {name.split(".")[0] for name in roots} - ours:
                distributions = frozenset(map(canonicalize_name, providers.get(root, [root])))
                found.setdefault(distributions, set()).add(file.relative_to(ROOT).as_posix())
    return found


@pytest.mark.parametrize(
    ("package", "allowed"),
    [
        (
            "tilewright",
            BASE | EXTRAS["generate"] | EXTRAS["hub"] | EXTRAS["verify"] | EXTRAS["bench"] | EXTRAS["serve"],
        ),
        ("compiler", BASE | EXTRAS["server"] | EXTRAS["cuda"] | EXTRAS["solver"] | CUPY),
        ("service", BASE | EXTRAS["server"] | EXTRAS["parquet"]),
        ("worker", BASE | EXTRAS["server"] | EXTRAS["cuda"] | EXTRAS["bench"]),
        ("migrations", BASE | EXTRAS["server"]),
        ("bench", BASE | EXTRAS["server"] | EXTRAS["bench"] | EXTRAS["gpu-peers"] | CUPY),
    ],
)
def test_a_package_imports_only_what_pyproject_declares(package: str, allowed: set[str]) -> None:
    undeclared = {names: files for names, files in imported_distributions(package).items() if not names & allowed}
    assert undeclared == {}


def test_the_version_is_stated_once_for_all() -> None:
    version = (ROOT / "compiler" / "contract" / "version.py").read_text()
    stated = re.search(r'^COMPILER_VERSION = "(.+)"$', version, re.MULTILINE)
    assert stated
    assert stated[1] == PROJECT["version"]

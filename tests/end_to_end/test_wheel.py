"""The wheel, installed away from the checkout and started in a folder full of decoys."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.end_to_end import models
from tests.end_to_end.house import ROOT, House, running
from tests.servers import GUARD_S

DECOYS = ("service", "worker", "compiler", "migrations")
PACKAGES = (*DECOYS, "tilewright")


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of packages that `pip install --target` made of the wheel.

    Dependencies are those of this environment.
    """
    folder = tmp_path_factory.mktemp("wheel")
    skip = shutil.ignore_patterns(".*", "__pycache__", "*.egg-info", "build", "dist", "tests")
    shutil.copytree(ROOT, folder / "checkout", ignore=skip)
    (folder / "out").mkdir()
    build = f"import setuptools.build_meta as backend; print(backend.build_wheel({str(folder / 'out')!r}))"
    wheel = folder / "out" / run([sys.executable, "-c", build], folder / "checkout").split()[-1]
    shutil.rmtree(folder / "checkout")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--disable-pip-version-check"]
    run([*pip, "--target", str(folder / "installed"), str(wheel)], folder)
    return folder / "installed"


def run(command: list[str], cwd: Path, **variables: str) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("TILEWRIGHT_", "PYTHON"))}
    done = subprocess.run(
        command,
        cwd=cwd,
        env={**environment, **variables},
        capture_output=True,
        text=True,
        timeout=GUARD_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def python_path(installed: Path) -> str:
    """The empty entry stands for the current folder, where the decoys are, and comes first."""
    return f"{os.pathsep}{installed}"


@pytest.fixture(scope="module")
def command(installed: Path) -> str:
    """The command `tilewright` that came with the wheel."""
    return str(installed / "bin" / "tilewright")


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory, command: str, python_path: str) -> Iterator[House]:
    folder = tmp_path_factory.mktemp("decoys")
    for name in DECOYS:
        (folder / f"{name}.py").write_text("raise SystemExit('a decoy was imported')\n")
    with running(folder, (command, "up"), python_path) as house:
        yield house


def test_the_packages_are_those_of_the_wheel(installed: Path) -> None:
    names = f"print(*(__import__(name).__file__ for name in {PACKAGES}), sep='\\n')"
    found = run([sys.executable, "-P", "-c", names], installed.parent, PYTHONPATH=str(installed)).splitlines()
    assert [Path(file).parent for file in found] == [installed / name for name in PACKAGES]


def test_a_model_is_compiled_beside_decoys(house: House, command: str, python_path: str) -> None:
    (house.folder / "model.onnx").write_bytes(models.tiny("tiny_cnn"))
    arguments = ["model.onnx", "--budget", "0", "--option", "threads=1", "--json"]
    variables = {"PYTHONPATH": python_path, "TILEWRIGHT_DATA_DIR": str(house.data)}
    said = json.loads(run([command, "compile", *arguments], house.folder, **variables))
    assert said["state"] == "SUCCEEDED"
    assert Path(said["artifact"]).name == "model.tw"
    reported = json.loads(run([command, "run", "model.tw", "--json"], house.folder, **variables))
    assert reported["outputs"] == {"probabilities": {"shape": [1, 10], "dtype": "float32"}}

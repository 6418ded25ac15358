"""The checkout itself: the lock, the make targets, what CI runs, the reasons beside the ignores."""

from __future__ import annotations

import os
import re
import subprocess
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PYPROJECT = (ROOT / "pyproject.toml").read_text()
PROJECT = tomllib.loads(PYPROJECT)["project"]
LOCKS = {
    "requirements.txt": ("server", "bench", "dev"),
    "requirements-server.txt": ("server",),
    "requirements-cuda.txt": ("server", "cuda"),
    "requirements-demo.txt": ("server", "demo"),
}
RUNNING_TARGETS = ("demo", "up")
"""They need no tools of the tests."""
PREPARED_TARGETS = (
    "test",
    "test-rest",
    "test-all",
    "cuda-double",
    "torture",
    "mutants",
    "check",
    "bench",
)
INDEX_OPTIONS = re.compile(r"--(extra-)?index-url|--find-links|--trusted-host|(?m:^-[if] )")


def locked(name: str) -> list[str]:
    """One string per locked requirement, its hashes on the same line."""
    return (ROOT / name).read_text().replace("\\\n", " ").strip().splitlines()


@pytest.mark.parametrize("name", LOCKS)
def test_every_locked_requirement_is_one_version_with_hashes(name: str) -> None:
    for line in locked(name):
        requirement, *hashes = line.split("--hash=")
        assert re.fullmatch(r"[a-z0-9-]+==\S+( ; .+)?", requirement.strip()), line
        assert hashes, line
        assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", text.strip()) for text in hashes), line


@pytest.mark.parametrize("name", LOCKS)
def test_no_lock_names_an_index_or_an_address(name: str) -> None:
    text = (ROOT / name).read_text()
    assert "://" not in text
    assert not INDEX_OPTIONS.search(text)


@pytest.mark.parametrize("name", ["pyproject.toml", "Makefile", ".ci/run", "Dockerfile", "docker-compose.yml"])
def test_no_configuration_names_an_index(name: str) -> None:
    assert not INDEX_OPTIONS.search((ROOT / name).read_text())


@pytest.mark.parametrize("name", ["uv.lock", "poetry.lock", "pdm.lock", "Pipfile.lock"])
def test_there_is_no_lock_that_records_index_addresses(name: str) -> None:
    assert not (ROOT / name).exists()


@pytest.mark.parametrize(("name", "extras"), LOCKS.items())
def test_a_lock_satisfies_pyproject(name: str, extras: tuple[str, ...]) -> None:
    pins = [Requirement(line.split("--hash=")[0]) for line in locked(name)]
    versions = {canonicalize_name(pin.name): next(iter(pin.specifier)).version for pin in pins}
    wanted = list(PROJECT["dependencies"])
    for extra in extras:
        wanted += PROJECT["optional-dependencies"][extra]
    for requirement in map(Requirement, wanted):
        version = versions.get(canonicalize_name(requirement.name))
        assert version is not None, f"{requirement} is not in {name}: run `make lock`"
        assert requirement.specifier.contains(version), f"{name} has {version}, not {requirement}: run `make lock`"


@pytest.mark.parametrize("name", [name for name in LOCKS if name != "requirements.txt"])
def test_the_locks_agree_where_they_overlap(name: str) -> None:
    whole, part = (
        {line.split("==")[0]: line.split()[0] for line in locked(lock)} for lock in ("requirements.txt", name)
    )
    overlap = whole.keys() & part.keys()
    assert overlap
    assert {name: whole[name] for name in overlap} == {name: part[name] for name in overlap}


def test_every_target_prepares_its_own_environment() -> None:
    dry = {target: make("--dry-run", target) for target in PREPARED_TARGETS}
    assert all(text.startswith("python3 bootstrap.py\n") for text in dry.values()), dry
    running = {target: make("--dry-run", target) for target in RUNNING_TARGETS}
    assert all(text.startswith("python3 bootstrap.py --demo\n") for text in running.values()), running


def test_make_alone_lists_the_targets() -> None:
    listed = make()
    assert all(
        re.search(rf"^  {target} +\S", listed, re.MULTILINE)
        for target in (*RUNNING_TARGETS, *PREPARED_TARGETS, "gpu-check")
    )


def make(*arguments: str) -> str:
    """What `make` prints, free of the variables of a `make` around this test."""
    environment = {
        name: value for name, value in os.environ.items() if name not in {"MAKEFLAGS", "MFLAGS", "MAKELEVEL"}
    }
    command = ["make", *arguments, "PYTHON=python3"]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True).stdout


def test_ci_runs_the_same_commands_as_the_readme() -> None:
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    subprocess.run(["bash", "-n", script], check=True)
    lines = [line.split(" #")[0].strip() for line in script.read_text().splitlines()]
    assert lines[-4:-2] == ["make check", "make test"]
    assert lines[-1].startswith('make test-rest ARGS="--minutes '), "a slow machine ends as well"
    assert "set -euo pipefail" in lines
    assert "make test" in (ROOT / "README.md").read_text()


def test_every_ignored_lint_rule_and_warning_has_its_reason_beside_it() -> None:
    lint = PYPROJECT[PYPROJECT.index("ignore = [") : PYPROJECT.index("[tool.ruff.lint.isort]")]
    pytest_section = PYPROJECT[PYPROJECT.index("filterwarnings") :]
    entries = re.findall(r'^ +"[A-Z]+\d+",.*$', lint, re.MULTILINE)
    entries += re.findall(r'^ +"ignore:.*$', pytest_section, re.MULTILINE)
    assert entries
    assert [entry for entry in entries if not re.search(r"# \S+ \S+", entry)] == []


def test_every_noqa_and_type_ignore_names_its_rule() -> None:
    blanket = re.compile(r"#\s*noqa(?!:\s*[A-Z]+\d)|#\s*type:\s*ignore(?!\[[a-z-]+)")
    folders = ("tilewright", "compiler", "service", "worker", "migrations", "bench")
    files = [file for folder in folders for file in (ROOT / folder).rglob("*.py")]
    assert [str(file) for file in files if blanket.search(file.read_text())] == []


def test_warnings_are_errors() -> None:
    assert tomllib.loads(PYPROJECT)["tool"]["pytest"]["ini_options"]["filterwarnings"][0] == "error"


def test_the_license_is_apache_2() -> None:
    text = (ROOT / "LICENSE").read_text()
    assert re.search(r"Apache License\s+Version 2\.0, January 2004", text)

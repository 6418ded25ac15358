"""On a machine without an optional tool no test fails: those that need it are skipped, and say so.

Each tool is hidden in turn from the tests that touch it. That takes a minute or two; to run all tests once more without
any tool would take as long as all tests, and would not show what depends on which.
"""

from __future__ import annotations

import fnmatch
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TOOLS = {
    "aarch64-linux-gnu-gcc": (
        ("aarch64-linux-gnu-*",),
        (
            "tests/worker/devices/test_gpu.py",
            "tests/worker/devices/test_queues.py",
            "tests/compiler/devices/cpu/emulation",
        ),
    ),
    "qemu-aarch64": (("qemu-aarch64*",), ("tests/compiler/devices/cpu/emulation",)),
    "PostgreSQL": (
        ("postgres", "initdb", "pg_*"),
        ("tests/test_servers.py", "tests/service/test_tls.py", "tests/service/db/test_engine.py"),
    ),
    "redis-server": (("redis-*", "valkey-*"), ("tests/test_servers.py", "tests/service/test_tls.py")),
    "Node.js": (("node", "nodejs"), ("tests/compiler/test_pipeline_wasm.py",)),
    "Chromium": (("chromium*", "chromedriver", "google-chrome*"), ("tests/browser",)),
    "g++": (("*g++*", "c++*"), ("tests/cuda_double/test_driver.py", "tests/worker/devices/test_gpu.py")),
    "NVRTC": ((), ("tests/worker/devices/test_cuda_builds.py", "tests/worker/devices/test_queues.py")),
}
"""Tool -> patterns of its programs, tests that touch it."""


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.parametrize("tool", TOOLS)
def test_without_a_tool_tests_are_skipped_and_none_fails(tool: str, tmp_path: Path) -> None:
    programs, files = TOOLS[tool]
    environment = {**os.environ, "PATH": str(path_without(programs, tmp_path / "bin")), "OPENBLAS_NUM_THREADS": "1"}
    if tool == "PostgreSQL":
        environment["TILEWRIGHT_TEST_POSTGRES_FOLDER"] = str(tmp_path)
        environment.pop("TILEWRIGHT_TEST_POSTGRES_URL", None)
    if tool == "NVRTC":  # a package of this name hides the wheels below the namespace
        (tmp_path / "hiding" / "nvidia").mkdir(parents=True)
        (tmp_path / "hiding" / "nvidia" / "__init__.py").touch()
        environment["PYTHONPATH"] = str(tmp_path / "hiding")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--basetemp={tmp_path / 'child'}", *files],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr
    assert "SKIPPED" in done.stdout, done.stdout[-8000:]


def path_without(patterns: tuple[str, ...], folder: Path) -> Path:
    """A folder of links to all programs of the PATH but those of these names."""
    folder.mkdir()
    for place in map(Path, os.get_exec_path()):
        for program in place.iterdir() if place.is_dir() else ():
            hidden = any(fnmatch.fnmatch(program.name, pattern) for pattern in patterns)
            if not hidden and not os.path.lexists(folder / program.name):
                (folder / program.name).symlink_to(program)
    return folder

from __future__ import annotations

import time
from pathlib import Path

import pytest

from compiler.codegen.build import Stopped, Toolchain, build_library
from compiler.errors import ToolchainFailed
from compiler.targets.cpu import this_machine

ENDLESS = """#!/bin/sh
sleep 600 &
echo $! > {pid}.new
mv {pid}.new {pid}
wait
"""


def gone(pid: int) -> bool:
    """Whether a process has ended, a zombie counting as one."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in ("Z", "X")
    except OSError:
        return True


def test_a_build_that_is_called_off_ends_with_all_its_processes(tmp_path: Path) -> None:
    compiler, pid = tmp_path / "cc", tmp_path / "pid"
    compiler.write_text(ENDLESS.format(pid=pid))
    compiler.chmod(0o755)
    with pytest.raises(Stopped):
        build_library({"a.c": ""}, this_machine(), Toolchain(str(compiler), "endless"), stop=pid.exists)
    deadline = time.monotonic() + 10
    while not (pid.read_text() and gone(int(pid.read_text()))):
        assert time.monotonic() < deadline, "the process that the compiler started lives on"
        time.sleep(0.01)


def test_a_build_called_off_before_it_begins_starts_nothing() -> None:
    with pytest.raises(Stopped):
        build_library({"a.c": ""}, this_machine(), Toolchain("/nowhere/cc", "none"), stop=lambda: True)


def test_what_the_compiler_rejects_is_told_with_its_first_error() -> None:
    with pytest.raises(ToolchainFailed, match=r"rejected a\.c .*error"):
        build_library({"a.c": "int f(void) { return nonsense; }"}, this_machine(), Toolchain("gcc", ""))

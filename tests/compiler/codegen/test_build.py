from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from compiler.codegen import build
from compiler.codegen.build import Objects, Stopped, Toolchain, find_toolchain
from compiler.devices.cpu.emit.library import build_library
from compiler.devices.cpu.target import this_machine
from compiler.errors import ToolchainFailed
from compiler.trace import StopRequest

ENDLESS = """#!/bin/sh
sleep 600 &
echo $! > {pid}.new
mv {pid}.new {pid}
wait
"""
DYING = """#!/bin/sh
echo run >> {runs}
if [ $(wc -l < {runs}) -le {deaths} ]; then
    echo "a.c:1: internal compiler error: Segmentation fault" >&2
    exit 4
fi
exec gcc "$@"
"""
pytestmark = pytest.mark.usefixtures("compiled_each_time")


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
    deadline = time.monotonic() + 60
    while not (pid.read_text() and gone(int(pid.read_text()))):
        assert time.monotonic() < deadline, "the process that the compiler started lives on"
        time.sleep(0.01)


def test_a_build_called_off_before_it_begins_starts_nothing() -> None:
    with pytest.raises(Stopped):
        build_library({"a.c": ""}, this_machine(), Toolchain("/nowhere/cc", "none"), stop=lambda: True)


def test_what_the_compiler_rejects_is_told_with_its_first_error() -> None:
    with pytest.raises(ToolchainFailed, match=r"rejected a\.c .*error"):
        build_library({"a.c": "int f(void) { return nonsense; }"}, this_machine(), Toolchain("gcc", ""))


@pytest.mark.parametrize("deaths", [1, 2])
def test_a_compiler_that_died_is_asked_once_more(tmp_path: Path, deaths: int) -> None:
    compiler, runs = tmp_path / "cc", tmp_path / "runs"
    compiler.write_text(DYING.format(runs=runs, deaths=deaths))
    compiler.chmod(0o755)
    sources = {"a.c": "int f(void) { return 1; }"}
    if deaths == 1:
        assert build_library(sources, this_machine(), Toolchain(str(compiler), "dying"))
    else:
        with pytest.raises(ToolchainFailed, match=r"rejected a\.c .*internal compiler error"):
            build_library(sources, this_machine(), Toolchain(str(compiler), "dying"))
    assert len(runs.read_text().splitlines()) == 3 - (deaths - 1), "twice for the unit, and to link where there is one"


def test_a_unit_that_was_compiled_before_is_only_linked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a unit includes, and the flags, are part of what it was compiled from."""
    ran: list[str] = []
    once = build._run

    def run(command: Sequence[str], root: Path, what: str, stop: StopRequest) -> None:
        ran.append(what)
        once(command, root, what, stop)

    monkeypatch.setattr(build, "_run", run)
    sources = {
        "a.c": '#include "inner.h"\nint a(void) { return A; }',
        "b.c": "int b(void) { return 2; }",
        "inner.h": '#include "outer.h"',
        "outer.h": "#define A 1",
    }
    objects: Objects = {}

    def built(texts: dict[str, str], optimise: str = "") -> tuple[bytes, list[str]]:
        ran.clear()
        library = build_library(texts, this_machine(), find_toolchain(), optimise=optimise, objects=objects)
        return library, sorted(ran)

    first, units = built(sources)
    assert units == ["a.c", "b.c", "link"]
    assert built(sources) == (first, ["link"])
    assert first == build_library(sources, this_machine(), find_toolchain())
    other, units = built({**sources, "outer.h": "#define A 3"})
    assert (units, other == first) == (["a.c", "link"], False)
    assert built({**sources, "b.c": "int b(void) { return 3; }"})[1] == ["b.c", "link"]
    assert built(sources, "-O1")[1] == ["a.c", "b.c", "link"]
    assert built(sources) == (first, ["link"])


@pytest.mark.parametrize(("optimise", "levels"), [("", ("-O2", "-O3")), ("-O1", ("-O1", "-O1"))])
def test_the_host_is_optimised_less_than_kernels(
    monkeypatch: pytest.MonkeyPatch, optimise: str, levels: tuple[str, str]
) -> None:
    last: dict[str, list[str]] = {}
    once = build._run

    def run(command: Sequence[str], root: Path, what: str, stop: StopRequest) -> None:
        last[what] = [flag for flag in command if flag.startswith("-O")][-1:]
        once(command, root, what, stop)

    monkeypatch.setattr(build, "_run", run)
    sources = {"model.c": "int a(void) { return 1; }", "kernels.c": "int b(void) { return 2; }"}
    build_library(sources, this_machine(), find_toolchain(), optimise=optimise)
    assert (last["model.c"], last["kernels.c"]) == ([levels[0]], [levels[1]])

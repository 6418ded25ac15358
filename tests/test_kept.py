from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from compiler.codegen import build
from compiler.codegen.build import Toolchain, compile_library, find_toolchain
from compiler.devices.cpu.emit.library import build_library
from compiler.devices.cpu.target import this_machine
from compiler.devices.cuda import nvrtc
from compiler.errors import ToolchainFailed
from tests import kept
from tests.compiler import objects
from tests.compiler.objects import COMPILE, HOST, keep_cubins, keep_nothing, keep_objects


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty folder in place of the user's."""
    monkeypatch.setattr(kept, "folder", lambda: tmp_path)
    return tmp_path


def writer(text: str, calls: list[Path]) -> Callable[[Path], object]:
    def write(path: Path) -> None:
        calls.append(path)
        path.write_text(text)

    return write


def test_what_many_ask_for_at_once_is_made_once() -> None:
    calls: list[Path] = []
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: kept.kept("key", ".txt", writer("made", calls)), range(32)))
    assert len(calls) == 1
    assert {path.read_text() for path in found} == {"made"}
    assert kept.kept("another key", ".txt", writer("another", calls)).read_text() == "another"


def test_what_could_not_be_made_is_not_kept(elsewhere: Path) -> None:
    def fail(path: Path) -> None:
        path.write_text("half")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        kept.kept("key", ".txt", fail)
    assert kept.kept("key", ".txt", writer("whole", [])).read_text() == "whole"


def test_what_nobody_asked_for_goes(elsewhere: Path) -> None:
    calls: list[Path] = []
    old, used = (kept.kept(key, ".txt", writer(key, calls)) for key in ("old", "used"))
    for path in (old, used):
        os.utime(path, (1000, 1000))
    kept.kept("used", ".txt", writer("used", calls))
    (elsewhere / "folder").mkdir()
    os.utime(elsewhere / "folder", (1000, 1000))
    kept.forget(elsewhere, 2000)
    assert [path.name for path in elsewhere.iterdir()] == [used.name]
    assert len(calls) == 2


def test_an_object_file_is_kept_by_its_source_headers_and_flags(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = []

    def counted(root: Path, unit: str, *rest: object) -> None:
        compiled.append(unit)
        COMPILE(root, unit, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(build, "_compile", counted)
    keep_objects(monkeypatch)
    target, toolchain = this_machine(), find_toolchain()
    sources = {"a.c": '#include "a.h"\nint f(void) { return A; }', "a.h": "#define A 1"}
    first = build_library(sources, target, toolchain)
    assert build_library(sources, target, toolchain) == first
    assert compiled == ["a.c"]
    changed = [{**sources, "a.h": "#define A 2"}, {**sources, "a.c": '#include "a.h"\nint f(void) { return A + 3; }'}]
    assert len({build_library(one, target, toolchain) for one in changed} | {first}) == 3
    build_library(sources, target, toolchain, optimise="-O1")
    build_library(sources, target, Toolchain(toolchain.path, "another version"))
    assert len(compiled) == 5


def test_a_unit_that_is_rejected_or_reads_a_file_by_itself_is_compiled_each_time(elsewhere: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        keep_nothing(patch)
        keep_objects(patch)
        for _ in range(2):
            with pytest.raises(ToolchainFailed):
                build_library({"a.c": "nonsense"}, this_machine(), find_toolchain())
        data = 'asm(".data\\nv: .incbin \\"v.bin\\"\\n");'
        built = [
            compile_library({"a.c": data}, {}, this_machine(), find_toolchain(), binaries={"v.bin": content})
            for content in (b"one", b"two")
        ]
    assert built[0] != built[1]
    assert not list(elsewhere.glob("*.o"))


KERNEL = """#include "tw_kernel.h"
void f(float *y, const float *x) { tw_store(y, tw_max_of(tw_splat(0.0f), tw_load(x))); }
"""


def test_a_precompiled_header_changes_no_byte(
    elsewhere: Path, monkeypatch: pytest.MonkeyPatch, compiled_each_time: None
) -> None:
    target, toolchain = this_machine(), find_toolchain()
    plain = build_library({"kernels_0.c": KERNEL}, target, toolchain)
    keep_objects(monkeypatch)
    assert build_library({"kernels_0.c": KERNEL}, target, toolchain) == plain
    assert len(list(elsewhere.glob("*.gch"))) == 1


def test_the_host_of_a_model_is_as_shipped_where_a_test_asks_for_it(
    monkeypatch: pytest.MonkeyPatch, compiled_each_time: None
) -> None:
    shipped = a_loop_in(HOST)
    keep_objects(monkeypatch)
    assert a_loop_in(HOST) != shipped
    monkeypatch.setattr(objects, "is_host_as_shipped", True)
    assert a_loop_in(HOST) == shipped


def test_kernels_are_as_shipped_but_where_a_test_asks_for_less(
    monkeypatch: pytest.MonkeyPatch, compiled_each_time: None
) -> None:
    shipped = a_loop_in("kernels_0.c")
    keep_objects(monkeypatch)
    assert a_loop_in("kernels_0.c") == shipped
    monkeypatch.setattr(objects, "kernels_level", "-O1")
    assert a_loop_in("kernels_0.c") != shipped


def a_loop_in(unit: str) -> bytes:
    """A library of one unit, which depends on how it is optimised."""
    text = "int f(int *x, int n) { int y = 0; for (int i = 0; i < n; i++) y += x[i]; return y; }"
    return build_library({unit: text}, this_machine(), find_toolchain())


def test_what_nvrtc_made_is_kept_and_what_it_refused_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def compile_cuda(source: str, architecture: str, name: str) -> nvrtc.Compiled:
        asked.append((source, architecture, name))
        if source == "nonsense":
            raise ToolchainFailed("refused")
        return nvrtc.Compiled(architecture, source.encode(), "", {name: nvrtc.Resources(1, 2, 3, 4, 5)}, ("loss",))

    monkeypatch.setattr(nvrtc, "compile_cuda", compile_cuda)
    monkeypatch.setattr(nvrtc, "version", lambda: (13, 0))
    keep_cubins(monkeypatch)
    first, again = (nvrtc.compile_cuda("source", "sm_80") for _ in range(2))
    assert first == again == compile_cuda("source", "sm_80", "kernels.cu")
    assert len(asked) == 2
    for source, architecture, name in (("other", "sm_80", "a"), ("source", "sm_90", "a"), ("source", "sm_80", "b")):
        nvrtc.compile_cuda(source, architecture, name)
    assert len(asked) == 5
    for _ in range(2):
        with pytest.raises(ToolchainFailed):
            nvrtc.compile_cuda("nonsense", "sm_80")
    assert len(asked) == 7

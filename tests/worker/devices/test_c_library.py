from __future__ import annotations

import os
import subprocess
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from compiler.codegen import build
from compiler.codegen.build import WASM, compile_library, find_toolchain
from compiler.devices.cpu.wasm.target import resolve
from worker.devices.c_library import PARTS, copy, kept, make
from worker.sandbox.enter import zig_cache

TARGET = "wasm:simd128"

needs_zig = pytest.mark.skipif(find_spec("ziglang") is None, reason="no Zig. Fix: pip install ziglang")


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Builds in place of Zig's: the arguments of each, which leaves what a cache has."""
    asked: list[list[str]] = []

    def run(command: list[str], **_: Any) -> None:
        asked.append(command[3:])
        for part in PARTS:
            (Path(command[-1]) / part).mkdir(parents=True)

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(metadata, "version", lambda name: "1.0")
    return asked


def test_it_is_built_once_for_a_target_and_for_threads(quick: list[list[str]], tmp_path: Path) -> None:
    (one,) = kept({"target": TARGET}, tmp_path)
    assert kept({"target": TARGET, "threads": 1}, tmp_path) == [one]
    (shared,) = kept({"target": TARGET, "threads": 4}, tmp_path)
    assert kept({"target": TARGET, "threads": 2}, tmp_path) == [shared]
    assert one != shared
    assert quick == [[TARGET, str(one)], [TARGET, "threads", str(shared)]]


def test_without_zig_nothing_is_built(quick: list[list[str]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def missing(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", missing)
    assert (kept({"target": TARGET}, tmp_path), quick) == ([], [])


@needs_zig
def test_a_build_that_fails_leaves_nothing_and_the_job_goes_on(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert kept({"target": "wasm:none"}, tmp_path / "root") == [], "of a target that is not known"
    assert kept({"target": TARGET}, tmp_path / "file") == [], "where no folder can be made"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@needs_zig
def test_of_two_that_build_it_the_first_is_taken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    made = tmp_path / "root" / "made"

    def compiled(*_: Any) -> bytes:
        for part in PARTS:
            (Path(os.environ["ZIG_GLOBAL_CACHE_DIR"]) / part).mkdir(parents=True)
        if not made.is_dir():
            (made / "of the other").mkdir(parents=True)
        return b""

    monkeypatch.setattr(build, "compile_library", compiled)
    for name in ("ZIG_GLOBAL_CACHE_DIR", "ZIG_LOCAL_CACHE_DIR"):
        monkeypatch.setenv(name, "")
    make(TARGET, False, made)
    assert [path.name for path in made.iterdir()] == ["of the other"]
    assert [path.name for path in made.parent.iterdir()] == ["made"]


@pytest.mark.slow
@needs_zig
def test_a_job_that_takes_it_over_builds_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    (library,) = kept({"target": TARGET}, tmp_path / "root")
    assert sum(path.stat().st_size for path in library.rglob("*")) < 20 << 20
    cache = zig_cache(tmp_path)
    copy(library, tmp_path)
    before = {path.name for path in (cache / "o").iterdir()}
    for name in ("ZIG_GLOBAL_CACHE_DIR", "ZIG_LOCAL_CACHE_DIR"):
        monkeypatch.setenv(name, str(cache))
    source = "#include <math.h>\n#include <stdlib.h>\nfloat f(float *x) { return tanhf(*x) + *(float *)malloc(4); }\n"
    compile_library({"other.c": source}, {}, resolve(TARGET), find_toolchain("", WASM))
    new = [path for path in (cache / "o").iterdir() if path.name not in before]
    assert not [path for folder in new for path in folder.glob("*.a")], "nothing but the job's own"

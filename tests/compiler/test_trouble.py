"""A machine's trouble, and a caller's, is told as that: what happened, what mends it and whose fault it is."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import onnx
import pytest
from onnx import TensorProto, helper

from compiler.__main__ import main
from compiler.codegen.build import Toolchain, find_toolchain, temporary_folder
from compiler.contract import CompileOptions
from compiler.devices.cpu.emit.library import build_library
from compiler.devices.cpu.target import this_machine
from compiler.errors import (
    DiskFull,
    MachineError,
    PlaceUnusable,
    ResourceExhausted,
    ToolchainFailed,
    ToolchainMissing,
    machine_error,
)
from compiler.pack import archive
from tests.compiling import compile_file
from worker.limits import Limits
from worker.problems import from_exception

pytestmark = pytest.mark.usefixtures("compiled_each_time")

LINK, COMPILE = "*-shared*", '*" -c "*'


class Trouble(NamedTuple):
    """What a compiler does at a command line that fits the shell's pattern `at`, and what is raised then."""

    at: str
    does: str
    error: type[MachineError]
    says: str
    fix: str


TROUBLES = {
    "disk full at link": Trouble(
        LINK, "echo 'ld: final link failed: No space left on device' >&2; exit 1", DiskFull, "no disk space", "free"
    ),
    "disk full at compile": Trouble(
        COMPILE, "echo 'fatal error: /tmp/x.s: No space left on device' >&2; exit 1", DiskFull, "no disk space", "free"
    ),
    "quota": Trouble(LINK, "echo 'ld: x: Disk quota exceeded' >&2; exit 1", DiskFull, "no disk space", "free"),
    "size limit": Trouble(LINK, "kill -XFSZ $$", ResourceExhausted, "grew beyond", "ulimit -f"),
    "cc1 killed": Trouble(
        COMPILE,
        "echo 'gcc: fatal error: Killed signal terminated program cc1' >&2; exit 1",
        ResourceExhausted,
        "no memory",
        "free memory",
    ),
    "driver killed": Trouble(COMPILE, "kill -KILL $$", ResourceExhausted, "no memory", "free memory"),
    "linker killed": Trouble(
        LINK,
        "echo 'collect2: fatal error: ld terminated with signal 9 [Killed]' >&2; exit 1",
        ResourceExhausted,
        "no memory",
        "free memory",
    ),
    "no process": Trouble(
        COMPILE, "echo 'gcc: fatal error: cannot fork' >&2; exit 1", ResourceExhausted, "process", "ulimit -u"
    ),
    "no temporary folder": Trouble(
        COMPILE,
        "echo 'Cannot create temporary file in /x/: No such file' >&2; exit 1",
        PlaceUnusable,
        "folder",
        "TMPDIR",
    ),
    "rejected": Trouble(COMPILE, "echo 'x.c:1: error: no such thing' >&2; exit 1", ToolchainFailed, "rejected", "gcc"),
}


def fake(folder: Path, trouble: Trouble) -> str:
    """A compiler with this trouble; otherwise the one that is installed."""
    real = find_toolchain().path
    file = folder / "cc"
    file.write_text(f'#!/bin/sh\ncase "$*" in {trouble.at}) {trouble.does};; esac\nexec {real} "$@"\n')
    file.chmod(0o755)
    return str(file)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in ("вход", "出力")]
    graph = helper.make_graph([helper.make_node("Relu", ["вход"], ["出力"])], "g", ports[:1], ports[1:])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    onnx.save(made, tmp_path / "model.onnx")
    return tmp_path / "model.onnx"


@pytest.mark.parametrize("name", TROUBLES)
def test_trouble_of_a_compiler_is_told_through_every_door(
    name: str, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    trouble = TROUBLES[name]
    monkeypatch.setenv("CC", fake(tmp_path, trouble))
    with pytest.raises(trouble.error, match=trouble.says) as caught:
        compile_file(model, tmp_path / "model.tw", CompileOptions(threads=1, tuning_budget_s=0))
    assert type(caught.value) is trouble.error
    assert trouble.fix in caught.value.fix
    problem = from_exception(caught.value, Limits()).to_json()
    assert (problem["fault"], problem["code"]) == ("machine", trouble.error.code)

    assert main([str(model), "--options", '{"threads": 1, "tuning_budget_s": 0}']) == 1
    said = capsys.readouterr().err
    assert trouble.says in said
    assert trouble.fix in said
    assert not (tmp_path / "model.tw").exists()


@pytest.mark.parametrize("compiler", ["env gcc", "env 'gcc'", "env gcc -m64"])
def test_a_compiler_may_have_a_launcher_and_arguments(compiler: str) -> None:
    found, plain = find_toolchain(compiler), find_toolchain("gcc")
    assert build_library({"a.c": "int x(void) { return 0; }\n"}, this_machine(), found)
    assert found.version == plain.version
    same = found.identity(this_machine()) == plain.identity(this_machine())
    assert same == ("-m64" not in compiler)


@pytest.mark.parametrize("compiler", ["/none/gcc", "none gcc", "env none", "gcc 'x", " "])
def test_a_compiler_that_is_not_there_is_named(compiler: str) -> None:
    with pytest.raises(ToolchainMissing) as caught:
        find_toolchain(compiler)
    assert repr(compiler) in caught.value.message
    assert "CC" in caught.value.fix


@pytest.mark.parametrize(
    ("number", "error"),
    [
        (errno.ENOSPC, DiskFull),
        (errno.EDQUOT, DiskFull),
        (errno.EFBIG, ResourceExhausted),
        (errno.ENOMEM, ResourceExhausted),
        (errno.EMFILE, ResourceExhausted),
        (errno.ENOENT, PlaceUnusable),
        (errno.EROFS, PlaceUnusable),
    ],
)
def test_a_failing_system_call_is_trouble_of_the_machine(
    number: int, error: type[MachineError], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reason = OSError(number, os.strerror(number))
    assert type(machine_error("it failed", reason)) is error
    with pytest.raises(error, match=os.strerror(number)), temporary_folder("tw-"):
        raise reason

    def refuse(handle: int) -> None:
        raise reason

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(error, match=os.strerror(number)):
        archive.write_archive(tmp_path / "model.tw", {"a": b"a"})
    assert list(tmp_path.iterdir()) == []


def test_without_a_temporary_folder_it_is_said_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: object, **__: object) -> str:
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found in ['/none']")

    monkeypatch.setattr(tempfile, "mkdtemp", none)
    with pytest.raises(PlaceUnusable, match="No usable temporary directory") as caught:
        build_library({"a.c": ""}, this_machine(), find_toolchain())
    assert "TMPDIR" in caught.value.fix


def test_a_folder_that_forbids_execution_is_told_from_a_library_that_is_damaged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reason = OSError("failed to map segment from shared object")
    with pytest.raises(OSError, match="segment") as caught, temporary_folder("tw-"):
        raise reason
    assert caught.value is reason
    status = type("Status", (), {"f_flag": os.ST_NOEXEC})
    monkeypatch.setattr(os, "statvfs", lambda folder: status)
    with pytest.raises(PlaceUnusable, match="segment"), temporary_folder("tw-"):
        raise reason


def test_a_compiler_that_vanished_is_trouble_of_the_machine(tmp_path: Path) -> None:
    with pytest.raises(MachineError, match="cannot be started"):
        build_library({"a.c": ""}, this_machine(), Toolchain(str(tmp_path / "none"), "gone"))


@pytest.mark.parametrize(("option", "place"), [("--out", "missing"), ("--out", "file"), ("--dump", "file")])
def test_where_the_result_goes_is_looked_at_before_the_compilation(
    option: str, place: str, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    folder = tmp_path / place
    assert main([str(model), option, str(folder / "model.tw")]) == 1
    said = capsys.readouterr().err
    assert "%]" not in said
    assert str(folder) in said
    assert "Fix: " in said


@pytest.mark.parametrize("text", ["[]", '"x"', "null", "1", "{", ""])
def test_options_that_are_no_object_are_refused_with_an_example(
    text: str, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(model), "--options", text]) == 1
    said = capsys.readouterr().err
    assert "--options is" in said
    assert '{"threads": 1}' in said


def test_a_terminal_of_ascii_gets_every_letter_escaped(model: Path) -> None:
    options = json.dumps({"threads": 1, "tuning_budget_s": 0})
    named = model.rename(model.with_name("大.onnx"))
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "LC_ALL": "C"}
    run: Callable[..., subprocess.CompletedProcess[bytes]] = subprocess.run
    command = [sys.executable, "-m", "compiler", str(named), "--explain", "--options", options]
    done = run(command, capture_output=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    assert rb"\u5927.tw" in done.stdout
    shown = run([sys.executable, str(named.with_suffix(".tw"))], capture_output=True, env=environment, check=False)
    assert shown.returncode == 0, shown.stderr
    assert rb"\u51fa" in shown.stdout

from __future__ import annotations

import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bench.replay.objects import launcher

COMPILER = """\
#!/bin/sh
case "$*" in
    *--version*) echo "cc 1.0" ;;
    *)
        echo "$*" >> {runs}
        while [ $# -gt 0 ]; do [ "$1" = -o ] && out=$2; shift; done
        grep -q syntax unit.c && exit 3
        cat unit.c unit.h > "$out" ;;
esac
"""


@pytest.fixture
def compiler(tmp_path: Path) -> Path:
    """A C compiler whose object file is source and header, and that notes each run."""
    program = tmp_path / "cc"
    program.write_text(COMPILER.format(runs=tmp_path / "runs"))
    program.chmod(0o755)
    return program


def compile_in(folder: Path, program: Path, unit: str, header: str = "h", *flags: str) -> tuple[int, str]:
    """Exit status and object file of a compilation in a folder."""
    folder.mkdir(exist_ok=True)
    (folder / "unit.c").write_text(unit)
    (folder / "unit.h").write_text(header)
    (folder / "unit.o").unlink(missing_ok=True)
    given = flags or (f"-ffile-prefix-map={folder}=.",)
    ended = subprocess.run([program, "-O3", *given, "-c", "unit.c", "-o", "unit.o"], cwd=folder, check=False)
    made = folder / "unit.o"
    return ended.returncode, made.read_text() if made.exists() else ""


def runs(of: Path) -> int:
    file = of.parent / "runs"
    return len(file.read_text().splitlines()) if file.exists() else 0


def test_the_same_source_is_compiled_once_wherever_it_stands(tmp_path: Path, compiler: Path) -> None:
    kept = tmp_path / "objects"
    kept.mkdir()
    program = launcher(kept, str(compiler))
    assert compile_in(tmp_path / "one", program, "c") == (0, "ch")
    assert compile_in(tmp_path / "two", program, "c") == (0, "ch")
    assert runs(compiler) == 1
    assert launcher(kept, str(compiler)) == program


@pytest.mark.parametrize(
    ("unit", "header", "flags"),
    [("d", "h", ()), ("c", "i", ()), ("c", "h", ("-O2", "-ffile-prefix-map=x=.")), ("c", "h", ("-g",))],
    ids=["source", "header", "arguments", "tells its folder"],
)
def test_what_an_object_follows_from_makes_it_anew(
    tmp_path: Path, compiler: Path, unit: str, header: str, flags: tuple[str, ...]
) -> None:
    kept = tmp_path / "objects"
    kept.mkdir()
    program = launcher(kept, str(compiler))
    compile_in(tmp_path / "one", program, "c")
    assert compile_in(tmp_path / "one", program, unit, header, *flags) == (0, f"{unit}{header}")
    assert runs(compiler) == 2


def test_a_failure_is_passed_on_and_not_kept(tmp_path: Path, compiler: Path) -> None:
    kept = tmp_path / "objects"
    kept.mkdir()
    program = launcher(kept, str(compiler))
    assert compile_in(tmp_path / "one", program, "syntax error") == (3, "")
    assert compile_in(tmp_path / "one", program, "syntax error") == (3, "")
    assert runs(compiler) == 2
    assert not list(kept.glob("*.o"))


def test_it_answers_for_the_version_as_the_compiler_does(tmp_path: Path, compiler: Path) -> None:
    said = subprocess.run([launcher(tmp_path, str(compiler)), "--version"], capture_output=True, text=True, check=True)
    assert said.stdout == "cc 1.0\n"


def test_threads_that_make_the_launcher_at_once_do_not_take_each_others_draft(tmp_path: Path) -> None:
    at_once = threading.Barrier(8)

    def make(folder: Path) -> Path:
        at_once.wait()
        return launcher(folder, "/usr/bin/cc")

    for round_ in range(20):
        folder = tmp_path / str(round_)
        folder.mkdir()
        with ThreadPoolExecutor(8) as pool:
            programs = set(pool.map(make, [folder] * 8))
        assert [*folder.iterdir()] == [*programs]

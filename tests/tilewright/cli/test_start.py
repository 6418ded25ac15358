"""What a command loads before it does anything: little, and only what it needs."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

import pytest

import tilewright
from tilewright.cli.commands import PANELS, Entry

HEAVY = ("asyncio", "fastapi", "httpx", "numpy", "onnx", "ssl")
"""Libraries that take a noticeable part of a second; pydantic is typer's own, for the values of options."""
PANELS_OF_ERRORS = ("markdown_it", "pygments", "typer.rich_utils")
"""What typer draws errors and help with."""
MOST_MODULES = 400
"""That a command which is refused loads; it was 340, and a command that asks a server loads 130 more."""
PROGRAM = """
import json, sys
from tilewright.cli import main
try:
    main()
except SystemExit as end:
    found = [name for name, module in sys.modules.items() if module is not None]
    print(json.dumps({"status": end.code, "loaded": found}), file=sys.stderr)
"""
ENTRIES = [entry for entries in PANELS.values() for entry in entries]


def loaded(words: Sequence[str], folder: Path) -> tuple[int, set[str], str]:
    """Exit status, modules, and what was printed, of a command in a process of its own that knows no server."""
    homes = dict.fromkeys(("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"), str(folder))
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *words],
        env={**os.environ, **homes, "PYTHONPATH": os.getcwd(), "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )
    *said, last = done.stderr.splitlines()
    found = json.loads(last)
    return found["status"], {*found["loaded"]}, done.stdout + "\n".join(said)


def test_the_help_loads_no_command_and_no_client(tmp_path: Path) -> None:
    status, modules, printed = loaded(["--help"], tmp_path)
    assert status == 0
    assert not modules & {*HEAVY, "pydantic"}
    ours = {name for name in modules if name.split(".")[0] in ("tilewright", "compiler", "service", "worker")}
    assert ours == {"tilewright", "tilewright.cli", "tilewright.cli.commands", "tilewright.errors"}
    for panel, entries in PANELS.items():
        assert panel in printed
        assert all(entry.name in printed for entry in entries)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "Usage: tilewright"),
        (["bake"], "No such command 'bake'"),
        (["compile"], "Missing argument 'model'"),
        (["jobs", "--limit", "many"], "'many' is not a whole number"),
        (["jobs", "--limit", "-1"], "'-1' is less than 0, the least there may be"),
        (["up", "--port", "99999"], "'99999' is more than 65535, the most there may be"),
        (["compile", "m.onnx", "--budget", "x"], "'x' is not a number"),
        (["export", "m.tw", "m", "--as", "zip"], "'zip' is not one of 'triton', 'oci'"),
        (["compile", "m.onnx", "--budgett", "3"], "No such option: --budgett"),
        (["keys", "mak"], "No such command 'mak'. Did you mean 'make'?"),
        (["compile", "/no/such.onnx"], "cannot read /no/such.onnx: No such file or directory"),
        (["preflight", "/no/such.onnx"], "cannot read /no/such.onnx: No such file or directory"),
        (["quantize", "/no/such.onnx"], "cannot read /no/such.onnx: No such file or directory"),
        (["models", "upload", "/no/such.onnx"], "cannot read /no/such.onnx: No such file or directory"),
    ],
    ids=lambda given: " ".join(given) if isinstance(given, list) else None,
)
def test_what_makes_no_sense_is_refused_before_anything_is_loaded(words: list[str], said: str, tmp_path: Path) -> None:
    status, modules, printed = loaded(words, tmp_path)
    assert status == 2
    assert said in printed.replace("-c", "tilewright")
    assert not modules & {*HEAVY}
    if words:  # else it is the help
        assert not modules & {*PANELS_OF_ERRORS}
        assert len(modules) <= MOST_MODULES


@pytest.mark.parametrize("words", [["bake"], ["compile", "m.onnx", "--budgett", "3"], ["compile", "--help"]])
def test_words_that_are_not_known_and_the_help_of_a_command_load_nothing_that_checks_values(
    words: list[str], tmp_path: Path
) -> None:
    _, modules, _ = loaded(words, tmp_path)
    assert not modules & {*HEAVY, "pydantic", "importlib.metadata"}


def test_no_name_of_the_package_is_loaded_before_it_is_used() -> None:
    program = "import sys, tilewright; print([n for n in sys.modules if n.startswith('tilewright.')]); tilewright.Job"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_public_name_has_its_home_said_once_for_people_and_once_for_python() -> None:
    (block,) = [one for one in ast.parse(Path(tilewright.__file__).read_text()).body if isinstance(one, ast.If)]
    imports = {
        one.module: tuple(name.name for name in one.names) for one in block.body if isinstance(one, ast.ImportFrom)
    }
    assert imports == tilewright._HOMES
    assert sorted(tilewright._MODULES) == sorted(tilewright.__all__)
    for name in tilewright.__all__:
        assert getattr(tilewright, name).__name__ == name
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = tilewright.nothing
    assert {*tilewright.__all__} <= {*dir(tilewright)}


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_a_summary_begins_as_the_help_of_its_command_and_fits_into_a_line(entry: Entry) -> None:
    def words(text: str) -> list[str]:
        return re.findall(r"[\w'-]+", text)[:3]

    made = entry.made()
    assert made.name == entry.name
    assert words(entry.summary) == words(made.help)
    assert len(entry.summary) <= 80


def test_colours_are_left_out_where_the_environment_says_so(tmp_path: Path) -> None:
    def colours(**variables: str) -> list[str]:
        done = subprocess.run(
            [sys.executable, "-m", "tilewright", "jobs"],
            env={**os.environ, "PYTHONPATH": os.getcwd(), "XDG_STATE_HOME": str(tmp_path), **variables},
            capture_output=True,
            text=True,
            check=False,
        )
        assert "no server is known" in done.stderr
        return re.findall(r"\x1b\[[0-9;]*3[0-7]m", done.stderr)

    homes = {name: str(tmp_path) for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME")}
    assert colours(**homes, FORCE_COLOR="1", TERM="xterm-256color")
    assert colours(**homes, FORCE_COLOR="1", TERM="xterm-256color", NO_COLOR="1") == []


def test_no_command_stands_in_two_panels() -> None:
    assert len({entry.name for entry in ENTRIES}) == len(ENTRIES)


def test_the_version_is_that_of_the_distribution(tmp_path: Path) -> None:
    status, modules, printed = loaded(["--version"], tmp_path)
    assert (status, printed.strip()) == (0, f"tilewright {metadata.version('tilewright')}")
    assert not modules & {*HEAVY}


def test_a_shell_is_told_names_of_commands_and_of_their_options(tmp_path: Path) -> None:
    def completed(line: str) -> list[str]:
        done = subprocess.run(
            [sys.executable, "-c", "import sys; sys.argv = ['tilewright']; from tilewright.cli import main; main()"],
            env={
                **os.environ,
                "PYTHONPATH": os.getcwd(),
                "_TILEWRIGHT_COMPLETE": "complete_bash",
                "COMP_WORDS": line,
                "COMP_CWORD": str(len(line.split(" ")) - 1),
            },
            capture_output=True,
            text=True,
            check=False,
        )
        return done.stdout.split()

    assert {"jobs", "compile", "quantize"} <= {*completed("tilewright ")}
    assert completed("tilewright compile --budg") == ["--budget"]
    assert completed("tilewright keys rot") == ["rotate"]


def test_no_command_loads_a_client_or_arrays_before_it_is_carried_out() -> None:
    program = f"""
import sys
from tilewright.cli.commands import tree
print(len(tree()), [name for name in {HEAVY} if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == f"{len(ENTRIES)} []"

"""`python -m tests.first_tasks`: the commands of docs/first-tasks.md in an empty environment, timed task by task.

The wheel of this checkout stands for the package.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench.zoo import build
from tests import environments
from tests.docs.pages import DOCS, blocks

PAGE = DOCS / "first-tasks.md"
MODEL = "squeezenet1_1"
LIMIT_S = 300.0
"""Of each task."""


def tasks() -> Iterator[tuple[str, str]]:
    """Titles, each with its commands."""
    _, *sections = PAGE.read_text().split("\n## ")
    for section in sections:
        yield section.partition("\n")[0], "\n".join(blocks(section, "sh"))


def environment_variables(programs: Path, folder: Path) -> dict[str, str]:
    """Of a user who has nothing of ours but the programs of an environment, and whose home is a folder."""
    homes = {f"XDG_{kind}_HOME": str(folder / kind.lower()) for kind in ("CACHE", "CONFIG", "DATA", "STATE")}
    found = {**environments.variables(), **homes, "HOME": str(folder), "BROWSER": "true"}
    return found | {"PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}


def run(commands: str, folder: Path, variables: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """The commands in a shell that ends at the first which fails."""
    words = ["bash", "-euo", "pipefail", "-c", commands]
    return subprocess.run(words, cwd=folder, env=variables, capture_output=True, text=True, check=False)


def without_pip(commands: str) -> str:
    """The commands but those that install something."""
    return re.sub(r"^pip install .*$", "", commands, flags=re.MULTILINE)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs all tasks; 1 where a command fails or a task takes longer than it may."""
    parser = argparse.ArgumentParser(prog="python -m tests.first_tasks", description=(__doc__ or "").partition(": ")[2])
    parser.add_argument("--here", action="store_true", help="in this environment, without the commands of pip")
    given = parser.parse_args(arguments)
    taken: list[float] = []
    with tempfile.TemporaryDirectory(prefix="first-tasks-") as name:
        folder = Path(name)
        wheel = "" if given.here else str(environments.build_wheel(folder))
        python = Path(sys.executable) if given.here else environments.empty(folder / "environment", pip=True)
        (folder / "work").mkdir()
        (folder / "work" / "model.onnx").write_bytes(build(MODEL).SerializeToString())
        for title, commands in tasks():
            words = without_pip(commands) if given.here else commands.replace("'tilewright[", f"'{wheel}[")
            begin = time.monotonic()
            done = run(words, folder / "work", environment_variables(python.parent, folder / "work"))
            taken.append(time.monotonic() - begin)
            print(f"{title}: {taken[-1]:.0f} s\n{done.stdout}", flush=True)
            if done.returncode:
                print(done.stderr)
                return 1
    return int(max(taken) > LIMIT_S)


if __name__ == "__main__":
    raise SystemExit(main())

"""Where figures go, and what a table says above itself: the machine, the programs, the day."""

from __future__ import annotations

import datetime
import json
import os
import platform
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.engines.catalogue import versions
from compiler.codegen.build import environment_compiler, find_toolchain
from compiler.contract import COMPILER_VERSION
from compiler.devices.cpu.target import this_machine

ROOT = Path(__file__).parents[1]


def write(file: Path, rows: Sequence[Mapping[str, Any]] | Mapping[str, Any]) -> None:
    """The rows so far, in lists by name where there are several kinds of them; the file is whole at any time."""
    file.parent.mkdir(parents=True, exist_ok=True)
    draft = file.with_name(f".{file.name}.part")
    draft.write_text(json.dumps(rows, indent=2, allow_nan=False) + "\n")
    draft.replace(file)


class Section:
    """A section of a page of results: made before anything is measured, so that it gives the machine's load before."""

    def __init__(self, command: str, arguments: Sequence[str], engines: Sequence[str]) -> None:
        day = datetime.datetime.now(datetime.UTC)
        title = f"## {day:%Y-%m-%d}, version {COMPILER_VERSION}{_commit()}"
        asked = shlex.join(["python", "-m", "bench", command, *arguments])
        self._above = f"{title}\n\n{described(engines)}\n\n`{asked}`:"

    def append(self, file: Path, tables: str) -> None:
        """At the end of a file."""
        with file.open("a") as opened:
            opened.write(f"\n{self._above}\n\n{tables}")


def described(engines: Sequence[str]) -> str:
    """One paragraph: cores, caches, compiler, versions of the engines, load."""
    here = this_machine()
    toolchain = find_toolchain(environment_compiler(os.environ)).version
    installed = ", ".join(f"{name} {version}" for name, version in versions(engines).items())
    return (
        f"Machine: {_cpu()}, {here.lanes} cores as {here.name} "
        f"({here.l1_bytes >> 10} KiB L1d, {here.l2_bytes >> 10} KiB L2 each), "
        f"load {os.getloadavg()[0]:.1f} before. "
        f"{toolchain}; Python {platform.python_version()}; {installed or 'no peers'}."
    )


def _cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _commit() -> str:
    """The commit that the tree stands on, and whether it differs from it; nothing outside a checkout."""
    git = ["git", "-C", str(ROOT)]
    said = subprocess.run([*git, "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    if said.returncode:
        return ""
    changed = subprocess.run([*git, "status", "--porcelain"], capture_output=True, text=True, check=False).stdout
    return f" at {said.stdout.strip()}{' with changes' if changed else ''}"

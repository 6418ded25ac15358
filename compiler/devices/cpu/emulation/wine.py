"""Wine, which runs Windows programs of this machine's own architecture."""

from __future__ import annotations

import atexit
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from compiler.codegen.build import Toolchain
from compiler.devices.cpu.emulation.emulator import Emulator, build_runner, put_program
from compiler.devices.cpu.target import CpuTarget, runs_here

PLACES = (
    "/usr/lib/x86_64-linux-gnu/wine",
    "/usr/lib64/wine",
    "/usr/lib/wine",
    "/opt/wine-stable/lib64/wine",
    "/opt/wine-stable/lib/wine",
)
"""Where distributions keep its libraries."""
LIBRARIES = "x86_64-windows"
ASK_S = 60


@dataclass(frozen=True)
class Wine(Emulator):
    """Runs libraries for Windows. `command` has the environment that it needs."""

    def install(self, place: Path) -> Sequence[str]:
        """The runner beside the library."""
        program = place / "runner.exe"
        put_program(program, build_runner(self.target, self.toolchain))
        return [*self.command, str(program)]

    def __str__(self) -> str:
        return f"Wine {self.version}"


def find_wine(target: CpuTarget, toolchain: Toolchain) -> Wine | None:
    """None where it is not installed or does not start, and where this machine lacks what the target has."""
    if target.machine != platform.machine() or not runs_here(target):
        return None
    found = _installed()
    return Wine(*found, target, toolchain) if found else None


@lru_cache(maxsize=1)
def _installed() -> tuple[tuple[str, ...], str] | None:
    """The command, and the version."""
    path = shutil.which("wine") or shutil.which("wine64")
    libraries = next((where for place in PLACES if (where := Path(place) / LIBRARIES).is_dir()), None)
    if path is None or libraries is None:
        return None
    command = ("env", f"WINEPREFIX={_prefix(libraries)}", "WINEDEBUG=-all", path)
    try:
        said, started = (
            subprocess.run([*command, *asked], capture_output=True, text=True, timeout=ASK_S, check=False)
            for asked in (("--version",), (str(libraries / "hostname.exe"),))
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    version = said.stdout.strip().removeprefix("wine-").partition(" ")[0]
    return (command, version) if version and started.returncode == 0 else None


def _prefix(libraries: Path) -> Path:
    """A Windows without files but Wine's libraries: of those that it makes itself each copies all of them, 700 MB."""
    prefix = Path(tempfile.mkdtemp(prefix="tw-wine-")).absolute()
    atexit.register(shutil.rmtree, prefix, ignore_errors=True)
    windows = prefix / "drive_c" / "windows"
    windows.mkdir(parents=True)
    (windows / "system32").symlink_to(libraries, target_is_directory=True)
    (prefix / ".update-timestamp").write_text("disable\n")
    return prefix

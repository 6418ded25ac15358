"""The client and its commands where a system has only what all have: commands that talk to a server need no more."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
import asyncio, concurrent.futures, ctypes, multiprocessing, subprocess, tempfile, zipfile
import httpx, numpy, rich.console, rich.progress, rich.table, typer

for name in ("fcntl", "grp", "pwd", "resource", "termios", "tty"):
    sys.modules[name] = None
real = ctypes.CDLL
def without_default(name, *more, **named):
    if name is None:
        raise TypeError("bad argument type for built-in operation")
    return real(name, *more, **named)
ctypes.CDLL = without_default
platform, sys.platform = sys.platform, "win32"
import tilewright
from tilewright.cli import main
sys.platform = platform
sys.argv = ["tilewright", "jobs", "--help"]
main()
"""
"""As on Windows, where no module of these is, and where no library has all names."""


def test_commands_for_a_server_are_there_without_modules_of_unix() -> None:
    found = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=120)
    assert found.returncode == 0, found.stderr
    assert "Usage" in found.stdout

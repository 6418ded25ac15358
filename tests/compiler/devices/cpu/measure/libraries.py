"""Libraries to be timed, from sources of C."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path


def built(folder: Path, *sources: str, flags: tuple[str, ...] = ()) -> bytes:
    """A shared library of all sources, each a unit of its own, built in a folder."""
    units = [folder / f"unit{at}.c" for at in range(len(sources))]
    for unit, source in zip(units, sources, strict=True):
        unit.write_text(source)
    library = folder / "library.so"
    command = [os.environ.get("CC", "gcc"), "-O2", "-std=gnu11", "-fPIC", "-shared", "-pthread", *flags]
    subprocess.run([*command, "-o", library, *units], check=True)
    return library.read_bytes()

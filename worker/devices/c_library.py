"""Zig's C library for browsers, kept for later jobs: each would build it again, in half a minute of a core.

`kept` is called outside the walls, where neither numpy nor the compiler may be imported (`worker.attempt.child` says
why): what is missing is built by a process of its own, which is this module.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from worker.sandbox.enter import ZIG_CACHES, zig_cache

PARTS = ("b", "h", "o")
"""Of Zig's cache, what has the library; what it has read of its own sources is ten times as large."""
USING = "#include <math.h>\n#include <stdlib.h>\ndouble used(void) { return sin(*(double *)malloc(8)); }\n"


def kept(options: Mapping[str, Any], root: Path) -> list[Path]:
    """A folder below `root` with the parts of a cache that has the library for such a job, made where there is none.

    No folder where Zig is not the compiler, or cannot link: the job then says so, or needs none.
    """
    try:
        version = metadata.version("ziglang")
    except metadata.PackageNotFoundError:
        return []
    threads = (options.get("threads") or 1) > 1
    made = root / hashlib.sha256(repr((version, options["target"], threads)).encode()).hexdigest()[:16]
    if not made.is_dir():
        command = [sys.executable, "-m", __name__, options["target"], *(["threads"] if threads else []), str(made)]
        subprocess.run(command, stdin=subprocess.DEVNULL, check=False)
    return [made] if made.is_dir() else []


def copy(folder: Path, scratch: Path) -> None:
    """To where Zig looks for it in a job. Contents alone: a job may give no file times or modes. Raises OSError."""
    cache = zig_cache(scratch)
    for path in [folder, *folder.rglob("*")]:  # a folder before what is in it
        place = cache / path.relative_to(folder)
        if path.is_dir():
            place.mkdir()
        else:
            place.write_bytes(path.read_bytes())


def make(target: str, threads: bool, made: Path) -> None:
    """Make the folder; where another process is quicker, its is left. Raises MachineError, OSError.

    It is built among the job's temporary files, which go with the job however it ends, on the same file system.
    """
    from compiler.codegen.build import WASM, compile_library, find_toolchain
    from compiler.devices.cpu.wasm.target import resolve, sharing

    compiler, built = find_toolchain(os.environ.get("CC", ""), WASM), resolve(target)
    if not compiler.is_zig:
        return
    made.parent.mkdir(mode=0o700, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        cache, parts = Path(folder) / "cache", Path(folder) / "parts"
        os.environ |= dict.fromkeys(ZIG_CACHES, str(cache))
        compile_library({"used.c": USING}, {}, sharing(built) if threads else built, compiler)
        parts.mkdir()
        for name in PARTS:
            (cache / name).rename(parts / name)
        with contextlib.suppress(OSError):
            parts.rename(made)


if __name__ == "__main__":
    make(sys.argv[1], "threads" in sys.argv[2:-1], Path(sys.argv[-1]))

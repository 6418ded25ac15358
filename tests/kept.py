"""What compilers make for tests, kept by the hash of all that went into it: for other tests, and for the next run."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

UNUSED_S = 14 * 86_400
"""What nobody asked for that long goes when the next process begins."""


@lru_cache(maxsize=1)
def folder() -> Path:
    """This user's; the tests of all checkouts share it, because a key says all that matters."""
    found = Path(tempfile.gettempdir()) / f"tilewright-tests-{os.getuid()}"
    found.mkdir(mode=0o700, exist_ok=True)
    forget(found, time.time() - UNUSED_S)
    return found


def forget(place: Path, before: float) -> None:
    """Remove what was last asked for before that time (seconds since 1970)."""
    for path in place.iterdir():
        try:
            if path.stat().st_mtime < before:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        except FileNotFoundError:  # another process was faster
            continue


def kept(key: str, suffix: str, build: Callable[[Path], object]) -> Path:
    """A built file or folder; `build(path)` makes it once, whoever else asks for it now, and never where it raises."""
    path = folder() / (hashlib.sha256(key.encode()).hexdigest()[:32] + suffix)
    if path.exists():
        os.utime(path)
        return path
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            with tempfile.TemporaryDirectory(dir=folder()) as work:
                made = Path(work) / path.name
                build(made)
                made.replace(path)
    path.with_suffix(".lock").unlink(missing_ok=True)
    return path

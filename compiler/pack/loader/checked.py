"""Weights that were compared with their digest before: no load reads them all again while their file is as it was."""

from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path

_BOOT = Path("/proc/sys/kernel/random/boot_id")
_SETTLED_S = 2.0
"""A file that changed less than that ago may change again under the same time: clocks of file systems are coarse."""
_MOST_NOTES = 1000
_PRIVATE = 0o022
"""Bits of a folder's mode of which it may have none: nobody else may write notes."""


def _state(path: Path, part: str) -> str | None:
    """What is noted once `part` of a file was compared: it changes with the file, and with the system's start.

    None where the file changed just now, or the system says too little of it.
    """
    try:
        found, boot = path.stat(), _BOOT.read_text()
    except OSError:
        return None
    if time.time() - max(found.st_mtime, found.st_ctime) < _SETTLED_S:
        return None
    facts = (boot, found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns, part)
    return hashlib.sha256(repr(facts).encode()).hexdigest()


def _notes() -> Path:
    """The folder of notes, empty files named after states: this user's."""
    own = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(own) / "tilewright" / "checked"


def _is_noted(state: str) -> bool:
    try:
        folder = _notes()
        about = folder.stat()
        return about.st_uid == os.getuid() and not about.st_mode & _PRIVATE and (folder / state).exists()
    except OSError:
        return False


def _note(state: str) -> None:
    """Makes a note, and lets the oldest go where there are many. Without one, the next load compares again."""
    try:
        folder = _notes()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        (folder / state).touch(mode=0o600)
        notes = sorted(folder.iterdir(), key=lambda one: one.stat().st_mtime)
        for one in notes[:-_MOST_NOTES]:
            one.unlink(missing_ok=True)
    except OSError:
        return

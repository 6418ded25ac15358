"""The clock of a run, which may be set: that of its processes and of PostgreSQL, by libfaketime."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

FILE = "FAKETIME_TIMESTAMP_FILE"
LIBRARIES = ("lib/*/faketime/libfaketimeMT.so.1", "lib*/faketime/libfaketimeMT.so.1", "local/lib/faketime/*MT.so.1")
"""Where systems keep the library, below /usr."""
MISSING = "libfaketime is not installed (Debian: apt-get install faketime): the clock is left alone"


def library() -> Path | None:
    """The library that stands between a program and the clock; None where there is none."""
    return next((path for pattern in LIBRARIES for path in sorted(Path("/usr").glob(pattern))), None)


@contextlib.contextmanager
def settable() -> Iterator[bool]:
    """Processes that start inside have a clock that `set_by` sets; whether that can be.

    Enter before the first process is started: what a process inherits decides.
    """
    if (found := library()) is None:
        yield False
        return
    with tempfile.TemporaryDirectory(prefix="tw-clock-") as folder:
        Path(folder).chmod(0o755)  # PostgreSQL runs as another user
        before = dict(os.environ)
        os.environ |= {
            "LD_PRELOAD": str(found),
            FILE: str(Path(folder) / "clock"),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "NO_FAKE_STAT": "1",
        }
        set_by(0.0)
        try:
            yield True
        finally:
            os.environ.clear()
            os.environ |= before


def is_settable() -> bool:
    """Whether processes of this run have such a clock."""
    return FILE in os.environ


def environment() -> Mapping[str, str]:
    """What processes that do not inherit everything are given."""
    return {name: value for name, value in os.environ.items() if "FAKE" in name or name == "LD_PRELOAD"}


def set_by(seconds: float) -> None:
    """From now on all processes see a clock that differs by so much."""
    file = Path(os.environ[FILE])
    aside = file.with_suffix(".new")
    aside.write_text(f"{seconds:+.0f}s\n")
    aside.replace(file)

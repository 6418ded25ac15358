"""The device of this worker: what it is, and the lock that lets one job at a time use it.

The lock is an `flock` that the job inherits through its launcher: it stays taken until the last descendant of the
job is dead, also when the worker was killed, or was stopped for longer than its lease.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import platform
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from compiler.errors import TargetUnavailable
from compiler.targets import cpu

NO_DEVICE = ""
"""The device of a builder: it measures nothing, so that any number of them may work at once."""


@contextlib.contextmanager
def hold(folder: Path, device: str) -> Iterator[int | None]:
    """The descriptor of the taken lock of `device`, or None when another process uses the device; -1 for no device."""
    if device == NO_DEVICE:
        yield -1
        return
    descriptor = os.open(folder / f"{device}.lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield None
        else:
            yield descriptor
    finally:
        os.close(descriptor)


def facts(measures: bool = True) -> dict[str, Any]:
    """What the workers' table says of this machine; `fingerprint` is that of tuning records, empty if unknown.

    measures  whether it holds the device; a builder does not, and has neither device nor fingerprint
    """
    told = {
        "device": "cpu" if measures else NO_DEVICE,
        "measures": measures,
        "machine": platform.machine(),
        "model": _cpu_model(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "system": f"{platform.system()} {platform.release()}",
        "targets": [profile.name for profile in cpu.PROFILES],
    }
    try:
        here = cpu.this_machine()
    except TargetUnavailable:
        return {**told, "target": "", "fingerprint": "", "cores": os.cpu_count() or 1}
    return {
        **told,
        "target": here.name,
        "fingerprint": here.hardware if measures else "",
        "cores": here.lanes,
        "l1_bytes": here.l1_bytes,
        "l2_bytes": here.l2_bytes,
    }


def measured_as(target: str) -> tuple[str, str] | None:
    """Target and hardware as the records of a compilation for `target` name them; None when nothing is measured here."""
    try:
        resolved = cpu.resolve(target)
    except TargetUnavailable:
        return None
    return (resolved.name, resolved.hardware) if resolved.is_here else None


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.processor())

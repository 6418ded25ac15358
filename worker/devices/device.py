"""The device of this worker: what it is, and the lock that lets one job at a time use it.

The lock is an `flock` that the job inherits through its launcher: it stays taken until the last descendant of the
job is dead, also when the worker was killed, or was stopped for longer than its lease. In the file stands the process
id of who took it last.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import platform
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from compiler.contract import kinds
from worker.devices.holder import Held, holder, profiles

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
            _sign(descriptor)
            yield descriptor
    finally:
        os.close(descriptor)


def holder_of(folder: Path, device: str) -> int | None:
    """The process that took the lock of `device` last; None where it has ended, or did not say."""
    with contextlib.suppress(OSError, ValueError):
        pid = int((folder / f"{device}.lock").read_text())
        os.kill(pid, 0)
        return pid
    return None


def _sign(descriptor: int) -> None:
    """Write who holds the lock; where the disk is full that stays unsaid."""
    with contextlib.suppress(OSError):
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)


def facts(held: Held | None) -> dict[str, Any]:
    """What the workers' table says of this machine; `fingerprint` is that of tuning records, empty if unknown.

    held  the device; None for a builder, which measures nothing and describes the machine's cores
    """
    own = held.facts() if held is not None else {**holder(kinds.CPU).held(0).facts(), "fingerprint": ""}
    return {
        "device": held.device if held is not None else NO_DEVICE,
        "measures": held is not None,
        "machine": platform.machine(),
        "model": _cpu_model(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "system": f"{platform.system()} {platform.release()}",
        "targets": profiles(),
        **own,
    }


def measures(target: str, device: str) -> bool:
    """Whether who holds `device` may measure what is compiled for `target`: they are of one kind."""
    return kinds.name_of(device) == kinds.name_of(target)


def measured_as(target: str, hardware: Mapping[str, Any]) -> tuple[str, str] | None:
    """Target and hardware as the records of a compilation for `target` name them; None when nothing is measured here.

    hardware  what the workers' table says of this worker
    """
    kind = kinds.find(target)
    return holder(kind).measured_as(target, hardware) if kind is not None else None


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.processor())

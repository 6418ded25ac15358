"""The device of this worker: what it is, and the lock that lets one job at a time use it.

The lock is an `flock` that the job inherits through its launcher: it stays taken until the last descendant of the
job is dead, also when the worker was killed, or was stopped for longer than its lease.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import platform
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from compiler.devices.cpu import target as cpu
from compiler.devices.kinds import PROFILES
from compiler.errors import TargetUnavailable
from worker import gpu

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


def facts(device: str = "cpu", held: gpu.Held | None = None) -> dict[str, Any]:
    """What the workers' table says of this machine; `fingerprint` is that of tuning records, empty if unknown.

    device  what it holds: `cpu`, or the GPU `held`; NO_DEVICE for a builder, which has no fingerprint
    """
    measures = device != NO_DEVICE
    told = {
        "device": device,
        "measures": measures,
        "machine": platform.machine(),
        "model": _cpu_model(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "system": f"{platform.system()} {platform.release()}",
        "targets": [profile.name for profile in PROFILES],
    }
    if held is not None:
        return {
            **told,
            "target": held.target,
            "fingerprint": held.gpu.fingerprint,
            "cores": os.cpu_count() or 1,
            "gpu": held.facts(),
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


def measures(target: str, device: str) -> bool:
    """Whether who holds `device` may measure what is compiled for `target`: they are of one kind, CPU or GPU."""
    return device.partition(":")[0] == target.partition(":")[0]


def measured_as(target: str, hardware: Mapping[str, Any]) -> tuple[str, str] | None:
    """Target and hardware as the records of a compilation for `target` name them; None when nothing is measured here.

    hardware  what the workers' table says of this worker
    """
    if target.partition(":")[0] == gpu.CUDA:
        own = measures(target, str(hardware.get("device"))) and target in (gpu.CUDA, hardware["target"])
        return (str(hardware["target"]), str(hardware["fingerprint"])) if own else None
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

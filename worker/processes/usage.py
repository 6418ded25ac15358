"""What the processes of a job take, seen from outside: memory, CPU time, and files below its folder."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from stat import S_ISREG

MOST_ENTRIES = 100_000
"""Files and folders of one job; a compilation makes hundreds."""
MOST_LEVELS = 64
"""Of folders in each other."""

_PAGE = os.sysconf("SC_PAGE_SIZE")
_TICKS = os.sysconf("SC_CLK_TCK")
_BLOCK = 512
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_UTIME, _CSTIME, _RSS = 11, 14, 21
"""Fields of `/proc/PID/stat` behind the name; from the first to the second: CPU time of the process and of those that
it has waited for."""


@dataclass(frozen=True)
class Usage:
    """Of all processes of a job together; zeros where there is no /proc.

    resident_bytes  with what several of them share counted for each
    processes       alive
    cpu_s           seconds, of those that have ended as well
    """

    resident_bytes: int = 0
    processes: int = 0
    cpu_s: float = 0.0


def of(launcher: int, descendants: Iterable[int]) -> Usage:
    """What the descendants of a job's launcher take, and the time of those that it has waited for."""
    alive = [fields for fields in map(_stat, descendants) if fields]
    timed = [*alive, *filter(None, [_stat(launcher)])]
    ticks = sum(int(field) for fields in timed for field in fields[_UTIME : _CSTIME + 1])
    return Usage(sum(int(fields[_RSS]) for fields in alive) * _PAGE, len(alive), ticks / _TICKS)


def oom_kills() -> int:
    """How often this machine's kernel has killed a process for lack of memory; 0 where it does not say."""
    try:
        lines = Path("/proc/vmstat").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) for line in lines if line.startswith("oom_kill "))


def disk_bytes(folder: Path) -> int | None:
    """Bytes that the files below a folder occupy, links not followed.

    None where they cannot be counted: more than `MOST_ENTRIES`, deeper than `MOST_LEVELS`, or in a folder that is
    closed to its owner. Whoever fills the folder may change it meanwhile. Raises `OSError` when the folder is gone.
    """
    found = entries = 0
    with ExitStack() as opened:
        stack = [_Opened(os.open(folder, _FOLDER), opened)]
        while stack:
            entry = next(stack[-1].entries, None)
            if entry is None:
                stack.pop().close()
                continue
            entries += 1
            if entries > MOST_ENTRIES or len(stack) > MOST_LEVELS:
                return None
            status = _status(entry)
            found += status.st_blocks * _BLOCK if status else 0
            if entry.is_dir(follow_symlinks=False):
                try:
                    stack.append(_Opened(os.open(entry.name, _FOLDER, dir_fd=stack[-1].descriptor), opened))
                except PermissionError:
                    return None
                except OSError:  # gone, or no folder any more
                    continue
    return found


def deleted_bytes(descendants: Iterable[int]) -> int:
    """Bytes of files that have no name any more and that these processes still have open or mapped, each file once.

    Those of processes that may not be looked at are missing: that takes their user, and of one that leaves no dumps
    CAP_SYS_PTRACE; for what is mapped and not open also CAP_CHECKPOINT_RESTORE.
    """
    found: dict[tuple[int, int], int] = {}
    for pid in descendants:
        for path in (*_descriptors(pid), *_mapped(pid)):
            with suppress(OSError):
                status = os.stat(path)
                if S_ISREG(status.st_mode) and not status.st_nlink and not os.readlink(path).startswith("/memfd:"):
                    found[status.st_dev, status.st_ino] = status.st_blocks * _BLOCK
    return sum(found.values())


def _descriptors(pid: int) -> list[str]:
    with suppress(OSError):
        return [f"/proc/{pid}/fd/{name}" for name in os.listdir(f"/proc/{pid}/fd")]
    return []


def _mapped(pid: int) -> list[str]:
    """Its mapped files without a name, as the links of `map_files`, which have no leading zeros."""
    with suppress(OSError):
        lines = Path(f"/proc/{pid}/maps").read_bytes().splitlines()
        spans = [line.split(b" ", 1)[0].split(b"-") for line in lines if line.endswith(b" (deleted)")]
        return [f"/proc/{pid}/map_files/{int(start, 16):x}-{int(end, 16):x}" for start, end in spans]
    return []


class _Opened:
    """A folder by its descriptor, which no path is too long for and which no link leads away from."""

    def __init__(self, descriptor: int, until: ExitStack) -> None:
        self.descriptor = descriptor
        self.entries = os.scandir(descriptor)
        self.is_open = True
        until.callback(self.close)

    def close(self) -> None:
        if self.is_open:
            self.is_open = False
            self.entries.close()
            os.close(self.descriptor)


def _status(entry: os.DirEntry[str]) -> os.stat_result | None:
    try:
        return entry.stat(follow_symlinks=False)
    except OSError:
        return None


def _stat(pid: int) -> list[bytes]:
    """The fields behind the name; empty when the process is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return []

"""The walls around a process that reads an untrusted model. They are one-way: what is given up stays given up.

Always: resource limits, no new privileges, no core dumps, no descriptors but the named ones. Where the kernel
offers it: a view of the file system with one writable folder (`worker.sandbox.landlock`) and no sockets
(`worker.sandbox.seccomp`). Root becomes a user that nobody else is, and gives up all capabilities but that of reading:
Python and the compiler may lie in another user's closed folder, and what may be read is Landlock's business.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

from worker.limits import Limits, hold_process
from worker.sandbox import landlock, linux, seccomp

_SYSTEM = ("/usr", "/lib", "/lib64", "/lib32", "/bin", "/sbin", "/nix")
_SYS = ("devices/system/cpu", "devices/system/node", "kernel/mm/transparent_hugepage")
_PROC = ("cpuinfo", "meminfo", "stat", "loadavg", "filesystems", "version", "sys/vm")
"""Not all of /proc: the environments of other processes, where passwords may be, are in it."""
_PROC_OF_ITSELF = ("auxv", "cmdline", "comm", "exe", "fd", "limits", "maps", "schedstat", "stat", "statm", "status")
"""Not all of its own folder, nor of its threads': each has a `net`, with the addresses that the host talks to."""
_SYSTEM_FILES = ("/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/ld.so.preload", "/etc/localtime")
_DEVICES_READ = ("/dev/zero", "/dev/random", "/dev/urandom")
_DEVICES_WRITTEN = ("/dev/null",)
_GPU_READ = (
    *("/proc/driver/nvidia", "/proc/driver/nvidia-uvm", "/proc/devices", "/etc/nvidia"),
    *("/proc/self", "/proc/sys", "/sys"),
)
_GPU_WRITTEN = ("nvidia*", "dxg")
"""Below /dev. The driver is called by ioctl on these, which takes the right to write. They exist once the worker has
asked the driver."""
_OOM_FIRST = "1000"
USERS = 0x7700_0000
"""The user of a job is this plus its process id: above the numbers that people, services and containers are given."""

_OPT = Path("/opt")
_PARTS_OF_PREFIX = ("bin", "lib", "lib64", "libexec", "include")
_COMPILERS = ("CC", "CXX")
_COMPILER_NAMES = ("gcc", "cc", "clang", "g++", "c++", "clang++")

WALLS: Mapping[str, str] = MappingProxyType(
    {
        "limits": "run the worker on a POSIX system",
        "no_new_privileges": "run the worker on Linux",
        "no_dumps": "run the worker on Linux",
        "user": "run the worker as root on Linux, with a C compiler in no closed folder; not with a GPU",
        "capabilities": "run the worker on Linux",
        "files": "run the worker on Linux 6.2 or newer with Landlock switched on (lsm=...,landlock)",
        "signals": "run the worker on Linux 6.12 or newer with Landlock switched on (lsm=...,landlock)",
        "system_calls": "run the worker on x86-64 or arm64, on a Linux that has seccomp filters",
    }
)
"""What each takes. The receipt may name `files_partly` in place of `files`: that has no entry, since it is none that
anybody could rely on."""


ZIG_CACHES = ("ZIG_GLOBAL_CACHE_DIR", "ZIG_LOCAL_CACHE_DIR")
"""What says where Zig keeps the C library that it builds when it first links one."""


def zig_cache(scratch: Path) -> Path:
    """That place in the folder that a job may write."""
    return scratch / "zig"


def enter(
    limits: Limits, scratch: Path | None, readable: Iterable[Path], keep: Iterable[int], *, gpu: bool = False
) -> tuple[str, ...]:
    """Close the walls around this process; the names of those that stand, out of `WALLS`.

    limits    what the kernel holds this process to
    scratch   the one folder that may be written; None: there is none
    readable  files and folders to be read beside the system's and Python's own
    keep      descriptors that stay open beside 0, 1 and 2
    gpu       whether it may use the machine's GPUs; which of them it sees is its environment's business, not a wall
    """
    _close_all_but({0, 1, 2, *keep})
    _offer_to_oom_killer()
    hold_process(limits, gpu=gpu)
    standing = ["limits"]
    if linux.LINUX:
        linux.prctl(linux.PR_SET_NO_NEW_PRIVS, 1)
        linux.prctl(linux.PR_SET_DUMPABLE, 0)
        standing += ["no_new_privileges", "no_dumps"]
        if not gpu and _compilers_are_open() and linux.become(USERS + os.getpid(), scratch):
            standing.append("user")
        if linux.give_up_capabilities(but=linux.CAP_DAC_READ_SEARCH):
            standing.append("capabilities")
        if "user" in standing and scratch is not None:
            _keep_temporary_files_here(scratch)
    if scratch is not None:
        os.environ |= dict.fromkeys(ZIG_CACHES, str(zig_cache(scratch)))
    writable = [*([scratch] if scratch else []), *map(Path, _DEVICES_WRITTEN)]
    readable = [*_own_paths(), *readable, *(gpu_paths() if gpu else [])]
    standing += landlock.restrict(readable, writable, [*gpu_devices(), *_thread_names()] if gpu else [])
    with contextlib.suppress(OSError):  # the kernel was built without seccomp filters
        if seccomp.restrict(gpu=gpu):
            standing.append("system_calls")
    return tuple(standing)


def exposed(folders: Iterable[Path], *, gpu: bool = False) -> list[Path]:
    """Those of the folders that every job may read.

    They lie where the files of Python, of a C compiler or, with a `gpu`, of a driver do.
    """
    read = [path.resolve() for path in [*_own_paths(), *(gpu_paths() if gpu else [])]]
    return [folder for folder in folders if any(folder.resolve().is_relative_to(path) for path in read)]


def gpu_paths() -> list[Path]:
    """What a CUDA driver reads beside the system's files.

    Facts of the kernel's driver, profiles, and the driver itself where it lies elsewhere.
    """
    libraries = os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep)
    return [Path(name) for name in (*_GPU_READ, *libraries) if name]


def gpu_devices(root: Path = Path("/dev")) -> list[Path]:
    """The device files of GPUs."""
    return [path for pattern in _GPU_WRITTEN for path in sorted(root.glob(pattern))]


def _thread_names() -> list[Path]:
    """Where names of threads are written (`/proc/PID/task/TID/comm`).

    From driver 570 on CUDA names its own, and does not start where it cannot.

    Processes that a job starts have numbers that are not known yet, so all of /proc, where an ordinary user can change
    little that is not its own; memory and environments of others stay closed, by Landlock itself. To root it would open
    `/proc/sys`: its jobs have their own names alone, and the processes that they start have no GPU.
    """
    return [Path("/proc" if os.geteuid() else "/proc/self/task")]


def _own_paths() -> list[Path]:
    """What Python, numpy and a C compiler read."""
    thread = f"task/{os.getpid()}/schedstat"  # of the first thread, as /proc/thread-self says it
    own = (f"self/{name}" for name in (*_PROC_OF_ITSELF, thread))
    named = [*_SYSTEM, *(f"/sys/{name}" for name in _SYS), *(f"/proc/{name}" for name in (*_PROC, *own))]
    named += [*_SYSTEM_FILES, *_DEVICES_READ]
    named += [sys.prefix, sys.base_prefix, *sys.path, *os.environ.get("PATH", "").split(os.pathsep)]
    # An editable install is found by an import hook, not through sys.path.
    packages = (Path(__file__).parents[2] / package for package in ("worker", "compiler", "tilewright"))
    return [*(Path(name) for name in dict.fromkeys(named) if name), *packages, *_parts_of_opt()]


def _compilers() -> Iterator[Path]:
    """The C compilers that a job may start."""
    for name in (*(os.environ.get(variable, "") for variable in _COMPILERS), *_COMPILER_NAMES):
        program = shutil.which(name) if name else None
        if program is not None:
            yield Path(program)


def _compilers_are_open() -> bool:
    """Whether every user may start them. gcc looks for its parts by access(2), which knows no capabilities."""
    places = {place for program in _compilers() for path in (program, program.resolve()) for place in path.parents}
    return all(place.stat().st_mode & stat.S_IXOTH for place in places)


def _parts_of_opt(opt: Path = _OPT, linker: Path = Path("/etc/ld.so.conf.d")) -> list[Path]:
    """Of `/opt`, where anybody's data may lie, only compilers and the folders that the dynamic linker searches.

    A compiler's files lie beside the folder of its program.
    """
    found = []
    for program in _compilers():
        if (place := program.resolve()).is_relative_to(opt):
            prefix = place.parent.parent
            found += [prefix] if prefix != opt else [opt / part for part in _PARTS_OF_PREFIX]
    for listed in sorted(linker.glob("*.conf")):
        with contextlib.suppress(OSError, UnicodeDecodeError):
            found += [Path(line) for line in listed.read_text().split() if Path(line).is_relative_to(opt)]
    return found


def _close_all_but(keep: set[int]) -> None:
    start = 0
    for end in [*sorted(keep), os.sysconf("SC_OPEN_MAX")]:
        if start < end:  # an empty range would close everything
            os.closerange(start, end)
        start = end + 1


def _keep_temporary_files_here(scratch: Path) -> None:
    """From here on this process is in `scratch`, and what it starts makes its temporary files where it is.

    gcc asks by access(2) whether it may write to a folder, and that call knows no capabilities: a closed folder above
    `scratch` would be in the way.
    """
    os.chdir(scratch)
    os.environ["TMPDIR"] = os.curdir


def _offer_to_oom_killer() -> None:
    """When memory runs out the kernel shall take this process before the worker."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(_OOM_FIRST)

"""The few Linux calls that Python does not offer, through the C library.

On other systems `LINUX` is false and `prctl` is never called; every caller says what it goes without.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import signal
import sys
from pathlib import Path

LINUX = sys.platform.startswith("linux")
MACHINE = platform.machine()

PR_SET_PDEATHSIG = 1
PR_GET_PDEATHSIG = 2
PR_SET_DUMPABLE = 4
PR_SET_KEEPCAPS = 8
PR_SET_SECCOMP = 22
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38
PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE = 47, 2
SECCOMP_MODE_FILTER = 2
CAP_DAC_READ_SEARCH = 2
_CAPABILITY_VERSION_3 = 0x20080522

libc = ctypes.CDLL(None, use_errno=True)


def prctl(option: int, argument: object = 0, pointer: object = None) -> None:
    """`prctl(2)`; integers travel as C longs. Raises `OSError`."""
    first = ctypes.c_ulong(argument) if isinstance(argument, int) else argument
    if libc.prctl(option, first, pointer, ctypes.c_ulong(0), ctypes.c_ulong(0)) != 0:
        raise _os_error("prctl")


def syscall(number: int, *arguments: object) -> int:
    """A raw system call; integers travel as C longs. Returns what the kernel returns; raises `OSError` for -1."""
    wide = [ctypes.c_long(argument) if isinstance(argument, int) else argument for argument in arguments]
    libc.syscall.restype = ctypes.c_long
    result = int(libc.syscall(ctypes.c_long(number), *wide))
    if result < 0:
        raise _os_error(f"system call {number}")
    return result


def give_up_capabilities(*, but: int) -> bool:
    """Of this thread and all it starts, after `PR_SET_NO_NEW_PRIVS`; keeps the one of this number if it is there.

    False where the C library has no such call. Raises `OSError`.
    """
    if not hasattr(libc, "capset"):
        return False
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    sets = (ctypes.c_uint32 * 6)()  # effective, permitted, inheritable: the lower halves, then the upper ones
    if libc.capget(header, sets) != 0:
        raise _os_error("capget")
    kept = sets[1] & (1 << but)
    handed_on = kept if os.geteuid() != 0 else 0  # to what it starts, which has it from being root's otherwise
    if libc.capset(header, (ctypes.c_uint32 * 6)(kept, kept, handed_on, 0, 0, 0)) != 0:
        raise _os_error("capset")
    if handed_on:
        prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, ctypes.c_void_p(but))
    return True


def become(user: int, folder: Path | None) -> bool:
    """Have this process, which root runs and which has one thread, be this user's, who is in no group but its own.

    It keeps its capabilities, and `folder` becomes the user's too. False, and nothing has changed, where the process
    may not or the number means nobody here.
    """
    if os.geteuid() != 0 or not is_mapped(user):
        return False
    signal_of_parent = ctypes.c_int()
    prctl(PR_GET_PDEATHSIG, ctypes.byref(signal_of_parent))
    parent = os.getppid()
    prctl(PR_SET_KEEPCAPS, 1)
    groups = os.getgroups()
    try:
        if folder is not None:
            os.chown(folder, user, user)
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    except OSError:
        with contextlib.suppress(OSError):
            os.setresgid(0, 0, 0)
            os.setgroups(groups)
            if folder is not None:
                os.chown(folder, 0, 0)
        return False
    if signal_of_parent.value:  # the kernel forgets it when the user changes
        die_with_parent(parent)
    return True


def is_mapped(user: int) -> bool:
    """Whether the user namespace of this process has such a user and such a group."""
    for table in ("/proc/self/uid_map", "/proc/self/gid_map"):
        try:
            rows = [list(map(int, line.split())) for line in Path(table).read_text().splitlines()]
        except (OSError, ValueError):
            return False
        if not any(first <= user < first + count for first, _, count in rows):
            return False
    return True


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when its parent `parent` dies; exits at once if it is dead already."""
    if not LINUX:
        return
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def _os_error(what: str) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, f"{what}: {os.strerror(number)}")

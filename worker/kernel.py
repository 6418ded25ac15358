"""The few Linux calls that Python does not offer, through the C library.

On other systems `LINUX` is false and `prctl` is never called; every caller says what it goes without.
"""

from __future__ import annotations

import ctypes
import os
import platform
import signal
import sys

LINUX = sys.platform.startswith("linux")
MACHINE = platform.machine()

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_SECCOMP = 22
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38
SECCOMP_MODE_FILTER = 2
CAP_DAC_READ_SEARCH = 2
_CAPABILITY_VERSION_3 = 0x20080522

libc = ctypes.CDLL(None, use_errno=True)


def prctl(option: int, argument: int = 0, pointer: ctypes.c_void_p | None = None) -> None:
    """`prctl(2)`. Raises `OSError`."""
    if libc.prctl(option, ctypes.c_ulong(argument), pointer, ctypes.c_ulong(0), ctypes.c_ulong(0)) != 0:
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
    if libc.capset(header, (ctypes.c_uint32 * 6)(kept, kept, 0, 0, 0, 0)) != 0:
        raise _os_error("capset")
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

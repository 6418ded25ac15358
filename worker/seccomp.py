"""A system-call filter for one process and all it starts: no sockets, no tracing, no mounts, no new namespaces.

A list of what is refused, not of what is allowed: compilers and numpy use too much of the kernel for the
latter to stay true. Refused calls return EPERM. `socketpair` stays: it reaches nobody else.
Numbers are from the kernel's `asm/unistd_64.h` and `asm-generic/unistd.h`.
"""

from __future__ import annotations

import ctypes
import errno
import struct

from worker import kernel

_AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}

_REFUSED = {
    "socket": (41, 198),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "pidfd_getfd": (438, 438),
    "io_uring_setup": (425, 425),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "unshare": (272, 97),
    "setns": (308, 268),
    "bpf": (321, 280),
    "userfaultfd": (323, 282),
    "perf_event_open": (298, 241),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "open_by_handle_at": (304, 265),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "kexec_load": (246, 104),
    "reboot": (169, 142),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
}
"""Name: (number on x86-64, number on arm64)."""

_LOAD, _JUMP_EQUAL, _JUMP_AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_OFFSET_NUMBER, _OFFSET_ARCH = 0, 4
_ALLOW, _KILL_PROCESS, _REFUSE = 0x7FFF0000, 0x80000000, 0x00050000 | errno.EPERM
_X32 = 0x40000000
"""From this number on, an x86-64 call is of the x32 interface, whose numbers would slip past the list."""


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def restrict() -> bool:
    """Install the filter for good; False on a machine whose numbers are not known here.

    Needs `PR_SET_NO_NEW_PRIVS`. Raises `OSError` where the kernel has no seccomp.
    """
    if not kernel.LINUX or kernel.MACHINE not in _AUDIT_ARCH:
        return False
    code = program(kernel.MACHINE)
    wanted = _Program(len(code) // 8, code)
    kernel.prctl(kernel.PR_SET_SECCOMP, kernel.SECCOMP_MODE_FILTER, ctypes.cast(ctypes.byref(wanted), ctypes.c_void_p))
    return True


def program(machine: str) -> bytes:
    """The filter as classic BPF for `machine` (`x86_64` or `aarch64`)."""
    column = 0 if machine == "x86_64" else 1
    numbers = [pair[column] for pair in _REFUSED.values()]
    lines = [
        (_LOAD, 0, 0, _OFFSET_ARCH),
        (_JUMP_EQUAL, 1, 0, _AUDIT_ARCH[machine]),
        (_RETURN, 0, 0, _KILL_PROCESS),
        (_LOAD, 0, 0, _OFFSET_NUMBER),
        (_JUMP_AT_LEAST, len(numbers) + 1, 0, _X32),
    ]
    for index, number in enumerate(numbers):
        lines.append((_JUMP_EQUAL, len(numbers) - index, 0, number))
    lines += [(_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _REFUSE)]
    return b"".join(struct.pack("=HBBI", *line) for line in lines)

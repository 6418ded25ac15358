"""A system-call filter for one process and all it starts: no sockets, no tracing, no mounts, no new namespaces.

Also what Landlock lets through although it reaches beyond the process: modes, owners and attributes of files that
cannot be opened, System V and POSIX queues, and the resource limits of other processes.

A list of what is refused, not of what is allowed: compilers and numpy use too much of the kernel for the
latter to stay true. Refused calls return EPERM, and `clone3` ENOSYS: its flags cannot be looked at, and C libraries
then use `clone`. `socketpair` stays: it reaches nobody else. A job with a GPU may make one kind of socket, which CUDA
binds to a name when it starts (`@cuda-uvmfd-...`, local, in packets) and without which it does not start; like every
socket, it cannot be connected. Numbers are from the kernel's `asm/unistd_64.h` and `asm-generic/unistd.h`.
"""

from __future__ import annotations

import ctypes
import errno
import struct
from collections.abc import Mapping

from worker import kernel

_AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}

_REFUSED: Mapping[str, tuple[int | None, int | None]] = {
    "socket": (41, 198),
    "connect": (42, 203),
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
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
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
    "chmod": (90, None),
    "fchmodat": (268, 53),
    "fchmodat2": (452, 452),
    "chown": (92, None),
    "lchown": (94, None),
    "fchown": (93, 55),
    "fchownat": (260, 54),
    "setxattr": (188, 5),
    "lsetxattr": (189, 6),
    "removexattr": (197, 14),
    "lremovexattr": (198, 15),
    "truncate": (76, 45),
    "shmget": (29, 194),
    "shmat": (30, 196),
    "semget": (64, 190),
    "msgget": (68, 186),
    "mq_open": (240, 180),
}
"""Name: (number on x86-64, number on arm64), None where the machine has no such call."""

_CLONE, _CLONE3, _PRLIMIT64, _SOCKET = (56, 220), (435, 435), (302, 261), (41, 198)
_NEW_NAMESPACES = 0x7E020000
"""CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID and NEWNET of `linux/sched.h`."""

_AF_UNIX, _SOCK_SEQPACKET, _SOCK_TYPE = 1, 5, 0xF

_LOAD, _AND, _JUMP_EQUAL, _JUMP_AT_LEAST, _JUMP_ANY_BIT, _RETURN = 0x20, 0x54, 0x15, 0x35, 0x45, 0x06
_OFFSET_NUMBER, _OFFSET_ARCH, _OFFSET_FIRST_ARGUMENT, _OFFSET_SECOND_ARGUMENT = 0, 4, 16, 24
"""Of `seccomp_data`; of an argument the lower half, on little-endian machines."""
_ALLOW, _KILL_PROCESS, _ERROR = 0x7FFF0000, 0x80000000, 0x00050000
_X32 = 0x40000000
"""From this number on, an x86-64 call is of the x32 interface, whose numbers would slip past the list."""


_Line = tuple[int, int, int, int]
"""Code, lines to jump over where a condition holds and where not, operand."""


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def restrict(*, gpu: bool = False) -> bool:
    """Install the filter for good, for a job with a `gpu` or without.

    False on a machine whose numbers are not known here. Needs `PR_SET_NO_NEW_PRIVS`. Raises `OSError` where the kernel
    has no seccomp.
    """
    if not kernel.LINUX or kernel.MACHINE not in _AUDIT_ARCH:
        return False
    code = program(kernel.MACHINE, gpu=gpu)
    wanted = _Program(len(code) // 8, code)
    kernel.prctl(kernel.PR_SET_SECCOMP, kernel.SECCOMP_MODE_FILTER, ctypes.cast(ctypes.byref(wanted), ctypes.c_void_p))
    return True


def program(machine: str, *, gpu: bool = False) -> bytes:
    """The filter as classic BPF for `machine` (`x86_64` or `aarch64`)."""
    column = 0 if machine == "x86_64" else 1
    refused = [number for pair in _REFUSED.values() if (number := pair[column]) is not None]
    first_argument = (_LOAD, 0, 0, _OFFSET_FIRST_ARGUMENT)
    allow, refuse, missing = ((_RETURN, 0, 0, end) for end in (_ALLOW, _ERROR | errno.EPERM, _ERROR | errno.ENOSYS))
    lines = [
        (_LOAD, 0, 0, _OFFSET_ARCH),
        (_JUMP_EQUAL, 1, 0, _AUDIT_ARCH[machine]),
        (_RETURN, 0, 0, _KILL_PROCESS),
        (_LOAD, 0, 0, _OFFSET_NUMBER),
        # Each of these takes the next lines when the number is its own, else jumps over them.
        *((_JUMP_EQUAL, 0, 1, _CLONE3[column]), missing),
        *((_JUMP_EQUAL, 0, 4, _CLONE[column]), first_argument, (_JUMP_ANY_BIT, 0, 1, _NEW_NAMESPACES), refuse, allow),
        # Of oneself (0) only.
        *((_JUMP_EQUAL, 0, 4, _PRLIMIT64[column]), first_argument, (_JUMP_EQUAL, 1, 0, 0), refuse, allow),
        *(_driver_socket(_SOCKET[column], allow, refuse) if gpu else []),
        (_JUMP_AT_LEAST, len(refused) + 1, 0, _X32),
    ]
    for index, number in enumerate(refused):
        lines.append((_JUMP_EQUAL, len(refused) - index, 0, number))
    lines += [allow, refuse]
    return b"".join(struct.pack("=HBBI", *line) for line in lines)


def _driver_socket(number: int, allow: _Line, refuse: _Line) -> list[_Line]:
    """`socket(AF_UNIX, SOCK_SEQPACKET | any flags, any)` is allowed, every other socket refused.

    Other calls go on after these lines.
    """
    return [
        (_JUMP_EQUAL, 0, 7, number),
        (_LOAD, 0, 0, _OFFSET_FIRST_ARGUMENT),
        (_JUMP_EQUAL, 0, 3, _AF_UNIX),
        (_LOAD, 0, 0, _OFFSET_SECOND_ARGUMENT),
        (_AND, 0, 0, _SOCK_TYPE),
        (_JUMP_EQUAL, 1, 0, _SOCK_SEQPACKET),
        refuse,
        allow,
    ]

"""A system-call filter for one process and all it starts: no sockets, no tracing, no mounts, no new namespaces.

Also what Landlock lets through although it reaches beyond the process: the list of the host's mounts; modes, owners,
times and attributes of files, also of those that are only open to be read; System V and POSIX queues; watching what
others do with files; limits, priorities, cores and memory of other processes; and the kernel's own settings, for a
worker that root runs. And memory that the watch over resident memory does not see: files in memory, and shared pages
that belong to no file. Locks and leases of files, which hold up whoever else uses them, are not given, and descriptors
in messages, where nobody sees them, are refused.

A list of what is refused, not of what is allowed: compilers and numpy use too much of the kernel for the
latter to stay true. Refused calls return EPERM, and `clone3` ENOSYS: its flags cannot be looked at, and C libraries
then use `clone`. Calls that name a process may name the caller, by 0: numbers do not say whose a process is.
`socketpair` stays: it reaches nobody else. A job with a GPU may make one kind of socket, which CUDA
binds to a name when it starts (`@cuda-uvmfd-...`, local, in packets) and without which it does not start; like every
socket, it cannot be connected. It may also share memory, since nobody knows what of that its driver needs. Numbers are
from the kernel's `asm/unistd_64.h` and `asm-generic/unistd.h`.
"""

from __future__ import annotations

import ctypes
import errno
import struct
from collections.abc import Mapping, Sequence

from worker.sandbox import linux

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
    "statmount": (457, 457),
    "listmount": (458, 458),
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
    "fchmod": (91, 52),
    "fsetxattr": (190, 7),
    "fremovexattr": (199, 16),
    "setxattrat": (463, 463),
    "removexattrat": (466, 466),
    "file_setattr": (469, 469),
    "utime": (132, None),
    "utimes": (235, None),
    "futimesat": (261, None),
    "utimensat": (280, 88),
    "name_to_handle_at": (303, 264),
    "inotify_add_watch": (254, 27),
    "fanotify_init": (300, 262),
    "fanotify_mark": (301, 263),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "open_tree_attr": (467, 467),
    "acct": (163, 89),
    "syslog": (103, 116),
    "personality": (135, 92),
    "vhangup": (153, 58),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "adjtimex": (159, 171),
    "clock_adjtime": (305, 266),
    "iopl": (172, None),
    "ioperm": (173, None),
    "kexec_file_load": (320, 294),
    "kcmp": (312, 272),
    "pidfd_open": (434, 434),
    "pidfd_send_signal": (424, 424),
    "process_madvise": (440, 440),
    "process_mrelease": (448, 448),
    "migrate_pages": (256, 238),
    "move_pages": (279, 239),
    "memfd_secret": (447, 447),
    "shmget": (29, 194),
    "shmat": (30, 196),
    "shmctl": (31, 195),
    "semget": (64, 190),
    "semop": (65, 193),
    "semtimedop": (220, 192),
    "semctl": (66, 191),
    "msgget": (68, 186),
    "msgsnd": (69, 189),
    "msgrcv": (70, 188),
    "msgctl": (71, 187),
    "mq_unlink": (241, 181),
    "mq_open": (240, 180),
}
"""Name: (number on x86-64, number on arm64), None where the machine has no such call."""

_REFUSED_WITHOUT_GPU: Mapping[str, tuple[int, int]] = {
    "memfd_create": (319, 279),
    "sendmsg": (46, 211),
    "sendmmsg": (307, 269),
}
"""What drivers may need. Libraries of artifacts are then loaded from a file in the job's folder."""

_IN_VAIN: Mapping[str, tuple[int, int]] = {"flock": (73, 32), "fchmodat": (268, 53)}
"""Calls that are not carried out, and return 0: Zig ends where its cache, which is the job's own, cannot be locked, and
where what it links cannot be made executable. With a GPU `flock` is allowed."""

_OF_ITSELF: Mapping[str, tuple[int, int]] = {
    "prlimit64": (302, 261),
    "sched_setaffinity": (203, 122),
    "sched_setscheduler": (144, 119),
    "sched_setparam": (142, 118),
    "sched_setattr": (314, 274),
}
"""Calls whose first argument is a process or thread: 0 alone is allowed, which is the caller."""

_OF_PROCESS_ITSELF: Mapping[str, tuple[tuple[int, int], int]] = {
    "setpriority": ((141, 140), 0),
    "ioprio_set": ((251, 30), 1),
}
"""Numbers, and what as first argument says that the second is a process: no groups or users, and 0 alone of these."""

_CLONE, _CLONE3, _SOCKET, _MMAP, _IOCTL, _FCNTL = (56, 220), (435, 435), (41, 198), (9, 222), (16, 29), (72, 25)

_REFUSED_REQUESTS = (0x40086602, 0x40046602, 0x40087602, 0x40047602, 0x401C5820, 0x40806685)
"""FS_IOC_SETFLAGS and FS_IOC_SETVERSION in both sizes, FS_IOC_FSSETXATTR and FS_IOC_ENABLE_VERITY of `linux/fs.h` and
`linux/fsverity.h`: they change a file that is open to be read."""
_REFUSED_COMMANDS = (8, 15, 1024, 1026)
"""F_SETOWN, F_SETOWN_EX, F_SETLEASE and F_NOTIFY of `linux/fcntl.h`."""
_LOCKS = (6, 7, 37, 38)
"""F_SETLK, F_SETLKW, F_OFD_SETLK and F_OFD_SETLKW: refused without a GPU, whose driver locks its cache."""
_MAP_SHARED, _MAP_ANONYMOUS = 0x01, 0x20

_NEW_NAMESPACES = 0x7E020000
"""CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID and NEWNET of `linux/sched.h`."""

_AF_UNIX, _SOCK_SEQPACKET, _SOCK_TYPE = 1, 5, 0xF

_LOAD, _AND, _JUMP_EQUAL, _JUMP_AT_LEAST, _JUMP_ANY_BIT, _RETURN = 0x20, 0x54, 0x15, 0x35, 0x45, 0x06
_OFFSET_NUMBER, _OFFSET_ARCH = 0, 4
_OFFSET_FIRST_ARGUMENT, _OFFSET_SECOND_ARGUMENT, _OFFSET_FOURTH_ARGUMENT = 16, 24, 40
"""Of `seccomp_data`; of an argument the lower half, on little-endian machines."""
_ALLOW, _KILL_PROCESS, _ERROR = 0x7FFF0000, 0x80000000, 0x00050000
_X32 = 0x40000000
"""From this number on, an x86-64 call is of the x32 interface, whose numbers would slip past the list."""


_Line = tuple[int, int, int, int]
"""Code, lines to jump over where a condition holds and where not, operand."""

_ALLOWED: _Line = (_RETURN, 0, 0, _ALLOW)
_REFUSAL: _Line = (_RETURN, 0, 0, _ERROR | errno.EPERM)
_NOTHING: _Line = (_RETURN, 0, 0, _ERROR)
_MISSING: _Line = (_RETURN, 0, 0, _ERROR | errno.ENOSYS)


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def restrict(*, gpu: bool = False) -> bool:
    """Install the filter for good, for a job with a `gpu` or without.

    False on a machine whose numbers are not known here. Needs `PR_SET_NO_NEW_PRIVS`. Raises `OSError` where the kernel
    has no seccomp.
    """
    if not linux.LINUX or linux.MACHINE not in _AUDIT_ARCH:
        return False
    code = program(linux.MACHINE, gpu=gpu)
    wanted = _Program(len(code) // 8, code)
    linux.prctl(linux.PR_SET_SECCOMP, linux.SECCOMP_MODE_FILTER, ctypes.cast(ctypes.byref(wanted), ctypes.c_void_p))
    return True


def program(machine: str, *, gpu: bool = False) -> bytes:
    """The filter as classic BPF for `machine` (`x86_64` or `aarch64`)."""
    column = 0 if machine == "x86_64" else 1
    calls = _REFUSED if gpu else {**_REFUSED, **_REFUSED_WITHOUT_GPU}
    in_vain = [pair for name, pair in _IN_VAIN.items() if not (gpu and name == "flock")]
    refused = [number for pair in calls.values() if (number := pair[column]) is not None]
    lines = [
        (_LOAD, 0, 0, _OFFSET_ARCH),
        (_JUMP_EQUAL, 1, 0, _AUDIT_ARCH[machine]),
        (_RETURN, 0, 0, _KILL_PROCESS),
        (_LOAD, 0, 0, _OFFSET_NUMBER),
        # Each of these takes the next lines when the number is its own, else jumps over them.
        *([] if gpu else _shared_pages(_MMAP[column])),
        *_requests(_IOCTL[column], _REFUSED_REQUESTS),
        *_requests(_FCNTL[column], _REFUSED_COMMANDS if gpu else (*_REFUSED_COMMANDS, *_LOCKS)),
        (_JUMP_EQUAL, 0, 1, _CLONE3[column]),
        _MISSING,
        *(line for pair in in_vain for line in ((_JUMP_EQUAL, 0, 1, pair[column]), _NOTHING)),
        *_namespaces(_CLONE[column]),
        *(line for pair in _OF_ITSELF.values() for line in _of_itself(pair[column])),
        *(line for pair, kind in _OF_PROCESS_ITSELF.values() for line in _of_process_itself(pair[column], kind)),
        *(_driver_socket(_SOCKET[column]) if gpu else []),
        (_JUMP_AT_LEAST, len(refused) + 1, 0, _X32),
    ]
    for index, number in enumerate(refused):
        lines.append((_JUMP_EQUAL, len(refused) - index, 0, number))
    lines += [_ALLOWED, _REFUSAL]
    return b"".join(struct.pack("=HBBI", *line) for line in lines)


def _namespaces(number: int) -> list[_Line]:
    """`clone` makes no new namespace."""
    return [
        (_JUMP_EQUAL, 0, 4, number),
        (_LOAD, 0, 0, _OFFSET_FIRST_ARGUMENT),
        (_JUMP_ANY_BIT, 0, 1, _NEW_NAMESPACES),
        _REFUSAL,
        _ALLOWED,
    ]


def _of_itself(number: int) -> list[_Line]:
    return [
        (_JUMP_EQUAL, 0, 4, number),
        (_LOAD, 0, 0, _OFFSET_FIRST_ARGUMENT),
        (_JUMP_EQUAL, 1, 0, 0),
        _REFUSAL,
        _ALLOWED,
    ]


def _of_process_itself(number: int, kind: int) -> list[_Line]:
    return [
        (_JUMP_EQUAL, 0, 6, number),
        (_LOAD, 0, 0, _OFFSET_FIRST_ARGUMENT),
        (_JUMP_EQUAL, 0, 2, kind),
        (_LOAD, 0, 0, _OFFSET_SECOND_ARGUMENT),
        (_JUMP_EQUAL, 1, 0, 0),
        _REFUSAL,
        _ALLOWED,
    ]


def _shared_pages(number: int) -> list[_Line]:
    """`mmap` shares no pages that belong to no file: they stay when the process gives up its view of them."""
    return [
        (_JUMP_EQUAL, 0, 5, number),
        (_LOAD, 0, 0, _OFFSET_FOURTH_ARGUMENT),
        (_JUMP_ANY_BIT, 0, 2, _MAP_ANONYMOUS),
        (_JUMP_ANY_BIT, 0, 1, _MAP_SHARED),
        _REFUSAL,
        _ALLOWED,
    ]


def _requests(number: int, refused: Sequence[int]) -> list[_Line]:
    """A call whose second argument says what is wanted: none of the `refused`."""
    count = len(refused)
    return [
        (_JUMP_EQUAL, 0, count + 3, number),
        (_LOAD, 0, 0, _OFFSET_SECOND_ARGUMENT),
        *((_JUMP_EQUAL, count - index, 0, request) for index, request in enumerate(refused)),
        _ALLOWED,
        _REFUSAL,
    ]


def _driver_socket(number: int) -> list[_Line]:
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
        _REFUSAL,
        _ALLOWED,
    ]

"""A view of the file system for one process and all it starts: some paths to read, one to write, nothing else.

Landlock (kernel 5.13 and later) needs no privilege and cannot be undone. What a kernel does not know is left
out of the rule set, so each version gives as much as it can: emptying a file by opening it from version 3, TCP from
version 4, signals and abstract Unix sockets of others from version 6. Who asks is told which of it stands.

Landlock has no say in `stat`: whether a path exists, its size, times and owner can be found out for every file that the
user of the process can reach.
"""

from __future__ import annotations

import ctypes
import os
import stat
from collections.abc import Iterable
from pathlib import Path

from worker.sandbox import linux

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_QUERY_VERSION = 1
_RULE_PATH_BENEATH = 1

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_REMOVE_DIR, _REMOVE_FILE, _MAKE_DIR, _MAKE_REG = 1 << 4, 1 << 5, 1 << 7, 1 << 8
_MAKE_FIFO, _MAKE_SYM, _REFER, _TRUNCATE = 1 << 10, 1 << 12, 1 << 13, 1 << 14

_ALL_OF_VERSION_1 = (1 << 13) - 1
_FILE_ONLY = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE
_READ = _EXECUTE | _READ_FILE | _READ_DIR
_CHANGE = _READ_FILE | _WRITE_FILE
_WRITE = (
    _READ
    | _WRITE_FILE
    | _REMOVE_DIR
    | _REMOVE_FILE
    | _MAKE_DIR
    | _MAKE_REG
    | _MAKE_FIFO
    | _MAKE_SYM
    | _REFER
    | _TRUNCATE
)
_NET_BIND_AND_CONNECT_TCP = 0b11
_SCOPE_ABSTRACT_UNIX_AND_SIGNALS = 0b11


class _Ruleset(ctypes.Structure):
    _fields_ = (
        ("handled_access_fs", ctypes.c_uint64),
        ("handled_access_net", ctypes.c_uint64),
        ("scoped", ctypes.c_uint64),
    )


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _layout_ = "ms"
    _fields_ = (("allowed_access", ctypes.c_uint64), ("parent_fd", ctypes.c_int32))


def version() -> int:
    """The kernel's Landlock version; 0 where there is none."""
    if not linux.LINUX:
        return 0
    try:
        return linux.syscall(_CREATE_RULESET, None, 0, _QUERY_VERSION)
    except OSError:
        return 0


def walls(known: int) -> tuple[str, ...]:
    """What stands under this version, out of `sandbox.enter.WALLS`: before 3, files that are read can be emptied."""
    if known < 1:
        return ()
    return ("files_partly" if known < 3 else "files", *(("signals",) if known >= 6 else ()))


def restrict(readable: Iterable[Path], writable: Iterable[Path], changeable: Iterable[Path] = ()) -> tuple[str, ...]:
    """Leave this process only the paths beneath these; the walls that stand then, none where there is no Landlock.

    changeable  its files can be opened to be read and written; none is made, run or removed there

    Needs `PR_SET_NO_NEW_PRIVS`. Paths that do not exist are passed over. Raises `OSError`.
    """
    known = version()
    if known < 1:
        return ()
    files = _ALL_OF_VERSION_1 | (_REFER if known >= 2 else 0) | (_TRUNCATE if known >= 3 else 0)
    wanted = _Ruleset(
        files,
        _NET_BIND_AND_CONNECT_TCP if known >= 4 else 0,
        _SCOPE_ABSTRACT_UNIX_AND_SIGNALS if known >= 6 else 0,
    )
    size = 8 if known < 4 else 16 if known < 6 else 24
    ruleset = linux.syscall(_CREATE_RULESET, ctypes.byref(wanted), size, 0)
    try:
        for path in readable:
            _allow(ruleset, path, _READ & files)
        for path in writable:
            _allow(ruleset, path, _WRITE & files)
        for path in changeable:
            _allow(ruleset, path, _CHANGE & files)
        linux.syscall(_RESTRICT_SELF, ruleset, 0)
    finally:
        os.close(ruleset)
    return walls(known)


def _allow(ruleset: int, path: Path, access: int) -> None:
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
            access &= _FILE_ONLY
        linux.syscall(_ADD_RULE, ruleset, _RULE_PATH_BENEATH, ctypes.byref(_PathBeneath(access, descriptor)), 0)
    finally:
        os.close(descriptor)

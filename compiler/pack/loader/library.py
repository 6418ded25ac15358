"""model.so, opened."""

from __future__ import annotations

import _ctypes
import ctypes
import functools
import json
import os
import sys
import tempfile
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from compiler.pack.loader.errors import ArtifactError, RunError, WrongMachine
from compiler.pack.loader.interface import ABI_VERSION, OLDER_ABI_VERSIONS, _Config, _Tensor
from compiler.pack.loader.profiles import _check_machine

PLACE = "let TMPDIR name a folder with free space that can be written and permits execution"
"""What mends that the library can be loaded neither from memory nor from a temporary file."""
_ENDINGS = {"win32": ".dll", "darwin": ".dylib"}
"""Of libraries' names, where systems ask for another one than `.so`."""
_THREADS = "TILEWRIGHT_THREADS"
"""The environment variable that says how many threads of the process may be at work in models, callers included."""


class _Library:
    """model.so, opened.

    Each has a file of its own, so that none is mistaken for one opened before under the same name.
    """

    def __init__(self, code: bytes) -> None:
        _check_machine(code)
        self._users, self._is_unwanted = 0, False
        self._fd = -1
        self._path = ""
        try:
            self.calls = self._from_memory(code)
        except (OSError, AttributeError):
            self.calls = self._from_file(code)
        try:
            self._declare()
            self._share()
        except AttributeError as reason:
            self.close()
            raise ArtifactError(f"model.so is not a Tilewright model: {reason}", "download it again") from None
        except BaseException:
            self.close()
            raise

    def _from_memory(self, code: bytes) -> ctypes.CDLL:
        """By a file in memory, kept open.

        The dynamic linker identifies libraries by names, and this one holds the number.
        """
        self._fd = os.memfd_create("model.so", os.MFD_CLOEXEC)
        try:
            with open(self._fd, "wb", closefd=False) as file:
                file.write(code)
            return ctypes.CDLL(f"/proc/self/fd/{self._fd}")
        except OSError:
            os.close(self._fd)
            self._fd = -1
            raise

    def _from_file(self, code: bytes) -> ctypes.CDLL:
        try:
            handle, path = tempfile.mkstemp(suffix=_ENDINGS.get(sys.platform, ".so"), prefix="tilewright-")
        except OSError as reason:
            raise WrongMachine(f"there is no place for model.so: {reason}", PLACE) from reason
        try:
            with open(handle, "wb") as file:
                file.write(code)
            return ctypes.CDLL(path)
        except OSError as reason:
            if reason.errno is not None and sys.platform != "win32":
                raise WrongMachine(f"model.so cannot be written to {path}: {reason.strerror}", PLACE) from reason
            if sys.platform != "win32" and os.statvfs(path).f_flag & os.ST_NOEXEC:
                raise WrongMachine(
                    f"model.so cannot be executed in {os.path.dirname(path)} (noexec)", PLACE
                ) from reason
            raise WrongMachine(
                f"model.so cannot be loaded: {reason}", "compile the model on or for this system"
            ) from reason
        finally:
            try:
                os.unlink(path)
            except PermissionError:  # Windows keeps the file of a library that is open
                self._path = path

    def _declare(self) -> None:
        c = self.calls
        self.version: int = c.tw_abi_version()
        if self.version not in (ABI_VERSION, *OLDER_ABI_VERSIONS):
            raise ArtifactError(
                f"model.so has ABI version {self.version}, this loader knows {ABI_VERSION}",
                "use the loader.py inside that artifact",
            )
        tensors = ctypes.POINTER(_Tensor)
        c.tw_describe.restype = ctypes.c_char_p
        c.tw_last_error.restype = ctypes.c_char_p
        c.tw_create.argtypes = (ctypes.POINTER(_Config), ctypes.POINTER(ctypes.c_void_p))
        c.tw_run.argtypes = (ctypes.c_void_p, tensors, tensors)
        c.tw_profile.argtypes = (ctypes.c_void_p, tensors, tensors, ctypes.POINTER(ctypes.c_double))
        c.tw_destroy.argtypes = (ctypes.c_void_p,)
        c.tw_destroy.restype = None
        if self.version == ABI_VERSION:
            doubles = ctypes.POINTER(ctypes.c_double)
            c.tw_trace.argtypes = (ctypes.c_void_p, tensors, tensors, doubles, doubles)
            c.tw_plan.argtypes = (ctypes.c_void_p, doubles)

    def _share(self) -> None:
        """Takes threads from the pool that the process's other models of this library's version use.

        Each process has its own list of pools, also the child of a fork, under a name that each copy of this file
        knows: what stands in `sys` is never freed, as the pools are not.
        """
        if not isinstance(self.calls, ctypes.CDLL) or not hasattr(self.calls, "tw_share"):
            return
        share, threads = self.calls.tw_share, thread_limit() or 0
        share.argtypes, share.restype = (ctypes.c_void_p, ctypes.c_int), ctypes.c_void_p
        name = f"_tilewright_pools_{os.getpid()}"
        lock, pools = sys.__dict__.setdefault(name, (threading.Lock(), []))
        with lock:
            if not any(share(pool, threads) for pool in pools) and (pool := share(None, threads)):
                pools.append(pool)
        lock, opened = _opened()
        with lock:
            opened.add(self)

    def limit_threads(self, threads: int) -> None:
        """As `tw_set_threads`. Does nothing in older libraries."""
        self._users += 1
        if not self._is_unwanted and hasattr(self.calls, "tw_set_threads"):
            self.calls.tw_set_threads(threads)
        self._users -= 1
        if self._is_unwanted:
            self.close()

    def describe(self) -> dict[str, Any]:
        """What the library says of itself."""
        return dict(json.loads(self.calls.tw_describe()))

    def last_error(self) -> str:
        return bytes(self.calls.tw_last_error() or b"no reason given").decode(errors="replace")

    def close(self) -> None:
        """A finaliser or signal handler may call it amid `limit_threads` of its own thread, which then does it."""
        lock, opened = _opened()
        with lock:
            opened.discard(self)
            self._is_unwanted = self._users > 0
            if self._is_unwanted:
                return
        getattr(_ctypes, "FreeLibrary" if sys.platform == "win32" else "dlclose")(self.calls._handle)
        if self._fd >= 0:
            os.close(self._fd)
        if self._path:
            os.unlink(self._path)


def set_threads(threads: int | None) -> None:
    """How many threads of this process may be at work in models, callers included, from now on, amid runs too.

    None: as many as its cores. It stands in the place of the variable TILEWRIGHT_THREADS, which becomes this number, so
    that models loaded later, by any copy of this file, and new processes have it too; the limits of control groups
    stay. Threads that are too many end after what they work on; of those that lack, the next run starts its own. A
    model that was loaded while the limit was 1 has one lane, and keeps it. Raises ValueError for another number.
    """
    if threads is not None and (type(threads) is not int or threads < 1):
        raise ValueError(f"threads is {threads!r}. Fix: give 1 or more, callers included, or None for all cores")
    if threads is None:
        os.environ.pop(_THREADS, None)
    else:
        os.environ[_THREADS] = str(threads)
    limit = thread_limit() or 0
    lock, opened = _opened()
    with lock:
        for one in list(opened):
            one.limit_threads(limit)


def _opened() -> tuple[threading.RLock, weakref.WeakSet[_Library]]:
    """The libraries for CPUs of this process, by whichever copy of this file it opened them, and a lock for them."""
    made = threading.RLock(), weakref.WeakSet[_Library]()
    found: tuple[threading.RLock, weakref.WeakSet[_Library]]
    found = sys.__dict__.setdefault(f"_tilewright_libraries_{os.getpid()}", made)
    return found


def thread_limit(root: Path | None = None) -> int | None:
    """How many threads of this process may be at work in models; None where its cores alone say so.

    The least of the environment variable TILEWRIGHT_THREADS and of the CPU limits (quota over period, rounded up) of
    the process's control groups, of version 2 or 1, as they were when first asked for; those below `root`, where one is
    given, are read each time. Raises WrongMachine for a variable that is no number from 1.
    """
    limits = list(_own_group_limits() if root is None else _group_limits(root))
    if asked := os.environ.get(_THREADS, ""):
        if not asked.isdecimal() or int(asked) < 1:
            raise WrongMachine(f"{_THREADS} is {asked!r}", "set it to a number of threads from 1, or unset it")
        limits.append(int(asked))
    return min(limits, default=None)


@functools.cache
def _own_group_limits() -> tuple[int, ...]:
    """Of this process: reading them takes some 0.15 ms, and models are loaded by the dozen."""
    return tuple(_group_limits(Path("/")))


def _group_limits(root: Path) -> Iterator[int]:
    for line in _lines_of(root / "proc/self/cgroup"):
        _, controllers, group = line.split(":", 2)
        if not controllers or "cpu" in controllers.split(","):
            top = root / "sys/fs/cgroup" / ("cpu" if controllers else "")
            own = top / group.lstrip("/")
            for folder in (own, *own.parents)[: len(own.parts) - len(top.parts) + 1]:
                if controllers:
                    quota, period = _lines_of(folder / "cpu.cfs_quota_us"), _lines_of(folder / "cpu.cfs_period_us")
                    words = [*quota, *period]
                else:
                    words = " ".join(_lines_of(folder / "cpu.max")).split()
                if len(words) == 2 and all(map(str.isdecimal, words)):
                    yield max(1, -(-int(words[0]) // int(words[1])))


def _lines_of(path: Path) -> list[str]:
    """Of a file of the system; none where it cannot be read."""
    try:
        return path.read_text().splitlines()
    except OSError:
        return []


def _alone(lock: threading.RLock) -> threading.RLock:
    """The lock under which one thread at a time uses a model, for a thread that does not hold it already.

    Raises RunError in one that does, which would wait for itself: in a signal handler or a tracing hook amid a run.
    """
    if lock._is_owned():  # type: ignore[attr-defined]
        raise RunError(
            "the model is in use by this very thread, and a signal handler, tracing hook or finaliser calls it. "
            "Fix: call it once that run is over, or load the model a second time for it"
        )
    return lock

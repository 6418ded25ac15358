"""The C timing helper as Python sees it."""

from __future__ import annotations

import ctypes
import weakref
from importlib.resources import files
from types import TracebackType

from compiler.codegen.build import temporary_folder
from compiler.errors import InternalError, ResourceExhausted

TIMER_SOURCE = "\n".join((files("compiler.devices.cpu.measure") / name).read_text() for name in ("timer.c", "stages.c"))
"""C source to be compiled with the target's flags (and -pthread) into each library that `Timer` opens."""


class Region(ctypes.Structure):
    """`struct tw_region`: memory to be driven out of the caches, or to be read into them."""

    _fields_ = (("data", ctypes.c_void_p), ("bytes", ctypes.c_long))


class Sample(ctypes.Structure):
    """`struct tw_sample`: what is timed, on how many lanes, how often."""

    _fields_ = (
        ("kernel", ctypes.c_void_p),
        ("tables", ctypes.c_void_p),
        ("pointers", ctypes.c_long),
        ("copies", ctypes.c_long),
        ("first", ctypes.c_long),
        ("scratch", ctypes.c_void_p),
        ("scratch_stride", ctypes.c_long),
        ("tiles", ctypes.c_long),
        ("lanes", ctypes.c_long),
        ("repeats", ctypes.c_long),
        ("cold", ctypes.POINTER(Region)),
        ("colds", ctypes.c_long),
        ("warm", ctypes.POINTER(Region)),
        ("warms", ctypes.c_long),
    )


class TimedWait(ctypes.Structure):
    """`struct tw_wait`: for so many tasks of a lane."""

    _fields_ = (("lane", ctypes.c_long), ("count", ctypes.c_long))


class TimedTask(ctypes.Structure):
    """`struct tw_task`: tiles of a kernel, on one of several tables of pointers."""

    _fields_ = (
        ("kernel", ctypes.c_void_p),
        ("tables", ctypes.c_void_p),
        ("pointers", ctypes.c_long),
        ("copies", ctypes.c_long),
        ("begin", ctypes.c_long),
        ("end", ctypes.c_long),
        ("waits", ctypes.POINTER(TimedWait)),
        ("wait_count", ctypes.c_long),
    )


class TimedStage(ctypes.Structure):
    """`struct tw_stage`: tasks of all lanes, how often they run, and where the seconds of each run go."""

    _fields_ = (
        ("tasks", ctypes.POINTER(TimedTask)),
        ("first", ctypes.POINTER(ctypes.c_long)),
        ("scratch", ctypes.c_void_p),
        ("scratch_stride", ctypes.c_long),
        ("lanes", ctypes.c_long),
        ("runs", ctypes.c_long),
        ("cold", ctypes.POINTER(Region)),
        ("colds", ctypes.c_long),
        ("warm", ctypes.POINTER(Region)),
        ("warms", ctypes.c_long),
        ("seconds", ctypes.POINTER(ctypes.c_double)),
    )


class Timer:
    """A loaded library that holds TIMER_SOURCE and, for kernels, their functions.

    It is unloaded when the context is left, or with the last reference to this object: addresses are valid until then.
    """

    def __init__(self, library: bytes) -> None:
        with temporary_folder("tw-timer-") as folder:
            path = folder / "timer.so"
            path.write_bytes(library)
            self._library = ctypes.CDLL(str(path))
        self._unload = weakref.finalize(self, _unload, self._library._handle)
        self._time = self._function("tw_time", ctypes.POINTER(Sample))
        self._probe = self._function("tw_probe_fma", ctypes.c_long)
        self._dot = self._function("tw_probe_dot")
        self._read = self._function("tw_probe_read", ctypes.c_void_p, ctypes.c_long, ctypes.c_long, ctypes.c_long)
        self._handover = self._function("tw_handover", ctypes.c_long)
        passing = (ctypes.c_void_p, ctypes.c_long, ctypes.c_long, ctypes.c_long)
        self._pass = self._function("tw_probe_pass", *passing)
        self._upgrade = self._function("tw_probe_upgrade", *passing)
        self._stages = self._function("tw_stages", ctypes.POINTER(TimedStage))

    def __enter__(self) -> Timer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._unload()

    def address(self, symbol: str) -> int:
        """Address of a kernel. Raises InternalError when the library does not export it."""
        try:
            found = ctypes.cast(getattr(self._library, symbol), ctypes.c_void_p).value
        except AttributeError:
            raise InternalError(f"the library to be measured does not export {symbol}") from None
        assert found is not None
        return found

    def time(self, sample: Sample) -> float:
        """Seconds for one run of all tiles."""
        return _measured(self._time(ctypes.byref(sample)), "a kernel")

    def probe(self, lanes: int) -> float:
        """FLOP/s of the slowest of `lanes` cores at nothing but multiply-adds; takes some 50 microseconds."""
        return _measured(self._probe(lanes), "multiply-adds")

    def probe_dot(self) -> float:
        """Dot products of bf16 pairs for a whole vector in a second on one core; 0 where it has no instruction."""
        return _measured(self._dot(), "dot products")

    def handover(self, rounds: int) -> float:
        """Nanoseconds until a second core sees what this one stored."""
        return _measured(self._handover(rounds), "a hand-over")

    def pass_on(self, address: int, bytes: int, rounds: int, *, apart: bool) -> float:
        """Seconds in which one core reads so many bytes that itself or, if `apart`, another core wrote last."""
        return _measured(self._pass(address, bytes, rounds, apart), "reading")

    def upgrade(self, address: int, bytes: int, rounds: int, *, apart: bool) -> float:
        """Seconds in which one core writes so many bytes that it wrote last.

        The core itself has read them since or, if `apart`, another core.
        """
        return _measured(self._upgrade(address, bytes, rounds, apart), "writing")

    def stage(self, stage: TimedStage) -> None:
        """Runs tasks on their lanes and puts the seconds of each run where the stage says."""
        _measured(self._stages(ctypes.byref(stage)), "tasks")

    def read_rate(self, address: int, bytes: int, repeats: int, lanes: int) -> float:
        """Bytes per second that the slowest of `lanes` cores reads, each `bytes` of its own, over and over.

        The bytes lie one core's after the other's from `address` on.
        """
        return _measured(self._read(address, bytes, repeats, lanes), "reading")

    def _function(self, name: str, *arguments: type) -> ctypes._NamedFuncPointer:
        try:
            function = getattr(self._library, name)
        except AttributeError:
            raise InternalError(f"the library to be measured lacks {name}: compile TIMER_SOURCE into it") from None
        function.argtypes = arguments
        function.restype = ctypes.c_double
        return function  # type: ignore[no-any-return]


def _unload(handle: int) -> None:
    close = ctypes.CDLL(None).dlclose
    close.argtypes = (ctypes.c_void_p,)
    close(handle)


def _measured(value: float, what: str) -> float:
    if value < 0:
        raise ResourceExhausted(
            f"cannot start the threads that time {what}", fix="raise the limit of processes, or use threads=1"
        )
    return value

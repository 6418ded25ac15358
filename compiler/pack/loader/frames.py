"""Several inferences in flight, on several devices."""

from __future__ import annotations

import _ctypes
import ctypes
import hashlib
import os
import tempfile
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from compiler.pack.loader.bindings import Binding
from compiler.pack.loader.errors import InputError, RunError, WrongMachine
from compiler.pack.loader.files import _Files
from compiler.pack.loader.interface import _StreamConfig, _Tensor, _tensors
from compiler.pack.loader.library import _alone
from compiler.pack.loader.profiles import _check_machine
from compiler.pack.loader.specs import Array, TensorSpec, _aligned


class _Frames:
    """The parts of an artifact for several devices, at work: stream.so with the library of each part."""

    def __init__(self, files: _Files, spin_us: int | None, binding: Binding) -> None:
        described = files.manifest["stream"]
        self._binding = binding
        self._takes = [(spec.numpy, spec.shape) for spec in binding.inputs]
        states = {one["input"] for one in described.get("carried", ())}
        self.carried = [spec.name in states for spec in binding.inputs]
        self._files: list[int] = []
        self._turn = threading.RLock()
        self._flight: deque[tuple[int, _Seat, Any]] = deque()
        self._free: list[_Seat] = []
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._loaded = False
        self._stream = ctypes.c_void_p()
        self._end: weakref.finalize[[ctypes.CDLL, ctypes.c_void_p, int], _Frames] | None = None
        self.parts, self.devices = len(described["parts"]), len(described["devices"])
        self.frames = int(described["frames"])
        try:
            folders = [part["folder"] for part in described["parts"]]
            opened = {folder: self._path(files.read(f"{folder}model.so")) for folder in dict.fromkeys(folders)}
            paths = [opened[folder] for folder in folders]
            self._calls = ctypes.CDLL(self._path(files.read("stream.so")))
            self._loaded = True
            self._declare()
            weights, offset = files.locate("weights.bin")
            libraries = (ctypes.c_char_p * len(paths))(*map(os.fsencode, paths))
            spin = -1 if spin_us is None else spin_us
            config = _StreamConfig(None, libraries, os.fsencode(weights), offset, spin, 1)
            if self._calls.tw_stream_create(ctypes.byref(config), ctypes.byref(self._stream)):
                self._stream = ctypes.c_void_p()
                raise WrongMachine(f"the parts of the model cannot start: {self.last_error()}", "see the reason above")
            self._end = weakref.finalize(self, _end_stream, self._calls, self._stream, os.getpid())
        except BaseException:
            self.close()
            raise

    def _path(self, code: bytes) -> str:
        """A file that the dynamic linker can open, of a name of its own for as long as this is open."""
        _check_machine(code)
        try:
            made = os.memfd_create("part.so", os.MFD_CLOEXEC)
            self._files.append(made)
            with open(made, "wb", closefd=False) as file:
                file.write(code)
            return f"/proc/self/fd/{made}"
        except (OSError, AttributeError):
            self._folder = self._folder or tempfile.TemporaryDirectory(prefix="tilewright-")
            path = Path(self._folder.name) / f"{hashlib.sha256(code).hexdigest()}.so"
            path.write_bytes(code)
            return str(path)

    def _declare(self) -> None:
        c, tensors = self._calls, ctypes.POINTER(_Tensor)
        c.tw_stream_error.restype = ctypes.c_char_p
        c.tw_stream_create.argtypes = (ctypes.POINTER(_StreamConfig), ctypes.POINTER(ctypes.c_void_p))
        c.tw_submit.argtypes, c.tw_submit.restype = (ctypes.c_void_p, tensors, tensors), ctypes.c_int64
        c.tw_wait.argtypes = (ctypes.c_void_p, ctypes.c_int64)
        c.tw_stream_work.argtypes = (ctypes.c_void_p, ctypes.POINTER(ctypes.c_double))
        c.tw_stream_work.restype = ctypes.c_int64
        if hasattr(c, "tw_stream_delay"):
            c.tw_stream_delay.argtypes, c.tw_stream_delay.restype = c.tw_stream_work.argtypes, None
        c.tw_stream_destroy.argtypes, c.tw_stream_destroy.restype = (ctypes.c_void_p,), None

    def fit(self, inputs: Sequence[Any]) -> bool:
        """Whether inputs are arrays of just the types and shapes: what else may be given is found out slowly."""
        return len(inputs) == len(self._takes) and all(
            (value is None and is_state)
            or (type(value) is np.ndarray and value.dtype is dtype and value.shape == shape)
            for value, is_state, (dtype, shape) in zip(inputs, self.carried, self._takes, strict=True)
        )

    def seat(self) -> _Seat:
        """One that no frame in flight has. Every frame begins here."""
        with _alone(self._turn):
            return self._free.pop() if self._free else _Seat(self._binding)

    def submit(self, seat: _Seat, kept: Any = None) -> int:
        """The number of the frame that was begun; it waits while as many are in flight as may be.

        `kept` is what must live, beside the seat, until the frame has ended.
        """
        frame = int(self._calls.tw_submit(self._opened(), seat.taken, seat.filled))
        if frame < 0:
            raise RunError(self.last_error())
        with self._turn:
            self._flight.append((frame, seat, kept))
            while self._flight[0][0] <= frame - self.frames:  # it has ended, or this one had not begun
                self._free.append(self._flight.popleft()[1])
        return frame

    def wait(self, frame: int) -> None:
        """Until a frame has ended. Raises RunError where it failed."""
        if self._calls.tw_wait(self._opened(), frame):
            raise RunError(self.last_error())

    def work(self) -> tuple[int, list[float]]:
        """How many frames have ended, and the seconds of processor time that each part took."""
        seconds = (ctypes.c_double * self.parts)()
        return int(self._calls.tw_stream_work(self._opened(), seconds)), list(seconds)

    def delays(self) -> list[float]:
        """Of each device the seconds for which others kept its thread from its core; 0 where the system is silent."""
        seconds = (ctypes.c_double * self.devices)()
        if hasattr(self._calls, "tw_stream_delay"):  # artifacts of earlier compilers have none
            self._calls.tw_stream_delay(self._opened(), seconds)
        return list(seconds)

    def last_error(self) -> str:
        return bytes(self._calls.tw_stream_error() or b"no reason given").decode(errors="replace")

    def _opened(self) -> ctypes.c_void_p:
        if self._end is None or not self._end.alive:
            raise RunError("the model is closed. Fix: load it again")
        return self._stream

    def close(self, *, destroy: bool = True) -> None:
        """Waits for the frames in flight; without `destroy`, in a process that was forked, there are no threads."""
        if self._end is not None:
            self._end()
        if self._loaded and destroy:  # its name is a number that the next file may have
            _ctypes.dlclose(self._calls._handle)
        self._loaded, self._end = False, None
        for file in self._files:
            os.close(file)
        self._files, self._free = [], []
        self._flight.clear()
        if self._folder:
            self._folder.cleanup()
            self._folder = None


def _end_stream(calls: ctypes.CDLL, stream: ctypes.c_void_p, process: int) -> None:
    """Waits for the frames in flight, also when the interpreter ends: they write into its arrays."""
    if os.getpid() == process:
        calls.tw_stream_destroy(stream)


class _Seat:
    """What a frame in flight has: its C tensors, and arrays for copies of its inputs. A later frame has it again."""

    def __init__(self, binding: Binding) -> None:
        self._binding = binding
        self._takes: list[Array] = []
        self._places: list[int] = []
        self.taken, in_shapes = _tensors(binding.program_inputs)
        self.filled, out_shapes = _tensors(binding.program_outputs)
        self._shapes = (in_shapes, out_shapes)

    def copied(self, arrays: Sequence[Array | None]) -> Sequence[Array | None]:
        """Inputs, in arrays of its own; None stays what it is."""
        if not self._takes:
            self._takes = [_aligned(spec) for spec in self._binding.program_inputs]
            self._places = [_place_of(array) for array in self._takes]
        found: list[Array | None] = []
        for own, array in zip(self._takes, arrays, strict=True):
            if array is not None:
                own[...] = array
            found.append(None if array is None else own)
        return found

    def aim(self, arrays: Sequence[Array | None], results: Sequence[Array]) -> None:
        """At inputs and outputs, which are row-major; None is a state that the frame before makes."""
        for at, array in enumerate(arrays):
            own = self._takes and array is self._takes[at]
            self.taken[at].data = self._places[at] if own else None if array is None else _place_of(array)
        for tensor, array in zip(self.filled, results, strict=False):
            tensor.data = _place_of(array)


def _place_of(array: Array) -> int:
    return int(array.__array_interface__["data"][0])


class Frame:
    """One inference in flight; `result` waits for it."""

    def __init__(self, frames: _Frames, number: int, outputs: Sequence[TensorSpec], results: list[Any]) -> None:
        self.number = number
        self._frames, self._outputs, self._results = frames, outputs, results
        self._ended: BaseException | bool = False

    def _is_there(self) -> bool:
        """Whether it has ended, with all before it."""
        return self._ended is not False or self._frames.work()[0] > self.number

    def result(self) -> dict[str, Any]:
        """Outputs by name, as of `Model.run`. Raises RunError where this frame failed, each time that it is asked."""
        return {spec.name: array for spec, array in zip(self._outputs, self.result_flat(), strict=True)}

    def result_flat(self) -> list[Any]:
        """As `result`, in the order of the model's outputs."""
        if self._ended is False:
            try:
                self._frames.wait(self.number)
                self._ended = True
            except RunError as failure:
                self._ended = failure
        if isinstance(self._ended, BaseException):
            raise self._ended
        return self._results


class Stream:
    """Results of frames in the order in which these were given, with several in flight: an iterator.

    It takes a frame before each result, and more until the result is there or as many are in flight as may be.
    A frame that does not fit, or fails, raises its error where its result would be; the next `next` goes on with the
    frame after it.
    """

    def __init__(
        self, submit: Callable[[Mapping[str, Any]], Frame], frames: Iterable[Mapping[str, Any]], depth: int
    ) -> None:
        self._submit, self._frames, self._depth = submit, iter(frames), depth
        self._waiting: deque[Frame | Exception] = deque()
        self._is_over = False

    def __iter__(self) -> Stream:
        return self

    def __next__(self) -> dict[str, Any]:
        while not self._is_over and len(self._waiting) < self._depth:
            try:
                inputs = next(self._frames)
            except StopIteration:
                self._is_over = True
                break
            try:
                self._waiting.append(self._submit(inputs))
            except InputError as refused:
                self._waiting.append(refused)
            first = self._waiting[0]
            has_room = len(self._waiting) < self._depth
            if has_room and (isinstance(first, Exception) or first._is_there()):  # the next frame may take long to come
                break
        if not self._waiting:
            raise StopIteration
        first = self._waiting.popleft()
        if isinstance(first, Exception):
            raise first
        return first.result()

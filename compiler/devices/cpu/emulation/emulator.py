"""qemu-user: which there is for a target of another architecture, and a process in it that holds a library.

What runs there computes what the target computes. How long it takes says nothing of the target.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import IO

import numpy as np

from compiler.codegen.build import Toolchain, compile_program, host_headers, system_root
from compiler.contract.systems import LINUX
from compiler.devices.cpu.target import CpuTarget
from compiler.errors import InternalError

RUNNER = (files("compiler.devices.cpu.emulation") / "runner.c").read_text()
PAGE = 4096
CORES = (
    (frozenset({"asimd"}), "cortex-a53"),
    (frozenset({"asimd", "atomics", "asimddp"}), "cortex-a76"),
)
"""What emulated core has these features and no later ones: code that uses more than its target has ends there."""
ALL_FEATURES = "max"
KERNEL, CREATE, RUN, DESCRIBE = range(1, 5)
LAST_WORDS_S = 10.0
"""For which a process may go on after its input has ended."""


@dataclass(frozen=True)
class Emulator:
    """Runs code of one target.

    command   the emulator with its arguments, before the program's path
    version   what it says of itself
    """

    command: tuple[str, ...]
    version: str
    target: CpuTarget
    toolchain: Toolchain

    def install(self, place: Path) -> Sequence[str]:
        """What it runs, put into a folder; the command line, to which the library's path is added."""
        program = place / "runner"
        put_program(program, build_runner(self.target, self.toolchain))
        return [*self.command, str(program)]

    def open(self, library: bytes) -> Guest:
        """A process that holds a shared library. Raises ToolchainFailed where its program cannot be built."""
        return Guest(self, library)

    def __str__(self) -> str:
        return f"{Path(self.command[0]).name} {self.version}, as {self.command[self.command.index('-cpu') + 1]}"


def find_emulator(target: CpuTarget, toolchain: Toolchain) -> Emulator | None:
    """What runs libraries that `toolchain` builds for a target of another architecture; None where nothing does."""
    if target.machine == platform.machine() or target.system != LINUX.name or toolchain.is_zig:
        return None  # Zig has no C library for it to run with
    found = _installed(target.machine)
    if found is None:
        return None
    path, version, cores = found
    features = frozenset(target.features)
    core = next((core for known, core in CORES if features <= known and core in cores), ALL_FEATURES)
    command = (path, "-cpu", core, "-L", system_root(toolchain))
    return Emulator(command, version, target, toolchain)


@lru_cache(maxsize=4)
def _installed(machine: str) -> tuple[str, str, frozenset[str]] | None:
    """Path, version and the names of cores of the emulator of an architecture."""
    for name in (f"qemu-{machine}", f"qemu-{machine}-static"):
        path = shutil.which(name)
        if path is None:
            continue
        said, cores = (
            subprocess.run([path, *asked], capture_output=True, text=True, timeout=30, check=False)
            for asked in (("--version",), ("-cpu", "help"))
        )
        version = re.search(r"version (\S+)", said.stdout)
        if said.returncode == 0 and version:
            return path, version[1], frozenset(cores.stdout.split())
    return None


@lru_cache(maxsize=2)
def build_runner(target: CpuTarget, toolchain: Toolchain) -> bytes:
    """The program that opens a library. Raises as `compile_program` does."""
    texts = {**host_headers(), "runner.c": RUNNER}
    libraries = ("-rdynamic", "-ldl") if target.system == LINUX.name else ()
    return compile_program("runner.c", texts, target, toolchain, libraries)


def put_program(path: Path, code: bytes) -> None:
    """Writes a program, made executable as it is created: a sandbox may refuse to change modes."""
    with open(path, "wb", opener=lambda path, flags: os.open(path, flags, 0o700)) as file:
        file.write(code)


@dataclass(frozen=True)
class PortData:
    """An input or output of a model as its C interface has it: DLPack's code and bits, and elements in row-major order.

    `memory` is flat, of dtype u8; an output's is filled.
    """

    code: int
    bits: int
    shape: Sequence[int]
    memory: np.ndarray


class Guest:
    """A process in an emulator that holds one library: its kernels, or its model.

    Methods raise InternalError when the process dies, and RuntimeError with the library's own words when it refuses.
    """

    def __init__(self, emulator: Emulator, library: bytes) -> None:
        self._emulator = emulator
        self._folder = tempfile.TemporaryDirectory(prefix="tw-guest-")
        place = Path(self._folder.name)
        (place / "library.so").write_bytes(library)
        command = emulator.install(place)
        with open(place / "said", "wb") as said:
            self._process = subprocess.Popen(
                [*command, str(place / "library.so")],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=said,
            )

    def describe(self) -> tuple[int, str]:
        """The ABI version and what a model's library says of itself."""
        self._ask([_numbers(DESCRIBE)])
        return self._number(), self._text()

    def create(self, weights: str, offset: int, lanes: int, plan: int) -> tuple[int, float]:
        """An instance of the model, in place of an earlier one: which plan it runs, and the hand-over it measured."""
        self._ask([_numbers(CREATE), _told(weights), _numbers(offset, lanes, plan)])
        return self._number(), struct.unpack("=d", self._read(8))[0]

    def run(self, inputs: Sequence[PortData], outputs: Sequence[PortData]) -> None:
        """Runs the instance and fills the outputs."""
        parts = [_numbers(RUN, len(inputs), len(outputs))]
        for port in (*inputs, *outputs):
            parts.append(_numbers(port.code, port.bits, len(port.shape), *port.shape, port.memory.nbytes))
        self._ask([*parts, *(port.memory.tobytes() for port in inputs)])
        for port in outputs:
            port.memory[:] = np.frombuffer(self._read(port.memory.nbytes), np.uint8)

    def call(self, name: str, operands: Sequence[np.ndarray], scratch: np.ndarray, first: int, past: int) -> None:
        """Runs tile tasks [first, past) of a kernel on flat operands.

        All memory that they are views of goes there and comes back, as aligned within a page as it is here.
        """
        arrays = [*operands, scratch]
        owners = {id(owner): owner for owner in map(_owner, arrays)}
        places = {key: position for position, key in enumerate(owners)}
        parts = [_numbers(KERNEL), _told(name), _numbers(len(owners))]
        parts += [_numbers(owner.nbytes, owner.ctypes.data % PAGE) for owner in owners.values()]
        parts.append(_numbers(len(arrays)))
        for array in arrays:
            owner = _owner(array)
            parts.append(_numbers(places[id(owner)], array.ctypes.data - owner.ctypes.data))
        parts.append(_numbers(first, past))
        self._ask([*parts, *(owner.tobytes() for owner in owners.values())])
        for owner in owners.values():
            content = np.frombuffer(self._read(owner.nbytes), np.uint8)
            if owner.flags.writeable:
                owner.reshape(-1).view(np.uint8)[...] = content

    def close(self) -> None:
        """Ends the process and removes its files; a second call does nothing."""
        process = self._process
        for pipe in (process.stdin, process.stdout):
            with suppress(BrokenPipeError):
                if pipe:
                    pipe.close()
        try:
            process.wait(LAST_WORDS_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        self._folder.cleanup()

    def __enter__(self) -> Guest:
        return self

    def __exit__(self, *reason: object) -> None:
        self.close()

    def __del__(self) -> None:
        if not sys.is_finalizing():
            self.close()

    def _ask(self, parts: Sequence[bytes]) -> None:
        """Sends an order. Raises RuntimeError with the answer where it is refused."""
        try:
            for part in parts:
                self._pipe(self._process.stdin).write(part)
            self._pipe(self._process.stdin).flush()
        except BrokenPipeError:
            raise self._died() from None
        if self._number():
            raise RuntimeError(self._text())

    def _number(self) -> int:
        return int(struct.unpack("=q", self._read(8))[0])

    def _text(self) -> str:
        return self._read(self._number()).decode(errors="replace")

    def _read(self, count: int) -> bytes:
        found = self._pipe(self._process.stdout).read(count)
        if len(found) < count:
            raise self._died()
        return found

    @staticmethod
    def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
        assert pipe is not None
        return pipe

    def _died(self) -> InternalError:
        status = self._process.wait(LAST_WORDS_S)
        said = (Path(self._folder.name) / "said").read_text(errors="replace").strip()[-300:]
        how = f"by {signal.Signals(-status).name}" if status < 0 else f"with status {status}"
        return InternalError(
            f"code for {self._emulator.target.name} ended {how} under {self._emulator}: {said or 'it said nothing'}",
            fix="report this model: it is our fault",
        )


def _owner(array: np.ndarray) -> np.ndarray:
    """The array whose memory it is a view of; itself where that is no array."""
    base = array.base
    return base if isinstance(base, np.ndarray) and base.flags.c_contiguous else array


def _numbers(*values: int) -> bytes:
    return struct.pack(f"={len(values)}q", *values)


def _told(text: str) -> bytes:
    encoded = text.encode()
    return _numbers(len(encoded)) + encoded

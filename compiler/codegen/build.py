"""Finds the C compiler and turns sources into one shared library, the same bytes for the same sources and compiler."""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.resources import files
from importlib.util import find_spec
from itertools import dropwhile
from pathlib import Path
from typing import Protocol

from compiler.codegen import zig
from compiler.codegen.scalars import SMALL_HEADER
from compiler.contract.systems import LINUX, WINDOWS, system_of
from compiler.errors import (
    DiskFull,
    MachineError,
    PlaceUnusable,
    ResourceExhausted,
    ToolchainFailed,
    ToolchainMissing,
    machine_error,
)
from compiler.trace import StopRequest, never_stops

CANDIDATES = ("gcc", "cc", "clang")
COMPILE_FLAGS = (
    "-O3",
    "-std=gnu11",
    "-fPIC",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-ffp-contract=fast",
    "-fvisibility=hidden",
    "-fno-ident",
    "-Wno-psabi",
    "-pthread",
)
HOST_UNIT, HOST_LEVEL = "model.c", "-O2"
"""The unit that calls kernels, and computes no more than constants that are made at load: at the level of COMPILE_FLAGS
it takes half as long again to compile, and neither runs nor loads faster."""
DEBIAN_NAMES = {"aarch64": "arm64", "x86_64": "amd64"}
"""Of architectures, in the names of packages."""
LINK_FLAGS = ("-shared", "-Wl,--build-id=none", "-Wl,-z,noexecstack", "-pthread")
WASM_COMPILE_FLAGS = (
    *(flag for flag in COMPILE_FLAGS if flag not in ("-fPIC", "-pthread")),
    *zig.COMPILING,
)
WASM_LINK_FLAGS = (
    "-O3",
    "-mexec-model=reactor",
    "-Wl,--export-dynamic",
    "-Wl,--strip-all",
    "-Wl,--build-id=none",
    "-Wl,-z,stack-size=1048576",
)
"""A module that a page loads: it exports what is visible, and has a stack of a MiB."""
WASM_ATOMICS = ("-matomics", "-mbulk-memory")
"""Flags of a target for modules whose memory threads share."""
WASM_SHARED_FLAGS = (
    "-mcpu=generic+atomics+bulk_memory",
    "-Wl,--shared-memory",
    "-Wl,--import-memory",
    "-Wl,--initial-memory=8388608",
    "-Wl,--max-memory=4294901760",
    "-Wl,--export=__stack_pointer",
)
"""What links these: each thread's instance is given the memory, within these bounds (model.js), and a stack."""
UNIT_TIMEOUT_S = 300
LINK_TIMEOUT_S = 900
"""Zig builds a system's C library when it first links for it: 80 seconds of a core, which others may want too."""
ASK_S = 0.05
"""How often a build is asked whether it shall stop."""


HEADERS = ("model.h", "tw_host.h", "tw_system.h", "tw_windows.h")
"""What every program includes, whatever runs its kernels."""


class Instructions(Protocol):
    """What a C compiler has to know of the machine that code is for."""

    @property
    def flags(self) -> tuple[str, ...]:
        """Arguments by which a C compiler may use the machine's instructions."""
        ...

    @property
    def vector_floats(self) -> int:
        """fp32 elements of a vector, TW_LANES in the sources."""
        ...


@dataclass(frozen=True)
class Toolchain:
    """A C compiler by path, and what it says of itself; `arguments` stand before all others: `ccache gcc -m64`.

    `compiling` and `linking` are the flags of every library.
    """

    path: str
    version: str
    arguments: tuple[str, ...] = ()
    compiling: tuple[str, ...] = COMPILE_FLAGS
    linking: tuple[str, ...] = LINK_FLAGS
    system: str = LINUX.name
    """The operating system that its libraries are for."""

    @property
    def is_zig(self) -> bool:
        """Whether it is Zig's, which spells processors in its own way."""
        return "ziglang" in self.arguments

    def machine_flags(self, target: Instructions) -> tuple[str, ...]:
        """The flags by which it may use a machine's instructions."""
        return zig.machine_flags(target.flags) if self.is_zig else target.flags

    @property
    def command(self) -> tuple[str, ...]:
        """What begins each of its command lines."""
        return (self.path, *self.arguments)

    def identity(self, target: Instructions) -> str:
        """Compiler and flags as one line: equal identities give equal code.

        What a launcher, such as ccache, runs says `version`: of the arguments, those from the first option on count.
        """
        options = dropwhile(lambda word: not word.startswith("-"), self.arguments)
        return f"{self.version}; {' '.join((*options, *self.compiling, *self.machine_flags(target), *self.linking))}"


WASM, WASI = "wasm32", "wasm32-wasi"
"""The architecture of modules for browsers, and the system whose C library they are linked with."""
INCLUDED = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)

Objects = dict[str, bytes]
"""Object files by the SHA-256 of all that they were compiled from: a unit that is built again is only linked."""


class Stopped(Exception):
    """A build was called off."""


@lru_cache(maxsize=8)
def find_toolchain(preferred: str = "", machine: str = "", system: str = LINUX.name) -> Toolchain:
    """`preferred` (the user's $CC) if given, else the first C compiler on the PATH. Raises ToolchainMissing.

    `preferred` may have arguments, quoted as in a shell: `ccache gcc`.

    `machine` is the architecture that code is for, as `platform.machine()` says it; empty: this one. For another one
    it is `preferred` if that makes code for it, else the cross compiler that is named after it, else Zig's. For another
    operating system it is Zig's, which brings the C library.
    """
    if machine == WASM:
        return _wasm_toolchain(preferred)
    if system != LINUX.name:
        return _zig_toolchain(machine or platform.machine(), system)
    if machine and machine != platform.machine():
        return _cross_toolchain(preferred, machine)
    for name in (preferred,) if preferred else CANDIDATES:
        found = _toolchain(name)
        if found:
            return found
    if preferred:
        raise ToolchainMissing(
            f"CC is {preferred!r}, and that is no C compiler that answers --version",
            fix="let CC name one that is installed, or nothing",
        )
    raise ToolchainMissing(
        f"no C compiler found (looked for {', '.join(CANDIDATES)})",
        fix="install gcc (Debian: apt-get install gcc libc6-dev)",
    )


def _cross_toolchain(preferred: str, machine: str) -> Toolchain:
    cross = f"{machine}-linux-gnu-gcc"
    for name in (preferred, cross):
        found = _toolchain(name) if name else None
        if found and _said(found.command, "-dumpmachine").startswith(f"{machine}-"):
            return found
    if find_spec("ziglang"):
        return _zig_toolchain(machine, LINUX.name)
    besides = f", and {preferred} makes none" if preferred else ""
    raise ToolchainMissing(
        f"no C compiler for {machine} found (looked for {cross}, and for ziglang{besides})",
        fix=f"install it (Debian: apt-get install gcc-{machine.replace('_', '-')}-linux-gnu "
        f"libc6-dev-{DEBIAN_NAMES.get(machine, machine)}-cross), or let CC name one",
    )


def _zig_toolchain(machine: str, system: str) -> Toolchain:
    found = _zig(zig.TRIPLES[system].format(machine))
    if found is None:
        raise ToolchainMissing(
            f"no C compiler for {system_of(system).title} found (looked for ziglang)",
            fix="install it: pip install ziglang",
        )
    compiling = tuple(flag for flag in COMPILE_FLAGS if flag != "-fPIC" or system != WINDOWS.name)
    alone = zig.COMPILING_ALONE if system in zig.ALONE else ()
    compiling = (*compiling, *zig.COMPILING, "-g0", *alone)
    return replace(found, compiling=compiling, linking=zig.LINKING[system], system=system)


def _wasm_toolchain(preferred: str) -> Toolchain:
    """`preferred` if it makes modules, else Zig's, as its wheel brings it, or a Clang that has a C library for them."""
    for found in (_toolchain(preferred) if preferred else None, _zig(WASI), _toolchain(f"clang --target={WASI}")):
        if found and _said(found.command, "-dumpmachine").startswith(f"{WASM}-") and _links(found):
            return replace(found, compiling=WASM_COMPILE_FLAGS, linking=WASM_LINK_FLAGS)
    raise ToolchainMissing(
        "no C compiler for WebAssembly found (looked for ziglang, and for clang with a C library for it)",
        fix="install it: pip install ziglang (or Debian: apt-get install clang lld wasi-libc libclang-rt-dev-wasm32)",
    )


def _zig(triple: str) -> Toolchain | None:
    """The compiler of the wheel `ziglang` for an architecture and a system."""
    if find_spec("ziglang") is None:
        return None
    arguments = ("-m", "ziglang", "cc", "-target", triple)
    with temporary_folder("tw-ask-") as place:  # where it leaves an empty a.o
        said = _said((sys.executable, *arguments), "--version", place)
    return Toolchain(sys.executable, said.splitlines()[0].strip(), arguments) if said.strip() else None


def _links(found: Toolchain) -> bool:
    """Whether a compiler of modules has a C library; Zig makes its own."""
    return found.is_zig or Path(_said(found.command, "-print-file-name=libm.a").strip()).is_file()


def _toolchain(name: str) -> Toolchain | None:
    """The compiler of this name on the PATH, with the arguments that follow it, if it answers."""
    try:
        first, *arguments = [name] if shutil.which(name) else shlex.split(name)
    except ValueError:  # nothing, or a quote that is not closed
        return None
    path = shutil.which(first)
    said = _said((path, *arguments), "--version") if path else ""
    return Toolchain(path, said.splitlines()[0].strip(), tuple(arguments)) if path and said.strip() else None


def _said(command: Sequence[str], question: str, place: Path | None = None) -> str:
    """What a compiler answers, in a folder; empty where it fails."""
    asked = [*command, question]
    try:
        said = subprocess.run(asked, cwd=place, capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return said.stdout if said.returncode == 0 else ""


@lru_cache(maxsize=4)
def system_root(toolchain: Toolchain) -> str:
    """The folder whose `lib` has the C library of the machine that a compiler makes code for."""
    return str(Path(_said(toolchain.command, "-print-file-name=libc.so.6").strip()).resolve().parent.parent)


def shares_memory(target: Instructions) -> bool:
    """Whether it is of modules for browsers whose memory threads share."""
    return {*WASM_ATOMICS} <= {*target.flags}


def compile_library(
    sources: Mapping[str, str],
    headers: Mapping[str, str],
    target: Instructions,
    toolchain: Toolchain,
    jobs: int = 2,
    *,
    optimise: str = "",
    stop: StopRequest = never_stops,
    binaries: Mapping[str, bytes] | None = None,
    objects: Objects | None = None,
) -> bytes:
    """Compiles every `.c` of `sources` and links them.

    Other files and `headers` lie beside them. `binaries` are what `.incbin` finds there.

    `optimise` (`-O1`) replaces the level of kernels and host, for code that is to be judged and not to be fast. Object
    files are taken from `objects` where they are there, and left there, for sources without `binaries`.

    Raises ToolchainFailed with the compiler's first error when a unit is rejected, dies or takes over UNIT_TIMEOUT_S,
    or linking over LINK_TIMEOUT_S, another MachineError where the machine lacks space, memory or a place, Stopped
    within ASK_S of `stop` answering True.
    """
    with temporary_folder("tw-build-") as root:
        texts = zig.spelled_for(toolchain.system, {**headers, **sources})
        write_sources(root, texts)
        for name, content in (binaries or {}).items():
            (root / name).write_bytes(content)
        units = sorted(name for name in sources if name.endswith(".c"))
        kept: Objects = {} if objects is None or binaries else objects
        library = system_of(toolchain.system).library

        def compiled(unit: str) -> str:
            output = unit.removesuffix(".c") + ".o"
            compiler = (toolchain.identity(target), target.vector_floats, optimise)
            key = hashlib.sha256(repr((unit, _with_headers(unit, texts), compiler)).encode()).hexdigest()
            if key in kept:
                (root / output).write_bytes(kept[key])
            else:
                _compile(root, unit, output, target, toolchain, optimise, stop)
                kept[key] = (root / output).read_bytes()
            return output

        with ThreadPoolExecutor(max_workers=max(jobs, 1)) as pool:
            linked = list(pool.map(compiled, units))
        shared = WASM_SHARED_FLAGS if shares_memory(target) else ()
        mathematics = () if toolchain.system in zig.ALONE else ("-lm",)
        command = [*toolchain.command, *toolchain.linking, *shared, "-o", library, *linked, *mathematics]
        _run(command, root, "link", stop)
        return (root / library).read_bytes()


def compile_program(
    unit: str, texts: Mapping[str, str], target: Instructions, toolchain: Toolchain, libraries: Sequence[str] = ()
) -> bytes:
    """One `.c` of `texts`, compiled and linked to a program. Raises as `compile_library` does.

    Where libraries are linked without a C library (`zig.ALONE`), its first function is `mainCRTStartup`.
    """
    with temporary_folder("tw-build-") as root:
        write_sources(root, zig.spelled_for(toolchain.system, texts))
        _compile(root, unit, "program.o", target, toolchain, "-O1", never_stops)
        alone = (*zig.ALONE.get(toolchain.system, ()), *zig.STARTING.get(toolchain.system, ()))
        linking = ("-s", "-o", "program.exe", "program.o", *libraries, *(alone or ("-pthread",)))
        _run([*toolchain.command, *linking], root, "link", never_stops)
        return (root / "program.exe").read_bytes()


@contextlib.contextmanager
def temporary_folder(prefix: str) -> Iterator[Path]:
    """A folder that is removed; OSErrors of it, and of what is done in it, are raised as a MachineError."""
    try:
        with tempfile.TemporaryDirectory(prefix=prefix) as folder:
            yield Path(folder)
    except OSError as reason:
        if reason.errno is None and not os.statvfs(tempfile.gettempdir()).f_flag & os.ST_NOEXEC:
            raise  # the dynamic linker's, and not for want of a place that permits execution
        raise machine_error("the folder for temporary files cannot be used", reason) from reason


def write_sources(root: Path, sources: Mapping[str, str]) -> None:
    """Writes sources and the headers that they include."""
    for name, text in sources.items():
        (root / name).write_text(text)


def host_headers() -> dict[str, str]:
    """The hand-written headers of every program, by file name."""
    folder = files("compiler.codegen")
    return {name: (folder / name).read_text() for name in HEADERS}


def small_header(texts: Iterable[str]) -> dict[str, str]:
    """The header of small types by its file name, where one of the texts includes it."""
    if not any(SMALL_HEADER in INCLUDED.findall(text) for text in texts):
        return {}
    return {SMALL_HEADER: (files("compiler.codegen") / SMALL_HEADER).read_text()}


def _with_headers(unit: str, texts: Mapping[str, str]) -> dict[str, str]:
    """A unit and all of `texts` that it includes, by name; what an `#if` leaves out counts too."""
    found: dict[str, str] = {}
    wanted = [unit]
    while wanted:
        name = wanted.pop()
        if name in texts and name not in found:
            found[name] = texts[name]
            wanted += INCLUDED.findall(texts[name])
    return found


def _compile(
    root: Path, unit: str, output: str, target: Instructions, toolchain: Toolchain, optimise: str, stop: StopRequest
) -> None:
    lanes = f"-DTW_LANES={target.vector_floats}"
    places = (f"-ffile-prefix-map={root}=.",)
    level = optimise or (HOST_LEVEL if unit == HOST_UNIT else "")
    flags = (*toolchain.compiling, *toolchain.machine_flags(target), *places, lanes, *([level] if level else []))
    _run([*toolchain.command, *flags, "-c", unit, "-o", output], root, unit, stop)


_TROUBLE: tuple[tuple[re.Pattern[str], type[MachineError], str, str], ...] = (
    (
        re.compile(r"No space left on device|Disk quota exceeded"),
        DiskFull,
        "no disk space is left",
        "free some disk space, or let TMPDIR name a folder on another disk",
    ),
    (
        re.compile(
            rf"File too large|File size limit exceeded|^status (-{signal.SIGXFSZ}|{128 + signal.SIGXFSZ})$", re.M
        ),
        ResourceExhausted,
        "a file grew beyond the limit of this process",
        "raise the limit of a file's size: ulimit -f",
    ),
    (
        re.compile(
            r"Killed signal[^\n]*|signal 9[^\n]*|: Killed$|[Cc]annot allocate memory|out of memory|memory exhausted"
            r"|bad_alloc|^status (-9|137)$",
            re.M,
        ),
        ResourceExhausted,
        "it was killed, or got no memory",
        "free memory or give this process more, or compile with fewer jobs at a time",
    ),
    (
        re.compile(r"[Rr]esource temporarily unavailable|[Cc]annot fork"),
        ResourceExhausted,
        "no further process can be started",
        "raise the limit of processes: ulimit -u",
    ),
    (
        re.compile(r"[Cc]annot create temporary file[^\n]*|Read-only file system|Permission denied"),
        PlaceUnusable,
        "a folder cannot be used",
        "let TMPDIR name a folder that can be written and permits execution",
    ),
)
"""By what a C compiler, its linker or its exit status says: whose trouble it is that is not the code's."""


def _run(command: Sequence[str], root: Path, what: str, stop: StopRequest) -> None:
    status, said = _watched(command, root, what, stop)
    if status and "internal compiler error" in said:
        status, said = _watched(command, root, what, stop)  # on a machine short of memory most do not come twice
    if status:
        for pattern, error, message, fix in _TROUBLE:
            if found := pattern.search(f"{said}\nstatus {status}\n"):
                raise error(f"the C compiler failed at {what}: {message} ({found[0].strip()})", fix=fix)
        errors = [line for line in said.splitlines() if "error" in line] or said.splitlines()[-3:]
        raise ToolchainFailed(
            f"the C compiler rejected {what} (exit {status}): {' | '.join(errors[:3])[:600]}",
            fix="install a current gcc (10 or newer); with one, report this model: it is our fault",
        )


def _watched(command: Sequence[str], root: Path, what: str, stop: StopRequest) -> tuple[int, str]:
    """Exit status and standard error of a process that leads a group: what a compiler's driver starts ends with it."""
    if stop():
        raise Stopped
    limit = LINK_TIMEOUT_S if what == "link" else UNIT_TIMEOUT_S
    end = time.monotonic() + limit
    try:
        process = subprocess.Popen(
            command,
            cwd=root,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            process_group=0,
        )
    except OSError as reason:
        raise machine_error(f"{command[0]} cannot be started", reason) from reason
    with process:
        try:
            while True:
                try:
                    _, said = process.communicate(timeout=limit if stop is never_stops else ASK_S)
                    return process.returncode, said
                except subprocess.TimeoutExpired:
                    if time.monotonic() >= end:
                        raise ToolchainFailed(
                            f"compiling {what} took over {limit} s", fix="report this model: it is our fault"
                        ) from None
                    if stop():
                        raise Stopped from None
        except BaseException:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            raise


def environment_compiler(environment: Mapping[str, str]) -> str:
    """The user's choice of C compiler."""
    return environment.get("CC", "")

"""Finds the C compiler and turns sources into one shared library, the same bytes for the same sources and compiler."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from pathlib import Path

from compiler.errors import ToolchainFailed, ToolchainMissing
from compiler.targets.cpu import CpuTarget

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
LINK_FLAGS = ("-shared", "-Wl,--build-id=none", "-Wl,-z,noexecstack", "-pthread")
UNIT_TIMEOUT_S = 300
HEADERS = ("tw_kernel.h", "tw_runtime.h", "model.h")


@dataclass(frozen=True)
class Toolchain:
    """A C compiler by path, and what it says of itself."""

    path: str
    version: str

    def identity(self, target: CpuTarget) -> str:
        """Compiler and flags as one line: equal identities give equal code."""
        return f"{self.version}; {' '.join((*COMPILE_FLAGS, *target.flags, *LINK_FLAGS))}"


@lru_cache(maxsize=4)
def find_toolchain(preferred: str = "") -> Toolchain:
    """`preferred` (the user's $CC) if given, else the first C compiler on the PATH. Raises ToolchainMissing."""
    for name in (preferred,) if preferred else CANDIDATES:
        path = shutil.which(name)
        if path:
            said = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=30, check=False)
            if said.returncode == 0 and said.stdout:
                return Toolchain(path, said.stdout.splitlines()[0].strip())
    wanted = preferred or ", ".join(CANDIDATES)
    raise ToolchainMissing(
        f"no C compiler found (looked for {wanted})", fix="install gcc (Debian: apt-get install gcc libc6-dev)"
    )


def build_library(
    sources: Mapping[str, str], target: CpuTarget, toolchain: Toolchain, jobs: int = 2, optimise: str = ""
) -> bytes:
    """Compiles every `.c` of `sources` and links them; other files are headers beside them.

    `optimise` (`-O1`) replaces the level of COMPILE_FLAGS, for code that is to be judged and not to be fast.

    Raises ToolchainFailed with the compiler's first error when a unit is rejected, dies or takes over UNIT_TIMEOUT_S.
    """
    with tempfile.TemporaryDirectory(prefix="tw-build-") as folder:
        root = Path(folder)
        write_sources(root, sources)
        units = sorted(name for name in sources if name.endswith(".c"))
        with ThreadPoolExecutor(max_workers=max(jobs, 1)) as pool:
            objects = list(pool.map(lambda unit: _compile(root, unit, target, toolchain, optimise), units))
        _run([toolchain.path, *LINK_FLAGS, "-o", "library.so", *objects, "-lm"], root, "link")
        return (root / "library.so").read_bytes()


def write_sources(root: Path, sources: Mapping[str, str]) -> None:
    """Writes sources and the headers that generated code includes."""
    for name, text in {**runtime_headers(), **sources}.items():
        (root / name).write_text(text)


def runtime_headers() -> dict[str, str]:
    """The hand-written headers, by file name."""
    folder = files("compiler.codegen")
    return {name: (folder / name).read_text() for name in HEADERS}


def _compile(root: Path, unit: str, target: CpuTarget, toolchain: Toolchain, optimise: str) -> str:
    output = unit.removesuffix(".c") + ".o"
    lanes = f"-DTW_LANES={target.vector_floats}"
    places = (f"-ffile-prefix-map={root}=.",)
    flags = (*COMPILE_FLAGS, *target.flags, *places, lanes, *([optimise] if optimise else []))
    _run([toolchain.path, *flags, "-c", unit, "-o", output], root, unit)
    return output


def _run(command: Sequence[str], root: Path, what: str) -> None:
    try:
        done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=UNIT_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        raise ToolchainFailed(
            f"compiling {what} took over {UNIT_TIMEOUT_S} s", fix="report this model: it is our fault"
        ) from None
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if "error" in line] or done.stderr.splitlines()[-3:]
        raise ToolchainFailed(
            f"the C compiler rejected {what} (exit {done.returncode}): {' | '.join(errors[:3])[:600]}",
            fix="install a current gcc (10 or newer); with one, report this model: it is our fault",
        )

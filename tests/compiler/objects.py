"""Object files of generated C, kept for other tests: the same sources are compiled by many."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from compiler.codegen import build
from compiler.codegen.build import Toolchain
from compiler.devices.cpu.target import CpuTarget
from compiler.trace import Hurry
from tests.kept import kept

READS_FILES = (".incbin", "#embed")
"""What makes an object file depend on more than the sources."""


def keep_objects(patch: pytest.MonkeyPatch) -> None:
    """Let each compilation in this process take the object file of an equal one before it.

    Equal are sources, headers, flags and compiler.
    """
    once = build._compile

    def compiled(
        root: Path, unit: str, output: str, target: CpuTarget, toolchain: Toolchain, optimise: str, stop: Hurry
    ) -> None:
        texts = {path.name: path.read_text() for path in root.iterdir() if path.suffix in (".c", ".h")}
        sources = build._with_headers(unit, texts)
        if any(word in text for text in sources.values() for word in READS_FILES):
            return once(root, unit, output, target, toolchain, optimise, stop)

        def make(path: Path) -> None:
            once(root, unit, output, target, toolchain, optimise, stop)
            shutil.copy(root / output, path)

        compiler = (toolchain.path, toolchain.identity(target), target.vector_floats, optimise)
        shutil.copy(kept(repr((unit, sources, compiler)), ".o", make), root / output)
        return None

    patch.setattr(build, "_compile", compiled)

"""llvm-mca: what LLVM's scheduling model of a core says that a turn of a loop takes."""

from __future__ import annotations

import re
import shutil
import subprocess
from functools import cache

from bench.arm.loops import Loop

ITERATIONS = 200
FIRST_VERSION = 17
"""Of LLVM, with a model of Neoverse N1; older ones take it, and Cortex-A76 still, for a Cortex-A57."""
LAST_VERSION = 30
MODELS = {"cpu:cortex-a76": "neoverse-n1", "cpu:neoverse-n1": "neoverse-n1", "cpu:neoverse-v1": "neoverse-v1"}
"""The model for a target: Cortex-A76 is the core that Neoverse N1 was made from, and has no model of its own."""


@cache
def llvm_mca() -> tuple[str, int] | None:
    """Path and version of the newest one that has the models; None where there is none."""
    names = [f"llvm-mca-{version}" for version in range(LAST_VERSION, FIRST_VERSION - 1, -1)]
    for name in (*names, "llvm-mca"):
        path = shutil.which(name)
        if path:
            said = subprocess.run([path, "--version"], capture_output=True, text=True, check=False).stdout
            version = re.search(r"LLVM version (\d+)", said)
            if version and int(version[1]) >= FIRST_VERSION and "aarch64" in said:
                return path, int(version[1])
    return None


def cycles_of(loop: Loop, target: str) -> float | None:
    """Of a turn, in the long run; None where nothing says it."""
    found, core = llvm_mca(), MODELS.get(target)
    if found is None or core is None:
        return None
    text = "\n".join(line for line in loop.lines if not line.lstrip().startswith(("#", "//", ".")))
    command = [
        found[0],
        "-mtriple=aarch64",
        f"-mcpu={core}",
        "-mattr=+dotprod,+i8mm,+bf16",
        "-iterations",
        str(ITERATIONS),
    ]
    said = subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout
    total = re.search(r"Total Cycles:\s+(\d+)", said)
    assert total is not None, said
    return int(total[1]) / ITERATIONS

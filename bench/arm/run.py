"""Inner loops of kernels for ARM CPUs, as compiled: instructions, and cycles by LLVM's model beside the core's peak.

Nothing is run and nothing is timed: the peak is that of the core's vector multiplication units.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench import report
from bench.arm.cycles import cycles_of, llvm_mca
from bench.arm.kernels import JUDGED, Judged
from bench.arm.loops import Loop, busiest, loops_of
from compiler.codegen.build import COMPILE_FLAGS, Toolchain, find_toolchain, write_sources
from compiler.devices.cpu.emit.library import runtime_headers
from compiler.devices.cpu.emit.lower import lower
from compiler.devices.cpu.target import CpuTarget, resolve
from compiler.errors import ToolchainMissing

UNITS = {"cpu:neoverse-v1": 4}
"""Vector units that multiply; 2 of any other core that is judged."""
HEAD = (
    "| kernel | target | algorithm | register tile | instructions | products | loads | spills | peak, cycles "
    "| model, cycles | of the peak |\n|---|---|---|---|---|---|---|---|---|---|---|"
)


def main(arguments: list[str]) -> int:
    """Exit status 0; 1 without a compiler for ARM; 2 for wrong arguments."""
    parser = argparse.ArgumentParser(prog="python -m bench arm", description=__doc__)
    parser.add_argument("--markdown", type=Path, metavar="PATH", help="append the table there too")
    given = parser.parse_args(arguments)
    try:
        toolchain = find_toolchain(machine="aarch64")
    except ToolchainMissing as missing:
        print(missing)
        return 1
    found = llvm_mca()
    by = f"llvm-mca {found[1]}" if found else "no llvm-mca from LLVM 17 on is installed: no cycles"
    lines = [HEAD, *(_row(judged, toolchain) for judged in JUDGED)]
    text = "\n".join([*lines, "", f"{toolchain.version}; {by}.", ""])
    print(text)
    if given.markdown:
        report.Section("arm", arguments, ()).append(given.markdown, text)
    return 0


def _row(judged: Judged, toolchain: Toolchain) -> str:
    target = resolve(judged.target)
    workload, tile = judged.tiled(target)
    lowered = lower("k0_judged", workload, tile, target)
    loop = busiest(list(loops_of(assembly(lowered.text, target, toolchain))))
    register = next((f"{level}" for level in tile.levels if level.name == "register"), str(tile.levels[0]))
    least, modelled = loop.least_cycles(UNITS.get(judged.target, 2)), cycles_of(loop, judged.target)
    return " | ".join(
        [
            f"| {judged.name}",
            judged.target,
            judged.algorithm,
            register,
            *_counts(loop),
            f"{least:.1f}",
            "" if modelled is None else f"{modelled:.1f}",
            "|" if modelled is None else f"{least / modelled:.0%} |",
        ]
    )


def _counts(loop: Loop) -> Sequence[str]:
    return [str(count) for count in (loop.instructions, loop.products, loop.loads, loop.spills)]


def assembly(text: str, target: CpuTarget, toolchain: Toolchain) -> str:
    """A kernel's C as the compiler's assembly text, with the flags of artifacts."""
    with tempfile.TemporaryDirectory(prefix="tw-asm-") as folder:
        root = Path(folder)
        write_sources(root, {**runtime_headers((text,)), "kernel.c": f'#include "tw_kernel.h"\n{text}'})
        lanes = f"-DTW_LANES={target.vector_floats}"
        command = [*toolchain.command, *COMPILE_FLAGS, *target.flags, lanes, "-S", "kernel.c", "-o", "kernel.s"]
        subprocess.run(command, cwd=root, check=True)
        return (root / "kernel.s").read_text()

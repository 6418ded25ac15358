"""Inner loops found and counted, in a text written here and in what is compiled for a core."""

from __future__ import annotations

import pytest

from bench.arm.cycles import cycles_of, llvm_mca
from bench.arm.kernels import JUDGED
from bench.arm.loops import Loop, busiest, loops_of
from bench.arm.run import assembly
from compiler.codegen.build import find_toolchain
from compiler.devices.cpu.emit.lower import lower
from compiler.devices.cpu.target import resolve
from compiler.errors import ToolchainMissing

TILE = [
    ".L3:",
    "\tldp\tq0, q1, [x1], 32",
    "\tldr\ts2, [x0]",
    *(f"\tfmla\tv{at}.4s, v0.4s, v2.s[0]" for at in range(16, 28)),
    "\tadd\tx0, x0, 4",
    "\tcmp\tx0, x3",
    "\tbne\t.L3",
]
SPILLED = [".L4:", "\tldr\tq7, [sp, 16]", *TILE[1:-1], "\tstr\tq7, [sp, 16]", "\tbne\t.L4"]
CALLS = [".L5:", *TILE[1:-1], "\tbl\texpf", "\tcbnz\tw2, .L5"]
TRANSFORM = [".L6:", *TILE[1:-1], "\tfadd\tv1.4s, v2.4s, v3.4s", "\tb.ne\t.L6"]
OUTER = [".L1:", "\tmov\tx1, x2", *TILE, "\tsubs\tx4, x4, 1", "\tbne\t.L1"]


def test_inner_loops_are_those_without_loops_and_calls() -> None:
    text = "\n".join([*OUTER, *SPILLED, *CALLS, *TRANSFORM])
    assert [loop.lines[0] for loop in loops_of(text)] == [".L3:", ".L4:", ".L6:"]


def test_a_register_tile_is_chosen_before_what_does_more_besides() -> None:
    loops = list(loops_of("\n".join([*SPILLED, *TRANSFORM, *OUTER])))
    tile = busiest(loops)
    assert tile.lines == tuple(TILE)
    assert (tile.instructions, tile.products, tile.loads, tile.spills) == (17, 48, 2, 0)
    assert [loop.spills for loop in loops] == [2, 0, 0]
    with pytest.raises(ValueError, match="no loop"):
        busiest([Loop((".L9:", "\tb\t.L9"))])


def test_multiplications_that_widen_have_half_as_many_units() -> None:
    assert Loop(tuple(TILE)).least_cycles(2) == 6
    widening = Loop(tuple(line.replace("fmla", "smlal") for line in TILE))
    assert (widening.products, widening.least_cycles(2), widening.least_cycles(4)) == (48, 12, 6)


@pytest.mark.parametrize("at", [0, 5], ids=lambda at: JUDGED[at].algorithm)
def test_sums_of_a_register_tile_stay_in_registers_and_near_the_peak(at: int) -> None:
    judged = JUDGED[at]
    try:
        toolchain = find_toolchain(machine="aarch64")
    except ToolchainMissing as missing:
        pytest.skip(str(missing))
    target = resolve(judged.target)
    lowered = lower("k0_judged", *judged.tiled(target), target)
    loop = busiest(list(loops_of(assembly(lowered.text, target, toolchain))))
    assert loop.spills == 0
    assert loop.instructions < 2 * loop.least_cycles(1)
    if llvm_mca():
        cycles = cycles_of(loop, judged.target)
        assert cycles is not None
        assert loop.least_cycles(2) > 0.9 * cycles

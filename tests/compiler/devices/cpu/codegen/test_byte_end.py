"""Maps that end in bytes: which functions of a byte become tables, and that kernels with them give the same bits."""

from __future__ import annotations

import numpy as np
import pytest

from compiler.devices.cpu.algorithms.integer import integer_tiles
from compiler.devices.cpu.codegen.byte_end import ByteEnd, byte_end
from compiler.devices.cpu.emit.lower import lower
from compiler.devices.cpu.target import PROFILES, CpuTarget, resolve, runs_here
from compiler.ir.buffers import Buffer
from compiler.ir.expr import Load
from compiler.ir.kernel import Kernel
from compiler.ir.tensor import DType
from tests.compiler.devices.cpu.library import Case, check
from tests.parse import parse_kernel

HERE = [profile.name for profile in PROFILES if runs_here(profile)]
WIDE = [one for one in PROFILES if one.vector_floats == 16 and one.picks_from(64, 1)]

PRODUCT = """
kernel Products(in x: u8[{m}, 8], in w: i8[8, {n}], in table: u8[256]; temp s: i32[{m}, {n}], temp q: {byte}[{m}, {n}],
    temp r: f32[{m}, {n}]; out y: {out}[{m}, {n}])
  for m:{m}, n:{n}
    s[m, n] = sum<i32> k:8 . mul(cast(x[m, k]):i32, cast(w[k, n]):i32)
    q[m, n] = saturate(add(round(mul(cast(s[m, n]):f32, 0.01:f32)), cast({zero}:{byte}):f32)):{byte}
    r[m, n] = {real}
    y[m, n] = {result}
"""
STEP = "mul(sub(cast(q[m, n]):f32, cast({zero}:{byte}):f32), 0.03:f32)"
BEND = "where(lt(r[m, n], 0.0:f32), mul(r[m, n], 0.1:f32), r[m, n])"
AGAIN = "saturate(add(round(div({bend}, 0.021:f32)), cast(7:{out}):f32)):{out}"


def kernel(byte: str = "u8", out: str = "u8", m: int = 11, n: int = 32, real: str = STEP, bend: str = BEND) -> Kernel:
    """A product of bytes, rounded, bent, and rounded again."""
    names = {"byte": byte, "out": out, "zero": 120 if byte == "u8" else -3}
    result = AGAIN.format(bend=bend, **names)
    return parse_kernel(PRODUCT.format(m=m, n=n, real=real.format(**names), result=result, **names))


def end_of(made: Kernel, *, tables: bool = True, kept: tuple[str, ...] = ("y",)) -> ByteEnd | None:
    return byte_end(made.blocks[1:], frozenset(kept), tables=tables)


@pytest.mark.parametrize(("byte", "out"), [("u8", "u8"), ("i8", "u8"), ("u8", "i8"), ("i8", "i8")])
def test_what_follows_a_byte_is_a_table_of_it(byte: str, out: str) -> None:
    end = end_of(kernel(byte, out))
    assert end is not None
    assert (end.dtype, end.result, len(end.maps)) == (DType(byte), DType(out), 0)
    bytes_ = np.arange(256) + (0 if byte == "u8" else -128)
    real = (bytes_ - end.zero).astype(np.float32) * np.float32(0.03)
    bent = np.where(real < 0, real * np.float32(0.1), real)
    limits = np.iinfo(DType(out).numpy)
    wanted = np.clip(np.rint(bent / np.float32(0.021)) + 7, limits.min, limits.max)
    assert isinstance(end.table, np.ndarray)
    assert np.array_equal(end.table, wanted)


def test_without_tables_the_last_rounding_alone_is_told() -> None:
    end = end_of(kernel(), tables=False)
    assert end is not None
    assert (end.table, end.zero, len(end.maps)) == (None, 7, 2)


def test_a_byte_that_is_stored_or_met_by_something_else_becomes_no_table() -> None:
    for made, kept in (
        (kernel(), ("y", "q")),
        (kernel(real=f"add({STEP}, cast(x[m, 0]):f32)"), ("y",)),
        (kernel(real=f"exp({STEP})"), ("y",)),
    ):
        end = end_of(made, kept=kept)
        assert end is not None
        assert end.table is None


def test_floats_that_are_stored_end_in_no_bytes() -> None:
    assert end_of(kernel(), kept=()) is None
    assert byte_end(kernel().blocks[1:3], frozenset(["r"]), tables=True) is None


@pytest.mark.parametrize("name", HERE)
def test_kernels_with_tables_give_the_bits_of_their_definition(name: str) -> None:
    target = resolve(name)
    random = np.random.default_rng(3)
    cases = []
    for byte, out, m, n in (("u8", "u8", 11, 32), ("i8", "u8", 9, 16), ("u8", "i8", 6, 40), ("i8", "i8", 23, 16)):
        made = kernel(byte, out, m, n)
        x = random.integers(0, 256, (m, 8)).astype(np.uint8)
        w = random.integers(-128, 128, (8, n)).astype(np.int8)
        table = random.integers(0, 256, 256).astype(np.uint8)
        cases.append(case_of(made, (x, w, table), target))
        if m == 9:
            looked_up = x, random.integers(-128, 128, (8, 32)).astype(np.int8), table
            cases.append(case_of(parse_kernel(LOOKED_UP), looked_up, target))
    check(cases, target, "-O1")


def case_of(made: Kernel, given: tuple[np.ndarray, ...], target: CpuTarget) -> Case:
    slots = (*made.inputs, *made.outputs)
    buffers = tuple(Buffer.whole(at, slot.type) for at, slot in enumerate(slots))
    case = Case(made, buffers, given, constant=(1, 2))
    tile = integer_tiles(case.workload, target, 1)[0].tile
    return Case(made, buffers, given, constant=(1, 2), tile=tile)


LOOKED_UP = """
kernel Products(in x: u8[9, 8], in w: i8[8, 32], in table: u8[256]; temp s: i32[9, 32], temp q: u8[9, 32];
    out y: u8[9, 32])
  for m:9, n:32
    s[m, n] = sum<i32> k:8 . mul(cast(x[m, k]):i32, cast(w[k, n]):i32)
    q[m, n] = saturate(add(round(mul(cast(s[m, n]):f32, 0.01:f32)), cast(0:u8):f32)):u8
    y[m, n] = table[[cast(q[m, n]):i64 in 0..255]]
"""


@pytest.mark.parametrize("profile", WIDE, ids=lambda profile: profile.name)
def test_rows_are_looked_up_together_where_bytes_are_picked(profile: CpuTarget) -> None:
    random = np.random.default_rng(5)
    made = kernel()
    given = (random.integers(0, 256, (11, 8)).astype(np.uint8), np.ones((8, 32), np.int8), np.zeros(256, np.uint8))
    case = case_of(made, given, profile)
    text = lower("k0_product", case.workload, case.tile, profile).text
    assert "static const uint8_t k0_product_table[]" in text
    assert "tw_quantised_rows_u8(to, real, 120, 0, k0_product_table)" in text


def test_a_table_in_memory_is_found_where_it_lies() -> None:
    end = end_of(parse_kernel(LOOKED_UP))
    assert end is not None
    assert isinstance(end.table, Load)
    assert end.table.slot == "table"

"""Loads, stores, atomic operations, local memory and calls."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ptx.kernel import DECLARED, HEAD, each, run
from tests.ptx.machine import Machine


def test_loads_extend_by_sign_or_by_zeros_and_stores_cut() -> None:
    x = np.array([0x80, 0x7F, 0xFF, 1] * 8, np.uint8)
    body = """
    cvt.u64.u32 %at, %tid;
    add.s64 %d0, %in0, %at;
    ld.global.s8 %r0, [%d0];
    ld.global.u8 %r1, [%d0];
    shl.b32 %r1, %r1, 8;
    add.s32 %r0, %r0, %r1;
    mad.wide.u32 %at, %tid, 4, %out;
    st.global.u32 [%at], %r0;"""
    found = run(body, [x], np.zeros(32, np.uint32))
    assert found.view(np.int32).tolist() == [(int(one) ^ 128) - 128 + 256 * int(one) for one in x]


def test_vectors_go_through_shared_memory_by_generic_addresses() -> None:
    x = np.random.default_rng(2).integers(0, 1 << 32, (32, 4), dtype=np.uint32)
    body = """
    mad.wide.u32 %at, %tid, 16, %in0;
    ld.global.v4.b32 {%r0, %r1, %r2, %r3}, [%at];
    mov.u64 %d0, memory;
    cvta.shared.u64 %d0, %d0;
    mad.wide.u32 %d1, %tid, 16, %d0;
    st.v2.b32 [%d1], {%r0, %r1};
    st.v2.b32 [%d1+8], {%r2, %r3};
    ld.v4.b32 {%r4, %r5, %r6, %r7}, [%d1];
    mad.wide.u32 %at, %tid, 16, %out;
    st.global.v4.b32 [%at], {%r7, %r6, %r5, %r4};"""
    found = run(body, [x], np.zeros((32, 4), np.uint32), shared=".shared .align 16 .b8 memory[512];")
    np.testing.assert_array_equal(found, x[:, ::-1])


@pytest.mark.parametrize(
    ("name", "kind", "expected"),
    [
        ("add", "u32", 1000 + sum(range(32))),
        ("max", "s32", 1000),
        ("min", "s32", 0),
        ("and", "b32", 0),
        ("or", "b32", 1023),
        ("exch", "b32", 31),
        ("inc", "u32", 31),
    ],
)
def test_atomic_operations_of_threads_come_one_after_another(name: str, kind: str, expected: int) -> None:
    body = f"mul.lo.u32 %r2, %tid, 1; atom.global.{name}.{kind} %r0, [%out], %r2;"
    assert run(body, [], np.array([1000], np.uint32))[0] == expected


def test_what_was_there_before_is_returned_and_compared() -> None:
    body = """
    atom.global.add.u32 %r0, [%out], 1;
    mad.wide.u32 %at, %r0, 4, %out;
    st.global.u32 [%at+4], %r0;
    atom.global.cas.b32 %r1, [%out], 32, 77;"""
    assert run(body, [], np.zeros(33, np.uint32)).tolist() == [77, *range(32)]


def test_a_thread_has_local_memory_of_its_own_and_functions_return_what_they_compute() -> None:
    text = f"""{HEAD}
    .func (.param .b32 result) twice(.param .b32 given)
    {{
    .reg .b32 %r<3>;
    ld.param.b32 %r0, [given];
    .reg .pred %p;
    setp.lt.u32 %p, %r0, 60;
    add.u32 %r1, %r0, %r0;
    st.param.b32 [result+0], %r1;
    @%p ret;
    mov.b32 %r1, 1;
    st.param.b32 [result+0], %r1;
    ret;
    }}
    .visible .entry k(.param .u64 p0)
    {{
    .local .align 8 .b8 depot[16];
    {DECLARED}
    ld.param.u64 %out, [p0];
    mov.u32 %tid, %tid.x;
    mov.u64 %d0, depot;
    cvta.local.u64 %d1, %d0;
    st.u32 [%d1+4], %tid;
    ld.local.u32 %r4, [%d0+4];
    add.u32 %r4, %r4, 40;
    {{
    .param .b32 argument;
    .param .b32 back;
    st.param.b32 [argument+0], %r4;
    call.uni (back), twice, (argument);
    ld.param.b32 %r5, [back+0];
    }}
    mad.wide.u32 %at, %tid, 4, %out;
    st.global.u32 [%at], %r5;
    ret;
    }}"""
    machine = Machine(text)
    out = machine.memory.allocate(128)
    machine.launch("k", [1], [32], [out.to_bytes(8, "little")])
    found = machine.memory.get(out, 128).view(np.uint32)
    assert found.tolist() == [2 * (at + 40) if at < 20 else 1 for at in range(32)]


def test_threads_that_part_meet_again_and_loops_run_as_often_as_each_thread_asks() -> None:
    code = """mov.b32 %r9, 0; mov.b32 %r1, 0;
    LOOP: setp.ge.u32 %p0, %r1, %r0; @%p0 bra DONE;
    add.u32 %r9, %r9, %r1; add.u32 %r1, %r1, 1; bra LOOP;
    DONE: add.u32 %r9, %r9, 5;"""
    counts = np.arange(64, dtype=np.uint32) % 11
    assert each(code, counts).tolist() == [int(count) * (int(count) - 1) // 2 + 5 for count in counts]


def test_a_table_of_labels() -> None:
    code = """brx.idx %r0, TABLE;
    TABLE: .branchtargets ONE, TWO;
    ONE: mov.b32 %r9, 10; bra DONE;
    TWO: mov.b32 %r9, 20;
    DONE:"""
    assert each(code, np.array([0, 1, 1, 0] * 8, np.uint32)).tolist() == [10, 20, 20, 10] * 8

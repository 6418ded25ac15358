"""Copies that land when somebody waits for them."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ptx.copies import TensorMap, swizzled
from tests.ptx.fault import Fault
from tests.ptx.kernel import DECLARED, HEAD, run
from tests.ptx.machine import Machine
from tests.ptx.memory import GLOBAL

SHARED = ".shared .align 1024 .b8 memory[2048]; .shared .align 8 .b64 gate;"


def copied(wait: str, *, races: bool = True) -> np.ndarray:
    """16 bytes of each thread, of which thread t reads t % 17; another thread stores them."""
    x = np.random.default_rng(3).integers(1, 255, 512).astype(np.uint8)
    body = f"""
    mov.u32 %r0, memory;
    mad.lo.u32 %r1, %tid, 16, %r0;
    mad.wide.u32 %at, %tid, 16, %in0;
    rem.u32 %r2, %tid, 17;
    cp.async.cg.shared.global [%r1], [%at], 16, %r2;
    cp.async.commit_group;
    cp.async.cg.shared.global [%r1+512], [%at], 16;
    cp.async.commit_group;
    {wait}
    xor.b32 %r1, %tid, 1;
    mad.lo.u32 %r1, %r1, 16, %r0;
    ld.shared.v4.b32 {{%r4, %r5, %r6, %r7}}, [%r1];
    mad.wide.u32 %at, %tid, 16, %out;
    st.global.v4.b32 [%at], {{%r4, %r5, %r6, %r7}};"""
    found = run(body, [x], np.zeros((32, 16), np.uint8), shared=SHARED, races=races)
    expected = x.reshape(32, 16).copy()
    for at in range(32):
        expected[at, at % 17 :] = 0
    if races:
        np.testing.assert_array_equal(found, expected[np.arange(32) ^ 1])
    return found


def test_cp_async_reads_what_it_is_asked_to_and_fills_the_rest_with_zeros() -> None:
    copied("cp.async.wait_group 1; bar.warp.sync -1;")
    copied("cp.async.wait_all; bar.warp.sync -1;")


@pytest.mark.parametrize(
    "wait", ["bar.warp.sync -1;", "cp.async.wait_group 2; bar.warp.sync -1;", "cp.async.wait_group 1;"]
)
def test_a_copy_that_nobody_has_waited_for_is_a_race(wait: str) -> None:
    with pytest.raises(Fault) as caught:
        copied(wait)
    assert caught.value.kind == "race"


def test_without_the_check_a_copy_lands_as_late_as_it_may() -> None:
    assert (copied("bar.warp.sync -1;", races=False) == 0xFF).all()


def by_mbarrier(expected: int, wait: str) -> np.ndarray:
    """256 bytes by the bulk engine, counted at an mbarrier."""
    x = np.random.default_rng(7).integers(0, 255, 256).astype(np.uint8)
    body = f"""
    mov.u32 %r0, memory;
    mov.u32 %r1, gate;
    setp.eq.u32 %p0, %tid, 0;
    @%p0 mbarrier.init.shared.b64 [%r1], 1;
    bar.sync 0;
    @!%p0 bra WAIT;
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], {expected};
    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r0], [%in0], 256, [%r1];
    WAIT: {wait}
    mad.lo.u32 %r2, %tid, 4, %r0;
    ld.shared.b32 %r4, [%r2];
    mad.wide.u32 %at, %tid, 4, %out;
    st.global.b32 [%at], %r4;"""
    found = run(body, [x], np.zeros(256, np.uint8), threads=64, shared=SHARED)
    np.testing.assert_array_equal(found, x)
    return found


WAITING = "mbarrier.try_wait.parity.shared.b64 %p1, [%r1], 0; @!%p1 bra WAIT;"


def test_a_bulk_copy_is_there_when_its_bytes_are_counted() -> None:
    by_mbarrier(256, WAITING)


def test_bytes_that_do_not_come_are_a_deadlock() -> None:
    with pytest.raises(Fault, match="deadlock"):
        by_mbarrier(272, WAITING)


def test_a_bulk_copy_that_is_read_too_early_is_a_race() -> None:
    with pytest.raises(Fault, match="race"):
        by_mbarrier(256, "bar.sync 0;")


@pytest.mark.parametrize("width", [0, 32, 64, 128])
def test_boxes_of_tensors_lie_swizzled_and_zero_beyond_the_tensor(width: int) -> None:
    x = np.arange(1, 12 * 40 + 1, dtype=np.uint16).reshape(12, 40)
    columns = (width or 32) // 2
    box, corner = (columns, 8), (40 - columns // 2, 7)
    text = f"""{HEAD}{SHARED}
    .visible .entry k(.param .align 64 .b8 tensor[128], .param .u64 p0)
    {{
    {DECLARED}
    ld.param.u64 %out, [p0];
    mov.u32 %tid, %tid.x;
    mov.b64 %d0, tensor;
    cvta.param.u64 %d0, %d0;
    mov.u32 %r0, memory;
    mov.u32 %r1, gate;
    setp.eq.u32 %p0, %tid, 0;
    @%p0 mbarrier.init.shared.b64 [%r1], 1;
    bar.sync 0;
    @!%p0 bra WAIT;
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], {16 * columns};
    cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes
        [%r0], [%d0, {{{corner[0]}, {corner[1]}}}], [%r1];
    WAIT: {WAITING}
    mad.lo.u32 %r2, %tid, 2, %r0;
    ld.shared.b16 %h1, [%r2];
    mad.wide.u32 %at, %tid, 2, %out;
    st.global.b16 [%at], %h1;
    ret;
    }}"""
    machine = Machine(text)
    address = machine.memory.allocate(x.nbytes)
    machine.memory.put(address, np.frombuffer(x.tobytes(), np.uint8))
    name = (1).to_bytes(8, "little")
    machine.maps[name] = TensorMap(address, 2, (40, 12), (80,), box, width)
    count = columns * 8
    out = machine.memory.allocate(2 * count)
    machine.launch("k", [1], [count], [name + bytes(120), out.to_bytes(8, "little")])
    found = machine.memory.get(out, 2 * count)
    expected = np.zeros((8, columns), np.uint16)
    expected[:5, : columns // 2] = x[7:, 40 - columns // 2 :]
    np.testing.assert_array_equal(found[swizzled(np.arange(2 * count), width)], expected.reshape(-1).view(np.uint8))
    assert address >= GLOBAL

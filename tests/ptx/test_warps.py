"""What threads of a warp and of a block do together, beside the manual's definitions."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ptx.kernel import each, run

LANES = np.arange(32, dtype=np.uint32)
VALUES = LANES * 3 + 100


@pytest.mark.parametrize(
    ("code", "source"),
    [
        ("shfl.sync.up.b32 %r9|%p1, %r0, 5, 0, -1;", [lane - 5 if lane >= 5 else lane for lane in range(32)]),
        ("shfl.sync.down.b32 %r9|%p1, %r0, 3, 31, -1;", [lane + 3 if lane < 29 else lane for lane in range(32)]),
        ("shfl.sync.bfly.b32 %r9|%p1, %r0, 9, 31, -1;", [lane ^ 9 for lane in range(32)]),
        ("shfl.sync.idx.b32 %r9|%p1, %r0, 7, 31, -1;", [7] * 32),
        # Segments of 8 lanes: c is (32 - 8) << 8, and 31 for what clamps above.
        ("shfl.sync.up.b32 %r9|%p1, %r0, 2, 0x1800, -1;", [lane - 2 if lane % 8 >= 2 else lane for lane in range(32)]),
        ("shfl.sync.down.b32 %r9|%p1, %r0, 2, 0x181f, -1;", [lane + 2 if lane % 8 < 6 else lane for lane in range(32)]),
        ("shfl.sync.idx.b32 %r9|%p1, %r0, 3, 0x181f, -1;", [lane // 8 * 8 + 3 for lane in range(32)]),
    ],
)  # fmt: skip
def test_shuffles(code: str, source: list[int]) -> None:
    found = each(f"{code} selp.b32 %r8, 0x10000, 0, %p1; add.s32 %r9, %r9, %r8;", VALUES)
    np.testing.assert_array_equal(found & 0xFFFF, VALUES[source])
    moved = np.array(source) != LANES
    assert (found[moved] >> 16 == 1).all()  # the predicate: the source lies in the segment


def test_votes_matches_and_reductions() -> None:
    values = np.array([lane % 5 for lane in range(32)], np.uint32)
    expected = sum(1 << lane for lane in range(32) if lane % 5 == 2)
    found = each("setp.eq.s32 %p0, %r0, 2; vote.sync.ballot.b32 %r9, %p0, -1;", values)
    assert (found == expected).all()
    masks = [sum(1 << other for other in range(32) if other % 5 == lane % 5) for lane in range(32)]
    assert each("match.any.sync.b32 %r9, %r0, -1;", values).tolist() == masks
    assert (each("match.all.sync.b32 %r9|%p0, %r0, -1;", values) == 0).all()
    for name, wanted in (("add", values.sum()), ("max", 4), ("xor", np.bitwise_xor.reduce(values))):
        kind = "b32" if name == "xor" else "s32"
        assert (each(f"redux.sync.{name}.{kind} %r9, %r0, -1;", values) == wanted).all()
    code = "setp.ne.s32 %p0, %r0, 9; vote.sync.all.pred %p1, %p0, -1; vote.sync.any.pred %p2, !%p0, -1;"
    assert (each(f"{code} selp.b32 %r9, 1, 0, %p1; @%p2 mov.b32 %r9, 7;", values) == 1).all()


def test_lanes_of_a_mask_do_something_together_while_others_do_not() -> None:
    code = """setp.lt.u32 %p0, %tid, 8;
    mov.b32 %r9, 0;
    @!%p0 bra DONE;
    redux.sync.add.s32 %r9, %r0, 255;
    DONE:"""
    found = each(code, VALUES)
    np.testing.assert_array_equal(found, np.where(LANES < 8, VALUES[:8].sum(), 0))


SHARED = ".shared .align 16 .b8 memory[4096];"


@pytest.mark.parametrize("transposed", [False, True])
def test_ldmatrix_gives_each_lane_two_neighbours_of_a_row_or_of_a_column(transposed: bool) -> None:
    x = np.random.default_rng(1).integers(0, 65536, (32, 8), dtype=np.uint16)  # four matrices, one below the other
    word = ".trans" if transposed else ""
    body = f"""
    mov.u32 %r0, memory;
    mad.lo.u32 %r1, %tid, 16, %r0;
    mad.wide.u32 %at, %tid, 16, %in0;
    ld.global.v4.u32 {{%r2, %r3, %r4, %r5}}, [%at];
    st.shared.v4.u32 [%r1], {{%r2, %r3, %r4, %r5}};
    bar.warp.sync -1;
    ldmatrix.sync.aligned.m8n8.x4{word}.shared.b16 {{%r6, %r7, %r8, %r9}}, [%r1];
    mad.wide.u32 %at, %tid, 16, %out;
    st.global.v4.u32 [%at], {{%r6, %r7, %r8, %r9}};"""
    found = run(body, [x], np.zeros((32, 4, 2), np.uint16), shared=SHARED)
    for lane in range(32):
        for matrix in range(4):
            rows = x[8 * matrix : 8 * matrix + 8]
            rows = rows.T if transposed else rows
            assert found[lane, matrix].tolist() == rows[lane // 4, 2 * (lane % 4) : 2 * (lane % 4) + 2].tolist()


def test_a_barrier_lets_all_see_what_all_wrote_and_combines_predicates() -> None:
    body = """
    mov.u32 %r0, memory;
    mad.lo.u32 %r1, %tid, 4, %r0;
    st.shared.u32 [%r1], %tid;
    bar.sync 0;
    sub.u32 %r2, 95, %tid;
    mad.lo.u32 %r2, %r2, 4, %r0;
    ld.shared.u32 %r3, [%r2];
    setp.lt.u32 %p0, %r3, 40;
    bar.red.popc.u32 %r4, 0, %p0;
    add.u32 %r3, %r3, %r4;
    mad.wide.u32 %at, %tid, 4, %out;
    st.global.u32 [%at], %r3;"""
    found = run(body, [], np.zeros(96, np.uint32), threads=96, shared=SHARED)
    assert found.tolist() == [95 - at + 40 for at in range(96)]


def test_named_barriers_hand_from_one_warp_to_another() -> None:
    body = """
    mov.u32 %r0, memory;
    rem.u32 %r2, %tid, 32;
    mad.lo.u32 %r1, %r2, 4, %r0;
    setp.ge.u32 %p0, %tid, 32;
    @%p0 bra SECOND;
    st.shared.u32 [%r1], %tid;
    barrier.arrive.aligned 3, 64;
    bra DONE;
    SECOND:
    barrier.sync.aligned 3, 64;
    ld.shared.u32 %r3, [%r1];
    mad.wide.u32 %at, %r2, 4, %out;
    st.global.u32 [%at], %r3;
    DONE:"""
    assert run(body, [], np.zeros(32, np.uint32), threads=64, shared=SHARED).tolist() == list(range(32))


def test_blocks_of_a_cluster_read_each_others_shared_memory() -> None:
    body = """
    mov.u32 %r0, memory;
    mov.u32 %r1, %cluster_ctarank;
    mov.u32 %r7, %ctaid.x;
    setp.eq.u32 %p0, %tid, 0;
    mad.lo.u32 %r2, %r7, 10, 5;
    @%p0 st.shared.u32 [%r0], %r2;
    barrier.cluster.arrive.release.aligned;
    barrier.cluster.wait.acquire.aligned;
    add.u32 %r3, %r1, 1;
    rem.u32 %r3, %r3, 2;
    mapa.shared::cluster.u32 %r4, %r0, %r3;
    ld.shared::cluster.u32 %r5, [%r4];
    barrier.cluster.arrive.release.aligned;
    barrier.cluster.wait.acquire.aligned;
    mad.wide.u32 %at, %r7, 4, %out;
    @%p0 st.global.u32 [%at], %r5;"""
    assert run(body, [], np.zeros(4, np.uint32), blocks=4, cluster=2, shared=SHARED).tolist() == [15, 5, 35, 25]

"""Kernels that are wrong on purpose, each beside one that is right: what neither a result nor the double shows."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ptx.fault import Fault
from tests.ptx.kernel import run

SHARED = ".shared .align 1024 .b8 memory[4096]; .shared .align 8 .b64 gate;"
BEGIN = "mov.u32 %r0, memory; mad.lo.u32 %r1, %tid, 4, %r0; mad.wide.u32 %at, %tid, 4, %out;"
NEXT = "add.u32 %r3, %tid, 1; rem.u32 %r3, %r3, 64; mad.lo.u32 %r3, %r3, 4, %r0;"
"""Where the next thread's word lies."""


def told(body: str, threads: int = 64, cluster: int = 1, blocks: int = 0) -> str:
    """The kind of fault that a kernel has; nothing where it has none. Of `blocks` also between them."""
    out, count = np.zeros(4096, np.uint8), blocks or cluster
    try:
        run(BEGIN + body, [], out, threads=threads, blocks=count, cluster=cluster, shared=SHARED, between=blocks > 0)
    except Fault as fault:
        return fault.kind
    return ""


STORE, LOAD = "st.shared.u32 [%r1], %tid;", "ld.shared.u32 %r4, [%r3]; st.global.u32 [%at], %r4;"
INIT = "mov.u32 %r5, gate; setp.eq.u32 %p0, %tid, 0; @%p0 mbarrier.init.shared.b64 [%r5], 64; bar.sync 0;"
ARRIVE = "mbarrier.arrive.shared.b64 %d3, [%r5];"
WAIT = "W: mbarrier.test_wait.parity.shared.b64 %p1, [%r5], 0; @!%p1 bra W;"


@pytest.mark.parametrize(
    ("right", "wrong", "kind"),
    [
        # Ordered by a barrier, or not.
        (f"{STORE} bar.sync 0; {NEXT} {LOAD}", f"{STORE} {NEXT} bar.warp.sync -1; {LOAD}", "race"),
        # What is read is written again, before or after a barrier.
        (
            f"{STORE} bar.sync 0; {NEXT} {LOAD} bar.sync 0; {STORE}",
            f"{STORE} bar.sync 0; {NEXT} {LOAD} {STORE}",
            "race",
        ),
        # Lanes of one warp need a barrier of the warp.
        (
            "xor.b32 %r3, %tid, 1; mad.lo.u32 %r3, %r3, 4, %r0; " + STORE + "bar.warp.sync -1;" + LOAD,
            "xor.b32 %r3, %tid, 1; mad.lo.u32 %r3, %r3, 4, %r0; " + STORE + LOAD,
            "race",
        ),
        # An mbarrier orders whoever waits after whoever arrived before.
        (f"{INIT} {STORE} {ARRIVE} {WAIT} {NEXT} {LOAD}", f"{INIT} {ARRIVE} {STORE} {WAIT} {NEXT} {LOAD}", "race"),
        # Two threads store to one place.
        (STORE, "and.b32 %r3, %tid, 62; mad.lo.u32 %r3, %r3, 4, %r0; st.shared.u32 [%r3], %tid;", "race"),
        # Nobody has written the last word.
        (f"{STORE} bar.sync 0; {NEXT} {LOAD}", f"{STORE} bar.sync 0; {LOAD.replace('%r3', '%r1+4')}", "uninitialised"),
        # Vectors are aligned to all their bytes.
        (
            "mad.lo.u32 %r3, %tid, 16, %r0; st.shared.v4.u32 [%r3], {%tid, %tid, %tid, %tid};",
            "mad.lo.u32 %r3, %tid, 16, %r0; st.shared.v4.u32 [%r3+8], {%tid, %tid, %tid, %tid};",
            "misaligned",
        ),
        ("st.global.v2.u32 [%out], {%r0, %r0};", "st.global.v2.u32 [%out+4], {%r0, %r0};", "misaligned"),
        # Beyond what a block, or anybody, has.
        (STORE, STORE.replace("%r1", "%r1+4000"), "out-of-bounds"),
        ("st.global.u32 [%at], %tid;", "st.global.u32 [%at+4000], %tid;", "out-of-bounds"),
        # All threads of a warp come to what is aligned.
        (
            "setp.lt.u32 %p0, %tid, 32; @%p0 bra X; bar.sync 1, 32; X:",
            "setp.lt.u32 %p0, %tid, 48; @%p0 bra X; bar.sync 1, 32; X:",
            "divergence",
        ),
        (
            "setp.lt.u32 %p0, %tid, 32; @%p0 bra X; bar.sync 1, 32; X:",
            "setp.lt.u32 %p0, %tid, 32; @%p0 bra X; bar.sync 1, 48; X:",
            "divergence",
        ),
        (
            f"{STORE} bar.sync 0; ldmatrix.sync.aligned.m8n8.x1.shared.b16 {{%r4}}, [%r0];",
            f"{STORE} bar.sync 0; setp.eq.u32 %p0, %tid, 5; @%p0 ret;"
            "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r4}, [%r0];",
            "divergence",
        ),
        # A mask names a lane that has ended; a lane gives a mask without itself.
        (
            "redux.sync.add.u32 %r4, %tid, -1;",
            "setp.eq.u32 %p0, %tid, 5; @%p0 ret; redux.sync.add.u32 %r4, %tid, -1;",
            "divergence",
        ),
        ("redux.sync.add.u32 %r4, %tid, -1;", "redux.sync.add.u32 %r4, %tid, 255;", "divergence"),
        # A barrier that some never come to; an mbarrier with an arrival too few, and too many.
        ("bar.sync 2, 64;", "setp.lt.u32 %p0, %tid, 32; @%p0 bra X; bar.sync 2, 64; X:", "deadlock"),
        (f"{INIT} {ARRIVE} {WAIT}", f"{INIT} @!%p0 {ARRIVE} {WAIT}", "deadlock"),
        (f"{INIT} {ARRIVE}", f"{INIT} {ARRIVE} {ARRIVE}", ""),  # a second phase, which may have begun
        (f"{INIT} {ARRIVE} {WAIT}", f"{ARRIVE.replace('%r5', '%r0')}", "uninitialised"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_found_and_what_is_right_is_not(right: str, wrong: str, kind: str) -> None:
    assert (told(right), told(wrong)) == ("", kind)


PRODUCT = """
    mad.lo.u32 %r3, %tid, 16, %r0;
    st.shared.v4.u32 [%r3], {0, 0, 0, 0};
    st.shared.v4.u32 [%r3+2048], {0, 0, 0, 0};
    fence.proxy.async.shared::cta;
    bar.sync 0;
    shr.u32 %r4, %r0, 4; and.b32 %r4, %r4, 0x3fff;
    cvt.u64.u32 %d0, %r4;
    or.b64 %d0, %d0, 0x0000001000080000;
    setp.ne.b32 %p0, 0, 0;
    wgmma.fence.sync.aligned;
    wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f0, %f1, %f2, %f3}, %d0, %d0, %p0, 1, 1, 0, 0;
    wgmma.commit_group.sync.aligned;"""


def test_operands_of_a_product_under_way_are_not_written() -> None:
    waits, again = "wgmma.wait_group.sync.aligned 0;", "st.shared.u32 [%r1], 1;"
    assert told(f"{PRODUCT} {waits} bar.sync 0; {again}", threads=128) == ""
    assert told(f"{PRODUCT} {again} {waits}", threads=128) == "race"
    # Another warp's product may still read.
    assert told(f"{PRODUCT} {waits} {again}", threads=128) == "race"


def test_products_find_what_was_written_behind_a_fence_of_proxies_alone() -> None:
    fence, waits = "fence.proxy.async.shared::cta;", "wgmma.wait_group.sync.aligned 0;"
    assert told(f"{PRODUCT} {waits}", threads=128) == ""
    assert told(f"{PRODUCT.replace(fence, '')} {waits}", threads=128) == "proxy"
    assert told(f"{fence} {PRODUCT.replace(fence, '')} {waits}", threads=128) == "proxy", "before what is written"
    late = PRODUCT.replace(fence, "").replace("bar.sync 0;", f"bar.sync 0; {fence}")
    assert told(f"{late} {waits}", threads=128) == "", "whoever knows of the write may fence it"
    assert told(f"{PRODUCT.replace(fence, 'fence.proxy.alias;')} {waits}", threads=128) == "proxy"


HAND_OVER = """
    mov.u32 %r6, %ctaid.x;
    setp.eq.u32 %p2, %tid, 0;
    setp.eq.u32 %p3, %r6, 1;
    @%p3 bra SECOND;
    st.global.u32 [%at+256], %tid;
    bar.sync 0;
    @%p2 red.release.gpu.global.add.u32 [%out], 1;
    ret;
SECOND:
    @!%p2 bra SEEN;
LOOK:
    ld.relaxed.gpu.global.u32 %r7, [%out];
    setp.ne.u32 %p1, %r7, 1;
    @%p1 bra LOOK;
    ld.acquire.gpu.global.u32 %r7, [%out];
SEEN:
    bar.sync 0;
    ld.global.u32 %r8, [%at+256];
    st.global.u32 [%at+1024], %r8;"""
"""A block hands 64 words to another, by a count."""


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("red.release.gpu", "red.relaxed.gpu"),
        ("red.release.gpu", "red.release.cta"),
        ("ld.acquire.gpu.global.u32 %r7, [%out];", ""),
        ("ld.acquire.gpu", "ld.acquire.cta"),
        ("SEEN:\n    bar.sync 0;", "SEEN:"),
        ("bar.sync 0;\n    @%p2 red", "@%p2 red"),
        ("st.global.u32 [%at+1024]", "st.global.u32 [%at+256]"),
    ],
)
def test_what_a_block_hands_over_is_released_and_acquired(before: str, after: str) -> None:
    """The last change is right: a block may write what another wrote, once it knows of that."""
    assert told(HAND_OVER, blocks=2) == ""
    assert HAND_OVER.count(before) == 1
    is_right = "1024" in before
    assert told(HAND_OVER.replace(before, after), blocks=2) == ("" if is_right else "race")


def test_blocks_that_write_one_word_or_read_what_another_writes_later_race() -> None:
    mine = "mov.u32 %r6, %ctaid.x; mad.wide.u32 %at, %r6, 256, %at;"
    assert told(f"{mine} st.global.u32 [%at], %tid;", blocks=2) == ""
    assert told("st.global.u32 [%at], %tid;", blocks=2) == "race"
    reads = "mov.u32 %r6, %ctaid.x; setp.eq.u32 %p3, %r6, 1; ld.global.u32 %r7, [%at]; @%p3 st.global.u32 [%at], %tid;"
    assert told(reads, blocks=1) == ""
    assert told(reads, blocks=2) == "race"
    assert told("red.relaxed.gpu.global.add.u32 [%at], 1;", blocks=2) == "", "updates race with none"


def test_blocks_of_a_cluster_are_ordered_by_its_barrier() -> None:
    both = "barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;"
    remote = "mov.u32 %r6, %cluster_ctarank; xor.b32 %r6, %r6, 1; mapa.shared::cluster.u32 %r3, %r1, %r6;"
    load = "ld.shared::cluster.u32 %r4, [%r3];"
    assert told(f"{STORE} {remote} {both} {load} {both}", cluster=2) == ""
    assert told(f"{STORE} {remote} bar.sync 0; {load} {both}", cluster=2) in ("race", "uninitialised")


def test_an_instruction_that_is_not_known_is_a_fault_and_not_left_out() -> None:
    with pytest.raises(Fault, match="unknown"):
        run("tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;", [], np.zeros(4, np.uint8))

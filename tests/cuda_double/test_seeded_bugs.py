"""Every kind of mistake that the double claims to find, made on purpose.

Each must be found, and the kernel be right without it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import pytest

from tests.cuda_double.demonstration import DEMONSTRATIONS, Demonstration, Outcome, dense_chain, error
from tests.cuda_double.double import MODES, Device, Fault, compile_kernels, compiler_there

pytestmark = pytest.mark.skipif(not compiler_there(), reason="the double of CUDA needs g++")

WRONG = "wrong result"


@dataclass(frozen=True)
class Bug:
    """A change of one kernel's text, or of how it is run.

    `checked` and `plain` are what it may show as in these flavours; an empty `plain`: only checked modules find it.
    """

    name: str
    kernel: str
    before: str = ""
    after: str = ""
    checked: frozenset[str] = frozenset({"race"})
    plain: frozenset[str] = frozenset({WRONG})
    run: Callable[[Device], Outcome] | None = None


def bug(
    name: str,
    kernel: str,
    before: str = "",
    after: str = "",
    checked: str = "race",
    plain: str = WRONG,
    run: Callable[[Device], Outcome] | None = None,
) -> Bug:
    """A bug; several possible signs are joined by `|`, and no sign at all is empty."""
    return Bug(
        name, kernel, before, after, frozenset(checked.split("|")), frozenset(filter(None, plain.split("|"))), run
    )


BUGS = (
    # cp.async and its stages
    bug("wait for one copy group too few", "conv3x3", "tw_cp_async_wait<STAGES - 2>", "tw_cp_async_wait<STAGES - 1>"),
    bug("no wait for copies", "conv3x3", "tw_cp_async_wait<STAGES - 2>();", ""),
    bug(
        "no empty group at the end",
        "conv3x3",
        "STAGE);\n        tw_cp_async_commit(); /*",
        "STAGE), tw_cp_async_commit(); /*",
    ),
    bug("no barrier after the wait", "conv3x3", "__syncthreads(); /* the slice", "/* the slice", plain=WRONG),
    bug("stage filled while it is read", "conv3x3", "(slice + STAGES - 1) % STAGES * STAGE", "slice % STAGES * STAGE"),
    bug("wrong stage read", "conv3x3", "*a_tile = shared + slice % STAGES", "*a_tile = shared + (slice + 1) % STAGES"),
    bug(
        "one stage too little shared memory",
        "conv3x3",
        "STAGES = 3,",
        "STAGES = 4,",
        checked="out-of-bounds",
        plain="out-of-bounds",
    ),
    bug(
        "copy from a misaligned address",
        "conv3x3",
        "channel + chunk * 8 : x",
        "channel + chunk * 8 + 4 : x",
        checked="misaligned",
        plain="misaligned",
    ),
    bug(
        "copy from beyond the tensor",
        "conv3x3",
        "n < K ? w + n * DEPTH + k0 + chunk * 8 : w;\n"
        "        tw_cp_async_16(stage + (BLOCK_M + row) * ROW + chunk * 8, from, n < K ? 16 : 0)",
        "w + n * DEPTH + k0 + chunk * 8;\n        tw_cp_async_16(stage + (BLOCK_M + row) * ROW + chunk * 8, from, 16)",
        checked="out-of-bounds",
        plain="out-of-bounds",
    ),
    bug(
        "padding not masked",
        "conv3x3",
        "bool inside = m < M && h >= 0",
        "bool inside = m < M && h >= -1",
        checked="out-of-bounds",
        plain="out-of-bounds",
    ),
    # fragments
    bug(
        "halves of a fragment exchanged",
        "conv3x3",
        "{b[j * 2], b[j * 2 + 1]}",
        "{b[j * 2 + 1], b[j * 2]}",
        checked=WRONG,
    ),
    bug(
        "rows of a fragment exchanged",
        "conv3x3",
        "lane / 4 + half * 8, n",
        "lane % 4 + half * 8, n",
        checked=WRONG + "|race",
    ),
    bug(
        "ldmatrix with the trans of another layout",
        "conv3x3",
        "tw_ldmatrix_x4(b,",
        "tw_ldmatrix_x4_trans(b,",
        checked=WRONG,
    ),
    bug(
        "ldmatrix from a misaligned row",
        "conv3x3",
        "ROW = BLOCK_K + 8",
        "ROW = BLOCK_K + 4",
        checked="misaligned",
        plain="misaligned",
    ),
    bug(
        "mma in half of a warp",
        "conv3x3",
        "for (int j = 0; j < 2; j++) {\n",
        "for (int j = 0; j < 2 - lane / 16; j++) {\n",
        checked="deadlock|divergence",
        plain="deadlock|divergence",
    ),
    # barriers and collectives
    bug(
        "no barrier before the sums of warps are read",
        "reduce_sum",
        "__syncthreads();\n    return thread",
        "return thread",
    ),
    bug(
        "barrier in a branch",
        "reduce_sum",
        "    __syncthreads();\n    return thread",
        "    if (threadIdx.x < 128) __syncthreads();\n    return thread",
        checked="deadlock|divergence",
        plain="deadlock|divergence",
    ),
    bug(
        "threads meet in different barriers",
        "softmax_row",
        "    __syncthreads();\n    Pair all",
        "    if (threadIdx.x < 64)\n        __syncthreads();\n    else\n        __syncthreads();\n    Pair all",
        checked="divergence",
        plain="divergence",
    ),
    bug(
        "shuffle that half of the warp leaves out",
        "softmax_row",
        "own = warp_combine(own);",
        "if (threadIdx.x % 32 < 16) own = warp_combine(own);",
        checked="deadlock|divergence",
        plain="deadlock|divergence",
    ),
    bug(
        "no barrier before shared memory is used again",
        "reduce_sum",
        "    __syncthreads();\n    if (before",
        "    if (before",
        checked="race",
        plain="divergence|wrong result",
    ),
    bug(
        "no fence before the counter",
        "reduce_sum",
        "        __threadfence();\n        before",
        "        before",
        plain="",
    ),
    bug("counter not set back", "reduce_sum", "        *counter = 0;\n", "", plain=""),
    bug(
        "shared memory not initialised",
        "reduce_sum",
        "if (threadIdx.x % 32 == 0) of_warp",
        "if (threadIdx.x == 0) of_warp",
        checked=WRONG,
    ),
    bug(
        "read beyond the end",
        "reduce_sum",
        "i < n; i += gridDim.x * THREADS",
        "i <= n; i += gridDim.x * THREADS",
        checked="out-of-bounds",
        plain=WRONG,
    ),
    bug("tail of a vector not handled", "vector_add", "i + 4 <= n", "i < n", checked="out-of-bounds", plain=""),
    bug(
        "vector access at an odd place",
        "vector_add",
        "float4 *)(x + i)",
        "float4 *)(x + i + 1)",
        checked="misaligned",
        plain="misaligned",
    ),
    bug(
        "shared memory too small",
        "softmax_row",
        "(columns + 1) / 2 * 2",
        "(columns + 9) / 2 * 2",
        checked="out-of-bounds",
        plain="",
    ),
    # mbarriers, tensor copies, wgmma
    bug(
        "no wait for the tensor copy",
        "gemm_sm90",
        "        tw_mbarrier_wait(full + stage, slice / STAGES % 2);\n",
        "",
        plain=WRONG + "|protocol",
    ),
    bug(
        "stage refilled while it is multiplied",
        "gemm_sm90",
        "                tw_mbarrier_wait(empty + stage, (use + 1) % 2); /* at the first use at once */\n",
        "",
        checked="race|protocol",
        plain=WRONG + "|protocol|deadlock",
    ),
    bug(
        "wrong parity",
        "gemm_sm90",
        "slice / STAGES % 2)",
        "(slice / STAGES + 1) % 2)",
        checked="race|deadlock|protocol",
        plain=WRONG + "|deadlock|protocol",
    ),
    bug(
        "fewer bytes announced than brought",
        "gemm_sm90",
        "full + stage, A_BYTES + B_BYTES",
        "full + stage, A_BYTES",
        checked="race|deadlock|protocol",
        plain=WRONG + "|deadlock|protocol",
    ),
    bug(
        "more bytes announced than brought",
        "gemm_sm90",
        "full + stage, A_BYTES + B_BYTES",
        "full + stage, A_BYTES + B_BYTES + 16",
        checked="deadlock",
        plain="deadlock",
    ),
    bug(
        "stage given back before it is multiplied",
        "gemm_sm90",
        "        tw_wgmma_wait<0>();\n        if (thread == 0) tw_mbarrier_arrive(empty + stage);\n",
        "        if (thread == 0) tw_mbarrier_arrive(empty + stage);\n        tw_wgmma_wait<0>();\n",
    ),
    bug(
        "sums read before wgmma has ended",
        "gemm_sm90",
        "        tw_wgmma_wait<0>();\n",
        "        tw_wgmma_wait<1>();\n",
        checked="race|protocol",
        plain=WRONG + "|protocol|race",
    ),
    bug("no wgmma.fence", "gemm_sm90", "        tw_wgmma_fence();\n", "", checked="protocol", plain="protocol"),
    bug(
        "a stage announced for three instead of two",
        "gemm_sm90",
        "tw_mbarrier_init(empty + stage, 2)",
        "tw_mbarrier_init(empty + stage, 3)",
        checked="deadlock",
        plain="deadlock",
    ),
    bug(
        "mbarriers used before they are initialised",
        "gemm_sm90",
        "    __syncthreads();\n\n    const int warpgroup",
        "    const int warpgroup",
        checked="race|protocol",
        plain="protocol",
    ),
    bug(
        "wrong swizzle",
        "gemm_sm90",
        "BLOCK_K * 2, 1, 1024, 1)",
        "BLOCK_K * 2, 1, 1024, 2)",
        checked=WRONG + "|race|out-of-bounds",
    ),
    bug(
        "wrong stride in the descriptor",
        "gemm_sm90",
        "stage * B_BYTES, 1, 1024, 1)",
        "stage * B_BYTES, 1, 512, 1)",
        checked=WRONG,
    ),
    bug("slice of k advanced by elements", "gemm_sm90", "a + 2 * i, b", "a + 4 * i, b", checked=WRONG + "|race"),
    # clusters
    bug(
        "other block's sums read too early",
        "cluster_sum",
        "    tw_cluster_arrive();\n    tw_cluster_wait();\n    if",
        "    if",
    ),
    bug(
        "block ends while its memory is read",
        "cluster_sum",
        "    tw_cluster_arrive(); /* no block ends while its memory is read */\n    tw_cluster_wait();\n",
        "",
        checked="out-of-bounds",
        plain="",
    ),
    bug(
        "block without a cluster of its own reads the first one's memory",
        "mixed_clusters",
        "const float *mine = part;",
        "const float *mine = (const float *)tw_cluster_map(part, 0);",
        checked="race|out-of-bounds",
    ),
    bug(
        "block without a cluster of its own takes its rank for its part",
        "mixed_clusters",
        "rank = 0, parts = 1;",
        "rank = tw_cluster_rank(), parts = 1;",
        checked=WRONG,
    ),
    bug(
        "block without a cluster of its own takes the cluster for its own",
        "mixed_clusters",
        "rank = 0, parts = 1;",
        "rank = 0, parts = tw_cluster_size();",
        checked=WRONG,
    ),
    # memory that nobody has written, and sums of tensor cores
    bug(
        "maximum over what nobody has written",
        "row_maximum",
        "i < columns; i++) largest",
        "i < THREADS; i++) largest",
        checked=WRONG,
    ),
    bug("a long sum left to tensor cores", "long_sum", "if ((first + 8) % SHORT == 0)", "if (false)", checked=WRONG),
    # between kernels and blocks
    bug("dependency not waited for", "dense_chain", "    tw_grid_dependency_wait();\n", ""),
    bug(
        "activations read before the wait",
        "dense_chain",
        "    tw_grid_dependency_wait();\n    if (row >= rows) return;\n"
        "    float4 values = *(const float4 *)(x + lane * 4);",
        "    float4 values = *(const float4 *)(x + lane * 4);\n    tw_grid_dependency_wait();",
    ),
    bug(
        "kernel in between waits for nothing",
        "passed_on",
        "    tw_grid_dependency_wait(); /* for whoever waits for this kernel */\n",
        "",
    ),
    bug(
        "one thread waits for all, and nobody meets it",
        "passed_on",
        "    tw_grid_dependency_wait();\n    const int i",
        "    if (threadIdx.x == 0) tw_grid_dependency_wait();\n    const int i",
    ),
    bug(
        "blocks share scratch memory by a number of places",
        "passed_on",
        "ring + (blockIdx.x * THREADS)",
        "ring + (blockIdx.x % 6 * THREADS)",
    ),
    bug("a dropped edge of the graph", "dense_chain_full_edges", run=partial(dense_chain, early=False, dropped=(2, 4))),
    bug("a dropped edge beside early launches", "dense_chain", run=partial(dense_chain, dropped=(1, 3))),
    bug(
        "counter raised before the tile is written",
        "two_layers",
        "            __syncthreads();\n            if (threadIdx.x == 0) tw_add",
        "            if (threadIdx.x == 0) tw_add",
        plain="",
    ),
    bug("tile not waited for", "two_layers", "while (tw_load_acquire(events + tile) == 0)", "while (false)"),
    bug(
        "task that waits comes before the one it waits for",
        "two_layers",
        "if (task < tiles) {",
        "if (task >= tiles) {",
        checked="deadlock",
        plain="deadlock",
    ),
)


def first_sign(demonstration: Demonstration, flavour: str) -> str:
    """The kind of the first fault, or a wrong result, in any mode; empty where all modes find the kernel right."""
    module = compile_kernels(demonstration.source, flavour, demonstration.file)
    for mode in MODES:
        with Device(module, mode) as device:
            try:
                outcome = demonstration.run(device)
            except Fault as fault:
                return fault.kind
        if not error(outcome) <= demonstration.tolerance:
            return WRONG
    return ""


@pytest.mark.parametrize("seeded", BUGS, ids=lambda seeded: seeded.name.replace(" ", "-"))
def test_a_seeded_bug_is_found(seeded: Bug) -> None:
    right = DEMONSTRATIONS[seeded.kernel]
    assert right.source.count(seeded.before) == 1 or seeded.run, "the text to be changed is there once"
    text = right.source.replace(seeded.before, seeded.after) if seeded.before else right.source
    wrong = replace(right, text=text, run=seeded.run or right.run)
    assert first_sign(wrong, "checked") in seeded.checked
    if seeded.plain:
        assert first_sign(wrong, "plain") in seeded.plain

"""Every algorithm's kernels for ARM and for browsers, run by emulators and judged as those of this machine are."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from compiler.devices.cpu.algorithms.integer import integer_tiles
from compiler.devices.cpu.emit.lower import lower
from compiler.ir.evaluate import evaluate
from tests.compiler.devices.cpu.algorithms import (
    encoded_rows,
    test_attention,
    test_bf16,
    test_bf16_attention,
    test_byte_attention,
    test_byte_extremes,
    test_byte_sums,
    test_byte_windows,
    test_coded_gemv,
    test_contraction,
    test_dot_window,
    test_few_queries,
    test_gated,
    test_gemv,
    test_integer,
    test_integer_loops,
    test_loops,
    test_picked_gemv,
    test_quantised_gemv,
    test_recurrent,
    test_separable,
    test_sparse_recurrent,
    test_transpose,
    test_window,
    test_winograd,
)
from tests.compiler.devices.cpu.algorithms.test_amx_window import byte_convolutions
from tests.compiler.devices.cpu.emulation.arm import BF16, DOT, MIXED, NEON, SIMD128, arm
from tests.compiler.devices.cpu.library import Library, check, draws

INTEGER_LOOPS = [
    getattr(test_integer_loops, name)
    for name in ("depthwise", "quantise", "dequantise", "pooled", "wrapped", "reduced")
]


@pytest.mark.parametrize("name", [NEON, SIMD128])
def test_kernels_of_four_lanes_equal_their_definition(name: str) -> None:
    target = arm(name)
    products = draws(test_contraction.tiled(test_contraction.kernels(), target), 12)
    assert sum(case.tile.algorithm == "contraction" for case in products) > 4
    joined = [case for case in draws(test_separable.cases(target).filter(lambda case: case is not None), 4) if case]
    loops = [*draws(test_loops.maps(), 8), *draws(test_loops.reductions(), 8), *draws(test_loops.scans(), 4)]
    moved = [test_transpose.case_of(text, 2, 2, 7, 17) for text in test_transpose.TRANSPOSED.values()]
    small = [case for make in INTEGER_LOOPS for case in draws(test_integer_loops.cases(make), 2)]
    halves = draws(test_integer.cases(target), 10)
    assert sum(case.tile.algorithm == "integer" for case in halves) > 4
    drawn = [*products, *joined, *loops, *moved, *small, *halves]
    if name == SIMD128:  # fp16 is refused before kernels are made
        drawn = [case for case in drawn if "f16" not in str(case).replace("bf16", "")]
    check(drawn, target, "-O1")


@pytest.mark.parametrize("name", [NEON, SIMD128])
def test_algorithms_with_judges_of_their_own_in_four_lanes(name: str) -> None:
    target = arm(name)
    test_attention.check(draws(test_attention.cases(target), 3), target)
    test_few_queries.check(draws(test_few_queries.cases(target), 6), target)
    test_gemv.agrees([*draws(test_gemv.cases(target), 6), *draws(test_picked_gemv.drawn(target), 4)], target)
    encoded_rows.agrees(draws(test_coded_gemv.cases(target), 5), target)
    test_recurrent.check(draws(test_recurrent.drawn(target), 5), target)
    test_recurrent.check(draws(test_sparse_recurrent.drawn(target), 4), target)
    windows = test_window.asked(target).filter(lambda one: one.case.tile.algorithm == "window")
    test_window.judged(draws(windows, 6), target)
    test_byte_windows.judge_averages(target)
    filters = [(one, case) for one, case in draws(test_winograd.cases(target), 12) if case.tile.algorithm == "winograd"]
    test_winograd.judge(
        [(one, case) for one, case in filters if test_winograd.error_of(case) < test_winograd.MOST_ERROR], target
    )


@pytest.mark.parametrize("name", [NEON, SIMD128])
def test_pools_and_shuffles_of_bytes_in_four_lanes(name: str) -> None:
    target = arm(name)
    test_transpose.judge_shuffled(target)
    test_byte_sums.judge(target)
    test_byte_extremes.judge_maps(target)
    test_byte_extremes.judge_edges(target)


def test_gated_products_in_neon() -> None:
    test_gated.test_gated_products_are_what_their_definition_says(arm(NEON).name)


@pytest.mark.parametrize(("name", "signed", "unsigned"), [(DOT, "sdot", "sdot"), (MIXED, "sdot", "usdot")])
def test_products_of_bytes_equal_their_definition_bit_by_bit(name: str, signed: str, unsigned: str) -> None:
    """Signed bytes are multiplied as they are, unsigned ones too where the target mixes them."""
    target = arm(name)
    drawn = draws(test_integer.cases(target), 24)
    byte_products = [case for case in drawn if case.tile.algorithm == "integer"]
    assert len(byte_products) > 12
    steps = {"sdot": "tw_dot_signed_by(", "usdot": "tw_dot_bytes_by("}
    library = Library.of(drawn, target, "-O1")
    for number, case in enumerate(drawn):
        text = library.lowered[number].text
        for got, want in zip(library.run(number, case), evaluate(case.kernel, case.inputs), strict=True):
            np.testing.assert_array_equal(got, want, err_msg=f"{case}\n{text}")
    first = {np.dtype(np.int8): steps[signed], np.dtype(np.uint8): steps[unsigned]}
    for dtype, step in first.items():
        a, b = np.zeros((5, 64), dtype), np.zeros((64, 16), np.int8)
        case = test_integer.product(a, b, np.asarray(3, dtype), np.asarray(0, np.int8))
        tile = integer_tiles(case.workload, target, 1)[0].tile
        assert step in lower("k0_product", case.workload, tile, target).text


def test_products_by_weights_of_few_bits_by_dot_products() -> None:
    target = arm(DOT)
    encoded_rows.agrees(draws(test_quantised_gemv.cases(target, (2, 4)), 8), target)


@pytest.mark.parametrize("name", [NEON, DOT, MIXED])
def test_attention_of_bytes_is_what_whole_numbers_say(name: str) -> None:
    target = arm(name)
    test_byte_attention.check([*test_byte_attention.ends(target), *draws(test_byte_attention.cases(target), 3)], target)


def test_operands_that_are_bf16_lose_nothing_but_what_fp32_sums_do() -> None:
    target = arm(BF16)
    drawn = [
        replace(case, inputs=(*map(test_bf16.bf16, case.inputs[:2]), *case.inputs[2:]), tolerance=1e-5)
        for case in draws(test_bf16.cases(target, test_contraction.products().filter(test_bf16.is_plain)), 14)
    ]
    assert sum(case.tile.algorithm == "bf16" for case in drawn) > 4
    check(drawn, target, "-O1")


def test_attention_by_pairs_of_bf16_is_off_by_its_roundings() -> None:
    target = arm(BF16)
    networks, parts = test_bf16_attention.networks(target), test_bf16_attention.in_parts(target)
    test_bf16_attention.check([*draws(networks, 6), *draws(parts, 2)], target)


@pytest.mark.parametrize("name", [NEON, DOT, MIXED])
def test_windows_of_bytes_equal_their_definition_bit_by_bit(name: str) -> None:
    target = arm(name)
    check(draws(test_dot_window.windows(byte_convolutions(), test_dot_window.of_bytes, target), 8), target, "-O1")


def test_windows_of_bf16_lose_nothing_but_what_fp32_sums_do() -> None:
    target = arm(BF16)
    cases = test_bf16.cases(target, test_contraction.convolutions().filter(test_bf16.is_plain))
    drawn = draws(test_dot_window.windows(cases, test_dot_window.of_bf16, target), 6)
    rounded = [(*map(test_bf16.bf16, case.inputs[:2]), *case.inputs[2:]) for case in drawn]
    check([replace(case, inputs=one, tolerance=1e-5) for case, one in zip(drawn, rounded, strict=True)], target, "-O1")

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume
from hypothesis import strategies as st

from compiler.devices.cpu.algorithms.quantised_gemv import ROUNDED_ERROR, quantised_tiles
from compiler.devices.cpu.target import CpuTarget, resolve, this_machine
from compiler.encodings.quantised import BITS, READ_AS_FLOATS, READ_BY, READ_ROUNDED, SCALE_BITS, Quantised
from tests.compiler.devices.cpu.algorithms.encoded_rows import MATRIX, EncodedCase, agrees, in_encoding
from tests.compiler.devices.cpu.algorithms.encoded_rows import encoded as encoded_workload
from tests.compiler.devices.cpu.algorithms.test_coded_gemv import product
from tests.compiler.devices.cpu.algorithms.test_gemv import few_rows
from tests.compiler.devices.cpu.library import Case, Library, bound, draws
from tests.compiler.encodings.test_quantised import quantised

WHOLE = 0
"""In place of the size of a block: all values along an axis have one scale."""


QuantisedCase = EncodedCase[Quantised]


def rounded(case: QuantisedCase) -> QuantisedCase:
    """The same under the tile that rounds activations to 16 bits."""
    return replace(case, tile=replace(case.tile, algorithm=READ_ROUNDED))


def as_floats(case: QuantisedCase) -> QuantisedCase:
    """The same under the tile that makes codes floats in the cache."""
    return replace(case, tile=replace(case.tile, algorithm=READ_AS_FLOATS))


FORMS = {"digits": lambda case: case, "floats": as_floats}
"""By digits of the rows, and by codes that are made floats."""


def encoded(
    case: Case, encoding: Quantised, matrix: np.ndarray, target: CpuTarget, lanes: int = 1
) -> QuantisedCase | None:
    """The case with this matrix under the tile of its blocks; None where no tile is offered."""
    return in_encoding(case, encoding, matrix, quantised_tiles, target, lanes)


@st.composite
def cases(draw: st.DrawFn, target: CpuTarget, bits: tuple[int, ...] = BITS) -> QuantisedCase:
    """A few rows, either operand transposed, maps before and after, blocks of any size, tasks cut anywhere."""
    case: Case = draw(few_rows().flatmap(bound))
    case = replace(case, constant=(MATRIX,), cuts=tuple(draw(st.lists(st.floats(0, 1), max_size=2))))
    dims = case.inputs[MATRIX].shape
    axis = draw(st.sampled_from([0, 1]))
    block = draw(st.sampled_from([WHOLE, 16, 32, 64])) or dims[axis]
    assume(block <= dims[axis])
    scale = draw(st.sampled_from(SCALE_BITS))
    encoding = Quantised.of(draw(st.sampled_from(bits)), axis, block, centred=draw(st.booleans()), scale=scale)
    matrix = quantised(np.random.default_rng(draw(st.integers(0, 99))), dims, encoding)
    found = encoded(case, encoding, matrix, target, draw(st.sampled_from([1, 2])))
    assume(found is not None)
    assert found is not None
    return found


@pytest.mark.parametrize("form", FORMS)
def test_products_by_weights_of_few_bits_are_right_for_every_form_of_blocks(form: str) -> None:
    target = this_machine()
    drawn = [FORMS[form](case) for case in draws(cases(target), 60)]
    assert {case.encoding.bits for case in drawn} >= {2, 4, 8}
    assert {case.encoding.centred for case in drawn} == {False, True}
    assert {case.encoding.axis for case in drawn} == {0, 1}
    assert {case.encoding.scale for case in drawn} == {*SCALE_BITS}
    agrees(drawn, target)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("profile", ["cpu:x86-64-v4", "cpu:x86-64-v3", "cpu:x86-64-v2"])
def test_products_by_weights_of_few_bits_are_right_with_other_vectors(profile: str, form: str) -> None:
    target = resolve(profile)
    if not target.is_here:
        pytest.skip(f"this machine cannot run {profile}")
    agrees([FORMS[form](case) for case in draws(cases(target), 12)], target)


@pytest.mark.parametrize("centred", [True, False])
@pytest.mark.parametrize(("bits", "block"), [(2, 32), (4, 16), (4, 32), (4, 300), (8, 32), (8, 300)])
@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5, 7, 40])
@pytest.mark.parametrize("form", FORMS)
def test_sums_of_whole_numbers_are_those_of_the_dense_matrix_to_the_bit(
    bits: int, block: int, centred: bool, rows: int, form: str
) -> None:
    """Whole numbers that float32 holds: no order of sums rounds, so that a wrong code shows whatever its size."""
    target = this_machine()
    rng = np.random.default_rng(bits + rows)
    case = draws(bound(product(rows, 300, 77)), 1)[0]
    encoding = Quantised.of(bits, 1, block, centred=centred)
    numbers = quantised(rng, case.inputs[MATRIX].shape, encoding, scales=(0.25, 1.0, 2.0))
    x = rng.integers(-8, 9, case.inputs[0].shape).astype(np.float32)
    found = encoded(replace(case, inputs=(x, numbers)), encoding, numbers, target)
    if found is None:
        pytest.skip("this machine multiplies no bytes")
    (got,) = Library.of([FORMS[form](found)], target, optimise="-O1").run(0, found)
    np.testing.assert_array_equal(got, x @ numbers.T)


def test_activations_of_two_digits_lose_no_more_than_is_said_of_them() -> None:
    target = this_machine()
    drawn = [rounded(case) for case in draws(cases(target), 20)]
    agrees(drawn, target, 4 * ROUNDED_ERROR)  # the largest of few columns may be a sum that cancels
    case = draws(bound(product(4, 1024, 160)), 1)[0]
    encoding = Quantised.of(4, 1, 32, centred=True)
    matrix = quantised(np.random.default_rng(1), case.inputs[MATRIX].shape, encoding)
    x = np.random.default_rng(2).normal(size=case.inputs[0].shape).astype(np.float32)
    found = encoded(replace(case, inputs=(x, matrix)), encoding, matrix, target)
    assert found is not None
    (got,) = Library.of([rounded(found)], target, optimise="-O1").run(0, found)
    want = x.astype(np.float64) @ matrix.T
    assert 1e-7 < np.abs(got - want).max() / np.abs(want).max() < ROUNDED_ERROR


EDGES = {
    "zeros": np.zeros(64, np.float32),
    "negative zeros": np.full(64, -0.0, np.float32),
    "subnormal": np.full(64, 1e-44, np.float32),
    "least normal": np.full(64, np.finfo(np.float32).tiny, np.float32),
    "largest": np.full(64, 3e36, np.float32),
    "just below a power of two": np.full(64, np.nextafter(np.float32(2), np.float32(0))),
    "more than three digits hold": np.linspace(1.99, 2, 64, dtype=np.float32),
    "one far above the others": np.where(np.arange(64) == 40, 1e6, 1e-3).astype(np.float32),
    "an infinity": np.where(np.arange(64) == 3, np.inf, 1).astype(np.float32),
    "both infinities": np.where(np.arange(64) < 2, [np.inf, -np.inf] * 32, 1).astype(np.float32),
    "a NaN": np.where(np.arange(64) == 63, np.nan, 1).astype(np.float32),
}


@pytest.mark.parametrize("edge", EDGES)
@pytest.mark.parametrize("form", FORMS)
def test_rows_at_the_ends_of_what_floats_hold_give_what_the_dense_matrix_gives(edge: str, form: str) -> None:
    target = this_machine()
    case = draws(bound(product(2, 64, 40)), 1)[0]
    encoding = Quantised.of(4, 1, 32, centred=False)
    matrix = quantised(np.random.default_rng(1), case.inputs[MATRIX].shape, encoding)
    x = np.stack([EDGES[edge], np.ones(64, np.float32)])
    found = encoded(replace(case, inputs=(x, matrix)), encoding, matrix, target)
    assert found is not None
    (got,) = Library.of([FORMS[form](found)], target, optimise="-O1").run(0, found)
    with np.errstate(invalid="ignore"):
        want = (x.astype(np.float64)[:, None] * matrix).sum(-1)
        rounded = np.repeat(np.abs(x.astype(np.float64)).reshape(2, 2, 32).max(-1), 32, axis=1)
        each = 4e-7 if form == "digits" else 2e-6  # floats round with each product
        allowed = each * (rounded[:, None] * np.abs(matrix)).sum(-1) + 1e-40
    finite = np.isfinite(want)
    np.testing.assert_array_equal(np.where(finite, 0, got), np.where(finite, 0, want))
    assert np.all(np.abs(got[finite] - want[finite]) <= allowed[finite])


@pytest.mark.parametrize("profile", ["cpu", "cpu:x86-64-v4", "cpu:x86-64-v3", "cpu:x86-64-v2"])
@pytest.mark.parametrize(("bits", "block"), [(2, 64), (4, 32), (4, 256), (8, 32), (8, 256)])
def test_the_largest_codes_and_digits_overflow_no_sum(profile: str, bits: int, block: int) -> None:
    target = resolve(profile)
    if not target.is_here:
        pytest.skip(f"this machine cannot run {profile}")
    case = draws(bound(product(2, 512, 40)), 1)[0]
    encoding = Quantised.of(bits, 1, block, centred=False)
    matrix = np.full(case.inputs[MATRIX].shape, (1 << bits) - 1, np.float32)
    matrix[:, ::block] = 1  # which makes 1 the step of every grid
    digits = np.float32(127 * 65536 - 128 * 256 - 128)
    x = np.stack([np.full(512, digits), np.full(512, -digits)])
    found = encoded(replace(case, inputs=(x, matrix)), encoding, matrix, target)
    assert found is not None
    (got,) = Library.of([found], target, optimise="-O1").run(0, found)
    np.testing.assert_allclose(got, x.astype(np.float64) @ matrix.T, rtol=1e-6)


@pytest.mark.parametrize("profile", ["cpu", "cpu:x86-64-v3", "cpu:x86-64-v2"])
def test_scales_of_16_bits_are_read_to_the_bit_from_the_least_to_the_largest(profile: str) -> None:
    target = resolve(profile)
    if not target.is_here:
        pytest.skip(f"this machine cannot run {profile}")
    case = draws(bound(product(1, 32, 80)), 1)[0]
    exponents = (-24, -23, -16, -15, -14, 0, 15)
    scales = np.resize([sign * 2.0**one for one in exponents for sign in (1, -1)], (80, 1)).astype(np.float32)
    matrix = scales * np.resize(np.arange(-7, 8), 32).astype(np.float32)
    encoding = Quantised.of(4, 1, 32, centred=True, scale=16)
    found = encoded(replace(case, inputs=(np.eye(1, 32, 3, np.float32), matrix)), encoding, matrix, target)
    assert found is not None
    (got,) = Library.of([found], target, optimise="-O1").run(0, found)
    np.testing.assert_array_equal(got[0], matrix[:, 3])


def test_blocks_along_the_columns_serve_no_product() -> None:
    case = draws(bound(product(1, 256, 64)), 1)[0]
    encoding = Quantised.of(4, 0, 32, centred=True)
    matrix = quantised(np.random.default_rng(3), case.inputs[MATRIX].shape, encoding)
    assert encoded(case, encoding, matrix, this_machine()) is None


def test_codes_of_every_width_are_multiplied_also_without_an_instruction_for_bytes() -> None:
    case = draws(bound(product(1, 256, 64)), 1)[0]
    for bits in BITS:
        for profile in ("cpu:x86-64-v3", "cpu:x86-64-v4-vnni"):
            encoding = Quantised.of(bits, 1, 32, centred=True)
            matrix = quantised(np.random.default_rng(3), case.inputs[MATRIX].shape, encoding)
            assert encoded(case, encoding, matrix, resolve(profile)) is not None, (bits, profile)


def test_codes_of_many_rows_are_made_floats_where_no_instruction_multiplies_bytes() -> None:
    for rows, profile, wanted in (
        (1, "cpu:x86-64-v3", READ_BY),
        (64, "cpu:x86-64-v3", READ_AS_FLOATS),
        (64, "cpu:x86-64-v4-vnni", READ_BY),
    ):
        case = replace(draws(bound(product(rows, 512, 256)), 1)[0], constant=(MATRIX,))
        workload = encoded_workload(case.workload, Quantised.of(4, 1, 32, centred=True))
        best = min(quantised_tiles(workload, resolve(profile), 1), key=lambda one: (one.error, one.seconds))
        assert best.tile.algorithm == wanted, (rows, profile)

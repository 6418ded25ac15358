"""Each intrinsic against loops of its own, in every mode, accesses checked.

Layouts are as the PTX ISA draws them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from tests.cuda_double.demonstration import KERNELS, numbers
from tests.cuda_double.double import (
    HEADERS,
    MODES,
    SCALARS,
    Device,
    Fault,
    Mode,
    TensorMap,
    compile_kernels,
    compiler_there,
)
from tests.cuda_double.layouts import (
    BOXES,
    LANES,
    SWIZZLE_CODES,
    G,
    T,
    fragments,
    k_major,
    mn_major,
    sparse_byte_fragments,
    sparse_byte_rows,
    sparse_fragments,
    sparse_rows,
    swizzle,
)
from tests.cuda_double.warpgroups import multiplied, sparsely_multiplied

pytestmark = pytest.mark.skipif(not compiler_there(), reason="the double of CUDA needs g++")

SOURCE = (KERNELS / "intrinsics.cu").read_text()
NAMES = (
    *re.findall(r"__global__ void (?!name\b)(?!__)(\w+)\(", SOURCE),
    *re.findall(
        r"^(?:LDMATRIX|MMA|MMA_SP|TENSOR_LOAD|WGMMA|BYTE_WGMMA|WGMMA_SP|BYTE_WGMMA_SP)\((\w+)", SOURCE, re.MULTILINE
    ),
)


@pytest.fixture(scope="module")
def module() -> Path:
    return compile_kernels(SOURCE, "checked", "intrinsics.cu", kernels=NAMES)


@pytest.fixture(params=MODES, ids=Mode.short)
def device(request: pytest.FixtureRequest, module: Path) -> Iterator[Device]:
    with Device(module, request.param) as found:
        yield found


def test_both_headers_declare_the_same_intrinsics() -> None:
    def declared(text: str) -> set[str]:
        text = re.sub(r",? ?TW_AT\b", "", text)
        for number in ("16", "_16"):
            text = text.replace(f"TW_WGMMA{number}", "")
        return {
            re.sub(r"\s+", " ", name)
            for name in re.findall(r"TW_DEVICE ((?:\w|[ *])+\b\w+\([^)]*(?:\)\[\d\][^)]*)*\))", text)
        }

    shipped = declared((SCALARS / "tw_cuda.h").read_text())
    double = declared((HEADERS / "tw_cuda.h").read_text())
    assert len(shipped) > 55
    matrix = {
        text for text in shipped | double if "wgmma_k" in text
    }  # templates here, one overload for each shape there
    assert shipped - matrix == double - matrix


# ---- Conversions -----------------------------------------------------------------------------------------------------


def test_conversions_round_as_ieee_says(device: Device) -> None:
    halves = np.arange(65536, dtype=np.uint16)
    special = [
        0.0,
        -0.0,
        65504,
        65519.9,
        65520,
        1e9,
        6e-8,
        2.9e-8,
        3e-8,
        -6.1e-5,
        np.inf,
        -np.inf,
        np.nan,
        127.5,
        126.5,
        -128.5,
        -300,
        0.5,
        1.5,
        2.5,
    ]
    bits = np.random.default_rng(1).integers(0, 1 << 32, 65536 - len(special), dtype=np.uint32)
    x = np.concatenate([np.array(special, np.float32), bits.view(np.float32)])
    n = len(x)
    out = {
        "from_f16": np.float32,
        "from_bf16": np.float32,
        "to_f16": np.uint16,
        "to_bf16": np.uint16,
        "to_tf32": np.uint32,
        "to_s8": np.int32,
    }
    buffers = [device.allocate(n * np.dtype(dtype).itemsize) for dtype in out.values()]
    device.launch("convert", [n // 256], [256], [device.upload(x), device.upload(halves), *buffers, n])
    found = {
        name: device.download(buffer, (n,), dtype) for (name, dtype), buffer in zip(out.items(), buffers, strict=True)
    }

    np.testing.assert_array_equal(found["from_f16"], halves.view(np.float16).astype(np.float32))
    np.testing.assert_array_equal(found["from_bf16"], (halves.astype(np.uint32) << 16).view(np.float32))
    number = ~np.isnan(x)
    with np.errstate(over="ignore", invalid="ignore"):
        np.testing.assert_array_equal(found["to_f16"][number], x[number].astype(np.float16).view(np.uint16))
        np.testing.assert_array_equal(found["to_bf16"][number], x[number].astype(ml_dtypes.bfloat16).view(np.uint16))
        expected_s8 = np.clip(np.rint(np.where(number, x, 0)), -128, 127).astype(np.int32)
    np.testing.assert_array_equal(found["to_s8"], expected_s8)
    assert np.isnan(found["to_f16"][~number].view(np.float16)).all()

    finite = np.isfinite(x) & (np.abs(x) < 1e38)
    rounded = found["to_tf32"].view(np.float32)[finite].astype(np.float64)
    exact = x[finite].astype(np.float64)
    step = np.exp2(np.maximum(np.floor(np.log2(np.maximum(np.abs(exact), 2.0**-149))), -126) - 10)
    assert (np.abs(rounded - exact) <= step / 2).all()
    assert not (found["to_tf32"] & 0x1FFF).any()
    ties = np.array([1 + 2.0**-11, -1 - 2.0**-11, 1 + 3 * 2.0**-11], np.float32)
    tie_out = [device.allocate(12) for _ in range(6)]
    device.launch("convert", [1], [32], [device.upload(ties), device.upload(halves), *tie_out, 3])
    np.testing.assert_array_equal(
        device.download(tie_out[4], (3,), np.float32),
        np.array([1 + 2.0**-10, -1 - 2.0**-10, 1 + 2 * 2.0**-10], np.float32),
    )


def test_pairs_have_the_first_value_in_the_lower_half(device: Device) -> None:
    x = np.array([1.5, -2.25], np.float32)
    packed, unpacked = device.allocate(8), device.allocate(16)
    device.launch("pairs", [1], [1], [device.upload(x), packed, unpacked])
    words = device.download(packed, (2,), np.uint32).view(np.uint16)
    np.testing.assert_array_equal(words[:2].view(np.float16), x.astype(np.float16))
    np.testing.assert_array_equal(words[2:].view(ml_dtypes.bfloat16), x.astype(ml_dtypes.bfloat16))
    np.testing.assert_array_equal(device.download(unpacked, (4,), np.float32), np.tile(x, 2))


def test_approximations_are_within_their_stated_errors(device: Device) -> None:
    x = np.linspace(-20, 20, 64, dtype=np.float32)
    exp2, tanh = device.allocate(256), device.allocate(256)
    device.launch("approximations", [1], [64], [device.upload(x), exp2, tanh])
    np.testing.assert_allclose(device.download(exp2, (64,), np.float32), np.exp2(x.astype(np.float64)), rtol=2.0**-22)
    np.testing.assert_allclose(device.download(tanh, (64,), np.float32), np.tanh(x.astype(np.float64)), rtol=2.0**-10.9)


# ---- Collectives -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("by", "width"), [(1, 32), (5, 32), (3, 8), (16, 16), (31, 32), (0, 4)])
def test_shuffles_stay_in_their_segment(device: Device, by: int, width: int) -> None:
    x = numbers((32,), 2).view(np.int32)
    out = device.allocate(512)
    device.launch("shuffles", [1], [32], [device.upload(x), out, by, width])
    first = LANES // width * width
    sources = (
        first + by % width,
        np.where(LANES - by >= first, LANES - by, LANES),
        np.where(LANES + by < first + width, LANES + by, LANES),
        np.where((LANES ^ by) < first + width, LANES ^ by, LANES),
    )
    np.testing.assert_array_equal(device.download(out, (4, 32), np.int32), np.stack([x[source] for source in sources]))


@pytest.mark.parametrize("mask", [0xFFFFFFFF, 0x0000FFFF, 0x55555555, 0x80000001])
def test_votes_count_the_lanes_of_their_mask_alone(device: Device, mask: int) -> None:
    x = np.random.default_rng(3).integers(-4, 4, 32).astype(np.int32)
    out = device.allocate(12 * 128)
    device.launch("votes", [1], [32], [device.upload(x), out, np.uint32(mask)])
    found = device.download(out, (12, 32), np.int32).view(np.uint32)
    for lane in range(32):
        group = [other for other in range(32) if (mask >> other & 1) == (mask >> lane & 1)]
        values = x[group]
        bits = np.sum([1 << other for other in group])

        def ballot(holds: np.ndarray, group: list[int] = group) -> int:
            return sum(1 << other for other, yes in zip(group, holds, strict=True) if yes)

        quotients = np.trunc(values / 100).astype(int)
        expected = [
            ballot(values > 0),
            (values > 2).any(),
            (values > -3).all(),
            ballot(values == x[lane]),
            bits if (quotients == quotients[0]).all() else 0,
            (quotients == quotients[0]).all(),
            values.sum(),
            values.min(),
            values.max(),
            np.bitwise_and.reduce(values),
            np.bitwise_or.reduce(values),
            np.bitwise_xor.reduce(values),
        ]
        assert [int(number) & 0xFFFFFFFF for number in expected] == found[:, lane].tolist(), lane


@pytest.mark.parametrize("positive", [0, 1, 70, 96])
def test_barriers_of_a_block_count_predicates(device: Device, positive: int) -> None:
    x = np.where(np.arange(96) < positive, 1, -1).astype(np.int32)
    out = device.allocate(3 * 96 * 4)
    device.launch("block_votes", [1], [96], [device.upload(x), out])
    found = device.download(out, (3, 96), np.int32)
    assert (found[0] == positive).all()
    assert (found[1] == (positive == 96)).all()
    assert (found[2] == (positive > 0)).all()


@pytest.mark.parametrize("positive", [0, 1, 64])
def test_barriers_of_a_block_are_for_threads_that_have_not_ended(device: Device, positive: int) -> None:
    x = np.where(np.arange(64) < positive, 1, -1).astype(np.int32) * np.arange(1, 65, dtype=np.int32)
    out = device.allocate(4 * 64 * 4)
    device.launch("block_votes_of_some", [1], [160], [device.upload(x), out, 64], shared=256)
    found = device.download(out, (4, 64), np.int32)
    np.testing.assert_array_equal(found[:3], np.repeat([[positive], [positive == 64], [positive > 0]], 64, axis=1))
    np.testing.assert_array_equal(found[3], x[::-1])


def test_atomics_of_many_blocks(device: Device) -> None:
    x = np.random.default_rng(4).integers(-1000, 1000, 192).astype(np.int32)
    counters = device.upload(np.array([0, 5000, -5000, -1, 0, 0], np.int32))
    total, wrapped, swapped = (
        device.upload(np.zeros(1, np.float32)),
        device.upload(np.zeros(1, np.uint32)),
        device.upload(np.zeros(2, np.uint32)),
    )
    device.launch("atomics", [3], [64], [device.upload(x), counters, total, wrapped, swapped])
    expected = [x.sum(), x.min(), x.max(), np.bitwise_and.reduce(x), np.bitwise_or.reduce(x), np.bitwise_xor.reduce(x)]
    np.testing.assert_array_equal(device.download(counters, (6,), np.int32), expected)
    assert device.download(total, (1,), np.float32)[0] == x.sum()
    assert device.download(wrapped, (1,), np.uint32)[0] == 192 % 10
    last = device.download(swapped, (2,), np.uint32)
    assert last[0].astype(np.int32) in x


# ---- Copies and barriers ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [0, 3, 8, 16])
def test_copies_fill_what_is_not_read_with_zeros(device: Device, count: int) -> None:
    x = np.random.default_rng(5).integers(1, 127, 512).astype(np.int8)
    out = device.allocate(2048)
    device.launch("copies", [1], [32], [device.upload(x), out, count], shared=2048)
    found = device.download(out, (2048,), np.int8)
    for start, size in ((0, 16), (512, 8), (1024, 4)):
        expected = x[: 32 * size].reshape(32, size).copy()
        expected[:, min(count, size) :] = 0
        np.testing.assert_array_equal(found[start : start + 32 * size].reshape(32, size), expected)


@pytest.mark.parametrize(("kernel", "threads"), [("copies_by_mbarrier", 64), ("named_barriers", 128)])
def test_producers_and_consumers_take_turns(device: Device, kernel: str, threads: int) -> None:
    rounds = 5
    x = numbers((rounds, 32), 6)
    out = device.allocate(2 * x.nbytes)
    device.launch(kernel, [1], [threads], [device.upload(x), out, rounds], shared=256)
    found = device.download(out, (2, rounds, 32), np.float32)
    if kernel == "copies_by_mbarrier":
        np.testing.assert_array_equal(found[0], x[:, ::-1] + 1)
    else:
        np.testing.assert_array_equal(found, np.stack([x[:, ::-1]] * 2))


# ---- Fragments -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("matrices", [1, 2, 4])
def test_ldmatrix_gives_each_lane_its_pair(device: Device, matrices: int, transposed: bool) -> None:
    pitch = 24
    x = np.arange(8 * matrices * pitch, dtype=np.uint16).reshape(8 * matrices, pitch)
    out = device.allocate(matrices * 128)
    device.launch(
        f"ldmatrix_x{matrices}{'_trans' * transposed}",
        [1],
        [32],
        [device.upload(x), out, 8 * matrices, pitch],
        shared=x.nbytes,
    )
    found = device.download(out, (matrices, 32, 2), np.uint16)
    for matrix in range(matrices):
        elements = x[8 * matrix : 8 * matrix + 8, :8]
        elements = elements.T if transposed else elements
        for lane in range(32):  # row lane / 4, elements 2 (lane % 4) and the next
            np.testing.assert_array_equal(found[matrix, lane], elements[lane // 4, lane % 4 * 2 : lane % 4 * 2 + 2])


@pytest.mark.parametrize("kind", ["m16n8k16_f16", "m16n8k16_bf16", "m16n8k8_tf32"])
def test_mma_multiplies_fragments(device: Device, kind: str) -> None:
    k = int(re.findall(r"k(\d+)", kind)[0])
    dtype = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "tf32": np.float32}[kind.split("_")[1]]
    a, b, d = numbers((16, k), 8).astype(dtype), numbers((k, 8), 9).astype(dtype), numbers((16, 8), 10)
    if dtype is np.float32:  # as tw_to_tf32 leaves them; the lower bits are not read
        a, b = ((x.view(np.uint32) & 0xFFFFE000).view(np.float32) for x in (a, b))
    found, expected = product_of_fragments(device, kind, a, b, d)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("before", "products", "after"),
    [
        (1.0, [1.5 * 2**-24], 1.0),  # nearest would be 1 + 2^-23
        (-1.0, [-1.5 * 2**-24], -1.0),  # toward zero
        (1.0, [-(2**-25)], 1.0),  # below the one bit behind those of a float
        (1.0, [-(2**-24)], 1 - 2**-24),
        (1.0, [2**-24, 2**-24], 1 + 2**-23),  # the bit behind is kept until all are added
        (1.0, [2**-25] * 4, 1.0),  # each is cut off where it is aligned
        (0.0, [1.0, 2**-25, -1.0], 0.0),
        (0.0, [2.0**-20, 2.0**-28], 2.0**-20 * (1 + 2**-8)),
    ],
)
@pytest.mark.parametrize("kind", ["m16n8k8_tf32", "m16n8k16_f16", "m16n8k16_bf16"])
def test_tensor_cores_cut_off_what_is_below_the_largest_addend(
    device: Device, kind: str, before: float, products: list[float], after: float
) -> None:
    k, dtype = (8, np.float32) if kind.endswith("tf32") else (16, np.float16 if "_f16" in kind else ml_dtypes.bfloat16)
    a, b = np.zeros((16, k), dtype), np.zeros((k, 8), dtype)
    for at, product in enumerate(products):
        half = 2.0 ** (np.floor(np.log2(abs(product))) // 2)
        a[:, at], b[at] = half, product / half
    found, _ = product_of_fragments(device, kind, a, b, np.full((16, 8), before, np.float32))
    np.testing.assert_array_equal(found, np.float32(after))


def test_what_is_infinite_or_no_number_stays_so_in_tensor_cores(device: Device) -> None:
    a, b = np.ones((16, 8), np.float32), np.ones((8, 8), np.float32)
    a[1, 3], a[2, 3], a[3, 3] = np.inf, -np.inf, np.nan
    b[:, 1] = 2.0**-60
    found, expected = product_of_fragments(device, "m16n8k8_tf32", a, b, np.full((16, 8), 2.0, np.float32))
    assert np.isnan(expected).any()
    assert np.isinf(expected).any()
    np.testing.assert_array_equal(found, expected.astype(np.float32))


@pytest.mark.parametrize("kind", ["s8", "u8", "u8_s8", "s8_u8"])
def test_mma_multiplies_fragments_of_bytes(device: Device, kind: str) -> None:
    """Of the dtypes of a and b in this order; of one where they are the same."""
    random, dtypes = np.random.default_rng(7), {"s8": np.int8, "u8": np.uint8}
    a_type, b_type = (dtypes[kind.split("_")[at]] for at in (0, -1))
    limits_a, limits_b = np.iinfo(a_type), np.iinfo(b_type)
    a = random.integers(limits_a.min, limits_a.max + 1, (16, 32)).astype(a_type)
    b = random.integers(limits_b.min, limits_b.max + 1, (32, 8)).astype(b_type)
    d = random.integers(-1000, 1000, (16, 8)).astype(np.int32)
    found, expected = product_of_fragments(device, f"m16n8k32_{kind}", a, b, d)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("selector", [0, 1])
@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_sparse_mma_multiplies_what_is_given_where_its_indices_say(device: Device, kind: str, selector: int) -> None:
    dtype = {"f16": np.float16, "bf16": ml_dtypes.bfloat16}[kind]
    random = np.random.default_rng(11)
    kept = np.argsort(random.random((16, 8, 4)), axis=-1) < 2
    a = np.where(kept.reshape(16, 32), numbers((16, 32), 12) + 3, 0).astype(dtype)
    b, d = numbers((32, 8), 13).astype(dtype), numbers((16, 8), 14)
    b[1, 3] = np.inf
    found, expected = sparse_product(device, kind, a, b, d, selector)
    assert 0 < np.isinf(expected).sum() < 16
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def sparse_product(
    device: Device, kind: str, a: np.ndarray, b: np.ndarray, d: np.ndarray, selector: int
) -> tuple[np.ndarray, np.ndarray]:
    """Registers of d + a b by mma.sp, and as they should be: zeros of a are not multiplied."""
    rows, columns = G[:, None] + np.array([0, 0, 8, 8]), 2 * T[:, None] + np.array([0, 1, 0, 1])
    operands = [device.upload(registers) for registers in sparse_fragments(a, b, selector)]
    sums = device.upload(np.ascontiguousarray(d[rows, columns].T))
    device.launch(f"mma_sp_{kind}_{selector}", [1], [32], [*operands, sums])
    wide_a, wide_b = a[:, :, None].astype(np.float64), b[None].astype(np.float64)
    products = np.multiply(wide_a, wide_b, out=np.zeros((16, 32, 8)), where=wide_a != 0)
    return device.download(sums, (4, 32), np.float32), (d + products.sum(1))[rows, columns].T


@pytest.mark.parametrize("kind", ["s8", "s8_u8"])
def test_sparse_mma_of_bytes_neither_saturates_nor_reads_what_no_index_names(device: Device, kind: str) -> None:
    """Of the dtypes of a and b in this order; sums wrap around."""
    random, b_type = np.random.default_rng(15), np.uint8 if kind.endswith("u8") else np.int8
    kept = np.argsort(random.random((16, 16, 4)), axis=-1).reshape(16, 64) < 2
    values: np.ndarray = random.integers(1, 129, (16, 64)) * random.choice([-1, 1], (16, 64))
    a = (values.clip(-128, 127) * kept).astype(np.int8)
    b = random.integers(np.iinfo(b_type).min, np.iinfo(b_type).max + 1, (64, 8)).astype(b_type)
    b[5] = np.iinfo(b_type).max
    d: np.ndarray = random.integers(-1000, 1000, (16, 8)).astype(np.int32)
    d[2:4, 1] = np.iinfo(np.int32).max, np.iinfo(np.int32).min
    rows, columns = G[:, None] + np.array([0, 0, 8, 8]), 2 * T[:, None] + np.array([0, 1, 0, 1])
    operands = [device.upload(registers) for registers in sparse_byte_fragments(a, b)]
    sums = device.upload(np.ascontiguousarray(d[rows, columns].T))
    device.launch(f"mma_sp_{kind}_0", [1], [32], [*operands, sums])
    expected = (d + a.astype(np.int64) @ b.astype(np.int64)).astype(np.int32)
    np.testing.assert_array_equal(device.download(sums, (4, 32), np.int32), expected[rows, columns].T)


@pytest.mark.parametrize("places", [0b0000, 0b0101, 0b1010, 0b1111, 0b0001])
@pytest.mark.parametrize("at", [0, 13, 30])
def test_the_double_refuses_metadata_of_bytes_that_is_undefined(module: Path, places: int, at: int) -> None:
    a, b = np.tile(np.array([1, 0, 1, 0], np.int8), (16, 16)), np.ones((64, 8), np.int8)
    *fragments_of_both, metadata = sparse_byte_fragments(a, b)
    metadata[at] = metadata[at] & ~np.uint32(0xF0000000) | np.uint32(places << 28)
    with Device(module, MODES[0]) as device:
        operands = [device.upload(registers) for registers in (*fragments_of_both, metadata)]
        sums = device.upload(np.zeros((4, 32), np.int32))
        with pytest.raises(Fault, match="protocol"):
            device.launch("mma_sp_s8_0", [1], [32], [*operands, sums])


@pytest.mark.parametrize("places", [0b0000, 0b0101, 0b1010, 0b1111, 0b0001])
def test_the_double_refuses_metadata_that_is_undefined(module: Path, places: int) -> None:
    a, b = np.tile(np.array([1, 0, 1, 0], np.float16), (16, 8)), np.ones((32, 8), np.float16)
    *fragments_of_both, metadata = sparse_fragments(a, b, 0)
    metadata[5] = metadata[5] & ~np.uint32(0xF00) | np.uint32(places << 8)
    with Device(module, MODES[0]) as device:
        operands = [device.upload(registers) for registers in (*fragments_of_both, metadata)]
        sums = device.upload(np.zeros((4, 32), np.float32))
        with pytest.raises(Fault, match="protocol"):
            device.launch("mma_sp_f16_0", [1], [32], [*operands, sums])


def product_of_fragments(
    device: Device, kind: str, a: np.ndarray, b: np.ndarray, d: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Registers of d + a b as a warp computes them, and as they should be."""
    rows, columns = G[:, None] + np.array([0, 0, 8, 8]), 2 * T[:, None] + np.array([0, 1, 0, 1])
    registers_a, registers_b = fragments(a, b, 4 // a.itemsize)
    sums = device.upload(np.ascontiguousarray(d[rows, columns].T))
    device.launch(f"mma_{kind}", [1], [32], [device.upload(registers_a), device.upload(registers_b), sums])
    found = device.download(sums, (4, 32), d.dtype)
    expected = d.astype(np.float64) + a.astype(np.float64) @ b.astype(np.float64)
    return found, expected[rows, columns].T


# ---- Bulk copies and clusters ----------------------------------------------------------------------------------------


def test_a_bulk_copy_brings_bytes(device: Device) -> None:
    x = np.random.default_rng(11).integers(-128, 128, 400).astype(np.int8)
    out = device.allocate(400)
    device.launch("bulk", [1], [64], [device.upload(x), out, 400], shared=1024)
    np.testing.assert_array_equal(device.download(out, (400,), np.int8), x)


@pytest.mark.parametrize(
    ("dtype", "sizes", "box", "at", "width"),
    BOXES,
)
def test_tensor_copies_bring_a_swizzled_box_and_zeros_beyond(
    device: Device, dtype: str, sizes: tuple[int, ...], box: tuple[int, ...], at: tuple[int, ...], width: int
) -> None:
    x = np.random.default_rng(12).integers(1, 100, sizes[::-1]).astype(dtype)
    size = int(np.prod(box)) * x.itemsize
    buffer, out = device.upload(x), device.allocate(size)
    coordinates = [*at, 0, 0, 0][:5]
    device.launch(
        f"tma_load_{len(sizes)}d",
        [1],
        [32],
        [TensorMap(buffer, dtype, sizes, box, width), out, size, *coordinates],
        shared=size + 64,
    )
    found = device.download(out, (size,), np.uint8)
    expected = np.zeros(box[::-1], x.dtype)
    for position in np.ndindex(*expected.shape):
        source = tuple(int(i + first) for i, first in zip(position, at[::-1], strict=True))
        if all(0 <= i < limit for i, limit in zip(source, x.shape, strict=True)):
            expected[position] = x[source]
    dense = expected.view(np.uint8).reshape(-1)
    np.testing.assert_array_equal(found[swizzle(np.arange(size), width)], dense)


def test_a_tensor_store_leaves_out_what_is_beyond(device: Device) -> None:
    x = np.zeros((6, 24), np.uint16)
    buffer = device.upload(x)
    device.launch("tma_store_2d", [1], [32], [TensorMap(buffer, "float16", (24, 6), (16, 4), 0), 64, 16, 4], shared=128)
    x[4:, 16:] = np.arange(64).reshape(4, 16)[:2, :8]
    np.testing.assert_array_equal(device.download(buffer, x.shape, np.uint16), x)


def test_multicast_reaches_every_block_of_the_cluster(device: Device) -> None:
    x = numbers((4, 8), 13)
    out = device.allocate(2 * x.nbytes)
    device.launch(
        "multicast",
        [2],
        [32],
        [TensorMap(device.upload(x), "float32", (8, 4), (8, 4), 0), out, 32],
        shared=256,
        cluster=[2],
    )
    np.testing.assert_array_equal(device.download(out, (2, 4, 8), np.float32), np.stack([x, x + 1]))


def test_blocks_of_a_cluster_write_to_each_other(device: Device) -> None:
    out = device.allocate(8 * 4)
    device.launch("ring", [8], [32], [out], shared=64, cluster=[4])
    np.testing.assert_array_equal(device.download(out, (8,), np.int32), [3, 0, 1, 2] * 2)


# ---- wgmma -----------------------------------------------------------------------------------------------------------


WGMMA = [name for name in NAMES if name.startswith("wgmma")]


@pytest.mark.parametrize("width", [128, 64, 32, 0])
@pytest.mark.parametrize("kernel", WGMMA)
def test_wgmma_multiplies_what_lies_in_shared_memory(module: Path, kernel: str, width: int) -> None:
    _, kind, *mn, columns = kernel.split("_")
    n, k, itemsize = int(columns[1:]), (8 if kind == "tf32" else 16), (4 if kind == "tf32" else 2)
    if (mn and width * 8 // (8 * itemsize) > n) or (mn and not width):
        width = 128
    dtype = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "tf32": np.float32}[kind]
    a, b, d = numbers((64, k), 14).astype(dtype), numbers((n, k), 15).astype(dtype), numbers((64, n), 16)
    if kind == "tf32":
        a, b = ((x.view(np.uint32) & 0xFFFFE000).view(np.float32) for x in (a, b))
    layout = mn_major if mn else k_major
    (bytes_a, leading, stride), (bytes_b, *other) = layout(a, width), layout(b, width)
    assert other == [leading, stride]
    for accumulate, mode in ((1, MODES[0]), (0, MODES[3]), (1, MODES[6])):
        with Device(module, mode) as device:
            parameters = [leading, stride, SWIZZLE_CODES[width], accumulate]
            found = multiplied(device, kernel, bytes_a, bytes_b, d, parameters)
        expected = accumulate * d.astype(np.float64) + a.astype(np.float64) @ b.astype(np.float64).T
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


BYTE_WGMMA = [name for name in NAMES if name.startswith("byte_wgmma")]


@pytest.mark.parametrize("width", [128, 64, 32, 0])
@pytest.mark.parametrize("kernel", BYTE_WGMMA)
def test_wgmma_of_bytes_is_exact_and_wraps_around(module: Path, kernel: str, width: int) -> None:
    n, unsigned = int(kernel.rpartition("_n")[2]), "_u8_" in kernel
    random = np.random.default_rng(25)
    a: np.ndarray = random.integers(0, 256, (64, 32)).astype(np.uint8 if unsigned else np.int8)
    b = random.integers(-128, 128, (n, 32)).astype(np.int8)
    d = random.choice([-(2**31), 2**31 - 1, 1000], (64, n)).astype(np.int32)
    (bytes_a, leading, stride), (bytes_b, *other) = k_major(a, width), k_major(b, width)
    assert other == [leading, stride]
    for accumulate, mode in ((1, MODES[0]), (0, MODES[3]), (1, MODES[6])):
        with Device(module, mode) as device:
            parameters = [leading, stride, SWIZZLE_CODES[width], accumulate]
            found = multiplied(device, kernel, bytes_a, bytes_b, d, parameters)
        expected = accumulate * d.astype(np.int64) + a.astype(np.int64) @ b.astype(np.int64).T
        assert (np.abs(expected) >= 2**31).any() == bool(accumulate)
        np.testing.assert_array_equal(found, expected.astype(np.int32))


SPARSE_WGMMA = [name for name in NAMES if name.startswith("sparse_wgmma")]


@pytest.mark.parametrize("kernel", SPARSE_WGMMA)
def test_sparse_wgmma_multiplies_what_is_given_where_its_indices_say(module: Path, kernel: str) -> None:
    *_, kind, selector, columns = kernel.split("_")
    dtype, n = {"f16": np.float16, "bf16": ml_dtypes.bfloat16}[kind], int(columns[1:])
    kept = np.argsort(np.random.default_rng(21).random((64, 8, 4)), axis=-1).reshape(64, 32) < 2
    a = np.where(kept, numbers((64, 32), 22) + 3, 0).astype(dtype)
    b, d = numbers((n, 32), 23).astype(dtype), numbers((64, n), 24)
    b[5, 7] = np.inf
    given, metadata = sparse_rows(a, int(selector))
    products = a.astype(np.float64)[:, None] * np.where(a[:, None] != 0, b[None].astype(np.float64), 0)
    for accumulate, mode in ((1, MODES[0]), (0, MODES[3]), (1, MODES[6])):
        with Device(module, mode) as device:
            found = sparsely_multiplied(device, kernel, given, b, d, metadata, accumulate)
        expected = accumulate * d + products.sum(-1)
        assert 0 < np.isinf(expected).sum() < 64
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


BYTES_SPARSE_WGMMA = [name for name in NAMES if name.startswith("bytes_sparse_wgmma")]


@pytest.mark.parametrize("kernel", BYTES_SPARSE_WGMMA)
def test_sparse_wgmma_of_bytes_is_exact(module: Path, kernel: str) -> None:
    n, unsigned, random = int(kernel.rpartition("_n")[2]), "_u8_" in kernel, np.random.default_rng(26)
    kept = np.argsort(random.random((64, 16, 4)), axis=-1).reshape(64, 64) < 2
    a: np.ndarray = (random.integers(1, 128, (64, 64)) * random.choice([-1, 1], (64, 64)) * kept).astype(np.int8)
    b: np.ndarray = random.integers(0, 256, (n, 64)).astype(np.uint8).view(np.uint8 if unsigned else np.int8)
    d = random.choice([-(2**31), 2**31 - 1, 1000], (64, n)).astype(np.int32)
    given, metadata = sparse_byte_rows(a)
    for accumulate, mode in ((1, MODES[0]), (0, MODES[3]), (1, MODES[6])):
        with Device(module, mode) as device:
            found = sparsely_multiplied(device, kernel, given, b, d, metadata, accumulate)
        expected = accumulate * d.astype(np.int64) + a.astype(np.int64) @ b.astype(np.int64).T
        np.testing.assert_array_equal(found, expected.astype(np.int32))


@pytest.mark.parametrize("lane", [3, 66])
def test_sparse_wgmma_of_bytes_refuses_metadata_that_is_undefined(module: Path, lane: int) -> None:
    a, b = np.tile(np.array([1, 0, 1, 0], np.int8), (64, 16)), np.ones((16, 64), np.int8)
    given, metadata = sparse_byte_rows(a)
    metadata[lane] = metadata[lane] & ~np.uint32(0xF00) | np.uint32(0b0101 << 8)
    with Device(module, MODES[0]) as device, pytest.raises(Fault, match="protocol"):
        sparsely_multiplied(device, BYTES_SPARSE_WGMMA[0], given, b, np.zeros((64, 16), np.int32), metadata, 1)


@pytest.mark.parametrize(("kernel", "lane"), [("sparse_wgmma_f16_0_n16", 65), ("sparse_wgmma_bf16_1_n32", 99)])
def test_sparse_wgmma_refuses_metadata_that_is_undefined(module: Path, kernel: str, lane: int) -> None:
    *_, kind, selector, columns = kernel.split("_")
    dtype = {"f16": np.float16, "bf16": ml_dtypes.bfloat16}[kind]
    a, b = np.tile(np.array([1, 0, 1, 0], dtype), (64, 8)), np.ones((int(columns[1:]), 32), dtype)
    given, metadata = sparse_rows(a, int(selector))
    metadata[lane] = metadata[lane] & ~np.uint32(0xF00) | np.uint32(0b0101 << 8)
    with Device(module, MODES[0]) as device, pytest.raises(Fault, match="protocol"):
        sparsely_multiplied(device, kernel, given, b, np.zeros((64, len(b)), np.float32), metadata, 1)

"""Fragments of products, by the formulas of the manual from (lane, element) to (row, column).

The interpreter goes the other way, from (row, column) to (lane, element).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.ptx.copies import swizzled
from tests.ptx.fault import Fault
from tests.ptx.kernel import run
from tests.ptx.products import Descriptor

Place = Callable[[int, int, int], tuple[int, int]]
"""(groupID, threadID_in_group, i) to (row, column)."""


def a_of_16_bits(g: int, t: int, i: int) -> tuple[int, int]:
    """Registers a0 to a7 of mma.m16n8k16 with .f16, .bf16."""
    return (g if i in (0, 1, 4, 5) else g + 8), 2 * t + (i & 1) + (8 if i >= 4 else 0)


def b_of_16_bits(g: int, t: int, i: int) -> tuple[int, int]:
    return 2 * t + (i & 1) + (8 if i >= 2 else 0), g


def a_of_tf32(g: int, t: int, i: int) -> tuple[int, int]:
    """Registers a0 to a3 of mma.m16n8k8 with .tf32."""
    return (g if i in (0, 2) else g + 8), (t if i < 2 else t + 4)


def b_of_tf32(g: int, t: int, i: int) -> tuple[int, int]:
    return (t if i == 0 else t + 4), g


def a_of_8_bits(g: int, t: int, i: int) -> tuple[int, int]:
    """Elements a0 to a15 of mma.m16n8k32."""
    return (g if i < 4 or 8 <= i < 12 else g + 8), 4 * t + (i & 3) + (16 if i >= 8 else 0)


def b_of_8_bits(g: int, t: int, i: int) -> tuple[int, int]:
    return 4 * t + (i & 3) + (16 if i >= 4 else 0), g


def fragment(matrix: np.ndarray, place: Place, count: int) -> np.ndarray:
    """As uint32[lanes, registers]."""
    held = np.array([[matrix[place(lane // 4, lane % 4, i)] for i in range(count)] for lane in range(32)], matrix.dtype)
    return held.view(np.uint32)


def multiply(
    name: str, fragments: list[np.ndarray], sums: np.ndarray, metadata: np.ndarray | None = None, selector: int = 0
) -> np.ndarray:
    """D of an mma whose operands are registers in the order of lanes; `metadata` has a word of each lane."""
    words = [] if metadata is None else [metadata]
    given = np.concatenate([*fragments, sums.view(np.uint32), *words], axis=1)
    tail = "" if metadata is None else f", %r{given.shape[1] - 1}, {selector}"
    count = given.shape[1]
    loads = "".join(f"ld.global.b32 %r{at}, [%at+{4 * at}];" for at in range(count))
    lists, at = [], 0
    for one in (fragments[0], fragments[1], sums):
        lists.append("{" + ", ".join(f"%r{at + i}" for i in range(one.shape[1])) + "}")
        at += one.shape[1]
    body = f"""
    mad.wide.u32 %at, %tid, {4 * count}, %in0; {loads}
    {name} {{%r100, %r101, %r102, %r103}}, {lists[0]}, {lists[1]}, {lists[2]}{tail};
    mad.wide.u32 %at, %tid, 16, %out;
    st.global.v4.b32 [%at], {{%r100, %r101, %r102, %r103}};"""
    found = run(body, [given], np.zeros((32, 4), np.uint32)).view(sums.dtype)
    result = np.zeros((16, 8), sums.dtype)
    for lane in range(32):
        for i in range(4):
            result[(lane // 4 if i < 2 else lane // 4 + 8), 2 * (lane % 4) + (i & 1)] = found[lane, i]
    return result


def sums_of(matrix: np.ndarray) -> np.ndarray:
    """The fragment of C: c0 to c3."""
    return np.array(
        [
            [matrix[(lane // 4 if i < 2 else lane // 4 + 8), 2 * (lane % 4) + (i & 1)] for i in range(4)]
            for lane in range(32)
        ],
        matrix.dtype,
    )


@pytest.mark.parametrize(
    ("kind", "depth", "dtypes", "places", "counts"),
    [
        ("m16n8k16.row.col.f32.f16.f16.f32", 16, (np.float16,) * 2, (a_of_16_bits, b_of_16_bits), (8, 4)),
        ("m16n8k8.row.col.f32.tf32.tf32.f32", 8, (np.float32,) * 2, (a_of_tf32, b_of_tf32), (4, 2)),
        ("m16n8k32.row.col.s32.s8.u8.s32", 32, (np.int8, np.uint8), (a_of_8_bits, b_of_8_bits), (16, 8)),
        ("m16n8k32.row.col.s32.u8.s8.s32", 32, (np.uint8, np.int8), (a_of_8_bits, b_of_8_bits), (16, 8)),
    ],
)
def test_fragments_lie_where_the_manual_says(
    kind: str, depth: int, dtypes: tuple[type, type], places: tuple[Place, Place], counts: tuple[int, int]
) -> None:
    random = np.random.default_rng(5)
    whole = np.dtype(dtypes[0]).kind in "iu"
    a: np.ndarray = random.integers(0, 200 if whole else 9, (16, depth)).astype(dtypes[0])
    b: np.ndarray = random.integers(0, 200 if whole else 9, (depth, 8)).astype(dtypes[1])
    c = random.integers(-5, 5, (16, 8)).astype(np.int32 if whole else np.float32)
    fragments = [fragment(a, places[0], counts[0]), fragment(b, places[1], counts[1])]
    found = multiply(f"mma.sync.aligned.{kind}", fragments, sums_of(c))
    np.testing.assert_array_equal(found, c + a.astype(np.float64) @ b.astype(np.float64))


@pytest.mark.parametrize("selector", [0, 1])
def test_metadata_says_which_two_of_four_are_given(selector: int) -> None:
    random = np.random.default_rng(6)
    kept = np.argsort(random.random((16, 8, 4)), axis=-1).reshape(16, 32) < 2
    full = (random.integers(1, 9, (16, 32)) * kept).astype(np.float16)
    given = full[kept].reshape(16, 16)
    metadata = np.zeros((32, 1), np.uint32)
    for row in range(16):
        for group in range(8):
            low, high = np.flatnonzero(kept[row, 4 * group : 4 * group + 4])
            # Lane 4 * (row % 8) + 2 * selector has columns 0 to 15, the one behind it 16 to 31.
            lane = 4 * (row % 8) + 2 * selector + group // 4
            metadata[lane, 0] |= np.uint32((low | high << 2) << 16 * (row // 8) + 4 * (group % 4))
    b = random.integers(-8, 9, (32, 8)).astype(np.float16)

    def b_of_32(g: int, t: int, i: int) -> tuple[int, int]:
        return 2 * t + (i & 1) + 8 * (i // 2), g

    fragments = [fragment(given, a_of_16_bits, 8), fragment(b, b_of_32, 8)]
    name = "mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32"
    sums = np.zeros((32, 4), np.float32)
    found = multiply(name, fragments, sums, metadata, selector)
    np.testing.assert_array_equal(found, full.astype(np.float64) @ b.astype(np.float64))
    metadata[0] |= np.uint32(0xF)  # both in one place
    with pytest.raises(Fault, match="metadata"):
        multiply(name, fragments, sums, metadata, 0)


@pytest.mark.parametrize("width", [128, 64, 32])
def test_swizzles_permute_pieces_of_16_bytes_within_each_row_of_128(width: int) -> None:
    places = swizzled(np.arange(4096), width)
    assert sorted(places.tolist()) == list(range(4096))
    for offset in range(0, 4096, 16):
        row, piece = offset // 128, offset // 16 % 8
        mask = {128: row % 8, 64: row & 3, 32: row & 1}[width]
        assert places[offset] == row * 128 + 16 * (piece ^ mask)
        assert (places[offset : offset + 16] == places[offset] + np.arange(16)).all()


def test_descriptors_of_k_major_matrices() -> None:
    plain = Descriptor.of(0x100 >> 4 | (0x80 >> 4) << 16 | (0x400 >> 4) << 32)
    places = plain.k_major(16, 32)
    assert places[0, :16].tolist() == list(range(0x100, 0x110))
    assert places[1, 0] == 0x110  # rows of 16 bytes, eight of them a core matrix
    assert places[0, 16] == 0x180  # the next 16 bytes along k: the leading distance
    assert places[8, 0] == 0x500  # the next eight rows: the stride
    wide = Descriptor.of(0x2000 >> 4 | (0x400 >> 4) << 32 | 1 << 62)
    places = wide.k_major(16, 128)
    assert places[3, 16] == 0x2000 + 3 * 128 + (1 ^ 3) * 16
    assert places[8, 0] == 0x2400

"""Average pools between two QDQ pairs, against whole numbers: nothing of the compiler's computes what is wanted."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
import pytest

from compiler.devices.cpu.algorithms.byte_sums import MOST_COLUMNS, byte_sum_tiles, byte_sums_of
from compiler.devices.cpu.target import PROFILES, CpuTarget, runs_here
from compiler.ir.buffers import Buffer
from compiler.ir.tensor import DType, Layout
from tests.compiler.devices.cpu.library import Case, Library, case_of
from tests.compiler.rewrite.sketch import Sketch

TARGETS = {profile.vector_floats: profile for profile in reversed(PROFILES) if runs_here(profile)}
"""One target for each width of vectors."""
F32, I8, U8 = DType.F32, DType.I8, DType.U8


@dataclass(frozen=True)
class Pool:
    """An average pool of bytes; scales are whole numbers, so that the quotient of two has few digits or none."""

    shape: tuple[int, ...]
    kernel: tuple[int, ...]
    strides: tuple[int, ...] = (1, 1)
    pads: tuple[int, ...] = (0, 0, 0, 0)
    dilations: tuple[int, ...] = (1, 1)
    counts_padding: bool = False
    scales: tuple[int, int] = (1, 1)
    zeros: tuple[int, int] = (0, 0)
    dtypes: tuple[DType, DType] = (U8, U8)

    @property
    def image(self) -> np.ndarray:
        """Bytes of which half are the least or the greatest."""
        random, limits = np.random.default_rng(sum(self.shape)), np.iinfo(self.dtypes[0].numpy)
        plain = random.integers(limits.min, limits.max + 1, self.shape)
        ends = random.choice([limits.min, limits.max], self.shape)
        return np.where(random.random(self.shape) < 0.5, ends, plain).astype(self.dtypes[0].numpy)

    def case(self, *, layout: Layout | None = None) -> Case:
        """The one kernel that it becomes, of channels that lie last."""
        s = Sketch(0, F32)
        x = s.x(*self.shape, dtype=self.dtypes[0])
        floats = s("DequantizeLinear", x, s.c(self.scales[0]), s.c(self.zeros[0], self.dtypes[0]))
        attrs = {"kernel_shape": self.kernel, "strides": self.strides, "pads": self.pads, "dilations": self.dilations}
        mean = s("AveragePool", floats, count_include_pad=int(self.counts_padding), **attrs)
        graph = s.graph(s("QuantizeLinear", mean, s.c(self.scales[1]), s.c(self.zeros[1], self.dtypes[1])))
        made = case_of(graph, self.image)
        slots = (*made.kernel.inputs, *made.kernel.outputs)
        lying = layout or Layout.channels_last(len(self.shape))
        return replace(made, buffers=tuple(Buffer.whole(at, slot.type, lying) for at, slot in enumerate(slots)))

    def wanted(self) -> np.ndarray:
        """The same in whole numbers: ties go to even ones."""
        rank = len(self.kernel)
        pads = [(0, 0), (0, 0), *zip(self.pads[:rank], self.pads[rank:], strict=True)]
        differences = np.pad(self.image.astype(np.int64) - self.zeros[0], pads)
        inside = np.pad(np.ones(self.shape, np.int64), pads, constant_values=int(self.counts_padding))
        sums, counts = self._windows(differences), self._windows(inside)
        pairs = zip(sums.tolist(), counts.tolist(), strict=True)
        means = [Fraction(one * self.scales[0], count * self.scales[1]) for one, count in pairs]
        limits = np.iinfo(self.dtypes[1].numpy)
        rounded = np.asarray([round(mean) for mean in means]) + self.zeros[1]
        return np.asarray(np.clip(rounded, limits.min, limits.max), self.dtypes[1].numpy)

    def _windows(self, padded: np.ndarray) -> np.ndarray:
        """The sum of each window, in the order of the result's elements."""
        rank = len(self.kernel)
        reach = [(kernel - 1) * step + 1 for kernel, step in zip(self.kernel, self.dilations[:rank], strict=True)]
        views = np.lib.stride_tricks.sliding_window_view(padded, reach, tuple(range(2, 2 + rank)))
        every = tuple(slice(None, None, step) for step in (1, 1, *self.strides[:rank], *self.dilations[:rank]))
        return np.asarray(views[every].sum(tuple(range(-rank, 0)))).reshape(-1)


POOLS = (
    Pool((1, 64, 9, 8), (3, 3), pads=(1, 1, 1, 1), zeros=(112, 7)),
    Pool((2, 70, 6, 5), (3, 3), pads=(1, 1, 1, 1), counts_padding=True, zeros=(255, 0), scales=(3, 2)),
    Pool((1, 130, 7, 9), (2, 2), (2, 2), dtypes=(I8, I8), zeros=(-128, 3), scales=(1, 2)),
    Pool((1, 21, 8, 9), (2, 4), (1, 2), (1, 0, 0, 2), dtypes=(I8, U8), zeros=(5, 130)),
    Pool((1, 16, 9, 7), (3, 2), (2, 1), (0, 1, 1, 0), (2, 1), dtypes=(U8, I8), zeros=(31, -9), scales=(5, 4)),
    Pool((1, 33, 1, 2 * MOST_COLUMNS + 9), (1, 3), (1, 2), (0, 1, 0, 1), zeros=(9, 1)),
    Pool((1, 40, 19), (4,), (1,), (2, 1), (2,), zeros=(200, 100), scales=(2, 1)),
    Pool((1, 64, 12, 11), (5, 5), pads=(2, 2, 2, 2), zeros=(3, 3), scales=(4, 3)),
    Pool((1, 35, 4, 40), (1, 25), zeros=(13, -100), dtypes=(I8, I8)),
)
"""Windows of 2, 4 and 8 taps have means halfway between two bytes."""


def judge(target: CpuTarget) -> None:
    """Every pool, cut into two calls, gives the bytes that whole numbers do."""
    cases = [
        replace(case, tile=byte_sum_tiles(case.workload, target, 1)[0].tile, cuts=(0.3,))
        for case in (pool.case() for pool in POOLS)
    ]
    library = Library.of(cases, target, "-O1")
    for number, (pool, case) in enumerate(zip(POOLS, cases, strict=True)):
        (got,) = library.run(number, case)
        np.testing.assert_array_equal(got.reshape(-1), pool.wanted(), f"{pool}\n{library.lowered[number].text}")


@pytest.mark.parametrize("width", TARGETS)
def test_averages_of_bytes_are_those_of_whole_numbers(width: int) -> None:
    judge(TARGETS[width])


def chained(s: Sketch, x: int, other: int) -> int:
    """A pool whose means are clamped, added to other bytes and looked up in a table."""
    mean = s("AveragePool", s("DequantizeLinear", x, s.c(0.5), s.c(9, U8)), kernel_shape=(3, 3), pads=(1, 1, 1, 1))
    added = s("Add", s("Relu", mean), s("DequantizeLinear", other, s.c(0.25), s.c(3, I8)))
    table = s.c(s.rng.permutation(256), U8)
    return s("ByteTable", s("QuantizeLinear", added, s.c(0.75), s.c(2, U8)), table)


@pytest.mark.parametrize("width", TARGETS)
def test_maps_that_follow_read_other_bytes_and_tables(width: int) -> None:
    target, s = TARGETS[width], Sketch(3, F32)
    x, other = s.x(1, 70, 6, 5, dtype=U8), s.x(1, 70, 6, 5, dtype=I8)
    bytes = (
        s.rng.integers(0, 256, (1, 70, 6, 5)).astype(np.uint8),
        s.rng.integers(-128, 128, (1, 70, 6, 5)).astype("i1"),
    )
    made = case_of(s.graph(chained(s, x, other)), *bytes)
    assert byte_sums_of(made.workload) is not None
    case = replace(made, tile=byte_sum_tiles(made.workload, target, 1)[0].tile)
    (got,) = Library.of([case], target, "-O1").run(0, case)
    wide = np.pad(bytes[0].astype(np.int64) - 9, ((0, 0), (0, 0), (1, 1), (1, 1)))
    sums = np.lib.stride_tricks.sliding_window_view(wide, (3, 3), (2, 3)).sum((-2, -1))
    ones = np.pad(np.ones((6, 5)), 1)
    counts = np.lib.stride_tricks.sliding_window_view(ones, (3, 3)).sum((-2, -1))
    added = np.maximum(0.5 * sums / counts, 0) + 0.25 * (bytes[1].astype(np.int64) - 3)
    (table,) = (array for array in made.inputs if array.shape == (256,))
    want = table[np.clip(np.rint(added / 0.75) + 2, 0, 255).astype(np.int64)]
    np.testing.assert_array_equal(got, want)


def test_what_is_contiguous_along_no_channel_and_what_ends_in_floats_is_left_to_others() -> None:
    pool = Pool((1, 64, 9, 8), (3, 3), (2, 2))
    assert byte_sums_of(pool.case().workload) is not None
    assert byte_sums_of(pool.case(layout=Layout.plain(4)).workload) is None
    s = Sketch(0, F32)
    floats = s("DequantizeLinear", s.x(*pool.shape, dtype=U8), s.c(0.5))
    mean = case_of(s.graph(s("AveragePool", floats, kernel_shape=(3, 3))), pool.image)
    assert byte_sums_of(mean.workload) is None


def test_maps_that_differ_from_channel_to_channel_are_left_to_others() -> None:
    s = Sketch(0, F32)
    mean = s("AveragePool", s("DequantizeLinear", s.x(1, 64, 9, 8, dtype=U8), s.c(0.5)), kernel_shape=(2, 2))
    scaled = s("Mul", mean, s.c(np.arange(1.0, 65.0).reshape(64, 1, 1)))
    graph = s.graph(s("QuantizeLinear", scaled, s.c(4.0), s.c(7, U8)))
    assert byte_sums_of(case_of(graph, Pool((1, 64, 9, 8), (2, 2)).image).workload) is None


def test_sums_that_16_bits_may_not_hold_are_left_to_others() -> None:
    assert byte_sums_of(Pool((1, 16, 33, 33), (16, 16), (16, 16)).case().workload) is not None
    assert byte_sums_of(Pool((1, 16, 33, 33), (17, 17), (16, 16)).case().workload) is None


def test_few_channels_are_left_to_others() -> None:
    few = Pool((1, 3, 9, 8), (3, 3)).case()
    assert byte_sums_of(few.workload) is not None
    assert not byte_sum_tiles(few.workload, TARGETS[max(TARGETS)], 1)

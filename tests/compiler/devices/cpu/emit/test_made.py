"""Constants that a program makes when it is loaded are those that its kernels were given before, to the bit."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from compiler.codegen.build import find_toolchain
from compiler.codegen.coded import LEAST_CODED
from compiler.codegen.weights import Weights
from compiler.codegen.writer import Writer
from compiler.devices.cpu.emit.host import made_constants
from compiler.devices.cpu.emit.library import build_library
from compiler.devices.cpu.target import PROFILES, runs_here
from compiler.forms.winograd import TransformedPanels
from compiler.ir.buffers import Buffer
from compiler.ir.packing import Packing, Panels
from compiler.ir.tensor import DType, TensorType

HOST = """#define _GNU_SOURCE
#include "model.h"
#include <stddef.h>
struct port { int32_t code, bits, ndim; const int64_t *shape; size_t bytes; };
"""
OPENED = """
static struct weights held;
TW_EXPORT const char *opened(const char *path) {
    tw_config config = {.weights_path = path};
    return map_weights(&config, &held) ? NULL : held.data;
}
TW_EXPORT void closed(void) { unmap_weights(&held); }
"""


def panels(
    forms: tuple[tuple[int, int], ...], shape: tuple[int, int, int], panel: int
) -> tuple[TransformedPanels, np.ndarray]:
    """Filters of (groups, depth, columns), some of them zeros of both signs, very small or very large."""
    groups, depth, columns = shape
    taps = [many for _, many in forms]
    rng = np.random.default_rng(depth * columns)
    weights = rng.standard_normal((groups, columns, depth, *taps)).astype(np.float32)
    weights[:, 0] *= 0
    weights[:, 1] *= np.float32(1e-42)
    weights[:, 2] *= np.float32(1e30)
    strides = [step // 4 for step in weights.strides]
    axes = [0, *range(3, 3 + len(taps)), 2, 1]
    source = tuple((weights.shape[axis], strides[axis]) for axis in axes)
    return TransformedPanels(groups, depth, columns, panel, forms, source), weights


@contextmanager
def loaded(weights: Weights, profile: str, folder: Path) -> Iterator[int]:
    """The address of the file's first byte in a process that has made what lies before it."""
    writer = Writer()
    writer.line(f"#define WEIGHT_BYTES {weights.size}UL")
    made_constants(writer, weights)
    target = next(one for one in PROFILES if one.name == profile)
    (folder / "weights.bin").write_bytes(weights.bytes())
    code = build_library({"model.c": HOST + writer.text() + OPENED}, target, find_toolchain())
    (folder / "made.so").write_bytes(code)
    library = ctypes.CDLL(str(folder / "made.so"))
    library.opened.restype = ctypes.c_void_p
    address = library.opened(str(folder / "weights.bin").encode())
    assert address
    try:
        yield address
    finally:
        library.closed()


def resident(file: Path) -> int:
    """KiB of a file that this process has in memory by a mapping of it."""
    lines = Path("/proc/self/smaps").read_text().splitlines()
    [at] = [at for at, line in enumerate(lines) if line.endswith(str(file))]
    return int(next(line for line in lines[at:] if line.startswith("Rss:")).split()[1])


def made(address: int, place: int, count: int) -> np.ndarray:
    return np.frombuffer(ctypes.string_at(address + place, 4 * count), np.uint32)


def placed(weights: Weights, many: Sequence[tuple[Packing, np.ndarray]]) -> list[int]:
    buffers = [Buffer.whole(at, TensorType(DType.F32, array.shape)) for at, (_, array) in enumerate(many)]
    return [weights.place(buffer, array, packing) for buffer, (packing, array) in zip(buffers, many, strict=True)]


@pytest.mark.parametrize("profile", [one.name for one in PROFILES if runs_here(one)])
def test_filters_are_transformed_to_the_bits_that_packing_gives(profile: str, tmp_path: Path) -> None:
    """Also beside constants of few values, which are made in the same memory."""
    many: list[tuple[Packing, np.ndarray]] = [
        panels(((4, 3), (4, 3)), (1, 40, 48), 16),
        panels(((8, 3), (2, 3)), (3, 31, 45), 8),
        panels(((6, 5), (4, 5)), (1, 17, 30), 4),
        panels(((4, 7),), (2, 65, 90), 64),
        panels(((2, 7), (3, 7)), (1, 9, 33), 32),
    ]
    few = np.random.default_rng(3).choice(np.array([1.5, -2, 7], np.float32), (64, 512))
    many.append((Panels((0,), 512, 64, 16, ((512, 1), (64, 512))), few))
    weights = Weights(small=True)
    places = placed(weights, many)
    assert (len(weights.filters), len(weights.expansions)) == (5, 1)
    assert all(place < 0 and place % 64 == 0 for place in places)
    with loaded(weights, profile, tmp_path) as address:
        for place, (packing, array) in zip(places, many, strict=True):
            want = packing.pack(array).reshape(-1).view(np.uint32)
            np.testing.assert_array_equal(made(address, place, packing.elements), want)
        assert resident(tmp_path / "weights.bin") == 0, "what was read once is in no memory of this process"
        assert ctypes.string_at(address, weights.size) == weights.bytes()


def test_forms_of_one_constant_share_its_filters() -> None:
    first, array = panels(((4, 3), (4, 3)), (1, 64, 48), 16)
    second, _ = panels(((2, 3), (6, 3)), (1, 64, 48), 8)
    weights = Weights(small=True)
    buffer = Buffer.whole(0, TensorType(DType.F32, array.shape))
    places = [weights.place(buffer, array, packing) for packing in (first, second, first)]
    assert places[0] == places[2] != places[1]
    assert len(weights.filters) == 2
    assert weights.size < 1.2 * array.nbytes
    after = Weights(earlier=weights, small=True)
    after.place(buffer, array, second)
    assert after.size == weights.size


@pytest.mark.parametrize("profile", [one.name for one in PROFILES if runs_here(one)])
def test_panels_of_one_width_lie_in_the_file_and_those_of_others_are_made_of_them(profile: str, tmp_path: Path) -> None:
    """Also of a batch, with a last panel that is not full, in a later program, and of filters as they are."""
    rng = np.random.default_rng(4)
    matrix, batch = rng.standard_normal((75, 40)), rng.standard_normal((3, 40, 70))
    matrix[3, 5], batch[1, 2, 3] = np.nan, -0.0
    _, filters = panels(((4, 3), (4, 3)), (1, 64, 48), 16)
    winograd = TransformedPanels(1, 64, 48, 16, ((4, 3), (4, 3)), ((3, 3), (3, 1), (64, 9), (48, 576)))

    def many(*widths: int) -> list[tuple[Packing, np.ndarray]]:
        of = [
            (Panels((0,), 40, 75, 8, ((40, 1), (75, 40))), matrix),
            (Panels((0, 2800, 5600), 40, 70, 8, ((40, 70), (70, 1))), batch),
            (Panels((0,), 576, 48, 8, ((3, 3), (3, 1), (64, 9), (48, 576))), filters),
        ]
        return [(replace(one, panel=width), array.astype(np.float32)) for one, array in of for width in widths]

    first = Weights(small=True)
    placed(first, [(winograd, filters), *many(32)])
    assert (len(first.repackings), len(first.filters)) == (1, 1), "the filters are panels that lie there already"
    later = Weights(earlier=first, small=True)
    found = many(16, 32, 48, 1, 75)
    places = placed(later, found)
    assert later.size == first.size
    assert len(later.repackings) == 12, "all but those that lie there: of 32 columns, and of all 48 of the filters"
    with loaded(later, profile, tmp_path) as address:
        for place, (packing, array) in zip(places, found, strict=True):
            want = packing.pack(array).reshape(-1).view(np.uint32)
            np.testing.assert_array_equal(made(address, place, packing.elements), want)
    ready = Weights(earlier=first)
    placed(ready, found)
    assert (ready.repackings, ready.made_bytes) == ([], 0)


@pytest.mark.parametrize("profile", [one.name for one in PROFILES if runs_here(one)])
def test_a_matrix_is_made_of_those_that_it_consists_of(profile: str, tmp_path: Path) -> None:
    """A product by the operands of a Concat, each with weights of its own, and one of all: in each order of panels."""
    rng = np.random.default_rng(5)
    whole = rng.standard_normal((70, 120)).astype(np.float32)
    whole[3, 5], whole[4, 6] = np.nan, -0.0

    def columns(begin: int, end: int, panel: int) -> tuple[Packing, np.ndarray]:
        depth = end - begin
        return Panels((0,), depth, 70, panel, ((depth, 1), (70, depth))), np.ascontiguousarray(whole[:, begin:end])

    first = Weights(small=True)
    placed(first, [columns(0, 40, 32), columns(0, 50, 32), columns(50, 70, 16)])
    later = Weights(earlier=first, small=True)
    placed(later, [columns(70, 120, 8)])
    size = later.size
    found = [columns(0, 120, panel) for panel in (16, 32, 48)] + [columns(0, 70, 80)]
    places = placed(later, [*found, found[0]])
    assert later.size == size
    assert len(later.repackings) == 3 * 3 + 2
    assert places[0] == places[-1]
    with loaded(later, profile, tmp_path) as address:
        for place, (packing, array) in zip(places, found, strict=False):
            want = packing.pack(array).reshape(-1).view(np.uint32)
            np.testing.assert_array_equal(made(address, place, packing.elements), want)
    packing, of = columns(0, 120, 16)
    of[69, 119] = 0
    other = Weights(earlier=later, small=True)
    placed(other, [(packing, of)])
    assert (len(other.repackings), other.size - size) == (0, 4 * packing.elements), "one weight differs"


@pytest.mark.parametrize("profile", [one.name for one in PROFILES if runs_here(one)])
def test_filters_are_transformed_of_panels_that_lie_in_the_file(profile: str, tmp_path: Path) -> None:
    """Panels of an earlier program, in two forms that share what is made of them, and of a program's own."""
    _, filters = panels(((4, 3), (4, 3)), (1, 64, 50), 16)
    source = ((3, 3), (3, 1), (64, 9), (50, 576))
    matrix = Panels((0,), 576, 50, 16, source)
    forms = [TransformedPanels(1, 64, 50, 8, ((rows, 3), (4, 3)), source) for rows in (2, 4)]
    first = Weights(small=True)
    placed(first, [(matrix, filters)])
    later = Weights(earlier=first, small=True)
    places = placed(later, [(form, filters) for form in forms])
    assert (len(later.repackings), len(later.filters)) == (1, 2)
    assert later.size - first.size < 0.1 * filters.nbytes, "what they are transformed by"
    with loaded(later, profile, tmp_path) as address:
        for place, form in zip(places, forms, strict=True):
            want = form.pack(filters).reshape(-1).view(np.uint32)
            np.testing.assert_array_equal(made(address, place, form.elements), want)


def test_filters_that_cannot_be_made_to_the_bit_or_are_small_are_stored_transformed() -> None:
    odd, filters = panels(((4, 7), (4, 7)), (1, 32, 32), 16)
    tiny, few = panels(((4, 3), (4, 3)), (1, 8, 16), 16)
    usual, broken = panels(((4, 3), (4, 3)), (1, 64, 48), 16)
    broken[0, 5, 3, 1, 1] = np.nan
    assert tiny.elements < LEAST_CODED < odd.elements
    for packing, array in ((odd, filters), (tiny, few), (usual, broken)):
        weights = Weights(small=True)
        buffer = Buffer.whole(0, TensorType(DType.F32, array.shape))
        assert weights.place(buffer, array, packing) == 0
        assert (weights.filters, weights.size) == ([], 4 * packing.elements)

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from compiler.devices.cpu.algorithms.byte_extremes import extreme_tiles, extremes_of
from compiler.devices.cpu.target import PROFILES, CpuTarget, runs_here
from compiler.ir.buffers import Buffer
from compiler.ir.graph import Attr, Node
from compiler.ir.kernel import Kernel
from compiler.ir.tensor import DType, Layout, TensorType
from compiler.ops import OPERATORS
from tests.compiler.devices.cpu.library import Case, Library, case_of, check
from tests.compiler.ops.single import defaults
from tests.compiler.rewrite.sketch import Sketch

TARGETS = {profile.vector_floats: profile for profile in reversed(PROFILES) if runs_here(profile)}
"""One target for each width of vectors."""


def case(op: str, array: np.ndarray, *, layout: Layout | None = None, **attrs: Attr) -> Case:
    """An operator over an image whose channels lie last."""
    type = TensorType(DType.of(array.dtype), array.shape)
    node = Node(op, (0,), (100,), {**defaults(op), **attrs})
    record = OPERATORS[op]
    kernel = record.define(node, (type,), record.infer(node, (type,)))
    assert isinstance(kernel, Kernel)
    slots = (*kernel.inputs, *kernel.outputs)
    lying = layout or Layout.channels_last(array.ndim)
    return Case(kernel, tuple(Buffer.whole(at, slot.type, lying) for at, slot in enumerate(slots)), (array,))


def image(dtype: type, channels: int, *space: int) -> np.ndarray:
    limits = np.iinfo(dtype)
    random = np.random.default_rng(channels)
    return random.integers(limits.min, limits.max + 1, (2, channels, *space)).astype(dtype)


def cases() -> list[Case]:
    found = []
    for dtype in (np.uint8, np.int8):
        found += [
            case("MaxPool", image(dtype, 64, 7, 8), kernel_shape=(3, 3), strides=(2, 2)),
            case("MaxPool", image(dtype, 70, 5, 6), kernel_shape=(3, 2), strides=(1, 2), pads=(1, 1, 1, 0)),
            case("MaxPool", image(dtype, 16, 6, 5), kernel_shape=(2, 2), dilations=(2, 2), ceil_mode=1),
            case("MaxPool", image(dtype, 130, 9), kernel_shape=(3,), pads=(2, 2)),
            case("ReduceMin", image(dtype, 33, 4, 5), axes=(2, 3)),
        ]
    return found


@pytest.mark.parametrize("width", TARGETS)
def test_they_are_those_of_the_definition(width: int) -> None:
    tiled = [replace(one, tile=extreme_tiles(one.workload, TARGETS[width], 1)[0].tile) for one in cases()]
    check([replace(one, cuts=(0.3,)) for one in tiled], TARGETS[width], "-O1")


def test_what_is_contiguous_along_no_axis_is_left_to_others() -> None:
    plain = case("MaxPool", image(np.uint8, 64, 7, 8), kernel_shape=(3, 3), strides=(2, 2), layout=Layout.plain(4))
    assert extremes_of(plain.workload) is None


def test_extremes_of_floats_and_few_channels_are_left_to_others() -> None:
    floats = case("MaxPool", image(np.uint8, 64, 7, 8).astype(np.float32), kernel_shape=(3, 3))
    assert extremes_of(floats.workload) is None
    few = case("MaxPool", image(np.uint8, 3, 7, 8), kernel_shape=(3, 3))
    assert not extreme_tiles(few.workload, TARGETS[max(TARGETS)], 1)


def pooled(kind: str, x_type: DType, y_type: DType) -> tuple[Case, np.ndarray]:
    """The greatest of 3x3 bytes, moved to another scale, and what that is in whole numbers.

    `kind` says what is compared and what follows: "bytes", "floats" that bytes stand for, "added" to other bytes,
    or "both", where the greatest byte is a result as well.
    """
    s = Sketch(len(kind), DType.F32)
    x, other = (image(x_type.numpy.type, channels, 7, 6) for channels in (70, 71))
    other = other[:, :70]
    value, scale, zero = s.x(*x.shape, dtype=x_type), s.c(0.5), s.c(9, x_type)
    if kind == "floats":
        value = s("DequantizeLinear", value, scale, zero)
    best = s("MaxPool", value, kernel_shape=(3, 3), strides=(2, 1), pads=(0, 1, 1, 1))
    wide = best if kind == "floats" else s("DequantizeLinear", best, scale, zero)
    windows = np.lib.stride_tricks.sliding_window_view(
        np.pad(x.astype(np.int64), ((0, 0), (0, 0), (0, 1), (1, 1)), constant_values=-999), (3, 3), (2, 3)
    )
    greatest = windows.max((-2, -1))[:, :, ::2]
    want = 0.5 * (greatest - 9)
    if kind == "added":
        beside = s.x(*s.dims(best), dtype=x_type)
        wide = s("Add", wide, s("DequantizeLinear", beside, s.c(0.25), s.c(3, x_type)))
        other = other[:, :, :3]
        want = want + 0.25 * (other.astype(np.int64) - 3)
    made = s("QuantizeLinear", wide, s.c(0.75), s.c(-5 if y_type is DType.I8 else 120, y_type))
    graph = s.graph(made, *([best] if kind == "both" else []))
    limits = np.iinfo(y_type.numpy)
    rounded = np.clip(np.rint(want / 0.75) + (-5 if y_type is DType.I8 else 120), limits.min, limits.max)
    return case_of(graph, x, *([other] if kind == "added" else [])), rounded.astype(y_type.numpy)


def judge_maps(target: CpuTarget) -> None:
    """Maps of the greatest bytes give what whole numbers do."""
    types = [(DType.U8, DType.I8), (DType.I8, DType.I8), (DType.I8, DType.U8), (DType.U8, DType.U8)]
    drawn = [pooled(kind, *pair) for kind, pair in zip(("bytes", "floats", "added", "both"), types, strict=True)]
    tiled = [replace(one, tile=extreme_tiles(one.workload, target, 1)[0].tile, cuts=(0.6,)) for one, _ in drawn]
    library = Library.of(tiled, target, "-O1")
    for number, (one, (_, want)) in enumerate(zip(tiled, drawn, strict=True)):
        found = [result for result in library.run(number, one) if result.dtype == want.dtype]
        assert any(np.array_equal(result, want) for result in found), library.lowered[number].text


@pytest.mark.parametrize("width", TARGETS)
def test_maps_to_bytes_follow(width: int) -> None:
    judge_maps(TARGETS[width])


def test_a_window_that_sees_nothing_has_an_extreme_that_no_byte_stands_for() -> None:
    def form(pads: tuple[int, int]) -> object:
        s = Sketch(0, DType.F32)
        wide = s("DequantizeLinear", s.x(1, 64, 9, dtype=DType.U8), s.c(0.5), s.c(9, DType.U8))
        best = s("MaxPool", wide, kernel_shape=(2,), strides=(1,), pads=pads)
        graph = s.graph(s("QuantizeLinear", best, s.c(0.75), s.c(3, DType.U8)))
        return extremes_of(case_of(graph, image(np.uint8, 64, 9)[:1]).workload)

    assert form((1, 1)) is not None
    assert form((2, 1)) is None


def test_results_that_are_floats_are_left_to_others() -> None:
    s = Sketch(0, DType.F32)
    best = s("MaxPool", s.x(1, 64, 9, dtype=DType.U8), kernel_shape=(2,))
    both = case_of(s.graph(s("DequantizeLinear", best, s.c(0.5), s.c(9, DType.U8))), image(np.uint8, 64, 9)[:1])
    assert len(both.kernel.outputs) == 1
    assert extremes_of(both.workload) is None


def rounded(op: str, scale: float, zero: int, dtype: DType) -> Case:
    """A function of every byte as a float, rounded to bytes: no numbers, infinities, ties."""
    s = Sketch(0, DType.F32)
    bytes = np.repeat(np.arange(256, dtype=np.uint8).reshape(1, 256, 1), 2, axis=2)
    best = s("MaxPool", s.x(1, 256, 2, dtype=DType.U8), kernel_shape=(2,))
    wide = s(op, s("DequantizeLinear", best, s.c(scale), s.c(128, DType.U8)))
    return case_of(s.graph(s("QuantizeLinear", wide, s.c(1.0), s.c(zero, dtype))), bytes)


def judge_edges(target: CpuTarget) -> None:
    """What is no number, and what no integer holds, becomes what the definition says."""
    made = [
        rounded(op, scale, zero, dtype)
        for dtype, zeros in ((DType.U8, (0, 7, 255)), (DType.I8, (-128, -9, 127)))
        for op, scale, zero in zip(("Sqrt", "Relu", "Neg"), (3e38, 2.0**25, 0.5), zeros, strict=True)
    ]
    check([replace(one, tile=extreme_tiles(one.workload, target, 1)[0].tile) for one in made], target, "-O1")


@pytest.mark.parametrize("width", TARGETS)
def test_what_is_no_number_and_what_no_integer_holds_becomes_what_the_definition_says(width: int) -> None:
    judge_edges(TARGETS[width])

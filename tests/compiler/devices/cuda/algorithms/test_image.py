"""Convolutions of few channels from an image in shared memory: what they compute, and what is proposed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from compiler.devices.cuda import nvrtc
from compiler.devices.cuda.algorithms import legal_tiles
from compiler.devices.cuda.algorithms.image.geometry import QuadPanels, Window, as_few_channels
from compiler.devices.cuda.algorithms.image.tiles import cuda_image_tiles
from compiler.devices.cuda.codegen.lowered import PREAMBLE
from compiler.devices.cuda.emit.lower import lower_cuda
from compiler.devices.cuda.target import resolve
from compiler.ir.buffers import Buffer
from compiler.ir.machine import Workload
from compiler.ir.tensor import Layout
from compiler.ir.tile import Level, Tile
from tests.compiler.devices.cpu.library import Case
from tests.compiler.devices.cuda import on_double
from tests.compiler.devices.cuda.algorithms.test_contraction import (
    ELEMENTS,
    F16,
    check,
    convolution,
    lowered,
    matrix,
    within,
    workload_of,
)
from tests.compiler.devices.cuda.on_double import case_of, needs_double
from tests.compiler.devices.cuda.test_nvrtc import needs_nvrtc
from tests.cuda_double.double import MODES, Fault

TOLERANCE = {"fp16": 4e-3, "bf16": 2e-2, "tf32": 4e-3}


def tile_of(name: str, m: int, n: int, rows: int, part: tuple[int, int], groups: int = 1, k: int = 0) -> Tile:
    block = (("m", m), ("n", n), ("k", k), ("rows", rows), ("groups", groups))
    return Tile(name, (Level("block", block), Level("warp", (("m", part[0]), ("n", part[1])))))


def few(
    c: int,
    k: int,
    size: tuple[int, int],
    window: tuple[int, int],
    stride: int,
    precision: str,
    rows: int,
    groups: int = 1,
    m: int = 64,
    batch: int = 1,
    first: bool = True,
    data: str = "x[n, c, {iy}, {ix}]",
) -> tuple[Case, Tile]:
    """A convolution with a tile of `m` x 32."""
    element = ELEMENTS[precision]
    case = convolution(c, k, size, window, element, stride, batch=batch, first=first, data=data)
    name = "mma_image" if element else "mma_image_tf32"
    depth = Window(c, *window, 2 if name == "mma_image_tf32" else 4).depth
    return within(case, TOLERANCE[precision]), tile_of(name, m, 32, rows, (32, 16), groups, depth)


def cases() -> list[tuple[Case, Tile]]:
    """First layers: windows, strides, odd sizes, tiles that reach past the result, images in any layout."""
    return [
        few(3, 24, (29, 31), (7, 7), 2, "fp16", 4, 4),
        few(3, 17, (15, 37), (3, 3), 2, "tf32", 2, 2),
        few(3, 32, (19, 23), (3, 3), 1, "fp16", 8, 2),
        few(4, 16, (13, 18), (5, 5), 3, "bf16", 4, 2, batch=2),
        few(1, 16, (12, 33), (5, 5), 1, "tf32", 2),
        few(2, 40, (11, 45), (1, 9), 4, "fp16", 1, m=32),
        few(3, 8, (29, 29), (11, 11), 4, "fp16", 4, 4, m=32),
        few(3, 16, (17, 21), (3, 3), 2, "bf16", 4, first=False),
        few(3, 16, (14, 22), (7, 7), 2, "tf32", 4, data="mul(add(x[n, c, {iy}, {ix}], 0.5:f32), 0.25:f32)"),
    ]


UNPADDED = """
kernel Conv(in x: f32[2, 3, 22, 27], in f: f32[12, 3, 3, 7]; temp t: f32[]; out y: f32[2, 12, 10, 11])
  for n:2, k:12, oy:10, ox:11
    t[] = sum<f32> c:3, r:3, s:7 . mul(x[n, c, 2*oy + r, 2*ox + s], f[k, c, r, s])
    y[n, k, oy, ox] = t[]
"""
LINE = """
kernel Conv(in x: f32[1, 2, 203], in f: f32[16, 2, 10]; temp t: f32[]; out y: f32[1, 16, 39])
  for k:16, o:39
    t[] = sum<f32> c:2, s:10 . mul(x[0, c, 5*o + s], f[k, c, s])
    y[0, k, o] = t[]
"""


def channels_last(text: str) -> Case:
    """A case whose result has its channels last in memory."""
    case = case_of(text, (1,))
    *inputs, y = case.buffers
    return replace(case, buffers=(*inputs, Buffer.whole(y.id, y.type, Layout.channels_last(y.type.rank))))


def others() -> list[tuple[Case, Tile]]:
    """Without padding, several images; one dimension."""
    unpadded, line = channels_last(UNPADDED), channels_last(LINE)
    return [
        (within(unpadded, 4e-3), tile_of("mma_image_tf32", 64, 16, 8, (16, 16), 2, Window(3, 3, 7, 2).depth)),
        (within(line, 4e-3), tile_of("mma_image_tf32", 32, 16, 1, (16, 8), 1, Window(2, 1, 10, 2).depth)),
    ]


@needs_double
def test_first_layers_of_all_kinds_mean_what_they_say() -> None:
    check([*cases(), *others()])


@needs_double
def test_no_accesses_race_or_leave_their_tensors() -> None:
    check([*cases()[1:5], *others()], "checked", MODES[4:5])


@needs_double
def test_what_is_not_finite_reaches_only_the_windows_that_look_at_it() -> None:
    """A quad's last places hold neighbours of the window, and weights of zero make NaN of an infinity."""
    subjects = []
    for window, stride, precision in ((7, 2, "fp16"), (3, 1, "fp16"), (5, 2, "bf16"), (3, 2, "tf32")):
        case, tile = few(3, 16, (16, 24), (window, window), stride, precision, 4)
        x = case.inputs[0].copy()
        x[0, 1, 5, 11:13], x[0, 2, 9, 0], x[0, 0, 15, 23] = np.inf, -np.inf, np.nan
        subjects.append((replace(case, inputs=(x, *case.inputs[1:])), tile))
    check(subjects, modes=MODES[2:3])


@needs_double
@pytest.mark.parametrize(
    ("line", "without"),
    [
        ("tw_cp_async_wait<0>();\n    __syncthreads();", "__syncthreads();"),
        ("tw_cp_async_wait<1>();\n    __syncthreads();", "tw_cp_async_wait<1>();"),
        ("& (lane % 4 < 2 ? 0xffffffffu : first_3)", ""),
        ("(first_OyR + line % 13) - 3 >= 0", "true"),
        ("[0] = pair >> 16", "[0] = pair & 0xffff"),
    ],
)
def test_a_mistake_is_found(line: str, without: str) -> None:
    """So that the tests above say something."""
    case, tile = few(3, 16, (10, 16), (7, 7), 1 if "pair" in line else 2, "fp16", 4, 2)
    x = case.inputs[0].copy()
    x[0, 1, 5, 12] = np.inf
    case = replace(case, inputs=(x, *case.inputs[1:]))
    one = lowered("k", case, tile)
    assert line in one.text
    broken = on_double.Subject(case, replace(one, text=one.text.replace(line, without)))
    with pytest.raises((Fault, AssertionError)):
        on_double.check([broken], "checked", MODES[4:5])


def workload(c: int, k: int, size: int, window: int, stride: int, precision: str) -> Workload:
    """A first layer: its image is fp32 by planes."""
    element = ELEMENTS[precision]
    return workload_of(convolution(c, k, (size, size), (window, window), element, stride, first=True))


@needs_nvrtc
@pytest.mark.parametrize("name", ["cuda:sm_80", "cuda:sm_90"])
def test_proposals_fit_the_device_and_do_not_spill(name: str) -> None:
    """SqueezeNet's and Inception's first layers, under the best tile and one of the largest."""
    target = resolve(name)
    texts = []
    for c, k, size, window, stride, precision in (
        (3, 96, 224, 7, 2, "fp16"),
        (3, 32, 299, 3, 2, "tf32"),
    ):
        found = workload(c, k, size, window, stride, precision)
        proposals = cuda_image_tiles(found, target, precision)
        assert [one.seconds for one in proposals] == sorted(one.seconds for one in proposals)
        assert len({one.tile for one in proposals}) == len(proposals) > 10
        largest = max(proposals, key=lambda one: one.tile.extent("warp", "m") * one.tile.extent("warp", "n"))
        for number, one in enumerate((proposals[0], largest)):
            made = lower_cuda(f"k{precision}{number}", found, one.tile, target)
            assert made.shared_bytes <= target.block_shared_bytes
            texts.append(made.text)
    compiled = nvrtc.compile_cuda(PREAMBLE + "\n".join(texts), target.architecture)
    assert "warning" not in compiled.log
    assert len(compiled.kernels) == len(texts)
    for kernel, needs in compiled.kernels.items():
        assert not needs.spills, (kernel, needs)
        assert not needs.stack_bytes, (kernel, needs)


def test_what_is_no_window_over_few_channels_has_no_tiles() -> None:
    target = resolve("cuda:sm_90")
    assert not cuda_image_tiles(workload(3, 96, 224, 7, 2, "fp16"), target, "fp32")
    assert not cuda_image_tiles(workload(8, 96, 56, 3, 1, "fp16"), target, "fp16")
    assert not cuda_image_tiles(workload_of(matrix(64, 3, 32, F16)), target, "fp16")
    dilated = workload_of(convolution(3, 16, (20, 20), (3, 3), F16, dilation=2, first=True))
    assert not cuda_image_tiles(dilated, target, "fp16")
    unknown = replace(workload(3, 96, 224, 7, 2, "fp16"), constant=(False, False, False))
    assert as_few_channels(unknown) is None


def test_the_image_is_chosen_where_single_elements_would_cost_more() -> None:
    for target, k in (("cuda:sm_80", 96), ("cuda:sm_90", 64)):
        proposals = legal_tiles(workload(3, k, 224, 7, 2, "fp16"), resolve(target), 1, "fp16")
        assert min(proposals, key=lambda one: one.seconds).tile.algorithm == "mma_image"


@pytest.mark.parametrize(("columns", "whole"), [(1, 4), (3, 2), (4, 4), (7, 4), (10, 2)])
def test_weights_lie_by_quads(columns: int, whole: int) -> None:
    """Each at its quad's place of k, in a column of its own; everything else is zero."""
    random = np.random.default_rng(columns)
    weights = random.standard_normal((5, 2, 3, columns)).astype(np.float32)  # [k, c, r, s]
    window = Window(2, 3, columns, whole)
    source = ((2, 3 * columns), (3, columns), (columns, 1), (5, 6 * columns))
    panels = QuadPanels(source, 0, window, 8, F16)
    packed = panels.pack(weights)
    assert packed.shape == (panels.elements,)
    packed = packed.reshape(8, window.depth)
    wanted = np.zeros_like(packed)
    for quad in range(window.quads):
        c, r, s = window.place(quad)
        for at in range(window.taps(quad)):
            wanted[:5, 4 * quad + at] = weights[:, c, r, s + at]
    np.testing.assert_array_equal(packed, wanted)
    assert window.depth % (4 * whole) == 0
    assert sum(window.taps(quad) for quad in range(window.depth // 4)) == 6 * columns

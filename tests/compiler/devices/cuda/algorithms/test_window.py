"""Windows channel by channel on a GPU.

Convolutions, pools and reductions over space, on the double, under many tiles.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume
from hypothesis import strategies as st

from compiler.devices.cuda import nvrtc
from compiler.devices.cuda.algorithms.window.tiles import cuda_window_tiles
from compiler.devices.cuda.codegen.lowered import PREAMBLE
from compiler.devices.cuda.emit.lower import lower_cuda
from compiler.devices.cuda.target import PROFILES
from compiler.forms.channelwise import as_channel_window
from compiler.ir.buffers import Buffer
from compiler.ir.graph import Attr
from compiler.ir.kernel import Kernel
from compiler.ir.tensor import DType, Layout
from compiler.ir.tile import Level, Tile
from compiler.ops import OPERATORS
from tests.compiler.devices.cpu.algorithms.test_window import followed, operators, places
from tests.compiler.devices.cpu.library import Case, array_of, draws
from tests.compiler.devices.cuda import on_double
from tests.compiler.devices.cuda.on_double import Subject, needs_double, stored_as, workload_of
from tests.compiler.devices.cuda.test_nvrtc import ARCHITECTURES, disassembler, needs_nvrtc
from tests.compiler.ops.single import prepare

H200 = next(target for target in PROFILES if target.architecture == "sm_90a")
ELEMENTS = (None, DType.F16, DType.BF16)
needs_disassembler = pytest.mark.skipif(
    disassembler() is None, reason="nvdisasm is not installed (nvidia-cuda-nvdisasm)"
)


def subject(case: Case, number: int) -> Subject:
    return Subject(case, lower_cuda(f"k{number}_case", workload_of(case), case.tile, H200))


def operator_kernel(name: str, arrays: Sequence[np.ndarray], attrs: dict[str, Attr]) -> tuple[Kernel, list[np.ndarray]]:
    """An operator's kernel, and its inputs."""
    operator = OPERATORS[name]
    node, inputs, types = prepare(operator, tuple(arrays), attrs, 1)
    kernel = operator.define(node, types, operator.infer(node, types))
    assert isinstance(kernel, Kernel)
    return kernel, [array for array in inputs if array is not None]


@st.composite
def windows(draw: st.DrawFn) -> Case:
    """An operator channels-last, a map behind it, under a tile of the tile stage.

    It is in any mixture of dtypes, dense or a slice.
    """
    name, arrays, attrs = draw(operators())
    kernel, given = operator_kernel(name, arrays, dict(attrs))
    constant = tuple(range(1, len(given))) if draw(st.booleans()) else ()
    kind = draw(st.sampled_from(["", "", "relu", "swish", "residual"]))
    if kind:
        rest = array_of(kernel.outputs[0].type, np.random.default_rng(7))
        kernel = followed(kernel, kind, seen=draw(st.booleans()))
        given += [rest] if kind == "residual" else []
    slots = (*kernel.inputs, *kernel.outputs)
    buffers = [
        stored_as(draw(places(at, slot.type, dense=at in constant)), draw(st.sampled_from(ELEMENTS)))
        for at, slot in enumerate(slots)
    ]
    case = Case(kernel, tuple(buffers), tuple(given), constant=constant)
    options = [option.tile for option in cuda_window_tiles(workload_of(case), H200, "fp16")]
    assume(options)
    split = [tile for tile in options if tile.extent("block", "parts")]
    shared_out = draw(st.booleans())
    chosen = split if split and shared_out else options
    return replace(case, tile=draw(st.sampled_from(chosen)))


@needs_double
def test_windows_mean_what_their_definitions_say_under_every_tile() -> None:
    drawn = draws(windows(), 50)
    split = [case for case in drawn if case.tile.extent("block", "parts")]
    strips = [case for case in drawn if case.tile.extent("thread", "rows") > 1]
    assert split
    assert strips
    on_double.check([subject(case, number) for number, case in enumerate(drawn)])


def convolution(
    channels: int,
    image: tuple[int, int],
    taps: tuple[int, int] = (3, 3),
    group: int = 1,
    stride: int = 1,
    dilation: int = 1,
    pads: tuple[int, int, int, int] = (1, 1, 1, 1),
    element: DType | None = None,
    kind: str = "",
) -> Case:
    """A convolution of `group` channels at a time, with constant weights and a bias, channels-last."""
    random = np.random.default_rng(channels + group)
    shapes = ((1, channels, *image), (channels, group, *taps), (channels,))
    arrays = [random.uniform(-1, 1, shape).astype(np.float32) for shape in shapes]
    attrs: dict[str, Attr] = {
        "kernel_shape": taps,
        "strides": (stride, stride),
        "dilations": (dilation, dilation),
        "pads": pads,
        "group": channels // group,
    }
    kernel, given = operator_kernel("Conv", arrays, attrs)
    if kind:
        kernel = followed(kernel, kind, seen=False)
        given += [array_of(kernel.outputs[0].type, random)] if kind == "residual" else []
    return channels_last(kernel, given, element, constant=(1, 2))


def pool(name: str, channels: int, image: tuple[int, int], element: DType | None = None, **attrs: Attr) -> Case:
    """A pool or a global one, channels-last."""
    x = np.random.default_rng(channels).uniform(-1, 1, (1, channels, *image)).astype(np.float32)
    return channels_last(*operator_kernel(name, [x], attrs), element)


def channels_last(
    kernel: Kernel, given: Sequence[np.ndarray], element: DType | None, constant: tuple[int, ...] = ()
) -> Case:
    buffers = []
    for at, slot in enumerate((*kernel.inputs, *kernel.outputs)):
        layout = Layout.channels_last(4) if slot.type.rank == 4 and at not in constant else None
        buffers.append(stored_as(Buffer.whole(at, slot.type, layout), element if slot.type.rank == 4 else None))
    return Case(kernel, tuple(buffers), tuple(given), constant=constant)


def tiled(case: Case, at: int = 0) -> Case:
    """Under one of the tiles that the model likes, the best for 0."""
    options = cuda_window_tiles(workload_of(case), H200, "fp16")
    return replace(case, tile=options[min(at, len(options) - 1)].tile)


GROUPED = [
    convolution(16 * group, (7, 9), group=group, stride=stride, element=element, kind="relu")
    for group in (2, 3, 4, 8)
    for stride, element in ((1, DType.F16), (2, None))
]


@needs_double
def test_groups_of_a_few_channels_are_windows_too() -> None:
    assert {view.group for case in GROUPED if (view := as_channel_window(workload_of(case)))} == {2, 3, 4, 8}
    on_double.check([subject(tiled(case, 3 * number), number) for number, case in enumerate(GROUPED)])


KNOWN = {
    "depthwise 3x3": convolution(24, (14, 14), element=DType.F16, kind="relu"),
    "depthwise 5x5, stride 2, odd channels": convolution(11, (15, 15), (5, 5), stride=2, pads=(2, 2, 2, 2)),
    "depthwise 7x7, asymmetric pads": convolution(22, (14, 14), (7, 7), pads=(2, 3, 3, 2), element=DType.BF16),
    "depthwise 3x3, dilated, residual": convolution(
        40, (9, 9), dilation=2, pads=(2, 2, 2, 2), element=DType.F16, kind="residual"
    ),
    "max pool, ceil": pool(
        "MaxPool", 32, (14, 14), DType.F16, kernel_shape=(3, 3), strides=(2, 2), ceil_mode=1, pads=(0, 0, 1, 1)
    ),
    "average pool that counts what is inside": pool(
        "AveragePool", 44, (7, 7), DType.F16, kernel_shape=(3, 3), strides=(1, 1), pads=(1, 1, 1, 1)
    ),
    "average pool that counts padding": pool(
        "AveragePool", 20, (9, 7), kernel_shape=(3, 3), strides=(2, 2), pads=(1, 1, 1, 1), count_include_pad=1
    ),
    "global average": pool("GlobalAveragePool", 72, (28, 28), DType.F16),
    "global maximum": pool("GlobalMaxPool", 66, (13, 13)),
    "global average of many positions": pool("GlobalAveragePool", 16, (112, 112), DType.F16),
}
PRODUCT = """
kernel MatMul(in x: f32[1, 200], in w: f32[200, 96], in b: f32[96]; temp t: f32[]; out y: f32[1, 96])
  for m:1, n:96
    t[] = sum<f32> k:200 . mul(x[m, k], w[k, n])
    y[m, n] = sigmoid(add(t[], b[n]))
"""
KNOWN["one row times a matrix that is no constant"] = on_double.case_of(PRODUCT, constant=(2,), element=DType.F16)


@needs_double
@pytest.mark.parametrize("flavour", ["plain", "checked"])
def test_windows_of_networks_are_right_under_the_tiles_the_model_likes_best(flavour: str) -> None:
    cases = [tiled(case, at) for case in KNOWN.values() for at in ((0, 7) if flavour == "plain" else (1,))]
    if flavour == "plain":
        assert {case.tile.extent("grid", "parts", 1) > 1 for case in cases} == {True, False}
    on_double.check([subject(case, number) for number, case in enumerate(cases)], flavour)


@needs_double
def test_pools_of_nan_and_infinities_are_what_their_definitions_say() -> None:
    """A NaN is greater than any number; what lies outside counts as less than any, minus infinity included."""
    cases = [
        pool("MaxPool", 16, (9, 9), DType.F16, kernel_shape=(3, 3), strides=(2, 2), pads=(1, 1, 1, 1)),
        pool("AveragePool", 16, (9, 9), kernel_shape=(3, 3), pads=(1, 1, 1, 1)),
        pool("GlobalMaxPool", 16, (12, 12), DType.BF16),
    ]
    random = np.random.default_rng(3)
    odd = [
        np.where(
            random.random(case.inputs[0].shape) < 0.2,
            random.choice([np.nan, np.inf, -np.inf], case.inputs[0].shape),
            case.inputs[0],
        )
        for case in cases
    ]
    cases = [replace(case, inputs=(x.astype(np.float32),)) for case, x in zip(cases, odd, strict=True)]
    on_double.check([subject(tiled(case), number) for number, case in enumerate(cases)])


@needs_nvrtc
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_best_tiles_compile_without_spills(architecture: str) -> None:
    cases = [tiled(case) for case in (*KNOWN.values(), *GROUPED)]
    source = PREAMBLE + "".join(subject(case, number).lowered.text for number, case in enumerate(cases))
    compiled = nvrtc.compile_cuda(source, architecture)
    assert "warning" not in compiled.log, compiled.log
    assert len(compiled.kernels) == len(cases)
    assert not [name for name, found in compiled.kernels.items() if found.spills or found.stack_bytes]


def around_the_wait(one: Subject, folder: Path) -> tuple[str, str]:
    """A kernel's SASS for sm_90a before and after it waits for the kernel that it depends on."""
    cubin = folder / "kernels.cubin"
    cubin.write_bytes(nvrtc.compile_cuda(PREAMBLE + one.lowered.text, "sm_90a").image)
    tool = disassembler()
    assert tool is not None
    text = subprocess.run([tool, cubin], capture_output=True, text=True, check=True).stdout
    before, after = text.split("ACQBULK")
    return before, after


@needs_nvrtc
@needs_disassembler
def test_weights_and_bias_are_requested_before_the_wait_and_nothing_else(tmp_path: Path) -> None:
    case = convolution(64, (14, 14), element=DType.F16)
    levels = (Level("block", (("threads", 64),)), Level("thread", (("rows", 1), ("columns", 2), ("channels", 4))))
    before, after = around_the_wait(subject(replace(case, tile=Tile("window", levels)), 0), tmp_path)
    assert (before.count("LDG.E.64"), before.count("LDG.E.128")) == (9, 1)
    assert (after.count("LDG.E.64"), after.count("LDG.E.128")) == (3 * 4, 0)

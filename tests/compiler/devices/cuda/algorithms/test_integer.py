"""Products of bytes on 8-bit tensor cores: bit by bit what their definition says, on the double."""

from __future__ import annotations

import itertools
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import strategies as st

from compiler.devices.cuda import nvrtc
from compiler.devices.cuda.algorithms.integer import cuda_integer_tiles
from compiler.devices.cuda.codegen.lowered import PREAMBLE
from compiler.devices.cuda.emit.lower import lower_cuda
from compiler.devices.cuda.target import resolve
from compiler.forms.integer import as_integer
from compiler.ir.buffers import Buffer
from compiler.ir.tensor import Layout
from compiler.ir.tile import Level, Tile
from tests.compiler.devices.cpu.algorithms.test_integer import BYTES, defined, operators
from tests.compiler.devices.cpu.library import Case, bound, draws
from tests.compiler.devices.cuda import on_double
from tests.compiler.devices.cuda.on_double import Subject, needs_double, workload_of
from tests.compiler.devices.cuda.test_nvrtc import ARCHITECTURES, disassembler, needs_nvrtc
from tests.cuda_double.double import MODES, Mode

TARGET = resolve("cuda:sm_90")


def tile(m: int, n: int, k: int, warp: tuple[int, int], stages: int = 3, parts: int = 1) -> Tile:
    grid = (Level("grid", (("k", parts),)),) if parts > 1 else ()
    block = Level("block", (("m", m), ("n", n), ("k", k), ("stages", stages)))
    return Tile("integer", (*grid, block, Level("warp", (("m", warp[0]), ("n", warp[1])))))


SMALL, SPLIT, WIDE = tile(16, 32, 64, (16, 8)), tile(32, 32, 64, (16, 16), 2, 2), tile(64, 64, 64, (32, 32), 4)


def check(cases: Sequence[Case], flavour: str = "plain", modes: Sequence[Mode] = on_double.ADVERSARIAL) -> list[str]:
    """Compares each case under its tile with its definition; the texts."""
    subjects = [
        Subject(case, lower_cuda(f"k{number}_bytes", workload_of(case), case.tile, TARGET))
        for number, case in enumerate(cases)
    ]
    on_double.check(subjects, flavour, modes)
    return [subject.lowered.text for subject in subjects]


@st.composite
def drawn(draw: st.DrawFn) -> Case | None:
    """One of the four operators, on any buffers, under a proposed tile.

    None for what is no product of bytes wide enough.
    """
    op, arrays, attrs = draw(operators())
    kernel, given = defined(op, arrays, attrs, fixed=draw(st.booleans()))
    case = replace(draw(bound(kernel)), inputs=tuple(given))
    if draw(st.sampled_from([True, True, False])):
        constant = tuple(at for at in range(len(given)) if at != 0)
        dense = [Buffer.whole(b.id, b.type, b.layout) if at in constant else b for at, b in enumerate(case.buffers)]
        case = replace(case, constant=constant, buffers=tuple(dense))
    options = cuda_integer_tiles(workload_of(case), TARGET, "fp32")
    assert bool(options) or as_integer(case.workload) is None
    return replace(case, tile=draw(st.sampled_from(options)).tile) if options else None


@needs_double
def test_operators_on_bytes_equal_their_definition_bit_by_bit() -> None:
    cases = [case for case in draws(drawn(), 60) if case is not None]
    assert len(cases) > 30
    check(cases)


def product(a: np.ndarray, b: np.ndarray, a_zero: object, b_zero: object, how: Tile, *, fixed: bool = True) -> Case:
    """A MatMulInteger of plain tensors whose weights are constant."""
    zeros = np.asarray(a_zero, a.dtype), np.asarray(b_zero, b.dtype)
    kernel, given = defined("MatMulInteger", [a, b, *zeros], {}, fixed)
    buffers = tuple(Buffer.whole(at, slot.type) for at, slot in enumerate((*kernel.inputs, *kernel.outputs)))
    return Case(kernel, buffers, tuple(given), how, (1, 2, 3) if fixed else ())


@needs_double
def test_the_extremes_of_all_kinds_of_bytes_neither_saturate_nor_lose_their_sign() -> None:
    cases = []
    for a_type, b_type in itertools.product(BYTES, BYTES):
        a_ends, b_ends = np.iinfo(a_type), np.iinfo(b_type)
        for a, b in itertools.product((a_ends.min, a_ends.max), (b_ends.min, b_ends.max)):
            arrays = np.full((5, 150), a, a_type), np.full((150, 18), b, b_type)
            cases.append(product(*arrays, a_ends.max, b_ends.min, SPLIT if a == b else SMALL))
    check(cases, modes=on_double.ADVERSARIAL[:1])


def convolution(
    channels: int,
    filters: int,
    zero: int,
    how: Tile,
    dtype: type = np.uint8,
    fixed: bool = True,
    weights_zero: int = 0,
) -> Case:
    """A padded 3x3 QLinearConv of channels-last activations."""
    random = np.random.default_rng(channels)
    limits = np.iinfo(dtype)
    a: np.ndarray = random.integers(limits.min, limits.max + 1, (1, channels, 9, 7)).astype(dtype)
    b = random.integers(-127, 128, (filters, channels, 3, 3)).astype(np.int8)
    scale = np.asarray(0.02, np.float32)
    bias = random.integers(-1000, 1000, filters).astype(np.int32)
    own_zero: np.ndarray = np.asarray(zero, dtype)
    arrays = [
        a,
        scale,
        own_zero,
        b,
        scale,
        np.asarray(weights_zero, np.int8),
        np.asarray(0.7, np.float32),
        own_zero,
        bias,
    ]
    attrs = {"group": 1, "pads": (1, 1, 1, 1), "strides": (1, 1), "dilations": (1, 1), "auto_pad": "NOTSET"}
    kernel, given = defined("QLinearConv", arrays, attrs, fixed)  # type: ignore[arg-type]
    slots = (*kernel.inputs, *kernel.outputs)
    layouts = [Layout.channels_last(4) if len(slot.type.dims) == 4 else None for slot in slots]
    weights = next(at for at, slot in enumerate(slots) if at and len(slot.type.dims) == 4)
    layouts[weights] = None
    buffers = tuple(
        Buffer.whole(at, slot.type, layout) for at, (slot, layout) in enumerate(zip(slots, layouts, strict=True))
    )
    return Case(kernel, buffers, tuple(given), how, tuple(range(1, len(given))))


@needs_double
def test_padding_is_the_zero_point_whatever_it_is_and_however_it_is_read() -> None:
    texts = check(
        [
            convolution(32, 24, 0, SMALL),
            convolution(32, 24, 7, SPLIT),
            convolution(32, 24, -128, WIDE, np.int8),
            convolution(16, 16, 130, SMALL, fixed=False),
            convolution(3, 16, 7, SMALL),
            convolution(32, 24, 7, SPLIT, weights_zero=5),
            convolution(3, 16, 7, SPLIT, weights_zero=5),
        ]
    )
    assert ["padding" in text for text in texts] == [False, True, True, True, False, True, False]
    assert ["column_sums" in text for text in texts] == [False, True, True, True, True, True, True]
    assert not any("row_sums" in text for text in texts[:3])
    assert "tw_cp_async_16(into + " in texts[0]
    assert "A: element by element" in texts[4]
    assert all("tw_vector<" in text for text in texts)


@needs_double
def test_no_accesses_race_or_leave_their_tensors() -> None:
    random = np.random.default_rng(1)
    a, b = random.integers(0, 256, (20, 130)).astype(np.uint8), random.integers(-128, 128, (130, 40)).astype(np.int8)
    zeros = random.integers(0, 256, 20), random.integers(-128, 128, 40)
    cases = [
        product(a, b, 3, 5, SPLIT),
        product(a, b, *zeros, SMALL),
        product(a, b, *zeros, SPLIT, fixed=False),
        convolution(32, 24, 7, SMALL),
    ]
    check(cases, "checked", MODES[4:6])


@needs_nvrtc
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_proposed_tiles_compile_without_spills_to_8_bit_tensor_cores(architecture: str, tmp_path: Path) -> None:
    target = resolve(f"cuda:{architecture.removesuffix('a')}")
    zeros = np.zeros((64, 256), np.uint8), np.zeros((256, 96), np.int8)
    cases = [product(*zeros, 0, 0, SMALL), product(*zeros, 3, 5, SMALL), convolution(64, 64, 7, WIDE)]
    kernels = []
    for number, case in enumerate(cases):
        best = [proposal.tile for proposal in cuda_integer_tiles(workload_of(case), target, "fp32")]
        chosen = [best[0], best[len(best) // 2], tile(128, 128, 64, (64, 32))]
        kernels += [lower_cuda(f"k{number}_{at}", workload_of(case), one, target) for at, one in enumerate(chosen)]
    compiled = nvrtc.compile_cuda(PREAMBLE + "\n".join(kernel.text for kernel in kernels), architecture, "bytes.cu")
    assert compiled.kernels.keys() == {kernel.name for kernel in kernels}
    assert not [name for name, resources in compiled.kernels.items() if resources.spills], compiled.log
    assert "warning" not in compiled.log
    tool = disassembler()
    if tool is not None:
        cubin = tmp_path / "kernels.cubin"
        cubin.write_bytes(compiled.image)
        sass = subprocess.run([tool, cubin], capture_output=True, text=True, check=True).stdout
        for instruction in ("IMMA.16832.U8.S8", "LDSM.16.M88", "LDGSTS.E.BYPASS.128"):
            assert instruction in sass, instruction

"""Turns through shared memory, run on the double, on tiles of every shape."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from compiler.devices.cuda import nvrtc
from compiler.devices.cuda.algorithms.transpose import cuda_transpose_tiles
from compiler.devices.cuda.codegen.lowered import PREAMBLE
from compiler.devices.cuda.emit.lower import lower_cuda
from compiler.devices.cuda.target import resolve
from compiler.forms.transpose import as_transpose
from compiler.ir.buffers import Buffer, row_major
from compiler.ir.tensor import DType, Layout
from compiler.ir.tile import Level, Tile
from tests.compiler.devices.cpu.library import Case
from tests.compiler.devices.cuda import on_double
from tests.compiler.devices.cuda.on_double import Subject, case_of, needs_double, run, stored_as
from tests.compiler.devices.cuda.test_nvrtc import needs_nvrtc
from tests.cuda_double.double import MODES, Device, Fault, compile_kernels
from tests.parse import parse_kernel

H200 = resolve("cuda:sm_90")
COPY = """
kernel Transpose(in x: {dtype}[{a}, {b}]; out y: {dtype}[{b}, {a}])
  for i:{a}, j:{b}
    y[j, i] = x[i, j]
"""
SCALED = """
kernel Mul(in x: f32[{a}, {b}], in r: f32[{b}, {a}], in s: f32[{a}], in u: f32[{a}, {b}]; temp t: f32[{a}, {b}]; \
out y: f32[{b}, {a}], out z: f32[{b}, {a}])
  for i:{a}, j:{b}
    t[i, j] = mul(x[i, j], s[i])
    y[j, i] = add(t[i, j], r[j, i])
    z[j, i] = max(where(gt(#(j):i64, 2:i64), u[i, j], t[i, j]), 0.0:f32)
"""
PORT = """
kernel Relu(in x: f32[1, {c}, {h}, {w}]; out y: f32[1, {c}, {h}, {w}])
  for n:1, c:{c}, h:{h}, w:{w}
    y[n, c, h, w] = max(x[n, c, h, w], 0.0:f32)
"""


def port(c: int, h: int, w: int, inwards: bool, element: DType | None = None, padded: int = 0) -> Case:
    """NCHW in fp32 to NHWC in the job's elements, or back; the latter's pixels may have room for more channels."""
    case = case_of(PORT.format(c=c, h=h, w=w))
    plain, last = case.buffers[0], Buffer.whole(1, case.buffers[1].type, Layout.channels_last(4))
    last = replace(last, strides=row_major((1, h, w, c + padded)))
    last = stored_as(last, element)
    buffers = (plain, last) if inwards else (replace(last, id=0, storage=0), replace(plain, id=1, storage=1))
    return replace(case, buffers=buffers)


def subjects(cases: Sequence[Case]) -> list[Subject]:
    """Each case with the tile that is proposed first, one in the middle and the last one."""
    found: list[Subject] = []
    for case in cases:
        proposals = cuda_transpose_tiles(case.workload, H200, "fp32")
        for at in sorted({0, len(proposals) // 2, len(proposals) - 1}):
            name = f"k{len(found)}_turn"
            found.append(Subject(case, lower_cuda(name, case.workload, proposals[at].tile, H200)))
    return found


def cases() -> list[Case]:
    texts = [COPY.format(dtype=dtype, a=40, b=70) for dtype in ("f32", "f16", "i8", "i64", "bool")]
    texts += [SCALED.format(a=a, b=b) for a, b in ((33, 65), (128, 64), (5, 100))]
    ports = [
        port(c, h, w, inwards, element, padded)
        for c, h, w, padded in ((3, 9, 31, 0), (64, 7, 7, 0), (48, 5, 8, 16))
        for inwards in ((True, False) if c > 3 else (True,))
        for element in (None, DType.F16, DType.BF16)
    ]
    return [*map(case_of, texts), *ports]


@needs_double
def test_turns_mean_what_they_say_on_every_tile() -> None:
    on_double.check(subjects(cases()))


@needs_double
def test_threads_wait_for_the_tile_to_be_whole() -> None:
    found = subjects([case_of(SCALED.format(a=40, b=33)), port(3, 9, 31, True, DType.F16)])
    on_double.check(found, "checked", MODES[4:5])
    broken = found[0].lowered.text.replace("__syncthreads();", "")
    module = compile_kernels(PREAMBLE + broken, "checked", "turn.cu")
    with Device(module, MODES[6]) as device, pytest.raises(Fault, match="race"):
        run(device, found[0])


def test_an_image_is_turned_at_the_models_port_by_enough_blocks() -> None:
    case = port(3, 224, 224, True, DType.F16)
    best = cuda_transpose_tiles(case.workload, H200, "fp16")[0]
    lowered = lower_cuda("turn", case.workload, best.tile, H200)
    assert lowered.grid >= 132
    assert "const float v" not in lowered.text.split("__syncthreads();")[0], "elements go to shared memory as they are"


def test_rows_of_three_channels_are_left_to_the_caches() -> None:
    assert not cuda_transpose_tiles(port(3, 224, 224, False).workload, H200, "fp32")


@pytest.mark.parametrize(
    "text",
    [
        "kernel Neg(in x: f32[40, 64]; out y: f32[40, 64])\n  for i:40, j:64\n    y[i, j] = neg(x[i, j])\n",
        "kernel Pad(in x: f32[40, 64]; out y: f32[70, 40])\n  for i:40, j:70\n"
        "    y[j, i] = where(lt(#(j):i64, 64:i64), x[i, j], 0.0:f32)\n",
        "kernel Sum(in x: f32[40, 64]; out y: f32[64])\n  for j:64\n    y[j] = sum<f32> i:40 . x[i, j]\n",
        "kernel Run(in x: f32[40, 64]; out y: f32[64, 40])\n  for seq i:40, j:64\n    y[j, i] = x[i, j]\n",
    ],
)
def test_what_is_contiguous_guarded_reduced_or_in_order_is_no_turn(text: str) -> None:
    assert as_transpose(case_of(text).workload) is None


def huge(rows: int, columns: int) -> Subject:
    """A transposition of a tensor that no test could allocate."""
    kernel = parse_kernel(COPY.format(dtype="f32", a=rows, b=columns))
    buffers = tuple(Buffer.whole(at, slot.type) for at, slot in enumerate((*kernel.inputs, *kernel.outputs)))
    case = Case(kernel, buffers, ())
    levels = (Level("block", (("reads", 64), ("writes", 32))),)
    return Subject(case, lower_cuda("huge", case.workload, Tile("transpose", levels), H200))


@pytest.mark.parametrize(("columns", "integer"), [(2**15 - 1, "int"), (2**15, "int64_t")])
def test_offsets_are_computed_in_32_bits_where_they_fit(columns: int, integer: str) -> None:
    text = huge(2**16, columns).lowered.text
    assert f"{integer} tile)" in text
    assert f"const {integer} firstRead = " in text


@needs_nvrtc
@pytest.mark.parametrize("architecture", ["sm_80", "sm_90a"])
def test_nvrtc_compiles_them_without_spills(architecture: str) -> None:
    all = [*subjects(cases()), huge(30000, 80000)]
    source = PREAMBLE + "\n".join(subject.lowered.text for subject in all)
    compiled = nvrtc.compile_cuda(source, architecture, "turns.cu")
    assert compiled.kernels.keys() == {subject.lowered.name for subject in all}
    assert not [name for name, resources in compiled.kernels.items() if resources.spills], compiled.log

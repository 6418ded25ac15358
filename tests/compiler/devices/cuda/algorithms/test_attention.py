"""Attention on tensor cores.

On the double against its definition, in every arithmetic, under any division into warps.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from itertools import cycle
from pathlib import Path

import numpy as np
import pytest

from compiler.devices.cuda import nvrtc
from compiler.devices.cuda.algorithms.attention.geometry import FlashAttention, FlashBlocks, as_flash_attention
from compiler.devices.cuda.algorithms.attention.tiles import cuda_attention_tiles
from compiler.devices.cuda.codegen.lowered import PREAMBLE, CudaLowered
from compiler.devices.cuda.emit.lower import lower_cuda
from compiler.devices.cuda.target import resolve
from compiler.ir.buffers import Buffer
from compiler.ir.kernel import Kernel
from compiler.ir.tensor import DType
from tests.compiler.devices.cpu.algorithms.test_attention import forms, fused
from tests.compiler.devices.cpu.library import Case, draws
from tests.compiler.devices.cuda.on_double import ADVERSARIAL, Subject, check, needs_double, run, stored_as, workload_of
from tests.compiler.devices.cuda.test_nvrtc import ARCHITECTURES, disassembler, needs_nvrtc
from tests.cuda_double.double import MODES, Device, Fault, compile_kernels
from tests.parse import parse_kernel

TARGET = resolve("cuda:sm_90")
ARITHMETIC = {
    "f16": ("attention", DType.F16, 3e-3),
    "bf16": ("attention", DType.BF16, 2e-2),
    "tf32": ("attention_tf32", None, 3e-3),
    "3xtf32": ("attention_3xtf32", None, 5e-6),
}
"""Algorithm, dtype in memory, and what may be lost relative to the largest result."""
DIVISIONS = (
    FlashBlocks(1, 4, 32, 1),
    FlashBlocks(2, 2, 16, 2),
    FlashBlocks(1, 2, 16, 2),
    FlashBlocks(4, 1, 32, 1),
    FlashBlocks(1, 1, 16, 3),
    FlashBlocks(2, 1, 64, 2),
)
LAYER = """
kernel Attention(in q: f32[{batch}, {heads}, {queries}, {depth}], in k: f32[{batch}, {shared_heads}, {keys}, {depth}], \
in v: f32[{batch}, {shared_heads}, {keys}, {columns}]{inputs}; \
temp t0: f32[{batch}, {heads}, {queries}, {keys}], temp t1: f32[{batch}, {heads}, {queries}, {keys}], \
temp t2: f32[{batch}, {heads}, {queries}], temp t3: f32[{batch}, {heads}, {queries}, {keys}], \
temp t4: f32[{batch}, {heads}, {queries}], temp t5: f32[{batch}, {heads}, {queries}, {keys}], \
temp t6: f32[{batch}, {heads}, {queries}, {columns}]; out y: f32[{batch}, {heads}, {queries}, {columns}])
  for b:{batch}, h:{heads}, i:{queries}
    for j:{keys}: t0[b, h, i, j] = sum<f32> d:{depth} . mul({q}, {k})
    for j:{keys}: t1[b, h, i, j] = {score}
    t2[b, h, i] = max<f32> j:{keys} . t1[b, h, i, j]
    for j:{keys}: t3[b, h, i, j] = exp(sub(t1[b, h, i, j], t2[b, h, i]))
    t4[b, h, i] = sum<f32> j:{keys} . t3[b, h, i, j]
    for j:{keys}: t5[b, h, i, j] = mul(t3[b, h, i, j], reciprocal(t4[b, h, i]))
    for e:{columns}: t6[b, h, i, e] = sum<f32> j:{keys} . mul(t5[b, h, i, j], {v})
    for e:{columns}: y[b, h, i, e] = {result}
"""
SCORE = "mul(t0[b, h, i, j], 0.25:f32)"


def layer(
    queries: int = 20,
    keys: int = 37,
    depth: int = 32,
    columns: int = 32,
    heads: int = 2,
    batch: int = 1,
    group: int = 1,
    *,
    score: str = SCORE,
    q: str = "q[b, h, i, d]",
    k: str = "",
    v: str = "",
    result: str = "t6[b, h, i, e]",
    inputs: str = "",
) -> Kernel:
    """A layer of attention whose keys and values serve `group` heads each."""
    of_head = {1: "h"}.get(group, f"(h)//{group}" if group < heads else "0")
    kernel = parse_kernel(
        LAYER.format(
            batch=batch,
            heads=heads,
            queries=queries,
            keys=keys,
            depth=depth,
            columns=columns,
            shared_heads=heads // group,
            score=score,
            q=q,
            result=result,
            inputs=inputs,
            k=k or f"k[b, {of_head}, j, d]",
            v=v or f"v[b, {of_head}, j, e]",
        )
    )
    assert as_flash_attention(Case(kernel, whole(kernel), ()).workload), kernel
    return kernel


def with_outputs(kernel: Kernel, *names: str) -> Kernel:
    """A kernel some of whose temporaries are results as well."""
    found = tuple(slot for slot in kernel.temps if slot.name in names)
    temps = tuple(slot for slot in kernel.temps if slot not in found)
    made = replace(kernel, temps=temps, outputs=(*kernel.outputs, *found))
    made.verify()
    return made


def whole(kernel: Kernel) -> tuple[Buffer, ...]:
    return tuple(Buffer.whole(at, slot.type) for at, slot in enumerate((*kernel.inputs, *kernel.outputs)))


def case(kernel: Kernel, arithmetic: str, buffers: Sequence[Buffer] = (), seed: int = 0) -> Case:
    """A kernel on buffers, with random elements."""
    _, element, tolerance = ARITHMETIC[arithmetic]
    random = np.random.default_rng(seed)
    inputs = tuple(
        random.random(slot.type.dims) < 0.7
        if slot.type.dtype is DType.BOOL
        else random.normal(size=slot.type.dims).astype(np.float32)
        for slot in kernel.inputs
    )
    stored = tuple(stored_as(buffer, element) for buffer in buffers or whole(kernel))
    return Case(kernel, stored, inputs, tolerance=tolerance)


def lowered(case: Case, arithmetic: str, blocks: FlashBlocks, name: str = "k") -> CudaLowered:
    return lower_cuda(name, workload_of(case), blocks.tile(ARITHMETIC[arithmetic][0]), TARGET)


def subjects(cases: Sequence[Case], arithmetic: str, divisions: Sequence[FlashBlocks] = DIVISIONS) -> list[Subject]:
    """The cases, each under the next of the divisions."""
    return [
        Subject(case, lowered(case, arithmetic, blocks, f"k{number}_attention"))
        for number, (case, blocks) in enumerate(zip(cases, cycle(divisions), strict=False))
    ]


def of_a_network(arithmetic: str, count: int) -> list[Case]:
    """Layers as exporters write them, fused, on the buffers that fusion gave them."""
    found = []
    for number, form in enumerate(draws(forms(), count)):
        kernels, call = fused(form)
        assert isinstance(call.kernel, Kernel)
        made = case(call.kernel, arithmetic, [kernels.buffers[id] for id in (*call.inputs, *call.outputs)], number)
        inputs = tuple(kernels.constants.get(id, array) for id, array in zip(call.inputs, made.inputs, strict=True))
        found.append(replace(made, inputs=inputs))
    return found


@needs_double
@pytest.mark.parametrize("arithmetic", ARITHMETIC)
def test_layers_of_networks_mean_what_they_say(arithmetic: str) -> None:
    check(subjects(of_a_network(arithmetic, 14), arithmetic))


@needs_double
@pytest.mark.parametrize("arithmetic", ["f16", "3xtf32"])
def test_heads_of_usual_sizes_and_ragged_lengths(arithmetic: str) -> None:
    sizes = ((32, 32), (64, 64), (80, 80), (128, 128), (24, 40))
    cases = [case(layer(19, 70, *size, heads=1), arithmetic) for size in sizes]
    check(subjects(cases, arithmetic))


@needs_double
def test_results_that_a_quantised_model_rounds_are_stored_as_bytes() -> None:
    """By vectors of 16 bytes and one by one; a tie may fall to either side."""
    rounded = "saturate(add(round(mul(t6[0, h, i, e], 40.0:f32)), cast(120:u8):f32)):u8"
    cases = []
    for columns in (32, 17):
        floats = str(layer(columns=columns))
        kernel = parse_kernel(floats.replace("out y: f32", "out y: u8").replace("= t6[0, h, i, e]", f"= {rounded}"))
        cases.append(replace(case(kernel, "3xtf32"), tolerance=1.01 / 255))
    check(subjects(cases, "3xtf32"))


@needs_double
@pytest.mark.parametrize("depth", [16, 128])
def test_three_tf32_products_are_as_exact_as_fp32_however_many_keys_there_are(depth: int) -> None:
    """Tensor cores cut off what they add: over 1024 keys a sum of weighted values in them would drift by 1e-5."""
    made = case(layer(16, 1024, depth, 16, heads=1), "3xtf32")
    q, k, v = made.inputs
    made = replace(made, inputs=(q / np.float32(depth**0.5), k, np.abs(v)))
    (subject,) = subjects([made], "3xtf32", DIVISIONS[4:5])
    with Device(compile_kernels(PREAMBLE + subject.lowered.text), MODES[0]) as device:
        (result,) = run(device, subject)
    q, k, v = (array.astype(np.float64)[0, 0] for array in made.inputs)
    weights = np.exp(0.25 * q @ k.T)
    want = weights @ v / weights.sum(1, keepdims=True)
    error = float(np.linalg.norm(result[0, 0] - want) / np.linalg.norm(want))
    assert error < 6e-7, error


@needs_double
@pytest.mark.parametrize("arithmetic", ["f16", "tf32"])
def test_heads_that_share_keys_and_expressions_around_the_products(arithmetic: str) -> None:
    """Grouped and multi-query heads; scaled operands, masks by position and by data, results that are mapped on."""
    cases = [
        case(layer(group=2, heads=4), arithmetic),
        case(layer(group=4, heads=4, batch=2), arithmetic),
        case(layer(q="mul(q[b, h, i, d], 0.3:f32)", v="mul(-0.5:f32, v[b, h, j, e])"), arithmetic),
        case(layer(score=f"where(le(#(j):i64, #(i + 17):i64), {SCORE}, -10000.0:f32)"), arithmetic),
        case(layer(score=f"add({SCORE}, m[h, i, j])", inputs=", in m: f32[2, 20, 37]"), arithmetic),
        case(
            layer(score="where(m[i, j], t0[b, h, i, j], -3.4028234663852886e+38:f32)", inputs=", in m: bool[20, 37]"),
            arithmetic,
        ),
        case(layer(result="tanh(add(t6[b, h, i, e], m[e]))", inputs=", in m: f32[32]"), arithmetic),
        case(with_outputs(layer(result="max(t6[b, h, i, e], 0.0:f32)"), "t6"), arithmetic),
        case(layer(q="add(q[b, h, i, d], m[h, d])", inputs=", in m: f32[2, 32]"), arithmetic),
    ]
    check(subjects(cases, arithmetic))


def strided(buffer: Buffer, strides: tuple[int, ...], offset: int = 0) -> Buffer:
    return replace(buffer, strides=strides, offset=offset)


def laid_out(arithmetic: str) -> list[Case]:
    """Heads as slices of one row; keys and values transposed; rows of any length at any place."""
    kernel = layer()
    q, k, v, y = whole(kernel)
    fused = (3 * 64 * 20, 32, 192, 1), (3 * 64 * 37, 32, 192, 1), (3 * 64 * 37, 32, 192, 1), (64 * 20, 32, 64, 1)
    return [
        case(kernel, arithmetic, [strided(*pair, 64) for pair in zip((q, k, v, y), fused, strict=True)]),
        case(kernel, arithmetic, [q, strided(k, (2560, 1280, 1, 40)), strided(v, (2560, 1280, 1, 40)), y]),
        case(kernel, arithmetic, [strided(q, (1360, 680, 34, 1)), strided(k, (2516, 1258, 34, 1)), v, y]),
        case(kernel, arithmetic, [strided(q, q.strides, 1), strided(k, k.strides, 3), strided(v, v.strides, 1), y]),
        case(
            kernel,
            arithmetic,
            [q, strided(k, (2442, 1221, 33, 1)), strided(v, (2442, 1221, 33, 1)), strided(y, (1320, 660, 33, 1), 5)],
        ),
        case(
            kernel,
            arithmetic,
            [strided(q, (1280, 1, 64, 2)), strided(k, (2368, 1, 64, 2)), v, strided(y, (1280, 640, 1, 20))],
        ),
    ]


@needs_double
@pytest.mark.parametrize("arithmetic", ["f16", "3xtf32"])
def test_operands_may_lie_anyhow(arithmetic: str) -> None:
    check(subjects(laid_out(arithmetic), arithmetic))
    check(subjects(laid_out(arithmetic), arithmetic, DIVISIONS[1:]))


def test_copies_are_as_wide_as_the_layout_permits() -> None:
    texts = [subject.lowered.text for subject in subjects(laid_out("f16"), "f16", DIVISIONS[:1])]
    widths = [sorted(set(re.findall(r"tw_cp_async_(\d+)\(", text))) for text in texts]
    assert widths == [["16"], ["16"], ["16", "4"], [], [], ["16"]]
    assert ["_trans(b, values_now" in text for text in texts] == [True, False, True, True, True, True]
    assert ["_trans(b, keys_now" in text for text in texts] == [False, True, False, False, False, False]


def edges(arithmetic: str) -> list[Case]:
    """Masks of -infinity, for single keys and for whole rows; large scores.

    A mask that is the lowest number everywhere.
    """
    masked = case(layer(score=f"add({SCORE}, m[i, j])", inputs=", in m: f32[20, 37]"), arithmetic)
    mask = np.where(masked.inputs[3] < -0.5, -np.inf, 0).astype(np.float32)
    mask[[3, 11]] = -np.inf
    mask[5, :] = -np.inf
    mask[5, 36] = 0
    mask[6, :32] = -np.inf
    large = case(layer(), arithmetic)
    lowest = case(
        layer(score="where(m[i, j], t0[b, h, i, j], -3.4028234663852886e+38:f32)", inputs=", in m: bool[20, 37]"),
        arithmetic,
    )
    return [
        replace(masked, inputs=(*masked.inputs[:3], mask)),
        replace(large, inputs=(40 * large.inputs[0], 40 * large.inputs[1], large.inputs[2])),
        replace(lowest, inputs=(*lowest.inputs[:3], np.zeros((20, 37), np.bool_))),
    ]


@needs_double
@pytest.mark.parametrize("arithmetic", ["f16", "3xtf32"])
def test_masked_rows_and_large_scores(arithmetic: str) -> None:
    """A row without any key is NaN, as its definition says; so is none of the others."""
    for divisions in (DIVISIONS[:1], DIVISIONS[1:2], DIVISIONS[4:5]):
        check(subjects(edges(arithmetic)[:1], arithmetic, divisions))
        check(subjects(edges(arithmetic)[2:], arithmetic, divisions))
    large = edges(arithmetic)[1]
    if arithmetic != "f16":  # scores of 1e4 that differ by their rounding choose other keys
        large = replace(large, tolerance=5e-3)
    check(subjects([large], arithmetic))


@needs_double
def test_no_accesses_race_or_leave_their_tensors() -> None:
    cases = [case(layer(20, 70, 16, 16), "f16"), case(layer(35, 37, 20, 12), "f16"), laid_out("f16")[3]]
    check(subjects(cases, "f16", DIVISIONS[1:4]), "checked", MODES[4:5])
    check(subjects(cases[:2], "f16", DIVISIONS[2:]), "checked", MODES[6:7])
    check(subjects([case(layer(20, 37, 8, 8), "3xtf32")], "3xtf32", DIVISIONS[1:2]), "checked", MODES[4:5])


@needs_double
@pytest.mark.parametrize(
    "missing", ["tw_cp_async_wait<3>();", "__syncthreads(); /* keys and values give way */", "__syncwarp();"]
)
def test_a_missing_wait_or_barrier_is_found(missing: str) -> None:
    """So that the test above says something about them."""
    subject = subjects([case(layer(16, 70, 16, 16, heads=1), "f16")], "f16", DIVISIONS[2:3])[0]
    assert missing in subject.lowered.text
    module = compile_kernels(PREAMBLE + subject.lowered.text.replace(missing, ""), "checked", "attention.cu")
    with pytest.raises(Fault, match="race"):
        run_in_modes(module, subject)


def run_in_modes(module: Path, subject: Subject) -> None:
    for mode in (MODES[0], *ADVERSARIAL):
        with Device(module, mode) as device:
            run(device, subject)


def network_shapes(arithmetic: str) -> list[Case]:
    """BERT base, ViT tiny at 128 and 197 tokens, heads of 128 over a long context, of 80 and of 160 in 16 bits."""
    shapes = [(128, 128, 64, 64, 12), (197, 197, 64, 64, 3), (1024, 1024, 128, 128, 8), (77, 77, 80, 80, 4)]
    if arithmetic == "f16":
        shapes.append((256, 256, 160, 160, 8))
    return [case(layer(*shape), arithmetic) for shape in shapes]


@needs_nvrtc
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_tiles_that_are_proposed_compile_without_spills(architecture: str, tmp_path: Path) -> None:
    """The best by the model; the second best where fp32 heads of 128 elements fill the registers."""
    target = resolve(f"cuda:{architecture.removesuffix('a')}")
    kernels = []
    for arithmetic, precision in (("f16", "fp16"), ("tf32", "tf32"), ("3xtf32", "fp32")):
        for at, subject in enumerate(network_shapes(arithmetic)):
            best = cuda_attention_tiles(workload_of(subject), target, precision)[: 1 + (precision == "fp32")]
            for nth, proposal in enumerate(best):
                kernels.append(lower_cuda(f"k{at}_{precision}_{nth}", workload_of(subject), proposal.tile, target))
    compiled = nvrtc.compile_cuda(PREAMBLE + "\n".join(kernel.text for kernel in kernels), architecture, "attention.cu")
    assert compiled.kernels.keys() == {kernel.name for kernel in kernels}
    spilled = {name for name, resources in compiled.kernels.items() if resources.spills}
    assert spilled <= {"k2_fp32_0"}, compiled.log
    assert "warning" not in compiled.log
    tool = disassembler()
    if tool is not None:
        cubin = tmp_path / "kernels.cubin"
        cubin.write_bytes(compiled.image)
        sass = subprocess.run([tool, cubin], capture_output=True, text=True, check=True).stdout
        for instruction in (
            "HMMA.16816.F32",
            "HMMA.1688.F32.TF32",
            "LDSM.16.M88.4",
            "LDSM.16.MT88.4",
            "LDGSTS.E.BYPASS.128",
        ):
            assert instruction in sass, instruction


def test_heads_beyond_the_registers_are_left_to_loops() -> None:
    for size, arithmetic, served in ((160, "f16", True), (192, "f16", True), (256, "f16", False), (160, "tf32", True)):
        of = workload_of(case(layer(16, 16, size, size), arithmetic))
        assert bool(cuda_attention_tiles(of, TARGET, "fp16")) is served, size
    wide = parse_kernel(str(layer(16, 16, 16, 16)).replace(":16", ":272").replace(" 16]", " 272]"))
    assert as_flash_attention(Case(wide, whole(wide), ()).workload) is None


def test_scores_that_are_wanted_in_memory_are_left_to_loops() -> None:
    """A kernel whose masked scores are a second result."""
    both = with_outputs(layer(), "t1")
    of = Case(both, whole(both), ()).workload
    assert as_flash_attention(of) is None
    assert cuda_attention_tiles(of, TARGET, "fp32") == []


def test_rows_in_shared_memory_meet_no_bank_twice() -> None:
    """The 16-byte rows that ldmatrix reads at once, and the elements that a warp's lanes read at once in fp32."""
    for arithmetic in ("f16", "3xtf32"):
        for turned in (False, True):
            for size in (16, 32, 64, 80, 96, 128):
                form = as_flash_attention(workload_of(case(layer(16, 64, size, size), arithmetic)))
                assert isinstance(form, FlashAttention)
                k = replace(form.k, inner="result" if turned else "sum")
                pitch = form.pitch(k, size)
                if arithmetic == "f16":
                    banks = {row * pitch * 2 // 16 % 8 for row in range(8)}
                    assert (len(banks), pitch % 8) == (8, 0)
                elif turned:
                    banks = {(2 * t * pitch + g) % 32 for t in range(4) for g in range(8)}
                    assert len(banks) == 32
                else:
                    banks = {(g * pitch + 2 * t + odd) % 32 for g in range(4) for t in range(4) for odd in range(2)}
                    assert (len(banks), pitch % 2) == (32, 0)

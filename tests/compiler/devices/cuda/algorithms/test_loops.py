"""The generic CUDA lowering: kernels run on the double, by teams of every size, and are judged by what they mean."""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from compiler.devices.cuda import nvrtc
from compiler.devices.cuda.algorithms.loops.team import TEAMS
from compiler.devices.cuda.algorithms.loops.tiles import cuda_loop_tiles
from compiler.devices.cuda.algorithms.routine.lowering import cuda_routine_tiles
from compiler.devices.cuda.codegen.lowered import PREAMBLE, CudaLowered
from compiler.devices.cuda.codegen.scalars import HALVES
from compiler.devices.cuda.emit.lower import lower_cuda
from compiler.devices.cuda.target import resolve
from compiler.errors import ModelError
from compiler.ir.buffers import Buffer
from compiler.ir.machine import Workload
from compiler.ir.tensor import DType, Layout
from compiler.ir.tile import Level, Tile
from tests.compiler.backend_cases import by_definition, by_operator, loaded
from tests.compiler.devices.cpu.algorithms.test_loops import MANY_BLOCKS, many_blocks, maps, reductions
from tests.compiler.devices.cpu.codegen import test_backend_kernels as conformance
from tests.compiler.devices.cpu.library import Case, draws
from tests.compiler.devices.cuda import on_double
from tests.compiler.devices.cuda.algorithms.test_window import around_the_wait, needs_disassembler
from tests.compiler.devices.cuda.on_double import (
    ADVERSARIAL,
    Subject,
    case_of,
    needs_double,
    run,
    stored_as,
    workload_of,
)
from tests.compiler.devices.cuda.test_nvrtc import needs_nvrtc
from tests.cuda_double.double import MODES, Device, Fault, Mode, compile_kernels, compiler_there
from tests.parse import parse_kernel

H200 = resolve("cuda:sm_90")


def lower(name: str, workload: Workload, team: int | None = None, columns: int = 0) -> CudaLowered:
    """A kernel by the loops of a team, one that the lowering chooses where it is None."""
    levels = () if team is None else (Level("block", (("team", team), ("columns", columns))),)
    return lower_cuda(name, workload, Tile("loops", levels), H200)


def subjects(cases: Sequence[Case], teams: Sequence[int | None]) -> list[Subject]:
    """The cases lowered, each by the next of `teams`."""
    return [
        Subject(case, lower(f"k{number}_case", workload_of(case), teams[number % len(teams)]))
        for number, case in enumerate(cases)
    ]


def shortened(cases: Sequence[Case], elements: Sequence[DType] = HALVES) -> list[Case]:
    """The cases with fp32 buffers that lie in memory as the next of `elements`."""
    return [
        replace(case, buffers=tuple(stored_as(buffer, elements[number % len(elements)]) for buffer in case.buffers))
        for number, case in enumerate(cases)
    ]


def check(
    cases: Sequence[Case],
    teams: Sequence[int | None] = (None,),
    flavour: str = "plain",
    modes: Sequence[Mode] = ADVERSARIAL,
) -> None:
    """Compares each case, lowered by the next of `teams`, with what its kernel means."""
    on_double.check(subjects(cases, teams), flavour, modes)


@needs_double
def test_maps_mean_what_their_expressions_say() -> None:
    check(draws(maps(), 60), (None, None, 32))


@needs_double
def test_reductions_by_every_monoid_mean_what_they_say_by_every_team() -> None:
    check(draws(reductions(), 80), (None, *TEAMS))


@needs_double
def test_kernels_of_many_blocks_mean_what_they_say_by_every_team() -> None:
    check(draws(many_blocks(), 60), (None, *TEAMS))


BIAS = """
kernel Add(in x: {dtype}[3, {rows}, {columns}], in b: {dtype}[{rows}, 1]; out y: {dtype}[3, {rows}, {columns}])
  for i:3, j:{rows}, k:{columns}
    y[i, j, k] = max(add(x[i, j, k], b[j, 0]), cast(0.0:f32):{dtype})
"""
NORMALISATION = """
kernel LayerNorm(in x: {dtype}[{rows}, {columns}], in g: {dtype}[{columns}]; temp m: f32[], temp v: f32[]; \
out y: {dtype}[{rows}, {columns}])
  for i:{rows}
    m[] = sum<f32> k:{columns} . mul(cast(x[i, k]):f32, {inverse}:f32)
    v[] = sum<f32> k:{columns} . mul(mul(sub(cast(x[i, k]):f32, m[]), sub(cast(x[i, k]):f32, m[])), {inverse}:f32)
    for k:{columns}: y[i, k] = mul(cast(mul(sub(cast(x[i, k]):f32, m[]), rsqrt(add(v[], 0.00001:f32)))):{dtype}, g[k])
"""
GREATEST = """
kernel Max(in x: {dtype}[{rows}, {columns}]; out y: {dtype}[{rows}], out z: {dtype}[{columns}])
    for i:{rows}: y[i] = max<{dtype}> k:{columns} . x[i, k]
    for k:{columns}: z[k] = max<{dtype}> i:{rows} . x[i, k]
"""
CONVOLUTION = """
kernel Conv(in x: f16[1, 5, 37, 37], in w: f16[3, 5, 3, 3]; temp t: f32[]; out y: f16[1, 3, 37, 37])
  for n:1, k:3, oy:37, ox:37
    t[] = sum<f32> c:5, r:3, s:3 . mul(where(and(and(ge(#(oy + r - 1):i64, 0:i64), lt(#(oy + r - 1):i64, 37:i64)), \
and(ge(#(ox + s - 1):i64, 0:i64), lt(#(ox + s - 1):i64, 37:i64))), cast(x[n, c, oy + r - 1, ox + s - 1]):f32, \
0.0:f32), cast(w[k, c, r, s]):f32)
    y[n, k, oy, ox] = cast(max(t[], 0.0:f32)):f16
"""
SOFTMAX = MANY_BLOCKS["softmax that keeps its exponentials"]


def sized(text: str, dtype: str, rows: int, columns: int) -> Case:
    return case_of(text.format(dtype=dtype, rows=rows, columns=columns, inverse=1 / columns))


def of_every_dtype() -> list[Case]:
    """Elementwise, normalised and reduced in all storage dtypes, at odd sizes and even ones."""
    sizes = ((1, 1), (5, 7), (2, 64), (3, 257), (33, 40))
    floats = [
        sized(text, dtype, *size)
        for text in (BIAS, NORMALISATION)
        for dtype in ("f32", "f16", "bf16")
        for size in sizes
    ]
    return floats + [sized(GREATEST, dtype, *size) for dtype in ("f16", "bf16", "i8", "i64", "bool") for size in sizes]


@needs_double
def test_all_storage_dtypes_are_served() -> None:
    check(of_every_dtype(), (None, 32, None, 128))


@needs_double
def test_large_points_and_many_points() -> None:
    """A row that shared memory cannot hold, and a window over points that lie side by side."""
    long_row, window = case_of(SOFTMAX.format(a=2, b=12000, c=1)), case_of(CONVOLUTION, constant=(1,))
    lowered = [subject.lowered for subject in subjects([long_row, window], (None,))]
    assert (lowered[0].block, lowered[0].scratch_bytes) == (512, 2 * 4 * 12000)
    assert (lowered[1].grid, lowered[1].block) == (-(-3 * 37 * 37 // 128), 128)
    assert "const tw_f16 *__restrict__ t_w" in lowered[1].text
    check([long_row, window], modes=MODES[3:4])


def test_a_thread_takes_16_bytes_of_a_row_where_rows_divide() -> None:
    whole, odd = (lower("k", workload_of(sized(BIAS, "f16", 8, columns))) for columns in (40, 41))
    assert "*(tw_vector<tw_f16, 8> *)(t_y + " in whole.text
    assert whole.grid == -(-3 * 8 * 5 // whole.block)
    assert "tw_vector" not in odd.text
    assert odd.grid == -(-3 * 8 * 41 // odd.block)


def test_a_dense_tensor_of_any_length_is_taken_by_16_bytes_but_for_its_end() -> None:
    text = "kernel Neg(in x: f32[3, 7]; out y: f32[3, 7])\n  for i:3, j:7\n    y[i, j] = neg(x[i, j])\n"
    lowered = lower("k", workload_of(case_of(text)))
    assert "tw_vector<float, 4>" in lowered.text
    assert "+ 4 <= 21" in lowered.text
    if compiler_there():
        check([case_of(text)])


@needs_double
def test_elements_that_lie_in_memory_in_16_bits_are_converted_by_every_team() -> None:
    cases = [*draws(maps(), 30), *draws(reductions(), 40), *draws(many_blocks(), 40)]
    check(shortened(cases), (None, *TEAMS))


@needs_double
def test_rows_of_16_bit_elements_are_taken_by_vectors() -> None:
    rows = [sized(text, "f32", *size) for text in (BIAS, NORMALISATION) for size in ((3, 64), (2, 2048), (3, 257))]
    cases = shortened([*rows, *rows[::-1], case_of(SOFTMAX.format(a=3, b=320, c=1))])
    assert "*(const tw_vector<tw_f16, 8> *)(t_x + " in subjects(cases, (None,))[0].lowered.text
    check(cases, (None, 32, 256))


OWN_OUTPUT = """
kernel Chain(in x: f32[{a}, {c}]; out y: f32[{a}, {c}], out s: f32[{a}], out z: f32[{a}, {c}])
  for i:{a}
    for l:{c}: y[i, l] = mul(x[i, l], 1.001:f32)
    s[i] = sum<f32> l:{c} . mul(y[i, l], y[i, {c} - 1 - l])
    for l:{c}: z[i, l] = sub(y[i, {c} - 1 - l], div(y[i, l], add(abs(s[i]), 1.0:f32)))
"""


@needs_double
def test_outputs_in_16_bits_may_be_read_again_by_other_threads() -> None:
    cases = shortened([case_of(OWN_OUTPUT.format(a=a, c=c)) for a, c in ((3, 7), (2, 300), (1, 64), (5, 33))])
    for team in (1, 32, 128):
        check(cases, (team,))
    check(cases[1:], (32, 128), "checked", MODES[4:5])


INSTANCE_NORMALISATION = """
kernel InstanceNorm(in x: f32[{n}, {c}, {h}, {w}], in g: f32[{c}]; temp m: f32[], temp v: f32[]; \
out y: f32[{n}, {c}, {h}, {w}], out s: f32[{n}, {c}])
  for n:{n}, c:{c}
    m[] = sum<f32> i:{h}, j:{w} . mul(x[n, c, i, j], {inverse}:f32)
    v[] = sum<f32> i:{h}, j:{w} . mul(mul(sub(x[n, c, i, j], m[]), sub(x[n, c, i, j], m[])), {inverse}:f32)
    for i:{h}, j:{w}: y[n, c, i, j] = add(mul(sub(x[n, c, i, j], m[]), rsqrt(add(v[], 0.00001:f32))), g[c])
    s[n, c] = v[]
"""


def channels_last(case: Case) -> Case:
    """Images in NHWC."""
    last = [
        replace(Buffer.whole(at, buffer.type, Layout.channels_last(4)), element=buffer.element)
        if buffer.type.rank == 4
        else buffer
        for at, buffer in enumerate(case.buffers)
    ]
    return replace(case, buffers=tuple(last))


def column_cases() -> list[Case]:
    """Loops that run across memory, at points that lie side by side."""
    sizes = ((2, 32, 5, 7), (1, 64, 5, 5), (1, 24, 20, 9), (3, 8, 6, 6))
    texts = [INSTANCE_NORMALISATION.format(n=n, c=c, h=h, w=w, inverse=1 / h / w) for n, c, h, w in sizes]
    images = [channels_last(case_of(text)) for text in texts]
    sums = [case_of(text.format(a=3, b=40, c=32, inverse=1 / 32, last_a=2, last_b=39)) for text in MANY_BLOCKS.values()]
    return [*images, *(case for case in sums if "threadIdx.x % 8" in lower("k", workload_of(case)).text)]


@needs_double
def test_columns_of_threads_reduce_across_memory() -> None:
    cases = column_cases()
    lowered = [subject.lowered for subject in subjects(cases, (None,))]
    assert [(one.grid, one.block) for one in lowered[:4]] == [(8, 64), (8, 64), (3, 256), (3, 64)]
    assert len(cases) == 8
    check(cases)
    check(shortened(cases))
    for columns, team in ((32, 8), (16, 16), (8, 32)):
        explicit = [
            Subject(case, lower(f"k{at}_case", workload_of(case), team, columns)) for at, case in enumerate(cases[:2])
        ]
        on_double.check(explicit)
    check([cases[0], cases[2], *cases[4:]], flavour="checked", modes=MODES[4:5])


def test_a_normalised_image_of_64_channels_is_read_by_neighbours() -> None:
    case = channels_last(case_of(INSTANCE_NORMALISATION.format(n=1, c=64, h=28, w=28, inverse=1 / 784)))
    lowered = lower("k", workload_of(case))
    assert (lowered.grid, lowered.block) == (8, 512)
    assert "const int point = tile * 8 + (int)threadIdx.x % 8;" in lowered.text
    wide = lower("k", workload_of(case), 16, 32)
    assert (wide.grid, wide.block) == (2, 512)


SHARED = """
kernel Scale(in x: f32[{a}, {c}], in r: f32[{a}]; temp t: f32[]; out y: f32[{a}], out z: f32[{a}, {c}])
  for i:{a}
    t[] = sum<f32> k:{c} . x[i, k]
    y[i] = add(t[], r[i])
    for k:{c}: z[i, k] = mul(x[i, k], y[i])
"""


@needs_double
def test_all_threads_have_read_an_input_before_one_stores_an_output_over_it() -> None:
    cases = [case_of(SHARED.format(a=a, c=c)) for a, c in ((3, 300), (5, 40))]
    for team in (32, 128):
        all = [replace(subject, in_place=((0, 1),)) for subject in subjects(cases, (team,))]
        on_double.check(all, "checked", MODES[4:7])


def begun_at(case: Case, offset: int) -> Case:
    """With room before every buffer."""
    return replace(case, buffers=tuple(replace(buffer, offset=offset) for buffer in case.buffers))


@needs_double
@pytest.mark.parametrize(("offset", "count"), [(8, 8), (4, 4), (2, 2), (3, 1)])
def test_accesses_are_as_wide_as_a_buffers_beginning_allows(offset: int, count: int) -> None:
    cases = [
        begun_at(case, offset)
        for case in shortened([sized(BIAS, "f32", 3, 64), sized(BIAS, "f32", 1, 40)], [DType.F16])
    ]
    texts = [subject.lowered.text for subject in subjects(cases, (None,))]
    for text in texts:
        assert (f"tw_vector<tw_f16, {count}>" in text) == (count > 1)
        assert f"tw_vector<tw_f16, {2 * count}>" not in text
    check(cases, (None, 32), "checked", MODES[4:5])


PAD = """
kernel Pad(in x: f16[3, 4, 24]; out y: f16[3, 7, 24])
  for i:3, j:7, k:24
    y[i, j, k] = where(and(ge(#(j - 2):i64, 0:i64), lt(#(j - 2):i64, 4:i64)), x[i, j - 2, k], cast(1.5:f32):f16)
"""
TWICE = """
kernel Twice(in x: f32[3, 4, 24]; out y: f32[3, 4, 24])
  for i:3, j:4, k:24
    y[i, j, k] = add(where(lt(#(j):i64, 2:i64), x[i, j, k], 1.0:f32), where(lt(#(i):i64, 2:i64), x[i, j, k], 2.0:f32))
"""


@needs_double
def test_what_is_read_under_a_condition_for_a_whole_vector_is_read_by_a_vector() -> None:
    pad, twice = case_of(PAD), case_of(TWICE)
    assert "= *(const tw_vector<tw_f16, 8> *)(t_x" in lower("k", workload_of(pad)).text
    assert "(const tw_vector<float, 4> *)(t_x" not in lower("k", workload_of(twice)).text
    check([pad, twice], flavour="checked", modes=MODES[4:5])


def test_functions_that_take_long_are_spread_over_threads_while_those_are_few() -> None:
    text = "kernel Map(in x: f16[{n}]; out y: f16[{n}])\n  for i:{n}\n    y[i] = {function}(x[i])\n"
    grids = {
        (n, function): lower("k", workload_of(case_of(text.format(n=n, function=function)))).grid
        for n, function in ((1024, "tanh"), (1024, "neg"), (65536, "tanh"))
    }
    assert grids == {(1024, "tanh"): 4, (1024, "neg"): 1, (65536, "tanh"): 64}


@needs_double
def test_a_sigmoid_neither_overflows_nor_loses_nan() -> None:
    text = "kernel Sigmoid(in x: {t}[8]; out y: {t}[8])\n  for i:8\n    y[i] = sigmoid(x[i])\n"
    values = np.array([-np.inf, -200, -1.5, -0.0, 0.25, 90, np.inf, np.nan])
    cases = [case_of(text.format(t=dtype)) for dtype in ("f32", "f64", "f16")]
    with np.errstate(over="ignore"):
        check([replace(case, inputs=(values.astype(case.inputs[0].dtype),)) for case in cases])


@needs_nvrtc
@needs_disassembler
def test_what_a_thread_reads_of_a_row_is_on_its_way_together(tmp_path: Path) -> None:
    """768 elements for 128 threads.

    A thread has one vector of four or two, and no branch decides between them before both are requested.
    """
    (subject,) = subjects(shortened([sized(NORMALISATION, "f32", 4, 768)], [DType.F16]), (128,))
    _, after = around_the_wait(subject, tmp_path)
    first = after[after.index("LDG") : after.index("SHFL")]
    assert (first.count("LDG.E.64"), first.count("BRA")) == (2, 0), first


def racing_cases() -> list[Case]:
    """Small kernels in which threads hand one another values."""
    return [
        *draws(many_blocks(), 12),
        case_of(SOFTMAX.format(a=3, b=300, c=1)),
        sized(NORMALISATION, "f16", 3, 257),
        sized(GREATEST, "f16", 40, 33),
    ]


@needs_double
def test_no_accesses_race_or_leave_their_tensors() -> None:
    cases = racing_cases()
    for team in (32, 128):
        check(cases, (team,), "checked", MODES[4:5])


@needs_double
@pytest.mark.parametrize("team", [32, 256])
def test_a_missing_barrier_is_found(team: int) -> None:
    """So that the tests above say something about barriers."""
    case = case_of(SOFTMAX.format(a=2, b=300, c=1).replace("e[k]", f"e[{299} - k]"))
    lowered = lower("softmax", workload_of(case), team)
    barrier = "__syncwarp();" if team == 32 else "__syncthreads();"
    assert barrier in lowered.text
    for text, faults in ((lowered.text, False), (lowered.text.replace(barrier, ""), True)):
        module = compile_kernels(PREAMBLE + text, "checked", "softmax.cu")
        with Device(module, MODES[6]) as device:
            if faults:
                with pytest.raises(Fault, match="race"):
                    run(device, Subject(case, lowered))
            else:
                run(device, Subject(case, lowered))


def one_of_each_operator() -> list[tuple[conformance.Subject, CudaLowered]]:
    """A case of each operator of onnx's conformance suite that loads, by the tile that is always legal."""
    found: list[tuple[conformance.Subject, CudaLowered]] = []
    for cases in by_operator().values():
        try:
            graph, feeds, _ = loaded(cases[0], cases[0].data_sets[0][0])
        except ModelError:
            continue
        values = by_definition(graph, feeds)
        for node in graph.nodes:
            kernel = conformance.kernel_of(graph, node)
            subject = next(conformance.ways(graph, node, kernel, values, cases[0].name))
            name = f"k{len(found)}_{node.op.lower()}"
            workload = workload_of(subject.case)
            (proposal,) = cuda_loop_tiles(workload, H200, "fp32") or cuda_routine_tiles(workload, H200, "fp32")
            found.append((subject, lower_cuda(name, workload, proposal.tile, H200)))
    return found


@needs_double
def test_a_kernel_of_every_operator_computes_what_its_definition_says() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of onnx's own making
        found = one_of_each_operator()
    served = {subject.operator for subject, _ in found}
    assert len(served) > 100, "the suite has shrunk"
    assert served >= {"Conv", "MatMul", "Softmax", "LayerNormalization", "Gather", "Resize", "Pad", "Einsum", "ArgMax"}
    assert served >= {"LSTM", "GRU", "RNN", "CumSum", "ScatterElements", "ScatterND", "TopK"}
    module = compile_kernels(PREAMBLE + "\n".join(lowered.text for _, lowered in found), "plain", "operators.cu")
    with Device(module, MODES[2]) as device:
        for subject, lowered in found:
            for got, want in zip(run(device, Subject(subject.case, lowered)), subject.expected, strict=True):
                assert not conformance.fault(got, want), f"{subject.source}\n{lowered.text}"


NEGATED = """
kernel Neg(in x: f32[{n}, 3]; out y: f32[3, {n}])
  for i:{n}, j:3
    y[j, i] = neg(x[i, j])
"""
REVERSED = """
kernel Reverse(in x: f32[{n}]; out y: f32[{n}])
  for i:{n}
    y[i] = x[{last} - i]
"""
GATHERED = """
kernel Gather(in x: f32[{n}, 64], in at: i64[77]; out y: f32[77, 64])
  for i:77, j:64
    y[i, j] = x[[at[i] in 0..{last}], j]
"""


def huge(text: str, n: int, name: str = "k") -> CudaLowered:
    """A kernel of tensors that no test could allocate."""
    kernel = parse_kernel(text.format(n=n, last=n - 1))
    buffers = tuple(Buffer.whole(at, slot.type) for at, slot in enumerate((*kernel.inputs, *kernel.outputs)))
    return lower(name, workload_of(Case(kernel, buffers, ())))


FITS = 2**31 - 2048
"""Elements whose offsets `int` holds, with room for the last tile."""


@pytest.mark.parametrize(
    ("text", "n", "integer"),
    [
        (NEGATED, 1000, "int"),
        (NEGATED, FITS // 3, "int"),
        (NEGATED, 2**31 // 3 + 1, "int64_t"),
        (NEGATED, 2**30, "int64_t"),
        (REVERSED, FITS // 2, "int"),
        (REVERSED, FITS, "int64_t"),
        (GATHERED, FITS // 64, "int"),
        (GATHERED, 2**31 // 64 + 1, "int64_t"),
    ],
)
def test_offsets_are_computed_in_32_bits_where_all_that_they_are_made_of_fits(text: str, n: int, integer: str) -> None:
    lowered = huge(text, n)
    assert f"{integer} tile)" in lowered.text
    assert f"const {integer} point = " in lowered.text
    assert ("int64_t" in lowered.text.split("tile)")[1]) == (integer == "int64_t" or text is GATHERED)
    assert lowered.grid * lowered.block >= (77 * 64 if text is GATHERED else n) // 4


def test_an_index_that_is_data_is_widened_only_where_it_must_be() -> None:
    few, many = (huge(GATHERED, n).text for n in (1000, 2**31))
    assert re.search(r"t_x \+ \(int\)\(v_\d+\) \* 64", few)
    assert re.search(r"t_x \+ \(long\)\(v_\d+\) \* 64", many)


def test_conditions_on_positions_are_tested_in_the_integers_of_their_axes() -> None:
    text = lower("k", workload_of(case_of(CONVOLUTION))).text
    assert "(Oy + R - 1 >= 0)" in text
    assert "int64_t" not in text


def test_a_point_is_divided_unsigned_where_no_loop_follows() -> None:
    assert "const int J = (unsigned)point / 3 % 7;" in lower("k", workload_of(case_of(PAD))).text
    assert "const int K = point / 1369;" in lower("k", workload_of(case_of(CONVOLUTION))).text


@needs_nvrtc
@pytest.mark.parametrize("architecture", ["sm_80", "sm_90a"])
def test_nvrtc_compiles_them_without_spills(architecture: str) -> None:
    cases = [
        *draws(maps(), 15),
        *draws(reductions(), 25),
        *racing_cases(),
        *of_every_dtype()[::3],
        case_of(CONVOLUTION),
    ]
    all = subjects(cases, (None, None, 32, 128))
    large = [huge(text, 2**32, f"huge{at}") for at, text in enumerate((NEGATED, REVERSED, GATHERED))]
    kernels = [*(subject.lowered for subject in all), *large]
    source = PREAMBLE + "\n".join(kernel.text for kernel in kernels)
    compiled = nvrtc.compile_cuda(source, architecture, "loops.cu")
    assert compiled.kernels.keys() == {kernel.name for kernel in kernels}
    assert not [name for name, resources in compiled.kernels.items() if resources.spills], compiled.log
    assert "warning" not in compiled.log

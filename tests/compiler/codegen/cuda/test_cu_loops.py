"""The generic CUDA lowering: kernels run on the double, by teams of every size, and are judged by what they mean."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from contextlib import suppress

import pytest

from compiler.codegen.cuda import nvrtc
from compiler.codegen.cuda.cu_loops import TEAMS, lower_cuda_loops
from compiler.codegen.cuda.lowered import PREAMBLE, CudaLowered
from compiler.errors import InternalError, ModelError
from compiler.ir.buffers import Buffer
from compiler.ir.kernel import Routine, Slot
from compiler.ir.machine import Workload
from compiler.ir.parse import parse_kernel
from compiler.ir.tensor import DType, TensorType
from tests.compiler.backend_cases import by_definition, by_operator, loaded
from tests.compiler.codegen import test_backend_kernels as conformance
from tests.compiler.codegen.cuda import on_double
from tests.compiler.codegen.cuda.on_double import ADVERSARIAL, Subject, case_of, needs_double, run
from tests.compiler.codegen.cuda.test_nvrtc import needs_nvrtc
from tests.compiler.codegen.library import Case, draws
from tests.compiler.codegen.test_c_loops import MANY_BLOCKS, SCANS, many_blocks, maps, reductions
from tests.cuda_double.double import MODES, Device, Fault, Mode, compile_kernels, compiler_there


def subjects(cases: Sequence[Case], teams: Sequence[int | None]) -> list[Subject]:
    """The cases lowered, each by the next of `teams`."""
    return [
        Subject(case, lower_cuda_loops(f"k{number}_case", case.workload, teams[number % len(teams)]))
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
kernel LayerNorm(in x: {dtype}[{rows}, {columns}], in g: {dtype}[{columns}]; temp m: f32[], temp v: f32[]; out y: {dtype}[{rows}, {columns}])
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
    t[] = sum<f32> c:5, r:3, s:3 . mul(where(and(and(ge(#(oy + r - 1):i64, 0:i64), lt(#(oy + r - 1):i64, 37:i64)), and(ge(#(ox + s - 1):i64, 0:i64), lt(#(ox + s - 1):i64, 37:i64))), cast(x[n, c, oy + r - 1, ox + s - 1]):f32, 0.0:f32), cast(w[k, c, r, s]):f32)
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
    assert "const tw_f16 *__restrict__ w" in lowered[1].text
    check([long_row, window], modes=MODES[3:4])


def test_a_thread_takes_16_bytes_of_a_row_where_rows_divide() -> None:
    whole, odd = (lower_cuda_loops("k", sized(BIAS, "f16", 8, columns).workload) for columns in (40, 41))
    assert "*(tw_vector<tw_f16, 8> *)(y + " in whole.text
    assert whole.grid == -(-3 * 8 * 5 // whole.block)
    assert "tw_vector" not in odd.text
    assert odd.grid == -(-3 * 8 * 41 // odd.block)


def test_a_dense_tensor_of_any_length_is_taken_by_16_bytes_but_for_its_end() -> None:
    text = "kernel Neg(in x: f32[3, 7]; out y: f32[3, 7])\n  for i:3, j:7\n    y[i, j] = neg(x[i, j])\n"
    lowered = lower_cuda_loops("k", case_of(text).workload)
    assert "tw_vector<float, 4>" in lowered.text
    assert "+ 4 <= 21" in lowered.text
    if compiler_there():
        check([case_of(text)])


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
    lowered = lower_cuda_loops("softmax", case.workload, team)
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
    """A case of each operator of onnx's conformance suite that loads; sequential axes and routines are left out."""
    found: list[tuple[conformance.Subject, CudaLowered]] = []
    for cases in by_operator().values():
        try:
            graph, feeds = loaded(cases[0], cases[0].data_sets[0][0])
        except ModelError:
            continue
        values = by_definition(graph, feeds)
        for node in graph.nodes:
            subject = next(conformance.ways(graph, node, values, cases[0].name))
            name = f"k{len(found)}_{node.op.lower()}"
            with suppress(InternalError):
                found.append((subject, lower_cuda_loops(name, subject.case.workload)))
    return found


@needs_double
def test_a_kernel_of_every_operator_computes_what_its_definition_says() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of onnx's own making
        found = one_of_each_operator()
    served = {subject.operator for subject, _ in found}
    assert len(served) > 100, "the suite has shrunk"
    assert served >= {"Conv", "MatMul", "Softmax", "LayerNormalization", "Gather", "Resize", "Pad", "Einsum", "ArgMax"}
    module = compile_kernels(PREAMBLE + "\n".join(lowered.text for _, lowered in found), "plain", "operators.cu")
    with Device(module, MODES[2]) as device:
        for subject, lowered in found:
            for got, want in zip(run(device, Subject(subject.case, lowered)), subject.expected, strict=True):
                assert not conformance.fault(got, want), f"{subject.source}\n{lowered.text}"


def test_offsets_beyond_32_bits_are_computed_in_64() -> None:
    text = "kernel Neg(in x: f32[{n}, 3]; out y: f32[3, {n}])\n  for i:{n}, j:3\n    y[j, i] = neg(x[i, j])\n"
    for n, integer in ((1000, "int"), (2**30, "int64_t")):
        kernel = parse_kernel(text.format(n=n))
        buffers = tuple(Buffer.whole(at, slot.type) for at, slot in enumerate((*kernel.inputs, *kernel.outputs)))
        lowered = lower_cuda_loops("k", Case(kernel, buffers, ()).workload)
        assert f"{integer} tile)" in lowered.text
        assert f"const {integer} point = " in lowered.text
        assert lowered.grid * lowered.block >= 3 * n // 4


@pytest.mark.parametrize("name", sorted(SCANS))
def test_sequential_axes_are_refused(name: str) -> None:
    sizes = {"a": 3, "b": 4, "c": 5, "d": 6}
    with pytest.raises(InternalError, match="sequential axes"):
        lower_cuda_loops("k", case_of(SCANS[name].format(**sizes)).workload)


def test_routines_are_refused() -> None:
    slot = Slot("x", TensorType(DType.F32, (4,)))
    workload = Workload(Routine("Sort", "sort", (slot,), ()), (Buffer.whole(0, slot.type),), (), (False,))
    with pytest.raises(InternalError, match="routine sort"):
        lower_cuda_loops("k", workload)


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
    huge = parse_kernel(
        "kernel Neg(in x: f32[4294967296]; out y: f32[4294967296])\n  for i:4294967296\n    y[i] = neg(x[i])\n"
    )
    whole = tuple(Buffer.whole(at, slot.type) for at, slot in enumerate((*huge.inputs, *huge.outputs)))
    all.append(Subject(Case(huge, whole, ()), lower_cuda_loops("huge", Case(huge, whole, ()).workload)))
    source = PREAMBLE + "\n".join(subject.lowered.text for subject in all)
    compiled = nvrtc.compile_cuda(source, architecture, "loops.cu")
    assert compiled.kernels.keys() == {subject.lowered.name for subject in all}
    assert not [name for name, resources in compiled.kernels.items() if resources.spills], compiled.log
    assert "warning" not in compiled.log

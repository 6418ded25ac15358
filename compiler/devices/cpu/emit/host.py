"""model.c: the plans as tables, before the runtime that is the same for every model."""

from __future__ import annotations

import math
from collections.abc import Sequence

from compiler.codegen.build import WASM, shares_memory
from compiler.codegen.host_tables import Operand, c_string, description, nanoseconds, operand, ports, table
from compiler.codegen.weights import Weights
from compiler.codegen.writer import Writer
from compiler.contract.systems import MACOS, WINDOWS
from compiler.devices.cpu.codegen.lowered import Lowered
from compiler.devices.cpu.target import CpuTarget
from compiler.forms.bounds import bounds_in
from compiler.ir.buffers import KernelGraph
from compiler.ir.kernel import Kernel, Routine
from compiler.ir.plans.guards import verify_guards
from compiler.ir.plans.plan import Plan
from compiler.ir.region import regions_of
from compiler.ir.states import Carried

C_FEATURES = {
    "sse4_2": "sse4.2",
    "avx512_vnni": "avx512vnni",
    "avx512_bf16": "avx512bf16",
    "avx_vnni": "avxvnni",
    "amx_tile": "amx-tile",
    "amx_int8": "amx-int8",
    "amx_bf16": "amx-bf16",
}
"""Features that C compilers spell in another way than /proc/cpuinfo."""


def host_source(
    kernels: KernelGraph,
    plans: Sequence[Plan],
    lowered: Sequence[Sequence[Lowered]],
    weights: Weights,
    target: CpuTarget,
    headers: Sequence[str] = ("kernels.h",),
    carried: Sequence[Carried] = (),
) -> str:
    """The text of model.c.

    `lowered` is in call order for each plan, `headers` declare it; `carried` are the states that `tw_state.h` keeps.
    Constants are added to `weights` in the order of their first use. Of several plans the runtime takes the first whose
    limit is at least the hand-off latency.

    Raises VerifyError unless limits rise to infinity.
    """
    if len(plans) > 1:
        verify_guards(plans)
    in_page = target.machine == WASM
    writer = Writer()
    writer.line("#define _GNU_SOURCE /* for the cores that threads are kept on */")
    for header in ("model.h", *headers):
        writer.line(f'#include "{header}"')
    writer.line("#include <math.h>")
    writer.line("#include <stddef.h>")
    _cpu_headers(writer, target)
    if target.has_tiles:
        writer.line("#include <sys/syscall.h>")
        writer.line("#include <unistd.h>")
    writer.line()
    _structs(writer)
    ports(writer, kernels)
    _counts(writer, kernels, plans)
    for number, (plan, chosen) in enumerate(zip(plans, lowered, strict=True), 1):
        writer.line(f"/* Plan {number}: {plan.scheduler}, {plan.lanes} lanes{_limit(plan)} */")
        _calls(writer, number, kernels, chosen)
        table(writer, "operand", f"operands_{number}", f"OPERANDS_{number}", _operands(kernels, plan, chosen, weights))
        _tasks(writer, number, plan)
    _plans(writer, plans)
    scratch = max((-(-kernel.scratch_bytes // 4096) * 4096 for each in lowered for kernel in each), default=0)
    size = weights.size
    writer.line(f"#define WEIGHT_BYTES {size}UL")
    writer.line(f"#define SCRATCH_BYTES {scratch}UL")
    writer.line(f"static const char description[] = {c_string(description(kernels, plans[0], size, plans[1:]))};")
    writer.line()
    _cpu_check(writer, target)
    sliced = [body for _, region in regions_of(kernels) if region.slices for body in region.bodies]
    if not in_page and any(_has_bounds(call.kernel) for graph in (kernels, *sliced) for call in graph.calls):
        _zeroed_memory(writer)
    if weights.made_bytes:
        made_constants(writer, weights)
    writer.line('#include "tw_page.h"' if in_page else '#include "tw_runtime.h"')
    if shares_memory(target):
        writer.line('#include "tw_page_lanes.h"')
    if carried:
        _states(writer, carried)
    return writer.text()


def _states(writer: Writer, carried: Sequence[Carried]) -> None:
    """The outputs that are inputs of the next run, and what keeps them."""
    writer.line()
    writer.line('#include "state.h"')
    writer.line("/* Of what a state carries: output, input, whether a run may write the one over the other; the axis")
    writer.line(
        " * along which a cache grows, or -1; of the length of caches the rows that a run adds, or 0, and room. */"
    )
    writer.line("struct carried { int output, input, in_place, axis, rows, room; };")
    each = [
        (one.output, one.input, int(one.in_place), -1 if one.axis is None else one.axis, one.rows, one.room)
        for one in carried
    ]
    rows = [f"{{{', '.join(map(str, one))}}}" for one in each]
    table(writer, "carried", "carried", "CARRIED", rows)
    writer.line('#include "tw_state.h"')


def made_constants(writer: Writer, weights: Weights) -> None:
    """What the weights file holds as indices, as filters or in other panels, and what makes of it what kernels read."""
    writer.line("/* At `at` once loaded, from what lies at `place`; both from the first byte of the weights. */")
    writer.line("struct expansion { long at, place, count, depth, lanes; int bits; };")
    table(writer, "expansion", "expansions", "EXPANSIONS", weights.expansions)
    writer.line("struct filters { long at, place, numbers, batch, panels, elements, taps, depth, panel, columns; };")
    table(writer, "filters", "filters", "FILTERS", weights.filters)
    writer.line("struct repacking { long at, place, batch, depth, columns, from, to, deep; };")
    table(writer, "repacking", "repackings", "REPACKINGS", weights.repackings)
    writer.line(f"#define MADE_BYTES {weights.made_bytes}UL")
    writer.line('#include "tw_expand.h"')


def _has_bounds(kernel: Kernel | Routine) -> bool:
    return isinstance(kernel, Kernel) and any(bounds_in(kernel))


def _zeroed_memory(writer: Writer) -> None:
    """The memory of a program that stops at sizes begins as zeros, of which no page is touched before it is used.

    Elements beyond a size are read, and what comes of them is discarded. What the process left in memory may be
    denormal as floats, with which arithmetic takes many times as long.
    """
    writer.line("#include <string.h>")
    writer.line('#include "tw_system.h"')
    writer.line("/* Elements beyond sizes are read, and discarded: denormal ones would make arithmetic slow. */")
    with writer.block("static void *zeroed_alloc(size_t alignment, size_t bytes)"):
        writer.line("char *const memory = aligned_alloc(alignment, bytes);")
        writer.line("if (!memory) return NULL;")
        writer.line("#ifdef __linux__")
        writer.line("const size_t page = (size_t)sysconf(_SC_PAGESIZE);")
        writer.line("const int has_pages_alone = alignment % page == 0 && bytes % page == 0;")
        writer.line("if (has_pages_alone && !madvise(memory, bytes, MADV_DONTNEED)) return memory;")
        writer.line("#endif")
        writer.line("return memset(memory, 0, bytes);")
    writer.line("#undef aligned_alloc")
    writer.line("#define aligned_alloc zeroed_alloc")
    writer.line("#define OWN_MEMORY 1")
    writer.line()


def _structs(writer: Writer) -> None:
    writer.line("typedef void kernel_function(void *const *p, char *scratch, long begin, long end);")
    writer.line("enum space { SPACE_INPUT, SPACE_OUTPUT, SPACE_ARENA, SPACE_WEIGHTS };")
    writer.line("struct port { int32_t code, bits, ndim; const int64_t *shape; size_t bytes; };")
    writer.line("struct call { kernel_function *kernel; int first_operand; };")
    writer.line("struct operand { enum space space; int port; long offset; };")
    writer.line("struct awaited { int lane; long count; };")
    writer.line("struct task { int call, lane; long first, last; int first_wait, waits; };")
    writer.line("/* For cores between which a hand-over takes at most so long; `count` tasks. */")
    with writer.block("struct plan", "};"):
        writer.line("double most_handover_ns;")
        writer.line("int lanes;")
        writer.line("size_t arena_bytes;")
        writer.line("const struct call *calls;")
        writer.line("const struct operand *operands;")
        writer.line("int count;")
        writer.line("const struct task *tasks;")
        writer.line("const struct awaited *waits;")
    writer.line()


def _counts(writer: Writer, kernels: KernelGraph, plans: Sequence[Plan]) -> None:
    """What is the same for all plans, and the most that one of them has."""
    operands = sum(len(call.inputs) + len(call.outputs) for call in kernels.calls)
    writer.line(f"enum {{ CALLS = {len(kernels.calls)}, OPERANDS = {operands} }};")
    tasks, lanes = max(len(plan.tasks) for plan in plans), max(plan.lanes for plan in plans)
    writer.line(f"enum {{ TASKS = {tasks}, LANES = {lanes} }};")
    writer.line()


def _limit(plan: Plan) -> str:
    return "" if plan.most_handover_s == math.inf else f", where a hand-over takes at most {nanoseconds(plan)} ns"


def _plans(writer: Writer, plans: Sequence[Plan]) -> None:
    rows = [
        f"{{{nanoseconds(plan)}, {plan.lanes}, {plan.arena_bytes}UL, calls_{number}, operands_{number}, "
        f"TASKS_{number}, tasks_{number}, waits_{number}}}"
        for number, plan in enumerate(plans, 1)
    ]
    table(writer, "plan", "plans", "PLANS", rows)


def _operands(kernels: KernelGraph, plan: Plan, lowered: Sequence[Lowered], weights: Weights) -> list[Operand]:
    return [
        operand(kernels, plan, id, kernel.packings.get(position), weights)
        for call, kernel in zip(kernels.calls, lowered, strict=True)
        for position, id in enumerate((*call.inputs, *call.outputs))
    ]


def _calls(writer: Writer, number: int, kernels: KernelGraph, lowered: Sequence[Lowered]) -> None:
    rows, first = [], 0
    for call, kernel in zip(kernels.calls, lowered, strict=True):
        rows.append(f"{{{kernel.name}, {first}}}")
        first += len(call.inputs) + len(call.outputs)
    table(writer, "call", f"calls_{number}", f"CALLS_{number}", rows)


def _tasks(writer: Writer, number: int, plan: Plan) -> None:
    waits: list[str] = []
    rows = []
    for task in plan.tasks_of_one_device():
        rows.append(f"{{{task.call}, {task.lane}, {task.first}, {task.last}, {len(waits)}, {len(task.waits)}}}")
        waits += [f"{{{wait.lane}, {wait.count}}}" for wait in task.waits]
    table(writer, "awaited", f"waits_{number}", f"WAITS_{number}", waits)
    table(writer, "task", f"tasks_{number}", f"TASKS_{number}", rows)


ARM_BITS = {
    "asimd": ("AT_HWCAP", 1),
    "atomics": ("AT_HWCAP", 8),
    "asimddp": ("AT_HWCAP", 20),
    "i8mm": ("AT_HWCAP2", 13),
    "bf16": ("AT_HWCAP2", 14),
}
"""In which word of the auxiliary vector, and at which bit, Linux tells a program of a feature of /proc/cpuinfo."""


SYSCTL = {
    "sse4_2": "sse4_2",
    "popcnt": "sse4_2",
    "avx2": "avx2_0",
    "fma": "fma",
    "bmi2": "bmi2",
    "avx512_vnni": "avx512vnni",
    **{f"avx512{part}": f"avx512{part}" for part in ("f", "bw", "cd", "dq", "vl")},
    "asimd": "neon",
    "atomics": "arm.FEAT_LSE",
    "asimddp": "arm.FEAT_DotProd",
    "i8mm": "arm.FEAT_I8MM",
    "bf16": "arm.FEAT_BF16",
}
"""What macOS calls a feature, behind `hw.optional.`; POPCNT is older than SSE4.2, and has no name."""
CPUID = {
    "sse4_2": (1, 0, "c", 20),
    "popcnt": (1, 0, "c", 23),
    "fma": (1, 0, "c", 12),
    "avx2": (7, 0, "b", 5),
    "bmi2": (7, 0, "b", 8),
    "avx512f": (7, 0, "b", 16),
    "avx512dq": (7, 0, "b", 17),
    "avx512cd": (7, 0, "b", 28),
    "avx512bw": (7, 0, "b", 30),
    "avx512vl": (7, 0, "b", 31),
    "avx512vbmi": (7, 0, "c", 1),
    "avx512_vnni": (7, 0, "c", 11),
    "avx_vnni": (7, 1, "a", 4),
    "avx512_bf16": (7, 1, "a", 5),
}
"""By which leaf, subleaf, register and bit of CPUID a processor tells of a feature (Intel's manual, volume 2)."""


def _cpu_headers(writer: Writer, target: CpuTarget) -> None:
    """What the check of the CPU includes."""
    if target.system == MACOS.name:
        writer.line("#include <sys/sysctl.h>")
    elif target.system == WINDOWS.name:
        writer.line("#include <cpuid.h>")
    elif target.machine == "aarch64":
        writer.line("#include <sys/auxv.h>")


def _asked_of_macos(writer: Writer, target: CpuTarget) -> None:
    writer.line("int has;")
    writer.line("size_t bytes;")
    for feature in target.features:
        ask = f'sysctlbyname("hw.optional.{SYSCTL[feature]}", &has, &bytes, NULL, 0)'
        writer.line(f'bytes = sizeof has; if ({ask} || !has) return "{feature}";')


def _asked_of_the_processor(writer: Writer, target: CpuTarget) -> None:
    """By CPUID, and XGETBV for the registers that the system saves: Clang's builtins know nothing on Windows."""
    writer.line("unsigned a, b, c, d, saved = 0;")
    writer.line('if (__get_cpuid(1, &a, &b, &c, &d) && c >> 27 & 1) __asm__("xgetbv" : "=a"(saved), "=d"(d) : "c"(0));')
    for feature in target.features:
        leaf, subleaf, register, bit = CPUID[feature]
        ask = f"__get_cpuid_count({leaf}, {subleaf}, &a, &b, &c, &d)"
        writer.line(f'if (!{ask} || !({register} >> {bit} & 1)) return "{feature}";')
    registers = {16: 0xE6, 8: 6}.get(target.vector_floats, 0)
    if registers:
        missing = "vectors so wide, which its operating system does not save"
        writer.line(f'if ((saved & {registers}) != {registers}) return "{missing}";')


def _cpu_check(writer: Writer, target: CpuTarget) -> None:
    """A function that names the first feature this CPU lacks, or returns NULL."""
    with writer.block("static const char *cpu_is_missing(void)"):
        if target.system == MACOS.name:
            _asked_of_macos(writer, target)
        elif target.system == WINDOWS.name:
            _asked_of_the_processor(writer, target)
        elif target.machine == "x86_64":
            writer.line("__builtin_cpu_init();")
            for feature in target.features:
                name = C_FEATURES.get(feature, feature)
                writer.line(f'if (!__builtin_cpu_supports("{name}")) return "{name}";')
            if target.has_tiles:
                grants = "!syscall(SYS_arch_prctl, 0x1023 /* ARCH_REQ_XCOMP_PERM */, 18 /* tile data */)"
                writer.line(f'if (!({grants})) return "amx-tile, which its operating system does not grant";')
        elif target.machine == "aarch64":
            for feature in target.features:
                word, bit = ARM_BITS[feature]
                writer.line(f'if (!(getauxval({word}) >> {bit} & 1)) return "{feature}";')
        writer.line("return NULL;")
    writer.line()

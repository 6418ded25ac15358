"""A plan as a CUDA program: the same bytes every time, which kernels are shared, which architectures are served."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from compiler.codegen.build import Toolchain
from compiler.devices.cuda import nvrtc
from compiler.devices.cuda.codegen.entry import SM90, SM90A
from compiler.devices.cuda.codegen.lowered import CudaLowered, unit_text
from compiler.devices.cuda.emit.program import (
    MOST_UNITS,
    UNIT_LENGTH,
    UNITS,
    architectures,
    cut_in_units,
    emit_cuda,
    lower_cuda_calls,
)
from compiler.devices.cuda.target import resolve
from compiler.devices.cuda.toolchain import CudaToolchain, find_cuda_toolchain
from compiler.errors import ToolchainMissing
from compiler.fuse import fuse
from compiler.ir.buffers import KernelGraph
from tests.compiler.devices.cuda.artifact_on_double import images_of, plan_of
from tests.compiler.devices.cuda.test_nvrtc import needs_nvrtc
from tests.compiler.networks import Network, graph_of

H200 = resolve("cuda:sm_90")
ROOT = Path(__file__).parents[5]
CUDA_H = Path("/usr/local/cuda/include/cuda.h")


@pytest.fixture(scope="module")
def kernels() -> KernelGraph:
    """Two layers of a convolution and a pooling, then a sum: five calls.

    The poolings are equal, the first convolution reads another layout.
    """
    net = Network()
    x = net.input(1, 4, 6, 6)
    for _ in range(2):
        weight, bias = net.weight(4, 4, 1, 1), net.weight(4)
        x = net.node("Conv", [x, weight, bias], (1, 4, 6, 6))
        x = net.node("MaxPool", [x], (1, 4, 6, 6), kernel_shape=[3, 3], pads=[1] * 4, strides=[1, 1])
    x = net.node("ReduceSum", [x, net.constant(np.array([2, 3]))], (1, 4, 1, 1), keepdims=1)
    return fuse(graph_of(net.model([x]))).kernels


@needs_nvrtc
@pytest.mark.usefixtures("compiled_each_time")
def test_the_same_plan_gives_the_same_bytes_whatever_runs_beside(kernels: KernelGraph) -> None:
    plan, toolchain = plan_of(kernels, H200), find_cuda_toolchain()
    one, two = (emit_cuda(kernels, plan, H200, toolchain, jobs) for jobs in (1, 3))
    assert one == two
    assert b"tw-build-" not in one.library
    assert b"/tmp" not in one.library
    assert one.toolchain == toolchain.identity(H200)


@needs_nvrtc
def test_a_plan_with_kernels_of_another_compiles_only_what_is_new(
    kernels: KernelGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled: list[tuple[str, str]] = []
    compile_cuda = nvrtc.compile_cuda

    def counting(source: str, architecture: str, name: str) -> nvrtc.Compiled:
        compiled.append((architecture, name))
        return compile_cuda(source, architecture, name)

    monkeypatch.setattr(nvrtc, "compile_cuda", counting)
    plan, toolchain, kept = plan_of(kernels, H200), find_cuda_toolchain(), dict[str, bytes]()
    first = emit_cuda(kernels, plan, H200, toolchain, 2, kept)
    units = len([name for name in first.sources if name.endswith(".cu")])
    assert (len(kept), len(compiled)) == (2 * units, units)
    again = emit_cuda(kernels, replace(plan, scheduler="streams"), H200, toolchain, 2, kept)
    assert dict(images_of(again.library)) == dict(images_of(first.library))
    assert len(compiled) == units
    other = resolve("cuda:sm_80")
    emit_cuda(kernels, plan_of(kernels, other), other, toolchain, 2, kept)
    assert {architecture for architecture, _ in compiled} == {"sm_90a", "sm_80"}


@needs_nvrtc
@pytest.mark.parametrize(("target", "portable"), [("cuda:sm_80", "compute_80"), ("cuda:sm_90", "compute_90")])
def test_ptx_is_what_is_compiled_for_its_own_architecture(kernels: KernelGraph, target: str, portable: str) -> None:
    resolved = resolve(target)
    text = unit_text(
        list({one.name: one for one in lower_cuda_calls(kernels, plan_of(kernels, resolved), resolved)}.values())
    )
    made = nvrtc.compile_cuda(text, resolved.architecture)
    assert made.portable_ptx == nvrtc.compile_cuda(text, portable).image


@needs_nvrtc
def test_the_library_holds_machine_code_and_ptx_and_needs_libc_alone(kernels: KernelGraph, tmp_path: Path) -> None:
    program = emit_cuda(kernels, plan_of(kernels, H200), H200, find_cuda_toolchain(), 2)
    images = dict(images_of(program.library))
    units = [name for name in program.sources if name.endswith(".cu")]
    assert sorted(images) == sorted(f"{Path(u).stem}.{a}" for u in units for a in ("sm_90a.cubin", "compute_90.ptx"))
    for name, image in images.items():
        assert image.startswith(b"\x7fELF") if name.endswith("cubin") else b".target sm_90\n" in image
    (tmp_path / "model.so").write_bytes(program.library)
    said = subprocess.run(["readelf", "-d", tmp_path / "model.so"], capture_output=True, text=True, check=True).stdout
    needed = [line.partition("[")[2].rstrip("]") for line in said.splitlines() if "(NEEDED)" in line]
    assert {re.split("[.-]", name)[0] for name in needed} <= {"libc", "libm", "libdl", "libpthread", "ld"}


@needs_nvrtc
@pytest.mark.parametrize("target", ["cuda:sm_80", "cuda:sm_86", "cuda:sm_89", "cuda:sm_100"])
def test_every_architecture_is_served(kernels: KernelGraph, target: str) -> None:
    resolved = resolve(target)
    program = emit_cuda(kernels, plan_of(kernels, resolved), resolved, find_cuda_toolchain(), 2)
    number = target.removeprefix("cuda:sm_")
    assert {name.split(".")[1] for name, _ in images_of(program.library)} == {f"sm_{number}", f"compute_{number}"}


def test_equal_workloads_share_one_kernel(kernels: KernelGraph) -> None:
    lowered = lower_cuda_calls(kernels, plan_of(kernels, H200), H200)
    assert len(kernels.calls) == 5
    assert len({kernel.name for kernel in lowered}) == 4
    assert lowered[1] is lowered[3]


def test_units_are_few_of_about_equal_length_and_keep_the_order_of_kernels() -> None:
    made = [CudaLowered(f"k{at}", "x" * (100 - at), 1, 32) for at in range(11)]
    units = cut_in_units(made)
    assert len(units) == UNITS
    assert [[one.name for one in unit] for unit in units] == [
        [one.name for one in sorted(unit, key=made.index)] for unit in units
    ]
    assert {one.name for unit in units for one in unit} == {one.name for one in made}
    lengths = [sum(len(one.text) for one in unit) for unit in units]
    assert max(lengths) <= 1.5 * min(lengths)
    assert cut_in_units([]) == [[]]
    long = [replace(one, text="x" * UNIT_LENGTH) for one in made]
    assert [len(cut_in_units(long[:count])) for count in (3, 4, 7, 11)] == [3, 4, 7, 11]
    assert len(cut_in_units(long * 3)) == MOST_UNITS


def test_code_for_one_architecture_alone_has_no_ptx() -> None:
    anywhere, later, here = (CudaLowered("k", "", 1, 32, needs=needs) for needs in ("", SM90, SM90A))
    assert architectures(H200, []) == architectures(H200, [anywhere, later]) == ("sm_90a", "compute_90")
    for kernels in ([here], [anywhere, here], [here, later]):
        assert architectures(H200, kernels) == ("sm_90a",)


@needs_nvrtc
def test_a_missing_c_compiler_is_told_with_what_to_install() -> None:
    with pytest.raises(ToolchainMissing, match="no C compiler that answers"):
        find_cuda_toolchain("no-such-compiler")


def test_the_toolchain_tells_what_decides_the_code() -> None:
    toolchain = CudaToolchain(Toolchain("/usr/bin/cc", "cc 1.0"), (13, 0))
    assert toolchain.version == "NVRTC 13.0; cc 1.0"
    identities = {
        toolchain.identity(H200),
        toolchain.identity(resolve("cuda:sm_80")),
        replace(toolchain, nvrtc=(13, 1)).identity(H200),
        replace(toolchain, host=Toolchain("/usr/bin/cc", "cc 2.0")).identity(H200),
    }
    assert len(identities) == 4


LAYOUT = """
#include <stddef.h>
#define CUDA_API_PER_THREAD_DEFAULT_STREAM 0
#include <cuda.h>
#include "model.h"
struct port {{ int32_t code, bits, ndim; const int64_t *shape; size_t bytes; }};
{checks}
"""
STRUCTURES = {
    "CUDA_KERNEL_NODE_PARAMS_v2": (72, {"kernelParams": 40, "extra": 48, "kern": 56, "ctx": 64}),
    "CUgraphEdgeData": (8, {"from_port": 0, "to_port": 1, "type": 2}),
    "CUlaunchAttribute": (72, {"value": 8}),
    "CUlaunchConfig": (56, {"sharedMemBytes": 24, "hStream": 32, "attrs": 40, "numAttrs": 48}),
}


@pytest.mark.skipif(not CUDA_H.exists() or not shutil.which("gcc"), reason="no cuda.h on this machine")
def test_the_runtimes_structures_and_numbers_are_those_of_cuda_h(tmp_path: Path) -> None:
    runtime = (ROOT / "compiler" / "devices" / "cuda" / "runtime" / "tw_cuda_driver.h").read_text()
    checks = [f'_Static_assert(sizeof({name}) == {size}, "");' for name, (size, _) in STRUCTURES.items()]
    checks += [
        f'_Static_assert(offsetof({name}, {field}) == {at}, "");'
        for name, (_, fields) in STRUCTURES.items()
        for field, at in fields.items()
    ]
    numbers = [
        line.strip().split(",")[0].split(" /*")[0]
        for line in runtime.splitlines()
        if line.strip().startswith(("CUDA_", "CU_")) and " = " in line
    ]
    assert len(numbers) > 14
    checks += [f'_Static_assert({number.replace(" = ", " == ")}, "");' for number in numbers]
    (tmp_path / "layout.c").write_text(LAYOUT.format(checks="\n".join(checks)))
    include = ROOT / "compiler" / "codegen"
    command = ["gcc", "-std=gnu11", "-fsyntax-only", f"-I{CUDA_H.parent}", f"-I{include}", "layout.c"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr

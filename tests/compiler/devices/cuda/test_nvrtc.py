"""The CUDA compiler without a GPU: the kernels that the double runs, for every architecture we serve.

Registers, spills, SASS.
"""

from __future__ import annotations

import importlib.util
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from compiler.devices.cuda import nvrtc
from compiler.errors import ToolchainFailed

KERNELS = Path(__file__).parents[3] / "cuda_double" / "kernels"
SOURCES = {path.stem: path.read_text() for path in sorted(KERNELS.glob("*.cu"))}
ARCHITECTURES = ("sm_80", "sm_86", "sm_89", "sm_90a")
LOG = """ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'conv3x3' for 'sm_80'
ptxas info    : Function properties for conv3x3
    16 bytes stack frame, 8 bytes spill stores, 4 bytes spill loads
ptxas info    : Used 80 registers, used 1 barriers, 16 bytes cumulative stack size, 1024 bytes smem, 384 bytes cmem[0]
ptxas info    : Compiling entry function 'relu' for 'sm_80'
ptxas info    : Function properties for relu
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 12 registers, used 0 barriers
"""

pytestmark = pytest.mark.usefixtures("compiled_each_time")
needs_nvrtc = pytest.mark.skipif(
    nvrtc.library_path() is None,
    reason="NVRTC is not installed (nvidia-cuda-nvrtc, for Linux): no CUDA kernel is compiled here",
)


def disassembler() -> Path | None:
    """The wheel's `nvdisasm`."""
    found = importlib.util.find_spec("nvidia")
    roots = found.submodule_search_locations if found else None
    return next((path for root in roots or () for path in Path(root).glob("cu13/bin/nvdisasm")), None)


def test_the_log_says_what_each_kernel_needs() -> None:
    assert nvrtc.resources(LOG) == {
        "conv3x3": nvrtc.Resources(80, 16, 8, 4, 1024),
        "relu": nvrtc.Resources(12, 0, 0, 0, 0),
    }
    assert nvrtc.resources(LOG)["conv3x3"].spills
    assert not nvrtc.resources(LOG)["relu"].spills


@needs_nvrtc
@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("name", SOURCES)
def test_kernels_compile_without_spills(name: str, architecture: str) -> None:
    compiled = nvrtc.compile_cuda(SOURCES[name], architecture, f"{name}.cu")
    assert compiled.image.startswith(b"\x7fELF")
    assert "warning" not in compiled.log
    on_sm90 = "TW_SM90" in SOURCES[name] and name != "intrinsics"
    assert bool(compiled.kernels) == (not on_sm90 or architecture == "sm_90a")
    assert not any(kernel.spills for kernel in compiled.kernels.values()), compiled.kernels
    assert compiled.losses == ()


@needs_nvrtc
def test_ptx_for_devices_to_come() -> None:
    compiled = nvrtc.compile_cuda(SOURCES["conv"], "compute_80")
    text = compiled.image.decode()
    assert ".target sm_80" in text
    assert "mma.sync.aligned.m16n8k16" in text
    assert compiled.kernels == {}


@needs_nvrtc
def test_the_assembler_says_what_it_ignores() -> None:
    without = SOURCES["gemm_sm90"].replace("(THREADS, 1)", "(THREADS)")
    assert "setmaxnreg" in nvrtc.compile_cuda(without, "sm_90a").losses[0]


@needs_nvrtc
def test_the_same_source_gives_the_same_cubin() -> None:
    first, second = (nvrtc.compile_cuda(SOURCES["softmax"], "sm_89").image for _ in range(2))
    assert first == second


@needs_nvrtc
def test_the_bytes_of_a_kernels_code_are_read_from_its_cubin() -> None:
    """An instruction has 16 bytes; a kernel that writes out more of them has more."""
    kernel = 'extern "C" __global__ void {name}(float *x) {{ {body} }}\n'
    short = kernel.format(name="short_one", body="x[threadIdx.x] += 1;")
    long = kernel.format(name="long_one", body="".join(f"x[threadIdx.x + {at}] += x[{at}];" for at in range(200)))
    for architecture in ("sm_80", "sm_90a"):
        needs = nvrtc.compile_cuda(short + long, architecture).kernels
        assert needs["short_one"].code_bytes % 16 == 0
        assert 0 < needs["short_one"].code_bytes < 1024 < 200 * 3 * 16 < needs["long_one"].code_bytes
    assert nvrtc.code_bytes(b"\0" * 64) == nvrtc.code_bytes(b"") == {}


@needs_nvrtc
def test_an_error_is_told_with_its_line() -> None:
    with pytest.raises(ToolchainFailed, match=r"broken\.cu\(2\): error: identifier \"nothing\" is undefined"):
        nvrtc.compile_cuda(
            '#include "tw_cuda.h"\nextern "C" __global__ void f(int *x) { *x = nothing; }\n', "sm_80", "broken.cu"
        )


@needs_nvrtc
def test_what_an_architecture_lacks_does_not_compile() -> None:
    text = '#include "tw_cuda.h"\nextern "C" __global__ void f() { tw_wgmma_fence(); }\n'
    nvrtc.compile_cuda(text, "sm_90a")
    for architecture in ("sm_89", "sm_90"):
        with pytest.raises(ToolchainFailed, match="tw_wgmma_fence"):
            nvrtc.compile_cuda(text, architecture)


@needs_nvrtc
@pytest.mark.skipif(disassembler() is None, reason="nvdisasm is not installed (nvidia-cuda-nvdisasm)")
@pytest.mark.parametrize(
    ("name", "architecture", "instructions"),
    [
        ("conv", "sm_80", ("HMMA.16816.F32", "LDSM.16.M88.4", "LDGSTS.E.BYPASS.128")),
        ("conv", "sm_89", ("HMMA.16816.F32", "LDSM.16.M88.4")),
        ("gemm_sm90", "sm_90a", ("HGMMA.64x64x16.F32", "UTMALDG.2D", "SYNCS", "USETMAXREG")),
        ("vector_add", "sm_80", ("LDG.E.128", "STG.E.128")),
        ("dense_chain", "sm_90a", ("ACQBULK",)),
    ],
)
def test_sass_holds_the_instructions_that_were_meant(
    name: str, architecture: str, instructions: tuple[str, ...], tmp_path: Path
) -> None:
    cubin = tmp_path / "kernels.cubin"
    cubin.write_bytes(nvrtc.compile_cuda(SOURCES[name], architecture).image)
    tool = disassembler()
    assert tool is not None
    text = subprocess.run([tool, cubin], capture_output=True, text=True, check=True).stdout
    missing = [instruction for instruction in instructions if not re.search(re.escape(instruction), text)]
    assert missing == [], sorted(set(re.findall(r"[A-Z][A-Z0-9]+(?:\.[A-Za-z0-9_]+)+", text)))


@pytest.mark.parametrize("folder", ["lib64", "targets/x86_64-linux/lib"])
def test_nvrtc_of_a_toolkit_is_found_where_there_is_no_wheel(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = tmp_path / folder / "libnvrtc.so.13"
    library.parent.mkdir(parents=True)
    library.touch()
    monkeypatch.setattr(nvrtc, "TOOLKIT", tmp_path)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert nvrtc.library_path() == library


@needs_nvrtc
def test_what_was_compiled_is_kept_and_only_what_is_whole_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, calls = SOURCES["vector_add"], list[str]()
    once, folder = nvrtc._compiled, tmp_path / "kernels"

    def counted(*given: Any) -> nvrtc.Compiled:
        calls.append(given[2])
        return once(*given)

    monkeypatch.setattr(nvrtc, "_compiled", counted)
    nvrtc.keep_in(folder)
    try:
        made = nvrtc.compile_cuda(source, "sm_80")
        assert nvrtc.compile_cuda(source, "sm_80") == made
        assert len(calls) == 1
        assert made.kernels["vector_add"].registers > 0
        for other in ((source, "sm_86"), (source + "\n", "sm_80"), (source, "sm_80", "x.cu")):
            nvrtc.compile_cuda(*other)
        with monkeypatch.context() as patch:
            patch.setattr(nvrtc, "version", lambda: (13, 1))
            nvrtc.compile_cuda(source, "sm_80")
        assert len(calls) == len(list(folder.iterdir())) == 5, "one for each source, name, architecture and compiler"
        for file in folder.iterdir():
            file.write_bytes(file.read_bytes()[:-1])
        again = nvrtc.compile_cuda(source, "sm_80")
        assert (len(calls), again.image, again.kernels) == (6, made.image, made.kernels), "half a file is none"
        assert nvrtc.compile_cuda(source, "sm_80") == again
    finally:
        nvrtc.keep_in(None)
    assert (len(calls), len(list(folder.iterdir()))) == (6, 5)

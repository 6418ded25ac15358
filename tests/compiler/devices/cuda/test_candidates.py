from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from compiler.devices.cuda import candidates, nvrtc
from compiler.devices.cuda.candidates import Candidate, Candidates
from compiler.devices.cuda.codegen.lowered import CudaLowered
from compiler.devices.cuda.nvrtc import Compiled, Resources
from compiler.devices.cuda.target import CODE_CACHE, resolve
from compiler.errors import ToolchainFailed
from compiler.ir.buffers import Buffer
from compiler.ir.machine import Workload
from compiler.ir.tile import Tile
from tests.parse import parse_kernel

TARGET = resolve("cuda:sm_90")
LOOPS = Tile("loops")
MAP = "kernel {name}(in x0: f32[5, 7]; out y0: f32[5, 7]) for i:5, j:7 y0[i, j] = {function}(x0[i, j])"


def mapped(function: str, name: str = "Map") -> Workload:
    kernel = parse_kernel(MAP.format(function=function, name=name))
    inputs, outputs = (tuple(Buffer.whole(0, slot.type) for slot in slots) for slots in (kernel.inputs, kernel.outputs))
    return Workload(kernel, inputs, outputs, (False,))


def candidate(threads: int = 128, shared_bytes: int = 0, **needs: int) -> Candidate:
    resources = replace(Resources(32, 0, 0, 0, 0), **needs)
    return Candidate(CudaLowered("k", "", 10, threads, shared_bytes), b"", resources)


@pytest.mark.parametrize(
    ("made", "fits"),
    [
        (candidate(), True),
        (candidate(1024, registers=64), True),
        (candidate(1024, registers=65), False),
        (candidate(shared_bytes=TARGET.block_shared_bytes), True),
        (candidate(shared_bytes=TARGET.block_shared_bytes, static_shared_bytes=4), False),
        (candidate(shared_bytes=TARGET.block_shared_bytes + 1), False),
    ],
)
def test_a_block_fits_within_the_registers_and_the_shared_memory_of_a_multiprocessor(
    made: Candidate, fits: bool
) -> None:
    assert made.fits(TARGET) is fits


def test_a_candidate_says_what_it_needs() -> None:
    assert str(candidate()) == "32 registers x 128 threads"
    assert str(candidate(code_bytes=140_000)) == "32 registers x 128 threads, 137 KiB of code"
    needs = {"spill_store_bytes": 8, "spill_load_bytes": 12, "static_shared_bytes": 512}
    assert str(candidate(256, 1024, **needs)) == "32 registers x 256 threads, 1.5 KiB shared, 20 bytes spilled"


def compiler(monkeypatch: pytest.MonkeyPatch, **needs: int) -> list[str]:
    """Stands in for NVRTC: every kernel needs the same. Returns the sources it is given."""
    seen: list[str] = []

    def compile_cuda(source: str, architecture: str, name: str) -> Compiled:
        seen.append(source)
        resources = replace(Resources(32, 0, 0, 0, 0), **needs)
        return Compiled(architecture, f"image {len(seen)}".encode(), "", {name.removesuffix(".cu"): resources}, ())

    monkeypatch.setattr(candidates, "compile_cuda", compile_cuda)
    return seen


def test_kernels_of_one_source_are_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = compiler(monkeypatch)
    known = Candidates(TARGET)
    first = known.compiled(mapped("tanh"), LOOPS)
    assert known.compiled(mapped("tanh"), LOOPS) == known.compiled(mapped("tanh", "Other"), LOOPS) == first
    assert len(seen) == 1
    assert known.compiled(mapped("exp"), LOOPS).image == b"image 2"


def test_only_what_was_compiled_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    compiler(monkeypatch)
    known = Candidates(TARGET)
    assert known.known(mapped("tanh"), LOOPS) is None
    known.lowered(mapped("tanh"), LOOPS)
    assert known.known(mapped("tanh"), LOOPS) is None
    made = known.compiled(mapped("tanh"), LOOPS)
    assert known.known(mapped("tanh"), LOOPS) == made


def test_what_spills_or_fits_nowhere_or_is_refused_is_not_worth_measuring(monkeypatch: pytest.MonkeyPatch) -> None:
    limit = CODE_CACHE
    compiler(monkeypatch, code_bytes=limit)
    assert Candidates(TARGET).sound(mapped("tanh"), LOOPS) is not None
    for needs in (
        ("spill_store_bytes", 4),
        ("spill_load_bytes", 4),
        ("static_shared_bytes", 1 << 20),
        ("code_bytes", limit + 1),
    ):
        compiler(monkeypatch, **dict([needs]))
        assert Candidates(TARGET).sound(mapped("tanh"), LOOPS) is None

    def refuses(*given: Any) -> Compiled:
        raise ToolchainFailed("no")

    monkeypatch.setattr(candidates, "compile_cuda", refuses)
    assert Candidates(TARGET).sound(mapped("tanh"), LOOPS) is None


@pytest.mark.skipif(nvrtc.library_path() is None, reason="NVRTC is not installed (nvidia-cuda-nvrtc)")
def test_a_map_is_sound_on_every_architecture() -> None:
    for name in ("cuda:sm_80", "cuda:sm_90"):
        found = Candidates(resolve(name)).sound(mapped("tanh"), LOOPS)
        assert found is not None
        assert found.image.startswith(b"\x7fELF")
        assert 0 < found.resources.registers < 255

"""What the assembler makes of kernels: which instructions run, and what stands where."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from compiler.devices.cuda import nvrtc
from compiler.devices.cuda.codegen.lowered import PREAMBLE, CudaLowered
from compiler.devices.cuda.target import resolve
from tests.compiler.devices.cuda.test_nvrtc import disassembler, needs_nvrtc
from tests.gpu import kernels

TARGET = resolve("cuda:sm_90")
MULTIPLIES = {
    "mma": r"HMMA\.16816\.F32",
    "mma_tf32": r"HMMA\.1688\.F32\.TF32",
    "mma_3xtf32": r"HMMA\.1688\.F32\.TF32",
    "separable": r"HMMA\.16816\.F32",
    "separable_tf32": r"HMMA\.1688\.F32\.TF32",
    "separable_3xtf32": r"HMMA\.1688\.F32\.TF32",
    "normalised": r"HMMA\.16816\.F32",
    "normalised_tf32": r"HMMA\.1688\.F32\.TF32",
    "normalised_3xtf32": r"HMMA\.1688\.F32\.TF32",
    "attention": r"HMMA\.16816\.F32",
    "attention_tf32": r"HMMA\.1688\.F32\.TF32",
    "attention_3xtf32": r"HMMA\.1688\.F32\.TF32",
    "sparse": r"HMMA\.SP\.16832\.F32",
    "sparse_mma": r"HMMA\.16816\.F32",
    "sparse_mma_tf32": r"HMMA\.1688\.F32\.TF32",
    "sparse_mma_3xtf32": r"HMMA\.1688\.F32\.TF32",
    "sparse_ffma": r"FFMA",
    "sparse_mma_integer": r"IMMA\.16832\.[SU]8\.S8",
    "sparse_wgmma": r"HGMMA\.SP\.64x\d+x32\.F32",
    "wgmma_integer": r"IGMMA\.64x\d+x32\.[SU]8\.S8",
    "wgmma": r"HGMMA\.64x\d+x16\.F32",
    "mma_image": r"HMMA\.16816\.F32",
    "mma_image_tf32": r"HMMA\.1688\.F32\.TF32",
    "ffma": r"FFMA",
    "separable_ffma": r"FFMA",
}
"""What multiplies, by algorithm."""

needs_disassembler = pytest.mark.skipif(disassembler() is None, reason="nvdisasm is not installed")


def sass_of(lowered: Sequence[CudaLowered], folder: Path, architecture: str = TARGET.architecture) -> dict[str, str]:
    """The machine code of kernels by name, none of which spills."""
    unit = nvrtc.compile_cuda(PREAMBLE + "\n".join(one.text for one in lowered), architecture)
    spilled = [name for name, resources in unit.kernels.items() if resources.spills]
    assert not spilled, unit.log
    cubin = folder / "kernels.cubin"
    cubin.write_bytes(unit.image)
    tool = disassembler()
    assert tool is not None
    text = subprocess.run([tool, "-c", cubin], capture_output=True, text=True, check=True).stdout
    sections = re.split(r"^//-+ \.text\.(\w+)\s+-+$", text, flags=re.MULTILINE)
    code = dict(zip(sections[1::2], sections[2::2], strict=True))
    assert code.keys() == unit.kernels.keys()
    return code


FOUND: dict[str, list[kernels.Subject]] = {}
"""By precision: to lower tiles until each algorithm is found with clusters takes longer than what is tried on them."""


def found(precision: str, monkeypatch: pytest.MonkeyPatch) -> list[kernels.Subject]:
    """Of kernels of a small network, the cheapest tile of each algorithm, with clusters and without."""
    if precision in FOUND:
        return FOUND[precision]
    monkeypatch.setattr(
        kernels, "NETWORKS", (("mobilenet_v2", {"size": 64}), ("tiny_mobile", {}), ("tiny_transformer", {}))
    )
    monkeypatch.setattr(kernels, "MOST_POINTS", 2**22)
    monkeypatch.setattr(kernels, "TILES", 8)
    kernels._workloads.cache_clear()
    try:
        first: dict[tuple[str, bool], kernels.Subject] = {}
        for subject in kernels.subjects(TARGET, precision):
            if not {(subject.tile.algorithm, clusters) for clusters in (False, True)} <= first.keys():
                first.setdefault((subject.tile.algorithm, subject.lowered.cluster > 1), subject)
        return FOUND.setdefault(precision, list(first.values()))
    finally:
        kernels._workloads.cache_clear()


@needs_nvrtc
@needs_disassembler
@pytest.mark.parametrize("precision", ["fp32", "tf32", "fp16"])
def test_what_an_algorithm_claims_is_what_runs_and_nothing_spills(
    precision: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    subjects = found(precision, monkeypatch)
    assert len(subjects) > 5
    code = sass_of([subject.lowered for subject in subjects], tmp_path)
    claimed = [subject for subject in subjects if subject.tile.algorithm in MULTIPLIES]
    assert claimed
    for subject in claimed:
        assert re.search(MULTIPLIES[subject.tile.algorithm], code[subject.lowered.name]), subject


@needs_nvrtc
@needs_disassembler
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_no_cluster_waits_for_the_results_that_it_has_stored(
    precision: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A release at the cluster's barrier is a MEMBAR of the whole GPU: behind stores to memory it waits for them."""
    subjects = [one for one in found(precision, monkeypatch) if one.lowered.cluster > 1]
    families = {one.tile.algorithm for one in subjects}
    assert {"excitation", "separable_ffma" if precision == "fp32" else "separable"} <= families
    found_code = sass_of([one.lowered for one in subjects], tmp_path)
    for name, code in found_code.items():
        lines = code.splitlines()
        stores = [at for at, line in enumerate(lines) if re.search(r"\bSTG\.", line)]
        fences = [at for at, line in enumerate(lines) if "MEMBAR" in line and ".GPU" in line]
        arrivals = [at for at, line in enumerate(lines) if "UCGABAR_ARV" in line]
        assert stores, name
        assert arrivals, name
        assert max(fences) < min(stores), f"{name}\n{code}"

"""What NVRTC emits for the families of kernels that `gpu-check` runs, on the interpreter, beside their definitions."""

from __future__ import annotations

import pytest

from compiler.devices.cuda import nvrtc
from compiler.devices.cuda.target import resolve
from tests.gpu import intrinsics
from tests.gpu.family import Family
from tests.ptx.families import ARCHITECTURES, judge, of_algorithms, of_instructions
from tests.ptx.whole import pairs

pytestmark = pytest.mark.skipif(nvrtc.library_path() is None, reason="NVRTC emits what is run here")
PRECISIONS = ("fp16", "fp32", "tf32", "bf16")
SAMPLE = {
    "sm_90": ("wgmma", "sparse_wgmma", "attention", "recurrent", "window"),
    "sm_80": ("mma", "sparse", "normalised"),
}
"""Algorithms in fp16 that every run of the tests tries."""


@pytest.mark.parametrize("architecture", ["sm_90", "sm_80", "sm_89", "sm_120"])
def test_single_instructions_do_what_their_families_expect(architecture: str) -> None:
    found = list(of_instructions(architecture))
    assert not [line for one in found for line in one.wrong]
    assert sum(one.trials for one in found) >= {"sm_90": 115, "sm_120": 35}.get(architecture, 24)


@pytest.mark.parametrize("architecture", list(SAMPLE))
def test_a_sample_of_algorithms_computes_what_kernels_mean(architecture: str) -> None:
    found = list(of_algorithms(architecture, "fp16", 2, SAMPLE[architecture]))
    assert not [line for one in found for line in one.wrong]
    assert {one.name.partition(" ")[0] for one in found} >= {*SAMPLE[architecture]}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("architecture", "precision"), pairs(ARCHITECTURES, PRECISIONS, [("sm_90", "fp16"), ("sm_120", "tf32")])
)
def test_every_algorithm_computes_what_kernels_mean(architecture: str, precision: str) -> None:
    found = list(of_algorithms(architecture, precision, 8))
    assert not [line for one in found for line in one.wrong]
    names = {one.name.partition(" ")[0] for one in found}
    assert {"loops", "window", "gemv"} <= names
    assert ("wgmma" in names) == (architecture == "sm_90" and precision in ("fp16", "bf16"))


def family(name: str) -> Family:
    (found,) = (one for one in intrinsics.FAMILIES if one.name == name)
    return found


@pytest.mark.parametrize(
    ("name", "architecture", "header", "before", "after"),
    [
        ("mma", "sm_80", "tw_cuda.h", "f16.f32 {%0, %1, %2, %3}, {%4, %5,", "f16.f32 {%0, %1, %2, %3}, {%5, %4,"),
        ("mma.sp", "sm_80", "tw_cuda.h", "{%8, %9, %10, %11}, \"\n", "{%8, %10, %9, %11}, \"\n"),
        ("conversions", "sm_80", "tw_cuda.h", "cvt.rni.sat.s8.f32", "cvt.rzi.sat.s8.f32"),
        ("copies", "sm_80", "tw_cuda.h", "[%0], [%1], 8, %2;", "[%0], [%1], 8;"),
        ("ldmatrix", "sm_80", "tw_cuda.h", "m8n8.x2.trans.shared.b16", "m8n8.x2.shared.b16"),
        ("wgmma", "sm_90", "tw_cuda.h", "(stride & 0x3ffff) >> 4) << 32", "(stride & 0x3ffff) >> 4) << 33"),
        ("wgmma", "sm_90", "tw_cuda.h", "fence.proxy.async.shared::cta;", ""),
        ("tensor copies", "sm_90", "tw_cuda.h", "fence.proxy.async.shared::cta;", ""),
        ("wgmma of bytes", "sm_90", "tw_wgmma_bytes.h", '"u8.s8"', '"s8.s8"'),
    ],
)  # fmt: skip
def test_inline_ptx_that_is_wrong_fails_its_family(
    name: str,
    architecture: str,
    header: str,
    before: str,
    after: str,
    monkeypatch: pytest.MonkeyPatch,
    compiled_each_time: None,
) -> None:
    """The double has headers of its own in their place, and cannot notice."""
    plain, rare = dict(nvrtc.headers()), nvrtc.rare_headers
    texts = {**plain, **rare([family(name).source])}
    assert before in texts[header]
    changed = texts[header].replace(before, after, 1)
    monkeypatch.setattr(nvrtc, "headers", lambda: {**plain, **({header: changed} if header in plain else {})})
    monkeypatch.setattr(
        nvrtc, "rare_headers", lambda sources: {**rare(sources), **({} if header in plain else {header: changed})}
    )
    assert judge(family(name), resolve(f"cuda:{architecture}").architecture).wrong

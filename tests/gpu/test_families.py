"""Kernel families on this machine's GPU; without one, the families themselves are tried on the double."""

from __future__ import annotations

import json
import re
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest

from compiler.devices.cuda import nvrtc
from compiler.devices.cuda.codegen.lowered import PREAMBLE
from compiler.devices.cuda.target import resolve
from tests.cuda_double.double import Device, Mode, build_runtime, compile_kernels, compiler_there
from tests.gpu import intrinsics, kernels
from tests.gpu.__main__ import on_double, on_gpu
from tests.gpu.device import NoGpu, open_driver, target_here
from tests.gpu.family import Family, Outcome, Trial, distance, judge
from tests.kept import kept

needs_double = pytest.mark.skipif(not compiler_there(), reason="the double of CUDA needs g++")


@lru_cache(maxsize=1)
def missing() -> str:
    """Why there is no GPU, or nothing."""
    try:
        open_driver()
    except NoGpu as reason:
        return str(reason)
    return ""


needs_gpu = pytest.mark.skipif(bool(missing()), reason=missing() or "there is a GPU")
NAMES = [family.name for family in intrinsics.FAMILIES]


@needs_gpu
@pytest.mark.parametrize("name", NAMES)
def test_the_gpu_does_what_the_manual_says(name: str) -> None:
    target = target_here(open_driver())
    (family,) = (one for one in intrinsics.FAMILIES if one.name == name)
    if not family.runs_on(target):
        pytest.skip(f"{target.product} has no {family.needs}")
    verdict = judge(family, on_gpu, on_double if compiler_there() else None)
    assert verdict.passed, str(verdict)


@needs_gpu
def test_generated_kernels_compute_on_the_gpu_what_they_mean() -> None:
    verdicts = [judge(family, on_gpu) for family in kernels.families(target_here(open_driver()), kernels.names())]
    assert all(verdict.passed for verdict in verdicts), "\n".join(map(str, verdicts))


@needs_double
@pytest.mark.parametrize("name", NAMES)
def test_a_family_finds_nothing_wrong_with_the_double(name: str) -> None:
    (family,) = (one for one in intrinsics.FAMILIES if one.name == name)
    verdict = judge(family, on_double, on_double)
    assert verdict.passed, str(verdict)
    assert verdict.trials == len(family.trials) > 0
    assert verdict.compared == verdict.same_bits > 0


@needs_double
@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        ("mma", "sums[i] = d[i * 32 + threadIdx.x]", "sums[i] = d[(i ^ 1) * 32 + threadIdx.x]"),
        ("mma.sp", "metadata[threadIdx.x]", "metadata[threadIdx.x ^ 1]"),
        ("ldmatrix", "threadIdx.x % (8 * registers) * pitch", "(threadIdx.x % (8 * registers) ^ 1) * pitch"),
        ("copies", "min(bytes, 16)", "min(bytes, 8)"),
    ],
)
def test_a_wrong_layout_fails_its_family(name: str, before: str, after: str) -> None:
    (family,) = (one for one in intrinsics.FAMILIES if one.name == name)
    assert before in family.source
    wrong = Family(family.name, family.source.replace(before, after), family.trials, family.kernels)
    assert not judge(wrong, on_double).passed


@needs_double
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_generated_kernels_of_each_algorithm_are_found_and_right_on_the_double(
    precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernels, "NETWORKS", (("tiny_inception", {}), ("tiny_transformer", {})))
    monkeypatch.setattr(kernels, "MOST_POINTS", 2**17)
    monkeypatch.setattr(kernels, "SUBJECTS", 6)
    kernels._workloads.cache_clear()
    try:
        found = list(kernels.families(resolve("cuda:sm_90"), [one for one in kernels.names() if precision in one]))
    finally:
        kernels._workloads.cache_clear()
    product = "mma" if precision == "fp16" else "ffma"
    ways = ("integer", "sparse_integer", "sparse_mma_integer", "wgmma_integer", "sparse_wgmma_integer")
    of_bytes = {f"{way} fp32" for way in ways if precision == "fp32"}
    tried = {family.name for family in found if family.trials}
    assert {f"loops {precision}", f"{product} {precision}"} | of_bytes <= tried
    for family in found:
        verdict = judge(family, on_double)
        assert verdict.passed, str(verdict)
        assert verdict.trials == len(family.trials)


def test_families_have_names_of_their_own() -> None:
    assert len(set(NAMES)) == len(NAMES)


def test_every_product_of_a_warp_that_the_source_has_is_tried() -> None:
    tried = {trial.name for one in intrinsics.FAMILIES if one.name in ("mma", "mma.sp") for trial in one.trials}
    there = {re.sub(r"^mma_(sp_)?", "", one) for one in intrinsics.NAMES if one.startswith("mma_")}
    assert {name.replace(" selector ", "_") for name in tried} == {
        re.sub(r"^(s8|s8_u8)_0$", r"\1", one) for one in there
    }


def test_a_target_is_given_only_what_it_has() -> None:
    ampere, hopper, blackwell = (resolve(f"cuda:{name}") for name in ("sm_80", "sm_90", "sm_100"))
    (wgmma,) = (family for family in intrinsics.FAMILIES if family.name == "wgmma")
    (clusters,) = (family for family in intrinsics.FAMILIES if family.name == "clusters")
    assert [wgmma.runs_on(target) for target in (ampere, hopper, blackwell)] == [False, True, False]
    assert [clusters.runs_on(target) for target in (ampere, hopper, blackwell)] == [False, True, True]


@needs_double
def test_the_gpu_is_opened_used_and_given_back_by_calls_that_a_driver_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The double as this machine's driver: what NVRTC would give is an image that stands for the family's kernels."""
    family = next(one for one in intrinsics.FAMILIES if one.name == "graph of dependent launches")
    with on_double(family) as device:
        driver, image = device.driver, b"cubin of dense_chain\0"
        settings = f"module={cached_image(image)}:sm_90:{compile_kernels(family.source)}"
    monkeypatch.setattr("tests.gpu.device.SONAME", str(build_runtime()))
    compiled = nvrtc.Compiled("sm_90a", image, "", {}, ())
    monkeypatch.setattr(nvrtc, "compile_cuda", lambda source, architecture: compiled)
    assert driver.twd_configure(settings.encode())
    assert target_here(open_driver()).architecture == "sm_90a"
    verdict = judge(family, on_gpu)
    assert verdict.passed, str(verdict)
    alive = json.loads(driver.twd_state())
    driver.twd_reset()
    assert {name: count for name, count in alive.items() if count} == {}


def cached_image(image: bytes) -> Path:
    """A file with an image."""
    return kept(repr(image), ".image", lambda made: made.write_bytes(image))


@needs_double
def test_a_trial_that_cannot_launch_ends_its_family_with_the_reason() -> None:
    def broken(device: Device) -> list[Outcome]:
        device.launch("nothing", [1], [1], [])
        return []

    verdict = judge(Family("broken", PREAMBLE, (Trial("broken", broken),)), on_double)
    assert not verdict.passed
    assert "cuModuleGetFunction" in verdict.failed[0]


@needs_double
def test_device_and_double_that_differ_are_told_apart() -> None:
    family = next(one for one in intrinsics.FAMILIES if one.name == "softmax of rows")
    other = family.source.replace("tw_exp2_approx(", "0.99f * tw_exp2_approx(")
    assert other != family.source

    def wrong(_: Family) -> Device:
        return Device(compile_kernels(other), Mode())

    verdict = judge(family, on_double, wrong)
    assert verdict.same_bits < verdict.compared


@pytest.mark.parametrize(
    ("one", "other", "exact", "expected"),
    [
        ([1.0, 2.0], [1.0, 2.0], True, 0.0),
        ([0.0], [-0.0], True, 0.25),
        ([0.0], [-0.0], False, 0.0),
        ([np.nan, 1.0], [np.nan, 1.0], False, 0.0),
        ([np.nan], [1.0], False, np.inf),
        ([3.0, 5.0], [3.0, 4.0], False, 0.2),
    ],
)
def test_distances(one: list[float], other: list[float], exact: bool, expected: float) -> None:
    found = distance(np.array(one, np.float32), np.array(other, np.float32), exact=exact)
    assert found == pytest.approx(expected)

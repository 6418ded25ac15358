"""Whole networks compiled for ARM CPUs, proved under qemu-user, and run through the artifact's C interface."""

from __future__ import annotations

import json
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.zoo import build
from compiler.codegen import build as toolchains
from compiler.codegen.build import environment_compiler, find_toolchain
from compiler.contract import CompileOptions, CompileReport
from compiler.devices.cpu.target import this_machine
from compiler.errors import ToolchainMissing
from compiler.pack.loader import Model, WrongMachine
from compiler.steps import foreseeing
from tests.compiler.devices.cpu.emulation.arm import DOT, NEON, arm, emulator
from tests.compiler.networks import Network
from tests.compiling import compile_file

ON_X86 = this_machine().machine == "x86_64"


def compiled(model: bytes, folder: Path, **options: Any) -> tuple[CompileReport, Path]:
    """The report and the artifact of a model, unmeasured."""
    folder.mkdir(exist_ok=True)
    (folder / "net.onnx").write_bytes(model)
    chosen = CompileOptions(tuning_budget_s=0, **options)
    return compile_file(folder / "net.onnx", folder / "net.tw", chosen), folder / "net.tw"


def quantised_network() -> bytes:
    """Convolutions and a product of bytes, with zero points of both kinds, between two that quantise and dequantise."""
    net = Network()
    random = net.random

    def scale(value: float) -> str:
        return net.constant(np.asarray(value, np.float32))

    x = net.input(1, 3, 15, 15)
    x = net.node("QuantizeLinear", [x, scale(0.03), net.constant(np.asarray(118, np.uint8))], (1, 3, 15, 15))
    zero, channels = net.constant(np.asarray(118, np.uint8)), 3
    for filters in (24, 40):
        weights = net.constant(random.integers(-127, 128, (filters, channels, 3, 3)).astype(np.int8))
        scales = net.constant(random.uniform(1e-3, 3e-3, filters).astype(np.float32))
        zeros = net.constant(np.zeros(filters, np.int8))
        bias = net.constant(random.integers(-900, 900, filters).astype(np.int32))
        given = [x, scale(0.03), zero, weights, scales, zeros, scale(0.03), zero, bias]
        x = net.node("QLinearConv", given, (1, filters, 15, 15), pads=[1, 1, 1, 1])
        channels = filters
    x = net.node("Flatten", [x], (1, 40 * 225))
    weights = net.constant(random.integers(0, 256, (40 * 225, 10)).astype(np.uint8))
    given = [x, scale(0.03), zero, weights, scale(1e-4), net.constant(np.asarray(128, np.uint8)), scale(0.2), zero]
    x = net.node("QLinearMatMul", given, (1, 10))
    x = net.node("DequantizeLinear", [x, scale(0.2), zero], (1, 10))
    return bytes(net.model([x]).SerializeToString())


@pytest.fixture(scope="module")
def mobile(tmp_path_factory: pytest.TempPathFactory) -> tuple[CompileReport, Path]:
    arm(NEON)
    model = build("tiny_mobile").SerializeToString()
    return compiled(model, tmp_path_factory.mktemp("mobile"), target=NEON, threads=2)


def test_a_network_agrees_under_the_emulator_and_says_that_nothing_was_timed(
    mobile: tuple[CompileReport, Path],
) -> None:
    report, artifact = mobile
    assert report.errors
    assert report.errors[0].max_relative < report.tolerance == 1e-4
    with zipfile.ZipFile(artifact) as archive:
        manifest = json.loads(archive.read("manifest.json"))
    assert manifest["requires"] == {"machine": "aarch64", "features": ["asimd"]}
    if ON_X86:
        assert (report.latency_s, report.hardware) == (0, "")
        assert any(str(emulator(arm(NEON))) in notice and "no time" in notice for notice in report.notices)


@pytest.mark.skipif(not ON_X86, reason="only another architecture refuses it")
def test_another_architecture_is_told_to_compile_for_itself(mobile: tuple[CompileReport, Path]) -> None:
    with pytest.raises(WrongMachine, match=r"the artifact is for aarch64, this machine is x86_64"):
        Model(mobile[1])


def test_the_example_in_c_runs_where_the_cpu_has_the_features_and_is_refused_by_name_elsewhere(
    tmp_path: Path,
) -> None:
    target = arm(DOT)
    report, artifact = compiled(quantised_network(), tmp_path, target=target.name)
    assert report.errors
    assert report.errors[0].max_relative <= report.tolerance
    folder = tmp_path / "extracted"
    with zipfile.ZipFile(artifact) as archive:
        archive.extractall(folder)
    assert "tw_dot_signed_by(" in "".join(path.read_text() for path in (folder / "source").glob("kernels_*.c"))
    gcc = find_toolchain(machine="aarch64").path
    link = [gcc, "-O2", "-o", "example", "example.c", "./model.so", "-Wl,-rpath,$ORIGIN"]
    subprocess.run(link, cwd=folder, check=True)
    start = [] if not ON_X86 else list(emulator(target).command)
    ran = subprocess.run([*start, "./example"], cwd=folder, capture_output=True, text=True, check=False)
    assert "output 0: 10 elements" in ran.stdout, ran.stderr
    if ON_X86:
        start[start.index("-cpu") + 1] = "cortex-a53"
        older = subprocess.run([*start, "./example"], cwd=folder, capture_output=True, text=True, check=False)
        assert older.returncode == 1
        assert "this CPU lacks atomics" in older.stderr
        assert "cpu:aarch64" in older.stderr


def test_a_recurrent_network_agrees_on_a_core_by_name(tmp_path: Path) -> None:
    target = arm("cpu:cortex-a76")
    report, _ = compiled(build("tiny_lstm").SerializeToString(), tmp_path, target=target.name)
    assert report.errors
    assert report.errors[0].max_relative < 1e-5


@pytest.mark.skipif(not ON_X86, reason="nothing is emulated on the target's architecture")
def test_what_would_take_the_emulator_too_long_is_compiled_and_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = arm(NEON)
    monkeypatch.setattr(foreseeing, "EMULATED", 1e12)
    net = Network()
    x = net.input(1, 8)
    report, _ = compiled(net.model([net.node("Relu", [x], (1, 8))]).SerializeToString(), tmp_path, target=target.name)
    assert report.errors == ()
    assert any("it would take longer than proof_limit_s" in notice for notice in report.notices)


def test_without_a_cross_compiler_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(toolchains, "find_spec", lambda name: None)
    find_toolchain.cache_clear()
    machine = "aarch64" if ON_X86 else "x86_64"
    with pytest.raises(ToolchainMissing, match=f"no C compiler for {machine}") as caught:
        find_toolchain(environment_compiler({}), machine)
    assert "apt-get install gcc-" in caught.value.fix
    find_toolchain.cache_clear()

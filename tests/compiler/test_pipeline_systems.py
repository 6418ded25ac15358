"""Networks compiled for Windows and macOS: proved under Wine where that is installed, else their libraries are read."""

from __future__ import annotations

import ctypes
import json
import os
import platform
import re
import subprocess
import sys
import zipfile
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.zoo import build
from compiler.codegen import build as toolchains
from compiler.codegen.build import compile_library, find_toolchain, host_headers
from compiler.codegen.scalars import LIBM
from compiler.contract import CompileOptions, CompileReport
from compiler.contract.systems import MACOS, SYSTEMS, WINDOWS
from compiler.devices.cpu.emit.host import CPUID, SYSCTL
from compiler.devices.cpu.emulation import emulator_for
from compiler.devices.cpu.emulation.emulator import Emulator
from compiler.devices.cpu.emulation.model import emulated_model
from compiler.devices.cpu.target import PROFILES, resolve_for
from compiler.errors import OptionsError, ToolchainMissing
from compiler.pack.loader import Model, WrongMachine
from tests.compiler.libraries import Library, read_mach_o, read_pe
from tests.compiler.networks import Network
from tests.compiler.test_pipeline_arm import compiled, quantised_network
from tests.compiler.test_pipeline_wasm import looped, of_zoo

V3 = "cpu:x86-64-v3"
INTERFACE = {"tw_abi_version", "tw_create", "tw_run", "tw_plan", "tw_trace", "tw_destroy", "tw_last_error"}


def zig() -> None:
    """Skips the test where there is no compiler for other systems."""
    if find_spec("ziglang") is None:
        pytest.skip("no compiler for other systems. Fix: pip install ziglang")


def wine(target: str = V3) -> Emulator:
    """What runs programs for Windows here. Skips the test where nothing does."""
    zig()
    built = resolve_for(target, WINDOWS.name)
    found = emulator_for(built, find_toolchain("", built.machine, WINDOWS.name))
    if found is None:
        pytest.skip(
            f"no Wine that starts, or no {target} here. Fix: apt-get install --no-install-recommends wine wine64"
        )
    return found


def small(rows: str = "") -> bytes:
    """relu(x . w), 5 x 16 by 16 x 24; the 5 is open where it has a name."""
    net = Network()
    x = net.node("MatMul", [net.input(5, 16), net.weight(16, 24)], (5, 24))
    model = net.model([net.node("Relu", [x], (5, 24))])
    for port in (*model.graph.input, *model.graph.output, *model.graph.value_info) if rows else ():
        port.type.tensor_type.shape.dim[0].dim_param = rows
    return bytes(model.SerializeToString())


def member(artifact: Path, name: str) -> bytes:
    with zipfile.ZipFile(artifact) as archive:
        return archive.read(name)


@pytest.fixture(scope="module")
def cnn(tmp_path_factory: pytest.TempPathFactory) -> tuple[CompileReport, Path]:
    wine()
    model = build("tiny_cnn").SerializeToString()
    return compiled(model, tmp_path_factory.mktemp("cnn"), target=V3, system="windows", threads=2)


def test_a_network_for_windows_agrees_under_wine_and_says_so(cnn: tuple[CompileReport, Path]) -> None:
    report, artifact = cnn
    assert report.errors
    assert report.errors[0].max_relative < report.tolerance
    assert (report.latency_s, report.hardware) == (0, "")
    assert any(str(wine()) in notice and f"{V3} under windows" in notice for notice in report.notices)
    manifest = json.loads(member(artifact, "manifest.json"))
    assert manifest["requires"] == {"machine": "x86_64", "system": "windows", "features": ["avx2", "fma", "bmi2"]}
    assert "model.dll" in manifest["files"]
    assert "model.so" not in manifest["files"]
    assert manifest["target"] == V3, "records of tuning are of the profile, whatever the system"


def test_its_library_needs_windows_alone_and_exports_the_c_interface(cnn: tuple[CompileReport, Path]) -> None:
    library = read_pe(member(cnn[1], "model.dll"))
    assert library.machine == 0x8664
    assert {*INTERFACE} <= library.exports
    assert all(name.startswith("tw_") for name in library.exports)
    assert all(name == "kernel32.dll" or name.startswith("api-ms-win-crt-") for name in library.libraries)
    assert {"CreateFileW", "MapViewOfFile", "SetThreadAffinityMask"} <= library.imports


HALVES = """
TW_EXPORT void halves(_Float16 *narrow, float *wide, double *wider) {
    wide[0] = (float)narrow[0], narrow[1] = (_Float16)wide[1], narrow[2] = (_Float16)wider[2];
}
TW_EXPORT void large_frame(char *to) {
    char frame[100000];
    memset(frame, to[1], sizeof frame), memmove(frame + 1, frame, 99999), memcpy(to, frame, sizeof frame);
}
"""


@pytest.mark.parametrize("target", ["cpu:x86-64-v2", V3])
def test_whatever_kernels_call_is_linked_without_a_c_library(target: str) -> None:
    """Zig would build one, a minute of a core in each job."""
    zig()
    built = resolve_for(target, WINDOWS.name)
    text = '#include "tw_system.h"\n#include <math.h>\n' + HALVES
    for ctype, suffix in (("float", "f"), ("double", "")):
        called = [f"{name}{suffix}(x{', y' * (name in ('pow', 'fmod'))})" for name in sorted(LIBM)]
        called += [f"{name}{suffix}(x)" for name in ("nearbyint", "trunc", "fabs")]
        called += [f"{name}{suffix}(x, y)" for name in ("fmin", "fmax", "copysign")]
        text += f"TW_EXPORT {ctype} all{suffix}({ctype} x, {ctype} y) {{ return {' + '.join(called)}; }}\n"
    made = compile_library({"all.c": text}, host_headers(), built, find_toolchain("", built.machine, WINDOWS.name))
    library = read_pe(made)
    assert {"all", "allf", "halves", "large_frame"} == library.exports
    assert all(name == "kernel32.dll" or name.startswith("api-ms-win-crt-") for name in library.libraries)


def test_halves_are_rounded_as_by_the_processor(tmp_path: Path) -> None:
    """Of the processors that have no instruction for it: what stands in the header for them, by this machine's C."""
    header = host_headers()["tw_windows.h"]
    begin, end = header.index("_Float16 __truncdfhf2"), header.index("/* Touches each page")
    (tmp_path / "halves.c").write_text(
        "#include <stdint.h>\n#include <string.h>\n"
        + re.sub(r"__(\w+hf\w*2)\b", r"own_\1", header[begin:end])
        + "void narrow(const double *x, uint16_t *to, long count) {\n"
        "    for (long i = 0; i < count; i++) { _Float16 h = own_truncdfhf2(x[i]); memcpy(to + i, &h, 2); }\n}\n"
        "void widen(const _Float16 *x, float *to, long count) {\n"
        "    for (long i = 0; i < count; i++) to[i] = own_extendhfsf2(x[i]);\n}\n"
    )
    command = find_toolchain("").command
    subprocess.run([*command, "-O1", "-shared", "-fPIC", "-o", "halves.so", "halves.c"], cwd=tmp_path, check=True)
    own = ctypes.CDLL(str(tmp_path / "halves.so"))
    every = np.arange(65536, dtype=np.uint16).view(np.float16)
    wide = np.empty(every.size, np.float32)
    own.widen(every.ctypes, wide.ctypes, ctypes.c_long(every.size))
    np.testing.assert_array_equal(wide, every.astype(np.float32))
    random = np.random.default_rng(0)
    exact = every[np.isfinite(every)].astype(np.float64)
    ties = (exact[:-1] + exact[1:]) / 2
    some = random.standard_normal(100_000) * 2.0 ** random.integers(-30, 20, 100_000)
    edges = [0.0, -0.0, np.inf, -np.inf, np.nan, 65519.99, 65520.0, 1e300, 2.0**-25, 5e-324]
    x = np.concatenate([exact, ties, np.nextafter(ties, 1), np.nextafter(ties, -1), some, edges])
    found = np.empty(x.size, np.uint16)
    own.narrow(x.ctypes, found.ctypes, ctypes.c_long(x.size))
    with np.errstate(over="ignore"):
        right = x.astype(np.float16)
    np.testing.assert_array_equal(found.view(np.float16), right)
    numbers = ~np.isnan(right)
    np.testing.assert_array_equal(found[numbers], right.view(np.uint16)[numbers])


def test_its_sources_have_no_type_of_another_size_there(cnn: tuple[CompileReport, Path]) -> None:
    text = member(cnn[1], "source/model.c").decode()
    assert "long long first, last" in text
    assert "UL;" not in text


def test_runs_follow_each_other_in_one_process_and_names_of_files_are_utf_8(
    cnn: tuple[CompileReport, Path], tmp_path: Path
) -> None:
    path = tmp_path / "Modell \u00e4\u6f22.tw"
    path.write_bytes(cnn[1].read_bytes())
    with emulated_model(wine())(path) as model:
        x = np.random.default_rng(0).standard_normal(model.inputs[0].shape).astype(np.float32)
        name = model.inputs[0].name
        first, second = (next(iter(model.run({name: x}).values())) for _ in range(2))
        assert np.array_equal(first, second)
        assert not np.array_equal(first, next(iter(model.run({name: -x}).values())))


def test_the_example_in_c_maps_the_weights_where_they_lie_and_says_why_it_cannot(
    cnn: tuple[CompileReport, Path], tmp_path: Path
) -> None:
    started = wine()
    with zipfile.ZipFile(cnn[1]) as archive:
        archive.extractall(tmp_path)
    command = find_toolchain("", "x86_64", WINDOWS.name).command
    flags = ("-s", "-fno-sanitize=undefined", "-o", "example.exe")  # as users would: with the C library that Zig builds
    subprocess.run([*command, *flags, "example.c", "model.dll"], cwd=tmp_path, check=True)

    def said(*arguments: str) -> tuple[int, str]:
        run = [*started.command, "example.exe", *arguments]
        done = subprocess.run(run, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
        return done.returncode, done.stdout + done.stderr

    status, text = said()
    assert (status, "output 0: 10 elements" in text) == (0, True), text
    assert said("nowhere.bin")[0] == 1
    assert "cannot map the weights file nowhere.bin: No such file" in said("nowhere.bin")[1]
    (tmp_path / "short.bin").write_bytes(b"short")
    assert "the weights file short.bin is too short: it needs" in said("short.bin")[1]


@pytest.mark.parametrize(
    ("network", "options"),
    [
        (of_zoo("tiny_lstm"), {}),
        (of_zoo("tiny_transformer"), {}),
        (of_zoo("tiny_llama"), {}),
        (quantised_network, {"target": "cpu:x86-64-v4-vnni"}),
        (quantised_network, {}),
        (of_zoo("tiny_mobile"), {"target": "cpu:x86-64-v2"}),
        (of_zoo("tiny_cnn"), {"target": "cpu:x86-64-v4", "threads": 1}),
        (looped, {}),
        (partial(small, "rows"), {"dims": {"rows": {"min": 1, "opt": 4, "max": 9}}}),
    ],
    ids=["lstm", "transformer", "llama", "vnni", "quantised", "v2", "v4", "loop", "open"],
)
def test_networks_of_each_family_agree_under_wine(
    network: Callable[[], bytes], options: dict[str, Any], tmp_path: Path
) -> None:
    wine(options.get("target", V3))
    report, _ = compiled(network(), tmp_path / "net", **{"target": V3, "system": "windows", **options})
    assert report.errors
    assert all(error.max_relative <= report.tolerance for error in report.errors)


def test_constants_that_are_made_when_it_is_loaded_are_made_in_memory_of_its_own(tmp_path: Path) -> None:
    wine()
    net = Network()
    few = net.random.choice(np.array([0.5, -2, 0.125], np.float32), (512, 64))
    model = net.model([net.node("Add", [net.input(512, 64), net.constant(few)], (512, 64))]).SerializeToString()
    report, artifact = compiled(bytes(model), tmp_path / "net", target=V3, system="windows", threads=1)
    assert b"tw_expand.h" in member(artifact, "source/model.c"), "the constant of three values is made"
    assert report.errors
    assert report.errors[0].max_relative <= report.tolerance


@pytest.mark.parametrize(("system", "read"), [("windows", read_pe), ("macos", read_mach_o)])
def test_a_program_that_carries_states_exports_what_runs_from_them(
    system: str, read: Callable[[bytes], Library], tmp_path: Path
) -> None:
    zig()
    net = Network()
    h = net.input(1, 8)
    model = net.model([net.node("Tanh", [net.node("MatMul", [h, net.weight(8, 8)], (1, 8))], (1, 8))])
    carry = {model.graph.output[0].name: model.graph.input[0].name}
    _, artifact = compiled(bytes(model.SerializeToString()), tmp_path, target=V3, system=system, carry=carry)
    (program,) = (name for name in json.loads(member(artifact, "manifest.json"))["files"] if name.startswith("model.d"))
    assert {"tw_state_create", "tw_state_run", "tw_state_reset", "tw_state_destroy"} <= read(
        member(artifact, program)
    ).exports


@pytest.mark.parametrize(("target", "machine"), [("cpu:aarch64-bf16", 0x0100000C), (V3, 0x01000007)])
def test_a_network_for_macos_is_a_library_that_needs_the_system_alone(
    target: str, machine: int, tmp_path: Path
) -> None:
    zig()
    model = build("tiny_cnn").SerializeToString()
    report, artifact = compiled(model, tmp_path / "net", target=target, system="macos", threads=2)
    assert report.errors == ()
    assert any("nothing was run" in notice and f"{target} under macos" in notice for notice in report.notices)
    library = read_mach_o(member(artifact, "model.dylib"))
    assert library.machine == machine
    assert {*INTERFACE} <= library.exports
    assert library.libraries == {"/usr/lib/libSystem.B.dylib"}
    assert library.least_system <= (13, 0)
    assert library.is_signed or machine == 0x01000007, "Apple's processors run signed code alone"
    assert not {name for name in library.imports if name.startswith(("sched_set", "sched_get"))}
    assert {"mmap", "pthread_create", "sysctlbyname"} <= library.imports


@pytest.mark.parametrize("system", [WINDOWS.name, MACOS.name])
def test_the_same_model_is_the_same_bytes_again(system: str, tmp_path: Path) -> None:
    zig()
    first, second = (compiled(small(), tmp_path / name, target=V3, system=system)[1] for name in ("a", "b"))
    assert first.read_bytes() == second.read_bytes()


@pytest.mark.skipif(sys.platform != "linux" or platform.machine() != "x86_64", reason="the errors are of this machine")
def test_another_systems_loader_names_the_option_that_makes_one_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    zig()
    windows = compiled(small(), tmp_path / "windows", target=V3, system="windows")[1]
    macos = compiled(small(), tmp_path / "macos", target="cpu:aarch64", system="macos")[1]
    linux = compiled(small(), tmp_path / "linux", target=V3)[1]
    for artifact, title in ((windows, "Windows"), (macos, "macOS")):
        with pytest.raises(WrongMachine, match=f"for {title}, this is Linux") as caught:
            Model(artifact)
        assert "--system linux" in str(caught.value)
    monkeypatch.setattr(sys, "platform", "win32")
    for artifact, title in ((linux, "Linux"), (macos, "macOS")):
        with pytest.raises(WrongMachine, match=f"for {title}, this is Windows") as caught:
            Model(artifact)
        assert "--system windows" in str(caught.value)
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(WrongMachine, match="is for aarch64, this machine is x86_64") as caught:
        Model(macos)
    assert f"--target {V3} --system macos" in str(caught.value)


@pytest.mark.skipif(sys.platform != "linux", reason="the library is for Linux")
def test_a_file_that_the_system_keeps_while_its_library_is_open_goes_with_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, artifact = compiled(small(), tmp_path)
    kept, real = list[str](), os.unlink

    def unlink(path: str) -> None:
        if path in kept:
            real(path)
        else:
            kept.append(path)
            raise PermissionError(path)

    monkeypatch.delattr(os, "memfd_create")
    with Model(artifact) as model:
        monkeypatch.setattr(os, "unlink", unlink)
        with Model(artifact):
            assert [Path(path).suffix for path in kept] == [".so"]
            assert Path(kept[0]).exists()
        assert not Path(kept[0]).exists()
        assert model.run(model.random_inputs())


@pytest.mark.parametrize(
    ("options", "why", "fix"),
    [
        ({"target": V3, "system": "beos"}, "system 'beos' is unknown", "linux, windows, macos"),
        ({"system": "windows"}, "target cpu, which names no profile", V3),
        ({"target": "cpu:x86-64", "system": "macos"}, "target cpu:x86-64, which names no profile", "cpu:aarch64"),
        ({"target": "cpu:aarch64", "system": "windows"}, "for Windows is made for target cpu:aarch64", V3),
        ({"target": "cpu:x86-64-v4-amx", "system": "macos"}, "for macOS is made for target cpu:x86-64-v4-amx", V3),
        ({"target": "cpu:x86-64-v4-amx", "system": "windows"}, "for Windows is made", V3),
        ({"target": "cuda:sm_90", "system": "windows"}, "for Windows is made for target cuda:sm_90", V3),
        ({"target": "wasm:simd128", "system": "macos"}, "for macOS is made for target wasm:simd128", V3),
        ({"devices": ["cpu:0", "cpu:1"], "system": "windows"}, "system windows and devices exclude", "leave one"),
    ],
)
def test_systems_and_targets_that_do_not_go_together_are_refused(options: dict[str, Any], why: str, fix: str) -> None:
    with pytest.raises(OptionsError, match=why) as caught:
        CompileOptions.from_json(options)
    assert fix in caught.value.fix


def test_each_system_can_say_of_each_feature_of_its_profiles_whether_a_processor_has_it() -> None:
    profiles = {profile.name: profile for profile in PROFILES}
    for system, known in ((WINDOWS, CPUID), (MACOS, SYSCTL)):
        assert system.profiles
        for name in system.profiles:
            assert {*profiles[name].features} <= {*known}, name


def test_without_a_cross_compiler_zig_makes_artifacts_for_arm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    zig()
    real = toolchains._toolchain
    monkeypatch.setattr(toolchains, "_toolchain", lambda name: None if "aarch64" in name else real(name))
    find_toolchain.cache_clear()
    try:
        report, artifact = compiled(small(), tmp_path, target="cpu:cortex-a76")
    finally:
        find_toolchain.cache_clear()
    assert report.errors == ()
    assert "clang" in json.loads(member(artifact, "manifest.json"))["toolchain"]
    code = member(artifact, "model.so")
    assert (code[:4], code[18]) == (b"\x7fELF", 183)


def test_without_zig_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolchains, "find_spec", lambda name: None)
    for system in SYSTEMS[1:]:
        find_toolchain.cache_clear()
        with pytest.raises(ToolchainMissing, match=f"no C compiler for {system.title}") as caught:
            find_toolchain("", "x86_64", system.name)
        assert "pip install ziglang" in caught.value.fix
    find_toolchain.cache_clear()

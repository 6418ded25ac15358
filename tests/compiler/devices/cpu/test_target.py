from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from compiler.devices.cpu import target as cpu
from compiler.devices.cpu.rates import Rates
from compiler.devices.cpu.target import PROFILES, CpuTarget, resolve, runs_here, this_machine
from compiler.errors import TargetUnavailable


@pytest.fixture
def pretended(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):  # type: ignore[no-untyped-def]
    """Makes this a machine with some features."""

    def pretend(machine: str, line: str) -> None:
        (tmp_path / "cpuinfo").write_text(f"processor : 0\nvendor_id : Someone\nmodel : 7\n{line}\n")
        monkeypatch.setattr(cpu, "CPUINFO", tmp_path / "cpuinfo")
        monkeypatch.setattr(cpu, "CACHES", tmp_path / "cache")
        monkeypatch.setattr("platform.machine", lambda: machine)
        monkeypatch.setattr(cpu, "grants_tiles", lambda: True)

    return pretend


V4 = "avx512f avx512bw avx512cd avx512dq avx512vl avx2 fma bmi2 sse4_2 popcnt"
FEATURES = {
    "cpu:x86-64-v4-amx": f"{V4} avx512_vnni avx512_bf16 avx512vbmi amx_tile amx_int8 amx_bf16",
    "cpu:x86-64-v4-bf16": f"{V4} avx512_vnni avx512_bf16 avx512vbmi",
    "cpu:x86-64-v4-vnni": f"{V4} avx512_vnni avx_vnni",
    "cpu:x86-64-v4": V4,
    "cpu:x86-64-v3-vnni": "avx2 fma bmi2 sse4_2 popcnt avx_vnni",
    "cpu:x86-64-v3": "avx2 fma bmi2 sse4_2 popcnt",
    "cpu:x86-64-v2": "sse4_2 popcnt",
}


@pytest.mark.parametrize("name", FEATURES)
def test_this_machine_is_the_best_profile_it_has(pretended, name: str) -> None:  # type: ignore[no-untyped-def]
    pretended("x86_64", f"flags : {FEATURES[name]}")
    here = this_machine()
    assert here.name == name
    assert here.is_here
    assert here.hardware.startswith(f"{name}/")
    assert resolve("cpu") == resolve(name) == here


def test_tiles_that_the_operating_system_does_not_grant_are_not_there(pretended, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    pretended("x86_64", f"flags : {FEATURES['cpu:x86-64-v4-amx']}")
    monkeypatch.setattr(cpu, "grants_tiles", lambda: False)
    assert this_machine().name == "cpu:x86-64-v4-bf16"


def test_a_profile_stays_as_it_is_on_a_machine_that_can_do_more(pretended) -> None:  # type: ignore[no-untyped-def]
    pretended("x86_64", f"flags : {FEATURES['cpu:x86-64-v4-bf16']}")
    plain, here = resolve("cpu:x86-64-v4"), resolve("cpu")
    assert (plain.name, here.name) == ("cpu:x86-64-v4", "cpu:x86-64-v4-bf16")
    assert not plain.multiplies_bytes
    assert "-mavx512vnni" not in plain.flags
    assert plain.hardware == here.hardware


@pytest.mark.parametrize("profile", PROFILES, ids=lambda profile: profile.name)
def test_a_profile_says_what_it_multiplies_and_tells_the_compiler(profile: CpuTarget) -> None:
    of_bytes = {"avx512_vnni", "avx_vnni", "asimddp"} & {*profile.features}
    of_bf16 = {"avx512_bf16", "bf16"} & {*profile.features}
    assert profile.multiplies_bytes == bool(of_bytes)
    assert profile.multiplies_bf16 == bool(of_bf16)
    if profile.machine == "aarch64":
        spelled = {"asimddp": "dotprod", "i8mm": "i8mm", "bf16": "bf16"}
        march = profile.flags[0].split("+")
        assert {spelled[one] for one in profile.features if one in spelled} == {*march[1:]}
        return
    for feature in (*of_bytes, *of_bf16):
        assert f"-m{feature.replace('_', '')}" in profile.flags
    for feature in cpu.TILES:
        assert (f"-m{feature.replace('_', '-')}" in profile.flags) == profile.has_tiles


def test_bf16_is_refused_by_the_name_of_the_missing_feature_and_with_targets_that_have_it() -> None:
    for profile in PROFILES:
        profile.check_precision("fp32")
        if profile.multiplies_bf16:
            profile.check_precision("bf16")
            continue
        is_arm = profile.machine == "aarch64"
        with pytest.raises(TargetUnavailable, match="feature bf16 " if is_arm else "avx512_bf16") as caught:
            profile.check_precision("bf16")
        assert ("cpu:aarch64-bf16" if is_arm else "cpu:x86-64-v4-bf16") in caught.value.fix
        assert ("cpu:x86" in caught.value.fix) is not is_arm


def test_an_arm_machine_is_known_by_its_features(pretended) -> None:  # type: ignore[no-untyped-def]
    known = {
        "cpu:aarch64": "fp asimd",
        "cpu:aarch64-dotprod": "fp asimd evtstrm atomics asimdhp asimddp",
        "cpu:aarch64-i8mm": "fp asimd atomics asimddp i8mm",
        "cpu:aarch64-bf16": "fp asimd atomics asimddp sve i8mm bf16",
    }
    for name, features in known.items():
        pretended("aarch64", f"Features : {features}")
        assert this_machine().name == name
    assert resolve("cpu:neoverse-n1").is_here
    assert not resolve("cpu:x86-64-v2").is_here


def test_an_arm_core_by_its_name_has_the_instructions_of_a_profile() -> None:
    """A machine is never taken for one of them, since whatever it has a profile before them has too."""
    plain = [profile for profile in PROFILES if profile.name.startswith("cpu:aarch64")]
    for core in PROFILES[PROFILES.index(plain[-1]) + 1 :]:
        (like,) = (one for one in plain if one.features == core.features)
        assert core.flags == (*like.flags, f"-mtune={core.name.removeprefix('cpu:')}")
        assert (core.vector_floats, core.vector_registers) == (4, 32)


def test_a_machine_without_a_profile_is_told_to_name_one(pretended) -> None:  # type: ignore[no-untyped-def]
    pretended("riscv64", "flags : none")
    with pytest.raises(TargetUnavailable, match="riscv64") as caught:
        this_machine()
    assert "cpu:x86-64-v3" in caught.value.fix


def test_the_fingerprint_changes_with_the_machine(pretended) -> None:  # type: ignore[no-untyped-def]
    pretended("x86_64", f"flags : {FEATURES['cpu:x86-64-v3']}")
    before = this_machine().hardware
    pretended("x86_64", f"flags : {FEATURES['cpu:x86-64-v3']} vnni")
    assert this_machine().hardware != before


def test_cache_sizes_are_read_from_the_kernel(pretended, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    pretended("x86_64", f"flags : {FEATURES['cpu:x86-64-v3']}")
    for index, (level, kind, size) in enumerate([(1, "Instruction", "64K"), (1, "Data", "48K"), (2, "Unified", "2M")]):
        entry = tmp_path / "cache" / f"index{index}"
        entry.mkdir(parents=True)
        for name, text in (("level", str(level)), ("type", kind), ("size", size)):
            (entry / name).write_text(f"{text}\n")
    here = this_machine()
    assert (here.l1_bytes, here.l2_bytes) == (48 * 1024, 2 * 1024**2)


def test_a_smaller_profile_of_this_machine_is_measured_here_and_a_foreign_one_is_not(pretended) -> None:  # type: ignore[no-untyped-def]
    pretended("x86_64", f"flags : {FEATURES['cpu:x86-64-v4']}")
    assert resolve("cpu:x86-64-v3").is_here
    assert resolve("cpu:x86-64-v3").vector_floats == 8
    assert not resolve("cpu:aarch64").is_here


def test_an_unknown_target_lists_the_known_ones() -> None:
    with pytest.raises(TargetUnavailable, match="cpu:abacus") as caught:
        resolve("cpu:abacus")
    assert all(profile.name in caught.value.fix for profile in PROFILES)


def test_here_at_least_one_profile_runs() -> None:
    assert any(map(runs_here, PROFILES))


@pytest.mark.parametrize("lanes", [1, 4])
def test_ceilings_are_those_of_all_cores_of_a_plan_where_they_share_nothing(lanes: int) -> None:
    rates = Rates(2.0, 200.0, 100.0, 40.0, 10.0, 60.0, 25.0, measured=True)
    found = replace(next(one for one in PROFILES if one.name == "cpu:x86-64-v3"), rates=rates).ceilings(lanes)
    assert found.flop_per_s == lanes * 2.0 * 8 * 2 * 1e9
    shared = (60e9, 25e9) if lanes > 1 else (40e9, 10e9)
    assert found.bytes_per_s == {"L1": lanes * 200e9, "L2": lanes * 100e9, "L3": shared[0], "memory": shared[1]}
    assert found.measured

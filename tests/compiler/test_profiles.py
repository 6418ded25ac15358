"""Artifacts for all processors of an architecture: a program for each of several profiles, and one copy of weights."""

from __future__ import annotations

import ctypes
import json
import platform
import sys
import zipfile
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.zoo import build
from compiler.contract import CompileOptions, CompileReport
from compiler.devices.cpu.target import this_machine
from compiler.errors import OptionsError
from compiler.pack.loader import ArtifactError, Model, WrongMachine, profiles
from compiler.reproduce import reproduce
from tests.compiler.networks import Network
from tests.compiling import compile_file

X86, V4, V3, V2 = "cpu:x86-64", "cpu:x86-64-v4", "cpu:x86-64-v3", "cpu:x86-64-v2"
pytestmark = pytest.mark.skipif(this_machine().machine != "x86_64", reason="programs for x86 run on x86 alone")


def compiled(model: bytes, folder: Path, name: str = "net.tw", **options: Any) -> tuple[CompileReport, Path]:
    """The report and the artifact of a model, unmeasured."""
    (folder / "net.onnx").write_bytes(model)
    given: dict[str, Any] = {"target": X86, "tuning_budget_s": 0, "threads": 1, "compare": ()}
    return compile_file(folder / "net.onnx", folder / name, CompileOptions(**given | options)), folder / name


def manifest_of(artifact: Path) -> dict[str, Any]:
    with zipfile.ZipFile(artifact) as archive:
        return dict(json.loads(archive.read("manifest.json")))


def products(rows: int, *sizes: int) -> bytes:
    """Matrix products one after the other, of these sizes, whose columns fill no panel."""
    net = Network()
    x = net.input(rows, sizes[0])
    for depth, columns in pairwise(sizes):
        weights = net.random.standard_normal((depth, columns)).astype(np.float32) / depth**0.5
        x = net.node("MatMul", [x, net.constant(weights)], (rows, columns))
    return bytes(net.model([x]).SerializeToString())


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> tuple[CompileReport, Path]:
    return compiled(build("tiny_cnn").SerializeToString(), tmp_path_factory.mktemp("tiny"), profiles=(V2, V3))


def test_each_profile_has_its_program_which_agreed_and_gives_what_it_gives_alone(
    tiny: tuple[CompileReport, Path], tmp_path: Path
) -> None:
    report, artifact = tiny
    assert (report.target, report.verified) == (X86, True)
    assert [(one.profile, one.verified) for one in report.bindings] == [(V3, True), (V2, True)]
    described = manifest_of(artifact)
    assert described["target"] == X86
    assert described["options"]["profiles"] == [V2, V3]
    assert [one["target"] for one in described["profiles"]] == [V3, V2], "the most able first"
    assert described["requires"] == described["profiles"][1]["requires"]
    for target in (V3, V2):
        _, alone = compiled(build("tiny_cnn").SerializeToString(), tmp_path, f"{target[4:]}.tw", target=target)
        with Model(artifact, target=target) as one, Model(alone) as other:
            assert (one.target, other.target) == (target, target)
            inputs = one.random_inputs(3)
            for name, array in one.run(inputs).items():
                np.testing.assert_array_equal(array, other.run(inputs)[name])


def test_the_most_able_profile_that_the_processor_has_is_taken(
    tiny: tuple[CompileReport, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, artifact = tiny
    with Model(artifact) as model:
        assert model.target == V3
    monkeypatch.setattr(profiles, "_features", lambda: frozenset(("sse4_2", "popcnt", "avx2")))
    with Model(artifact) as model:
        assert model.target == V2
    monkeypatch.setattr(profiles, "_features", lambda: frozenset(("sse4_2",)))
    with pytest.raises(WrongMachine, match="for cpu:x86-64-v3, cpu:x86-64-v2, and this machine has none") as caught:
        Model(artifact)
    assert caught.value.fix == "run it on another machine: no target asks less"
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    with pytest.raises(WrongMachine, match="and this machine has none") as caught:
        Model(artifact)
    assert caught.value.fix == "compile it for this one: --target cpu:arm64"
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(WrongMachine, match="for Linux, this is macOS") as caught:
        Model(artifact)
    assert "--system macos" in caught.value.fix
    monkeypatch.undo()
    with pytest.raises(ArtifactError, match=r"no program for cpu:x86-64-v4\. Fix: name one that it has: cpu:x86-64-v3"):
        Model(artifact, target=V4)


def test_tiles_of_amx_count_where_the_system_grants_them(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "cpuinfo").write_text("processor: 0\nflags\t\t: sse4_2 popcnt amx_tile\n\nprocessor: 1\nflags: none\n")
    monkeypatch.setattr(profiles, "_CPUINFO", tmp_path / "cpuinfo")
    for granted, found in ((0, {"sse4_2", "popcnt", "amx_tile"}), (-1, {"sse4_2", "popcnt"})):

        class System:
            syscall = staticmethod(lambda *asked, answer=granted: answer)

        monkeypatch.setattr(ctypes, "CDLL", lambda name: System)
        assert profiles._features() == found
    monkeypatch.setattr(profiles, "_CPUINFO", tmp_path / "none")
    assert profiles._features() == frozenset()


@pytest.mark.parametrize("sizes", [(301, 175, 130, 257), (150, 257, 150)])
@pytest.mark.parametrize("rows", [9, 40])
def test_weights_are_there_once_and_each_profile_cuts_them_into_its_own_panels(
    rows: int, sizes: tuple[int, ...], tmp_path: Path
) -> None:
    model = products(rows, *sizes)
    report, artifact = compiled(model, tmp_path, profiles=(V4, V3, V2))
    assert {one.profile for one in report.bindings} == {V4, V3, V2}
    weights = sum(4 * depth * columns for depth, columns in pairwise(sizes))
    assert report.weight_bytes <= 1.25 * weights, "more than columns that fill up the last panels"
    with zipfile.ZipFile(artifact) as archive:
        sources = {name: archive.read(name).decode() for name in archive.namelist() if name.endswith("/model.c")}
    made = [text.partition("REPACKINGS = ")[2].partition(" ")[0] for text in sources.values()]
    assert any(count not in ("", "0") for count in made), "nothing was cut anew: the panels are alike by chance"
    with Model(artifact, target=V3) as one, Model(artifact, target=V2) as other:
        inputs = one.random_inputs(5)
        for name, array in one.run(inputs).items():
            np.testing.assert_allclose(array, other.run(inputs)[name], atol=1e-4)


def test_several_bindings_of_several_profiles(tmp_path: Path) -> None:
    net = Network()
    batch: Any = "batch"
    weights = net.random.standard_normal((6, 33)).astype(np.float32)
    product = net.node("MatMul", [net.input(batch, 6), net.constant(weights)], (batch, 33))
    network = net.model([product]).SerializeToString()
    dims = ({"batch": 1}, {"batch": 8})
    report, artifact = compiled(network, tmp_path, profiles=(V2, V3), dims=dims)
    assert [(one.profile, one.dims["batch"]) for one in report.bindings] == [(V3, 1), (V3, 8), (V2, 1), (V2, 8)]
    for target in (V3, V2):
        with Model(artifact, target=target) as model:
            assert [binding.dims["batch"] for binding in model.bindings] == [1, 8]
            for rows in (1, 8):
                given = np.random.default_rng(rows).standard_normal((rows, 6)).astype(np.float32)
                (result,) = model.run({model.inputs[0].name: given}).values()
                expected = given.astype(np.float64) @ weights.astype(np.float64)
                np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)


def test_what_was_asked_for_decides_the_profiles(tmp_path: Path) -> None:
    floats, given = CompileOptions(target=X86), CompileOptions(target=X86, profiles=(V2, V3), tuning_budget_s=9)
    assert [one.target for one in floats.bindings] == [V4, V3, V2]
    assert [(one.target, one.tuning_budget_s, one.profiles) for one in given.bindings] == [(V3, 4.5, ()), (V2, 4.5, ())]
    short = CompileOptions(target=X86, precision="bf16", profiles=(V2, "cpu:x86-64-v4-bf16"))
    assert [(one.target, one.precision) for one in short.bindings] == [("cpu:x86-64-v4-bf16", "bf16"), (V2, "fp32")]
    with pytest.raises(OptionsError, match="option profiles applies to target cpu:x86-64 and cpu:arm64 only"):
        CompileOptions(profiles=(V2,))
    with pytest.raises(OptionsError, match="profile 'cpu:aarch64' is none of target cpu:x86-64"):
        CompileOptions(target=X86, profiles=("cpu:aarch64",))


def test_an_artifact_for_several_profiles_is_reproduced(tiny: tuple[CompileReport, Path], tmp_path: Path) -> None:
    _, artifact = tiny
    again = reproduce(artifact, artifact.with_name("net.onnx"), tmp_path / "again.tw")
    assert again.differing == ()

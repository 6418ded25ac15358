"""Artifacts of every kind of model carry a probe, which the machine that compiled them passes."""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from bench.texts.encoder import Encoder
from bench.zoo import build
from compiler.contract import CompileOptions, CompileReport
from compiler.devices.cpu.device import CpuBackend
from compiler.devices.cpu.target import this_machine
from compiler.pack.archive import write_archive
from compiler.pack.loader import Model, WrongMachine
from compiler.steps import proving
from compiler.steps.probing import MOST_BYTES
from tests.compiler.frontend.open.at_sizes import model_of
from tests.compiler.pipelines import boosting
from tests.compiler.steps import test_growing_caches, test_ragged
from tests.compiler.steps.states import test_proof as test_carrying
from tests.compiler.steps.test_data_sizes import KEPT
from tests.compiling import compile_file

INTEGERS = model_of("""m (uint8[2,5] a, int8[5] b, int64[3] at, bool[5] c, float[9,5] table)
=> (float[3,5] y, int64[2] z, bool[5] n) {
    f = Cast<to=1>(a) g = Cast<to=1>(b) s = Mul(f, g) z = ArgMax<axis=1, keepdims=0>(s)
    r = Gather(table, at) w = Cast<to=1>(c) y = Add(r, w) n = Not(c)
}""")
HALVES = model_of(
    "m (float16[4,8] x, float16[8,3] w, double[3] d) => (float16[4,3] y, double[3] z) {y = MatMul(x, w) z = Exp(d)}"
)
BFLOATS = model_of("m (bfloat16[4,8] x, bfloat16[8,3] w) => (bfloat16[4,3] y) {y = MatMul(x, w)}")
DRAWS = model_of("m (float[40] x) => (float[40] y) {r = RandomUniformLike(x) y = Add(x, r)}")
OPEN = model_of("m (float[n,6] x) => (float[n,6] y) {y = Softmax<axis=1>(x)}")
POSITIVE = model_of("m (float[30] x) => (float[30] y) {y = Log(x)}")


def by_file(content: bytes | onnx.ModelProto) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(content if isinstance(content, bytes) else content.SerializeToString())


def ragged(path: Path) -> None:
    encoder = Encoder(seed=3)
    encoder.layer()
    path.write_bytes(encoder.finish(states=encoder.x, embedding=encoder.mean()))


MODELS: Mapping[str, tuple[Callable[[Path], object], dict[str, Any]]] = {
    "integers": (by_file(INTEGERS), {}),
    "halves": (by_file(HALVES), {}),
    "bfloats": (by_file(BFLOATS), {"precision": "bf16"}),
    "random numbers": (by_file(DRAWS), {}),
    "a range": (by_file(OPEN), {"dims": {"n": {"min": 1, "opt": 3, "max": 5}}}),
    "a demand": (by_file(POSITIVE), {}),
    "sizes that follow from data": (by_file(KEPT), {}),
    "strings": (by_file(boosting(24)), {}),
    "states": (test_carrying.stateful, {"carry": test_carrying.CARRY}),
    "caches": (
        test_growing_caches.decoder,
        {"carry": "auto", "dims": {"sequence_length": [1, 4], test_growing_caches.PAST: 64}},
    ),
    "texts": (ragged, test_ragged.OPTIONS),
}


def described(artifact: Path) -> Iterator[Mapping[str, Any]]:
    """What the manifest says of each binding."""
    with zipfile.ZipFile(artifact) as archive:
        manifest = json.loads(archive.read("manifest.json"))
    for profile in manifest.get("profiles", (manifest,)):
        yield from profile.get("bindings", (profile,))


def compiled(name: str, folder: Path) -> tuple[CompileReport, Path]:
    make, options = MODELS[name]
    make(folder / "m.onnx")
    asked = CompileOptions.from_json({"tuning_budget_s": 0, "threads": 1, **options})
    return compile_file(folder / "m.onnx", folder / "m.tw", asked), folder / "m.tw"


@pytest.mark.parametrize("coded", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_each_kind_of_model_has_a_probe_that_it_passes_in_the_form_of_callers_and_in_its_own(
    name: str, coded: bool, tmp_path: Path
) -> None:
    report, artifact = compiled(name, tmp_path)
    assert report.verified
    each = [*described(artifact)]
    with Model(artifact, verify=True, coded=coded) as model:
        for number, binding in enumerate(each, 1):
            probe = binding["probe"]
            assert len(json.dumps(probe)) <= MOST_BYTES
            assert all(probe["outputs"]), "of each output"
            assert model.at(number).self_check() == ()


def test_each_profile_has_the_same_probe_and_passes_it(tmp_path: Path) -> None:
    if this_machine().machine != "x86_64":
        pytest.skip("programs for x86 run on x86 alone")
    (tmp_path / "m.onnx").write_bytes(build("tiny_cnn").SerializeToString())
    profiles = ("cpu:x86-64-v2", "cpu:x86-64-v3")
    options = {"target": "cpu:x86-64", "profiles": profiles, "threads": 1, "tuning_budget_s": 0}
    compile_file(tmp_path / "m.onnx", tmp_path / "m.tw", CompileOptions.from_json(options))
    one, two = (binding["probe"] for binding in described(tmp_path / "m.tw"))
    assert one == two
    for target in profiles:
        with Model(tmp_path / "m.tw", target=target, verify=True) as model:
            assert model.self_check() == ()


@pytest.mark.parametrize("name", [name for name in MODELS if name != "bfloats"])  # not each machine multiplies these
def test_an_artifact_that_nothing_ran_has_the_bands_of_the_reference(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is for this machine, so that what it tells of others can be held against a run."""
    monkeypatch.setattr(CpuBackend, "runner", None)
    report, artifact = compiled(name, tmp_path)
    assert not report.verified
    with Model(artifact, verify=True) as model:
        assert all(model.at(number).self_check() == () for number in range(1, 1 + len(model.bindings)))
    for binding in described(artifact):
        assert all(binding["probe"]["outputs"]), "of each output"


def test_wrong_weights_of_an_artifact_that_nothing_ran_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CpuBackend, "runner", None)
    with pytest.raises(WrongMachine, match="in a second run too: output '"):
        Model(with_wrong_weights(tmp_path))


ROUNDED = model_of("""m (float[64] x) => (int64[64] y, float[64] z) <float big = {1e9}> {
    e = Exp(x) s = Mul(e, big) y = Cast<to=7>(s) z = Neg(x)
}""")


@pytest.mark.parametrize(("seconds", "banded"), [(0.0, None), (30.0, [False, True])])
def test_what_rounding_decides_and_what_would_take_long_is_not_foretold(
    seconds: float, banded: list[bool] | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CpuBackend, "runner", None)
    monkeypatch.setattr(proving, "FORETOLD_S", seconds)
    (tmp_path / "m.onnx").write_bytes(ROUNDED)
    compile_file(tmp_path / "m.onnx", tmp_path / "m.tw", CompileOptions(tuning_budget_s=0, threads=1))
    (binding,) = described(tmp_path / "m.tw")
    assert ("probe" in binding) == (banded is not None)
    assert banded is None or [band is not None for band in binding["probe"]["outputs"]] == banded


def with_wrong_weights(folder: Path) -> Path:
    """An artifact of which one bit of the weights is another one, with the digest of these."""
    (folder / "m.onnx").write_bytes(build("tiny_cnn").SerializeToString())
    compile_file(folder / "m.onnx", folder / "m.tw", CompileOptions(tuning_budget_s=0, threads=1))
    with zipfile.ZipFile(folder / "m.tw") as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    manifest, weights = json.loads(members["manifest.json"]), bytearray(members["weights.bin"])
    weights[len(weights) // 3 // 4 * 4 + 3] ^= 0x02  # of an exponent
    members["weights.bin"] = bytes(weights)
    manifest["files"]["weights.bin"]["sha256"] = hashlib.sha256(weights).hexdigest()
    members["manifest.json"] = json.dumps(manifest).encode()
    write_archive(folder / "wrong.tw", members, mapped=("weights.bin",))
    return folder / "wrong.tw"


def test_weights_that_are_wrong_and_have_a_right_digest_are_found_when_the_artifact_is_loaded(tmp_path: Path) -> None:
    wrong = with_wrong_weights(tmp_path)
    with pytest.raises(WrongMachine, match="in a second run too: output '"):
        Model(wrong)
    Model(wrong, verify=False).close()


def test_where_drawn_inputs_show_nothing_the_report_says_that_there_is_no_probe(tmp_path: Path) -> None:
    inputs = model_of("m (float[4] x, float[3] t) => (float[4] y) {h = Mul(x, x) i = Cast<to=7>(h) y = Gather(t, i)}")
    (tmp_path / "m.onnx").write_bytes(inputs)
    np.savez(tmp_path / "s.npz", x=np.array([0, 1, 0.5, 1.2], np.float32), t=np.ones(3, np.float32))
    options = CompileOptions(tuning_budget_s=0, threads=1)
    report = compile_file(tmp_path / "m.onnx", tmp_path / "m.tw", options, samples={"s": tmp_path / "s.npz"})
    assert any("no probe" in notice for notice in report.notices)
    assert all("probe" not in binding for binding in described(tmp_path / "m.tw"))
    Model(tmp_path / "m.tw").close()

"""An artifact is made again from what it packs, with nothing measured: the same bytes, or what differs."""

from __future__ import annotations

import json
import re
import zipfile
from pathlib import Path
from typing import Any

import pytest

from bench import subjects
from compiler import reproduce as command
from compiler.contract import CompileOptions
from compiler.errors import ArtifactUnusable, OptionsError
from compiler.knowledge.replay import MEMBER, Log
from compiler.pack.archive import write_archive
from compiler.pack.manifest import files_json, to_bytes
from compiler.reproduce import STATED, reasons, reproduce
from tests.compiling import compile_file

OPTIONS = {"tuning_budget_s": 600, "tuning_trials": 12, "threads": 1}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return subjects.from_zoo("tiny_inception", tmp_path_factory.mktemp("model")).file


@pytest.fixture(scope="module")
def artifact(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("artifact") / "model.tw"
    report = compile_file(model, path, CompileOptions.from_json(OPTIONS))
    assert report.records_measured
    return path


def members(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def repacked(artifact: Path, path: Path, **changes: bytes | None) -> Path:
    """The artifact with other members, under a manifest that says so."""
    log = changes.pop("log", None)
    files: dict[str, Any] = {**members(artifact), **changes, MEMBER: log}
    manifest = json.loads(files.pop("manifest.json"))
    if log is None:
        files.pop(MEMBER)
    manifest["files"] = files_json(files)
    write_archive(path, {"manifest.json": to_bytes(manifest), **files}, mapped=("weights.bin",))
    return path


def test_an_artifact_that_was_measured_is_made_again_to_the_byte(artifact: Path, model: Path, tmp_path: Path) -> None:
    found = reproduce(artifact, model, tmp_path / "again.tw")
    assert found.is_same, str(found)
    assert found.measurements > 0
    assert (found.differing, found.fields, found.reasons, found.missing, found.changed) == ((), (), (), (), ())
    assert found.measured > 0
    assert found.kernels > 0
    assert (tmp_path / "again.tw").read_bytes() == artifact.read_bytes()


def test_by_another_compiler_it_is_told_which_kernels_change_and_which_measurements_still_hold(
    artifact: Path, model: Path, tmp_path: Path
) -> None:
    """The artifact of an older compiler, which generated one kernel otherwise."""
    whole = members(artifact)
    call = next(call for call in json.loads(whole["plan.json"])["calls"] if call["predicted_from"] == "measured")
    records = [json.loads(line) for line in whole[MEMBER].splitlines()]
    kernels = [record for record in records if record["kind"] == "kernel"]
    (other,) = {
        record["workload"]
        for record in kernels
        if record["variant"].get("levels") == call["blocking"]["levels"] and record["seconds"] == call["predicted_s"]
    }
    for record in kernels:
        record["compiler"] = "0.0.9+0123456789abcdef"
        if record["workload"] == other:
            record["variant"]["source"] = "fedcba9876543210"
    log = "".join(json.dumps(record) + "\n" for record in records).encode()
    file = next(name for name in whole if name.startswith("source/kernels_") and name.endswith(".c"))
    head, _, tail = whole[file].rpartition(b"\n}")
    edited = re.findall(rb"\b([a-z]\d+)_\w+\(", head)[-1].decode()
    given = repacked(artifact, tmp_path / "older.tw", **{"log": log, file: head + b"\n    /* older */\n}" + tail})
    found = reproduce(given, model, tmp_path / "again.tw")
    assert not found.is_same
    assert "plan.json" in found.differing
    (field,) = found.fields
    assert re.fullmatch(r"plan\.json: [\w.]+ was .+, here .+", field)
    assert f"first: {field}" in str(found)
    assert any(kernel.startswith(f"{edited}_") for kernel in found.changed), found
    assert len(found.changed) <= 1 + len(found.missing), "the edited one, and those whose measurements are gone"
    assert all(missing.startswith("call ") for missing in found.missing)
    assert found.missing
    assert all(call["family"] in missing for missing in found.missing), found
    assert len(found.missing) < found.measured, "the other measurements still hold"


@pytest.mark.parametrize(
    ("before", "now", "said"),
    [
        ({"a": 1, "b": [1, {"c": 2}]}, {"a": 1, "b": [1, {"c": 3}]}, "b.1.c was 2, here 3"),
        ({"a": [1, 2]}, {"a": [1, 2, 3]}, "a was a list of 2, here a list of 3"),
        ({"a": 1}, {"a": 1, "others": ["x"]}, "others was absent, here a list of 1"),
        ({"a": None, "b": 1}, {"a": "y" * 100}, f'a was null, here "{"y" * 79}...'),
        (None, {"a": 1}, 'all of it was absent, here {"a": 1}'),
    ],
)
def test_the_first_field_that_differs_is_named_with_both_values(before: object, now: object, said: str) -> None:
    both = [{} if one is None else {"plan.json": json.dumps(one).encode()} for one in (before, now)]
    assert command.first_field("plan.json", *both) == f"plan.json: {said}"


def test_a_member_that_differs_in_its_text_alone_is_told_as_that() -> None:
    said = command.first_field("plan.json", {"plan.json": b'{"a": 1}'}, {"plan.json": b'{"a":1.0}'})
    assert said == "plan.json: the same fields in another text"


def test_another_model_is_the_reason(artifact: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = subjects.from_zoo("tiny_cnn", tmp_path).file
    assert command.main([str(artifact), str(other), "--json"]) == command.OTHER_BYTES
    said = json.loads(capsys.readouterr().out)
    assert said["same"] is False
    assert [reason.split()[0] for reason in said["reasons"]] == ["model_digest"]


def test_what_packs_no_log_or_is_damaged_is_refused(artifact: Path, model: Path, tmp_path: Path) -> None:
    with pytest.raises(ArtifactUnusable, match=MEMBER):
        reproduce(repacked(artifact, tmp_path / "old.tw", log=None), model, tmp_path / "again.tw")
    whole = members(artifact)
    write_archive(tmp_path / "damaged.tw", {**whole, "plan.json": b"{}"}, mapped=("weights.bin",))
    with pytest.raises(ArtifactUnusable, match=r"plan\.json"):
        reproduce(tmp_path / "damaged.tw", model, tmp_path / "again.tw")
    with pytest.raises(OptionsError, match="line 1"):
        Log.parse("{}\n")


def test_bindings_are_replayed_each_with_its_own_log(model: Path, tmp_path: Path) -> None:
    import onnx

    loaded = onnx.load(subjects.from_zoo("tiny_cnn", tmp_path).file)
    loaded.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "batch"
    for one in loaded.graph.output:
        one.type.tensor_type.shape.dim[0].dim_param = "batch"
    onnx.save(loaded, tmp_path / "open.onnx")
    options = CompileOptions.from_json({**OPTIONS, "tuning_trials": 4, "dims": {"batch": [1, 2]}})
    compile_file(tmp_path / "open.onnx", tmp_path / "two.tw", options)
    found = reproduce(tmp_path / "two.tw", tmp_path / "open.onnx", tmp_path / "again.tw")
    assert found.is_same, str(found)
    assert f"bindings/2/{MEMBER}" in members(tmp_path / "two.tw")


def test_a_probe_that_no_run_could_make_here_is_a_reason() -> None:
    stated = dict.fromkeys(STATED, "same")
    assert reasons(stated | {"probe": {"seed": 0}}, stated) == ["it has a probe, which needs a machine that runs it"]
    assert reasons(stated, stated | {"probe": {"seed": 0}}) == reasons(stated, stated) == []

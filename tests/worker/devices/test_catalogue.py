from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from compiler.contract import COMPILER_VERSION, kinds
from compiler.devices.cpu import target as cpu
from compiler.devices.cuda import target as cuda
from compiler.ops import MODEL_OPERATORS
from service.jobs.scheduling import catalogue
from tests.third_kind import DSP, register
from worker.devices import npu, wasm
from worker.devices.catalogue import operators, published, targets
from worker.devices.published import published as told_apart
from worker.lease.status import StatusThread


def test_every_operator_has_one_entry() -> None:
    entries = operators()
    keys = [(entry["domain"], entry["name"]) for entry in entries]
    assert keys == sorted(set(keys))
    assert {name for domain, name in keys if domain == "ai.onnx"} >= {*MODEL_OPERATORS, "Shape", "Dropout"}
    by_name = {entry["name"]: entry for entry in entries if entry["how"] == "kernel"}
    assert by_name.keys() == MODEL_OPERATORS.keys()
    for name, operator in MODEL_OPERATORS.items():
        assert by_name[name]["opsets"] == list(operator.opsets)
        assert by_name[name]["family"]


def test_limits_are_told() -> None:
    limits = {entry["name"]: entry["limits"] for entry in operators()}
    assert "how large its results are" in limits["NonMaxSuppression"]
    assert limits["Relu"] == ""


def test_every_target_has_one_entry() -> None:
    families = [one.name for one in kinds.CPU.families]
    cpus = ["cpu", *families, *(one.name for one in cpu.PROFILES)]
    gpus = ["cuda", *(one.name for one in cuda.PROFILES)]
    assert [entry["name"] for entry in targets()] == [*cpus, *gpus, *wasm.profiles(), *npu.profiles()]
    assert all(entry["description"] for entry in targets())


def test_every_target_says_in_which_precisions_it_computes() -> None:
    able = {entry["name"]: entry["precisions"] for entry in targets()}
    assert able["cuda"] == able["cuda:sm_90"] == ["fp32", "tf32", "fp16", "bf16", "auto", "int8"]
    assert able["cpu:x86-64-v3"] == ["fp32", "auto", "int8"]
    assert [name for name, found in able.items() if "bf16" in found and name.startswith("cpu:")] == [
        *(family.name for family in kinds.CPU.families),
        *(profile.name for profile in cpu.PROFILES if profile.multiplies_bf16),
    ]


def test_profiles_of_cpus_say_for_which_systems_there_are_artifacts_and_how_they_are_proved() -> None:
    entries = {entry["name"]: entry for entry in targets()}
    assert entries["cpu:x86-64-v3"]["systems"] == ["linux", "windows", "macos"]
    assert entries["cpu:aarch64"]["systems"] == ["linux", "macos"]
    assert entries["cpu:x86-64-v4-amx"]["systems"] == entries["cpu:cortex-a72"]["systems"] == ["linux"]
    assert (
        "Windows (run under Wine by compile --local alone) and macOS (built and not run)"
        in entries["cpu:x86-64-v3"]["description"]
    )


def test_a_third_kind_of_device_is_in_the_catalogue_without_further_edits(monkeypatch: pytest.MonkeyPatch) -> None:
    before = targets()
    register(monkeypatch)
    assert targets()[: len(before)] == before
    bare, *others = targets()[len(before) :]
    assert bare == {"name": "dsp", "description": DSP.here, "precisions": ["int8", "fp32"]}
    assert [entry["name"] for entry in others] == ["dsp:v1", "dsp:v2", "dsp:v3"]


def test_both_are_plain_json() -> None:
    assert json.loads(json.dumps(published())) == published()
    assert set(published()) == set(catalogue.NAMES)


def test_a_process_of_its_own_tells_the_same() -> None:
    assert told_apart() == published()


def test_a_worker_lives_although_its_catalogue_cannot_be_told(office: Any, eventually: Callable[..., Any]) -> None:
    asked = []

    def broken() -> Mapping[str, list[dict[str, Any]]]:
        asked.append(True)
        if len(asked) == 1:
            raise OSError("no more processes")
        return published()

    status = StatusThread(office.db, "w", ["cpu"], {"cores": 2}, 0.05, broken)
    status.start()
    try:
        eventually(lambda: all(catalogue.newest(office.db, name) for name in catalogue.NAMES))
    finally:
        status.stop(10.0)
    assert len(asked) == 2


def test_a_worker_publishes_its_catalogue_when_it_starts(office: Any, eventually: Callable[..., Any]) -> None:
    status = StatusThread(office.db, "w", ["cpu"], {"cores": 2}, 60.0, published)
    status.start()
    try:
        eventually(lambda: all(catalogue.newest(office.db, name) for name in catalogue.NAMES))
    finally:
        status.stop(10.0)
    found = catalogue.newest(office.db, "operators")
    assert found is not None
    assert (found.compiler, found.entries) == (COMPILER_VERSION, operators())

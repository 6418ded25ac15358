from __future__ import annotations

import json
from typing import Any

import pytest

from compiler.contract import CompileOptions, Kind, kinds, properties
from compiler.errors import OptionsError
from tests.third_kind import register


@pytest.fixture
def dsp(monkeypatch: pytest.MonkeyPatch) -> Kind:
    return register(monkeypatch)


def test_kinds_have_names_of_their_own_and_defaults_that_options_have() -> None:
    assert len({kind.name for kind in kinds.KINDS}) == len(kinds.KINDS)
    for kind in kinds.KINDS:
        options = CompileOptions(target=kind.name if kind.here else f"{kind.name}:any")
        assert options.precision in kind.precisions
        assert options.scheduler in kind.schedulers


@pytest.mark.parametrize(
    ("kind", "device", "index"),
    [
        (kinds.CPU, "cpu", 0),
        (kinds.CPU, "cpu:0", None),
        (kinds.CPU, "cuda:0", None),
        (kinds.CUDA, "cuda", 0),
        (kinds.CUDA, "cuda:0", 0),
        (kinds.CUDA, "cuda:12", 12),
        (kinds.CUDA, "cuda:sm_90", None),
        (kinds.CUDA, "cuda:-1", None),
        (kinds.CUDA, "cuda:", None),
        (kinds.CUDA, "cpu", None),
        (kinds.CUDA, "", None),
    ],
)
def test_devices_are_numbered_where_there_may_be_several(kind: Kind, device: str, index: int | None) -> None:
    assert kind.index_of(device) == index


def test_a_device_is_found_under_the_name_that_it_is_given() -> None:
    assert [kind.device(0) for kind in kinds.KINDS] == ["cpu", "cuda:0", "wasm", "npu"]
    for kind in kinds.KINDS:
        assert kind.index_of(kind.device(0)) == 0
        assert kinds.of(kind.device(0)) == kind


def test_what_is_of_no_kind_is_told_apart() -> None:
    assert kinds.find("dsp:v1") is None
    with pytest.raises(LookupError, match="'dsp:v1' is of no kind of device"):
        kinds.of("dsp:v1")


def test_a_kind_that_is_registered_has_options_without_further_edits(dsp: Kind) -> None:
    asked = {"target": "dsp:v1", "precision": "int8", "scheduler": "waves"}
    options = CompileOptions.from_json(asked)
    assert options.kind == dsp.name
    assert CompileOptions.from_json(json.loads(json.dumps(options.to_json()))) == options


@pytest.mark.parametrize(
    ("asked", "said", "fix"),
    [
        ({"target": "dsp", "precision": "bf16"}, "precision 'bf16' applies to cpu and cuda targets only", "int8, fp32"),
        ({"scheduler": "waves"}, "scheduler 'waves' applies to dsp targets only", "or a target dsp"),
        ({"target": "dsp:v1", "threads": 4}, "a DSP target has as many queues as its plan needs", "leave threads out"),
        ({"target": "tpu"}, "target 'tpu' is unknown", "'dsp:<profile>'"),
    ],
)
def test_its_refusals_name_it_like_the_others(dsp: Kind, asked: dict[str, Any], said: str, fix: str) -> None:
    with pytest.raises(OptionsError, match=said) as caught:
        CompileOptions.from_json(asked)
    assert fix in caught.value.fix


def test_the_schema_shows_what_all_kinds_have(dsp: Kind) -> None:
    fields = properties(CompileOptions)
    assert fields["precision"]["enum"] == ["fp32", "bf16", "auto", "int8", "tf32", "fp16"]
    assert "waves" in fields["scheduler"]["enum"]
    assert fields["target"]["pattern"].startswith("^((cpu|cuda|dsp)(:")

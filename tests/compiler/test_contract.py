from __future__ import annotations

from typing import Any

import pytest

from compiler.contract import PRECISIONS, CompileOptions
from compiler.errors import OptionsError


@pytest.mark.parametrize("target", ["cpu", "cpu:x86-64-v3", "cuda", "cuda:sm_90"])
def test_each_kind_of_target_has_its_precisions_and_no_others(target: str) -> None:
    kind = target.partition(":")[0]
    for precision in {name for names in PRECISIONS.values() for name in names}:
        asked = {"target": target, "precision": precision}
        if precision in PRECISIONS[kind]:
            options = CompileOptions.from_json(asked)
            assert (options.kind, CompileOptions.from_json(options.to_json())) == (kind, options)
        else:
            with pytest.raises(OptionsError, match="is one of cuda targets alone") as caught:
                CompileOptions.from_json(asked)
            assert caught.value.fix == "use one of fp32, bf16, or a target cuda"


@pytest.mark.parametrize(
    ("asked", "said", "fix"),
    [
        ({"precision": "int8"}, "precision 'int8' is unknown", "use one of fp32, bf16"),
        ({"target": "cuda", "precision": "fp64"}, "precision 'fp64' is unknown", "use one of fp32, tf32, fp16, bf16"),
        ({"target": "gpu"}, "target 'gpu' is unknown", "'cuda:<profile>'"),
        ({"target": "cuda:SM_90"}, "target 'cuda:SM_90' is unknown", "'cuda:<profile>'"),
        ({"target": "cuda:sm_90", "threads": 2}, "a CUDA target has streams", "leave threads out"),
        (
            {"target": "cuda", "scheduler": "greedy"},
            "'greedy' is for the lanes of a CPU",
            "auto, sequential, early_start",
        ),
        ({"target": "cuda:sm_80", "scheduler": "aligned"}, "'aligned' is for the lanes of a CPU", "auto, sequential"),
    ],
)
def test_what_no_target_has_is_refused_with_what_it_has(asked: dict[str, Any], said: str, fix: str) -> None:
    with pytest.raises(OptionsError, match=said) as caught:
        CompileOptions.from_json(asked)
    assert fix in caught.value.fix


def test_every_precision_and_target_is_a_compilation_of_its_own() -> None:
    asked = [
        ("cpu", "fp32"),
        ("cuda", "fp32"),
        ("cuda", "tf32"),
        ("cuda", "fp16"),
        ("cuda", "bf16"),
        ("cuda:sm_90", "fp16"),
    ]
    keys = {CompileOptions(target=target, precision=precision).cache_key("model") for target, precision in asked}
    assert len(keys) == len(asked)


def test_what_is_left_out_is_a_set_of_names_whatever_their_order() -> None:
    asked = CompileOptions.from_json({"without": ["weights", "inline", "weights"]})
    assert asked.without == ("inline", "weights")
    assert asked == CompileOptions(without=("weights", "inline")) == CompileOptions.from_json(asked.to_json())
    assert asked.to_json()["without"] == ["inline", "weights"]
    assert asked.cache_key("model") == CompileOptions(without=("inline", "weights")).cache_key("model")


@pytest.mark.parametrize(
    ("without", "said"),
    [
        ("weights", "option 'without' is not a list"),
        ([1], r"without\[0\] is not a string"),
        (["no such; name"], "which is no name"),
        (["a" * 65], "which is no name"),
    ],
)
def test_what_is_no_list_of_names_is_refused(without: Any, said: str) -> None:
    with pytest.raises(OptionsError, match=said):
        CompileOptions.from_json({"without": without})

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from compiler.contract import BenchmarkOptions, CompileOptions, DimRange, InputSpec, kinds, options, properties
from compiler.errors import OptionsError

KEYS: tuple[tuple[dict[str, Any], str], ...] = (
    ({"tuning_budget_s": 15.0}, "d1ee57af9e6b4825693b10baf288c1fc0ae819a93e4e44ab5765217245c5c9f1"),
    (
        {"target": "cpu", "tuning_budget_s": 20, "seed": 7},
        "1ce25d94d59aa362b1eadf225d05a32a6c987436a02adf5f401f10fa06642594",
    ),
    (
        {"target": "cuda:sm_90", "precision": "fp16", "tuning_budget_s": 0.0},
        "36b8f0fd87bec6640feb946b2848f21202fdb22e6a1f9699e6826af02d9b1ae8",
    ),
    (
        {
            "tuning_budget_s": 15.0,
            "inputs": {"x": [1, 3, 224, 224], "rate": {"value": 16000}, "p": {"shape": [2], "value": None}},
            "dims": {"width": 640, "height": 480},
            "threads": 2,
        },
        "e3c0ca2d0a4bb2a42d950c54a5e61d3d99a46e1b9c3f19c3c51024c72840e55d",
    ),
    (
        {
            "tuning_budget_s": 15.0,
            "target": "cpu:x86-64-v3",
            "precision": "bf16",
            "tolerance": 0.01,
            "scheduler": "stages",
            "tuning_trials": 100,
        },
        "dac5f177bd9f93573bf67b1cfbaf315149bbba1d6fe0f23b4f16344433d61f91",
    ),
    (
        {"without": ["weights", "inline", "weights"], "tuning_budget_s": 20.0, "tolerance": 1},
        "b98b19566c2474ab00b4080143d55381326354068966a9c8f8770ee2c0b1e592",
    ),
    (
        {
            "tuning_budget_s": 15.0,
            "target": "cuda",
            "precision": "tf32",
            "inputs": {"flag": {"value": True}, "f": {"shape": [], "value": 0.5}},
            "threads": 1,
        },
        "df810738f0c32a22dfd277c1434a3025233343b53c228b2a3900d369cbac47ce",
    ),
)
"""Cache keys of version 0.1.0 for a model whose digest is 64 zeros."""


def refused(asked: Any) -> OptionsError:
    with pytest.raises(OptionsError) as caught:
        CompileOptions.from_json(asked)
    return caught.value


@pytest.mark.parametrize(("asked", "key"), KEYS)
def test_equal_options_keep_their_cache_key(asked: dict[str, Any], key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(options, "COMPILER_VERSION", "0.1.0")
    found = CompileOptions.from_json(asked)
    assert found.cache_key("0" * 64) == key
    assert CompileOptions.from_json(json.loads(json.dumps(found.to_json()))).cache_key("0" * 64) == key


def test_options_are_read_back_equal_and_replaced_with_all_checks() -> None:
    for asked, _ in KEYS:
        found = CompileOptions.from_json(asked)
        assert CompileOptions.from_json(found.to_json()) == found
        assert dataclasses.replace(found, seed=found.seed) == found
        assert dataclasses.replace(found, seed=99) != found
    with pytest.raises(OptionsError, match="threads is 0"):
        dataclasses.replace(CompileOptions(), threads=0)


def test_options_cannot_be_changed() -> None:
    found = CompileOptions(inputs={"x": InputSpec((1, 2))}, dims={"batch": 2})
    with pytest.raises(dataclasses.FrozenInstanceError):
        found.seed = 1  # type: ignore[misc]
    for mapping in (found.inputs, found.dims, CompileOptions().inputs, CompileOptions().dims):
        with pytest.raises(TypeError):
            mapping["y"] = 3  # type: ignore[index]


def test_what_was_given_may_change_without_changing_the_options() -> None:
    given = {"batch": 2}
    found = CompileOptions(dims=given)
    given["batch"] = 3
    assert found.dims == {"batch": 2}


@pytest.mark.parametrize("field", [*properties(CompileOptions).items()], ids=lambda f: f[0])
def test_every_field_is_described_once_for_all(field: tuple[str, dict[str, Any]]) -> None:
    name, schema = field
    assert schema["description"]
    stated = CompileOptions().to_json()[name]
    assert schema.get("default", {}) == stated


PIPELINE = {"devices": ["cpu:0", "cpu:1"], "objective": "throughput"}


@pytest.mark.parametrize(
    ("asked", "said", "fix"),
    [
        (None, "options are not a JSON object", 'send an object such as {"seed": 1}'),
        ([1], "options are not a JSON object", 'send an object such as {"seed": 1}'),
        (
            {"colour": 1},
            "unknown option 'colour'",
            "known options: bounds, cache, carry, chunks, compare, devices, dims, equalise, format, inputs,",
        ),
        (
            {"self": 1},
            "unknown option 'self'",
            "known options: bounds, cache, carry, chunks, compare, devices, dims, equalise, format, inputs,",
        ),
        ({"target": 3}, "option 'target' is not a string", "give a string, not 3"),
        ({"threads": True}, "option 'threads' is not an integer or null", "give an integer, not True"),
        ({"threads": "4"}, "option 'threads' is not an integer or null", "give an integer, not '4'"),
        ({"threads": 2.0}, "option 'threads' is not an integer or null", "give an integer, not 2.0"),
        ({"threads": 0}, "threads is 0", "use 1 to 256, or leave it out"),
        ({"threads": 257}, "threads is 257", "use 1 to 256, or leave it out"),
        ({"tolerance": 0}, "tolerance is 0", "use more than 0 and at most 1, such as 1e-05, or leave it out"),
        ({"tolerance": 1.5}, "tolerance is 1.5", "use more than 0 and at most 1"),
        ({"tolerance": float("nan")}, "tolerance is nan", "use more than 0 and at most 1"),
        ({"tolerance": "small"}, "option 'tolerance' is not a number or null", "such as 1e-05, not 'small'"),
        ({"tuning_budget_s": True}, "option 'tuning_budget_s' is not a number", "give a number, not True"),
        ({"tuning_budget_s": None}, "option 'tuning_budget_s' is not a number", "give a number, not None"),
        ({"tuning_budget_s": -1}, "tuning_budget_s is -1", "use 0 to 86400"),
        ({"tuning_budget_s": 1e9}, "tuning_budget_s is 1000000000.0", "use 0 to 86400"),
        ({"tuning_trials": -1}, "tuning_trials is -1", "use 0 or more, or leave it out"),
        ({"seed": -1}, "seed is -1", "use 0 or more"),
        ({"seed": 1.5}, "option 'seed' is not an integer", "give an integer, not 1.5"),
        ({"inputs": 3}, "option 'inputs' is not an object", 'such as {"x": [1, 3, 224, 224]}, not 3'),
        ({"inputs": {"x": 4}}, "inputs['x'] is not an input spec", "give a shape like [1, 3, 224, 224]"),
        ({"inputs": {"x": {"form": 4}}}, "inputs['x'] is not an input spec", "give a shape like [1, 3, 224, 224]"),
        ({"inputs": {"x": {"shape": 4}}}, "inputs['x'].shape is not a list", "give a list, not 4"),
        ({"inputs": {"x": [1, "2"]}}, "inputs['x'].shape[1] is not an integer", "give an integer, not '2'"),
        ({"inputs": {"x": [1, -2]}}, "inputs['x'].shape[1] is -2", "use 0 or more"),
        *(
            (
                {"inputs": {"x": {"value": value}}},
                "inputs['x'].value is not a number, a boolean or lists of them, all of one length",
                f"not {value!r}"[:40],
            )
            for value in ("a", [1, "a"], [[1, 2], [3]], [1, [2]], [None], [[[[[[[[[1]]]]]]]]])
        ),
        ({"dims": {"batch": True}}, "dims['batch'] is not an integer", "give an integer, not True"),
        ({"dims": {"batch": -1}}, "dims['batch'] is -1", "use 0 or more"),
        ({"dims": {"batch": {"min": -1, "max": 2}}}, "dims['batch'].min is -1", "use 0 or more"),
        ({"dims": {"batch": {"min": 1.5, "max": 2}}}, "dims['batch'].min is not an integer", "give an integer"),
        *(
            (
                {"dims": {"batch": given}},
                f"dims['batch'] is {given}: a range has min, max and perhaps opt",
                'such as {"min": 1, "opt": 4, "max": 16}',
            )
            for given in ({}, {"max": 4}, {"min": 1, "max": 4, "step": 2})
        ),
        *(
            ({"dims": {"batch": given}}, f"dims['batch'] is {given}: min <= opt <= max does not hold", "such as")
            for given in ({"min": 4, "max": 2}, {"min": 2, "opt": 1, "max": 4}, {"min": 2, "opt": 5, "max": 4})
        ),
        (
            {"dims": {"batch": {"min": 0, "max": 0}}},
            "dims['batch'] is {'min': 0, 'max': 0}: nothing is in a range whose max is 0",
            "use a max of 1 or more",
        ),
        (
            {**PIPELINE, "carry": {"next": "h", "cell": "c"}, "inputs": {"h": [4, 8], "c": {"value": 0.5}}},
            "carry makes input 'c' a state, and inputs gives it a value, which makes it a constant",
            "leave that input out of one of the two",
        ),
        ({"chunks": 8192}, "option 'chunks' is not an object", 'such as {"sound": 8192}, not 8192'),
        ({"chunks": {"sound": 0}}, "chunks['sound'] is 0", "use 1 or more"),
        ({"chunks": {"sound": 2.5}}, "chunks['sound'] is not an integer", "give an integer, not 2.5"),
        ({"chunks": {"a": 1, "b": 2}}, "chunks names 2 outputs, and one of them can come in pieces", "name one"),
        *(
            (
                {"chunks": {"a": 1}, **other},
                f"option chunks applies to one profile of CPUs, and the job is for {target}",
                "use a target such as cpu",
            )
            for other, target in (
                ({"target": "cuda:sm_90"}, "cuda:sm_90"),
                ({"target": "cpu:x86-64"}, "cpu:x86-64"),
                (PIPELINE, "cpu:0, cpu:1"),
            )
        ),
        *(
            ({"chunks": {"a": 1}, **other}, f"options chunks and {name} exclude each other", "leave one of the two out")
            for other, name in (
                ({"carry": {"next": "h"}}, "carry"),
                ({"dims": {"batch": [1, 2]}}, "several bindings"),
                ({"precision": "int8"}, "precision int8"),
            )
        ),
        ({"last_only": "logits"}, "option 'last_only' is not a list", "give a list"),
        ({"carry": "all"}, "carry is 'all': no such word is known", 'give "auto", or pairs such as'),
        ({"carry": ["h"]}, "option 'carry' is not an object", 'such as {"next": "h"}'),
        ({"carry": {"next": 1}}, "carry['next'] is not a string", "give a string"),
        ({**PIPELINE, "carry": "auto"}, 'carry "auto" is for one CPU', "name the states"),
        (
            {"target": "cuda:sm_90", "carry": "auto"},
            "option carry applies to one CPU, and to pipelines on several devices",
            "use a cpu target",
        ),
    ],
    ids=repr,
)
def test_what_is_wrong_is_named_with_its_fix(asked: Any, said: str, fix: str) -> None:
    error = refused(asked)
    assert error.message == said
    assert fix in error.fix


def test_states_may_be_left_to_the_names_of_the_model() -> None:
    auto, named = CompileOptions(carry="auto"), CompileOptions(carry={"next": "h"})
    assert (auto.to_json()["carry"], auto.named_states) == ("auto", {})
    assert (named.to_json()["carry"], named.named_states) == ({"next": "h"}, {"next": "h"})
    assert CompileOptions.from_json(auto.to_json()) == auto
    assert len({one.cache_key("model") for one in (auto, named, CompileOptions())}) == 3


def test_all_that_is_wrong_is_told_at_once_and_not_without_end() -> None:
    error = refused({"threads": 0, "seed": "a", "colour": 1})
    assert [one.reason for one in error.refusals] == [
        "threads is 0",
        "option 'seed' is not an integer",
        "unknown option 'colour'",
    ]
    assert all(one.reason in error.message and one.fix in error.fix for one in error.refusals)
    many = refused({"dims": {f"d{at}": -1 for at in range(1000)}})
    assert 1 < len(many.refusals) < 20


def test_lists_of_numbers_are_a_value_and_say_the_shape() -> None:
    spec = CompileOptions.from_json({"inputs": {"x": {"value": [[1, 2.5, True], [4, 5, 6]]}}}).inputs["x"]
    assert (spec.shape, spec.value) == ((2, 3), ((1, 2.5, True), (4, 5, 6)))
    assert CompileOptions.from_json({"inputs": {"x": {"value": []}}}).inputs["x"].shape == (0,)


@pytest.mark.parametrize("value", [16000, 0.5, True, None])
def test_the_value_of_an_input_keeps_its_type(value: float | bool | None) -> None:
    found = CompileOptions.from_json({"inputs": {"x": {"value": value}}}).inputs["x"].value
    assert (type(found), found) == (type(value), value)


@pytest.mark.parametrize(
    ("asked", "said", "fix"),
    [
        ({"seconds": 0}, "seconds is 0", "use more than 0 and at most 600"),
        ({"seconds": 601}, "seconds is 601", "use more than 0 and at most 600"),
        ({"threads": 0}, "threads is 0", "use 1 to 256, or leave it out"),
        ({"seed": -1}, "seed is -1", "use 0 or more"),
        ({"profile": 1}, "option 'profile' is not a boolean", "give a boolean, not 1"),
        ({"dims": {"batch": -1}}, "dims['batch'] is -1", "use 0 or more"),
        ({"second": 1}, "unknown option 'second'", "known options: binding, dims, profile, seconds, seed, threads"),
    ],
)
def test_benchmarks_refuse_likewise(asked: dict[str, Any], said: str, fix: str) -> None:
    with pytest.raises(OptionsError) as caught:
        BenchmarkOptions.from_json(asked)
    assert (caught.value.message, caught.value.fix) == (said, fix)


def test_benchmark_options_are_read_back_equal() -> None:
    asked = {"seconds": 2, "threads": 3, "profile": False, "seed": 5, "dims": {"length": 9, "batch": 2}}
    found = BenchmarkOptions.from_json(asked)
    assert BenchmarkOptions.from_json(found.to_json()) == found
    assert BenchmarkOptions.from_json({}) == BenchmarkOptions()


@pytest.mark.parametrize("target", ["cpu", "cpu:x86-64-v3", "cuda", "cuda:sm_90"])
def test_each_kind_of_target_has_its_precisions_and_no_others(target: str) -> None:
    kind = target.partition(":")[0]
    assert "fp32" in kinds.of(target).precisions
    for precision in kinds.precisions():
        asked = {"target": target, "precision": precision}
        if precision in kinds.of(target).precisions:
            options = CompileOptions.from_json(asked)
            assert (options.kind, CompileOptions.from_json(options.to_json())) == (kind, options)
        else:
            with pytest.raises(OptionsError, match=r"applies to (cpu|cuda) targets only") as caught:
                CompileOptions.from_json(asked)
            able = {"auto": "cpu"}.get(precision, "cuda")
            assert caught.value.fix == f"use one of {', '.join(kinds.of(target).precisions)}, or a target {able}"


def test_a_target_whose_models_are_compiled_whole_has_a_profile_and_its_own_precision() -> None:
    options = CompileOptions(target="npu:ethos-u55-128")
    assert options.precision == "int8"
    assert CompileOptions.from_json(options.to_json()) == options
    with pytest.raises(OptionsError, match="target 'npu' is unknown") as caught:
        CompileOptions(target="npu")
    assert caught.value.fix.startswith("use one of 'cpu', 'cuda', 'cpu:<profile>'")
    with pytest.raises(OptionsError, match="precision 'bf16' applies to cpu and cuda targets only"):
        CompileOptions(target="npu:ethos-u55-128", precision="bf16")


@pytest.mark.parametrize(
    ("asked", "said", "fix"),
    [
        ({"precision": "int4"}, "precision 'int4' is unknown", "use one of fp32, bf16"),
        ({"target": "cuda", "precision": "fp64"}, "precision 'fp64' is unknown", "use one of fp32, tf32, fp16, bf16"),
        ({"target": "gpu"}, "target 'gpu' is unknown", "'cuda:<profile>'"),
        ({"target": "cuda:SM_90"}, "target 'cuda:SM_90' is unknown", "'cuda:<profile>'"),
        ({"target": "cuda:sm_90", "threads": 2}, "a CUDA target has as many streams", "leave threads out"),
        (
            {"target": "cuda", "scheduler": "aligned"},
            "'aligned' applies to cpu and wasm targets only",
            "auto, sequential, early_start, stages, persistent, or a target cpu or wasm",
        ),
        (
            {"target": "cuda:sm_80", "scheduler": "aligned"},
            "'aligned' applies to cpu and wasm targets only",
            "auto, sequential",
        ),
        ({"format": "tosa"}, "option format applies to NPU targets only", "leave format out"),
        ({"target": "npu:ethos-u65-256", "format": "onnx"}, "format 'onnx' is unknown", "use one of tflite, tosa"),
        ({"sparsity": "on"}, "sparsity 'on' is unknown", "use one of auto, off"),
        ({"weights": "big"}, "weights 'big' is unknown", "use one of small, ready"),
        ({"scheduler": "random"}, "scheduler 'random' is unknown", "use one of auto, sequential, aligned,"),
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


def test_peers_are_compared_that_are_known() -> None:
    assert CompileOptions().compare is None
    assert CompileOptions.from_json({"compare": []}).compare == ()
    asked = CompileOptions.from_json({"compare": ["openvino", "onnxruntime"]})
    assert CompileOptions.from_json(json.loads(json.dumps(asked.to_json()))) == asked
    with pytest.raises(OptionsError, match="compare names 'torch', which is unknown") as refused:
        CompileOptions.from_json({"compare": ["onnxruntime", "torch"]})
    assert refused.value.fix == "use onnxruntime, openvino, or leave it out"
    with pytest.raises(OptionsError, match="compare"):
        CompileOptions.from_json({"compare": "onnxruntime"})


def test_samples_and_their_order_are_part_of_the_cache_key() -> None:
    options = CompileOptions()
    keys = [options.cache_key("model", samples) for samples in ((), ("a",), ("b",), ("a", "b"), ("b", "a"))]
    assert len({*keys}) == 5
    assert keys[0] == options.cache_key("model")


RANGE = {"min": 1, "opt": 4, "max": 16}


def programs(dims: Any) -> list[tuple[dict[str, int], dict[str, DimRange]]]:
    """Of each program the sizes that it is made for, and its ranges."""
    return [(dict(one.binding), dict(one.open_sizes)) for one in CompileOptions.from_json({"dims": dims}).bindings]


def test_a_range_has_a_program_at_its_opt_and_one_for_all_its_sizes() -> None:
    whole = DimRange(1, 4, 16)
    assert programs({"batch": RANGE}) == [({"batch": 4}, {}), ({"batch": 16}, {"batch": whole})]
    assert programs({"batch": {"min": 1, "max": 16}})[0] == ({"batch": 16}, {})
    assert programs({"batch": [1, 4, RANGE]}) == [
        ({"batch": 1}, {}),
        ({"batch": 4}, {}),
        ({"batch": 16}, {"batch": whole}),
    ]
    assert programs({"batch": RANGE, "length": [8, 9]}) == [
        ({"batch": 4, "length": 8}, {}),
        ({"batch": 16, "length": 8}, {"batch": whole}),
        ({"batch": 4, "length": 9}, {}),
        ({"batch": 16, "length": 9}, {"batch": whole}),
    ]
    assert programs([{"batch": RANGE}, {"batch": 4}]) == programs({"batch": RANGE})


def test_a_range_of_one_size_is_that_size() -> None:
    one = CompileOptions.from_json({"dims": {"batch": {"min": 3, "max": 3}}})
    assert one == CompileOptions(dims={"batch": 3})
    assert one.bindings == (one,)


def test_ranges_are_read_back_equal_and_are_compilations_of_their_own() -> None:
    found = CompileOptions.from_json({"dims": {"length": {"min": 0, "max": 9}, "batch": [2, RANGE]}, "seed": 3})
    assert found.to_json()["dims"] == [
        {"batch": 2, "length": {"min": 0, "opt": 9, "max": 9}},
        {"batch": RANGE, "length": {"min": 0, "opt": 9, "max": 9}},
    ]
    again = CompileOptions.from_json(json.loads(json.dumps(found.to_json())))
    assert again == found
    assert again.cache_key("model") == found.cache_key("model")
    assert dataclasses.replace(found, seed=3) == found
    asked: list[Any] = [4, 16, RANGE, {**RANGE, "opt": 5}, {**RANGE, "min": 2}, {**RANGE, "max": 17}]
    keys = {CompileOptions.from_json({"dims": {"batch": one}}).cache_key("model") for one in asked}
    assert len(keys) == len(asked)


def test_both_programs_of_a_range_count_as_bindings_of_the_artifact() -> None:
    ranges = [{"min": 0, "max": most} for most in range(1, 17)]
    assert len(CompileOptions.from_json({"dims": {"batch": ranges}}).bindings) == 32
    assert "an artifact holds 32 at most" in refused({"dims": {"batch": [*ranges, 99]}}).message

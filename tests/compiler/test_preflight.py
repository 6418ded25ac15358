from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import TensorProto, helper, numpy_helper

from bench.zoo import ZOO, build
from compiler.contract import CompileOptions
from compiler.contract.preflight import ModelAnswer
from compiler.devices.cpu.target import this_machine
from compiler.errors import InternalError, UnsupportedModel
from compiler.frontend import load
from compiler.ops import OPERATORS
from compiler.ops.operator import Unsupported
from compiler.preflight import preflight
from tests.compiler.networks import Network
from tests.compiler.pipelines import boosting
from tests.compiling import compile_file


def looked_at(model: onnx.ModelProto, tmp_path: Path, options: dict[str, Any] | None = None) -> dict[str, Any]:
    """The answer, after a passage through JSON."""
    path = tmp_path / "model.onnx"
    path.write_bytes(model.SerializeToString())
    answer = preflight(path, CompileOptions.from_json(options or {}))
    assert ModelAnswer.model_validate(answer, strict=True).model_dump() == answer, "nothing more, nothing less"
    assert json.loads(json.dumps(answer, allow_nan=False)) == answer
    return answer


def model_of(
    nodes: list[onnx.NodeProto],
    inputs: dict[str, list[Any] | None],
    outputs: list[str],
    constants: dict[str, np.ndarray] | None = None,
    dtype: int = TensorProto.FLOAT,
    domains: tuple[str, ...] = (),
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(name, dtype, shape) for name, shape in inputs.items()],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
        initializer=[numpy_helper.from_array(array, name) for name, array in (constants or {}).items()],
    )
    opsets = [helper.make_opsetid("", 21), *(helper.make_opsetid(domain, 1) for domain in domains)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


SMALL = ("tiny_cnn", "tiny_detector", "tiny_inception", "tiny_lstm", "tiny_mobile", "tiny_transformer", "squeezenet1_1")


@pytest.mark.parametrize("entry", [entry for entry in ZOO if entry.name in SMALL], ids=lambda entry: entry.name)
def test_a_network_that_compiles_is_ok_and_its_figures_are_those_of_the_model(entry: Any, tmp_path: Path) -> None:
    model = build(entry.name)
    answer = looked_at(model, tmp_path)
    assert (answer["ok"], answer["problem"], answer["refusals"]) == (True, None, [])
    assert answer["corrected"] is None
    assert answer["target"] == {"name": this_machine().name, "reason": None}
    assert {one["verdict"] for one in answer["operators"]} == {"supported"}
    counts = {one["operator"]: one["count"] for one in answer["operators"]}
    ops = [node.op_type for node in model.graph.node]
    assert counts == {op: ops.count(op) for op in set(ops)}
    assert answer["nodes"] == len(ops)
    assert all(one["domain"] == "ai.onnx" and 0 < len(one["nodes"]) <= 5 for one in answer["operators"])
    # A transposed convolution is defined as a sum over taps, some of which hit nothing; bench.zoo counts those that
    # hit.
    assert answer["gflop"]["value"] == pytest.approx(entry.gflop, rel=0.02)
    arrays = [numpy_helper.to_array(tensor) for tensor in model.graph.initializer]
    assert answer["parameters"] == sum(array.size for array in arrays)
    assert answer["weight_bytes"] == sum(array.nbytes for array in arrays)
    graph = load(tmp_path / "model.onnx", CompileOptions(), OPERATORS).graph
    largest = max(value.type.bytes for value in graph.values.values() if value.id not in graph.constants)
    everything = sum(value.type.bytes for value in graph.values.values() if value.id not in graph.constants)
    assert largest <= answer["activation_bytes"] <= everything
    assert answer["memory_bytes"]["run"] > answer["weight_bytes"] + answer["activation_bytes"]
    assert answer["memory_bytes"]["compile"] > answer["memory_bytes"]["run"]
    assert [one["name"] for one in answer["inputs"]] == [value.name for value in model.graph.input]
    assert all(one["bound"] for one in answer["inputs"])
    assert [one["name"] for one in answer["outputs"]] == [value.name for value in model.graph.output]


def test_the_peak_of_a_chain_is_its_two_largest_neighbours(tmp_path: Path) -> None:
    net = Network()
    x = net.node("Relu", [net.input(1, 8, 4, 4)], (1, 8, 4, 4))
    x = net.node("Concat", [x, x], (1, 16, 4, 4), axis=1)
    net.node("Neg", [x], (1, 16, 4, 4))
    x = net.node("GlobalAveragePool", [x], (1, 16, 1, 1))
    answer = looked_at(net.model([x]), tmp_path)
    assert answer["activation_bytes"] == 4 * (8 * 16 + 16 * 16)
    assert answer["nodes"] == 3  # nobody reads the Neg
    assert answer["gflop"]["value"] == 0


def test_every_refused_operator_is_told_at_once_with_its_nodes_reasons_and_fixes(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["a"], name="first"),
        helper.make_node("StringNormalizer", ["a"], ["b"], name="odd"),
        helper.make_node("Mystery", ["x"], ["c"], name="alien", domain="com.acme"),
        helper.make_node("Add", ["b", "c"], ["d"], name="behind"),
        helper.make_node("Sequel", ["d"], ["e"], name="alien behind", domain="com.acme"),
        helper.make_node("Relu", ["x"], ["f"], name="last"),
        helper.make_node("Sum", ["e", "f"], ["y"], name="end"),
    ]
    answer = looked_at(model_of(nodes, {"x": [1, 8]}, ["y"], domains=("com.acme",)), tmp_path)
    assert not answer["ok"]
    assert answer["problem"]["code"] == "unsupported_model"
    found = {one["operator"]: one for one in answer["operators"]}
    verdicts = {name: (one["verdict"], one["count"], one["unchecked"]) for name, one in found.items()}
    assert verdicts == {
        "Relu": ("supported", 2, 0),
        "StringNormalizer": ("refused", 1, 0),
        "com.acme::Mystery": ("refused", 1, 0),
        "com.acme::Sequel": ("refused", 1, 1),
        "Add": ("supported", 1, 1),
        "Sum": ("supported", 1, 1),
    }
    assert found["com.acme::Mystery"]["domain"] == "com.acme"
    assert found["com.acme::Mystery"]["nodes"] == ["alien"]
    for one in found.values():
        assert bool(one["reasons"]) == bool(one["fixes"]) == (one["verdict"] == "refused")
    assert {refusal["node"] for refusal in answer["refusals"]} == {"odd", "alien"}
    assert answer["activation_bytes"] is answer["gflop"]["value"] is answer["memory_bytes"]["compile"] is None
    assert answer["outputs"] == [{"name": "y", "dtype": None, "shape": None}]


def test_a_refusal_inside_a_function_counts_for_the_call_of_it(tmp_path: Path) -> None:
    inner = [helper.make_node("StringNormalizer", ["p"], ["q"], name="inside")]
    opsets = [helper.make_opsetid("", 21)]
    function = helper.make_function("mine", "Both", ["p"], ["q"], inner, opsets)
    nodes = [helper.make_node("Both", ["x"], ["y"], name="call", domain="mine")]
    model = model_of(nodes, {"x": [1, 8]}, ["y"], domains=("mine",))
    model.functions.append(function)
    answer = looked_at(model, tmp_path)
    assert [(one["operator"], one["verdict"], one["nodes"]) for one in answer["operators"]] == [
        ("mine::Both", "refused", ["call"])
    ]
    assert [refusal["node"] for refusal in answer["refusals"]] == ["call/inside"]


def test_open_dimensions_are_told_and_a_correction_is_offered_under_which_the_model_is_judged(tmp_path: Path) -> None:
    weights = {"w": np.zeros((4, 3, 3, 3), np.float32)}
    nodes = [helper.make_node("Conv", ["image", "w"], ["y"], name="conv")]
    model = model_of(nodes, {"image": ["batch", 3, "height", "width"]}, ["y"], weights)
    answer = looked_at(model, tmp_path)
    assert answer["ok"]
    assert "have ranges: 'height' 4..640, tuned for 224, 'width' 4..640" in answer["notices"][0]
    assert answer["inputs"] == [
        {
            "name": "image",
            "dtype": "f32",
            "shape": ["batch", 3, "height", "width"],
            "taken": [1, 3, 224, 224],
            "bound": False,
            "range": None,
            "why": "",
        }
    ]
    each = {"min": 4, "opt": 224, "max": 640}
    assert answer["corrected"]["dims"] == {"height": each, "width": each}
    assert answer["operators"][0]["verdict"] == "supported"
    assert answer["outputs"][0]["shape"] == [1, 4, None, None]
    assert answer["gflop"]["value"] > 0
    again = looked_at(model, tmp_path, answer["corrected"])
    assert again["ok"]
    assert again["corrected"] is None
    assert [notice for notice in again["notices"] if "batch" in notice]


def test_a_model_whose_inputs_cannot_be_bound_has_its_operators_looked_up_by_name(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["a"], name="plain"),
        helper.make_node("Mystery", ["a"], ["y"], name="alien", domain="com.acme"),
    ]
    model = model_of(nodes, {"x": [1, 8]}, ["y"], dtype=TensorProto.COMPLEX64, domains=("com.acme",))
    answer = looked_at(model, tmp_path)
    assert answer["problem"]["code"] == "unsupported_model"
    found = {one["operator"]: (one["verdict"], one["unchecked"]) for one in answer["operators"]}
    assert found == {"Relu": ("supported", 1), "com.acme::Mystery": ("refused", 1)}


def test_an_operator_whose_definition_refuses_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def define(*given: Any) -> Any:
        raise Unsupported("it is odd", "make it even")

    monkeypatch.setitem(OPERATORS, "Relu", replace(OPERATORS["Relu"], define=define))
    net = Network()
    x = net.node("Neg", [net.node("Relu", [net.input(1, 8)], (1, 8))], (1, 8))
    answer = looked_at(net.model([x]), tmp_path)
    assert answer["problem"]["code"] == "unsupported_model"
    assert [(one["operator"], one["verdict"], one["fixes"]) for one in answer["operators"]] == [
        ("Neg", "supported", []),
        ("Relu", "refused", ["make it even"]),
    ]


def test_an_unknown_target_is_answered_with_the_nearest_one(tmp_path: Path) -> None:
    net = Network()
    model = net.model([net.node("Relu", [net.input(1, 8)], (1, 8))])
    answer = looked_at(model, tmp_path, {"target": "cpu:x86-64-v33"})
    assert not answer["ok"]
    assert answer["problem"]["code"] == "target_unavailable"
    assert answer["target"]["name"] is None
    assert "x86-64-v33" in answer["target"]["reason"]
    assert answer["corrected"]["target"] == "cpu:x86-64-v3"
    assert answer["operators"][0]["verdict"] == "supported"
    assert looked_at(model, tmp_path, answer["corrected"])["ok"]


@pytest.mark.parametrize(
    ("target", "name", "nearest"),
    [
        ("cuda", "cuda", None),
        ("cuda:sm_90", "cuda:sm_90", None),
        ("cuda:sm_91", None, "cuda:sm_90"),
        ("cuda:hopper", None, "cuda"),
    ],
)
def test_a_cuda_target_is_known_without_a_gpu(
    target: str, name: str | None, nearest: str | None, tmp_path: Path
) -> None:
    net = Network()
    model = net.model([net.node("Relu", [net.input(1, 8)], (1, 8))])
    answer = looked_at(model, tmp_path, {"target": target, "precision": "fp16"})
    assert (answer["ok"], answer["target"]["name"]) == (name is not None, name)
    assert (answer["corrected"] or {}).get("target") == nearest


@pytest.mark.parametrize(
    ("content", "code"), [(b"", "malformed_model"), (b"no model at all", "malformed_model"), (None, "malformed_model")]
)
def test_what_is_no_model_gets_an_answer_too(content: bytes | None, code: str, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "model.onnx").write_bytes(content)
    answer = preflight(tmp_path / "model.onnx", CompileOptions())
    assert not answer["ok"]
    assert answer["problem"]["code"] == code
    assert answer["problem"]["fix"]
    assert answer["operators"] == []
    net = Network()
    whole = looked_at(net.model([net.node("Relu", [net.input(1, 8)], (1, 8))]), tmp_path)
    assert set(answer) == set(whole)


def test_a_fault_of_ours_is_an_answer_that_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: Any) -> Any:
        raise RuntimeError("seeded")

    monkeypatch.setattr("compiler.preflight.survey", broken)
    answer = preflight(tmp_path / "model.onnx", CompileOptions())
    assert answer["problem"]["code"] == InternalError.code
    assert "seeded" in answer["problem"]["message"]


def test_a_file_cut_anywhere_gets_an_answer(tmp_path: Path) -> None:
    data = build("tiny_transformer").SerializeToString()
    path = tmp_path / "model.onnx"
    for cut in range(0, len(data), len(data) // 40):
        path.write_bytes(data[:cut])
        assert preflight(path, CompileOptions())["ok"] is False


def test_external_data_is_taken_from_where_the_caller_says_and_from_nowhere_else(tmp_path: Path) -> None:
    net = Network()
    x = net.node("Gemm", [net.input(2, 64), net.weight(64, 32)], (2, 32))
    (tmp_path / "apart").mkdir()
    (tmp_path / "w").mkdir()
    onnx.save(
        net.model([x]), tmp_path / "model.onnx", save_as_external_data=True, location="w/data.bin", size_threshold=0
    )
    (tmp_path / "w" / "data.bin").rename(tmp_path / "apart" / "blob")
    missing = preflight(tmp_path / "model.onnx", CompileOptions())
    assert missing["problem"]["code"] == "malformed_model"
    given = {"w/data.bin": tmp_path / "apart" / "blob"}
    found = preflight(tmp_path / "model.onnx", CompileOptions(), given)
    assert found["ok"]
    assert found["weight_bytes"] == 4 * 64 * 32
    other = preflight(tmp_path / "model.onnx", CompileOptions(), {"other.bin": tmp_path / "apart" / "blob"})
    assert "none of the files that came with the model (other.bin)" in other["problem"]["message"]


def test_ranges_of_inputs_are_told_with_the_nodes_that_demand_them(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["rows"], name="lookup"),
        helper.make_node("Log", ["x"], ["logs"], name="log"),
    ]
    model = model_of(nodes, {"ids": [5], "x": [2]}, ["rows", "logs"], {"table": np.zeros((9, 4), np.float32)})
    model.graph.input[0].type.tensor_type.elem_type = TensorProto.INT64
    answer = looked_at(model, tmp_path)
    assert {one["name"]: (one["range"], one["why"]) for one in answer["inputs"]} == {
        "ids": ([0, 8], "Gather 'lookup' reads it as a position among 9"),
        "x": ([0, None], "Log 'log' reads it as a number that is not below zero"),
    }
    assert answer["samples"] == []


def test_samples_are_asked_for_where_positions_are_computed(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["product"], name="product"),
        helper.make_node("Cast", ["product"], ["index"], name="whole", to=TensorProto.INT64),
        helper.make_node("Gather", ["table", "index"], ["y"], name="lookup"),
    ]
    weights = {"table": np.zeros((9, 4), np.float32), "w": np.ones((3, 3), np.float32)}
    answer = looked_at(model_of(nodes, {"x": [2, 3]}, ["y"], weights), tmp_path)
    assert answer["ok"]
    (wanted,) = answer["samples"]
    assert (wanted["node"], wanted["operator"], wanted["inputs"]) == ("lookup", "Gather", ["x"])
    assert "computed from 'x'" in wanted["reason"]
    assert "samples" in wanted["fix"]


def recurrent(*more: onnx.NodeProto) -> onnx.ModelProto:
    """next = x + h, and y: the sums of its rows; `more` is called beside them."""
    nodes = [
        helper.make_node("Add", ["x", "h"], ["next"], name="sum"),
        helper.make_node("ReduceSum", ["next", "last"], ["y"], name="rows", keepdims=0),
        *more,
    ]
    made = [name for node in more for name in node.output]
    constants = {"last": np.array([-1], np.int64)}
    return model_of(
        nodes, {"x": [2, 3], "h": [2, 3]}, ["next", "y", *made], constants, domains=("com.acme",) if more else ()
    )


PIPELINE = {"devices": ["cpu:0", "cpu:1"], "objective": "throughput"}
ON_AN_NPU = {**PIPELINE, "devices": ["cpu", "npu:ethos-u65-256"]}


@pytest.mark.parametrize("asked", [PIPELINE, ON_AN_NPU, {}], ids=["cores", "npu", "one CPU"])
def test_states_that_are_carried_are_told(asked: dict[str, Any], tmp_path: Path) -> None:
    answer = looked_at(recurrent(), tmp_path, {**asked, "carry": {"next": "h"}})
    assert answer["ok"], answer["problem"]
    assert answer["carried"] == [{"output": "next", "input": "h", "dtype": "f32", "shape": [2, 3]}]
    assert answer["corrected"] is None
    assert looked_at(recurrent(), tmp_path, asked)["carried"] == []


def test_states_that_names_say_are_suggested_and_carried_where_that_is_asked(tmp_path: Path) -> None:
    nodes = [helper.make_node("Add", ["x", "h"], ["hn"]), helper.make_node("Add", ["x", "c"], ["cn"])]
    model = model_of(nodes, {"x": [2, 3], "h": [2, 3], "c": ["n", 3]}, ["hn", "cn"])
    pairs = [{"output": f"{name}n", "input": name, "dtype": "f32", "shape": [2, 3]} for name in "ch"]
    dims = {"dims": {"n": 2}}
    answer = looked_at(model, tmp_path, dims)
    assert (answer["ok"], answer["carried"], answer["suggested_states"]) == (True, [], pairs)
    answer = looked_at(model, tmp_path, {**dims, "carry": {"hn": "h"}})
    assert (answer["carried"], answer["suggested_states"]) == (pairs[1:], pairs[:1])
    answer = looked_at(model, tmp_path, {**dims, "carry": "auto"})
    assert (answer["ok"], answer["carried"], answer["suggested_states"]) == (True, pairs, [])
    assert answer["corrected"] is None
    answer = looked_at(recurrent(), tmp_path, {"carry": "auto"})
    assert not answer["ok"]
    assert "no names of outputs say which inputs" in answer["problem"]["message"]
    assert answer["corrected"]["carry"] == {}
    assert looked_at(recurrent(), tmp_path, answer["corrected"])["ok"]


@pytest.mark.parametrize("asked", [PIPELINE, ON_AN_NPU, {}], ids=["cores", "npu", "one CPU"])
@pytest.mark.parametrize(
    ("carry", "said", "fix", "corrected"),
    [
        ({"nxt": "h"}, "carry names 'nxt', which is no output", "'next', 'y'", {"next": "h"}),
        ({"next": "hh"}, "carry names 'hh', which is no input", "'h', 'x'", {"next": "h"}),
        ({"h": "next"}, "carry names 'h', which is no output", "name the output first", {"next": "h"}),
        ({"y": "h"}, "differ, f32[2] and f32[2, 3]", "outputs like this input are 'next'", {}),
    ],
)
def test_states_that_cannot_be_carried_are_refused_before_a_job_is_queued(
    asked: dict[str, Any], carry: dict[str, str], said: str, fix: str, corrected: dict[str, str], tmp_path: Path
) -> None:
    answer = looked_at(recurrent(), tmp_path, {**asked, "carry": carry})
    assert (answer["ok"], answer["carried"]) == (False, [])
    assert answer["problem"]["code"] == "invalid_options"
    assert said in answer["problem"]["message"]
    assert fix in answer["problem"]["fix"]
    assert [one["reason"] for one in answer["refusals"]] == [answer["problem"]["message"]]
    assert answer["corrected"]["carry"] == corrected
    assert looked_at(recurrent(), tmp_path, answer["corrected"])["ok"]


def test_names_of_states_are_checked_beside_refused_nodes(tmp_path: Path) -> None:
    """Of which nobody knows what they make, and so whether it fits."""
    model = recurrent(helper.make_node("Mystery", ["x"], ["z"], name="alien", domain="com.acme"))
    answer = looked_at(model, tmp_path, {**PIPELINE, "carry": {"nothing": "h"}})
    assert answer["problem"]["code"] == "unsupported_model"
    assert any("carry names 'nothing', which is no output" in one["reason"] for one in answer["refusals"])
    fixed = {**PIPELINE, "carry": {"next": "xx"}, "inputs": {"x": {"value": 0.5}}}
    answer = looked_at(model, tmp_path, fixed)
    assert answer["problem"]["code"] == "unsupported_model"
    assert answer["corrected"]["carry"] == {}, "x, which is near, is a constant"
    answer = looked_at(model, tmp_path, {**PIPELINE, "carry": {"z": "h"}})
    assert [one["node"] for one in answer["refusals"]] == ["alien"]
    assert answer["carried"] == [{"output": "z", "input": "h", "dtype": "f32", "shape": [2, 3]}]


def test_an_accelerator_carries_no_output_that_is_an_input_as_it_is(tmp_path: Path) -> None:
    """Behind what rounds it to bytes and back too; cores copy it."""
    rounded = [
        helper.make_node("QuantizeLinear", ["h", "scale", "zero"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["same"]),
        helper.make_node("Add", ["x", "same"], ["next"]),
    ]
    constants: dict[str, np.ndarray] = {"scale": np.array(0.5, np.float32), "zero": np.array(0, np.int8)}
    model = model_of(rounded, {"x": [2, 3], "h": [2, 3]}, ["next", "same"], constants)
    assert looked_at(model, tmp_path, {**PIPELINE, "carry": {"same": "h"}})["ok"]
    answer = looked_at(model, tmp_path, {**ON_AN_NPU, "carry": {"same": "h"}})
    assert "carry names output 'same', which is an input as it is" in answer["problem"]["message"]


def test_wrong_options_are_told_beside_refused_nodes(tmp_path: Path) -> None:
    nodes = [helper.make_node("Mystery", ["image"], ["y"], name="alien", domain="com.acme")]
    model = model_of(nodes, {"image": ["batch", 3, "height", 8]}, ["y"], domains=("com.acme",))
    answer = looked_at(model, tmp_path, {"target": "cpu:nothing", "without": ["no_such_rule"]})
    assert answer["problem"]["code"] == "unsupported_model"
    reported = " ".join(f"{one['node']} {one['reason']}" for one in answer["refusals"])
    for part in ("alien", "cpu:nothing", "no_such_rule"):
        assert part in reported
    assert all(one["fix"] for one in answer["refusals"])
    assert answer["corrected"]["dims"] == {"height": 8}


INDIVISIBLE = {
    "sizes": (
        "data say while it runs how large a tensor is",
        ("which", "NonZero"),
        "float[2, 3] x",
        "y = Relu(x) [which] z = NonZero(y)",
    ),
    "loop": (
        "how often it runs is decided while it runs",
        ("turns", "Loop"),
        "float[2] x, float limit",
        """[turns] z = Loop<body = b (int64 i, bool c, float[2] v) => (bool again, float[2] w) {
            w = Add(v, x) s = ReduceSum<keepdims: int = 0>(w) again = Less(s, limit)
        }>("", "", x)""",
    ),
    "branch": (
        "which branch runs is decided while it runs",
        ("either", "If"),
        "float[400, 400] x, bool far",
        """[either] z = If<
            then_branch = t () => (float[400, 400] p) { e = Exp(x) p = Mul(e, x) },
            else_branch = f () => (float[400, 400] q) { h = Tanh(x) q = MatMul(h, x) }
        >(far)""",
    ),
    "random": (
        "it draws random numbers",
        ("noise", "RandomNormalLike"),
        "float[2, 3] x",
        "[noise] n = RandomNormalLike(x) z = Add(x, n)",
    ),
}


@pytest.mark.parametrize(("reason", "node", "inputs", "nodes"), INDIVISIBLE.values(), ids=INDIVISIBLE)
def test_what_keeps_a_model_from_several_devices_is_told_as_by_a_job(
    reason: str, node: tuple[str, str], inputs: str, nodes: str, tmp_path: Path
) -> None:
    text = f'<ir_version: 10, opset_import: ["": 18]> g ({inputs}) => (z) {{ {nodes} }}'
    model = onnx.parser.parse_model(text)
    assert looked_at(model, tmp_path)["ok"]
    assert looked_at(model, tmp_path, {"target": "cpu"})["ok"]
    asked = {"devices": ["cpu:0", "cpu:1"]}
    answer = looked_at(model, tmp_path, asked)
    assert (answer["ok"], answer["problem"]["code"]) == (False, "unsupported_model")
    assert [(one["reason"], one["node"], one["operator"]) for one in answer["refusals"]] == [(reason, *node)]
    assert "leave devices and objective out" in answer["problem"]["fix"]
    assert [one["operator"] for one in answer["operators"] if one["verdict"] == "refused"] == [node[1]]
    path = tmp_path / "model.onnx"
    with pytest.raises(UnsupportedModel) as raised:
        compile_file(path, tmp_path / "model.tw", CompileOptions.from_json(asked))
    assert (raised.value.message, raised.value.fix) == (answer["problem"]["message"], answer["problem"]["fix"])
    assert [one.node for one in raised.value.refusals] == [node[0]]


def test_strings_keep_a_model_from_several_devices(tmp_path: Path) -> None:
    answer = looked_at(boosting(2), tmp_path, {"devices": ["cpu:0", "cpu:1"]})
    said = [(one["reason"], one["operator"]) for one in answer["refusals"]]
    assert said == [
        ("it takes strings", "ai.onnx.ml::OneHotEncoder"),
        ("it takes strings", "ai.onnx.ml::LabelEncoder"),
        ("it gives strings", "ai.onnx.ml::TreeEnsembleClassifier"),
    ]
    assert all("turn strings into numbers" in one["fix"] for one in answer["refusals"])

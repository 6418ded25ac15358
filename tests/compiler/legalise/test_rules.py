from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper

from compiler.ir.graph import Graph
from compiler.legalise.profile import Profile, open_profile
from compiler.legalise.rules import APPROXIMATE, RULES
from compiler.ops import OPERATORS
from compiler.prove.reference import evaluate_graph
from tests.compiler.legalise.graphs import brought, chain, drawn, profile, single


def rooted(op: str) -> Graph:
    """Square, plus one, root, and a quotient by it."""
    nodes = [
        helper.make_node("Mul", ["x", "x"], ["s"]),
        helper.make_node("Add", ["s", "one"], ["v"]),
        helper.make_node("Sqrt", ["v"], ["r"]),
        helper.make_node(op, ["x", "r"] if op == "Div" else ["r"], ["y"], name="n"),
    ]
    return chain(nodes, (1, 4, 6, 6), {"one": np.ones((), np.float32)})


def above_one(op: str) -> Graph:
    nodes = [
        helper.make_node("Mul", ["x", "x"], ["s"]),
        helper.make_node("Add", ["s", "one"], ["v"]),
        helper.make_node(op, ["v", "v"] if op == "Div" else ["v"], ["y"], name="n"),
    ]
    return chain(nodes, (1, 4, 6, 6), {"one": np.ones((), np.float32)})


SMOOTH = ("Gelu", "Mish", "Swish", "Softplus", "Elu", "Sigmoid", "Tanh", "Erf", "HardSwish")
IMAGE = (1, 4, 6, 6)
LARGE = {"Conv": {"kernel": 3}}
SMALL_POOL = {"AveragePool": {"kernel": 3}}
FOUR = {"Sigmoid": {"rank": 4}, "Add": {"rank": 4}}
ROOT = {"Pow": {"values": {"exponent": [-0.5]}}}
CASES: dict[str, list[tuple[Graph, Profile]]] = {
    "normalisation_as_convolution": [
        (single("BatchNormalization", IMAGE, [drawn(4), drawn(4), drawn(4), 1 + drawn(4) ** 2]), profile("Conv"))
    ],
    "gemm_as_product": [
        (single("Gemm", (3, 8), [drawn(5, 8), drawn(5)], transB=1, alpha=0.5), profile("MatMul Add")),
        (single("Gemm", (3, 8), [drawn(8, 5)]), profile("MatMul Add")),
    ],
    "product_as_fully_connected": [(single("MatMul", (2, 3, 8), [drawn(8, 5)]), profile("Gemm"))],
    "product_as_1x1": [(single("MatMul", (2, 3, 8), [drawn(8, 5)]), profile("Conv"))],
    "product_of_values": [(single("MatMul", (2, 4, 4), two=True), profile("Mul Add"))],
    "transposed_convolution_as_phases": [
        (
            single("ConvTranspose", IMAGE, [drawn(4, 5, k, k), *b], False, strides=[s, s], **a),
            profile("Conv DepthToSpace Add"),
        )
        for k, s, b, a in (
            (4, 4, [drawn(5)], {}),
            (2, 2, [], {}),
            (3, 2, [], {"pads": [1, 1, 1, 1], "output_padding": [1, 1]}),
            (5, 2, [drawn(5)], {"pads": [2, 1, 1, 2]}),
            (3, 4, [], {}),
            (3, 1, [], {"pads": [1, 0, 0, 1]}),
        )
    ],
    "depth_to_space_as_transpose": [
        (single("DepthToSpace", (1, 12, 3, 5), blocksize=2, mode=mode), profile("Relu")) for mode in ("DCR", "CRD")
    ],
    "global_pool_as_pool": [(single("GlobalAveragePool"), profile("AveragePool"))],
    "average_in_two": [
        (single("AveragePool", (1, 4, 8, 8), kernel_shape=[4, 4], strides=[4, 4]), profile("", SMALL_POOL)),
        (single("AveragePool", (1, 4, 6, 9), kernel_shape=[6, 9]), profile("", SMALL_POOL)),
    ],
    "average_as_convolution": [
        (single("AveragePool", kernel_shape=[3, 2], strides=[2, 1]), profile("Conv")),
        (single("AveragePool", kernel_shape=[3, 3], pads=[1, 0, 1, 0], count_include_pad=1), profile("Conv")),
    ],
    "maximum_of_slices": [
        (single("MaxPool", kernel_shape=[2, 2], strides=[2, 2]), profile("Max")),
        (single("MaxPool", (1, 4, 7, 6), kernel_shape=[3, 2], strides=[2, 1]), profile("Max")),
    ],
    "convolution_in_parts": [
        (single("Conv", (1, 4, 9, 9), [drawn(3, 4, 5, 7), drawn(3)], pads=[2, 3, 2, 3]), profile("Add", LARGE)),
        (single("Conv", (1, 4, 9, 9), [drawn(4, 1, 5, 5)], group=4, strides=[2, 2]), profile("Add", LARGE)),
    ],
    "layer_normalisation_in_parts": [
        (
            single("LayerNormalization", (2, 3, 8), [drawn(8), drawn(8)], axis=-1),
            profile("Add Sub Mul ReduceMean", ROOT),
        )
    ],
    "softmax_in_parts": [
        (single("Softmax", (2, 3, 8), axis=1), profile("Sub Exp ReduceMax ReduceSum Div")),
    ],
    "softmax_of_the_last_axis": [
        (single(op, (2, 3, 5, 4), axis=axis), profile("", {op: {"values": {"axis": [-1]}}}))
        for op, axis in (("Softmax", 1), ("LogSoftmax", -4), ("Softmax", 2))
    ],
    "log_softmax_in_parts": [
        (single("LogSoftmax", (2, 3, 8), axis=1), profile("Sub Exp Log ReduceMax ReduceSum")),
    ],
    "map_in_fewer_dimensions": [(single("Sigmoid", (2, 1, 3, 4, 5)), profile("", FOUR))],
    "sum_in_fewer_dimensions": [(single("Add", (2, 1, 3, 4, 5), two=True), profile("", FOUR))],
    "images_one_by_one": [(single("Conv", (3, 4, 6, 6), [drawn(5, 4, 3, 3)]), profile("", {"Conv": {"batch": 1}}))],
    "difference_as_sum": [
        (single("Sub", two=True), profile("Add Mul")),
        (single("Sub", others=[drawn(1, 4, 1, 1)]), profile("Add")),
    ],
    "negative_as_product": [(single("Neg"), profile("Mul"))],
    "product_as_convolution": [
        (single("Mul", others=[drawn(1, 4, 1, 1)]), profile("Conv")),
        (single("Mul", (3, 8), others=[2.5]), profile("Conv")),
    ],
    "quotient_by_number": [(single("Div", others=[3.0]), profile("Mul"))],
    "quotient_by_root": [(rooted("Div"), profile("Add Mul", ROOT))],
    "quotient_by_value": [(above_one("Div"), profile("Add Mul Reciprocal"))],
    "reciprocal_root": [(rooted("Reciprocal"), profile("Add Mul", ROOT))],
    "reciprocal_by_roots": [(above_one("Reciprocal"), profile("Add Mul", ROOT))],
    "root_by_reciprocal_root": [(above_one("Sqrt"), profile("Add Mul", ROOT))],
    "hard_swish_as_product": [(single("HardSwish"), profile("Mul HardSigmoid"))],
    "hard_sigmoid_as_clip": [(single("HardSigmoid", alpha=0.3, beta=0.4), profile("Mul Add Clip"))],
    "hard_sigmoid_as_relus": [(single("HardSigmoid", alpha=0.3, beta=0.4), profile("Conv Relu Add"))],
    "clip_as_relus": [
        (single("Clip", others=[-1.0, 2.0]), profile("Conv Relu")),
        (single("Clip", others=[None, 2.0]), profile("Conv Relu")),
        (single("Clip", (3, 8), others=[-1.5]), profile("Conv Relu")),
        (single("Clip", others=[0.0, 6.0]), profile("Relu Add Sub", {"Conv": {"group": "depthwise"}})),
    ],
    "leaky_relu_as_prelu": [(single("LeakyRelu", alpha=0.2), profile("PRelu"))],
    "leaky_relu_as_relus": [(single("LeakyRelu", alpha=0.2), profile("Conv Relu"))],
    "prelu_as_relus": [
        (single("PRelu", others=[drawn(4, 1, 1)]), profile("Conv Relu")),
        (single("PRelu", others=[drawn(4, 1, 1)]), profile("Relu Add Sub", {"Conv": {"group": "depthwise"}})),
    ],
    "absolute_as_maximum": [(single("Abs"), profile("Max Mul"))],
    "absolute_as_relus": [(single("Abs"), profile("Conv Relu"))],
    "maximum_as_relu": [(single("Max", two=True), profile("Add Sub Relu"))],
    "minimum_as_relu": [(single("Min", two=True), profile("Sub Relu"))],
    "swish_as_product": [
        (single("Swish", alpha=1.0), profile("Mul Sigmoid")),
        (single("Swish", alpha=1.7), profile("Mul Sigmoid")),
    ],
    "gelu_in_erf": [(single("Gelu"), profile("Mul Erf Add"))],
    "gelu_in_tanh": [(single("Gelu", approximate="tanh"), profile("Mul Add Sigmoid"))],
    "mish_by_tanh": [(single("Mish"), profile("Mul Tanh Softplus"))],
    "softplus_by_logarithm": [(single("Softplus"), profile("Relu Abs Mul Exp Add Log"))],
    "elu_by_exponential": [(single("Elu", alpha=1.3), profile("Relu Min Exp Mul Add"))],
    "sigmoid_in_tanh": [(single("Sigmoid"), profile("Mul Tanh Add"))],
    "tanh_in_sigmoid": [(single("Tanh"), profile("Mul Sigmoid Add"))],
    "sigmoid_form": [(single(op), profile("Mul Sigmoid Add")) for op in ("Gelu", "Mish")],
    "relu_sum": [
        *((single(op), profile("Conv Relu")) for op in SMOOTH),
        (single("Exp"), profile("Conv Relu")),
        (single("Mish", (3, 8)), profile("Relu Add Sub", {"Conv": {"group": "depthwise"}})),
        (single("Mish"), profile("Relu Add Sub", {"Conv": {"group": "depthwise"}})),
    ],
    "product_by_squares": [
        (single("Mul", two=True), profile("Conv Relu Add Sub")),
    ],
}


def averaged(axes: list[int], shape: tuple[int, ...], op: str = "ReduceMean") -> Graph:
    node = helper.make_node(op, ["x", "axes"], ["y"], name="n")
    return chain([node], shape, {"axes": np.array(axes, np.int64)})


CASES["mean_as_pool"] = [(averaged([2, 3], IMAGE), profile("AveragePool"))]
CASES["mean_as_product"] = [
    (averaged([-1], (2, 3, 8)), profile("MatMul")),
    (averaged([2], (2, 3, 8), "ReduceSum"), profile("MatMul")),
]


def values(graph: Graph, number: int) -> dict[int, np.ndarray]:
    """Random numbers of -4 ... 4 with the ends, zeros of both signs, bends and small numbers among them."""
    random = np.random.default_rng(number)
    found = {}
    edges = np.array([-4, 4, 0.0, -0.0, 3, -3, 1e-30, -1e-30, 6 - 4, 0.5, -1, 1])
    for value in graph.inputs:
        array = random.uniform(-4, 4, graph.type(value).dims)
        array.reshape(-1)[: len(edges)] = random.permutation(edges)[: array.size]
        found[value] = array
    return found


def test_every_rule_has_a_case() -> None:
    assert {rule.name for rule in RULES} == {name for name, cases in CASES.items() if cases}
    assert len({rule.name for rule in RULES}) == len(RULES)


@pytest.mark.parametrize(("name", "at"), [(name, at) for name, cases in CASES.items() for at in range(len(cases))])
def test_a_rule_applies_and_both_sides_agree(name: str, at: int) -> None:
    graph, accelerator = CASES[name][at]
    done, context, left = brought(graph, accelerator, error=0.05)
    assert name in {one.rule for one in done.log}
    assert not left
    bound = sum(one.bound for one in context.approximations.values())
    assert (bound > 0) == (name in {rule.name for rule in APPROXIMATE})
    for number in range(3):
        given = values(graph, number)
        wanted, found = (evaluate_graph(one, given, OPERATORS) for one in (graph, done.graph))
        for value, array in wanted.items():
            room = bound + 3e-6 * (1 + np.abs(array).max())  # coefficients are stored in float32
            assert np.abs(found[value] - array).max() <= room


@pytest.mark.parametrize(
    ("graph", "accelerator", "reason"),
    [
        (single("Div", two=True), profile("Mul", ROOT), "only for numbers above 0"),
        (single("MaxPool", kernel_shape=[3, 3], pads=[1, 1, 1, 1]), profile("Max"), "zeros around it would count"),
        (single("AveragePool", kernel_shape=[3, 3], pads=[1, 1, 1, 1]), profile("Conv"), "fewer elements"),
        (single("Mul", others=[drawn(1, 4, 6, 6)]), profile("Conv"), "more than one number for each channel"),
        (single("ConvTranspose", IMAGE, [drawn(4, 2, 3, 3)], group=2), profile("Conv DepthToSpace"), "groups or dil"),
        (single("Gelu"), profile("Relu"), "cannot be brought to the accelerator"),
    ],
)
def test_what_must_not_be_applied_is_refused_with_its_reason(graph: Graph, accelerator: Profile, reason: str) -> None:
    done, context, left = brought(graph, accelerator)
    said = [*(one.reason for one in done.refusals), *context.notes]
    assert left == [graph.nodes[0].op]
    assert any(reason in one for one in said), said


def test_too_few_terms_are_refused_with_those_that_would_do() -> None:
    done, _, left = brought(single("Gelu"), profile("Conv Relu"), error=1e-3, terms=4)
    assert left == ["Gelu"]
    (said,) = [one.reason for one in done.refusals if one.rule == "relu_sum"]
    assert "more than 4 ReLUs" in said
    enough = int(said.rpartition(":")[2].split()[0])
    assert not brought(single("Gelu"), profile("Conv Relu"), error=1e-3, terms=enough)[2]


def test_nothing_is_done_where_the_accelerator_has_everything() -> None:
    graph = single("HardSwish")
    done, _, left = brought(graph, open_profile("ethos-u55-128"))
    assert not left
    assert done.graph is graph


def random_graph(seed: int) -> Graph:
    """Maps, sums and layers one after the other."""
    random = np.random.default_rng(seed)
    maps = [*SMOOTH, "HardSigmoid", "LeakyRelu", "Abs", "Neg", "Relu"]
    nodes: list[Any] = []
    arrays: dict[str, np.ndarray] = {}
    names = ["x"]
    for at in range(int(random.integers(3, 8))):
        name, source = f"v{at}", names[-1]
        match int(random.integers(4)):
            case 0:
                arrays[f"w{at}"] = (random.normal(size=(4, 4, 3, 3)) / 6).astype(np.float32)
                nodes.append(helper.make_node("Conv", [source, f"w{at}"], [name], pads=[1] * 4))
            case 1:
                nodes.append(helper.make_node("Add", [source, str(random.choice(names))], [name]))
            case _:
                nodes.append(helper.make_node(str(random.choice(maps)), [source], [name]))
        names.append(name)
    nodes.append(helper.make_node("Identity", [names[-1]], ["y"]))
    return chain(nodes, IMAGE, arrays)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("name", ["edgetpu", "relu-conv-add"])
def test_random_graphs_are_brought_to_an_accelerator_whole(name: str, seed: int) -> None:
    graph = random_graph(seed)
    done, context, left = brought(graph, open_profile(name), error=0.05)
    assert not left
    bounds = [one.bound for one in context.approximations.values()]
    assert all(bound <= 0.05 for bound in bounds)
    again, _, _ = brought(graph, open_profile(name), error=0.05)
    assert str(again.graph) == str(done.graph)

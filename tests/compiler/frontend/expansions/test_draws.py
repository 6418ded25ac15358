"""What random operators draw, by statistics of fixed keys: each bound is passed by chance once in 10^6 or less."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from compiler.contract import CompileOptions
from compiler.errors import UnsupportedModel
from compiler.frontend import load
from compiler.frontend.expansions.draws import RANDOM_BITS
from compiler.ops import OPERATORS
from compiler.prove.reference import evaluate_graph

COUNT = 20_000
SIGMAS = 5.0
KOLMOGOROV = math.sqrt(math.log(2 / 1e-6) / 2)
"""Times 1 / sqrt(n): what the distance to the true distribution exceeds by chance once in 10^6."""
FLOAT = TensorProto.FLOAT
ATTRS: tuple[dict[str, Any], ...] = ({"seed": 7.5}, {})
Nodes = Sequence[onnx.NodeProto]


def model_of(nodes: Nodes, inputs: dict[str, np.ndarray], outputs: Sequence[str], opset: int = 18) -> bytes:
    infos = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in inputs.items()
    ]
    graph = helper.make_graph(nodes, "g", infos, [onnx.ValueInfoProto(name=name) for name in outputs])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    data: bytes = model.SerializeToString()
    return data


def drawn(nodes: Nodes, inputs: dict[str, np.ndarray], key: int = 1, run: int = 0) -> list[np.ndarray]:
    """The results of the nodes y, y1, ... of one run."""
    names = [name for node in nodes for name in node.output]
    loaded = load(model_of(nodes, inputs, names), CompileOptions(), OPERATORS)
    graph = loaded.graph
    assert loaded.border.random
    feeds = {graph.values[id].name: id for id in graph.inputs}
    given = {feeds[name]: array for name, array in inputs.items()}
    given[graph.inputs[-1]] = np.array([key, run], np.int64)
    values = evaluate_graph(graph, given, OPERATORS, wide=False)
    return [values[id] for id in graph.outputs]


def node(op: str, *inputs: str, y: Sequence[str] = ("y",), **attrs: Any) -> onnx.NodeProto:
    return helper.make_node(op, list(inputs), list(y), f"the {op}", **attrs)


def distance(found: np.ndarray, cumulative: Any) -> float:
    """Of Kolmogorov and Smirnov, times the root of the count."""
    ordered = np.sort(found.ravel().astype(np.float64))
    want = cumulative(ordered)
    steps = np.arange(len(ordered) + 1) / len(ordered)
    return float(max(np.abs(want - steps[1:]).max(), np.abs(want - steps[:-1]).max()) * math.sqrt(len(ordered)))


@pytest.mark.parametrize("dtype", [TensorProto.FLOAT, TensorProto.DOUBLE])
def test_uniform_numbers_are_uniform_between_low_and_high(dtype: int) -> None:
    (y,) = drawn([node("RandomUniform", shape=[COUNT], low=-1.0, high=3.0, dtype=dtype)], {})
    assert -1 <= y.min() < y.max() <= 3
    assert distance(y, lambda x: (x + 1) / 4) < KOLMOGOROV
    assert abs(y.mean() - 1) < SIGMAS * (4 / math.sqrt(12)) / math.sqrt(COUNT)


def test_halves_are_all_numbers_below_one_that_they_can_be() -> None:
    (y,) = drawn([node("RandomUniform", shape=[COUNT], dtype=TensorProto.FLOAT16)], {})
    assert y.dtype == np.float16
    assert y.max() < 1
    assert len(np.unique(y)) > 2000
    assert distance(y.astype(np.float64) + 2.0**-12, lambda x: x) < KOLMOGOROV + 2.0**-11 * math.sqrt(COUNT)


def test_normal_numbers_are_normal() -> None:
    (y,) = drawn([node("RandomNormalLike", "x", mean=2.0, scale=3.0)], {"x": np.zeros((COUNT // 4, 4), np.float32)})
    normal = np.vectorize(lambda x: 0.5 * math.erfc(-(x - 2) / 3 / math.sqrt(2)))
    z = (y.astype(np.float64) - 2) / 3
    assert y.shape == (COUNT // 4, 4)
    assert distance(y, normal) < KOLMOGOROV
    assert abs(z.mean()) < SIGMAS / math.sqrt(COUNT)
    assert abs((z**2).mean() - 1) < SIGMAS * math.sqrt(2 / COUNT)
    assert abs((z**4).mean() - 3) < SIGMAS * math.sqrt(96 / COUNT)


def test_nodes_runs_and_keys_draw_independently_of_each_other() -> None:
    twice = [node("RandomNormal", y=[f"y{at}"], shape=[COUNT], seed=3.0) for at in range(2)]
    rows = [*drawn(twice, {}), *drawn(twice, {}, run=1)]
    one = [node("RandomNormal", shape=[COUNT])]
    rows += [*drawn(one, {}, key=1), *drawn(one, {}, key=2), *drawn(one, {}, key=1, run=1)]
    found = np.corrcoef(np.array(rows, np.float64)) - np.eye(len(rows))
    assert np.abs(found).max() < SIGMAS / math.sqrt(COUNT)
    neighbours = np.array(rows[0], np.float64)
    assert abs(np.corrcoef(neighbours[:-1], neighbours[1:])[0, 1]) < SIGMAS / math.sqrt(COUNT)


def test_a_seed_of_its_own_and_the_run_decide_what_a_node_draws() -> None:
    seeded, free = ([node("RandomUniform", shape=[100], **attrs)] for attrs in ATTRS)
    np.testing.assert_array_equal(drawn(seeded, {}, key=1), drawn(seeded, {}, key=2))
    assert not np.array_equal(drawn(seeded, {}, run=0), drawn(seeded, {}, run=1))
    assert not np.array_equal(drawn(free, {}, key=1), drawn(free, {}, key=2))
    np.testing.assert_array_equal(drawn(free, {}, key=1), drawn(free, {}, key=1))


def test_a_loop_draws_anew_in_each_turn() -> None:
    body = helper.make_graph(
        [node("RandomUniform", y=["row"], shape=[50]), node("Identity", "go", y=["on"])],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
        ],
        [helper.make_tensor_value_info("on", TensorProto.BOOL, []), helper.make_tensor_value_info("row", FLOAT, [50])],
    )
    trips = helper.make_node("Constant", [], ["trips"], value_int=3)
    *_, rows = drawn([trips, node("Loop", "trips", "", body=body)], {})
    assert len(np.unique(rows)) == 150


def test_bernoulli_gives_one_as_often_as_its_input_says() -> None:
    p = np.repeat(np.array([0.0, 0.1, 0.5, 1.0], np.float32), COUNT)
    (y,) = drawn([node("Bernoulli", "p", dtype=TensorProto.INT32)], {"p": p})
    rates = y.reshape(4, COUNT).mean(axis=1)
    for rate, wanted in zip(rates, (0.0, 0.1, 0.5, 1.0), strict=True):
        assert abs(rate - wanted) <= SIGMAS * math.sqrt(wanted * (1 - wanted) / COUNT)


def test_multinomial_draws_classes_by_their_weights() -> None:
    weights = np.array([[1, 2, 3, 4], [1, 0, 0, 1]], np.float32)
    with np.errstate(divide="ignore"):
        x = np.log(weights) + np.array([[5], [-2]], np.float32)
    (y,) = drawn([node("Multinomial", "x", sample_size=COUNT, dtype=TensorProto.INT64)], {"x": x})
    assert y.shape == (2, COUNT)
    for row, weight in zip(y, weights, strict=True):
        wanted = weight / weight.sum()
        rates = np.bincount(row, minlength=4) / COUNT
        assert (np.abs(rates - wanted) <= SIGMAS * np.sqrt(wanted * (1 - wanted) / COUNT)).all()


@pytest.mark.parametrize("ratio", [0.25, 0.9])
def test_dropout_keeps_a_part_and_makes_it_larger(ratio: float) -> None:
    inputs = {
        "x": np.random.default_rng(2).standard_normal(COUNT).astype(np.float32),
        "ratio": np.array(ratio, np.float32),
        "training": np.array(True),
    }
    dropout = node("Dropout", "x", "ratio", "training", y=["y", "mask"], seed=4)
    y, mask = drawn([dropout], inputs)
    assert abs(mask.mean() - (1 - ratio)) < SIGMAS * math.sqrt(ratio * (1 - ratio) / COUNT)
    np.testing.assert_allclose(y, np.where(mask, inputs["x"] / (1 - np.float32(ratio)), 0), rtol=1e-6)
    y, mask = drawn([dropout], {**inputs, "training": np.array(False)})
    np.testing.assert_array_equal(y, inputs["x"])
    assert mask.all()


@pytest.mark.parametrize(
    ("odd", "said"),
    [
        (node("RandomUniform", shape=[2], dtype=TensorProto.INT64), "it draws i64"),
        (node("RandomNormal", shape=[2], scale=math.inf), "'scale' is inf"),
        (node("Multinomial", "x", sample_size=0), "draws 0"),
        (node(RANDOM_BITS, shape=[2]), "no such operator"),
    ],
)
def test_what_cannot_be_drawn_is_refused(odd: onnx.NodeProto, said: str) -> None:
    x = helper.make_tensor_value_info("x", FLOAT, [2, 3])
    graph = helper.make_graph([odd], "g", [x], [onnx.ValueInfoProto(name="y")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    with pytest.raises(UnsupportedModel) as caught:
        load(model.SerializeToString(), CompileOptions(), OPERATORS)
    assert said in caught.value.refusals[0].reason

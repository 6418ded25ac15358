"""Loops and branches as regions: which become one, what their bodies are, and that they mean what ONNX Runtime says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnxruntime
import pytest

from compiler.contract import CompileOptions
from compiler.errors import UnsupportedModel
from compiler.frontend import Loaded, load
from compiler.frontend.control.unroll import MOST_WRITTEN
from compiler.ir.graph import Body, Graph, Node
from compiler.ir.region import CONDITIONAL, WHILE, Loop
from compiler.ops import OPERATORS
from compiler.prove.bisect import demand_same_meaning
from compiler.prove.reference import evaluate_graph
from compiler.prove.sizes import padded
from tests.compiler.frontend.open.at_sizes import agree_at, model_of, opened

F32 = np.float32


def loaded(model: bytes, target: str = "cpu") -> Graph:
    return load(model, CompileOptions(target=target), OPERATORS).graph


def region(graph: Graph, op: str = WHILE) -> Node:
    (found,) = (node for node in graph.nodes if node.op == op)
    return found


def body_of(node: Node) -> Graph:
    body = node.attrs["body"]
    assert isinstance(body, Body)
    return body.graph


def agree(model: bytes, **inputs: Any) -> Graph:
    """The graph, whose outputs, cut to their sizes, are those of ONNX Runtime."""
    found = load(model, CompileOptions(), OPERATORS)
    graph, shapes = found.graph, found.open_shapes
    given = {id: np.asarray(inputs[graph.values[id].name]) for id in graph.inputs}
    values = evaluate_graph(graph, given, OPERATORS)
    outputs = [values[id] for id in graph.outputs]
    axes = shapes.outputs if shapes else ((None,) * one.ndim for one in outputs)
    quiet = onnxruntime.SessionOptions()
    quiet.log_severity_level = 4
    expected = onnxruntime.InferenceSession(model, quiet, providers=["CPUExecutionProvider"]).run(None, inputs)
    for output, of, wanted in zip(outputs, axes, expected, strict=False):
        real = output[tuple(slice(None if one is None else int(outputs[one])) for one in of)]
        assert real.shape == np.shape(wanted)
        np.testing.assert_allclose(real, wanted, rtol=1e-3, atol=1e-5)
    return graph


def halving(most: str) -> bytes:
    return model_of(f"""m (float[2] x, float limit) => (float[2] y, float[n,2] rows)
    <int64 most = {{{most}}}, float half = {{0.9}}> {{
        s0 = ReduceMax<keepdims=0>(x)
        on = Greater(s0, limit)
        y, rows = Loop<body = b (int64 i, bool c, float[2] v) => (bool again, float[2] w, float[2] row) {{
            w = Mul(v, half) row = Identity(w) s = ReduceMax<keepdims=0>(w) again = Greater(s, limit)
        }}>(most, on, x)
    }}""")


@pytest.mark.parametrize(("limit", "turns"), [(4.0, 9), (9.5, 1), (-1.0, 1000)])
def test_a_loop_that_data_end_is_one_node(limit: float, turns: int) -> None:
    x = np.array([7, 10], F32)
    graph = agree(halving("1000"), x=x, limit=np.array(limit, F32))
    loop = Loop.of(region(graph))
    assert (loop.most, loop.decides, loop.carried, loop.columns) == (1000, True, 1, 1)
    given = dict(zip(graph.inputs, (x, np.array(limit, F32)), strict=True))
    assert evaluate_graph(graph, given, OPERATORS)[graph.outputs[-1]] == turns


def test_a_loop_that_data_end_at_once_gives_zero_rows() -> None:
    graph = loaded(halving("1000"))
    x = np.array([7, 10], F32)
    values = evaluate_graph(graph, dict(zip(graph.inputs, (x, np.array(99, F32)), strict=True)), OPERATORS)
    y, rows, count = (values[id] for id in graph.outputs)
    np.testing.assert_array_equal(y, x)
    assert (rows.shape, int(count), rows.any()) == ((1000, 2), 0, np.False_)


def test_a_target_without_regions_gets_flags_and_no_more_than_256_of_them() -> None:
    assert WHILE not in {node.op for node in loaded(halving("9"), "npu:ethos-u55-128").nodes}
    with pytest.raises(UnsupportedModel) as caught:
        loaded(halving("1000"), "npu:ethos-u55-128")
    (refusal,) = caught.value.refusals
    assert refusal.reason == "data decide how often it runs, which may be more than 256 times"
    assert refusal.fix.endswith("or compile for a CPU or a GPU, whose artifacts decide that")


COUNTED = """m (float[3] x, float[2,3] table) => (float[3] y, float[n,3] rows) <int64 most = {MOST}, int64 two = {2}> {
    y, rows = Loop<body = b (int64 i, bool c, float[3] v) => (bool again, float[3] w, float[3] row) {
        again = Identity(c)
        k = Mod(i, two)
        e = Gather<axis=0>(table, k)
        t = Tanh(table)
        m = ReduceMean<keepdims=0>(t)
        half = Mul(v, m)
        w = Add(half, e)
        row = Exp(w)
    }>(most, , x)
}"""
"""Eight calls."""


@pytest.mark.parametrize(("most", "is_region"), [(MOST_WRITTEN // 8, False), (MOST_WRITTEN // 8 + 1, True)])
def test_a_loop_of_a_known_number_of_turns_is_a_region_where_it_is_long(most: int, is_region: bool) -> None:
    values = np.random.default_rng(3).uniform(size=(3, 3)).astype(F32)
    graph = agree(model_of(COUNTED.replace("MOST", str(most))), x=values[0], table=values[1:])
    assert (WHILE in {node.op for node in graph.nodes}) == is_region
    assert graph.type(graph.outputs[1]).dims == (most, 3)


def test_what_depends_on_no_iteration_is_computed_before_the_loop() -> None:
    graph = loaded(model_of(COUNTED.replace("MOST", "300")))
    body = body_of(region(graph))
    assert {"Tanh", "ReduceMean"} <= {node.op for node in graph.nodes}
    assert {"Tanh", "ReduceMean"}.isdisjoint({node.op for node in body.nodes})


FIBONACCI = model_of("""m (int64[1] n, float[2] kept) => (float[2] last, float[2] before, float[2] same)
<float[2] zero = {0.0, 0.5}, float[2] one = {1.0, 1.0}> {
    last, before, same = Loop<body = b (int64 i, bool c, float[2] p, float[2] q, float[2] s)
                                        => (bool d, float[2] r, float[2] t, float[2] u) {
        d = Identity(c) r = Identity(q) t = Add(p, q) u = Identity(s)
    }>(n, , zero, one, kept)
}""")


@pytest.mark.parametrize("turns", [0, 1, 2, 30])
def test_values_change_places_and_what_no_iteration_changes_is_not_carried(turns: int) -> None:
    graph = agree(FIBONACCI, n=np.array([turns]), kept=np.array([3, 4], F32))
    loop = Loop.of(region(graph))
    assert (loop.carried, loop.most, loop.given) == (2, 0, (True, False))


NESTED = model_of("""m (float[3] x, float limit, bool far) => (float[3] y) <int64 most = {400}> {
    y = Loop<body = o (int64 i, bool c, float[3] v) => (bool d, float[3] w) {
        d = Identity(c)
        seven = Constant<value_int = 7>()
        few = Mod(i, seven)
        w0 = Loop<body = n (int64 j, bool e, float[3] z) => (bool f, float[3] g) {
            g0 = Sin(z)
            g1 = Add(g0, x)
            g = If<then_branch = t () => (float[3] p) { p = Neg(g1) },
                   else_branch = s () => (float[3] q) { q = Cos(g1) }>(far)
            m = ReduceMax<keepdims=0>(g)
            f = Greater(m, limit)
        }>(few, , v)
        w = Mul(w0, limit)
    }>(most, , x)
}""")


@pytest.mark.parametrize("far", [True, False])
def test_a_loop_in_a_loop_with_a_branch_in_it(far: bool) -> None:
    x = np.random.default_rng(4).normal(size=3).astype(F32)
    graph = agree(NESTED, x=x, limit=np.array(0.8, F32), far=np.array(far))
    inner = region(body_of(region(graph)))
    assert Loop.of(inner).given == (True, False)
    assert [node.op for node in body_of(inner).nodes].count("Where") == 1


def choosing(extent: int) -> bytes:
    return model_of(f"""m (float[{extent},{extent}] x, bool c) => (float[{extent},{extent}] y) {{
        shared = Neg(x)
        z = If<then_branch = t () => (float[{extent},{extent}] a) {{ e = Exp(shared) a = MatMul(e, x) }},
               else_branch = e () => (float[{extent},{extent}] b) {{ b = Abs(shared) }}>(c)
        y = Sin(z)
    }}""")


@pytest.mark.parametrize("taken", [True, False])
@pytest.mark.parametrize(("extent", "is_region"), [(8, False), (200, True)])
def test_branches_are_a_region_where_they_are_large(extent: int, is_region: bool, taken: bool) -> None:
    x = np.random.default_rng(5).normal(size=(extent, extent)).astype(F32) / extent
    graph = agree(choosing(extent), x=x, c=np.array(taken))
    assert (CONDITIONAL in {node.op for node in graph.nodes}) == is_region
    if is_region:
        found = [[node.op for node in body.graph.nodes] for body in region(graph, CONDITIONAL).bodies.values()]
        assert found == [["Exp", "MatMul"], ["Abs"]]


GROWING = model_of("""m (float[2,1] x, float[2,k] first, float limit) => (float[2,n] y, float[m] rows)
<int64 most = {300}, bool on = {1}> {
    y, rows = Loop<body = b (int64 i, bool c, float[2,l] v) => (bool again, float[2,o] w, float[] row) {
        t = Softmax<axis=1>(v)
        r = ReduceSum<keepdims=0>(t)
        e = Mul(x, r)
        w = Concat<axis=1>(v, e)
        row = ReduceSum<keepdims=0>(w)
        again = Less(row, limit)
    }>(most, on, first)
}""")


@pytest.mark.parametrize("size", [1, 3])
def test_a_value_that_grows_by_as_much_each_time_is_carried_with_its_capacity(size: int) -> None:
    found = opened(GROWING, {"k": (1, 3)})
    graph, shapes = found.graph, found.open_shapes
    assert graph.type(region(graph).outputs[0]).dims == (2, 303)
    assert shapes is not None
    exact = load(GROWING, CompileOptions(dims={"k": size}), OPERATORS)
    given = {id: np.random.default_rng(id).normal(size=exact.graph.type(id).dims) for id in exact.graph.inputs}
    given[exact.graph.inputs[2]] = np.array(2.0)
    inputs = padded(graph, shapes, [*given.values()])
    demand_same_meaning(graph, shapes, inputs, (exact.graph, exact.open_shapes), given, 1e-9, str(size))


def test_a_value_that_grows_is_of_the_size_that_it_has_grown_to() -> None:
    x, first = np.array([[0.25], [0.5]], F32), np.ones((2, 2), F32)
    static = load(GROWING, CompileOptions(dims={"k": 2}), OPERATORS)
    assert static.open_shapes is not None
    for limit, turns in ((0.0, 1), (12.0, 6)):
        given = dict(zip(static.graph.inputs, (x, first, np.array(limit, F32)), strict=True))
        values = evaluate_graph(static.graph, given, OPERATORS)
        quiet = onnxruntime.SessionOptions()
        session = onnxruntime.InferenceSession(GROWING, quiet, providers=["CPUExecutionProvider"])
        wanted, _ = session.run(None, {"x": x, "first": first, "limit": np.array(limit, F32)})
        (of,) = (axis for axis in static.open_shapes.outputs[0] if axis is not None)
        outputs = [values[id] for id in static.graph.outputs]
        assert int(outputs[of]) == 2 + turns
        np.testing.assert_allclose(outputs[0][:, : 2 + turns], wanted, rtol=1e-5)
        assert not outputs[0][:, 2 + turns :].any()


TURNING = """m (float[1,2] x, float limit) => (float[a,b] y) <int64 most = {MOST}, bool on = {1}> {
    y = Loop<body = b (int64 i, bool c, float[k,l] v) => (bool again, float[l,k] w) {
        w = Transpose<perm=[1,0]>(v) s = ReduceSum<keepdims=0>(w) again = Less(s, limit)
    }>(most, on, x)
}"""


def test_a_value_that_changes_its_shape_otherwise_is_carried_by_flags_and_refused_where_these_are_too_many() -> None:
    graph = agree(model_of(TURNING.replace("MOST", "6")), x=np.array([[2, 1]], F32), limit=np.array(7, F32))
    assert WHILE not in {node.op for node in graph.nodes}
    with pytest.raises(UnsupportedModel) as caught:
        loaded(model_of(TURNING.replace("MOST", "600")))
    (refusal,) = caught.value.refusals
    assert "which may be more than 256 times; it is no loop of the artifact either" in refusal.reason
    assert "f32[1, 2] once and f32[2, 1] then" in refusal.reason


SCANNED = model_of("""m (float[n,3] x, float[3] start) => (float[3] y, float[n,3] rows) {
    y, rows = Scan<num_scan_inputs = 1, body = b (float[3] v, float[3] e) => (float[3] w, float[3] row) {
        t = Tanh(v) w = Add(t, e) row = Exp(w)
    }>(start, x)
}""")


def test_a_scan_along_an_open_dimension_is_a_region() -> None:
    found = opened(SCANNED, {"n": (1, 500)})
    assert Loop.of(region(found.graph)).most == 500
    for size in (1, 7, 500):
        agree_at(found, SCANNED, {"n": size})


def test_a_long_scan_reads_backwards() -> None:
    text = """m (float[300,2] x, float[2] start) => (float[2] y) {
        y = Scan<num_scan_inputs = 1, scan_input_directions = [1],
                 body = b (float[2] v, float[2] e) => (float[2] w) { h = Tanh(v) w = Sub(e, h) }>(start, x)
    }"""
    values = np.random.default_rng(6).normal(size=(301, 2)).astype(F32)
    graph = loaded(model_of(text))
    assert Loop.of(region(graph)).most == 300
    expected = values[300].astype(np.float64)
    for row in values[:300][::-1]:
        expected = row - np.tanh(expected)
    found = evaluate_graph(graph, dict(zip(graph.inputs, (values[:300], values[300]), strict=True)), OPERATORS)
    np.testing.assert_allclose(found[graph.outputs[0]], expected, rtol=1e-5)


OPEN_INSIDE = model_of("""m (float[n,4] x, float limit) => (float[n,4] y) <int64 most = {700}> {
    s0 = ReduceMax<keepdims=0>(x)
    on = Greater(s0, limit)
    y = Loop<body = b (int64 i, bool c, float[n,4] v) => (bool again, float[n,4] w) {
        p = Softmax<axis=0>(v)
        q = Mul(v, p)
        w = Sub(v, q)
        s = ReduceMax<keepdims=0>(w)
        again = Greater(s, limit)
    }>(most, on, x)
}""")


def test_a_loop_carries_values_with_open_dimensions() -> None:
    found = opened(OPEN_INSIDE, {"n": (1, 6)})
    assert Loop.of(region(found.graph)).most == 700
    for size in (1, 4, 6):
        agree_at(found, OPEN_INSIDE, {"n": size})


def ended_by_data(step: str, carried: str = "float[4] v") -> bytes:
    """A loop of at most five iterations that data end."""
    return model_of(f"""m (float[4] x, float limit, int64[1] size) => (float[4] y)
    <int64 most = {{5}}, float half = {{0.9}}, int64[1] whole = {{-1}}> {{
        on = Greater(limit, half)
        y = Loop<body = b (int64 i, bool c, {carried}) => (bool again, float[4] w) {{
            {step} s = ReduceMax<keepdims=0>(w) again = Greater(limit, s)
        }}>(most, on, x)
    }}""")


def is_broken(found: Loaded, given: Mapping[str, np.ndarray]) -> bool:
    """Whether these inputs, by name, break what the graph demands of data."""
    assert found.open_shapes is not None
    graph = found.graph
    values = evaluate_graph(graph, {id: given[graph.values[id].name] for id in graph.inputs}, OPERATORS)
    return bool(found.open_shapes.broken(graph.outputs, values))


TOLD_INSIDE = ended_by_data("r = Reshape(v, size) t = Add(r, half) w = Reshape(t, whole)")


@pytest.mark.parametrize(("size", "limit", "is_legal"), [(4, 2, True), (3, 2, False), (5, 0.5, True)])
def test_sizes_that_data_say_inside_a_loop_are_held_to_their_limits(size: int, limit: float, is_legal: bool) -> None:
    """By the least and the greatest of all iterations, which leave the loop; where none runs, any size will do."""
    found = load(TOLD_INSIDE, CompileOptions(), OPERATORS)
    assert found.open_shapes is not None
    assert len(body_of(region(found.graph)).outputs) == 2 + len(found.open_shapes.limits)
    given: dict[str, Any] = {"x": np.zeros(4, F32), "limit": np.array(limit, F32), "size": np.array([size], np.int64)}
    if is_legal:
        agree(TOLD_INSIDE, **given)
    assert is_broken(found, given) is not is_legal


BRANCHES_TOLD = model_of("""m (float[70000] x, bool way, int64[1] size) => (float[70000] y)
<int64[1] whole = {-1}> {
    y = If (way) <
        then_branch = t () => (float[70000] a) { r = Reshape(x, size) e = Exp(r) a = Reshape(e, whole) },
        else_branch = f () => (float[70000] b) { b = Tanh(x) }
    >
}""")


@pytest.mark.parametrize(("way", "rows", "is_legal"), [(True, 70000, True), (True, 69999, False), (False, 1, True)])
def test_sizes_that_data_say_inside_a_branch_are_held_to_their_limits_where_it_is_taken(
    way: bool, rows: int, is_legal: bool
) -> None:
    found = load(BRANCHES_TOLD, CompileOptions(), OPERATORS)
    assert found.open_shapes is not None
    assert len(region(found.graph, CONDITIONAL).outputs) == 1 + len(found.open_shapes.limits)
    x = np.random.default_rng(3).normal(size=70000).astype(F32)
    given = {"x": x, "way": np.array(way), "size": np.array([rows], np.int64)}
    if is_legal:
        agree(BRANCHES_TOLD, **given)
    assert is_broken(found, given) is not is_legal


PLACEHOLDER = """m (float[4] x, float limit) => (float[4] y, float[k] z)
<int64 most = {MOST}, bool on = {1}, float nothing = {0}> {
    y, z = Loop<body = b (int64 i, bool c, float[4] v, float[l] unread) => (bool again, float[4] w, float[l] made) {
        f = CastLike(i, v) g = Add(v, f) w = Mul(g, limit) made = Exp(w)
        s = ReduceMax<keepdims=0>(w) again = Less(s, limit)
    }>(most, on, x, nothing)
}"""


def test_a_loop_whose_first_iteration_gives_a_value_its_shape_is_a_region_of_the_others() -> None:
    """A scalar stands for a vector that the body only writes; iterations are numbered on."""
    model = model_of(PLACEHOLDER.replace("MOST", "900"))
    graph = agree(model, x=np.array([1, -2, -0.5, -3], F32), limit=np.array(0.75, F32))
    assert Loop.of(region(graph)).most == 899
    agree(model, x=np.array([-9, -8, -70, -6], F32), limit=np.array(0.9, F32))


def test_each_iteration_of_a_loop_draws_other_numbers() -> None:
    """A region's body is one stream: the iterations are written out, each with its own."""
    graph = loaded(ended_by_data("d = RandomNormal<shape=[4]>() w = Add(v, d)"))
    assert all(node.op != WHILE for node in graph.nodes)
    drawn = [node for node in graph.nodes if node.op == "RandomBits"]
    assert len(drawn) % 5 == 0
    assert len({node.attrs["stream"] for node in drawn}) == len(drawn) > 0


def test_what_is_tried_as_a_region_and_taken_back_leaves_nothing() -> None:
    """The state that random operators read is one input, whether a region was tried first or not."""
    graph = loaded(ended_by_data("d = RandomNormal<shape=[4]>() w = Add(v, d)"))
    names = [graph.values[id].name for id in graph.inputs]
    assert len(names) == len(set(names))
    assert sum("state" in name for name in names) == 1

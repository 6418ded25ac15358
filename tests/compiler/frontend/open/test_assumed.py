"""Sizes that data decide and that an operator takes for equal: assumed to be, checked in each run.

`g` and `h` are the rows of `a` and of `b` where `x` and `z` are not zero, so that data decide how many each has.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest

from compiler.contract import CompileOptions
from compiler.errors import UnsupportedModel
from compiler.frontend import load
from compiler.ops import OPERATORS
from tests.compiler.frontend.open.at_sizes import agree_at, model_of, opened
from tests.compiler.frontend.open.by_value import fed, results

WIDE, SHORT, ROWS = 8, 6, 3
BOTH = "bx = Cast<to=9>(x) bz = Cast<to=9>(z) g = Compress<axis=0>(a, bx) h = Compress<axis=0>(b, bz)"
INPUTS = f"(float[{WIDE}] x, float[{SHORT}] z, float[{WIDE},{ROWS}] a, float[{SHORT},{ROWS}] b) => (float y)"
CONSTANTS = f"""<float zero = {{0}}, int64[1] front = {{0}}, int64[1] one = {{1}}, int64[1] open = {{-1}},
    int64[2] six = {{-1, 6}}, int64[2] flat = {{4, 3}}, float[4,1] four = {{1, 2, 3, 4}},
    float[3,3] w = {{1, 0, 0, 0, 1, 0, 0, 2, 1}},
    float[9,3] board = {{{", ".join(["0"] * 27)}}}, float[9] line = {{{", ".join(["0"] * 9)}}}>"""
EQUAL: dict[str, str] = {
    "Add": "y = Add(g, h)",
    "Where": "c = Greater(g, zero) y = Where(c, g, h)",
    "Concat": "y = Concat<axis=1>(g, h)",
    "Mul with a softmax": "e = Softmax<axis=0>(g) f = Mul(e, h) y = ReduceSum<keepdims=0>(f, front)",
    "MatMul": "t = Transpose<perm=[1,0]>(g) y = MatMul(t, h)",
    "MatMul of stacks": "p = Unsqueeze(g, one) q = Unsqueeze(h, one) t = Transpose<perm=[0,2,1]>(q) y = MatMul(t, p)",
    "Gemm": "y = Gemm<transA=1>(g, h)",
    "Gemm with rows": "y = Gemm(g, w, h)",
    "Einsum": 'y = Einsum<equation="ka,kb->ab">(g, h)',
    "Expand": "s = Shape(h) y = Expand(g, s)",
    "Reshape": "s = Shape(h) y = Reshape(g, s)",
    "ScatterND": "p = NonZero(x) t = Transpose(p) y = ScatterND(board, t, h)",
    "ScatterElements": "p = NonZero(x) t = Squeeze(p, front) m = ReduceSum<keepdims=0>(h, one)"
    " y = ScatterElements(line, t, m)",
    "GatherND": "v = ArgMax<axis=1>(g) y = GatherND<batch_dims=1>(h, v)",
}
FIXED: dict[str, str] = {
    "Add of four rows": "y = Add(g, four)",
    "Squeeze": "p = Gather<axis=1>(g, front) f = ReduceSum<keepdims=0>(h) u = Squeeze(g, front) y = Add(u, f)",
    "Reshape to four rows": "y = Reshape(g, flat)",
    "Reshape to pairs of rows": "y = Reshape(g, six)",
}


def model(text: str) -> bytes:
    return model_of(f"m {INPUTS} {CONSTANTS} {{ {BOTH} {text} }}")


def drawn(first: int, second: int, seed: int = 0) -> dict[str, np.ndarray]:
    """So many rows kept of each."""
    chance = np.random.default_rng(seed)
    flags = [chance.permutation(np.arange(size) < kept) for size, kept in ((WIDE, first), (SHORT, second))]
    rows = [chance.normal(size=(size, ROWS)) for size in (WIDE, SHORT)]
    return {name: array.astype(np.float32) for name, array in zip("xzab", (*flags, *rows), strict=True)}


def by_onnxruntime(model: bytes, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    settings = onnxruntime.SessionOptions()
    settings.log_severity_level = 4
    session = onnxruntime.InferenceSession(model, settings, providers=["CPUExecutionProvider"])
    return [np.asarray(array) for array in session.run(None, feeds)]


def agrees(loaded: Any, model: bytes, feeds: dict[str, np.ndarray]) -> str:
    """What does not hold of the run; where all does, its outputs are those of ONNX Runtime."""
    said, found = results(loaded, feeds)
    if not said:
        wanted = by_onnxruntime(model, feeds)
        for one, other in zip(found, wanted, strict=True):
            assert one.shape == np.shape(other)
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
    return said


@pytest.mark.parametrize("name", EQUAL)
def test_a_run_whose_sizes_are_equal_gives_what_onnx_runtime_gives_and_another_one_is_refused(name: str) -> None:
    whole = model(EQUAL[name])
    loaded = fed(whole)
    operator = name.split()[0]
    assert any("assumed of sizes that data say" in notice and operator in notice for notice in loaded.notices)
    for seed in range(3):
        for count in (1, 2, 5, 6):
            assert not agrees(loaded, whole, drawn(count, count, seed))
        for first, second in ((1, 4), (4, 1), (8, 6), (5, 2), (3, 0), (0, 3)):
            assert operator in agrees(loaded, whole, drawn(first, second, seed))


@pytest.mark.parametrize("name", EQUAL)
def test_without_an_element_it_gives_what_onnx_runtime_gives(name: str) -> None:
    whole = model(EQUAL[name])
    assert not agrees(fed(whole), whole, drawn(0, 0))


def test_what_is_left_over_of_a_size_of_data_must_be_a_whole_number() -> None:
    """A size of 0 is refused: in a shape it means that a size is kept."""
    whole = model("s = Shape<end=1>(h) u = Concat<axis=0>(open, s) y = Reshape(g, u)")
    loaded = fed(whole)
    for first, second in ((4, 4), (4, 6), (2, 1), (0, 5)):
        assert not agrees(loaded, whole, drawn(first, second))
    for first, second in ((4, 5), (1, 2), (3, 0), (0, 0)):
        assert "Reshape" in agrees(loaded, whole, drawn(first, second))


@pytest.mark.parametrize(("name", "count"), [(name, 1 if name == "Squeeze" else 4) for name in FIXED])
def test_a_size_that_a_number_asks_for_is_checked(name: str, count: int) -> None:
    whole = model(FIXED[name])
    loaded = fed(whole)
    assert not agrees(loaded, whole, drawn(count, 3))
    assert name.split()[0] in agrees(loaded, whole, drawn(3, 3))


def test_the_refusal_names_node_and_both_sizes() -> None:
    whole = model("y = Add(g, h)")
    said = agrees(fed(whole), whole, drawn(7, 5))
    assert said == "node '#4 Add' takes sizes kept.0 and kept.1 for equal: 7 and 5"


def test_places_may_be_fewer_than_rows_but_not_more() -> None:
    whole = model("v = ArgMax<axis=1>(g) y = GatherElements<axis=1>(h, v)")
    loaded = fed(whole)
    for first, second in ((3, 3), (2, 5), (0, 4), (6, 6)):
        assert not agrees(loaded, whole, drawn(first, second))
    assert "GatherElements" in agrees(loaded, whole, drawn(5, 3))
    assert "GatherElements" in agrees(loaded, whole, drawn(8, 6))


def test_one_assumption_is_made_once() -> None:
    whole = model("u = Add(g, h) v = Mul(g, h) w2 = Sub(u, v) y = Add(w2, h)")
    loaded = fed(whole)
    assert loaded.open_shapes is not None
    assert len(loaded.open_shapes.limits) == 1
    assert not agrees(loaded, whole, drawn(4, 4))


def test_where_nothing_is_assumed_nothing_is_checked() -> None:
    loaded = fed(model("u = Exp(g) v = Mul(g, u) y = Add(u, v)"))
    assert loaded.open_shapes is not None
    assert not loaded.open_shapes.limits
    assert not [notice for notice in loaded.notices if "assumed" in notice]


@pytest.mark.parametrize(
    "text",
    [
        "t = Concat<axis=0>(g, four3) y = Add(t, two3)",
        "n = Add(g, line3) y = Add(n, h)",
    ],
)
def test_sizes_that_differ_in_every_run_are_refused_when_compiling(text: str) -> None:
    """At least four rows beside two; at most eight beside nine."""
    constants = "<float[4,3] four3 = {0,0,0, 0,0,0, 0,0,0, 0,0,0}, float[2,3] two3 = {0,0,0, 0,0,0},"
    constants += f" float[9,3] line3 = {{{', '.join(['0'] * 27)}}}>"
    with pytest.raises(UnsupportedModel) as caught:
        fed(model_of(f"m {INPUTS} {constants} {{ {BOTH} {text} }}"))
    assert "put side by side" in str(caught.value.refusals[0])


KEPT_OF_OPEN = model_of("""m (float[n] x, float[n,2] a) => (float[n,2] y) {
    bx = Cast<to=9>(x) g = Compress<axis=0>(a, bx) y = Add(g, a)
}""")


@pytest.mark.parametrize("size", [1, 3, 7])
def test_a_size_of_data_is_assumed_to_be_that_of_an_input(size: int) -> None:
    loaded = opened(KEPT_OF_OPEN, {"n": (1, 7)})
    assert loaded.open_shapes is not None
    assert (loaded.open_shapes.dimensions[0].low, loaded.open_shapes.dimensions[0].high) == (1, 7)
    agree_at(loaded, KEPT_OF_OPEN, {"n": size})


BRANCH = model_of(f"""m (bool c, float[{WIDE}] x, float[{WIDE}] z) => (float[k] y) {{
    p = NonZero(x) q = NonZero(z) u = Cast<to=1>(p) v = Cast<to=1>(q)
    y = If<then_branch = t () => (float[1,k] s) {{ s = Add(u, v) }},
           else_branch = e () => (float[1,k] s) {{ s = Neg(u) }}>(c)
}}""")


def test_what_a_branch_assumes_counts_where_the_branch_is_taken() -> None:
    loaded = fed(BRANCH)
    x, z = (np.arange(WIDE) < count for count in (3, 5))
    feeds = {"x": x.astype(np.float32), "z": z.astype(np.float32)}
    said, _ = results(loaded, {**feeds, "c": np.array(True)})
    assert said.endswith("3 and 5")
    said, (found,) = results(loaded, {**feeds, "c": np.array(False)})
    assert not said
    np.testing.assert_array_equal(found, [[0, -1, -2]])


LOOP = model_of(f"""m (int64 turns, float[{WIDE}] x, float[{WIDE}] z) => (int64[r,1,k] y)
<bool yes = {{1}}> {{
    y = Loop<body = b (int64 i, bool c) => (bool again, int64[1,1] w) {{
            again = Identity(c) f = Cast<to=1>(i) d = Sub(x, f) r = Relu(d)
            p = NonZero(r) q = NonZero(z) s = Add(p, q) w = ReduceSum(s)
    }}>(turns, yes)
}}""")


@pytest.mark.parametrize(("turns", "holds"), [(0, True), (1, True), (2, True), (3, False), (4, False)])
def test_what_an_iteration_assumes_is_checked_in_each(turns: int, holds: bool) -> None:
    """Of three elements one is no longer above the number of the iteration in the third one."""
    loaded = load(LOOP, CompileOptions(bounds={"#0 Loop": 300}), OPERATORS)
    feeds = {"x": np.array([9, 9, 1.5, 0, 0, 0, 0, 0], np.float32), "z": (np.arange(WIDE) > 4).astype(np.float32)}
    said, (found,) = results(loaded, {**feeds, "turns": np.array(turns)})
    assert bool(said) != holds
    if holds:
        np.testing.assert_array_equal(found, by_onnxruntime(LOOP, {**feeds, "turns": np.array(turns)})[0])
    else:
        assert "Add" in said


COUNTED = "<float zero = {0}, int64 none = {0}, int64 one = {1}, float two = {2.5}, int64[1] front = {0}>"
NUMBER = "c = Greater(x, zero) i = Cast<to=7>(c) n = ReduceSum<keepdims=0>(i)"
WIDER: dict[str, str] = {
    "a Range beside a NonZero": f"m (float[160,160] x) => (int64[2,k] y) {COUNTED}"
    f" {{ {NUMBER} p = NonZero(c) r = Range(none, n, one) y = Add(p, r) }}",
    "an Expand that is scattered": f"m (float[160,160] x) => (float[160,160] y) {COUNTED}"
    f" {{ {NUMBER} p = NonZero(c) t = Transpose(p) s = Unsqueeze(n, front) v = Expand(two, s)"
    " y = ScatterND(x, t, v) }",
    "a ConstantOfShape beside a NonZero": f"m (float[160,160] x) => (float[k] y) {COUNTED} {{ {NUMBER}"
    " s = Unsqueeze(n, front) p = NonZero(c) q = Gather<axis=0>(p, front) f = Squeeze(q, front) d = ConstantOfShape(s)"
    " e = Cast<to=1>(f)"
    " y = Add(d, e) }",
}


@pytest.mark.parametrize("name", WIDER)
def test_a_bound_that_is_assumed_is_as_great_as_that_of_the_size_beside_it(name: str) -> None:
    whole = model_of(WIDER[name])
    loaded = fed(whole)
    assert loaded.open_shapes is not None
    assert [most for _, most in loaded.open_shapes.assumed] == [160 * 160]
    for share in (0.01, 0.5, 1.0):
        x = np.random.default_rng(2).uniform(share - 1, share, (160, 160)).astype(np.float32)
        assert not agrees(loaded, whole, {"x": x})


def test_a_bound_is_that_of_an_axis_of_a_number_of_elements() -> None:
    whole = model_of(
        f"m (int64 n, float[5000] x) => (float[5000] y) {COUNTED}"
        " { r = Range(none, n, one) f = Cast<to=1>(r) y = Add(x, f) }"
    )
    loaded = fed(whole)
    x = np.arange(5000, dtype=np.float32)
    said, (found,) = results(loaded, {"n": np.array(5000), "x": x})
    assert not said
    np.testing.assert_array_equal(found, 2 * x)
    said, _ = results(loaded, {"n": np.array(4999), "x": x})
    assert said.endswith("takes sizes 5000 and the number of steps.0 for equal: 5000 and 4999")
    said, _ = results(loaded, {"n": np.array(5001), "x": x})
    assert said.startswith("the number of steps of Range '#0 Range' must lie between 0 and 5000; for more compile with")


def test_bounds_meet_where_memory_asks_for_it() -> None:
    """A table of three axes beside one of 25,600 places: as large as results may be, and no larger."""
    whole = model_of(
        f"m (int64[2] s, float[160,160] x) => (float[a,512] y) {COUNTED} {{ {NUMBER} p = NonZero(c)"
        " q = Gather<axis=0>(p, front) f = Cast<to=1>(q) t = Transpose(f) d = ConstantOfShape(s)"
        " y = Add(d, t) }"
    )
    loaded = fed(whole)
    assert loaded.open_shapes is not None
    ((_, most),) = loaded.open_shapes.assumed
    assert 1024 < most < 160 * 160
    assert most**2 <= 2**24
    x = np.where(np.arange(25600) % 10 == 0, 1, -1).reshape(160, 160).astype(np.float32)
    said, (found,) = results(loaded, {"s": np.array([2560, 3]), "x": x})
    assert not said
    assert found.shape == (2560, 3)
    said, _ = results(loaded, {"s": np.array([5000, 3]), "x": x})
    assert f"must lie between 0 and {most}" in said


def test_a_bound_that_options_give_stays() -> None:
    whole = model_of(WIDER["a Range beside a NonZero"])
    loaded = load(whole, CompileOptions(bounds={"#4 Range": 2000}), OPERATORS)
    x = np.full((160, 160), -1, np.float32)
    x.flat[:1999] = 1
    assert not agrees(loaded, whole, {"x": x})
    x.flat[:2001] = 1
    assert "must lie between 0 and 2000" in agrees(loaded, whole, {"x": x})

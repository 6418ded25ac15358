"""Operators over open axes, each in a small model, against the same model bound to numbers."""

from __future__ import annotations

import numpy as np
import pytest

from compiler.contract import CompileOptions
from compiler.errors import ModelTooLarge, OptionsError, UnsupportedModel
from compiler.frontend import load
from compiler.ops import OPERATORS
from compiler.prove.reference import evaluate_graph
from compiler.prove.sizes import padded
from tests.compiler.frontend.open.at_sizes import agree_at, model_of, opened

ONE = {"n": (1, 9)}
TWO = {"n": (1, 6), "m": (2, 7)}
ABSOLUTE = (
    "(float[2,n,1] x) => (float[2,n,n] y) <int64[1] zero = {0}, int64[1] one = {1}, int64[1] two = {2},"
    " int64[1] left = {-1}, int64[6] last = {0,0,0,0,0,1}, int64[3] none = {0,0,0}, int64[2] axes = {1,2},"
    " int64 start = {0}, int64 step = {1}>"
    "{ n_ = Shape<start=1, end=2>(x) k = Mul(n_, two) c = Sub(k, one) end = Squeeze(c) r = Range(start, end, step)"
    " f = Cast<to=1>(r) w = Mul(x, f) a = Pad(w, last) shape = Concat<axis=0>(two, left) line = Reshape(a, shape)"
    " l = Sub(n_, one) p = Concat<axis=0>(none, l) more = Pad(line, p) m = Add(n_, one)"
    " rows = Concat<axis=0>(two, m, c) v = Reshape(more, rows) b = Concat<axis=0>(zero, l) e = Concat<axis=0>(n_, c)"
    " y = Slice(v, b, e, axes) }"
)
"""What is said of distances -n + 1 to n - 1, as what is said of places: attention of VITS and of Music Transformer."""
RELATIVE = (
    "(float[1,2,n,n] x) => (float[1,2,n,k] y) <int64[1] one = {1}, int64[1] two = {2}, int64[1] three = {3},"
    " int64[2] heads = {1,2}, int64[1] left = {-1}, int64[7] none = {0,0,0,0,0,0,0}, int64[2] before = {0,0},"
    " int64[3] rest = {0,0,0}, int64[1] past = {1000}>"
    "{ n_ = Shape<start=2, end=3>(x) l = Sub(n_, one) p = Concat<axis=0>(none, l) a = Pad(x, p)"
    " shape = Concat<axis=0>(heads, left) line = Reshape(a, shape) q = Concat<axis=0>(before, n_, rest)"
    " more = Pad(line, q) k_ = Mul(n_, two) rows = Concat<axis=0>(heads, n_, k_) v = Reshape(more, rows)"
    " y = Slice(v, one, past, three) }"
)

MODELS: dict[str, tuple[str, dict[str, tuple[int, int]]]] = {
    "elementwise": ("(float[n,3] x, float[3] b) => (float[n,3] y) { e = Exp(x) z = Add(e, b) y = Div(z, e) }", ONE),
    "unequal names": ("(float[n,3] x, float[m,3] b) => (float[n,3] y) { y = Add(x, b) }", TWO),
    "compare": ("(float[n] x, float[n] z) => (bool[n] y) { y = Equal(x, z) }", ONE),
    "matmul": ("(float[n,m,4] x, float[4,5] w) => (float[n,m,5] y) { y = MatMul(x, w) }", TWO),
    "matmul over": ("(float[3,n] x, float[n,m] w) => (float[3,m] y) { e = Exp(x) y = MatMul(e, w) }", TWO),
    "gemm": ("(float[n,4] x, float[5,4] w, float[5] b) => (float[n,5] y) { y = Gemm<transB=1>(x, w, b) }", ONE),
    "attention": (
        "(float[n,m,8] q, float[n,m,8] k, float[n,m,8] v) => (float[n,m,8] y)"
        "{ t = Transpose<perm=[0,2,1]>(k) s = MatMul(q, t) p = Softmax(s) y = MatMul(p, v) }",
        TWO,
    ),
    "heads": (
        "(float[n,m,8] x) => (float[n,m,8] y) <int64[4] s = {0, 0, 2, 4}, int64[3] f = {0, 0, -1}>"
        "{ r = Reshape(x, s) t = Transpose<perm=[0,2,1,3]>(r) e = Exp(t) u = Transpose<perm=[0,2,1,3]>(e)"
        " y = Reshape(u, f) }",
        TWO,
    ),
    "rows of all": (
        "(float[n,m,8] x, float[8,3] w) => (float[n,m,3] y) <int64[2] f = {-1, 8}, int64[1] three = {3}>"
        "{ r = Reshape(x, f) z = MatMul(r, w) s = Shape<start=0, end=2>(x) t = Concat<axis=0>(s, three)"
        " y = Reshape(z, t) }",
        TWO,
    ),
    "flatten": ("(float[n,3,m] x) => (float[n,k] y) { y = Flatten<axis=1>(x) }", TWO),
    "softmax": ("(float[3,n] x) => (float[3,n] y) { y = Softmax<axis=1>(x) }", ONE),
    "log softmax": ("(float[n,m] x) => (float[n,m] y) { y = LogSoftmax<axis=0>(x) }", TWO),
    "layer norm": (
        "(float[n,m,4] x, float[4] g, float[4] b) => (float[n,m,4] y) { y = LayerNormalization(x, g, b) }",
        TWO,
    ),
    "layer norm over": (
        "(float[3,n] x, float[n] g, float[n] b) => (float[3,n] y) { y = LayerNormalization(x, g, b) }",
        ONE,
    ),
    "instance norm": (
        "(float[2,3,n,m] x, float[3] g, float[3] b) => (float[2,3,n,m] y) { y = InstanceNormalization(x, g, b) }",
        TWO,
    ),
    "group norm": (
        "(float[n,4,m] x, float[4] g, float[4] b) => (float[n,4,m] y){ y = GroupNormalization<num_groups=2>(x, g, b) }",
        TWO,
    ),
    "conv": (
        "(float[n,2,m,m] x, float[3,2,3,3] w, float[3] b) => (float[n,3,h,k] y)"
        "{ z = Conv<pads=[1,1,1,1], strides=[2,2]>(x, w, b) y = Sigmoid(z) }",
        {"n": (1, 3), "m": (4, 11)},
    ),
    "reversed": (
        "(float[n,2,3] x) => (float[n,2,3] y, float[2,n,3] z) <int32[2] all = {99, 2}, int64[1] two = {2}>"
        "{ s = Shape<start=0, end=1>(x) l = Expand(s, two) y = ReverseSequence<batch_axis=1, time_axis=0>(x, l)"
        " t = Transpose<perm=[1,0,2]>(x) e = Exp(t) a = Cast<to=7>(all) b = Min(a, s)"
        " z = ReverseSequence<batch_axis=0, time_axis=1>(e, b) }",
        ONE,
    ),
    "conv same": (
        '(float[1,2,n] x, float[3,2,4] w) => (float[1,3,n] y) { y = Conv<auto_pad="SAME_LOWER">(x, w) }',
        {"n": (4, 9)},
    ),
    "conv transpose": (
        "(float[1,2,n] x, float[2,3,3] w) => (float[1,3,m] y)"
        "{ y = ConvTranspose<strides=[2], pads=[1,1], output_padding=[1]>(x, w) }",
        ONE,
    ),
    "max pool": (
        "(float[1,2,n,m] x) => (float[1,2,h,w] y)"
        "{ z = Neg(x) y = MaxPool<kernel_shape=[3,2], strides=[2,2], pads=[1,0,1,1], ceil_mode=1>(z) }",
        {"n": (3, 8), "m": (3, 9)},
    ),
    "max pool of what is not negative": (
        "(float[1,2,n,m] x) => (float[1,2,h,w] y)"
        "{ z = Relu(x) y = MaxPool<kernel_shape=[3,2], strides=[2,2], pads=[1,0,1,1], ceil_mode=1>(z) }",
        {"n": (3, 8), "m": (3, 9)},
    ),
    "average pool": (
        "(float[1,2,n,m] x) => (float[1,2,h,w] y)"
        "{ y = AveragePool<kernel_shape=[3,2], strides=[2,1], pads=[1,0,1,1]>(x) }",
        {"n": (3, 8), "m": (3, 9)},
    ),
    "average pool padded": (
        "(float[1,2,n] x) => (float[1,2,h] y) { e = Exp(x)"
        " y = AveragePool<kernel_shape=[3], strides=[2], pads=[1,1], count_include_pad=1>(e) }",
        {"n": (3, 8)},
    ),
    "global pools": (
        "(float[2,3,n,m] x) => (float[2,3,1,1] y, float[2,3,1,1] z)"
        "{ e = Neg(x) y = GlobalAveragePool(e) z = GlobalMaxPool(e) }",
        TWO,
    ),
    "reductions": (
        "(float[n,m,3] x) => (float[n,3] a, float[m,3] b, float[1,1,1] c, float[n,m] d, float[n,1,3] e)"
        "<int64[1] one = {1}, int64[1] zero = {0}, int64[1] two = {2}>"
        "{ s = Exp(x) a = ReduceSum<keepdims=0>(s, one) b = ReduceMax<keepdims=0>(x, zero) c = ReduceMean(s)"
        " d = ReduceProd<keepdims=0>(x, two) e = ReduceLogSumExp(x, one) }",
        TWO,
    ),
    "least and greatest": (
        "(int32[n,3] x) => (int32[3] a, int32[3] b, int64[3] c, int64[1,3] d) <int64[1] zero = {0}>"
        "{ a = ReduceMin<keepdims=0>(x, zero) b = ReduceProd<keepdims=0>(x, zero)"
        " c = ArgMax<axis=0, keepdims=0>(x) d = ArgMin<axis=0>(x) }",
        ONE,
    ),
    "running sum": ("(float[n,m] x) => (float[n,m] y) <int64 one = {1}> { e = Exp(x) y = CumSum(e, one) }", TWO),
    "greatest few": (
        "(float[3,n] x) => (float[3,2] y, int64[3,2] z) <int64[1] k = {2}> { u = Neg(x) y, z = TopK(u, k) }",
        {"n": (2, 9)},
    ),
    "slices": (
        "(float[n,6] x) => (float[a,6] y, float[1,6] z, float[b,6] u, float[c,3] v)"
        "<int64[1] one = {1}, int64[1] end = {9223372036854775807}, int64[1] zero = {0}, int64[1] last = {-1},"
        " int64[1] two = {2}, int64[1] first = {-9223372036854775807}, int64[2] both = {0, 1}, int64[2] begin = {0, 3},"
        " int64[2] past = {-2, 6}>"
        "{ y = Slice(x, one, end, zero) z = Slice(x, last, end, zero) u = Slice(x, last, first, zero, last)"
        " v = Slice(x, begin, past, both) }",
        {"n": (3, 9)},
    ),
    "cut by a size": (
        "(float[n,3] x, float[12,3] table) => (float[n,3] y) <int64[1] zero = {0}>"
        "{ s = Shape<start=0, end=1>(x) t = Slice(table, zero, s, zero) y = Add(x, t) }",
        ONE,
    ),
    "last of each": ("(float[n,m,3] x) => (float[n,3] y) <int64 last = {-1}> { y = Gather<axis=1>(x, last) }", TWO),
    "embedding": ("(int64[n,m] i, float[7,4] table) => (float[n,m,4] y) { y = Gather(table, i) }", TWO),
    "places from the end": (
        "(float[n,3] x, int64[m] i) => (float[k,3] y) <int64 one = {1}> { j = Sub(i, one) y = Gather(x, j) }",
        TWO,
    ),
    "joined": (
        "(float[n,3] x, float[m,3] z, float[2,3] u) => (float[k,3] y) { a = Exp(x) b = Exp(z)"
        " y = Concat<axis=0>(a, u, b) }",
        TWO,
    ),
    "joined at the end": ("(float[2,n] x, float[2,3] z) => (float[2,k] y) { y = Concat<axis=1>(z, x) }", ONE),
    "split": (
        "(float[n,m] x) => (float[a,m] y, float[b,m] z) <int64[1] one = {1}, int64[1] zero = {0}>"
        "{ s = Shape<start=0, end=1>(x) r = Sub(s, one) p = Concat<axis=0>(r, one) y, z = Split(x, p) }",
        {"n": (2, 6), "m": (1, 3)},
    ),
    "expand": (
        "(float[1,3] x, float[n] z) => (float[n,3] y) <int64[1] three = {3}>"
        "{ s = Shape(z) t = Concat<axis=0>(s, three) y = Expand(x, t) }",
        ONE,
    ),
    "tile": (
        "(float[n,2] x, float[m] z) => (float[k,4] y) <int64[1] two = {2}>"
        "{ s = Shape(z) t = Concat<axis=0>(s, two) y = Tile(x, t) }",
        TWO,
    ),
    "pads": (
        "(float[n,m] x) => (float[a,b] y, float[c,d] z, float[e,f] u)"
        "<int64[4] p = {1, 0, 2, 1}, float c = {7.5}, float none = {0.0}>"
        '{ y = Pad(x, p, none) z = Pad(x, p, c) u = Pad<mode="edge">(x, p) }',
        TWO,
    ),
    "reflected": (
        '(float[1,n] x) => (float[1,k] y) <int64[4] p = {0,2,0,1}> { y = Pad<mode="reflect">(x, p) }',
        {"n": (3, 9)},
    ),
    "distances as places": (ABSOLUTE, {"n": (2, 9)}),
    "places as distances": (RELATIVE, {"n": (2, 9)}),
    "padded beside an open axis": (
        "(float[n,4] x) => (float[n,a] y, float[n,b] z, float[n,c] u, float[n,d] v, float[n,e] w, float[n,2] t)"
        "<int64[4] p = {0,2,0,1}, int64[4] q = {0,-1,0,-1}, int64[4] l = {0,6,0,5}, float c = {7.5}>"
        '{ y = Pad<mode="reflect">(x, p) z = Pad<mode="edge">(x, p) u = Pad<mode="wrap">(x, p) v = Pad(x, p, c)'
        ' w = Pad<mode="edge">(x, l) t = Pad(x, q) }',
        ONE,
    ),
    "positions": (
        "(float[n,m] x) => (float[m] y, int64[k] z) <int64 zero = {0}, int64 one = {1}, int64 two = {2}, int64 f = {1}>"
        "{ s = Shape(x) m_ = Gather(s, f) r = Range(zero, m_, one) y = Cast<to=1>(r) t = Mul(m_, two)"
        " z = Range(one, t, two) }",
        TWO,
    ),
    "causal": (
        "(float[n,n] x) => (float[n,n] y) { s = Shape(x) o = ConstantOfShape<value = float[1] {1.0}>(s)"
        " t = Trilu<upper=0>(o) y = Mul(x, t) }",
        ONE,
    ),
    "resized": (
        "(float[1,2,n,m] x) => (float[1,2,a,b] y, float[1,2,c,d] z)"
        "<float[4] twice = {1.0, 1.0, 2.0, 2.0}>"
        '{ y = Resize<mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor">(x, , twice)'
        ' z = Resize<mode="linear">(x, , twice) }',
        TWO,
    ),
    "resized to sizes": (
        "(float[1,2,n,m] x) => (float[1,2,a,b] y) <int64[4] factors = {1, 1, 2, 3}>"
        "{ s = Shape(x) t = Mul(s, factors) y = Resize(x, , , t) }",
        TWO,
    ),
    "products of bytes": (
        "(float[n,m] x, uint8[m,3] w, uint8 z, uint8[m,3] v, float s) => (int32[n,3] y, uint8[n,3] u)"
        "{ q, t, o = DynamicQuantizeLinear(x) y = MatMulInteger(q, w, o, z)"
        " u = QLinearMatMul(q, t, o, v, s, z, s, z) }",
        TWO,
    ),
    "convolutions of bytes": (
        "(float[1,1,n,m] x, uint8[2,1,3,3] w, uint8 z, float s) => (int32[1,2,a,b] y, uint8[1,2,n,m] u)"
        "{ q, t, o = DynamicQuantizeLinear(x) y = ConvInteger<strides=[2,1]>(q, w, o, z)"
        " u = QLinearConv<pads=[1,1,1,1]>(q, t, o, w, s, z, s, z) }",
        {"n": (3, 7), "m": (3, 6)},
    ),
    "at places": (
        "(float[n,4] x, int64[m,4] i, int64[m,1] j) => (float[m,4] y, float[m,4] z)"
        "<int64 one = {1}> { k = Sub(j, one) y = GatherElements<axis=0>(x, i) z = GatherND(x, k) }",
        {"n": (2, 6), "m": (1, 5)},
    ),
    "written": (
        "(float[n,3] x, int64[m,1] i, float[m,3] u, int64[m,3] j) => (float[n,3] y, float[n,3] z, float[n,3] v)"
        '{ y = ScatterND(x, i, u) z = ScatterND<reduction="add">(x, i, u)'
        ' v = ScatterElements<axis=0, reduction="max">(x, j, u) }',
        {"n": (2, 6), "m": (1, 2)},
    ),
    "pixels": (
        "(float[n,8,m,3] x) => (float[n,2,a,6] y, float[n,2,b,6] z, float[n,8,m,3] u)"
        '{ e = Exp(x) y = DepthToSpace<blocksize=2>(e) z = DepthToSpace<blocksize=2, mode="CRD">(e)'
        " u = SpaceToDepth<blocksize=2>(y) }",
        TWO,
    ),
    "lstm": (
        "(float[n,m,3] x, float[2,16,3] w, float[2,16,4] r) => (float[n,2,m,4] y, float[2,m,4] h, float[2,m,4] c)"
        '{ y, h, c = LSTM<hidden_size=4, direction="bidirectional">(x, w, r) }',
        TWO,
    ),
    "lstm of bytes": (
        "(float[n,1,3] x, int8[2,3,8] w, int8[2,2,8] r, float[2] s, int8[2] z) => (float[n,2,1,2] y, float[2,1,2] h)"
        '{ y, h = com.microsoft.DynamicQuantizeLSTM<hidden_size=2, direction="bidirectional">'
        "(x, w, r, , , , , , s, z, s, z) }",
        ONE,
    ),
    "shape as a result": ("(float[n,3] x) => (int64[2] y, int64 z) { y = Shape(x) z = Size(x) }", ONE),
    "as numbers": (
        "(float[n,4] x) => (float[n,4] y) <float half = {0.5}>"
        "{ s = Shape<start=0, end=1>(x) f = Cast<to=1>(s) g = Mul(f, half) z = Mul(x, g) y = Div(z, f) }",
        ONE,
    ),
    "divided": (
        "(float[n,4] x) => (float[k,4] y) <int64[1] zero = {0}>"
        "{ s = Shape<start=0, end=1>(x) f = Cast<to=1>(s) d = Constant<value = float {3.0}>() g = Div(f, d)"
        " c = Floor(g) e = Cast<to=7>(c) y = Slice(x, zero, e, zero) }",
        {"n": (3, 9)},
    ),
    "halved": (
        "(float[n,4] x) => (float[k,4] y) <int64 two = {2}, int64[1] zero = {0}, int64[1] place = {0}>"
        "{ s = Shape<start=0, end=1>(x) f = Cast<to=1>(s) h = Constant<value = float {0.5}>() g = Mul(f, h) c = Ceil(g)"
        " e = Cast<to=7>(c) y = Slice(x, zero, e, zero) }",
        ONE,
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_an_open_model_gives_what_the_model_bound_to_its_sizes_gives(name: str) -> None:
    text, ranges = MODELS[name]
    model = model_of(f"m {text}")
    loaded = opened(model, ranges)
    chance = np.random.default_rng(sum(name.encode()))
    ends = [{of: low for of, (low, _) in ranges.items()}, {of: high for of, (_, high) in ranges.items()}]
    between = [{of: int(chance.integers(low, high + 1)) for of, (low, high) in ranges.items()} for _ in range(4)]
    for seed, sizes in enumerate((*ends, *between)):
        if name == "unequal names":
            size = max(2, min(sizes.values()))
            sizes = dict.fromkeys(sizes, size)
        agree_at(loaded, model, sizes, seed)


def test_a_greatest_element_of_a_window_may_be_one_of_the_zeros_beyond_where_nothing_is_less() -> None:
    for name, count in (("max pool", 2), ("max pool of what is not negative", 0)):
        nodes = opened(model_of(f"m {MODELS[name][0]}"), MODELS[name][1]).graph.nodes
        beyond = [node.attrs.get("value") for node in nodes if node.op == "PadBeyond"]
        assert beyond.count(float("-inf")) == count, name


def test_dimensions_that_an_operator_joins_are_one() -> None:
    loaded = opened(model_of(f"m {MODELS['unequal names'][0]}"), TWO)
    assert loaded.open_shapes is not None
    assert [(one.name, one.low, one.high) for one in loaded.open_shapes.dimensions] == [("n", 2, 6)]
    assert "dimension 'm' must have the size of 'n'" in loaded.notices


def test_a_size_must_be_a_multiple_of_what_makes_two_axes_equal() -> None:
    text = (
        "(float[1,1,n] x, float[1,1,2] w) => (float[1,1,n] y) <float[3] twice = {1.0, 1.0, 2.0}>"
        '{ d = Conv<strides=[2]>(x, w) u = Resize<mode="nearest">(d, , twice) y = Add(x, u) }'
    )
    loaded = opened(model_of(f"m {text}"), {"n": (3, 9)})
    assert loaded.open_shapes is not None
    (one,) = loaded.open_shapes.dimensions
    assert (one.low, one.high, one.step) == (4, 8, 2)
    for size in (4, 6, 8):
        agree_at(loaded, model_of(f"m {text}"), {"n": size})


def test_steps_through_a_range_are_kept_rather_than_more_sizes_at_its_end() -> None:
    """21 to 24 are four sizes for which a quarter of one is twice an eighth, 8, 16 and 24 are three."""
    text = (
        "(float[1,1,n] x) => (float[1,1,m] y) <float[3] twice = {1.0, 1.0, 2.0}>"
        "{ a = MaxPool<kernel_shape=[2], strides=[2], ceil_mode=1>(x)"
        " b = MaxPool<kernel_shape=[2], strides=[2], ceil_mode=1>(a)"
        " c = MaxPool<kernel_shape=[2], strides=[2], ceil_mode=1>(b)"
        ' u = Resize<mode="nearest">(c, , twice) y = Add(b, u) }'
    )
    loaded = opened(model_of(f"m {text}"), {"n": (3, 24)})
    assert loaded.open_shapes is not None
    (one,) = loaded.open_shapes.dimensions
    assert (one.low, one.high, one.step) == (8, 24, 8)
    for size in (8, 16, 24):
        agree_at(loaded, model_of(f"m {text}"), {"n": size})


@pytest.mark.parametrize(
    ("text", "low", "high"),
    [
        (
            "(float[n,3] x, float[6,3] table) => (float[n,3] y) <int64[1] zero = {0}>"
            "{ s = Shape<start=0, end=1>(x) t = Slice(table, zero, s, zero) y = Add(x, t) }",
            1,
            6,
        ),
        (
            "(float[1,2,n] x) => (float[1,2,n] y)"
            '{ p = MaxPool<kernel_shape=[3], pads=[0,2]>(x) q = MaxPool<kernel_shape=[1], auto_pad="VALID">(p)'
            " y = Add(x, q) }",
            1,
            9,
        ),
    ],
)
def test_a_range_ends_where_two_axes_would_differ(text: str, low: int, high: int) -> None:
    loaded = opened(model_of(f"m {text}"), ONE)
    assert loaded.open_shapes is not None
    (one,) = loaded.open_shapes.dimensions
    assert (one.low, one.high) == (low, high)
    agree_at(loaded, model_of(f"m {text}"), {"n": high})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("(float[n,3] x, float[15,3] z) => (float[5,3] y) { y = Add(x, z) }", "are put side by side"),
        (
            "(float[1,4,n] x) => (float[1,1,4,4] y) <int64[2] k = {2, 2}, int64[2] s = {4, 4}> { y = Col2Im(x, s, k) }",
            "there is no rule how",
        ),
        ("(float[1,1,n] x, int64[2] k) => (float[1,4,a] y) { y = Col2Im(x, k, k) }", "must be known when compiling"),
    ],
)
def test_what_has_no_rule_is_refused_with_its_node_and_a_fix(text: str, said: str) -> None:
    with pytest.raises(UnsupportedModel) as caught:
        opened(model_of(f"m {text}"), ONE)
    (refusal,) = caught.value.refusals
    assert said in str(refusal)
    assert refusal.fix


def test_ranges_that_share_no_size_are_refused_where_they_must_be_equal() -> None:
    with pytest.raises(OptionsError, match="share none"):
        opened(model_of(f"m {MODELS['unequal names'][0]}"), {"n": (1, 3), "m": (5, 7)})


def test_a_model_without_ranges_has_no_open_shapes() -> None:
    assert load(model_of(f"m {MODELS['softmax'][0]}"), CompileOptions(dims={"n": 4}), OPERATORS).open_shapes is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "(float[n,4] x) => (float[a,b] y) <int64[2] f = {-1, 1}> { u = Reshape(x, f) v = Transpose(u)"
            " w = MatMul(u, v) z = Concat<axis=0>(w, w) t = Reshape(z, f) p = Transpose(t) y = MatMul(t, p) }",
            "at its greatest size",
        ),
        (
            "(float[n] x) => (int64[a] y) <int64 z = {0}, int64 o = {1}> { s = Size(x) y = Range(z, s, o) }",
            "has to count",
        ),
    ],
)
def test_what_would_be_too_large_at_its_greatest_size_is_refused(text: str, said: str) -> None:
    with pytest.raises(ModelTooLarge, match=said):
        opened(model_of(f"m {text}"), {"n": (1, 2**25)})


def test_shapes_that_grow_without_end_are_bounded_like_those_that_data_say() -> None:
    squared = "".join(f" v{at + 1} = Mul(v{at}, v{at})" for at in range(9))
    loaded = opened(model_of(f"m (float[n] x) => (float[a] y) {{ v0 = Shape(x){squared} y = Expand(x, v9) }}"), ONE)
    graph, shapes = loaded.graph, loaded.open_shapes
    assert shapes is not None
    for size in (1, 2):
        given = padded(graph, shapes, [np.ones(size, np.float32)])
        said = shapes.broken(graph.outputs, evaluate_graph(graph, given, OPERATORS))
        assert ("Expand" in said) == (size > 1)


def test_what_is_padded_beside_an_open_axis_is_no_gather_and_ends_at_its_size() -> None:
    text = '(float[n,8] x) => (float[n,a] y) <int64[4] p = {0,2,0,1}> { y = Pad<mode="reflect">(x, p) }'
    assert [node.op for node in opened(model_of(f"m {text}"), ONE).graph.nodes if node.op != "Identity"] == [
        "Pad",
        "PadBeyond",
    ]


def test_pads_that_sizes_say_are_known_through_what_pytorch_writes_to_reverse_them() -> None:
    text = (
        "(float[2,n] x) => (float[2,k] y) <int64[1] zero = {0}, int64[1] one = {1}, int64[2] pairs = {-1, 2},"
        " int64[1] last = {-1}, int64[1] past = {-9223372036854775807}>"
        "{ s = Shape<start=1>(x) d = Sub(s, one) e = Expand(d, one) p = Concat<axis=0>(zero, e, zero, zero)"
        " r = Reshape(p, pairs) t = Slice(r, last, past, zero, last) u = Transpose<perm=[1,0]>(t)"
        " v = Reshape(u, last) y = Pad(x, v) }"
    )
    model = model_of(f"m {text}")
    loaded = opened(model, {"n": (2, 9)})
    assert loaded.open_shapes is not None
    assert not loaded.open_shapes.limits
    assert agree_at(loaded, model, {"n": 5})[0].shape == (2, 9)


@pytest.mark.parametrize("text", [ABSOLUTE, RELATIVE])
def test_what_reshapes_pads_and_slices_move_one_after_another_is_one_gather(text: str) -> None:
    nodes = opened(model_of(f"m {text}"), {"n": (2, 9)}).graph.nodes
    assert [node.op for node in nodes].count("Gather") == 1

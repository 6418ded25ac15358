"""Operators whose result has the shape of an input, with open axes: what the model bound to the sizes gives."""

from __future__ import annotations

from itertools import product

import pytest
from onnx import parser

from compiler.errors import UnsupportedModel
from tests.compiler.frontend.open.at_sizes import Ranges, agree_at, opened

BOTH = {"n": (1, 4), "m": (1, 5)}
MODELS: dict[str, tuple[str, Ranges]] = {
    "RandomNormalLike": ("(float[n,3,m] x) => (float[n,3,m] y) { y = RandomNormalLike<seed=3.0>(x) }", BOTH),
    "RandomNormalLike in double": ("(double[n,m] x) => (double[n,m] y) { y = RandomNormalLike(x) }", BOTH),
    "RandomNormalLike of rows": ("(float[n,3] x) => (float[n,3] y) { y = RandomNormalLike(x) }", {"n": (2, 6)}),
    "RandomUniformLike": ("(float[n,m] x) => (float[n,m] y) { y = RandomUniformLike<low=2.0, high=4.0>(x) }", BOTH),
    "Bernoulli": ("(float[n,m] x) => (float[n,m] y) { s = Sigmoid(x) y = Bernoulli(s) }", BOTH),
    "Multinomial": ("(float[n,4] x) => (int32[n,6] y) { y = Multinomial<sample_size=6>(x) }", {"n": (1, 4)}),
    "Dropout that trains": (
        "(float[n,m] x) => (float[n,m] y, bool[n,m] z) <float r={0.5}, bool t={1}> { y, z = Dropout(x, r, t) }",
        BOTH,
    ),
    "Dropout": ("(float[n,m] x) => (float[n,m] y, bool[n,m] z) { y, z = Dropout(x) }", BOTH),
    "EyeLike": ("(float[n,m] x) => (float[n,m] y) { y = EyeLike<k=1>(x) }", BOTH),
    "EyeLike of a type": ("(float[n,m] x) => (int64[n,m] y) { y = EyeLike<k=-2, dtype=7>(x) }", BOTH),
    "CumProd": ("(float[n,m] x) => (float[n,m] y) <int64 a={1}> { y = CumProd<exclusive=1>(x, a) }", BOTH),
    "CumProd backwards": ("(float[n,m] x) => (float[n,m] y) <int64 a={1}> { y = CumProd<reverse=1>(x, a) }", BOTH),
    "CumSum backwards": (
        "(float[n,m] x) => (float[n,m] y) <int64 a={1}> { y = CumSum<reverse=1, exclusive=1>(x, a) }",
        BOTH,
    ),
    "LpNormalization": ("(float[n,m] x) => (float[n,m] y) { y = LpNormalization<axis=1, p=1>(x) }", BOTH),
    "LRN": ("(float[1,n,m,3] x) => (float[1,n,m,3] y) { y = LRN<size=3>(x) }", {"n": (1, 7), "m": (1, 5)}),
    "MeanVarianceNormalization": (
        "(float[2,3,n,m] x) => (float[2,3,n,m] y) { y = MeanVarianceNormalization(x) }",
        {"n": (2, 7), "m": (1, 5)},
    ),
    "RMSNormalization": (
        "(float[2,n,4] x, float[4] w) => (float[2,n,4] y) { y = RMSNormalization<axis=-1>(x, w) }",
        {"n": (1, 7)},
    ),
    "RMSNormalization along it": (
        "(float[2,3,n] x, float[n] w) => (float[2,3,n] y) { y = RMSNormalization<axis=-1>(x, w) }",
        {"n": (1, 7)},
    ),
    "LayerNormalization with its means": (
        "(float[2,3,n] x, float[n] w) => (float[2,3,n] y, float[2,3,1] u, float[2,3,1] v)"
        " { y, u, v = LayerNormalization<axis=-1>(x, w) }",
        {"n": (2, 7)},
    ),
    "SpaceToDepth": (
        "(float[1,2,n,m] x) => (float[1,8,a,b] y) { y = SpaceToDepth<blocksize=2>(x) }",
        {"n": (1, 8), "m": (2, 6)},
    ),
}


def model_of(text: str) -> bytes:
    """In the newest opset."""
    return bytes(parser.parse_model(f'<ir_version: 10, opset_import: ["" : 26]> m {text}').SerializeToString())


@pytest.mark.parametrize("name", MODELS)
def test_it_gives_what_the_model_bound_to_its_sizes_gives(name: str) -> None:
    """Random numbers too: each follows from its place among the real ones."""
    text, ranges = MODELS[name]
    model = model_of(text)
    loaded = opened(model, ranges)
    assert loaded.open_shapes is not None
    each = [
        [(one.name, size) for size in range(one.low, one.high + 1, one.step) if size % one.step == 0]
        for one in loaded.open_shapes.dimensions
    ]
    for sizes in product(*each):
        agree_at(loaded, model, dict(sizes), near=1e-6)


def test_sizes_of_blocks_are_whole_multiples() -> None:
    loaded = opened(model_of(MODELS["SpaceToDepth"][0]), {"n": (1, 9), "m": (2, 6)})
    assert loaded.open_shapes is not None
    assert {(one.name, one.low, one.high, one.step) for one in loaded.open_shapes.dimensions} == {
        ("n", 2, 8, 2),
        ("m", 2, 6, 2),
    }
    assert "dimension 'n' must be a multiple of 2" in loaded.notices


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("(float[n,m] x) => (int32[n,6] y) { y = Multinomial<sample_size=6>(x) }", "the number of classes is open"),
        ("(float[2,n] x) => (float[a] y) { y = Det(x) }", "no rule"),
        (
            "(float[2,n,3,4] x, float[2] s) => (float[2,n,3,4] y) { y = GroupNormalization<num_groups=2>(x, s, s) }",
            "GroupNormalization",
        ),
    ],
)
def test_what_no_body_mends_keeps_its_own_reason(text: str, said: str) -> None:
    with pytest.raises(UnsupportedModel) as caught:
        opened(model_of(text), BOTH if "m]" in text else {"n": (2, 4)})
    (refusal,) = caught.value.refusals
    assert said in str(refusal)

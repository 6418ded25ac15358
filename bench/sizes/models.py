"""Small models with one open dimension, `n`, in ONNX's text form; inputs whose names begin with `w` become weights."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from onnx import ModelProto, numpy_helper, parser

HEADER = '<ir_version: 10, opset_import: ["" : 21]>'

LINEAR = "(float[n,768] x, float[768,3072] w, float[3072] wb) => (float[n,3072] y) { h = MatMul(x, w) b = Add(h, wb) "

MODELS: Mapping[str, tuple[int, str]] = {
    "linear": (512, LINEAR + "y = Gelu(b) }"),
    "linear without gelu": (512, LINEAR + "y = Relu(b) }"),
    "layer norm": (
        512,
        "(float[n,768] x, float[768] wg, float[768] wb) => (float[n,768] y) { y = LayerNormalization(x, wg, wb) }",
    ),
    "attention": (
        512,
        "(float[12,n,64] q, float[12,64,n] k, float[12,n,64] v) => (float[12,n,64] y) <float c = {0.125}>"
        "{ s = MatMul(q, k) m = Mul(s, c) p = Softmax(m) y = MatMul(p, v) }",
    ),
    "block": (
        512,
        "(float[1,n,256] x, float[256,256] wq, float[256,256] wk, float[256,256] wv, float[256,256] wo, float[256] wc,"
        " float[256] wg, float[256] wb, float[256,1024] wu, float[1024] wub, float[1024,256] wd, float[256] wdb)"
        " => (float[1,n,256] y)"
        " <int64[4] heads = {0, 0, 4, 64}, int64[3] flat = {0, 0, -1}, float c = {0.125}>"
        "{ q = MatMul(x, wq) k = MatMul(x, wk) v = MatMul(x, wv)"
        " qh = Reshape(q, heads) kh = Reshape(k, heads) vh = Reshape(v, heads)"
        " qt = Transpose<perm=[0,2,1,3]>(qh) kt = Transpose<perm=[0,2,3,1]>(kh) vt = Transpose<perm=[0,2,1,3]>(vh)"
        " s = MatMul(qt, kt) m = Mul(s, c) p = Softmax(m) o = MatMul(p, vt) ot = Transpose<perm=[0,2,1,3]>(o)"
        " of = Reshape(ot, flat) u = MatMul(of, wo) ub = Add(u, wc) r = Add(ub, x) l = LayerNormalization(r, wg, wb)"
        " h = MatMul(l, wu) hb = Add(h, wub) g = Gelu(hb) d = MatMul(g, wd) db = Add(d, wdb) y = Add(db, l) }",
    ),
    "convolutions": (
        64,
        "(float[1,16,n,n] x, float[64,16,3,3] w, float[64] wb, float[64,64,3,3] wc, float[64] wd)"
        " => (float[1,64,n,n] y)"
        "{ a = Conv<pads=[1,1,1,1]>(x, w, wb) r = Relu(a) c = Conv<pads=[1,1,1,1]>(r, wc, wd) y = Relu(c) }",
    ),
}
"""By name: the capacity, and the graph."""


def model_of(text: str) -> ModelProto:
    """The model, with seeded numbers for its weights."""
    model = parser.parse_model(f"{HEADER} g {text}")
    random = np.random.default_rng(0)
    weights = [value for value in model.graph.input if value.name.startswith("w")]
    for value in weights:
        dims = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        array = (random.normal(size=dims) / max(dims[0], 1) ** 0.5).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(array, value.name))
        model.graph.input.remove(value)
    return model

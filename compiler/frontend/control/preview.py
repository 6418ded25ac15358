"""FlexAttention of ai.onnx.preview: attention whose scores and probabilities pass through bodies of the model's own."""

from __future__ import annotations

import math

import numpy as np

from compiler.frontend.control.bodies import part, run_body
from compiler.frontend.control.unroll import Walk
from compiler.frontend.reading.model import AttrValue, Body, Call, Expansion
from compiler.frontend.reading.tensors import CODES, DTYPES
from compiler.frontend.scope import REFUSED, Scope
from compiler.ir.tensor import DType, TensorType
from compiler.ops.operator import Unsupported

Ids = tuple[int | None, ...]
AGAIN = "export the model again"
FLEX_ATTENTION = "ai.onnx.preview::FlexAttention"
ATTRIBUTES = frozenset(("prob_mod", "scale", "score_mod", "softmax_precision"))


def flex_attention(walk: Walk, call: Call, ids: Ids, scope: Scope) -> Ids:
    """prob_mod(softmax(score_mod(scale Q K^T))) V for Q [B, Hq, L, E], K [B, H, S, E], V [B, H, S, F]; Hq = G H.

    As in ONNX's reference Q and K are multiplied by the root of the scale, and what comes after their product is
    computed in `softmax_precision`.
    """
    if len(ids) != 3 or None in ids or len(call.outputs) != 1 or call.attrs.keys() - ATTRIBUTES:
        raise Unsupported("its inputs, outputs or attributes are not those of the operator", AGAIN)
    q, k, v = (walk.values.type(id) for id in ids if id is not None)
    groups = _groups(q, k, v)
    wide = _precision(call, q.dtype)
    scale = call.attrs.get("scale", 1 / math.sqrt(q.dims[3]))
    if not isinstance(scale, float) or scale < 0:
        raise Unsupported(f"its scale is {scale!r:.40}", AGAIN)
    root = np.array(np.sqrt(np.float32(scale)), q.dtype.numpy)
    split = np.array([q.dims[0], k.dims[1], groups, q.dims[2], q.dims[3]], np.int64)
    lone = np.array([2], np.int64)
    scores = np.array([*q.dims[:3], k.dims[2]], np.int64)
    to_scores = (
        Call("Mul", ("q", "root"), ("q scaled",)),
        Call("Mul", ("k", "root"), ("k scaled",)),
        Call("Reshape", ("q scaled", "split"), ("q split",)),
        Call("Transpose", ("k scaled",), ("k across",), {"perm": (0, 1, 3, 2)}),
        Call("Unsqueeze", ("k across", "lone"), ("k lone",)),
        Call("MatMul", ("q split", "k lone"), ("products",)),
        Call("Reshape", ("products", "whole"), ("flat",)),
        Call("Cast", ("flat",), ("y",), {"to": CODES[wide]}),
    )
    constants = {"root": root, "split": split, "lone": lone, "whole": scores}
    found = part(walk, call, scope, ids[:2], Expansion(("q", "k"), ("y",), to_scores, constants))
    found = _modified(walk, call, scope, "score_mod", found)
    softmax = Call("Softmax", ("x",), ("y",), {"axis": -1})
    found = part(walk, call, scope, (found,), Expansion(("x",), ("y",), (softmax,)))
    found = _modified(walk, call, scope, "prob_mod", found)
    to_result = (
        Call("Reshape", ("p", "split"), ("p split",)),
        Call("Cast", ("v",), ("v wide",), {"to": CODES[wide]}),
        Call("Unsqueeze", ("v wide", "lone"), ("v lone",)),
        Call("MatMul", ("p split", "v lone"), ("products",)),
        Call("Reshape", ("products", "whole"), ("flat",)),
        Call("Cast", ("flat",), ("y",), {"to": CODES[v.dtype]}),
    )
    split = np.array([q.dims[0], k.dims[1], groups, q.dims[2], k.dims[2]], np.int64)
    whole = np.array([*q.dims[:3], v.dims[3]], np.int64)
    constants = {"split": split, "lone": lone, "whole": whole}
    return (part(walk, call, scope, (found, ids[2]), Expansion(("p", "v"), ("y",), to_result, constants)),)


def _groups(q: TensorType, k: TensorType, v: TensorType) -> int:
    """How many heads of queries share one of keys and values. Raises Unsupported where the shapes do not fit."""
    ranks = q.rank == k.rank == v.rank == 4
    if not ranks or k.dims[:3] != v.dims[:3] or (q.dims[0], q.dims[3]) != (k.dims[0], k.dims[3]):
        raise Unsupported(f"{q}, {k} and {v} do not fit together", AGAIN)
    if not k.dims[1] or q.dims[1] % k.dims[1]:
        raise Unsupported(f"{q.dims[1]} heads of queries are no multiple of {k.dims[1]} heads of keys", AGAIN)
    return q.dims[1] // k.dims[1]


def _precision(call: Call, own: DType) -> DType:
    code = call.attrs.get("softmax_precision")
    wide = DType.F64 if own is DType.F64 else DType.F32
    found = wide if code is None else DTYPES.get(code) if isinstance(code, int) else None
    if found is None or not found.is_float or found.is_small:
        raise Unsupported(f"softmax_precision is {code!r:.40}", "use a type from float16 to double")
    return found


def _modified(walk: Walk, call: Call, scope: Scope, name: str, id: int | None) -> int | None:
    """A value after the body of that name; itself where there is none."""
    body: AttrValue | None = call.attrs.get(name)
    if body is None or id in (None, REFUSED):
        return id
    if not isinstance(body, Body) or (len(body.inputs), len(body.outputs)) != (1, 1):
        raise Unsupported(f"its {name} is no graph of one input and one output", AGAIN)
    (found,) = run_body(walk, call, body, scope, name, (id,))
    if found in (None, REFUSED):
        return REFUSED
    assert found is not None
    assert id is not None
    if walk.values.type(found) != walk.values.type(id):
        raise Unsupported(f"its {name} gives {walk.values.type(found)} for {walk.values.type(id)}", AGAIN)
    return found

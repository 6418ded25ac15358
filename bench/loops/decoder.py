"""A greedy decoder as exporters write it: a Loop around one step of a transformer, which ends at a token.

Its caches have a fixed capacity, of which each step writes one row, and what lies behind the step is masked; or each
step appends a row to them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

node, info = helper.make_node, helper.make_tensor_value_info
F32, I64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def greedy_decoder(
    width: int,
    heads: int,
    layers: int,
    words: int,
    steps: int,
    *,
    end: int = -1,
    seed: int = 0,
    wider: int = 4,
    growing: bool = False,
) -> bytes:
    """Input `start` [1] (i64), a token; output `tokens` [n, 1] (i64), up to `steps` of them.

    It ends after the token `end`. `growing`: caches begin empty, and each step appends to them. Weights are random.
    """
    chance = np.random.default_rng(seed)
    each = width // heads
    held: dict[str, Any] = {}
    calls = []

    def weight(name: str, *shape: int, scale: float | None = None) -> str:
        held[name] = (chance.standard_normal(shape) * (scale or shape[0] ** -0.5)).astype(np.float32)
        return name

    def call(op: str, inputs: list[str], output: str, **attrs: Any) -> str:
        calls.append(node(op, inputs, [output], **attrs))
        return output

    weight("embedding", words, width, scale=1.0)
    weight("positions", steps, width, scale=0.3)
    held |= {name: np.array(shape, np.int64) for name, shape in (("front", [0]), ("row_of", [1, heads, each]))}
    held |= {"heads_of": np.array([heads, 1, each], np.int64), "flat": np.array([1, width], np.int64)}
    held |= {"scale": np.float32(each**-0.5), "masked": np.float32(-1e9), "seen": np.float32(0)}
    held |= {"places": np.arange(steps, dtype=np.int64), "end": np.int64(end), "most": np.int64(steps)}
    held |= {
        "gamma": np.ones(width, np.float32),
        "beta": np.zeros(width, np.float32),
        "second": np.array([1], np.int64),
    }
    call("Gather", ["embedding", "token"], "embedded", axis=0)
    call("Gather", ["positions", "step"], "place", axis=0)
    state = call("Add", ["embedded", "place"], "state")
    call("LessOrEqual", ["places", "step"], "is_seen")
    call("Where", ["is_seen", "seen", "masked"], "mask")
    call("Unsqueeze", ["step", "front"], "steps_1")
    call("Unsqueeze", ["steps_1", "second"], "row")
    caches = [f"{part}_cache_{layer}" for layer in range(layers) for part in "kv"]
    for layer in range(layers):
        own = str(layer)
        call("LayerNormalization", [state, "gamma", "beta"], "n" + own, axis=-1)
        for part in "qkv":
            call("MatMul", ["n" + own, weight(f"w{part}{own}", width, width)], part + own)
        call("Reshape", ["q" + own, "heads_of"], "query" + own)
        for part in "kv":
            call("Reshape", [part + own, "row_of"], f"{part}_row_{own}")
            old, new = f"{part}_cache_{own}", f"{part}_new_{own}"
            if growing:
                call("Concat", [old, f"{part}_row_{own}"], new, axis=0)
            else:
                call("ScatterND", [old, "row", f"{part}_row_{own}"], new)
        call("Transpose", [f"k_new_{own}"], "keys" + own, perm=[1, 2, 0])
        call("Transpose", [f"v_new_{own}"], "values" + own, perm=[1, 0, 2])
        call("MatMul", ["query" + own, "keys" + own], "scores" + own)
        call("Mul", ["scores" + own, "scale"], "scaled" + own)
        scores = "scaled" + own
        if not growing:
            scores = call("Add", [scores, "mask"], "masked" + own)
        call("Softmax", [scores], "shares" + own, axis=-1)
        call("MatMul", ["shares" + own, "values" + own], "mixed" + own)
        call("Reshape", ["mixed" + own, "flat"], "joined" + own)
        call("MatMul", ["joined" + own, weight("wo" + own, width, width)], "attended" + own)
        middle = call("Add", [state, "attended" + own], "middle" + own)
        call("LayerNormalization", [middle, "gamma", "beta"], "m" + own, axis=-1)
        call("MatMul", ["m" + own, weight("up" + own, width, wider * width)], "wide" + own)
        call("Gelu", ["wide" + own], "active" + own)
        call("MatMul", ["active" + own, weight("down" + own, wider * width, width)], "narrow" + own)
        state = call("Add", [middle, "narrow" + own], "after" + own)
    call("LayerNormalization", [state, "gamma", "beta"], "last_state", axis=-1)
    call("MatMul", ["last_state", weight("head", width, words)], "logits")
    call("ArgMax", ["logits"], "next", axis=-1, keepdims=0)
    call("Identity", ["next"], "word")
    call("Squeeze", ["next", "front"], "found")
    call("Equal", ["found", "end"], "is_end")
    call("Not", ["is_end"], "again")
    cache: list[int | str] = ["rows" if growing else steps, heads, each]
    longer: list[int | str] = ["more" if growing else steps, heads, each]
    given = [info("step", I64, []), info("on", BOOL, []), info("token", I64, [1])]
    given += [info(name, F32, cache) for name in caches]
    made = [info("again", BOOL, []), info("next", I64, [1])]
    made += [info(name.replace("cache", "new"), F32, longer) for name in caches]
    body = helper.make_graph(calls, "step", given, [*made, info("word", I64, [1])])
    held |= {"on": np.array(True), "empty": np.zeros((0 if growing else steps, heads, each), np.float32)}
    lasts = [f"last_{place}" for place in range(1 + len(caches))]
    loop = node("Loop", ["most", "on", "start", *["empty"] * len(caches)], [*lasts, "tokens"], body=body)
    constants = [numpy_helper.from_array(np.asarray(array), name) for name, array in held.items()]
    graph = helper.make_graph([loop], "g", [info("start", I64, [1])], [info("tokens", I64, ["n", 1])], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    return bytes(model.SerializeToString())

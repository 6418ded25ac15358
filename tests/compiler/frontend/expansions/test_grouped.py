"""GroupQueryAttention and RotaryEmbedding of decoders, beside ONNX Runtime."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from compiler.contract import CompileOptions
from compiler.fuse import fuse
from compiler.pack.loader import Model
from compiler.rewrite import rewrite
from tests.compiler.frontend.one_node import agree, by_onnxruntime, computed, graph_of, model_of, refusal
from tests.compiling import compile_file

MS = "com.microsoft"
Arrays = list[np.ndarray | None]
HEADS, SHARED, WIDTH = 4, 2, 32
ATTRS = {"num_heads": HEADS, "kv_num_heads": SHARED}
TURN = {**ATTRS, "do_rotary": 1}


def normal(*shape: int, seed: int = 3) -> np.ndarray:
    return np.random.default_rng((seed, *shape)).standard_normal(shape).astype(np.float32)


def tables(half: int = WIDTH // 2) -> Arrays:
    angles = np.arange(32)[:, None] / 10.0 ** (np.arange(half)[None] / half * 2)
    return [np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)]


def inputs(new: int, past: int | None, lengths: list[int], packed: bool = False, total: int | None = None) -> Arrays:
    """Of rows of so many tokens in all, of which `new` are new; the cache has `past` places."""
    batch = len(lengths)
    q, k, v = (normal(batch, new, heads * WIDTH, seed=heads + at) for at, heads in enumerate((HEADS, SHARED, SHARED)))
    qkv: Arrays = [np.concatenate([q, k, v], axis=2), None, None] if packed else [q, k, v]
    cache: Arrays = [None if past is None else normal(batch, SHARED, past, WIDTH, seed=seed) for seed in (7, 8)]
    counts = np.array(lengths, np.int32) - 1, np.array(total or max(lengths), np.int32)
    return [*qkv, *cache, *counts]


CASES: dict[str, tuple[Arrays, Mapping[str, Any]]] = {
    "a prompt": (inputs(5, None, [5, 5]), ATTRS),
    "a prompt that turns": ([*inputs(5, None, [5, 5]), *tables()], TURN),
    "a prompt in pairs": ([*inputs(5, None, [5, 5]), *tables()], {**TURN, "rotary_interleaved": 1}),
    "a prompt beside each other": ([*inputs(5, None, [5, 5], packed=True), *tables()], TURN),
    "a token": ([*inputs(1, 6, [7, 7]), *tables()], TURN),
    "a token of rows of their own length": ([*inputs(1, 6, [7, 4]), *tables()], TURN),
    "a token beside each other": ([*inputs(1, 6, [7, 3], packed=True), *tables()], TURN),
    "some tokens of one row": ([*inputs(3, 6, [9]), *tables()], TURN),
    "a half of each head turns": ([*inputs(1, 6, [7, 5]), *tables(8)], TURN),
    "a window": ([*inputs(1, 6, [7, 5]), *tables()], {**TURN, "local_window_size": 3}),
    "a prompt in a window": (inputs(6, None, [6]), {**ATTRS, "local_window_size": 2}),
    "a softcap and a scale": (inputs(4, None, [4]), {**ATTRS, "softcap": 1.5, "scale": 0.7}),
    "a smooth softmax": (inputs(4, None, [4]), {**ATTRS, "smooth_softmax": 1}),
    "sinks": ([*inputs(1, 3, [4]), *[None] * 4, normal(HEADS)], ATTRS),
    "a bias": ([*inputs(1, 3, [4, 4]), None, None, None, normal(1, HEADS, 1, 4)], ATTRS),
    "positions": ([*inputs(2, 3, [5]), *tables(), np.array([[9, 11]])], TURN),
}


@pytest.mark.parametrize("name", CASES)
def test_it_is_what_onnxruntime_computes(name: str) -> None:
    arrays, attrs = CASES[name]
    same(arrays, attrs, constants=[6])


def test_a_cache_of_fixed_size_keeps_it_and_the_count_may_be_data() -> None:
    found = same([*inputs(1, 12, [7, 4]), *tables()], TURN)
    assert found[1].shape == (2, SHARED, 12, WIDTH)


@pytest.mark.parametrize("name", ["plain", "softcap", "smooth", "sinks", "bias"])
@pytest.mark.parametrize(("new", "past"), [(1, 6), (3, 6)])
def test_a_cache_is_written_in_one_pass_and_never_for_all_heads_of_queries(name: str, new: int, past: int) -> None:
    arrays = inputs(new, past, [past + new])
    more: Mapping[str, Any] = {"softcap": {"softcap": 2.0}, "smooth": {"smooth_softmax": 1}}
    attrs = {**ATTRS, **more.get(name, {})}
    if name == "sinks":
        arrays += [*[None] * 4, normal(HEADS)]
    if name == "bias":
        arrays += [None, None, None, normal(1, HEADS, new, past + new)]
    graph = graph_of(model_of("GroupQueryAttention", arrays, attrs, 3, MS, constants=[6]))
    kernels = fuse(rewrite(graph).graph).kernels
    written = [kernels.buffers[id].type.elements for call in kernels.calls for id in call.outputs]
    cache = SHARED * (past + new) * WIDTH
    assert written.count(cache) == 2, str(kernels)
    assert max(written) == cache, str(kernels)


@pytest.mark.parametrize(("new", "past"), [(1, 6), (5, 4), (12, None)])
def test_sinks_in_a_window_are_compiled(new: int, past: int | None, tmp_path: Path) -> None:
    """Of a token, of rows that few queries have, and of a prompt."""
    arrays = [*inputs(new, past, [new + (past or 0)]), None, None, None, normal(1, HEADS, new, new + (past or 0))]
    arrays.append(normal(HEADS, seed=11))
    attrs = {**ATTRS, "local_window_size": 4, "softcap": 3.0}
    path, artifact = tmp_path / "model.onnx", tmp_path / "model.tw"
    path.write_bytes(model_of("GroupQueryAttention", arrays, attrs, 3, MS, constants=[6]))
    compile_file(path, artifact, CompileOptions.from_json({"threads": 1, "tuning_budget_s": 0}))
    feeds = {f"x{at}": array for at, array in enumerate(arrays) if array is not None and at != 6}
    with Model(artifact) as compiled:
        found = compiled.run(feeds)
    wanted = by_onnxruntime("GroupQueryAttention", arrays, attrs, 3, MS, constants=[6])
    for ours, theirs in zip(found.values(), wanted, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


def test_a_bias_of_all_heads_is_one_of_each() -> None:
    bias = normal(1, 1, 2, 5)
    for_all, each = (
        computed("GroupQueryAttention", [*inputs(2, 3, [5, 5]), None, None, None, one], ATTRS, 3, MS, constants=[6])
        for one in (bias, np.repeat(bias, HEADS, axis=1))
    )
    np.testing.assert_array_equal(for_all[0], each[0])


def same(arrays: Arrays, attrs: Mapping[str, Any], **named: Any) -> list[np.ndarray]:
    """Demands ONNX Runtime's outputs; of a cache as far as there are tokens, for it holds zeros past them."""
    found = computed("GroupQueryAttention", arrays, attrs, 3, MS, **named)
    wanted = by_onnxruntime("GroupQueryAttention", arrays, attrs, 3, MS, **named)
    assert arrays[5] is not None
    for place, (ours, theirs) in enumerate(zip(found, wanted, strict=True)):
        assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
        for row, last in enumerate(arrays[5].tolist()):
            part = (row, slice(None), slice(last + 1)) if place else (row,)
            np.testing.assert_allclose(ours[part], theirs[part], rtol=1e-5, atol=1e-6)
    return found


def test_a_prompt_padded_at_its_end_is_right_where_tokens_are() -> None:
    arrays = [*inputs(5, None, [5, 3]), *tables()]
    found = computed("GroupQueryAttention", arrays, TURN, 3, MS, constants=[6])[0]
    wanted = by_onnxruntime("GroupQueryAttention", arrays, TURN, 3, MS, constants=[6])[0]
    np.testing.assert_allclose(found[0], wanted[0], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found[1, :3], wanted[1, :3], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("arrays", "attrs", "constants", "reason"),
    [
        (inputs(5, None, [5]), ATTRS, (), "'total_sequence_length' must be known"),
        (inputs(5, None, [5]), {**ATTRS, "kv_num_heads": 3}, (6,), "no multiple of 3"),
        (inputs(5, None, [5]), {**ATTRS, "num_heads": 6}, (6,), "holds no 6 heads"),
        ([*inputs(5, None, [5]), *[None] * 5, normal(1)], ATTRS, (6,), "its cache is quantised"),
        ([*inputs(1, 3, [4]), *tables(17)], TURN, (6,), "do not fit together"),
    ],
)
def test_what_does_not_fit_is_refused(
    arrays: Arrays, attrs: Mapping[str, Any], constants: tuple[int, ...], reason: str
) -> None:
    assert reason in refusal("GroupQueryAttention", arrays, attrs, 3, MS, constants=constants).reason


@pytest.mark.parametrize("pairs", [0, 1])
def test_part_of_each_head_is_rotated(pairs: int) -> None:
    attrs = {"num_heads": 2, "rotary_embedding_dim": 8, "interleaved": pairs}
    x = normal(2, 5, 32)
    (found,) = agree("RotaryEmbedding", [x, np.arange(5)[None].repeat(2, 0), *tables(4)], attrs, 1, MS)
    np.testing.assert_array_equal(found.reshape(2, 5, 2, 16)[..., 8:], x.reshape(2, 5, 2, 16)[..., 8:])


def test_a_layer_of_a_decoder_is_compiled_as_exporters_write_it(tmp_path: Path) -> None:
    """Lengths come from the mask: the last token's position is its sum, the count of tokens its shape."""
    nodes = [
        helper.make_node("ReduceSum", ["mask", "one"], ["sum"], keepdims=1),
        helper.make_node("Sub", ["sum", "one"], ["last"]),
        helper.make_node("Cast", ["last"], ["seqlens"], to=TensorProto.INT32),
        helper.make_node("Shape", ["mask"], ["shape"]),
        helper.make_node("Gather", ["shape", "one"], ["count"]),
        helper.make_node("Cast", ["count"], ["total"], to=TensorProto.INT32),
        helper.make_node(
            "GroupQueryAttention",
            ["x", "", "", "key", "value", "seqlens", "total", "cos", "sin"],
            ["y", "present_key", "present_value"],
            domain=MS,
            num_heads=HEADS,
            kv_num_heads=SHARED,
            do_rotary=1,
        ),
    ]
    cos, sin = tables()
    constants = {"one": np.array([1]), "cos": cos, "sin": sin}
    cache = normal(1, SHARED, 6, WIDTH)
    feeds = {
        "x": normal(1, 1, (HEADS + 2 * SHARED) * WIDTH),
        "mask": np.ones((1, 7), np.int64),
        "key": cache,
        "value": cache + 1,
    }
    inputs = [  # where its shape is known, ONNX Runtime refuses a count that is cast
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(array.dtype), [1, "tokens"] if name == "mask" else array.shape
        )
        for name, array in feeds.items()
    ]
    outputs = [onnx.ValueInfoProto(name=name) for name in ("y", "present_key", "present_value")]
    weights = [onnx.numpy_helper.from_array(array, name) for name, array in constants.items() if array is not None]
    graph = helper.make_graph(nodes, "g", inputs, outputs, weights)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid(MS, 1)]
    path, artifact = tmp_path / "model.onnx", tmp_path / "model.tw"
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
    options = CompileOptions.from_json({"threads": 1, "tuning_budget_s": 0, "inputs": {"mask": [1, 7]}})
    compile_file(path, artifact, options)
    with Model(artifact) as model:
        found = model.run(feeds)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    for (name, ours), theirs in zip(found.items(), session.run(None, feeds), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5, err_msg=name)

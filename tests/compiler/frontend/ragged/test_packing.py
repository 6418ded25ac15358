"""Packed texts against the same texts one by one, and the models that do not keep texts apart."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.texts.encoder import INPUTS, Encoder
from compiler.codegen.calls import workload_of
from compiler.contract import CompileOptions
from compiler.devices.cpu.algorithms.attention import attention_tiles
from compiler.devices.cpu.attention.cuts import TEXT_QUERIES
from compiler.devices.cpu.target import resolve
from compiler.errors import OptionsError, UnsupportedModel
from compiler.forms.attention import as_attention
from compiler.frontend.ragged import Texts, load_texts
from compiler.fuse import fuse
from compiler.ops import OPERATORS
from compiler.preflight import preflight
from compiler.prove.reference import evaluate_graph
from compiler.prove.sizes import cut, padded
from compiler.rewrite.rewrite import rewrite

LONGEST, MOST = 12, 5
RAGGED = dict.fromkeys(INPUTS, 1)


def packed(model: bytes, **options: Any) -> Texts:
    given = {"dims": {"batch": MOST, "sequence": LONGEST}, "ragged": RAGGED, **options}
    return load_texts(model, CompileOptions(**given), OPERATORS)


def pooled(pool: Callable[[Encoder], dict[str, str]], layers: int = 1) -> bytes:
    encoder = Encoder()
    for _ in range(layers):
        encoder.layer()
    return encoder.finish(**pool(encoder))


def first(encoder: Encoder) -> dict[str, str]:
    state = encoder("Gather", encoder.x, encoder.constant(np.array(0)), axis=1)
    return {"states": encoder.x, "pooled": encoder("Tanh", encoder("Gemm", state, encoder.weights(16, 3)))}


def sliced(encoder: Encoder) -> dict[str, str]:
    ends = [encoder.numbers([one]) for one in (-1, 2**31, 1)]
    last = encoder("Slice", encoder.x, *ends)
    return {"last": encoder("Squeeze", last, encoder.numbers([1]))}


def reduced(op: str, keepdims: int) -> Callable[[Encoder], dict[str, str]]:
    def pool(encoder: Encoder) -> dict[str, str]:
        return {"y": encoder(op, encoder.x, encoder.numbers([1]), keepdims=keepdims)}

    return pool


def wide(encoder: Encoder) -> dict[str, str]:
    """A mean over tokens and elements together."""
    return {"y": encoder("ReduceMean", encoder.x, encoder.numbers([1, 2]), keepdims=0)}


def counted(exclusive: int, reverse: int) -> Callable[[Encoder], dict[str, str]]:
    def pool(encoder: Encoder) -> dict[str, str]:
        many = encoder("CumSum", "input_ids", encoder.constant(np.array(1)), exclusive=exclusive, reverse=reverse)
        return {"counts": encoder("Unsqueeze", encoder("Cast", many, to=1), encoder.numbers([2]))}

    return pool


POOLS = {
    "states": lambda encoder: {"states": encoder.x},
    "mean": lambda encoder: {"embedding": encoder.mean()},
    "first": first,
    "last": sliced,
    "wide": wide,
    "counted": counted(0, 0),
    "counted before": counted(1, 0),
    "counted behind": counted(0, 1),
    "counted after": counted(1, 1),
    **{
        op: reduced(op, at % 2)
        for at, op in enumerate(("ReduceMean", "ReduceMax", "ReduceMin", "ReduceL2", "ReduceSum"))
    },
}


def masked(how: str) -> bytes:
    """A layer whose tokens see those before them, by a mask as exporters write it, and the last token's state."""
    encoder = Encoder()
    places = encoder(
        "Range", encoder.constant(np.array(0)), encoder("Squeeze", encoder.length), encoder.constant(np.array(1))
    )
    later = encoder("Less", encoder("Unsqueeze", places, encoder.numbers([1])), places)
    low = encoder.number(float(np.finfo(np.float32).min))
    if how == "where":
        encoder.layer(hide=lambda scores: encoder("Where", encoder("Not", later), scores, low))
    elif how == "where not":
        encoder.layer(hide=lambda scores: encoder("Where", later, low, scores))
    else:
        bias = encoder("Where", later, low, encoder.number(0.0))
        bias = encoder(
            "Expand",
            encoder("Unsqueeze", bias, encoder.numbers([0, 1])),
            encoder("Concat", encoder.batch, encoder.numbers([1, 1, 1]), axis=0),
        )
        encoder.layer(hide=lambda scores: encoder("Max", encoder("Add", scores, bias), low))
    return encoder.finish(states=encoder.x, **sliced(encoder))


def roberta() -> bytes:
    """Positions are counted from the tokens that are not padding (Liu et al. 2019, as exporters write it)."""
    encoder = Encoder(counted=1)
    encoder.layer()
    return encoder.finish(states=encoder.x, embedding=encoder.mean())


def modern(most: int, is_table: bool) -> bytes:
    """Layers that see a window, and all, in turn, with rotary positions (ModernBERT, Warner et al. 2024)."""
    encoder = Encoder()
    turn, near = encoder.turned(is_table), encoder.local(most)
    for hide in (near, None):
        encoder.layer(hide=hide, turn=turn)
    return encoder.finish(states=encoder.x, embedding=encoder.mean())


def between(make: Callable[[Encoder, str], str]) -> bytes:
    """A layer to whose scores is added what `make` makes of the distances from keys to queries."""
    encoder = Encoder()
    ends = encoder.constant(np.array(0)), encoder("Squeeze", encoder.length), encoder.constant(np.array(1))
    places = encoder("Cast", encoder("Range", *ends), to=1)
    bias = make(encoder, encoder("Sub", encoder("Unsqueeze", places, encoder.numbers([1])), places))
    encoder.layer(hide=lambda scores: encoder("Add", scores, bias))
    return encoder.finish(y=encoder.x)


def hidden(encoder: Encoder, condition: str, low: float = -1e9) -> str:
    return encoder("Where", condition, encoder.number(low), encoder.number(0.0))


BETWEEN: dict[str, Callable[[Encoder, str], str]] = {
    "distance": lambda e, distance: distance,
    "distance by head": lambda e, distance: e("Mul", e("Abs", distance), e.weights(2, 1, 1)),
    "earlier alone": lambda e, distance: hidden(e, e("LessOrEqual", distance, e.number(0.0))),
    "one later": lambda e, distance: hidden(e, e("Less", distance, e.number(-1.0))),
    "window": lambda e, distance: hidden(e, e("Greater", e("Abs", distance), e.number(3.0))),
    "window within a window": lambda e, distance: e(
        "Add",
        hidden(e, e("Greater", distance, e.number(4.0)), -1e30),
        hidden(e, e("Less", distance, e.number(-2.0)), -1e30),
    ),
    "low": lambda e, distance: hidden(e, e("Less", distance, e.number(0.0)), -100.0),
}


MODELS = {name: packed(pooled(pool)) for name, pool in POOLS.items()}
MODELS |= {f"causal {how}": packed(masked(how)) for how in ("where", "where not", "add")}
MODELS |= {f"bias of {name}": packed(between(make)) for name, make in BETWEEN.items()}
MODELS |= {f"modern of {most}": packed(modern(most, is_table)) for most, is_table in ((2, False), (LONGEST - 2, True))}
MODELS["roberta"] = packed(roberta())


def outputs(texts: Texts, lengths: list[int], seed: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Of the packed graph, each beside that of the texts one by one, in float64."""
    random, tokens = np.random.default_rng(seed), sum(lengths)
    inputs = [random.integers(0, most, tokens) for most in (50, 2)]
    alone = texts.alone(lengths)
    wanted = evaluate_graph(alone, dict(zip(alone.inputs, inputs, strict=True)), OPERATORS)
    graph, shapes = texts.loaded.graph, texts.loaded.open_shapes
    assert shapes is not None
    given = padded(graph, shapes, [*inputs, np.cumsum([0, *lengths], dtype=np.int64)])
    found = evaluate_graph(graph, given, OPERATORS)
    assert not shapes.broken(graph.outputs, found)
    return [*zip(cut(graph, shapes, found), (wanted[id] for id in alone.outputs), strict=True)]


@pytest.mark.parametrize("name", MODELS)
@given(lengths=st.lists(st.integers(1, LONGEST), min_size=1, max_size=MOST), seed=st.integers(0, 99))
@settings(max_examples=12, deadline=None)
def test_each_text_has_the_result_that_it_has_alone(name: str, lengths: list[int], seed: int) -> None:
    each = outputs(MODELS[name], lengths, seed)
    assert each
    for found, wanted in each:
        assert found.shape == wanted.shape
        np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [
        ("bias of window", 3, 3),
        ("bias of window within a window", 4, 2),
        ("bias of one later", LONGEST, 1),
        ("causal add", LONGEST, 0),
        ("modern of 2", 2, 2),
        ("modern of 10", 10, 10),
        ("mean", LONGEST, LONGEST),
    ],
)
def test_the_keys_of_a_query_end_with_its_window(name: str, low: int, high: int) -> None:
    graph, shapes = MODELS[name].loaded.graph, MODELS[name].loaded.open_shapes
    assert shapes is not None
    tokens, starts = np.zeros(21, np.int64), [0, 12, 21]
    scores = next(node.used[0] for node in graph.nodes if node.op == "Softmax")
    ends = graph.producer[scores].used[1:]
    asked = replace(graph, outputs=(*graph.outputs, *ends))
    values = evaluate_graph(asked, padded(graph, shapes, [tokens, tokens, np.array(starts)]), OPERATORS)
    begin, end = (values[id].ravel()[:21] for id in ends)
    places, first, past = np.arange(21), np.repeat([0, 12], [12, 9]), np.repeat([12, 21], [12, 9])
    np.testing.assert_array_equal(begin, np.maximum(first, places - low))
    np.testing.assert_array_equal(end, np.minimum(past, places + high + 1))
    assert not any(node.op == "Toeplitz" for node in graph.nodes)


def test_masks_are_gone_and_offsets_are_beside_the_tokens() -> None:
    graph, shapes = MODELS["mean"].loaded.graph, MODELS["mean"].loaded.open_shapes
    assert shapes is not None
    named = [(graph.values[id].name, graph.type(id).dims) for id in graph.inputs[: len(shapes.inputs)]]
    tokens = (LONGEST * MOST,)
    assert named == [("input_ids", tokens), ("token_type_ids", tokens), ("offsets", (MOST + 1,))]
    assert [(one.name, one.low, one.high) for one in shapes.dimensions] == [("tokens", 1, 60), ("offsets", 2, 6)]
    assert MODELS["mean"].loaded.notices == ("'attention_mask' is taken as ones: texts are not padded",)


@pytest.mark.parametrize("name", ["mean", "first"])
def test_rows_of_products_end_with_the_tokens(name: str) -> None:
    """Else a run of one text would compute as many rows as there may be tokens."""
    texts = MODELS[name]
    graph, size = texts.loaded.graph, texts.loaded.graph.inputs[3]
    ended = 0
    for node in graph.nodes:
        if node.op == "MatMul" and graph.type(node.outputs[0]).dims.count(texts.tokens) == 1:
            assert [(one.op, one.inputs[1]) for one in graph.readers[node.outputs[0]]] == [("PadBeyond", size)]
            ended += 1
    assert ended == 7


@pytest.mark.parametrize(
    ("offsets", "said"),
    [
        ([0, 3, 3, 9], ""),
        ([0, 3, 9, 9], ""),
        ([1, 3, 9], "the place where the first text begins: 1"),
        ([0, 3, 8], "tokens that offsets leave out: 1"),
        ([0, 5, 3, 9], "tokens that offsets leave out"),
        ([0, 20, 9], "tokens of the longest text: 20"),
    ],
)
def test_offsets_that_are_none_are_found_while_running(offsets: list[int], said: str) -> None:
    texts = MODELS["states"]
    graph, shapes = texts.loaded.graph, texts.loaded.open_shapes
    assert shapes is not None
    tokens = np.zeros(9, np.int64)
    values = evaluate_graph(graph, padded(graph, shapes, [tokens, tokens, np.array(offsets)]), OPERATORS)
    found = shapes.broken(graph.outputs, values)
    assert found.startswith(said)
    assert bool(found) == bool(said)


def test_a_text_that_is_too_long_is_found_while_running() -> None:
    texts = MODELS["states"]
    graph, shapes = texts.loaded.graph, texts.loaded.open_shapes
    assert shapes is not None
    tokens = np.zeros(LONGEST + 2, np.int64)
    values = evaluate_graph(graph, padded(graph, shapes, [tokens, tokens, np.array([0, LONGEST + 1, 14])]), OPERATORS)
    assert shapes.broken(graph.outputs, values) == f"tokens of the longest text: {LONGEST + 1}"


def mixes(make: Callable[[Encoder], str]) -> bytes:
    encoder = Encoder()
    return encoder.finish(y=make(encoder))


REFUSED: dict[str, Callable[[Encoder], str]] = {
    "CumSum": lambda e: e("CumSum", e.x, e.constant(np.array(1))),
    "Sub": lambda e: e("Sub", e.x, e("ReduceMean", e.x, e.numbers([1]), keepdims=1)),
    "Softmax": lambda e: e("Softmax", e.x, axis=1),
    "ReduceMax": lambda e: e("ReduceMax", e.x, e.numbers([0]), keepdims=0),
    "MatMul": lambda e: e("MatMul", e("Transpose", e.x, perm=[0, 2, 1]), e.x),
    "Gather": lambda e: e("Gather", e.x, e.constant(np.array(1)), axis=1),
    "Slice": lambda e: e("Slice", e.x, e.numbers([1]), e.numbers([4]), e.numbers([1])),
    "Slice_": lambda e: e("Slice", e.x, *(e.numbers([one]) for one in (-1, -(2**31), 1, -1))),
    "Concat": lambda e: e("Concat", e.x, e.x, axis=1),
    "Conv": lambda e: e("Conv", e("Transpose", e.x, perm=[0, 2, 1]), e.weights(16, 16, 3), pads=[1, 1]),
    "LayerNormalization": lambda e: e("LayerNormalization", e.x, e.weights(1, 16), axis=1),
}


@pytest.mark.parametrize("op", REFUSED)
def test_a_node_that_mixes_tokens_is_refused_by_name(op: str) -> None:
    with pytest.raises(UnsupportedModel) as error:
        packed(mixes(REFUSED[op])).loaded  # noqa: B018
    assert any(one.operator == op.strip("_") and one.node.startswith(one.operator) for one in error.value.refusals)


def test_a_bias_of_two_positions_that_is_none_of_their_distance_is_refused() -> None:
    with pytest.raises(UnsupportedModel) as error:
        packed(between(lambda e, distance: e("CumSum", distance, e.constant(np.array(0))))).loaded  # noqa: B018
    assert "each two positions" in error.value.refusals[0].reason


@pytest.mark.parametrize("op", ["Abs", "Softplus", "CumSum"])
def test_scores_of_a_masked_attention_that_no_softmax_reads_are_refused(op: str) -> None:
    encoder = Encoder()
    ends = encoder.constant(np.array(0)), encoder("Squeeze", encoder.length), encoder.constant(np.array(1))
    places = encoder("Range", *ends)
    bias = hidden(encoder, encoder("Less", encoder("Unsqueeze", places, encoder.numbers([1])), places))
    axes = [encoder.constant(np.array(-1))] if op == "CumSum" else []
    encoder.layer(hide=lambda scores: encoder(op, encoder("Add", scores, bias), *axes))
    with pytest.raises(UnsupportedModel) as error:
        packed(encoder.finish(y=encoder.x)).loaded  # noqa: B018
    assert "masked attention" in error.value.refusals[0].reason
    assert error.value.refusals[0].operator == op


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"ragged": {"ids": 1}}, "which is no input"),
        ({"ragged": {"input_ids": 2}}, "says axis 2"),
        ({"ragged": {"attention_mask": 1}}, "masks alone"),
        ({"dims": {"batch": 2}}, "do not say how many tokens"),
    ],
)
def test_options_that_do_not_fit_the_model_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(OptionsError, match=said):
        packed(pooled(POOLS["states"]), **options)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"target": "cuda:sm_90"}, "applies to one CPU"),
        ({"devices": ["cpu:0", "cpu:1"]}, "applies to one CPU"),
        ({"last_only": ["y"]}, "last_only exclude"),
        ({"precision": "int8"}, "precision int8 exclude"),
        ({"dims": {"sequence": {"min": 1, "max": 9}}}, "dims with ranges"),
        ({"dims": {"sequence": [8, 16]}}, "dims with ranges"),
    ],
)
def test_options_that_exclude_each_other_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(OptionsError, match=said):
        CompileOptions(**{"ragged": RAGGED, **options})


def test_preflight_says_whether_texts_can_share_an_axis(tmp_path: Path) -> None:
    file = tmp_path / "model.onnx"
    file.write_bytes(pooled(POOLS["mean"]))
    notices = preflight(file, CompileOptions())["notices"]
    assert [one for one in notices if one.startswith("its texts can share") and '"attention_mask": 1' in one]
    asked = CompileOptions(dims={"batch": MOST, "sequence": LONGEST}, ragged=RAGGED)
    assert preflight(file, asked)["ok"]
    file.write_bytes(mixes(REFUSED["CumSum"]))
    (said,) = [one for one in preflight(file, CompileOptions())["notices"] if "share an axis" in one]
    assert said.startswith("its texts cannot share an axis of tokens: CumSum")
    answer = preflight(file, asked)
    assert not answer["ok"]
    assert [one["operator"] for one in answer["refusals"]] == ["CumSum"]


def test_of_all_layers_nothing_is_stored_behind_the_tokens_but_what_is_pooled() -> None:
    graph = rewrite(packed(pooled(lambda encoder: {"y": encoder.mean()}, layers=2)).loaded.graph).graph
    kernels = fuse(graph).kernels
    made = [kernels.buffers[id] for call in kernels.calls for id in call.outputs]
    of_tokens = [one for one in made if one.type.dtype.is_float and one.type.rank > 2 and one.type.dims[1] > MOST]
    assert len(of_tokens) > 14
    assert [one.unread for one in of_tokens] == [True] * (len(of_tokens) - 1) + [False]


def test_attention_is_taken_for_that_of_usual_texts() -> None:
    """Not for one of all tokens with each other, sixty times as many: narrow panels then read least of other texts."""
    target = resolve("cpu:x86-64-v4")
    texts = packed(pooled(POOLS["states"]), dims={"batch": 64, "sequence": 40})
    kernels = fuse(rewrite(texts.loaded.graph).graph).kernels
    (call,) = [call for call in kernels.calls if as_attention(call.kernel)]
    best = attention_tiles(workload_of(kernels, call), target, 1)[0]
    assert best.tile.extent("register", "n") == target.vector_floats
    assert best.tile.extent("block", "m") == TEXT_QUERIES

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto

from bench.zoo import ZOO, BadOption, NoSuchNetwork, build, entry, gflop

TINY = [e.name for e in ZOO if e.name.startswith("tiny_")]
QUICK = ["squeezenet1_0", "squeezenet1_1", "mobilenet_v2", "mobilenet_v3_large", "shufflenet_v2", "vit_tiny"]
QUICK += ["nasnet_a_mobile", "randwire_small", "efficientnet_b0", "densenet121", "resnet18", "inception_v3"]
REST = [e.name for e in ZOO if e.name not in (*TINY, *QUICK)]
EACH = [*TINY, *QUICK, *(pytest.param(name, marks=pytest.mark.slow) for name in REST)]

MEASURED_BY_PEERS = {
    "inception_v3": 11.43,
    "squeezenet1_0": 2.37,
    "squeezenet1_1": 0.698,
    "resnet18": 3.63,
    "resnet50": 8.18,
    "resnext50_32x4d": 8.46,
    "densenet121": 5.67,
    "nasnet_a_mobile": 1.14,
    "randwire_small": 1.16,
    "mobilenet_v2": 0.602,
    "mobilenet_v3_large": 0.433,
    "efficientnet_b0": 0.772,
    "shufflenet_v2": 0.290,
    "convnext_tiny": 8.91,
    "vit_tiny": 2.51,
    "yolov3_tiny": 5.57,
}
"""GFLOP of the models that the peers' published times are for."""

PUBLISHED_PARAMETERS = {
    "squeezenet1_1": 1_235_496,
    "inception_v3": 23_834_568,
    "resnet18": 11_689_512,
    "resnet50": 25_557_032,
    "resnext50_32x4d": 25_028_904,
    "densenet121": 7_978_856,
    "mobilenet_v2": 3_504_872,
    "mobilenet_v3_large": 5_483_032,
    "efficientnet_b0": 5_288_548,
    "shufflenet_v2": 2_278_604,
    "nasnet_a_mobile": 5_289_978,
    "nasnet_a_large": 88_753_150,
    "vit_tiny": 5_717_416,
    "vit_base": 86_567_656,
    "convnext_tiny": 28_589_128,
    "bert_base": 109_482_240,
}
"""Trained parameters of the reference implementations: torchvision, timm, pretrained-models, transformers."""

UNTRAINED = ("bn.mean", "bn.var", "clip", "scalar", "state", "lowest", "scales")


def digest(model: onnx.ModelProto) -> str:
    return hashlib.sha256(model.SerializeToString(deterministic=True)).hexdigest()


def trained_parameters(model: onnx.ModelProto) -> int:
    return sum(
        math.prod(tensor.dims)
        for tensor in model.graph.initializer
        if tensor.data_type == TensorProto.FLOAT and not tensor.name.startswith(UNTRAINED)
    )


def opened(model: bytes) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def outputs(session: onnxruntime.InferenceSession, seed: int) -> list[Any]:
    rng = np.random.default_rng(seed)
    feeds: dict[str, Any] = {}
    for value in session.get_inputs():
        if value.type == "tensor(int64)":
            feeds[value.name] = rng.integers(0, 2 if "mask" in value.name or "type" in value.name else 64, value.shape)
        else:
            feeds[value.name] = rng.standard_normal(value.shape, dtype=np.float32)
    return list(session.run(None, feeds))


def run(model: onnx.ModelProto, seed: int) -> list[Any]:
    return outputs(opened(model.SerializeToString()), seed)


@dataclass(frozen=True)
class Network:
    """A network of the zoo, built and serialised once for the tests that every one goes through."""

    name: str
    model: onnx.ModelProto
    serialised: bytes


@pytest.fixture(scope="module", params=EACH)
def network(request: pytest.FixtureRequest) -> Network:
    model = build(request.param)
    return Network(request.param, model, model.SerializeToString())


def test_a_network_is_a_valid_static_model_of_the_published_size(network: Network) -> None:
    name, model = network.name, network.model
    stated = entry(name)
    # The full check infers every shape again and compares it with the one the builder stated.
    onnx.checker.check_model(network.serialised, full_check=True)
    inputs = tuple((v.name, tuple(d.dim_value for d in v.type.tensor_type.shape.dim)) for v in model.graph.input)
    assert inputs == stated.inputs
    assert [(o.domain, o.version) for o in model.opset_import] == [("", 17)]
    work = gflop(model)
    assert work == pytest.approx(stated.gflop, rel=1e-3)
    assert work == pytest.approx(MEASURED_BY_PEERS.get(name, work), rel=0.015)
    assert trained_parameters(model) == PUBLISHED_PARAMETERS.get(name, trained_parameters(model))


def test_every_network_that_peers_were_measured_on_is_in_the_zoo() -> None:
    names = [e.name for e in ZOO]
    assert len(set(names)) == len(names)
    assert MEASURED_BY_PEERS.keys() | PUBLISHED_PARAMETERS.keys() <= set(names)


def test_the_captioners_decoder_alone_is_the_recurrent_model_of_the_peers() -> None:
    model = build("densenet_lstm_captioner", encoder=False)
    assert gflop(model) == pytest.approx(0.918, rel=0.005)


@pytest.mark.parametrize("name", TINY)
def test_a_tiny_network_weighs_less_than_200_kilobytes(name: str) -> None:
    assert len(build(name).SerializeToString()) < 200_000


@pytest.mark.parametrize("name", [*TINY, "squeezenet1_1", "mobilenet_v2", "nasnet_a_mobile"])
def test_the_same_seed_gives_the_same_bytes_and_another_seed_others(name: str) -> None:
    first = digest(build(name, seed=3))
    assert digest(build(name, seed=3)) == first
    assert digest(build(name, seed=4)) != first


def test_outputs_are_finite_of_order_one_and_depend_on_the_input(network: Network) -> None:
    session = opened(network.serialised)
    found = zip(network.model.graph.output, outputs(session, 1), outputs(session, 2), strict=True)
    for output, one, other in found:
        assert np.isfinite(one).all()
        if output.name == "words":
            continue  # two noise images may well have one caption; their scores differ below
        if output.name == "probabilities":
            assert not np.array_equal(one, other)
            continue
        assert 0.05 < one.std() < 20, output.name
        assert np.abs(one - other).mean() > 0.003 * one.std(), output.name


@pytest.mark.parametrize("name", ["squeezenet1_0", "resnet18", "mobilenet_v2", "shufflenet_v2", "densenet121"])
def test_activations_stay_near_one_through_the_depth(name: str) -> None:
    model = build(name, size=64)
    final = [v.name for v in model.graph.output]
    model.graph.output.extend(v for v in model.graph.value_info)
    deep = run(model, 1)[len(final) :]
    sizes = [float(np.sqrt(np.mean(np.square(value, dtype=np.float64)))) for value in deep]
    assert min(sizes) > 0.03
    assert max(sizes) < 30


def test_size_options_change_the_shapes() -> None:
    model = build("bert_base", seq=8, blocks=1, width=64, vocabulary=64)
    assert [d.dim_value for d in model.graph.output[0].type.tensor_type.shape.dim] == [1, 8, 64]
    onnx.checker.check_model(model, full_check=True)
    assert [value.shape for value in run(model, 1)] == [(1, 8, 64), (1, 64)]


def test_gpt2_predictions_do_not_see_later_tokens() -> None:
    model = build("gpt2_small", seq=8, blocks=2, width=64, vocabulary=64)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    ids = np.arange(8, dtype=np.int64)[None]
    changed = ids.copy()
    changed[0, -1] = 50
    (before,), (after,) = session.run(None, {"input_ids": ids}), session.run(None, {"input_ids": changed})
    np.testing.assert_allclose(before[:, :-1], after[:, :-1], atol=1e-5)
    assert np.abs(before[:, -1] - after[:, -1]).max() > 0.1


def test_bert_ignores_masked_tokens() -> None:
    model = build("bert_base", seq=8, blocks=1, width=64, vocabulary=64)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    feeds = {name: np.zeros((1, 8), np.int64) for name in ("input_ids", "token_type_ids")}
    feeds["attention_mask"] = np.asarray([[1, 1, 1, 1, 1, 1, 1, 0]], np.int64)
    before = session.run(None, feeds)[0]
    feeds["input_ids"] = np.asarray([[0, 0, 0, 0, 0, 0, 0, 9]], np.int64)
    after = session.run(None, feeds)[0]
    np.testing.assert_allclose(before[:, :-1], after[:, :-1], atol=1e-6)


def test_the_captioner_feeds_each_word_back() -> None:
    model = build("densenet_lstm_captioner", encoder=False, steps=3, hidden=32, vocabulary=50)
    # The features are a fixed 1024 wide, whatever the size of the state.
    words, scores = run(model, 1)
    assert words.shape == (1, 3)
    assert scores.shape == (1, 3, 50)
    np.testing.assert_array_equal(words, scores.argmax(axis=-1))


def test_a_captioner_that_carries_its_state_reads_and_makes_that_of_each_layer() -> None:
    small = {"encoder": False, "steps": 1, "hidden": 16, "vocabulary": 20, "layers": 2}
    carrying = build("densenet_lstm_captioner", carry=True, **small)
    states = ["h0", "c0", "h1", "c1"]
    assert [one.name for one in carrying.graph.input] == ["features", *states]
    assert [one.name for one in carrying.graph.output][2:] == [f"{name}_next" for name in states]
    given = {"features": np.ones((1, 1024), np.float32)}
    session = opened(carrying.SerializeToString())
    first = session.run(None, given | {name: np.zeros((1, 1, 16), np.float32) for name in states})
    second = session.run(None, given | dict(zip(states, first[2:], strict=True)))
    assert np.abs(second[1] - first[1]).max() > 1e-3


def test_an_unknown_network_is_refused_with_the_list() -> None:
    with pytest.raises(NoSuchNetwork, match="no network 'vgg' in the zoo; there are squeezenet1_0, "):
        build("vgg")


def test_an_unknown_option_is_refused_with_the_options_there_are() -> None:
    with pytest.raises(BadOption, match="bert_base has no option size; it has seq, "):
        build("bert_base", size=3)


@pytest.mark.parametrize("size", [3.5, "64", True])
def test_an_option_of_another_type_is_refused(size: object) -> None:
    with pytest.raises(BadOption, match=r"resnet18: option size is .*; give a value like its default, 224"):
        build("resnet18", size=size)


def test_an_image_too_small_for_the_network_is_refused() -> None:
    with pytest.raises(BadOption, match=r"inception_v3: a window of \(3, 3\) does not fit .*; choose a larger size"):
        build("inception_v3", size=32)

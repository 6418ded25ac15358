from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest

from bench.zoo.builder import GraphBuilder
from bench.zoo.window import Pads, same_pads, window


@pytest.mark.parametrize(
    ("size", "kernel", "stride", "pads"),
    [
        ((5, 5), 3, 1, (1, 1, 1, 1)),
        ((4, 4), 3, 2, (0, 0, 1, 1)),
        ((5, 5), 3, 2, (1, 1, 1, 1)),
        ((112, 112), 7, 2, (2, 2, 3, 3)),
        ((56, 55), 5, 2, (1, 2, 2, 2)),
        ((4, 4), 1, 2, (0, 0, 0, 0)),
    ],
)
def test_same_padding_puts_the_odd_pixel_at_the_end(
    size: tuple[int, int], kernel: int, stride: int, pads: Pads
) -> None:
    assert same_pads(size, kernel, stride) == pads
    assert window(size, (kernel, kernel), (stride, stride), pads) == (-(-size[0] // stride), -(-size[1] // stride))


@pytest.mark.parametrize(("size", "pad"), [(5, 0), (6, 0), (7, 0), (6, 1), (7, 1), (8, 1)])
def test_ceil_mode_pooling_has_the_shape_that_onnx_runtime_gives(size: int, pad: int) -> None:
    g = GraphBuilder("pool")
    pooled = g.max_pool(g.input("x", (1, 1, size, size)), 3, 2, pad, ceil=True)
    g.output("y", pooled)
    session = onnxruntime.InferenceSession(g.finish().SerializeToString(), providers=["CPUExecutionProvider"])
    assert session.run(None, {"x": np.zeros((1, 1, size, size), np.float32)})[0].shape == pooled.shape


def test_the_estimated_moments_are_those_of_the_values() -> None:
    g = GraphBuilder("chain", seed=1)
    x = g.input("x", (1, 32, 32, 32))
    for _ in range(4):
        x = g.relu(g.bn(g.conv(x, 128, 3)))
    last = g.conv(x, 128, 3)
    g.output("y", last)
    session = onnxruntime.InferenceSession(g.finish().SerializeToString(), providers=["CPUExecutionProvider"])
    y = session.run(None, {"x": np.random.default_rng(0).standard_normal((1, 32, 32, 32), dtype=np.float32)})[0]
    assert last.moments.power / 2 < float(np.mean(np.square(y))) < last.moments.power * 2


def test_gelu_and_its_tanh_form_agree_with_their_formulas() -> None:
    g = GraphBuilder("gelu")
    x = g.input("x", (1, 101))
    g.output("exact", g.gelu(x))
    g.output("approximate", g.gelu_tanh(x))
    session = onnxruntime.InferenceSession(g.finish().SerializeToString(), providers=["CPUExecutionProvider"])
    values = np.linspace(-4, 4, 101, dtype=np.float32)[None]
    exact, approximate = session.run(None, {"x": values})
    np.testing.assert_allclose(exact, approximate, atol=1e-3)
    assert exact[0, 50] == 0
    np.testing.assert_allclose(exact[0, [0, 100]], [-0.000127, 3.999873], atol=1e-5)


def test_outputs_keep_their_given_names_even_when_read_again() -> None:
    g = GraphBuilder("names")
    first = g.relu(g.input("x", (1, 4)))
    g.output("first", first)
    g.output("second", g.scale(first, 2.0))
    model = g.finish()
    onnx.checker.check_model(model, full_check=True)
    assert [v.name for v in model.graph.output] == ["first", "second"]
    assert model.graph.node[1].input[0] == "first"

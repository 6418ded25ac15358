"""A network of two branches with its reference outputs: what tests of the CUDA host code run on the double."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

from compiler.devices.cuda.target import resolve
from compiler.fuse import fuse
from tests.compiler.devices.cuda.artifact_on_double import Outcome
from tests.compiler.networks import Network, graph_of
from tests.cuda_double.double import MODES

H200 = resolve("cuda:sm_90")
RANDOM = MODES[4]


def branches() -> onnx.ModelProto:
    """An image through two branches that are joined, pooled and classified; a second output from the middle."""
    net = Network()
    x = net.input(1, 3, 8, 8)
    trunk = net.node("Relu", [net.node("Conv", [x, net.weight(8, 3, 3, 3)], (1, 8, 8, 8), pads=[1] * 4)], (1, 8, 8, 8))
    left = net.node("Conv", [trunk, net.weight(4, 8, 1, 1), net.weight(4)], (1, 4, 8, 8))
    right = net.node("MaxPool", [trunk], (1, 8, 8, 8), kernel_shape=[3, 3], pads=[1] * 4, strides=[1, 1])
    both = net.node("Concat", [left, right], (1, 12, 8, 8), axis=1)
    pooled = net.node("AveragePool", [both], (1, 12, 2, 2), kernel_shape=[4, 4], strides=[4, 4])
    flat = net.node("Reshape", [pooled, net.constant(np.array([1, -1]))], (1, 48))
    logits = net.node("Gemm", [flat, net.weight(48, 10), net.weight(10)], (1, 10))
    return net.model([logits, right])


MODEL = branches()
KERNELS = fuse(graph_of(MODEL)).kernels
IMAGE = np.random.default_rng(1).standard_normal((1, 3, 8, 8)).astype(np.float32)
INPUTS = {"x0": IMAGE}
WANTED: Mapping[str, np.ndarray] = dict(
    zip((output.name for output in MODEL.graph.output), [*ReferenceEvaluator(MODEL).run(None, INPUTS)], strict=True)
)
LOGITS, MIDDLE = list(WANTED)


def assert_right(outcome: Outcome, wanted: Mapping[str, np.ndarray] = WANTED) -> None:
    assert not outcome.error, outcome.error
    assert not outcome.fault, outcome.fault
    assert outcome.left == {}
    for name, want in wanted.items():
        np.testing.assert_allclose(outcome.outputs[name], want, rtol=2e-5, atol=2e-5, err_msg=name)


def functions(outcome: Outcome) -> list[str]:
    return [call.split()[0] for call in outcome.calls]

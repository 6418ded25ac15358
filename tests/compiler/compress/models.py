"""A small convolutional network with correlated channels, so that pruning has something to make up for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx

from tests.compiler.quantize.models import Drawn


def cnn() -> onnx.ModelProto:
    """Two convolutions between a stem and a head, one of them depthwise beside them, and classes."""
    d = Drawn(3)
    d.node("Conv", ["x", d.weights("w0", 16, 3, 3, 3), d.weights("b0", 16)], "c0", "stem", pads=[1] * 4)
    d.node("Relu", ["c0"], "r0")
    d.node("Conv", ["r0", d.weights("w1", 32, 16, 3, 3), d.weights("b1", 32)], "c1", "middle", pads=[1] * 4)
    d.node("Relu", ["c1"], "r1")
    d.node("Conv", ["r1", d.weights("wd", 32, 1, 3, 3)], "d1", "depthwise", group=32, pads=[1] * 4)
    d.node("Conv", ["d1", d.weights("w2", 64, 32, 1, 1), d.weights("b2", 64)], "c2", "pointwise", strides=[2, 2])
    d.node("Relu", ["c2"], "r2")
    d.node("Flatten", [d.node("GlobalAveragePool", ["r2"], "gap")], "flat")
    d.node("Gemm", ["flat", d.weights("w3", 64, 64), d.weights("b3", 64)], "g3", "hidden", transB=1)
    d.node("Gemm", [d.node("Relu", ["g3"], "r3"), d.weights("w4", 10, 64), d.weights("b4", 10)], "y", "head", transB=1)
    return d.model({"x": (1, 3, 12, 12)}, {"y": (1, 10)})


def samples(path: Path, count: int = 8) -> Path:
    """An archive of smooth images, whose pixels are correlated as those of real ones are."""
    drawn = np.random.default_rng(1).normal(size=(count, 1, 3, 12, 12))
    for axis in (-1, -2):
        drawn = drawn + np.roll(drawn, 1, axis) + np.roll(drawn, 2, axis)
    np.savez(path, x=drawn.astype(np.float32))
    return path

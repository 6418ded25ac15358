"""Ten kernels of well-known networks, each a model of one operator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import onnx

from bench.zoo.builder import GraphBuilder, Value


@dataclass(frozen=True)
class Sample:
    """One operator on one input of a shape."""

    name: str
    shape: tuple[int, ...]
    operator: Callable[[GraphBuilder, Value], Value]


SAMPLES: tuple[Sample, ...] = (
    Sample("conv3x3_64_56", (1, 64, 56, 56), lambda g, x: g.conv(x, 64, 3)),
    Sample("conv3x3_128_28", (1, 128, 28, 28), lambda g, x: g.conv(x, 128, 3)),
    Sample("conv3x3_256_14", (1, 256, 14, 14), lambda g, x: g.conv(x, 256, 3)),
    Sample("conv3x3_512_7", (1, 512, 7, 7), lambda g, x: g.conv(x, 512, 3)),
    Sample("conv3x3s2_128_28", (1, 64, 56, 56), lambda g, x: g.conv(x, 128, 3, 2)),
    Sample("conv7x7s2_64_112", (1, 3, 224, 224), lambda g, x: g.conv(x, 64, 7, 2)),
    Sample("conv1x7_192_17", (1, 192, 17, 17), lambda g, x: g.conv(x, 192, (1, 7))),
    Sample("conv1x1_256_14", (1, 1024, 14, 14), lambda g, x: g.conv(x, 256, 1)),
    Sample("depthwise3x3_144_56", (1, 144, 56, 56), lambda g, x: g.conv(x, 144, 3, groups=144)),
    Sample("matmul_197_768_3072", (197, 768), lambda g, x: g.dense(x, 3072, bias=False)),
)
"""Of ResNet-18 and -50, Inception V3, MobileNet V2 and ViT-Base."""


def model_of(sample: Sample) -> onnx.ModelProto:
    """A sample as a model of one operator."""
    builder = GraphBuilder(sample.name)
    builder.output("y", sample.operator(builder, builder.input("x", sample.shape)))
    return builder.finish()

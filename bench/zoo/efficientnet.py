"""EfficientNet-B0 (Tan and Le 2019, arXiv 1905.11946, Table 1)."""

from __future__ import annotations

from bench.zoo.builder import GraphBuilder, Value

STAGES = (
    (1, 3, 1, 16, 1),
    (6, 3, 2, 24, 2),
    (6, 5, 2, 40, 2),
    (6, 3, 2, 80, 3),
    (6, 5, 1, 112, 3),
    (6, 5, 2, 192, 4),
    (6, 3, 1, 320, 1),
)
"""Expansion, kernel, stride of the first, channels, repeats."""


def efficientnet_b0(g: GraphBuilder, *, size: int = 224) -> None:
    """Swish as Sigmoid and Mul, squeeze-and-excite in every block."""
    x = g.silu(g.bn(g.conv(g.input("image", (1, 3, size, size)), 32, 3, 2)))
    for expansion, kernel, stride, channels, repeats in STAGES:
        for i in range(repeats):
            x = _block(g, x, expansion, kernel, 1 if i else stride, channels)
    x = g.silu(g.bn(g.conv(x, 1280, 1)))
    g.output("logits", g.gemm(g.flatten(g.global_avg_pool(x)), 1000))


def _block(g: GraphBuilder, x: Value, expansion: int, kernel: int, stride: int, channels: int) -> Value:
    wide = x.channels * expansion
    y = x if expansion == 1 else g.silu(g.bn(g.conv(x, wide, 1)))
    y = g.silu(g.bn(g.conv(y, wide, kernel, stride, groups=wide)))
    gate = g.silu(g.conv(g.global_avg_pool(y), max(1, x.channels // 4), 1, bias=True))
    y = g.mul(y, g.sigmoid(g.conv(gate, wide, 1, bias=True, gain=1.0)))
    y = g.bn(g.conv(y, channels, 1))
    return g.add(y, x) if stride == 1 and x.channels == channels else y

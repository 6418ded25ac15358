"""MobileNet V2 (Sandler et al. 2018, arXiv 1801.04381) and V3 large (Howard et al. 2019, arXiv 1905.02244)."""

from __future__ import annotations

from collections.abc import Callable

from bench.zoo.builder import GraphBuilder, Value

V2_STAGES = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
"""Table 2: expansion, channels, repeats, stride of the first."""

V3_BLOCKS = (
    (3, 16, 16, False, False, 1),
    (3, 64, 24, False, False, 2),
    (3, 72, 24, False, False, 1),
    (5, 72, 40, True, False, 2),
    (5, 120, 40, True, False, 1),
    (5, 120, 40, True, False, 1),
    (3, 240, 80, False, True, 2),
    (3, 200, 80, False, True, 1),
    (3, 184, 80, False, True, 1),
    (3, 184, 80, False, True, 1),
    (3, 480, 112, True, True, 1),
    (3, 672, 112, True, True, 1),
    (5, 672, 160, True, True, 2),
    (5, 960, 160, True, True, 1),
    (5, 960, 160, True, True, 1),
)
"""Table 1: kernel, expanded channels, channels, squeeze-and-excite, hard swish (else ReLU), stride."""


def mobilenet_v2(g: GraphBuilder, *, size: int = 224) -> None:
    """Width 1.0."""
    g.output("logits", mobilenet_v2_logits(g, g.input("image", (1, 3, size, size))))


def mobilenet_v2_logits(g: GraphBuilder, x: Value) -> Value:
    """[1, 3, H, W] -> [1, 1000]."""
    x = g.relu6(g.bn(g.conv(x, 32, 3, 2)))
    for expansion, channels, repeats, stride in V2_STAGES:
        for i in range(repeats):
            x = _inverted(g, x, expansion * x.channels, channels, 3, 1 if i else stride, g.relu6)
    x = g.relu6(g.bn(g.conv(x, 1280, 1)))
    return g.gemm(g.flatten(g.global_avg_pool(x)), 1000)


def mobilenet_v3_large(g: GraphBuilder, *, size: int = 224) -> None:
    """Width 1.0."""
    x = g.input("image", (1, 3, size, size))
    x = g.hard_swish(g.bn(g.conv(x, 16, 3, 2), eps=1e-3))
    for kernel, expanded, channels, excite, swish, stride in V3_BLOCKS:
        x = _inverted(
            g, x, expanded, channels, kernel, stride, g.hard_swish if swish else g.relu, excite=excite, eps=1e-3
        )
    x = g.hard_swish(g.bn(g.conv(x, 960, 1), eps=1e-3))
    x = g.hard_swish(g.gemm(g.flatten(g.global_avg_pool(x)), 1280))
    g.output("logits", g.gemm(x, 1000))


def _inverted(
    g: GraphBuilder,
    x: Value,
    expanded: int,
    channels: int,
    kernel: int,
    stride: int,
    activation: Callable[[Value], Value],
    *,
    excite: bool = False,
    eps: float = 1e-5,
) -> Value:
    """Expand by 1x1 (unless already that wide), depthwise, optional squeeze-and-excite, linear 1x1, residual."""
    y = x if expanded == x.channels else activation(g.bn(g.conv(x, expanded, 1), eps))
    y = activation(g.bn(g.conv(y, expanded, kernel, stride, groups=expanded), eps))
    if excite:
        y = squeeze_excite(g, y)
    y = g.bn(g.conv(y, channels, 1), eps)
    return g.add(x, y) if stride == 1 and x.channels == channels else y


def squeeze_excite(g: GraphBuilder, x: Value) -> Value:
    """Gate of a quarter of the channels, rounded to a multiple of 8 as in the reference code."""
    quarter = x.channels // 4
    inner = max(8, (quarter + 4) // 8 * 8)
    inner = inner + 8 if inner < 0.9 * quarter else inner
    gate = g.relu(g.conv(g.global_avg_pool(x), inner, 1, bias=True))
    return g.mul(x, g.hard_sigmoid(g.conv(gate, x.channels, 1, bias=True, gain=1.0)))

"""ShuffleNet V2 x1.0 (Ma et al. 2018, arXiv 1807.11164)."""

from __future__ import annotations

from bench.zoo.builder import GraphBuilder, Value


def shufflenet_v2(g: GraphBuilder, *, size: int = 224) -> None:
    """Stages of 4-8-4 units, 116-232-464 channels, a last 1x1 convolution of 1024."""
    x = g.relu(g.bn(g.conv(g.input("image", (1, 3, size, size)), 24, 3, 2)))
    x = g.max_pool(x, 3, 2, 1)
    for units, channels in ((4, 116), (8, 232), (4, 464)):
        x = _halve(g, x, channels)
        for _ in range(units - 1):
            x = _unit(g, x)
    x = g.relu(g.bn(g.conv(x, 1024, 1)))
    g.output("logits", g.gemm(g.flatten(g.global_avg_pool(x)), 1000))


def _unit(g: GraphBuilder, x: Value) -> Value:
    """Figure 3 (c): half of the channels pass, half are convolved, then both are shuffled."""
    kept, y = g.split(x, 2)
    return channel_shuffle(g, g.concat([kept, _branch(g, y, y.channels, 1)]))


def _halve(g: GraphBuilder, x: Value, channels: int) -> Value:
    """Figure 3 (d): both branches read everything, stride 2."""
    left = g.bn(g.conv(x, x.channels, 3, 2, groups=x.channels))
    left = g.relu(g.bn(g.conv(left, channels // 2, 1)))
    return channel_shuffle(g, g.concat([left, _branch(g, x, channels // 2, 2)]))


def _branch(g: GraphBuilder, x: Value, channels: int, stride: int) -> Value:
    y = g.relu(g.bn(g.conv(x, channels, 1)))
    y = g.bn(g.conv(y, channels, 3, stride, groups=channels))
    return g.relu(g.bn(g.conv(y, channels, 1)))


def channel_shuffle(g: GraphBuilder, x: Value, groups: int = 2) -> Value:
    """Channel shuffle: Reshape to 5-D, Transpose, Reshape back."""
    n, c, h, w = x.shape
    y = g.transpose(g.reshape(x, (n, groups, c // groups, h, w)), (0, 2, 1, 3, 4))
    return g.reshape(y, (n, c, h, w))

"""ResNet-18/50 (He et al. 2015, arXiv 1512.03385) and ResNeXt-50 32x4d (Xie et al. 2016, arXiv 1611.05431)."""

from __future__ import annotations

from bench.zoo.builder import GraphBuilder, Value


def resnet18(g: GraphBuilder, *, size: int = 224) -> None:
    """Basic blocks, 2-2-2-2."""
    g.output("logits", resnet18_logits(g, g.input("image", (1, 3, size, size))))


def resnet18_logits(g: GraphBuilder, x: Value) -> Value:
    """[1, 3, H, W] -> [1, 1000]."""
    x = _stem(g, x)
    for stage, blocks in enumerate((2, 2, 2, 2)):
        for block in range(blocks):
            x = _basic(g, x, 64 << stage, 2 if stage and not block else 1)
    return _head(g, x)


def resnet50(g: GraphBuilder, *, size: int = 224) -> None:
    """Bottleneck blocks, 3-4-6-3, stride in the 3x3 (version 1.5)."""
    _bottlenecks(g, size, groups=1, width=64)


def resnext50_32x4d(g: GraphBuilder, *, size: int = 224) -> None:
    """ResNet-50 with 32 groups of width 4."""
    _bottlenecks(g, size, groups=32, width=128)


def _bottlenecks(g: GraphBuilder, size: int, groups: int, width: int) -> None:
    x = _stem(g, g.input("image", (1, 3, size, size)))
    for stage, blocks in enumerate((3, 4, 6, 3)):
        for block in range(blocks):
            x = _bottleneck(g, x, width << stage, 256 << stage, 2 if stage and not block else 1, groups)
    g.output("logits", _head(g, x))


def _stem(g: GraphBuilder, x: Value) -> Value:
    return g.max_pool(g.relu(g.bn(g.conv(x, 64, 7, 2))), 3, 2, 1)


def _head(g: GraphBuilder, x: Value) -> Value:
    return g.gemm(g.flatten(g.global_avg_pool(x)), 1000)


def _shortcut(g: GraphBuilder, x: Value, channels: int, stride: int) -> Value:
    return x if stride == 1 and x.channels == channels else g.bn(g.conv(x, channels, 1, stride))


def _basic(g: GraphBuilder, x: Value, channels: int, stride: int) -> Value:
    y = g.relu(g.bn(g.conv(x, channels, 3, stride)))
    y = g.bn(g.conv(y, channels, 3))
    return g.relu(g.add(y, _shortcut(g, x, channels, stride)))


def _bottleneck(g: GraphBuilder, x: Value, width: int, channels: int, stride: int, groups: int) -> Value:
    y = g.relu(g.bn(g.conv(x, width, 1)))
    y = g.relu(g.bn(g.conv(y, width, 3, stride, groups=groups)))
    y = g.bn(g.conv(y, channels, 1))
    return g.relu(g.add(y, _shortcut(g, x, channels, stride)))

"""DenseNet-121 (Huang et al. 2016, arXiv 1608.06993)."""

from __future__ import annotations

from bench.zoo.builder import GraphBuilder, Value


def densenet121(g: GraphBuilder, *, size: int = 224) -> None:
    """Growth 32, blocks of 6-12-24-16 layers."""
    x = densenet121_features(g, g.input("image", (1, 3, size, size)))
    g.output("logits", g.gemm(g.flatten(x), 1000))


def densenet121_features(g: GraphBuilder, x: Value) -> Value:
    """[1, 3, H, W] -> [1, 1024, 1, 1] pooled features."""
    x = g.max_pool(g.relu(g.bn(g.conv(x, 64, 7, 2))), 3, 2, 1)
    for block, layers in enumerate((6, 12, 24, 16)):
        if block:
            x = g.avg_pool(g.conv(g.relu(g.bn(x)), x.channels // 2, 1), 2, 2)
        x = _dense_block(g, x, layers)
    return g.global_avg_pool(g.relu(g.bn(x)))


def _dense_block(g: GraphBuilder, x: Value, layers: int, growth: int = 32) -> Value:
    """Each layer reads the concatenation of everything before it and adds `growth` channels."""
    features = [x]
    for _ in range(layers):
        seen = g.concat(features) if len(features) > 1 else x
        narrow = g.conv(g.relu(g.bn(seen)), 4 * growth, 1)
        features.append(g.conv(g.relu(g.bn(narrow)), growth, 3))
    return g.concat(features)

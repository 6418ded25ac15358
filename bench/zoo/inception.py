"""Inception V3 (Szegedy et al. 2015, arXiv 1512.00567, as torchvision lays it out; no auxiliary head)."""

from __future__ import annotations

from bench.zoo.builder import GraphBuilder, Value
from bench.zoo.window import Pair


def inception_v3(g: GraphBuilder, *, size: int = 299) -> None:
    """299 x 299 image to 1000 logits."""
    x = g.input("image", (1, 3, size, size))
    x = _unit(g, _unit(g, _unit(g, x, 32, 3, 2, 0), 32, 3, pad=0), 64, 3)
    x = g.max_pool(x, 3, 2)
    x = g.max_pool(_unit(g, _unit(g, x, 80, 1), 192, 3, pad=0), 3, 2)
    for pool_features in (32, 64, 64):
        x = _mixed_35(g, x, pool_features)
    x = _shrink_35(g, x)
    for width in (128, 160, 160, 192):
        x = _mixed_17(g, x, width)
    x = _shrink_17(g, x)
    x = _mixed_8(g, _mixed_8(g, x))
    g.output("logits", g.gemm(g.flatten(g.global_avg_pool(x)), 1000))


def _unit(g: GraphBuilder, x: Value, channels: int, kernel: Pair, stride: int = 1, pad: Pair | None = None) -> Value:
    return g.relu(g.bn(g.conv(x, channels, kernel, stride, pad), eps=1e-3))


def _pooled(g: GraphBuilder, x: Value, channels: int) -> Value:
    return _unit(g, g.avg_pool(x, 3, 1, 1, include_pad=True), channels, 1)


def _mixed_35(g: GraphBuilder, x: Value, pool_features: int) -> Value:
    """Figure 5: 35 x 35 cells."""
    five = _unit(g, _unit(g, x, 48, 1), 64, 5)
    double = _unit(g, _unit(g, _unit(g, x, 64, 1), 96, 3), 96, 3)
    return g.concat([_unit(g, x, 64, 1), five, double, _pooled(g, x, pool_features)])


def _shrink_35(g: GraphBuilder, x: Value) -> Value:
    """Figure 10: 35 x 35 to 17 x 17."""
    double = _unit(g, _unit(g, _unit(g, x, 64, 1), 96, 3), 96, 3, 2, 0)
    return g.concat([_unit(g, x, 384, 3, 2, 0), double, g.max_pool(x, 3, 2)])


def _mixed_17(g: GraphBuilder, x: Value, width: int) -> Value:
    """Figure 6 with n = 7: 17 x 17 cells of 1x7 and 7x1 convolutions."""
    seven = _unit(g, _unit(g, _unit(g, x, width, 1), width, (1, 7)), 192, (7, 1))
    double = _unit(g, _unit(g, _unit(g, x, width, 1), width, (7, 1)), width, (1, 7))
    double = _unit(g, _unit(g, double, width, (7, 1)), 192, (1, 7))
    return g.concat([_unit(g, x, 192, 1), seven, double, _pooled(g, x, 192)])


def _shrink_17(g: GraphBuilder, x: Value) -> Value:
    """17 x 17 to 8 x 8."""
    three = _unit(g, _unit(g, x, 192, 1), 320, 3, 2, 0)
    seven = _unit(g, _unit(g, _unit(g, x, 192, 1), 192, (1, 7)), 192, (7, 1))
    return g.concat([three, _unit(g, seven, 192, 3, 2, 0), g.max_pool(x, 3, 2)])


def _mixed_8(g: GraphBuilder, x: Value) -> Value:
    """Figure 7: 8 x 8 cells whose branches split in two."""
    three = _unit(g, x, 384, 1)
    three = g.concat([_unit(g, three, 384, (1, 3)), _unit(g, three, 384, (3, 1))])
    double = _unit(g, _unit(g, x, 448, 1), 384, 3)
    double = g.concat([_unit(g, double, 384, (1, 3)), _unit(g, double, 384, (3, 1))])
    return g.concat([_unit(g, x, 320, 1), three, double, _pooled(g, x, 192)])

"""SqueezeNet 1.0 with complex bypass and SqueezeNet 1.1 (Iandola et al. 2016, arXiv 1602.07360): no batch norm."""

from __future__ import annotations

from bench.zoo.builder import GraphBuilder, Value


def squeezenet1_0(g: GraphBuilder, *, size: int = 224, bypass: bool = True) -> None:
    """Version 1.0; with `bypass`, the complex one of section 6: a 1x1 convolution where channel counts differ."""
    x = g.input("image", (1, 3, size, size))
    # Padded by 2, so that the feature maps are 111, 55, 27 and 13 wide as in the paper's Table 1.
    x = g.max_pool(g.relu(g.conv(x, 96, 7, 2, pad=2, bias=True)), 3, 2, ceil=True)
    for squeeze, expand in ((16, 64), (16, 64), (32, 128)):
        x = _fire(g, x, squeeze, expand, bypass)
    x = g.max_pool(x, 3, 2, ceil=True)
    for squeeze, expand in ((32, 128), (48, 192), (48, 192), (64, 256)):
        x = _fire(g, x, squeeze, expand, bypass)
    x = _fire(g, g.max_pool(x, 3, 2, ceil=True), 64, 256, bypass)
    g.output("logits", _classifier(g, x))


def squeezenet1_1(g: GraphBuilder, *, size: int = 224) -> None:
    """Version 1.1: pools earlier, 2.4 times less work than 1.0."""
    g.output("logits", squeezenet1_1_logits(g, g.input("image", (1, 3, size, size))))


def squeezenet1_1_logits(g: GraphBuilder, x: Value) -> Value:
    """[1, 3, H, W] -> [1, 1000]."""
    x = g.max_pool(g.relu(g.conv(x, 64, 3, 2, pad=0, bias=True)), 3, 2, ceil=True)
    for squeeze, expand in ((16, 64), (16, 64)):
        x = _fire(g, x, squeeze, expand)
    x = g.max_pool(x, 3, 2, ceil=True)
    for squeeze, expand in ((32, 128), (32, 128)):
        x = _fire(g, x, squeeze, expand)
    x = g.max_pool(x, 3, 2, ceil=True)
    for squeeze, expand in ((48, 192), (48, 192), (64, 256), (64, 256)):
        x = _fire(g, x, squeeze, expand)
    return _classifier(g, x)


def _fire(g: GraphBuilder, x: Value, squeeze: int, expand: int, bypass: bool = False) -> Value:
    gain = 1.0 if bypass else 2.0
    s = g.relu(g.conv(x, squeeze, 1, bias=True))
    wide = g.concat([g.relu(g.conv(s, expand, kernel, bias=True, gain=gain)) for kernel in (1, 3)])
    if not bypass:
        return wide
    shortcut = x if x.channels == 2 * expand else g.conv(x, 2 * expand, 1, bias=True, gain=0.5)
    return g.add(wide, shortcut)


def _classifier(g: GraphBuilder, x: Value) -> Value:
    return g.flatten(g.global_avg_pool(g.relu(g.conv(x, 1000, 1, bias=True))))

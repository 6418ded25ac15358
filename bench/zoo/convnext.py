"""ConvNeXt tiny (Liu et al. 2022, arXiv 2201.03545)."""

from __future__ import annotations

from bench.zoo.builder import GraphBuilder, Value

EPS = 1e-6


def convnext_tiny(g: GraphBuilder, *, size: int = 224) -> None:
    """Depths 3-3-9-3, widths 96-192-384-768."""
    x = g.conv(g.input("image", (1, 3, size, size)), 96, 4, 4, pad=0, bias=True, gain=1.0)
    x = _channel_norm(g, x)
    for stage, (depth, width) in enumerate(zip((3, 3, 9, 3), (96, 192, 384, 768), strict=True)):
        if stage:
            x = g.conv(_channel_norm(g, x), width, 2, 2, pad=0, bias=True, gain=1.0)
        for _ in range(depth):
            x = _block(g, x)
    x = g.layer_norm(g.flatten(g.global_avg_pool(x)), EPS)
    g.output("logits", g.gemm(x, 1000))


def _channel_norm(g: GraphBuilder, x: Value) -> Value:
    """LayerNorm over the channels of NCHW: to NHWC and back."""
    return g.transpose(g.layer_norm(g.transpose(x, (0, 2, 3, 1)), EPS), (0, 3, 1, 2))


def _block(g: GraphBuilder, x: Value) -> Value:
    """Depthwise 7x7, LayerNorm, two dense layers in NHWC, layer scale, residual."""
    width = x.channels
    y = g.transpose(g.conv(x, width, 7, groups=width, bias=True, gain=1.0), (0, 2, 3, 1))
    y = g.gelu(g.dense(g.layer_norm(y, EPS), 4 * width))
    y = g.dense(y, width, gain=2.0)
    y = g.mul(y, g.uniform((width,), 0.2, 0.8, "layer_scale"))
    return g.add(x, g.transpose(y, (0, 3, 1, 2)))

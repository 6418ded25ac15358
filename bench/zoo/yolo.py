"""YOLOv3 tiny (Redmon and Farhadi 2018, arXiv 1804.02767): two detection heads, before box decoding."""

from __future__ import annotations

from bench.zoo.builder import GraphBuilder, Value


def yolov3_tiny(g: GraphBuilder, *, size: int = 416) -> None:
    """Outputs [1, 255, size/32, size/32] and [1, 255, size/16, size/16] (3 anchors, 80 classes)."""
    x = g.input("image", (1, 3, size, size))
    for channels in (16, 32, 64, 128):
        x = g.max_pool(_unit(g, x, channels, 3), 2, 2)
    fine = _unit(g, x, 256, 3)
    x = _unit(g, g.max_pool(fine, 2, 2), 512, 3)
    # The stride-1 pool keeps its size: one more row below and column at the right.
    x = _unit(g, g.max_pool(x, 2, 1, (0, 0, 1, 1)), 1024, 3)
    x = _unit(g, x, 256, 1)
    g.output("coarse", g.conv(_unit(g, x, 512, 3), 255, 1, bias=True, gain=1.0))
    up = g.upsample(_unit(g, x, 128, 1), 2)
    g.output("fine", g.conv(_unit(g, g.concat([up, fine]), 256, 3), 255, 1, bias=True, gain=1.0))


def _unit(g: GraphBuilder, x: Value, channels: int, kernel: int) -> Value:
    return g.leaky_relu(g.bn(g.conv(x, channels, kernel)))

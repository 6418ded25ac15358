"""NASNet-A mobile (4 @ 1056) and large (6 @ 4032) (Zoph et al. 2017, arXiv 1707.07012, cells of Figure 4).

Strides, stems and SAME padding (the odd pixel at the end) follow the authors' TensorFlow code.
"""

from __future__ import annotations

from bench.zoo.builder import GraphBuilder, Value
from bench.zoo.window import same_pads

EPS = 1e-3


def nasnet_a_mobile(g: GraphBuilder, *, size: int = 224, cells: int = 4) -> None:
    """Three stacks of `cells` normal cells, 44 filters, penultimate width 1056."""
    _nasnet(g, size, stem=32, filters=44, cells=cells, skip_reduction=False)


def nasnet_a_large(g: GraphBuilder, *, size: int = 331) -> None:
    """Three stacks of 6 normal cells, 168 filters, penultimate width 4032."""
    _nasnet(g, size, stem=96, filters=168, cells=6, skip_reduction=True)


def _nasnet(g: GraphBuilder, size: int, stem: int, filters: int, cells: int, skip_reduction: bool) -> None:
    """With `skip_reduction`, the normal cell after a reduction reads the cell that the reduction skipped over."""
    image = g.input("image", (1, 3, size, size))
    before = g.bn(g.conv(image, stem, 3, 2, pad=0), EPS)
    previous, x = before, _stem_cell(g, before, filters // 4)
    previous, x = x, _reduction_cell(g, x, before, filters // 2)
    for stack in range(3):
        width = filters << stack
        if stack:
            previous, x = previous if skip_reduction else x, _reduction_cell(g, x, previous, width)
        for _ in range(cells):
            previous, x = x, _normal_cell(g, x, previous, width)
    x = g.flatten(g.global_avg_pool(g.relu(x)))
    g.output("logits", g.gemm(x, 1000))


def _normal_cell(g: GraphBuilder, x: Value, previous: Value, width: int) -> Value:
    left, right = _fit(g, previous, x, width), _squeeze(g, x, width)
    parts = [
        left,
        g.add(_separable(g, right, width, 5), _separable(g, left, width, 3)),
        g.add(_separable(g, left, width, 5), _separable(g, left, width, 3)),
        g.add(_average(g, right), left),
        g.add(_average(g, left), _average(g, left)),
        g.add(_separable(g, right, width, 3), right),
    ]
    return g.concat(parts)


def _reduction_cell(g: GraphBuilder, x: Value, previous: Value, width: int) -> Value:
    return _reduce(g, _squeeze(g, x, width), _fit(g, previous, x, width), width)


def _stem_cell(g: GraphBuilder, x: Value, width: int) -> Value:
    """The first reduction cell: its second input is the raw stem, brought to `width` by the separable convolutions."""
    return _reduce(g, _squeeze(g, x, width), x, width)


def _reduce(g: GraphBuilder, right: Value, left: Value, width: int) -> Value:
    first = g.add(_separable(g, right, width, 5, 2), _separable(g, left, width, 7, 2))
    second = g.add(_maximum(g, right, 2), _separable(g, left, width, 7, 2))
    third = g.add(_average(g, right, 2), _separable(g, left, width, 5, 2))
    fourth = g.add(_average(g, first), second)
    fifth = g.add(_separable(g, first, width, 3), _maximum(g, right, 2))
    return g.concat([second, third, fourth, fifth])


def _squeeze(g: GraphBuilder, x: Value, width: int) -> Value:
    return g.bn(g.conv(g.relu(x), width, 1), EPS)


def _fit(g: GraphBuilder, previous: Value, x: Value, width: int) -> Value:
    """Brings the cell before last to `width` channels and to the image size of `x` (factorised reduction)."""
    if previous.shape[2:] == x.shape[2:]:
        return _squeeze(g, previous, width)
    y = g.relu(previous)
    h, w = y.shape[2:]
    shifted = g.slice(g.pad_bottom_right(y), (2, 3), (1, 1), (h + 1, w + 1))
    paths = [g.conv(g.avg_pool(path, 1, 2), width // 2, 1) for path in (y, shifted)]
    return g.bn(g.concat(paths), EPS)


def _separable(g: GraphBuilder, x: Value, width: int, kernel: int, stride: int = 1) -> Value:
    """ReLU, depthwise, pointwise, batch norm, twice; the stride is in the first depthwise convolution."""
    for step in (stride, 1):
        y = g.relu(x)
        y = g.conv(y, y.channels, kernel, step, same_pads(y.shape[2:], kernel, step), groups=y.channels, gain=1.0)
        x = g.bn(g.conv(y, width, 1), EPS)
    return x


def _average(g: GraphBuilder, x: Value, stride: int = 1) -> Value:
    return g.avg_pool(x, 3, stride, same_pads(x.shape[2:], 3, stride))


def _maximum(g: GraphBuilder, x: Value, stride: int) -> Value:
    return g.max_pool(x, 3, stride, same_pads(x.shape[2:], 3, stride))

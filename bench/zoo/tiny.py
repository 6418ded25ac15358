"""Networks below 200 kB for tests: between them every structure of the large ones, in milliseconds."""

from __future__ import annotations

from onnx import TensorProto

from bench.zoo.attention import attend, heads_of, scaled_scores
from bench.zoo.builder import GraphBuilder, Value
from bench.zoo.captioner import lstm, lstm_weights
from bench.zoo.mobilenet import squeeze_excite
from bench.zoo.shufflenet import channel_shuffle


def tiny_cnn(g: GraphBuilder, *, size: int = 32) -> None:
    """Convolutions with batch norm, two residual blocks (one with a strided shortcut), asymmetric padding, softmax."""
    x = g.input("image", (1, 3, size, size))
    x = g.max_pool(g.relu(g.bn(g.conv(x, 16, 3, pad=(0, 0, 1, 1)))), 3, 2, 1)
    y = g.bn(g.conv(g.relu(g.bn(g.conv(x, 16, 3))), 16, 3))
    x = g.relu(g.add(y, x))
    y = g.bn(g.conv(g.relu(g.bn(g.conv(x, 32, 3, 2))), 32, 3))
    x = g.relu(g.add(y, g.bn(g.conv(x, 32, 1, 2))))
    g.output("probabilities", g.softmax(g.gemm(g.flatten(g.global_avg_pool(x)), 10)))


def tiny_inception(g: GraphBuilder, *, size: int = 33) -> None:
    """Parallel branches of 1x1, 3x3, 1x7 and 7x1 and pooling, concatenated; ceil-mode pooling; sibling convolutions."""
    x = g.input("image", (1, 3, size, size))
    x = g.max_pool(g.relu(g.bn(g.conv(x, 16, 3, 2, pad=0))), 3, 2, ceil=True)
    for _ in range(2):
        narrow = _unit(g, _unit(g, x, 8, 1), 12, 3)
        long = _unit(g, _unit(g, _unit(g, x, 8, 1), 8, (1, 7)), 12, (7, 1))
        pooled = _unit(g, g.avg_pool(x, 3, 1, 1, include_pad=True), 8, 1)
        x = g.concat([_unit(g, x, 16, 1), narrow, long, pooled])
    x = g.concat([_unit(g, x, 24, 3, 2), g.max_pool(x, 3, 2, 1), g.avg_pool(x, 3, 2, 1)])
    g.output("logits", g.gemm(g.flatten(g.global_avg_pool(x)), 10))


def tiny_mobile(g: GraphBuilder, *, size: int = 32) -> None:
    """Inverted residuals (ReLU6, hard swish, squeeze-and-excite), grouped convolution, channel split and shuffle."""
    x = g.hard_swish(g.bn(g.conv(g.input("image", (1, 3, size, size)), 16, 3, 2)))
    y = g.relu6(g.bn(g.conv(x, 48, 1)))
    y = squeeze_excite(g, g.hard_swish(g.bn(g.conv(y, 48, 5, groups=48))))
    x = g.add(x, g.bn(g.conv(y, 16, 1)))
    x = g.silu(g.bn(g.conv(x, 32, 3, 2, groups=4)))
    kept, y = g.split(x, 2)
    y = g.relu(g.bn(g.conv(g.bn(g.conv(y, 16, 3, groups=16, dilation=2)), 16, 1)))
    x = channel_shuffle(g, g.concat([kept, y]))
    g.output("logits", g.gemm(g.flatten(g.global_avg_pool(x)), 10))


def tiny_transformer(g: GraphBuilder, *, seq: int = 16, width: int = 32) -> None:
    """Embedding, two encoder blocks (LayerNormalization, 2 heads, Erf-GELU) and a last dense layer."""
    ids = g.input("input_ids", (1, seq), TensorProto.INT64)
    x = g.add(g.gather(g.normal((64, width), 1.0, "words"), ids), g.normal((1, seq, width), 0.3, "positions"))
    for _ in range(2):
        y = g.layer_norm(x)
        q, k, v = (g.dense(y, width) for _ in range(3))
        scores = scaled_scores(g, heads_of(g, q, 2), heads_of(g, k, 2, for_keys=True))
        x = g.add(x, g.dense(attend(g, scores, heads_of(g, v, 2)), width, gain=4.0))
        x = g.add(x, g.dense(g.gelu(g.dense(g.layer_norm(x), 4 * width)), width, gain=2.0))
    g.output("logits", g.dense(g.layer_norm(x), 64))


def tiny_detector(g: GraphBuilder, *, size: int = 32) -> None:
    """Leaky ReLU, a nearest-neighbour Resize into a feature pyramid, a stride-1 pool, two outputs."""
    fine = g.leaky_relu(g.bn(g.conv(g.input("image", (1, 3, size, size)), 16, 3, 2)))
    coarse = g.leaky_relu(g.bn(g.conv(g.max_pool(fine, 2, 2), 32, 3)))
    coarse = g.max_pool(coarse, 2, 1, (0, 0, 1, 1))
    g.output("coarse", g.transpose(g.conv(coarse, 6, 1, bias=True), (0, 2, 3, 1)))
    merged = g.concat([g.upsample(g.conv(coarse, 8, 1), 2), fine])
    g.output("fine", g.sigmoid(g.conv(merged, 6, 3, bias=True)))


def tiny_lstm(g: GraphBuilder, *, steps: int = 6, hidden: int = 32) -> None:
    """Two stacked LSTM layers over a sequence, their last state returned."""
    x = g.input("sequence", (steps, 1, 16))
    zero = g.normal((1, 1, hidden), 0.0, "state")
    x, _ = lstm(g, x, lstm_weights(g, 16, hidden), (zero, zero))
    x, (h, c) = lstm(g, x, lstm_weights(g, hidden, hidden), (zero, zero))
    g.output("scores", g.dense(x, 10))
    g.output("h", h)
    g.output("c", c)


def _unit(g: GraphBuilder, x: Value, channels: int, kernel: int | tuple[int, int], stride: int = 1) -> Value:
    return g.relu(g.bn(g.conv(x, channels, kernel, stride)))

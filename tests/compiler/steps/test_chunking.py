"""An output in pieces: cuts, windows and margins, by the float64 reference alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from compiler.errors import OptionsError, UnsupportedModel
from compiler.steps.locality import Margins
from tests.compiler.steps.local_models import Net, in_pieces, ways_of
from tests.seeds import each

Layer = Callable[[Net, str, int, int], tuple[str, int, int]]
"""Of a value [1, channels, positions]: the next one, its channels and its positions."""


def _conv(net: Net, x: str, channels: int, length: int) -> tuple[str, int, int]:
    kernel, dilation, stride = (int(net.random.choice(some)) for some in ([1, 2, 3, 7], [1, 2, 5], [1, 1, 2]))
    reach = dilation * (kernel - 1)
    pads = [int(net.random.integers(0, reach + 1)) for _ in range(2)] if net.random.random() < 0.5 else [0, reach]
    groups = channels if net.random.random() < 0.3 else 1
    filters = channels if groups > 1 else int(net.random.integers(1, 5))
    weight = net.normal(filters, channels // groups, kernel)
    attrs = {"pads": pads, "dilations": [dilation], "strides": [stride], "group": groups}
    return net.node("Conv", x, weight, **attrs), filters, (length + sum(pads) - reach - 1) // stride + 1


def _transposed(net: Net, x: str, channels: int, length: int) -> tuple[str, int, int]:
    rate = int(net.random.integers(1, 5))
    kernel = rate * 2 if net.random.random() < 0.5 else rate + int(net.random.integers(0, 3))
    pads = [int(net.random.integers(0, kernel - rate + 1)) for _ in range(2)]
    made = net.node("ConvTranspose", x, net.normal(channels, 3, kernel), strides=[rate], pads=pads)
    return made, 3, rate * (length - 1) + kernel - sum(pads)


def _pool(net: Net, x: str, channels: int, length: int) -> tuple[str, int, int]:
    op, pad = ("MaxPool", "AveragePool")[int(net.random.integers(2))], int(net.random.integers(0, 2))
    return net.node(op, x, kernel_shape=[3], strides=[2], pads=[pad, pad]), channels, (length + 2 * pad - 3) // 2 + 1


def _residual(net: Net, x: str, channels: int, length: int) -> tuple[str, int, int]:
    y = net.node("LeakyRelu", x, alpha=0.2)
    y = net.node("Conv", y, net.normal(channels, channels, 3), pads=[2, 2], dilations=[2])
    return net.node("Add", x, y), channels, length


def _snake(net: Net, x: str, channels: int, length: int) -> tuple[str, int, int]:
    rate = net.normal(1, channels, 1)
    sine = net.node("Sin", net.node("Mul", x, rate))
    return net.node("Add", x, net.node("Div", net.node("Mul", sine, sine), net.constant(1.5))), channels, length


def _norm_over_channels(net: Net, x: str, channels: int, length: int) -> tuple[str, int, int]:
    y = net.node("Transpose", x, perm=[0, 2, 1])
    y = net.node("LayerNormalization", y, net.normal(channels), net.normal(channels))
    y = net.node("MatMul", net.node("Softmax", y), net.normal(channels, channels))
    return net.node("Transpose", y, perm=[0, 2, 1]), channels, length


def _shuffled(net: Net, x: str, channels: int, length: int) -> tuple[str, int, int]:
    y = net.node("Conv", x, net.normal(2 * channels, channels, 1))
    y = net.node("Reshape", y, net.constant([1, channels, 2, -1], np.int64))
    y = net.node("Transpose", y, perm=[0, 1, 3, 2])
    return net.node("Reshape", y, net.constant([1, channels, -1], np.int64)), channels, 2 * length


def _resized(net: Net, x: str, channels: int, length: int) -> tuple[str, int, int]:
    way = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    return net.node("Resize", x, "", net.constant([1, 1, 3]), **way), channels, 3 * length


def _joined(net: Net, x: str, channels: int, length: int) -> tuple[str, int, int]:
    other = net.node("Conv", x, net.normal(2, channels, 5), pads=[4, 0])
    half = net.node("Split", net.node("Concat", x, other, axis=1), axis=1, num_outputs=2, outputs=2)
    return half, -(-(channels + 2) // 2), length


def _interpolated(net: Net, x: str, channels: int, length: int) -> tuple[str, int, int]:
    way = {"mode": "linear", "coordinate_transformation_mode": "half_pixel"}
    return net.node("Resize", x, "", net.constant([1, 1, 2]), **way), channels, 2 * length


def _reflected(net: Net, x: str, channels: int, length: int) -> tuple[str, int, int]:
    mode = ("reflect", "edge")[int(net.random.integers(2))]
    y = net.node("Pad", x, net.constant([0, 0, 3, 0, 0, 3], np.int64), mode=mode)
    return net.node("Conv", y, net.normal(2, channels, 7)), 2, length


def _sliced(net: Net, x: str, channels: int, length: int) -> tuple[str, int, int]:
    starts, ends = net.constant([1], np.int64), net.constant([-2], np.int64)
    return net.node("Slice", x, starts, ends, net.constant([2], np.int64)), channels, length - 3


def _padded(net: Net, x: str, channels: int, length: int) -> tuple[str, int, int]:
    before, after = (int(one) for one in net.random.integers(0, 3, 2))
    y = net.node("Pad", x, net.constant([0, 0, before, 0, 0, after], np.int64), mode="constant")
    return net.node("Conv", y, net.normal(2, channels, 3)), 2, length + before + after - 2


LAYERS: tuple[Layer, ...] = (
    _conv,
    _transposed,
    _pool,
    _residual,
    _snake,
    _norm_over_channels,
    _shuffled,
    _resized,
    _joined,
    _padded,
    _interpolated,
    _reflected,
    _sliced,
)


def _model(seed: int, layers: int) -> tuple[bytes, int]:
    """A model whose first layer mixes all of time, and those behind it do not; and positions of its output."""
    net, length = Net(np.random.default_rng(seed)), 90 + seed % 7
    x, channels, at = net.node("InstanceNormalization", "x", net.normal(2), net.normal(2)), 2, length
    for _ in range(layers):
        layer = LAYERS[int(net.random.integers(len(LAYERS)))]
        if at < 2000:
            x, channels, at = layer(net, x, channels, at)
    return net.model((1, 2, length), x), at


@each(range(24))
def test_pieces_of_local_layers_make_what_the_whole_gives(seed: int) -> None:
    model, length = _model(seed, 2 + seed % 5)
    chunk = int(np.random.default_rng(seed).integers(1, max(length // 3, 2)))
    try:
        loaded, ways = ways_of(model, {"y": chunk})
    except OptionsError:  # too short a time for what is read of it: the test below counts those that are not
        return
    for windows in ways[:2]:
        whole, pieces = in_pieces(model, loaded, windows, seed)
        assert [one.shape[2] for one in pieces[:-1]] == [chunk] * (len(pieces) - 1)
        np.testing.assert_allclose(np.concatenate(pieces, 2), whole, rtol=1e-12, atol=1e-12)


def test_most_random_models_have_windows() -> None:
    found = 0
    for seed in range(0, 24, 2):
        model, length = _model(seed, 2 + seed % 5)
        try:
            found += bool(ways_of(model, {"y": max(length // 8, 1)})[1])
        except OptionsError:
            continue
    assert found >= 9


def test_a_margin_that_is_too_small_is_seen() -> None:
    """The comparison above can fail: with one position less before a window, pieces differ."""
    net = Net(np.random.default_rng(1))
    x = net.node("InstanceNormalization", "x", net.normal(2), net.normal(2))
    model = net.model((1, 2, 60), net.node("Conv", x, net.normal(2, 2, 9), pads=[8, 0]))
    loaded, (windows, *_) = ways_of(model, {"y": 10})
    assert (windows.margins.before, windows.margins.after, windows.step) == (8, 0, 1)
    whole, pieces = in_pieces(model, loaded, windows, 0)
    np.testing.assert_allclose(np.concatenate(pieces, 2), whole, rtol=1e-12)
    with pytest.raises(UnsupportedModel, match="reads to another extent"):
        in_pieces(model, loaded, replace(windows, margins=Margins(7, 0)), 0)
    _, pieces = in_pieces(model, loaded, windows, 0, margin=7)
    wrong = np.flatnonzero(np.abs(np.concatenate(pieces, 2) - whole).max((0, 1)) > 1e-9)
    assert [*wrong] == [10, 20, 30, 40], "the first position of each piece but those at the ends"


def test_a_model_that_is_local_as_a_whole_is_cut_at_its_inputs() -> None:
    net = Net(np.random.default_rng(3))
    x = net.node("ConvTranspose", "x", net.normal(2, 1, 8), strides=[4], pads=[2, 2])
    model = net.model((1, 2, 50), net.node("Tanh", x))
    loaded, (windows, *_) = ways_of(model, {"y": 32})
    assert windows.before is None
    assert ([*windows.inputs], windows.step) == (["x"], 4)
    whole, pieces = in_pieces(model, loaded, windows, 0)
    assert [one.shape for one in pieces] == [(1, 1, 32)] * 6 + [(1, 1, 8)]
    np.testing.assert_allclose(np.concatenate(pieces, 2), whole, rtol=1e-12)


def test_what_is_the_same_for_all_positions_crosses_the_cut_whole() -> None:
    net = Net(np.random.default_rng(4))
    mean = net.node("Sigmoid", net.node("GlobalAveragePool", "x"))
    x = net.node("InstanceNormalization", "x", net.normal(2), net.normal(2))
    for _ in range(3):
        x = net.node("Mul", net.node("Conv", x, net.normal(2, 2, 3), pads=[1, 1]), mean)
    model = net.model((1, 2, 64), x)
    loaded, (windows, *_) = ways_of(model, {"y": 8})
    assert {cut.axis for cut in windows.cuts} == {None, 2}
    whole, pieces = in_pieces(model, loaded, windows, 0)
    np.testing.assert_allclose(np.concatenate(pieces, 2), whole, rtol=1e-12)


def _ended(op: str) -> Callable[[Net, str], str]:
    """A last node that mixes all of time, or looks at where it is."""

    def made(net: Net, x: str) -> str:
        match op:
            case "InstanceNormalization":
                return net.node(op, x, net.normal(2), net.normal(2))
            case "Softmax":
                return net.node(op, x, axis=2)
            case "CumSum":
                return net.node(op, x, net.constant(2, np.int64))
            case "Add":
                return net.node(op, x, net.normal(1, 2, 64))
            case "Slice":
                numbers = (net.constant([one], np.int64) for one in (-1, -1000, 2, -1))
                return net.node(op, x, *numbers)
            case "MatMul":
                return net.node(op, x, net.normal(64, 64))
            case "GRU":
                x = net.node("Transpose", x, perm=[2, 0, 1])
                x = net.node(op, x, net.normal(1, 6, 2), net.normal(1, 6, 2), hidden_size=2)
                x = net.node("Squeeze", x, net.constant([1], np.int64))
                return net.node("Transpose", x, perm=[1, 2, 0])
        raise AssertionError(op)

    return made


@each(
    ("InstanceNormalization", "Softmax", "CumSum", "Add", "Slice", "MatMul", "GRU"),
    name="op",
)
def test_what_forbids_pieces_is_named(op: str) -> None:
    net = Net(np.random.default_rng(2))
    x = _ended(op)(net, net.node("Conv", "x", net.normal(2, 2, 3), pads=[1, 1]))
    model = net.model((1, 2, 64), x)
    with pytest.raises(UnsupportedModel, match=rf"'y' cannot come in pieces: node 'n\d+' \({op}\) ") as refused:
        ways_of(model, {"y": 8})
    assert [one.operator for one in refused.value.refusals] == [op]
    assert "leave chunks out" in refused.value.fix


def test_sizes_of_the_whole_that_the_model_holds_are_refused() -> None:
    net = Net(np.random.default_rng(2))
    x = net.node("InstanceNormalization", "x", net.normal(2), net.normal(2))
    x = net.node("Conv", x, net.normal(2, 2, 3), pads=[1, 1])
    starts, ends = net.constant([0], np.int64), net.constant([60], np.int64)
    model = net.model((1, 2, 64), net.node("Slice", x, starts, ends, net.constant([2], np.int64)))
    loaded, (windows, *_) = ways_of(model, {"y": 8})
    with pytest.raises(UnsupportedModel, match="'y' cannot come in pieces"):
        in_pieces(model, loaded, windows, 0)


REASONS = {
    "number": "it computes with a number that depends on the length",
    "place": "a window reads to another extent than the whole",
}


@each(REASONS, name="kind")
def test_what_follows_from_the_length_is_refused_where_windows_have_another(kind: str) -> None:
    net = Net(np.random.default_rng(2))
    x = net.node("InstanceNormalization", "x", net.normal(2), net.normal(2))
    x = net.node("Conv", x, net.normal(2, 2, 3), pads=[1, 1])
    size = net.node("Slice", net.node("Shape", x), net.constant([2], np.int64), net.constant([3], np.int64))
    if kind == "number":
        y = net.node("Div", x, net.node("Cast", size, to=1))
    else:
        part = net.node("Div", size, net.constant([8], np.int64))
        pads = net.node("Concat", part, net.node("Neg", part), axis=0)
        y = net.node("Pad", x, pads, "", net.constant([2], np.int64))
    model = net.model((1, 2, 64), net.node("Conv", y, net.normal(2, 2, 3), pads=[1, 1]))
    loaded, ways = ways_of(model, {"y": 8})
    said = set()
    for windows in ways:
        try:
            whole, pieces = in_pieces(model, loaded, windows, 0)
        except UnsupportedModel as error:
            said.add(error.message.partition("pieces: ")[2])
        else:
            np.testing.assert_allclose(np.concatenate(pieces, 2), whole, rtol=1e-12)
    assert said == {REASONS[kind]}


@pytest.mark.parametrize(
    ("chunks", "said", "fix"),
    [
        ({"z": 8}, "chunks names 'z', which is no output", "name one of 'y'"),
        ({"y": 64}, "asks for 64 positions of output 'y' at a time, and its longest axis has 64", '{"y": 8}'),
        ({"y": 63}, "they are all of its 64", "ask for fewer"),
    ],
)
def test_chunks_that_do_not_fit_are_refused(chunks: dict[str, int], said: str, fix: str) -> None:
    net = Net(np.random.default_rng(2))
    model = net.model((1, 2, 64), net.node("Conv", "x", net.normal(2, 2, 3), pads=[1, 1]))
    with pytest.raises(OptionsError) as refused:
        ways_of(model, chunks)
    assert said in refused.value.message
    assert fix in refused.value.fix


def test_an_output_of_one_position_has_no_pieces() -> None:
    net = Net(np.random.default_rng(2))
    model = net.model((1, 1, 8), net.node("GlobalAveragePool", "x"))
    with pytest.raises(OptionsError, match="no axis of which has two positions"):
        ways_of(model, {"y": 1})

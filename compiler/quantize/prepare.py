"""What is done to a model in floating point before it is quantised; it computes the same.

A BatchNormalization behind a layer becomes part of its weights, and so do numbers for each channel that are added to
its result or multiplied with it, and the factors of a Gemm: bytes between them would be one rounding more. A factor of
an operand of attention goes behind the product for the same reason. Channels between two layers may be scaled
("cross-layer equalisation": Nagel, van Baalen, Blankevoort, Welling, "Data-Free Quantization Through Weight
Equalization and Bias Correction", ICCV 2019, section 4.1).
"""

from __future__ import annotations

import numpy as np
from onnx import NodeProto, helper

from compiler.quantize.layers import LAYERS, channel_axis
from compiler.quantize.network import Network, attributes, set_attribute

ROUNDS = 20
"""Over all pairs of layers, at most; the paper's figures converge in fewer."""
SETTLED = 1e-3
"""A factor that is nearer to 1 changes nothing worth another round."""
MOST_FACTOR = 1e3
"""Of a channel in one round: a channel that is nearly dead is not blown up."""
LEAST_FACTOR = 1e-6
"""Of the operands of attention: products without smaller ones stay far from the ends of float32."""


def fold(network: Network, *, attention: bool) -> int:
    """Folds what can be folded; how many nodes are gone or changed.

    attention  the operands of a product of two activations will be bytes
    """
    _without_identities(network)
    count = 0
    for node in list(network.nodes):
        match network.operator(node):
            case "BatchNormalization" | "Add" | "Sub" | "Mul" | "Div":
                count += _fold_channels(network, node)
            case "Gemm":
                count += _fold_factors(network, node)
            case "MatMul" if attention:
                count += _factors_behind(network, node)
    return count


def _owned(network: Network, node: NodeProto, position: int) -> np.ndarray | None:
    """A constant input in float32; that it may have other readers does not matter, since it is not changed in place."""
    if len(node.input) <= position or not node.input[position]:
        return None
    array = network.constant(node.input[position])
    return array if array is not None and array.dtype == np.float32 else None


def _give(network: Network, node: NodeProto, position: int, array: np.ndarray) -> None:
    while len(node.input) <= position:
        node.input.append("")
    name = node.input[position] or f"{node.output[0]}_bias"
    node.input[position] = network.add_constant(f"{name}_folded", array.astype(np.float32))
    network.look()


def _without_identities(network: Network) -> None:
    """Readers of an Identity read what it takes, so that no layer is hidden from what follows it."""
    for node in list(network.nodes):
        if network.operator(node) != "Identity" or {node.output[0]} & (network.outputs | network.captured):
            continue
        for reader in network.readers.get(node.output[0], ()):
            for at, name in enumerate(reader.input):
                if name == node.output[0]:
                    reader.input[at] = node.input[0]
        network.nodes.remove(node)
        network.look()


def _fold_channels(network: Network, node: NodeProto) -> int:
    """factor (W x + b) + shift, a number of each for each channel, is a layer with other W and b."""
    at = next((at for at, name in enumerate(node.input) if network.constant(name) is None), 0)
    layer = network.producer.get(node.input[at])
    if layer is None or network.only_reader(node.input[at]) is not node or not 0 < _results(node) < 2:
        return 0
    if network.operator(layer) not in ("Conv", "ConvTranspose", "Gemm"):
        return 0
    group = attributes(layer)["group"].i if "group" in attributes(layer) else 1
    weights = _owned(network, layer, 1)
    if weights is None or (network.operator(layer) == "ConvTranspose" and group != 1) or _bias_is_data(network, layer):
        return 0
    axis = channel_axis(network, layer)
    channels = weights.shape[axis]
    if network.operator(node) == "BatchNormalization":
        found = _of_normalisation(network, node)
    else:
        found = _of_constant(network, node, at, (-1,) if layer.op_type == "Gemm" else (-1, *[1] * (weights.ndim - 2)))
    if found is None or any(one.size not in (1, channels) for one in found):
        return 0
    factor, shift = (np.broadcast_to(one, channels) for one in found)
    bias = _owned(network, layer, 2)
    before = np.zeros(channels) if bias is None else bias.astype(np.float64)
    folded = weights * _along(factor, axis, weights.ndim), before * factor + shift
    if any(np.abs(one).max(initial=0.0) > np.finfo(np.float32).max for one in folded):
        return 0
    _give(network, layer, 1, folded[0])
    _give(network, layer, 2, folded[1])
    layer.output[0] = node.output[0]
    network.nodes.remove(node)
    network.look()
    return 1


def _of_normalisation(network: Network, node: NodeProto) -> tuple[np.ndarray, np.ndarray] | None:
    """gamma (y - mean) / sqrt(var + eps) + beta, as a factor and a shift of each channel; None where these are data."""
    attrs = attributes(node)
    parts = [network.constant(name) for name in node.input[1:5]]
    if any(part is None for part in parts) or ("training_mode" in attrs and attrs["training_mode"].i):
        return None
    gamma, beta, mean, variance = (part.astype(np.float64) for part in parts if part is not None)
    factor = gamma / np.sqrt(variance + (attrs["epsilon"].f if "epsilon" in attrs else 1e-5))
    return factor, beta - mean * factor


def _of_constant(
    network: Network, node: NodeProto, at: int, form: tuple[int, ...]
) -> tuple[np.ndarray, np.ndarray] | None:
    """The factor and the shift of Add, Sub, Mul and Div with one number, or one for each channel; else None.

    at    the position of what is no constant
    form  of an array with a number for each channel, as it is broadcast
    """
    constant = network.constant(node.input[1 - at])
    if constant is None or constant.dtype != np.float32 or not np.isfinite(constant).all():
        return None
    if constant.ndim > len(form) + 1 or (
        constant.size > 1 and constant.shape[-len(form) :] != constant.reshape(form).shape
    ):
        return None
    numbers, zero, one = constant.reshape(-1).astype(np.float64), np.zeros(1), np.ones(1)
    match network.operator(node), at:
        case "Add", _:
            return one, numbers
        case "Sub", 0:
            return one, -numbers
        case "Mul", _:
            return numbers, zero
        case "Div", 0 if numbers.all():
            return 1 / numbers, zero
    return None


def _fold_factors(network: Network, node: NodeProto) -> int:
    """alpha A B + beta C = A (alpha B) + (beta C)."""
    attrs = attributes(node)
    alpha, beta = (attrs[name].f if name in attrs else 1.0 for name in ("alpha", "beta"))
    weights = _owned(network, node, 1)
    if (alpha == 1 and beta == 1) or weights is None or _bias_is_data(network, node):
        return 0
    bias = _owned(network, node, 2)
    _give(network, node, 1, weights * np.float64(alpha))
    if bias is not None:
        _give(network, node, 2, bias * np.float64(beta))
    set_attribute(node, "alpha", 1.0)
    set_attribute(node, "beta", 1.0)
    return 1


def _factors_behind(network: Network, node: NodeProto) -> int:
    """(a A) (b B) = a b (A B), for numbers a and b: A and B are the bytes that they are anyway."""
    factor, sources = 1.0, {}
    for position, name in enumerate(node.input):
        scaled = network.producer.get(name)
        found = None if scaled is None or network.only_reader(name) is not node else _scaled(network, scaled)
        if found is not None:
            factor *= found[1]
            sources[position] = found[0]
    if not sources or not LEAST_FACTOR < abs(factor) < 1 / LEAST_FACTOR:
        return 0
    for position, source in sources.items():
        network.nodes.remove(network.producer[node.input[position]])
        node.input[position] = source
    result = node.output[0]
    node.output[0] = network.fresh(f"{result}_unscaled")
    number = network.add_constant(f"{result}_factor", np.asarray(factor, np.float32))
    behind = helper.make_node("Mul", [node.output[0], number], [result], name=network.fresh(f"{result}_scaled"))
    network.nodes.insert(network.nodes.index(node) + 1, behind)
    network.look()
    return len(sources)


def _scaled(network: Network, node: NodeProto) -> tuple[str, float] | None:
    """What a node multiplies or divides by one number, and the factor; None for any other node."""
    operator = network.operator(node)
    if operator not in ("Mul", "Div"):
        return None
    numbers = [network.constant(name) for name in node.input]
    at = next((at for at, one in enumerate(numbers) if one is not None), None)
    if at is None or (operator == "Div" and at == 0) or numbers[1 - at] is not None:
        return None
    number = numbers[at]
    if number is None or number.size != 1 or number.ndim > 1 or number.dtype != np.float32 or not float(number.item()):
        return None
    value = float(number.item())
    return node.input[1 - at], value if operator == "Mul" else 1 / value


def _results(node: NodeProto) -> int:
    return sum(bool(name) for name in node.output)


def _bias_is_data(network: Network, node: NodeProto) -> bool:
    return len(node.input) > 2 and bool(node.input[2]) and _owned(network, node, 2) is None


def _along(array: np.ndarray, axis: int, rank: int) -> np.ndarray:
    return array.reshape([-1 if at == axis else 1 for at in range(rank)])


def equalise(network: Network) -> int:
    """Scales channels between two layers so that the weights on both sides have equal ranges; how many pairs there are.

    With r1 and r2 the largest weights of a channel on both sides, W1 and b1 are divided by sqrt(r1 / r2) and W2 is
    multiplied by it. A Relu may stand between them: relu(s x) = s relu(x) for s > 0.
    """
    pairs = _pairs(network)
    for _ in range(ROUNDS):
        if max([abs(_balance(network, *pair) - 1.0) for pair in pairs], default=0.0) < SETTLED:
            break
    return len(pairs)


def _pairs(network: Network) -> list[tuple[NodeProto, NodeProto]]:
    found = []
    for first in network.nodes:
        if network.operator(first) not in LAYERS or _owned(network, first, 1) is None or _bias_is_data(network, first):
            continue
        second = network.only_reader(first.output[0])
        if second is not None and network.operator(second) == "Relu":
            second = network.only_reader(second.output[0])
        if second is None or network.operator(second) not in LAYERS or _owned(network, second, 1) is None:
            continue
        behind = network.producer.get(second.input[0])
        is_relu = behind is not None and network.operator(behind) == "Relu" and behind.input[0] == first.output[0]
        if behind is not first and not is_relu:
            continue
        if _ends(network, first, second) is not None:
            found.append((first, second))
    return found


def _ends(network: Network, first: NodeProto, second: NodeProto) -> tuple[np.ndarray, np.ndarray, int] | None:
    """Largest weights of each channel between two layers, on both sides, and the channel's axis in the second."""
    w1, w2 = _owned(network, first, 1), _owned(network, second, 1)
    assert w1 is not None
    assert w2 is not None
    conv = ("Conv", "Conv")
    kinds = network.operator(first), network.operator(second)
    if "ConvTranspose" in kinds or (kinds != conv and "Conv" in kinds):
        return None
    out = channel_axis(network, first)
    r1 = np.abs(w1).max(axis=tuple(at for at in range(w1.ndim) if at != out))
    if kinds == conv:
        group = attributes(second)["group"].i if "group" in attributes(second) else 1
        if group == 1:
            along = 1
        elif group == w2.shape[0] == len(r1) and w2.shape[1] == 1:
            along = 0  # depthwise: a channel in is a channel out
        else:
            return None
    else:
        along = 1 - channel_axis(network, second)
        if network.operator(second) == "Gemm" and "transA" in attributes(second) and attributes(second)["transA"].i:
            return None
    r2 = np.abs(w2).max(axis=tuple(at for at in range(w2.ndim) if at != along))
    return (r1, r2, along) if len(r1) == len(r2) and w1.ndim > 1 and w2.ndim > 1 else None


def _balance(network: Network, first: NodeProto, second: NodeProto) -> float:
    """Equalises one pair; the factor that is furthest from 1."""
    ends = _ends(network, first, second)
    assert ends is not None, "weights keep their shapes"
    r1, r2, along = ends
    alive = (r1 > 0) & (r2 > 0)
    factor = np.sqrt(np.divide(r1, r2, out=np.ones(len(r1)), where=alive), dtype=np.float64)
    factor = np.clip(np.where(alive, factor, 1.0), 1 / MOST_FACTOR, MOST_FACTOR)
    for node, position, axis, scale in (
        (first, 1, channel_axis(network, first), 1 / factor),
        (first, 2, 0, 1 / factor),
        (second, 1, along, factor),
    ):
        array = _owned(network, node, position)
        if array is None:
            continue
        if position == 2:
            _replace(network, node, 2, array.reshape(-1) * scale if array.size == len(scale) else array * scale)
        else:
            _replace(network, node, position, array * _along(scale, axis, array.ndim))
    return float(max(np.max(factor), 1 / np.min(factor)))


def _replace(network: Network, node: NodeProto, position: int, array: np.ndarray) -> None:
    """Gives a node a constant of its own; one that it has already is overwritten."""
    name = node.input[position]
    own = name.endswith("_equalised") and len(network.readers.get(name, [])) == 1
    if own:
        network.constants[name] = array.astype(np.float32)
        return
    node.input[position] = network.add_constant(f"{name}_equalised", array.astype(np.float32))
    network.look()

"""Operators of com.microsoft, each as an Expansion over ai.onnx: here those of quantised tensors one by one.

An operator over quantised tensors is the plain one between DequantizeLinear and QuantizeLinear: that is its definition.
Inputs come as (tensor, scale, zero point) triples; a zero point may be absent. Source: ONNX Runtime's
ContribOperators.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from compiler.frontend.expansions.assorted import ASSORTED
from compiler.frontend.expansions.fused import FUSED
from compiler.frontend.expansions.heads import HEADS
from compiler.frontend.expansions.images import IMAGES
from compiler.frontend.expansions.packed import PACKED
from compiler.frontend.expansions.site import Site
from compiler.frontend.reading.model import AttrValue, Call, Expansion
from compiler.ops.operator import Unsupported

DOMAIN = "com.microsoft"

Triple = tuple[str, str, str]


def _quantised(site: Site, operands: Sequence[Triple], result: tuple[str, str], call: Call) -> Expansion:
    """quantize(call(dequantize(operand)...)); the call reads r0, r1, ... and defines `real`."""
    calls = [Call("DequantizeLinear", operand, (f"r{position}",)) for position, operand in enumerate(operands)]
    return site.becomes(*calls, call, Call("QuantizeLinear", ("real", *result), ("y0",)))


def _names(site: Site, least: int, most: int) -> tuple[str, ...]:
    """x0, x1, ... up to `most`, the empty name where absent; scales are the caller's to require."""
    count = len(site.call.inputs)
    if not least <= count <= most or len(site.call.outputs) != 1:
        raise Unsupported(f"it has {count} inputs where the operator takes {least} to {most}", "export the model again")
    return (*site.names, *("" for _ in range(most - count)))


def binary(op: str) -> Callable[[Site], Expansion]:
    """qlinear(a, b) = quantize(op(dequantize(a), dequantize(b)))."""

    def rule(site: Site) -> Expansion:
        x = _names(site, 7, 8)
        return _quantised(
            site, ((x[0], x[1], x[2]), (x[3], x[4], x[5])), (x[6], x[7]), Call(op, ("r0", "r1"), ("real",))
        )

    return rule


def _channels_last(site: Site, op: str, x: tuple[str, ...]) -> Expansion:
    """A pool of images [N, ..., C]."""
    rank = site.first.rank
    if rank < 3:
        raise Unsupported(f"{site.first} is no image", "export the model again")
    return site.becomes(
        Call("DequantizeLinear", x[:3], ("r0",)),
        Call("Transpose", ("r0",), ("image",), {"perm": (0, rank - 1, *range(1, rank - 1))}),
        Call(op, ("image",), ("pooled",), site.attrs_without("channels_last")),
        Call("Transpose", ("pooled",), ("real",), {"perm": (0, *range(2, rank), 1)}),
        Call("QuantizeLinear", ("real", x[3], x[4]), ("y0",)),
    )


def unary(op: str) -> Callable[[Site], Expansion]:
    """qlinear(a) = quantize(op(dequantize(a))), with the attributes of `op`."""

    def rule(site: Site) -> Expansion:
        x = _names(site, 4, 5)
        if site.integer("channels_last", 0):
            return _channels_last(site, op, x)
        call = Call(op, ("r0",), ("real",), site.attrs_without("channels_last"))
        return _quantised(site, ((x[0], x[1], x[2]),), (x[3], x[4]), call)

    return rule


def softmax(site: Site) -> Expansion:
    """Softmax in the semantics of the opset that attribute `opset` states: flattened to two dimensions before 13."""
    x = _names(site, 4, 5)
    old = site.integer("opset", 13) < 13
    attrs: dict[str, AttrValue] = {"axis": site.integer("axis", 1 if old else -1)}
    plain = _quantised(site, ((x[0], x[1], x[2]),), (x[3], x[4]), Call("Softmax", ("r0",), ("real",), attrs))
    return Expansion(plain.inputs, plain.outputs, plain.calls, plain.constants, {"": 12 if old else 13})


def concat(site: Site) -> Expansion:
    """QLinearConcat: the result's scale and zero point first, then triples."""
    x = _names(site, 5, max(len(site.call.inputs), 5))
    if (len(x) - 2) % 3:
        raise Unsupported("its inputs are not triples of tensor, scale and zero point", "export the model again")
    operands = [(x[start], x[start + 1], x[start + 2]) for start in range(2, len(x), 3)]
    parts = tuple(f"r{position}" for position in range(len(operands)))
    return _quantised(site, operands, (x[0], x[1]), Call("Concat", parts, ("real",), site.call.attrs))


def gelu(site: Site) -> Expansion:
    """The exact GELU, with Erf."""
    return site.becomes(Call("Gelu", _names(site, 1, 1), ("y0",), {"approximate": "none"}))


CONTRIB: dict[str, Callable[[Site], Expansion]] = {
    **ASSORTED,
    **FUSED,
    **HEADS,
    **IMAGES,
    **PACKED,
    "Gelu": gelu,
    "QLinearAdd": binary("Add"),
    "QLinearAveragePool": unary("AveragePool"),
    "QLinearConcat": concat,
    "QLinearGlobalAveragePool": unary("GlobalAveragePool"),
    "QLinearLeakyRelu": unary("LeakyRelu"),
    "QLinearMul": binary("Mul"),
    "QLinearSigmoid": unary("Sigmoid"),
    "QLinearSoftmax": softmax,
}

_SEARCH = (
    "it is a whole search, which calls a decoder as often as data say",
    "export the decoder and search on the host",
)
_STRINGS = ("it makes strings or reads their characters", "do that on the host and feed the model numbers")
_PAGES = ("its cache lies in pages of a server's", "export with GroupQueryAttention")
_SHARED = ("its cache is shared by beams", "export with MultiHeadAttention or GroupQueryAttention")
_EXPERTS = ("it chooses experts in a form of its own", "export the experts as MatMul, TopK and Gather")

REFUSED: dict[str, tuple[str, str]] = {
    "BeamSearch": _SEARCH,
    "BifurcationDetector": ("how many tokens it gives depends on data", "decide on the host which tokens to take"),
    "DecoderMaskedMultiHeadAttention": _SHARED,
    "DecoderMaskedSelfAttention": _SHARED,
    "GreedySearch": _SEARCH,
    "MoE": _EXPERTS,
    "PagedAttention": _PAGES,
    "QMoE": _EXPERTS,
    "Sampling": _SEARCH,
    "SparsePagedAttention": _PAGES,
    "Tokenizer": _STRINGS,
    "WhisperBeamSearch": _SEARCH,
    "WordConvEmbedding": ("it embeds words by their characters", "export it as Gather, Conv and ReduceMax"),
}
"""Operators that are refused, each with the reason and what to do instead."""

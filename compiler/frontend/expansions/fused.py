"""Operators of com.microsoft that ONNX Runtime's optimiser writes in place of several, each as those several again.

Source: ONNX Runtime's ContribOperators.md.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from compiler.frontend.expansions.composition import Composition
from compiler.frontend.expansions.site import Site
from compiler.frontend.reading.model import AttrValue, Expansion
from compiler.ir.tensor import DType
from compiler.ops.operator import Unsupported

AGAIN = "export the model again, or give the one that was not optimised"
QUICK = 1.702
"""QuickGelu is x sigmoid(c x)."""


def real(site: Site, name: str, default: float) -> float:
    """An attribute that is one number."""
    value = site.call.attrs.get(name, default)
    if not isinstance(value, int | float):
        raise Unsupported(f"attribute {name!r} is no number", AGAIN)
    return float(value)


def is_there(site: Site, position: int) -> bool:
    """Whether an optional input is given."""
    return position < len(site.types) and site.types[position] is not None


def only(site: Site, *positions: int) -> None:
    """Raises Unsupported where an output is asked for that is none of these."""
    asked = [position for position, name in enumerate(site.call.outputs) if name and position not in positions]
    if asked:
        raise Unsupported(f"its output {asked[0]} is asked for, which only training reads", "export for inference")


def number(composition: Composition, value: float, dtype: DType) -> str:
    """A scalar constant of an element type."""
    return composition.constant(np.array(value, dtype.numpy))


def across(composition: Composition, name: str, rank: int) -> str:
    """A tensor with its last two axes exchanged."""
    return composition.call("Transpose", name, perm=(*range(rank - 2), rank - 1, rank - 2)) if rank > 1 else name


def matmul(site: Site) -> Expansion:
    """alpha * A B, of either the transpose of its last two axes."""
    if site.integer("transBatchA", 0) or site.integer("transBatchB", 0):
        raise Unsupported("it exchanges batch axes", AGAIN)
    composition = Composition(site)
    operands = [
        across(composition, f"x{at}", site.given(at).rank) if site.integer(f"trans{name}", 0) else f"x{at}"
        for at, name in enumerate("AB")
    ]
    product = composition.call("MatMul", *operands)
    alpha = real(site, "alpha", 1.0)
    if alpha != 1.0:
        product = composition.call("Mul", product, number(composition, alpha, site.first.dtype))
    return composition.gives(product)


def gemm(site: Site) -> Expansion:
    """activation(Gemm)."""
    composition = Composition(site)
    kept = {name: value for name, value in site.call.attrs.items() if not name.startswith("activation")}
    params = tuple(real(site, name, 0.0) for name in ("activation_alpha", "activation_beta") if name in site.call.attrs)
    return composition.gives(activated(site, composition, composition.call("Gemm", *site.names, **kept), params))


def conv(site: Site) -> Expansion:
    """activation(Conv(X, W, B) + Z)."""
    composition = Composition(site)
    params = site.call.attrs.get("activation_params", ())
    if not isinstance(params, tuple):
        raise Unsupported("its activation_params are no list", AGAIN)
    y = composition.call("Conv", *site.names[:3], **site.attrs_without("activation", "activation_params"))
    if is_there(site, 3):
        y = composition.call("Add", y, "x3")
    given = tuple(float(item) for item in params if isinstance(item, int | float))
    return composition.gives(activated(site, composition, y, given))


def activated(site: Site, composition: Composition, y: str, params: tuple[float, ...]) -> str:
    """The function that attribute `activation` names, with its parameters in their order."""
    name = site.call.attrs.get("activation", "")
    dtype = site.first.dtype
    if name in ("Relu", "Sigmoid", "Tanh"):
        return composition.call(str(name), y)
    if name == "LeakyRelu":
        return composition.call("LeakyRelu", y, alpha=params[0] if params else 0.01)
    if name == "HardSigmoid":
        alpha, beta = params if len(params) == 2 else (0.2, 0.5)
        return composition.call("HardSigmoid", y, alpha=alpha, beta=beta)
    if name == "Clip" and len(params) == 2:
        return composition.call("Clip", y, *(number(composition, end, dtype) for end in params))
    if name:
        raise Unsupported(f"its activation is {name!r:.40}", AGAIN)
    return y


def bias_gelu(site: Site) -> Expansion:
    """gelu(A + B)."""
    composition = Composition(site)
    return composition.gives(composition.call("Gelu", composition.call("Add", "x0", "x1"), approximate="none"))


def fast_gelu(site: Site) -> Expansion:
    """The GELU by tanh, of X or of X + bias."""
    composition = Composition(site)
    x = composition.call("Add", "x0", "x1") if is_there(site, 1) else "x0"
    return composition.gives(composition.call("Gelu", x, approximate="tanh"))


def quick_gelu(site: Site) -> Expansion:
    """x sigmoid(alpha x)."""
    composition = Composition(site)
    scaled = composition.call("Mul", "x0", number(composition, real(site, "alpha", QUICK), site.first.dtype))
    return composition.gives(composition.call("Mul", "x0", composition.call("Sigmoid", scaled)))


def bias_add(site: Site) -> Expansion:
    """X + bias + skip."""
    composition = Composition(site)
    return composition.gives(composition.call("Add", composition.call("Add", "x0", "x1"), "x2"))


def skip_norm(site: Site) -> Expansion:
    """LayerNormalization of input + skip + bias, and that sum."""
    only(site, 0, 3)
    composition = Composition(site)
    total = _sum(composition, "x0", "x1", "x4" if is_there(site, 4) else "")
    beta = "x3" if is_there(site, 3) else ""
    epsilon = real(site, "epsilon", 1e-12)
    y = composition.call("LayerNormalization", total, "x2", beta, axis=-1, epsilon=epsilon)
    return composition.gives(y, total, total, total)


def skip_rms_norm(site: Site) -> Expansion:
    """RMSNormalization of input + skip + bias, and that sum."""
    only(site, 0, 3)
    composition = Composition(site)
    total = _sum(composition, "x0", "x1", "x3" if is_there(site, 3) else "")
    y = composition.call("RMSNormalization", total, "x2", axis=-1, epsilon=real(site, "epsilon", 1e-12))
    return composition.gives(y, total, total, total)


def rms_norm(site: Site) -> Expansion:
    """RMSNormalization by the name that it had in ONNX Runtime before ONNX took it."""
    only(site, 0)
    composition = Composition(site)
    axis, epsilon = site.integer("axis", -1), real(site, "epsilon", 1e-5)
    return composition.gives(composition.call("RMSNormalization", "x0", "x1", axis=axis, epsilon=epsilon))


def _sum(composition: Composition, *parts: str) -> str:
    first, *rest = (part for part in parts if part)
    for part in rest:
        first = composition.call("Add", first, part)
    return first


def embed_norm(site: Site) -> Expansion:
    """LayerNormalization of word, position and segment embeddings; how many of each row's mask are set; their sum.

    Inputs: ids and segments [B, S], three tables, gamma and beta [D], mask [B, S], positions [B, S].
    """
    composition = Composition(site)
    call = composition.call
    total = call("Gather", "x2", "x0", axis=0)
    if is_there(site, 8):
        place = call("Gather", "x3", "x8", axis=0)
    else:
        length = call("Shape", "x0", start=1, end=2)
        place = call("Slice", "x3", composition.ints(0), length, composition.ints(0))
    total = call("Add", total, place)
    if is_there(site, 4):
        if not is_there(site, 1):
            raise Unsupported("it has a table of segments and no segments", AGAIN)
        total = call("Add", total, call("Gather", "x4", "x1", axis=0))
    y = call("LayerNormalization", total, "x5", "x6", axis=-1, epsilon=real(site, "epsilon", 1e-12))
    if is_there(site, 7):
        counted = call("ReduceSum", "x7", composition.ints(1), keepdims=0)
    else:
        ids = call("Shape", "x0", start=0, end=1)
        counted = call("Expand", composition.constant(np.zeros(1, np.int32)), ids)
    return composition.gives(y, counted, total)


def in_rows(op: str) -> Callable[[Site], Expansion]:
    """An operator of images whose channels lie last."""

    def rule(site: Site) -> Expansion:
        rank = site.first.rank
        if rank < 3:
            raise Unsupported(f"{site.first} is no image", AGAIN)
        composition = Composition(site)
        first = composition.call("Transpose", "x0", perm=(0, rank - 1, *range(1, rank - 1)))
        y = composition.call(op, first, **site.call.attrs)
        return composition.gives(composition.call("Transpose", y, perm=(0, *range(2, rank), 1)))

    return rule


def named(op: str, opset: int) -> Callable[[Site], Expansion]:
    """An operator that ai.onnx has by the same name and form since an opset."""

    def rule(site: Site) -> Expansion:
        composition = Composition(site)
        attrs: dict[str, AttrValue] = dict(site.call.attrs)
        plain = composition.gives(composition.call(op, *site.names, **attrs))
        return Expansion(plain.inputs, plain.outputs, plain.calls, plain.constants, {"": opset})

    return rule


FUSED: dict[str, Callable[[Site], Expansion]] = {
    "BiasAdd": bias_add,
    "BiasGelu": bias_gelu,
    "DequantizeLinear": named("DequantizeLinear", 21),
    "EmbedLayerNormalization": embed_norm,
    "FastGelu": fast_gelu,
    "FusedConv": conv,
    "FusedGemm": gemm,
    "FusedMatMul": matmul,
    "NhwcMaxPool": in_rows("MaxPool"),
    "QuantizeLinear": named("QuantizeLinear", 21),
    "QuickGelu": quick_gelu,
    "SkipLayerNormalization": skip_norm,
    "SkipSimplifiedLayerNormalization": skip_rms_norm,
    "TransposeMatMul": matmul,
    "Trilu": named("Trilu", 14),
}

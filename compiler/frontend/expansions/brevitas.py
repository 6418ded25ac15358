"""Quantisers of any width, as Brevitas and QONNX write them: Quant, BipolarQuant and Trunc over ai.onnx.

A Quant that rounds to even into 8 bits or less is QuantizeLinear, Clip and DequantizeLinear, so that what follows is
computed as in any quantised model. Source: QONNX, `qonnx/custom_op/general/quant.py` and its docs/qonnx-custom-ops.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from compiler.frontend.expansions.composition import Composition
from compiler.frontend.expansions.site import Site
from compiler.frontend.reading.model import AttrValue, Expansion
from compiler.ir.tensor import DType
from compiler.ops.operator import Unsupported

DOMAINS = ("onnx.brevitas", "qonnx.custom_op.general", "finn.custom_op.general")
ROUNDING = {"ROUND": "Round", "HALF_EVEN": "Round", "CEIL": "Ceil", "FLOOR": "Floor"}
AGAIN = "export the model again"
MOST_BITS = 24
"""Whole numbers of more are not exact in float32."""


def quant(site: Site) -> Expansion:
    """scale * (clip(round(x / scale + zero)) - zero), in a number of bits. Inputs: x, scale, zero point, bit width."""
    bits, signed, narrow = _bits(site, 3, "bit_width"), site.integer("signed", 1), site.integer("narrow", 0)
    low = -(2 ** (bits - 1)) + narrow if signed else 0
    high = 2 ** (bits - 1) - 1 if signed else 2**bits - 1 - narrow
    mode = str(site.call.attrs.get("rounding_mode", "ROUND")).upper()
    composition = Composition(site)
    scale, zero = site.constants[1], site.constants[2]
    whole = zero is not None and bool((zero == np.round(zero)).all())
    if bits <= 8 and ROUNDING.get(mode) == "Round" and scale is not None and zero is not None and whole:
        y = _by_bytes(site, composition, scale, zero, (low, high), bool(signed))
        if y:
            return composition.gives(y)
    call = composition.call
    y = _rounded(composition, call("Add", call("Div", "x0", "x1"), "x2"), mode, site.first.dtype)
    ends = (composition.constant(np.array(end, site.first.dtype.numpy)) for end in (low, high))
    return composition.gives(call("Mul", call("Sub", call("Clip", y, *ends), "x2"), "x1"))


def _by_bytes(
    site: Site, composition: Composition, scale: np.ndarray, zero: np.ndarray, ends: tuple[int, int], signed: bool
) -> str:
    """QuantizeLinear, Clip, DequantizeLinear; the empty name where scales lie along several axes."""
    kind = site.first
    info = np.iinfo(np.int8 if signed else np.uint8)
    wide = np.broadcast_shapes(scale.shape, zero.shape)
    long = [axis for axis, extent in enumerate(wide) if extent != 1]
    if len(long) > 1 or len(wide) > kind.rank or zero.min(initial=0) < info.min or zero.max(initial=0) > info.max:
        return ""
    attrs: dict[str, AttrValue] = {"axis": long[0] - len(wide) + kind.rank} if long else {}
    shape: tuple[int, ...] = (-1,) if long else ()
    own = [np.broadcast_to(array, wide).reshape(shape) for array in (scale, zero)]
    pair = [composition.constant(own[0].astype(kind.dtype.numpy)), composition.constant(own[1].astype(info.dtype))]
    y = composition.call("QuantizeLinear", "x0", *pair, **attrs)
    if ends != (info.min, info.max):
        y = composition.call("Clip", y, *(composition.constant(np.array(end, info.dtype)) for end in ends))
    return composition.call("DequantizeLinear", y, *pair, **attrs)


def bipolar(site: Site) -> Expansion:
    """scale where x is not negative, else -scale."""
    composition = Composition(site)
    zero = composition.constant(np.zeros((), site.first.dtype.numpy))
    above = composition.call("GreaterOrEqual", "x0", zero)
    return composition.gives(composition.call("Where", above, "x1", composition.call("Neg", "x1")))


def trunc(site: Site) -> Expansion:
    """The highest bits of whole numbers. Inputs: x, scale, zero point, width before, width after."""
    if len(site.call.inputs) != 5:
        raise Unsupported(f"it has {len(site.call.inputs)} inputs where 5 are taken", AGAIN)
    dropped = _bits(site, 3, "in_bit_width") - _bits(site, 4, "out_bit_width")
    composition, dtype = Composition(site), site.first.dtype
    call = composition.call
    y = call("Round", call("Add", call("Div", "x0", "x1"), "x2"))
    y = call("Div", y, composition.constant(np.array(2.0**dropped, dtype.numpy)))
    y = _rounded(composition, y, str(site.call.attrs.get("rounding_mode", "FLOOR")).upper(), dtype)
    return composition.gives(call("Mul", call("Sub", y, "x2"), "x1"))


def _rounded(composition: Composition, x: str, mode: str, dtype: DType) -> str:
    """x as whole numbers, by the name of a rounding."""
    call = composition.call
    if mode in ROUNDING:
        return call(ROUNDING[mode], x)
    if mode in ("ROUND_TO_ZERO", "DOWN"):
        return call("Mul", call("Sign", x), call("Floor", call("Abs", x)))
    if mode in ("HALF_UP", "HALF_DOWN", "UP"):
        half = composition.constant(np.array(0.5, dtype.numpy))
        near = {"HALF_UP": ("Floor", "Add"), "HALF_DOWN": ("Ceil", "Sub"), "UP": ("Ceil", "")}[mode]
        size = call("Abs", x)
        return call("Mul", call("Sign", x), call(near[0], call(near[1], size, half) if near[1] else size))
    raise Unsupported(f"rounding_mode is {mode!r:.40}", f"use one of {', '.join(ROUNDING)}")


def _bits(site: Site, position: int, name: str) -> int:
    """A number of bits, which must be known when compiling."""
    found = site.known(position, name)
    if found is None or found.size != 1 or not 1 <= float(found.reshape(())) <= MOST_BITS:
        raise Unsupported(f"input {name!r} is no number of bits from 1 to {MOST_BITS}", AGAIN)
    bits = float(found.reshape(()))
    if not bits.is_integer():
        raise Unsupported(f"input {name!r} is {bits:g}, no whole number of bits", AGAIN)
    return int(bits)


QUANTISERS: Mapping[str, Callable[[Site], Expansion]] = {
    "BipolarQuant": bipolar,
    "IntQuant": quant,
    "Quant": quant,
    "Trunc": trunc,
}

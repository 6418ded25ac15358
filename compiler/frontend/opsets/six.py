"""Forms of opset 6 that opset 7 changed, each brought to opset 7: chiefly operands broadcast only on request.

A row of OPSET_SIX is an operator and its rule, as in `compiler.frontend.opsets.table`. Source: the changelog of ONNX
operators.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from compiler.frontend.expansions.site import Site
from compiler.frontend.reading.model import AttrValue, Call, Expansion
from compiler.ir.tensor import TensorType, broadcast
from compiler.ops.operator import Unsupported

AGAIN = "export the model again, with opset 7 or newer"


def _as_of_seven(expansion: Expansion) -> Expansion:
    """What an expansion holds is read as opset 7, so that the rules for that opset follow."""
    return replace(expansion, opsets={"": 7})


def limited_broadcast(site: Site) -> Expansion:
    """The second operand has the first one's shape; with `broadcast` it has a part of it.

    The part begins at `axis`, or ends with the shape where there is none.
    """
    first, second = _operands(site)
    call = Call(site.call.op, ("x0", "x1"), ("y0",), site.attrs_without("axis", "broadcast"))
    if not site.integer("broadcast", 0):
        if first.shape != second.shape:
            raise Unsupported(f"its operands are {first} and {second}, and broadcast is 0", AGAIN)
        return _as_of_seven(site.becomes(call))
    axis = site.call.attrs.get("axis")
    start = first.rank - second.rank if not isinstance(axis, int) else axis + first.rank if axis < 0 else axis
    after = first.rank - start - second.rank
    wide = (*second.shape, *(1,) * after)
    if start < 0 or after < 0 or broadcast(first.shape, wide) != first.shape:
        raise Unsupported(f"{second} does not fit {first} from axis {start} on", AGAIN)
    if not after:
        return _as_of_seven(site.becomes(call))
    axes = tuple(range(second.rank, second.rank + after))
    widened = Call("Unsqueeze", ("x1",), ("wide",), {"axes": axes})
    return _as_of_seven(site.becomes(widened, replace(call, inputs=("x0", "wide"))))


def _operands(site: Site) -> tuple[TensorType, TensorType]:
    second = site.types[1] if len(site.types) > 1 else None
    if second is None:
        raise Unsupported("its second input is absent", AGAIN)
    return site.first, second


def slope_per_channel(site: Site) -> Expansion:
    """A PRelu's slope was one number, or one for each channel, which is axis 1."""
    x, slope = _operands(site)
    call = Call("PRelu", ("x0", "x1"), ("y0",))
    if slope.rank != 1 or slope.shape[0] == 1 or x.rank <= 2:
        return _as_of_seven(site.becomes(call))
    widened = Call("Unsqueeze", ("x1",), ("wide",), {"axes": tuple(range(1, x.rank - 1))})
    return _as_of_seven(site.becomes(widened, replace(call, inputs=("x0", "wide"))))


def when_testing(site: Site) -> Expansion:
    """BatchNormalization was that of inference where `is_test` said so."""
    if not site.integer("is_test", 0):
        raise Unsupported("it is in training form (is_test is 0)", "export the model in inference mode")
    return _as_of_seven(site.becomes(Call(site.call.op, site.names, site.results, site.attrs_without("is_test"))))


def without(*names: str) -> Callable[[Site], Expansion]:
    """Attributes that said what inputs, outputs and numpy's rules of broadcasting say since."""

    def rule(site: Site) -> Expansion:
        return _as_of_seven(site.becomes(Call(site.call.op, site.names, site.results, site.attrs_without(*names))))

    return rule


def sides_scaled(site: Site) -> Expansion | None:
    """Upsample of four axes, by `height_scale` and `width_scale`."""
    height, width = (site.call.attrs.get(name) for name in ("height_scale", "width_scale"))
    if not isinstance(height, float) or not isinstance(width, float) or site.first.rank != 4:
        raise Unsupported(f"it scales {site.first} by {height!r:.40} and {width!r:.40}", AGAIN)
    attrs: dict[str, AttrValue] = {"mode": site.call.attrs.get("mode", "nearest"), "scales": (1.0, 1.0, height, width)}
    return _as_of_seven(site.becomes(Call("Upsample", ("x0",), ("y0",), attrs)))


BROADCASTING = ("Add", "And", "Div", "Equal", "Greater", "Less", "Mul", "Or", "Pow", "Sub", "Xor")

OPSET_SIX: tuple[tuple[str, Callable[[Site], Expansion | None]], ...] = (
    *((name, limited_broadcast) for name in BROADCASTING),
    ("BatchNormalization", when_testing),
    ("GRU", without("output_sequence")),
    ("Gemm", without("broadcast")),
    ("LSTM", without("output_sequence")),
    ("PRelu", slope_per_channel),
    ("RNN", without("output_sequence")),
    ("Upsample", sides_scaled),
)

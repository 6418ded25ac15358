"""Operators that draw random numbers, each as an Expansion over ai.onnx and the compiler's own RandomBits.

What they draw follows from a key and the number of the run (`compiler.ops.random`): with the attribute `seed` the key
is that, else the one that whoever loads the artifact gives, or a new one. Each node, and each iteration of a loop that
is unrolled, draws from a stream of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

from compiler.frontend.expansions.composition import Composition
from compiler.frontend.expansions.site import Site
from compiler.frontend.reading.model import Expansion
from compiler.frontend.reading.tensors import CODES, DTYPES
from compiler.ir.tensor import DType
from compiler.ops.operator import Unsupported

RANDOM_BITS = "tilewright::RandomBits"
"""What the compiler's own definitions call a tensor of random words; no model may."""
AGAIN = "export the model again"
DIGITS: Mapping[DType, int] = {DType.F16: 11, DType.BF16: 8, DType.F32: 24, DType.F64: 53}
"""Bits of a uniform number in [0, 1), all of which the type holds."""

Dims = tuple[int, ...] | str
"""A shape; where it is open, the name of a vector that holds it."""


class Draws:
    """Random numbers, written into a composition, by the seed of its call."""

    def __init__(self, site: Site) -> None:
        self.composition = Composition(site)
        seed = site.call.attrs.get("seed")
        if not isinstance(seed, int | float | None):
            raise Unsupported(f"its seed is {seed!r:.40}", "give a number")
        self.attrs = {} if seed is None else {"key": int(np.float32(seed).view(np.uint32))}

    def bits(self, dims: Dims) -> str:
        """Words of 32 bits."""
        if isinstance(dims, str):
            return self.composition.call(RANDOM_BITS, dims, **self.attrs)
        return self.composition.call(RANDOM_BITS, shape=dims, **self.attrs)

    def like(self, *more: int, axes: int | None = None) -> Dims:
        """The shape of the first input, or its first axes and so many more."""
        shape = self.composition.site.first.shape[:axes]
        numbers = [dim for dim in shape if isinstance(dim, int)]
        if len(numbers) == len(shape):
            return (*numbers, *more)
        open_ = self.composition.call("Shape", "x0", **({} if axes is None else {"end": axes}))
        return self.composition.call("Concat", open_, self.composition.ints(*more), axis=0) if more else open_

    def uniform(self, kind: DType, dims: Dims, above_zero: bool = False) -> str:
        """Numbers from [0, 1), or from (0, 1]: whole multiples of a power of a half, each of which may come."""
        call, digits = self.composition.call, DIGITS[kind]
        whole = call("Cast", self._shifted(self.bits(dims), 32 - min(digits, 32)), to=CODES[kind])
        if kind is DType.F64:
            rest = call("Cast", self._shifted(self.bits(dims), 64 - digits), to=CODES[kind])
            whole = call("Add", call("Mul", whole, self.number(2.0 ** (digits - 32), kind)), rest)
        if above_zero:
            whole = call("Add", whole, self.number(1, kind))
        return call("Mul", whole, self.number(2.0**-digits, kind))

    def normal(self, kind: DType, dims: Dims) -> str:
        """Numbers of mean 0 and variance 1 (Box and Muller, 1958)."""
        wide = DType.F64 if kind is DType.F64 else DType.F32
        call = self.composition.call
        logarithm = call("Log", self.uniform(wide, dims, above_zero=True))
        radius = call("Sqrt", call("Mul", logarithm, self.number(-2, wide)))
        angle = call("Mul", self.uniform(wide, dims), self.number(2 * math.pi, wide))
        return call("Mul", radius, call("Cos", angle))

    def number(self, value: float, kind: DType) -> str:
        """The name of a constant of this type without axes."""
        return self.composition.constant(np.array(value, kind.numpy))

    def _shifted(self, name: str, count: int) -> str:
        if not count:
            return name
        return self.composition.call(
            "BitShift", name, self.composition.constant(np.array(count, np.uint32)), direction="RIGHT"
        )


def _shape(draws: Draws, site: Site) -> Dims:
    return draws.like() if site.call.op.endswith("Like") else tuple(site.ints("shape") or ())


def _kind(site: Site, fallback: DType | None = None) -> DType:
    """The element type that is asked for."""
    code = site.call.attrs.get("dtype")
    if code is None and fallback is None:
        fallback = site.first.dtype if site.call.op.endswith("Like") else DType.F32
    kind = fallback if code is None else DTYPES.get(code) if isinstance(code, int) else None
    if kind is None or kind.is_small:
        raise Unsupported(f"dtype {code!r:.40} is not supported", "use a type from bool to double")
    return kind


def _real(site: Site) -> DType:
    kind = _kind(site)
    if kind not in DIGITS:
        raise Unsupported(f"it draws {kind}", "use a type from float16 to double")
    return kind


def _number(site: Site, name: str, default: float) -> float:
    value = site.call.attrs.get(name, default)
    if not isinstance(value, int | float) or not math.isfinite(value):
        raise Unsupported(f"attribute {name!r} is {value!r:.40}", "give a number")
    return float(value)


def uniform(site: Site) -> Expansion:
    """RandomUniform and RandomUniformLike: low + (high - low) u."""
    draws, kind = Draws(site), _real(site)
    low, high = _number(site, "low", 0.0), _number(site, "high", 1.0)
    found = draws.uniform(kind, _shape(draws, site))
    if (low, high) != (0.0, 1.0):
        wide = draws.composition.call("Mul", found, draws.number(high - low, kind))
        found = draws.composition.call("Add", wide, draws.number(low, kind))
    return draws.composition.gives(found)


def normal(site: Site) -> Expansion:
    """RandomNormal and RandomNormalLike: mean + scale z."""
    draws, kind = Draws(site), _real(site)
    wide = DType.F64 if kind is DType.F64 else DType.F32
    found = draws.normal(kind, _shape(draws, site))
    found = draws.composition.call("Mul", found, draws.number(_number(site, "scale", 1.0), wide))
    found = draws.composition.call("Add", found, draws.number(_number(site, "mean", 0.0), wide))
    return draws.composition.gives(draws.composition.cast(found, wide, kind))


def bernoulli(site: Site) -> Expansion:
    """1 with the probability that an element of x is, else 0."""
    draws, x = Draws(site), site.first
    if x.dtype not in DIGITS:
        raise Unsupported(f"its probabilities are {x}", "give floats")
    wide = DType.F64 if x.dtype is DType.F64 else DType.F32
    probability = draws.composition.cast("x0", x.dtype, wide)
    hit = draws.composition.call("Less", draws.uniform(wide, draws.like()), probability)
    return draws.composition.gives(draws.composition.cast(hit, DType.BOOL, _kind(site, x.dtype)))


def multinomial(site: Site) -> Expansion:
    """Classes [batch, sample_size], drawn by weights exp(x): the inverse of their running sums."""
    draws, x = Draws(site), site.first
    kind, count = _kind(site, DType.I32), site.integer("sample_size", 1)
    classes = x.shape[1] if x.rank == 2 else 0
    if not isinstance(classes, int):
        raise Unsupported(
            f"it draws from {x}, of which the number of classes is open", "bind that dimension to a number"
        )
    if not classes or count < 1 or kind not in (DType.I32, DType.I64) or x.dtype not in DIGITS:
        raise Unsupported(f"it draws {count} {kind} from {x}", AGAIN)
    wide = DType.F64 if x.dtype is DType.F64 else DType.F32
    call, composition = draws.composition.call, draws.composition
    axis = composition.constant(np.array(1, np.int64))
    sums = call("CumSum", call("Softmax", composition.cast("x0", x.dtype, wide), axis=1), axis)
    below = call("Slice", sums, composition.ints(0), composition.ints(classes - 1), composition.ints(1))
    drawn = call("Unsqueeze", draws.uniform(wide, draws.like(count, axes=1)), composition.ints(2))
    passed = call("GreaterOrEqual", drawn, call("Unsqueeze", below, composition.ints(1)))
    return composition.gives(
        call("ReduceSum", composition.cast(passed, DType.BOOL, kind), composition.ints(2), keepdims=0)
    )


def dropout(site: Site) -> Expansion:
    """Dropout in training form: x / (1 - ratio) where an element is kept, else 0; and which are kept.

    Where only the run says whether it trains, x itself and a mask of ones otherwise.
    """
    draws, x = Draws(site), site.first
    call, composition = draws.composition.call, draws.composition
    wide = DType.F64 if x.dtype is DType.F64 else DType.F32
    ratio = draws.number(0.5, wide)
    if len(site.types) > 1 and site.types[1] is not None:
        if site.types[1].elements != 1:
            raise Unsupported(f"its ratio is {site.types[1]}", "give one number")
        ratio = composition.cast(composition.reshape("x1"), site.types[1].dtype, wide)
    kept = call("GreaterOrEqual", draws.uniform(wide, draws.like()), ratio)
    scaled = call("Div", composition.cast("x0", x.dtype, wide), call("Sub", draws.number(1, wide), ratio))
    y = composition.cast(call("Where", kept, scaled, draws.number(0, wide)), wide, x.dtype)
    if site.constants[2] is None:
        trains = composition.reshape("x2")
        y, kept = call("Where", trains, y, "x0"), call("Or", kept, call("Not", trains))
    return composition.gives(y, kept)


DRAWING: Mapping[str, Callable[[Site], Expansion]] = {
    "Bernoulli": bernoulli,
    "Multinomial": multinomial,
    "RandomNormal": normal,
    "RandomNormalLike": normal,
    "RandomUniform": uniform,
    "RandomUniformLike": uniform,
}
"""Operators whose every form draws; a Dropout may."""

"""Features brought into shape: chosen, joined, scaled, normalised, filled in.

Source: the operators of ai.onnx.ml (onnx/docs/Operators-ml.md).
"""

from __future__ import annotations

import numpy as np

from compiler.frontend.expansions.composition import Composition
from compiler.frontend.expansions.ml.attributes import columns, demand, number, numbers, word
from compiler.frontend.expansions.site import Site
from compiler.frontend.reading.model import Expansion
from compiler.ir.tensor import DType


def as_f32(site: Site, composition: Composition, position: int = 0) -> str:
    """An input as float32, which most operators of this domain compute in."""
    return composition.cast(f"x{position}", site.given(position).dtype, DType.F32)


def extractor(site: Site) -> Expansion:
    """z[..., i] = x[..., y[i]]; a vector counts as one row."""
    x, y = site.given(0), site.given(1)
    demand(x.rank >= 1 and y.elements >= 1, f"{y} are no indices into {x}")
    composition = Composition(site)
    z = composition.call("Gather", "x0", composition.reshape("x1", y.elements), axis=-1)
    return composition.gives(composition.reshape(z, 1, y.elements) if x.rank == 1 else z)


def binarizer(site: Site) -> Expansion:
    """1 where x is above the threshold, else 0."""
    kind = site.given(0).dtype
    composition = Composition(site)
    threshold = np.array(number(site, "threshold", 0.0), np.float32)
    if kind.is_integer:  # x > t is x > floor(t), and that is an integer
        threshold = np.floor(threshold)
    above = composition.call("Greater", "x0", composition.constant(threshold.astype(kind.numpy)))
    return composition.gives(composition.cast(above, DType.BOOL, kind))


def vectorizer(site: Site) -> Expansion:
    """Rows of all inputs side by side, in float32; a vector counts as one row."""
    composition = Composition(site)
    parts = []
    stated = numbers(site, "inputdimensions", np.int64).tolist()
    for position in range(len(site.call.inputs)):
        kind = site.given(position)
        demand(kind.rank in (1, 2), f"input {position} is {kind}, which is neither a vector nor a matrix")
        width = columns(kind)
        demand(not stated or stated[position : position + 1] == [width], f"inputdimensions {stated} do not fit")
        part = as_f32(site, composition, position)
        parts.append(part if kind.rank == 2 else composition.reshape(part, 1, width))
    return composition.gives(composition.call("Concat", *parts, axis=1))


def imputer(site: Site) -> Expansion:
    """Elements equal to what stands for a missing one are replaced by the number of their column."""
    kind = site.given(0)
    suffix = "int64" if kind.dtype.is_integer else "float"
    values = numbers(site, f"imputed_value_{suffix}s", np.float64 if kind.dtype.is_float else np.int64)
    missing = number(site, f"replaced_value_{suffix}", 0)
    demand(len(values) in (1, columns(kind)), f"{len(values)} imputed values do not fit {kind}")
    composition = Composition(site)
    if np.isnan(missing):
        absent = composition.call("IsNaN", "x0")
    else:
        absent = composition.call("Equal", "x0", composition.constant(np.array(missing, kind.dtype.numpy)))
    filled = composition.constant(values.astype(kind.dtype.numpy))
    return composition.gives(composition.call("Where", absent, filled, "x0"))


def normalizer(site: Site) -> Expansion:
    """x over its row's largest element (MAX), sum of magnitudes (L1) or length (L2); a row without is left."""
    norm = word(site, "norm", "MAX", "MAX", "L1", "L2")
    kind = site.given(0)
    demand(kind.rank in (1, 2), f"{kind} is neither a vector nor a matrix")
    composition = Composition(site)
    x = as_f32(site, composition)
    reduce = {"MAX": "ReduceMax", "L1": "ReduceL1", "L2": "ReduceL2"}[norm]
    size = composition.call(reduce, x, composition.ints(-1), keepdims=1)
    one = composition.constant(np.array(1, np.float32))
    empty = composition.call("Equal", size, composition.constant(np.array(0, np.float32)))
    return composition.gives(composition.call("Div", x, composition.call("Where", empty, one, size)))


def scaler(site: Site) -> Expansion:
    """(x - offset) * scale, of each column or of all."""
    kind = site.given(0)
    offset, scale = numbers(site, "offset"), numbers(site, "scale")
    width = columns(kind)
    demand({len(offset), len(scale)} <= {1, width}, f"{len(offset)} offsets and {len(scale)} scales do not fit {kind}")
    composition = Composition(site)
    moved = composition.call("Sub", as_f32(site, composition), composition.constant(offset))
    return composition.gives(composition.call("Mul", moved, composition.constant(scale)))

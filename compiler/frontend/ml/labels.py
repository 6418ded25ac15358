"""Keys and categories that are numbers: LabelEncoder and OneHotEncoder."""

from __future__ import annotations

import numpy as np

from compiler.frontend.composition import Composition
from compiler.frontend.ml.attributes import AGAIN, demand, no_words, number, numbers
from compiler.frontend.model import Expansion
from compiler.frontend.site import Site
from compiler.ir.tensor import DType
from compiler.ops.operator import Unsupported

MOST_KEYS = 4096
"""Each is compared with every element."""


def encoder(site: Site) -> Expansion:
    """The value beside the first key that equals x, else the default; a NaN is the key NaN."""
    kind = site.given(0)
    no_words(site, "keys_strings", "values_strings")
    keys, values, default = _table(site)
    demand(0 < len(keys) == len(values), f"{len(keys)} keys and {len(values)} values do not fit together")
    demand(len(keys) <= MOST_KEYS, f"it has {len(keys)} keys, more than {MOST_KEYS}")
    demand(keys.dtype == kind.dtype.numpy, f"its keys are {keys.dtype}, and its input is {kind}")
    composition = Composition(site)
    wide = composition.call("Unsqueeze", "x0", composition.ints(-1))
    equal = composition.call("Equal", wide, composition.constant(keys))
    if kind.dtype.is_float and np.isnan(keys).any():
        both = composition.call("And", composition.call("IsNaN", wide), composition.constant(np.isnan(keys)))
        equal = composition.call("Or", equal, both)
    hits = composition.cast(equal, DType.BOOL, DType.I32)
    found = composition.call("ReduceMax", hits, composition.ints(-1), keepdims=0)
    place = composition.call("ArgMax", hits, axis=-1, keepdims=0, select_last_index=0)
    value = composition.call("Gather", composition.constant(values), place, axis=0)
    hit = composition.cast(found, DType.I32, DType.BOOL)
    return composition.gives(composition.call("Where", hit, value, composition.constant(default)))


def _table(site: Site) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Keys, values and the default, in their element types."""
    types: tuple[tuple[str, np.dtype], ...] = (("int64s", np.dtype(np.int64)), ("floats", np.dtype(np.float32)))
    keys = [_tensor(site, "keys_tensor"), *(numbers(site, f"keys_{name}", dtype) for name, dtype in types)]
    values = [_tensor(site, "values_tensor"), *(numbers(site, f"values_{name}", dtype) for name, dtype in types)]
    default = site.call.attrs.get("default_tensor")
    kept = next((array for array in values if array.size), np.zeros(0, np.int64))
    if not isinstance(default, np.ndarray):
        of_kind = number(site, "default_float", -0.0) if kept.dtype.kind == "f" else number(site, "default_int64", -1)
        default = np.array(of_kind)
    demand(default.size == 1, "its default is not one number")
    return next((array for array in keys if array.size), kept[:0]), kept, default.reshape(()).astype(kept.dtype)


def _tensor(site: Site, name: str) -> np.ndarray:
    value = site.call.attrs.get(name, np.zeros(0, np.int64))
    if not isinstance(value, np.ndarray) or value.dtype.kind not in "biuf":
        raise Unsupported(f"attribute {name!r} is no tensor of numbers", AGAIN)
    return value.reshape(-1)


def one_hot(site: Site) -> Expansion:
    """1 at the category that equals x, else 0, on a new last axis."""
    kind = site.given(0)
    no_words(site, "cats_strings")
    cats = numbers(site, "cats_int64s", np.int64)
    demand(0 < len(cats) <= MOST_KEYS, f"it has {len(cats)} categories, where 1 to {MOST_KEYS} are taken")
    demand(bool(number(site, "zeros", 1)), "it stops at an unknown category (zeros is 0)")
    composition = Composition(site)
    whole = composition.cast("x0", kind.dtype, DType.I64)
    wide = composition.call("Unsqueeze", whole, composition.ints(-1))
    equal = composition.call("Equal", wide, composition.constant(cats))
    return composition.gives(composition.cast(equal, DType.BOOL, DType.F32))

"""Keys and categories, numbers or strings: LabelEncoder, CategoryMapper and OneHotEncoder.

Strings have numbers that count from 0 (`compiler.ir.border`), so that their keys are places in a table; numbers are
compared with every key.
"""

from __future__ import annotations

import numpy as np

from compiler.frontend.expansions.composition import Composition
from compiler.frontend.expansions.ml.attributes import AGAIN, demand, number, numbers, words
from compiler.frontend.expansions.site import Site
from compiler.frontend.reading.model import Expansion
from compiler.frontend.reading.strings import NUMBER_OF, is_text, text_array
from compiler.ir.tensor import DType
from compiler.ops.operator import Unsupported

MOST_KEYS = 4096
"""Each is compared with every element."""
UNKNOWN = "_Unused"
"""The string beside no key, where the node states none."""


def encoder(site: Site) -> Expansion:
    """LabelEncoder: the value beside the first key that equals x, else the default; a NaN is the key NaN."""
    return _encoded(site, *_table(site))


def mapper(site: Site) -> Expansion:
    """CategoryMapper: strings to whole numbers, or back."""
    names, counts = text_array(words(site, "cats_strings")), numbers(site, "cats_int64s", np.int64)
    if site.is_text:
        return _encoded(site, names, counts, np.array(int(number(site, "default_int64", -1)), np.int64))
    return _encoded(site, counts, names, _default_word(site))


def _encoded(site: Site, keys: np.ndarray, values: np.ndarray, default: np.ndarray) -> Expansion:
    kind = site.given(0)
    demand(0 < len(keys) == len(values), f"{len(keys)} keys and {len(values)} values do not fit together")
    demand(is_text(keys) == site.is_text, f"its keys are {_named(keys)}, and its input is not")
    composition = Composition(site)
    if site.is_text:
        return composition.gives(_looked_up(composition, site.numbers_of(keys), values, default))
    demand(len(keys) <= MOST_KEYS, f"it has {len(keys)} keys, more than {MOST_KEYS}")
    demand(keys.dtype == kind.dtype.numpy, f"its keys are {keys.dtype}, and its input is {kind}")
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


def _looked_up(composition: Composition, keys: np.ndarray, values: np.ndarray, default: np.ndarray) -> str:
    """The value at the string's number: the default before the least and behind the greatest key, and between them."""
    low, high = int(keys.min()), int(keys.max())
    table = np.full(high - low + 3, default.reshape(()).item() if is_text(values) else default, values.dtype)
    table[keys[::-1] - low + 1] = values[::-1]
    ends = (composition.constant(np.array(end, np.int64)) for end in (low - 1, high + 1))
    held = composition.call("Clip", composition.call(NUMBER_OF, "x0"), *ends)
    place = composition.call("Sub", held, composition.constant(np.array(low - 1, np.int64)))
    return composition.call("Gather", composition.constant(table), place, axis=0)


def _table(site: Site) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Keys, values and the default, in their element types."""
    keys, values = (_list(site, name) for name in ("keys", "values"))
    default = site.call.attrs.get("default_tensor")
    if is_text(values):
        if default is None:
            return keys, values, _default_word(site)
        demand(is_text(default), "its default is no string")
    elif not isinstance(default, np.ndarray):
        of_kind = number(site, "default_float", -0.0) if values.dtype.kind == "f" else number(site, "default_int64", -1)
        default = np.array(of_kind)
    assert isinstance(default, np.ndarray)
    demand(default.size == 1, "its default is not one number")
    return keys, values, default.reshape(()).astype(values.dtype)


def _list(site: Site, name: str) -> np.ndarray:
    """Keys or values, by whichever attribute holds some."""
    if len(found := words(site, f"{name}_strings")):
        return text_array(found)
    types: tuple[tuple[str, np.dtype], ...] = (("int64s", np.dtype(np.int64)), ("floats", np.dtype(np.float32)))
    lists = [_tensor(site, f"{name}_tensor"), *(numbers(site, f"{name}_{kind}", dtype) for kind, dtype in types)]
    return next((array for array in lists if array.size), lists[0])


def _default_word(site: Site) -> np.ndarray:
    value = site.call.attrs.get("default_string", UNKNOWN)
    demand(isinstance(value, str), "its default is no string")
    return text_array([str(value)], ())


def _tensor(site: Site, name: str) -> np.ndarray:
    value = site.call.attrs.get(name, np.zeros(0, np.int64))
    if not isinstance(value, np.ndarray) or value.dtype.kind not in "biufO":
        raise Unsupported(f"attribute {name!r} is no tensor of numbers or strings", AGAIN)
    return value.reshape(-1)


def _named(array: np.ndarray) -> str:
    return "strings" if is_text(array) else str(array.dtype)


def one_hot(site: Site) -> Expansion:
    """1 at the category that equals x, else 0, on a new last axis."""
    kind = site.given(0)
    names = words(site, "cats_strings")
    cats = text_array(names) if site.is_text else numbers(site, "cats_int64s", np.int64)
    demand(0 < len(cats) <= MOST_KEYS, f"it has {len(cats)} categories, where 1 to {MOST_KEYS} are taken")
    demand(bool(number(site, "zeros", 1)), "it stops at an unknown category (zeros is 0)")
    composition = Composition(site)
    whole = "x0" if site.is_text else composition.cast("x0", kind.dtype, DType.I64)
    wide = composition.call("Unsqueeze", whole, composition.ints(-1))
    equal = composition.call("Equal", wide, composition.constant(cats))
    return composition.gives(composition.cast(equal, DType.BOOL, DType.F32))

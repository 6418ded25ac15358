"""TfIdfVectorizer: how often each n-gram of a pool occurs in each row of tokens, by comparing windows with the pool."""

from __future__ import annotations

import numpy as np

from compiler.frontend.expansions.composition import Composition
from compiler.frontend.expansions.ml.attributes import demand, number, numbers, word, words
from compiler.frontend.expansions.site import Site
from compiler.frontend.reading.model import Expansion
from compiler.frontend.reading.strings import NUMBER_OF, text_array
from compiler.ops.operator import Unsupported

MOST_COMPARED = 2**28
"""Comparisons of tokens with tokens, beyond which the vectoriser is refused."""


def tf_idf(site: Site) -> Expansion:
    """Y [N, columns] of X [N, C], or [columns] of [C]: counts, 1 where there are any, or either times weights.

    An n-gram is n tokens that are s + 1 places from each other, for each s up to `max_skip_count`; of a single token
    there is one s. X holds whole numbers or strings, of which the program has the numbers.
    """
    mode = word(site, "mode", "", "TF", "IDF", "TFIDF")
    kind = site.first
    demand(kind.rank in (1, 2), f"{kind} is no row of tokens, and no rows of them")
    pool, columns, weights = _pool(site), numbers(site, "ngram_indexes", np.int64), numbers(site, "weights")
    least, most = (int(number(site, f"{name}_gram_length", 0)) for name in ("min", "max"))
    skips, begins = int(number(site, "max_skip_count", 0)), numbers(site, "ngram_counts", np.int64).tolist()
    demand(1 <= least <= most and skips >= 0 and len(begins) >= most, "its lengths of n-grams do not fit each other")
    rows, length = (1, *kind.dims)[-2:]
    ends = [*begins[1:], len(pool)]
    composition = Composition(site)
    call = composition.call
    tokens = composition.reshape(call(NUMBER_OF, "x0") if site.is_text else "x0", rows, length)
    parts: list[str] = []
    at = compared = 0
    places: list[int] = []
    for size, (begin, end) in enumerate(zip(begins, ends, strict=True), 1):
        demand(0 <= begin <= end <= len(pool) and not (end - begin) % size, "its pool is not cut into n-grams")
        grams = pool[begin:end].reshape(-1, size)
        if least <= size <= most and len(grams):
            windows = _windows(length, size, skips)
            compared += rows * len(windows) * grams.size
            places += range(at, at + len(grams))
            parts.append(_counted(composition, tokens, windows, grams, rows))
        at += len(grams)
    demand(at == len(columns) > 0 and min(columns) >= 0, f"{len(columns)} columns do not fit {at} n-grams")
    demand(len(set(columns.tolist())) == len(columns), "two n-grams have one column")
    demand(len(weights) in (0, at), f"{len(weights)} weights do not fit {at} n-grams")
    if compared > MOST_COMPARED:
        raise Unsupported(f"it compares {compared} tokens", "count on the host, or bind fewer tokens")
    width = int(max(columns)) + 1
    where = np.full(width, len(places))  # the last column is always 0
    where[columns[places]] = np.arange(len(places))
    none = composition.constant(np.zeros((rows, 1), np.float32))
    y = call("Gather", call("Concat", *parts, none, axis=1), composition.constant(where), axis=1)
    if mode == "IDF":
        zero, one = (composition.constant(np.array(value, np.float32)) for value in (0, 1))
        y = call("Where", call("Greater", y, zero), one, zero)
    if mode != "TF" and len(weights):
        scaled = np.zeros(width, np.float32)
        scaled[columns] = weights
        y = call("Mul", y, composition.constant(scaled))
    return composition.gives(composition.reshape(y, width) if kind.rank == 1 else y)


def _pool(site: Site) -> np.ndarray:
    """The tokens of the pool as the program's numbers."""
    found = words(site, "pool_strings")
    demand(bool(found) is site.is_text, "its pool and its input are not both strings, or both numbers")
    return site.numbers_of(text_array(found)) if found else numbers(site, "pool_int64s", site.first.dtype.numpy)


def _windows(length: int, size: int, skips: int) -> np.ndarray:
    """[windows, size]: the places of the tokens of each n-gram."""
    found = [
        begin + (skip + 1) * np.arange(size)
        for skip in range(skips + 1 if size > 1 else 1)
        for begin in range(length - (skip + 1) * (size - 1))
    ]
    return np.array(found, np.int64).reshape(-1, size)


def _counted(composition: Composition, tokens: str, windows: np.ndarray, grams: np.ndarray, rows: int) -> str:
    """[N, grams]: of how many windows the tokens are those of each n-gram."""
    call = composition.call
    if not len(windows):
        return composition.constant(np.zeros((rows, len(grams)), np.float32))
    found = ""
    for place in range(grams.shape[1]):
        token = call("Gather", tokens, composition.constant(windows[:, place].copy()), axis=1)
        alike = call(
            "Equal", call("Unsqueeze", token, composition.ints(2)), composition.constant(grams[:, place].copy())
        )
        found = call("And", found, alike) if found else alike
    return call("ReduceSum", call("Cast", found, to=1), composition.ints(1), keepdims=0)

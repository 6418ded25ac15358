"""Linear models, and what becomes of scores: LinearRegressor, LinearClassifier."""

from __future__ import annotations

import numpy as np

from compiler.frontend.expansions.composition import Composition
from compiler.frontend.expansions.ml.attributes import columns, demand, labels, number, numbers, word
from compiler.frontend.expansions.ml.features import as_f32
from compiler.frontend.expansions.site import Site
from compiler.frontend.reading.model import Expansion

POST = ("NONE", "SOFTMAX", "LOGISTIC")
"""Post transforms that are compiled."""


def transformed(composition: Composition, scores: str, post: str) -> str:
    """Scores [N, K] after their post transform."""
    if post == "SOFTMAX":
        return composition.call("Softmax", scores, axis=-1)
    return composition.call("Sigmoid", scores) if post == "LOGISTIC" else scores


def labelled(composition: Composition, scores: str, names: np.ndarray) -> str:
    """The label of the largest score of each row; the first among equals."""
    best = composition.call("ArgMax", scores, axis=-1, keepdims=0, select_last_index=0)
    return composition.call("Gather", composition.constant(names), best, axis=0)


def regressor(site: Site) -> Expansion:
    """y = x C^T + intercepts, for C [targets, features]."""
    post = word(site, "post_transform", "NONE", *POST)
    composition = Composition(site)
    scores = _scores(site, composition, int(number(site, "targets", 1)))
    return composition.gives(transformed(composition, scores, post))


def classifier(site: Site) -> Expansion:
    """The label of the class with the best score, and the scores after their post transform."""
    post = word(site, "post_transform", "NONE", *POST)
    names = labels(site, "classlabels_ints")
    composition = Composition(site)
    scores = _scores(site, composition, len(names))
    return composition.gives(labelled(composition, scores, names), transformed(composition, scores, post))


def _scores(site: Site, composition: Composition, rows: int) -> str:
    """[N, rows]; a vector counts as one sample."""
    kind = site.given(0)
    coefficients, intercepts = numbers(site, "coefficients"), numbers(site, "intercepts")
    width = columns(kind)
    fits = kind.rank in (1, 2) and rows > 0 and len(coefficients) == rows * width and len(intercepts) in (0, rows)
    demand(fits, f"{len(coefficients)} coefficients and {len(intercepts)} intercepts do not fit {kind}")
    x = as_f32(site, composition)
    if kind.rank == 1:
        x = composition.reshape(x, 1, width)
    weights = composition.constant(np.ascontiguousarray(coefficients.reshape(rows, width).T))
    products = composition.call("MatMul", x, weights)
    return composition.call("Add", products, composition.constant(intercepts)) if len(intercepts) else products

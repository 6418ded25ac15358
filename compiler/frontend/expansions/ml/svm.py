"""SVMRegressor and SVMClassifier: kernels of each sample with the support vectors, weighted.

Scores, ties and labels are those of ONNX Runtime's CPU kernels, which follow libsvm (Chang and Lin, 2011).
"""

from __future__ import annotations

from itertools import combinations

import numpy as np

from compiler.frontend.expansions.composition import Composition
from compiler.frontend.expansions.ml.attributes import columns, demand, labels, number, numbers, word
from compiler.frontend.expansions.ml.features import as_f32
from compiler.frontend.expansions.ml.linear import POST, transformed
from compiler.frontend.expansions.site import Site
from compiler.frontend.reading.model import Expansion
from compiler.ir.tensor import DType

LEAST_CHANCE = 1e-7
"""Of either class of a pair, before the chances of pairs are coupled."""
COUPLING_TURNS = 100
COUPLING_ERROR = 0.005
"""Divided by the number of classes: where coupling ends."""
KERNELS = ("LINEAR", "POLY", "RBF", "SIGMOID")


def regressor(site: Site) -> Expansion:
    """y = sum of coefficients * kernel(x, support vectors) + rho; of one class: 1 where that is above 0, else -1."""
    word(site, "post_transform", "NONE", "NONE")
    kind = site.given(0)
    demand(kind.rank == 2, f"{kind} is no matrix")
    width = columns(kind)
    coefficients, rho = numbers(site, "coefficients"), numbers(site, "rho")
    supports, count = numbers(site, "support_vectors"), int(number(site, "n_supports", 0))
    demand(len(rho) == 1 and width > 0, f"it has {len(rho)} offsets")
    composition = Composition(site)
    x = as_f32(site, composition)
    if count:
        fits = len(supports) == count * width and len(coefficients) == count
        demand(fits, f"{len(supports)} numbers are no {count} support vectors for {kind}")
        values = kernel(site, composition, x, supports.reshape(count, width))
    else:  # the coefficients are those of the features
        demand(len(coefficients) == width, f"{len(coefficients)} coefficients do not fit {kind}")
        values = x
    total = composition.call("MatMul", values, composition.constant(coefficients.reshape(-1, 1)))
    total = composition.call("Add", total, composition.constant(rho))
    if number(site, "one_class", 0):
        one = composition.constant(np.array(1, np.float32))
        above = composition.call("Greater", total, composition.constant(np.array(0, np.float32)))
        total = composition.call("Where", above, one, composition.call("Neg", one))
    return composition.gives(total)


def kernel(site: Site, composition: Composition, x: str, supports: np.ndarray) -> str:
    """[N, supports]: linear x.v, (gamma x.v + coef0)^degree, exp(-gamma |x - v|^2) or tanh(gamma x.v + coef0)."""
    name = word(site, "kernel_type", "LINEAR", *KERNELS)
    given = numbers(site, "kernel_params")
    gamma, coef0, degree = (*given.tolist(), 0.0, 0.0, 0.0)[:3]

    def scalar(value: float) -> str:
        return composition.constant(np.array(value, np.float32))

    if name == "RBF":
        wide = composition.call("Unsqueeze", x, composition.ints(1))
        apart = composition.call("Sub", wide, composition.constant(supports))
        square = composition.call("ReduceSumSquare", apart, composition.ints(-1), keepdims=0)
        return composition.call("Exp", composition.call("Mul", square, scalar(-gamma)))
    products = composition.call("MatMul", x, composition.constant(np.ascontiguousarray(supports.T)))
    if name == "LINEAR":
        return products
    moved = composition.call("Add", composition.call("Mul", products, scalar(gamma)), scalar(coef0))
    return composition.call("Tanh", moved) if name == "SIGMOID" else composition.call("Pow", moved, scalar(degree))


def classifier(site: Site) -> Expansion:
    """The label of each sample, and scores: of each class, or of each pair of classes without `prob_a`.

    With `vectors_per_class` a classifier for each pair of classes votes for one of them; the label is the first that
    has most. Without, a class has a linear score.
    """
    post = word(site, "post_transform", "NONE", *POST)
    names, per_class = labels(site, "classlabels_ints"), numbers(site, "vectors_per_class", np.int64)
    kind = site.given(0)
    demand(kind.rank in (1, 2) and columns(kind) > 0, f"{kind} is no matrix")
    composition = Composition(site)
    x = as_f32(site, composition)
    if kind.rank == 1:
        x = composition.reshape(x, 1, columns(kind))
    best, scores = _voted(site, composition, x, per_class, post) if len(per_class) else _linear(site, composition, x)
    if not len(per_class):
        scores = transformed(composition, scores, post)
    return composition.gives(composition.call("Gather", composition.constant(names), best, axis=0), scores)


def _linear(site: Site, composition: Composition, x: str) -> tuple[str, str]:
    """The place of the best class, and the score of each.

    Of two classes with one offset it is the second where the larger score is above 0, or from 0.5 on where no
    coefficient is negative, as ONNX Runtime has it.
    """
    call = composition.call
    coefficients, rho = numbers(site, "coefficients"), numbers(site, "rho")
    count, width = len(labels(site, "classlabels_ints")), columns(site.given(0))
    fits = len(coefficients) == count * width and len(rho) > 0
    demand(
        fits, f"{len(coefficients)} coefficients and {len(rho)} offsets do not fit {count} classes of {width} numbers"
    )
    weights = composition.constant(np.ascontiguousarray(coefficients.reshape(count, width).T))
    scores = call("Add", call("MatMul", x, weights), composition.constant(rho[:1]))
    best = call("ArgMax", scores, axis=-1, keepdims=0, select_last_index=0)
    if count == 2 and len(rho) == 1:
        largest = call("ReduceMax", scores, composition.ints(-1), keepdims=0)
        above, bound = ("GreaterOrEqual", 0.5) if (coefficients >= 0).all() else ("Greater", 0.0)
        is_second = call(above, largest, composition.constant(np.array(bound, np.float32)))
        best = call("Where", is_second, composition.constant(np.array(1, np.int64)), best)
    return best, scores


def _voted(site: Site, composition: Composition, x: str, per_class: np.ndarray, post: str) -> tuple[str, str]:
    """The place of the class that most pairs vote for, and scores after their post transform."""
    call = composition.call
    classes, total, width = len(per_class), int(per_class.sum()), columns(site.given(0))
    supports, coefficients, rho = (numbers(site, name) for name in ("support_vectors", "coefficients", "rho"))
    pairs = list(combinations(range(classes), 2))
    demand(
        bool((per_class >= 0).all()) and classes == len(labels(site, "classlabels_ints")), f"it has {classes} classes"
    )
    fits = len(supports) == total * width > 0 and len(coefficients) == total * (classes - 1) and len(rho) == len(pairs)
    demand(fits, f"{len(supports)} numbers are no {total} support vectors of {classes} classes for {site.given(0)}")
    values = kernel(site, composition, x, supports.reshape(total, width))
    ends = np.cumsum([0, *per_class]).tolist()
    given = coefficients.reshape(classes - 1, total)
    weights, votes = np.zeros((total, len(pairs)), np.float32), np.zeros((len(pairs), classes), np.float32)
    for at, (one, other) in enumerate(pairs):
        weights[ends[one] : ends[one + 1], at] = given[other - 1, ends[one] : ends[one + 1]]
        weights[ends[other] : ends[other + 1], at] = given[one, ends[other] : ends[other + 1]]
        votes[at, one], votes[at, other] = 1, -1
    scores = call("Add", call("MatMul", values, composition.constant(weights)), composition.constant(rho))
    zero, one_ = (composition.constant(np.array(value, np.float32)) for value in (0, 1))
    won = call("Where", call("Greater", scores, zero), one_, zero)
    against = composition.constant((votes < 0).sum(axis=0).astype(np.float32))
    counts = call("Add", call("MatMul", won, composition.constant(votes)), against)
    best = call("ArgMax", counts, axis=-1, keepdims=0, select_last_index=0)
    if len(numbers(site, "prob_a")):
        return best, transformed(composition, _chances(site, composition, scores, classes), post)
    if classes > 2:
        return best, transformed(composition, scores, post)
    first = call("Sub", one_, scores) if post == "SOFTMAX" else call("Neg", scores)
    both = call("Concat", first, scores, axis=1)
    return best, call("Sigmoid", both) if post == "LOGISTIC" else both


def _chances(site: Site, composition: Composition, scores: str, classes: int) -> str:
    """[N, classes]: probabilities of pairs by sigmoids, coupled.

    Source: Wu, Lin and Weng, Probability estimates for multi-class classification by pairwise coupling, 2004,
    algorithm 2, with libsvm's end: after 100 turns, or where no class is off by 0.005 over their number.
    """
    call = composition.call
    pairs = list(combinations(range(classes), 2))
    a, b = numbers(site, "prob_a"), numbers(site, "prob_b")
    demand(len(a) == len(b) == len(pairs), f"{len(a)} and {len(b)} parameters of sigmoids do not fit {classes} classes")

    def scalar(value: float) -> str:
        return composition.constant(np.array(value, np.float32))

    turned = call("Add", call("Mul", scores, composition.constant(-a)), composition.constant(-b))
    chances = call("Clip", call("Sigmoid", turned), scalar(LEAST_CHANCE), scalar(1 - LEAST_CHANCE))
    places, base = np.zeros((len(pairs), classes**2), np.float32), np.zeros(classes**2, np.float32)
    for at, (one, other) in enumerate(pairs):
        places[at, one * classes + other], places[at, other * classes + one] = 1, -1
        base[other * classes + one] = 1
    spread = call("Add", call("MatMul", chances, composition.constant(places)), composition.constant(base))
    table = call("Reshape", spread, composition.ints(-1, classes, classes), allowzero=0)  # [N, k, k]: r of i against j
    diagonal = call("ReduceSumSquare", table, composition.ints(1), keepdims=0)  # [N, k]
    eye = composition.constant(np.eye(classes, dtype=np.float32))
    products = call("Mul", table, call("Transpose", table, perm=(0, 2, 1)))
    coupling = call("Sub", call("Mul", eye, call("Unsqueeze", diagonal, composition.ints(2))), products)

    def turn(inner: Composition, p: str) -> tuple[str, str]:
        call, ints = inner.call, inner.ints
        one, two = (inner.constant(np.array(value, np.float32)) for value in (1, 2))
        qp = call("ReduceSum", call("Mul", coupling, call("Unsqueeze", p, ints(1))), ints(2), keepdims=0)
        pqp = call("ReduceSum", call("Mul", p, qp), ints(1), keepdims=1)
        error = call("ReduceMax", call("Abs", call("Sub", qp, pqp)), ints(1), keepdims=1)
        end = inner.constant(np.array(COUPLING_ERROR / classes, np.float32))
        goes_on = call("GreaterOrEqual", error, end)
        found = p
        for at in range(classes):
            own, square = (call("Slice", name, ints(at), ints(at + 1), ints(1)) for name in (qp, diagonal))
            step = call("Div", call("Sub", pqp, own), square)
            whole = call("Add", one, step)
            moved = call("Mul", step, inner.constant(np.eye(classes, dtype=np.float32)[at : at + 1]))
            found = call("Div", call("Add", found, moved), whole)
            gained = call("Mul", step, call("Add", call("Mul", step, square), call("Mul", two, own)))
            pqp = call("Div", call("Div", call("Add", pqp, gained), whole), whole)
            row = call("Squeeze", call("Slice", coupling, ints(at), ints(at + 1), ints(1)), ints(1))
            qp = call("Div", call("Add", qp, call("Mul", step, row)), whole)
        any_ = call("ReduceMax", call("Cast", goes_on, to=6), keepdims=0)
        return call("Cast", any_, to=9), call("Where", goes_on, found, p)

    equal = call("Add", call("Mul", diagonal, scalar(0)), scalar(1 / classes))
    return composition.loop(COUPLING_TURNS, equal, DType.F32, turn)

"""SVMRegressor: kernels of each sample with the support vectors, weighted."""

from __future__ import annotations

import numpy as np

from compiler.frontend.composition import Composition
from compiler.frontend.ml.attributes import columns, demand, number, numbers, word
from compiler.frontend.ml.features import as_f32
from compiler.frontend.model import Expansion
from compiler.frontend.site import Site

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

"""Which layers stay in floating point, so that every output is as near to the model in fp32 as is wanted."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from compiler.contract.options import MAX_SNR_DB
from compiler.errors import BudgetMissed, OptionsError
from compiler.quantize.calibrate import decibels

Outputs = Mapping[str, np.ndarray]
"""The values of a model's outputs on one sample."""


@dataclass(frozen=True)
class Fidelity:
    """Signal to noise of each output, in dB; None where nothing differs. `errors`: the largest over the largest value.

    An error is None where one of both is not finite and the other is.
    """

    outputs: Mapping[str, float | None]
    errors: Mapping[str, float | None] = field(default_factory=dict)

    @property
    def least(self) -> float:
        """Of the output that differs most; infinite where none differs."""
        return min((one for one in self.outputs.values() if one is not None), default=float("inf"))


def fidelity(wanted: Sequence[Outputs], found: Sequence[Outputs]) -> Fidelity:
    """Of what was found on each sample, against what was wanted there."""
    ratios: dict[str, float | None] = {}
    errors: dict[str, float | None] = {}
    for name in wanted[0]:
        pairs = [(a[name], b[name]) for a, b in zip(wanted, found, strict=True)]
        ratios[name], errors[name] = _fidelity(pairs), _largest_error(pairs)
    return Fidelity(ratios, errors)


def _fidelity(pairs: Sequence[tuple[np.ndarray, np.ndarray]]) -> float | None:
    """Of the elements that are finite; the least there is where others are finite in one and not in the other."""
    signal = noise = 0.0
    for a, b in pairs:
        finite = np.isfinite(a)
        if not np.array_equal(finite, np.isfinite(b)):
            return -MAX_SNR_DB
        signal += float(np.square(a[finite]).sum())
        noise += float(np.square(a[finite] - b[finite]).sum())
    return decibels(signal, noise)


def _largest_error(pairs: Sequence[tuple[np.ndarray, np.ndarray]]) -> float | None:
    """Of the finite elements, relative to the largest of them."""
    error = largest = 0.0
    for a, b in pairs:
        finite = np.isfinite(a)
        if not np.array_equal(finite, np.isfinite(b)):
            return None
        error = max(error, float(np.abs(a[finite] - b[finite]).max(initial=0.0)))
        largest = max(largest, float(np.abs(a[finite]).max(initial=0.0)))
    return error / largest if largest else error


@dataclass(frozen=True)
class Chosen:
    """The layers that are quantised, what the outputs are like then, and what each layer does to them alone."""

    layers: frozenset[str]
    fidelity: Fidelity
    alone: Mapping[str, float]


def choose(
    layers: Sequence[str],
    budget_db: float | None,
    judge: Callable[[Collection[str]], Fidelity],
    whole: Fidelity,
    watch: Callable[[float, str], None],
) -> Chosen:
    """All layers, or without those that cost most, as few of them as the budget demands.

    judge  the outputs with only these layers quantised; `whole`: with all of them

    Where all together are too much, each is judged alone; then layers are left out, the most costly first, and how many
    is found by bisection. Raises BudgetMissed where the budget cannot be held with any layer.
    """
    if budget_db is not None and not whole.outputs:
        raise OptionsError("snr_db is given, and no output of the model is a float", fix="leave it out")
    if budget_db is None or whole.least >= budget_db:
        return Chosen(frozenset(layers), whole, {})
    alone: dict[str, float] = {}
    for number, layer in enumerate(layers):
        alone[layer] = judge([layer]).least
        watch((number + 1) / len(layers), f"{layer}: {_decibels(alone[layer])} alone")
    costly = sorted(layers, key=lambda layer: alone[layer])
    found: tuple[int, Fidelity] | None = None
    low, high = 1, len(costly) - 1
    while low <= high:
        middle = (low + high) // 2
        judged = judge([layer for layer in layers if layer not in costly[:middle]])
        watch(1.0, f"{middle} of {len(layers)} layers in floating point: {_decibels(judged.least)}")
        if judged.least >= budget_db:
            found, high = (middle, judged), middle - 1
        else:
            low = middle + 1
    if found is None:
        best = _decibels(max(alone.values()))
        raise BudgetMissed(
            f"no layer can be quantised so that every output has {budget_db:g} dB: the best alone leaves {best}",
            fix="ask for less, choose ranges by another method, or give samples that are like real inputs",
            details={"alone_db": {layer: round(value, 2) for layer, value in alone.items()}},
        )
    left, judged = found
    return Chosen(frozenset(costly[left:]), judged, alone)


def _decibels(db: float) -> str:
    return "no difference" if db == float("inf") else f"{db:.1f} dB"

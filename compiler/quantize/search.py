"""Which layers stay in floating point, so that every output is as near to the model in fp32 as is wanted."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from compiler.errors import BudgetMissed, OptionsError
from compiler.quantize.calibrate import decibels

Outputs = Mapping[str, np.ndarray]
"""The values of a model's outputs on one sample."""


@dataclass(frozen=True)
class Fidelity:
    """Signal to noise of each output, in dB; None where nothing differs."""

    outputs: Mapping[str, float | None]

    @property
    def least(self) -> float:
        """Of the output that differs most; infinite where none differs."""
        return min((one for one in self.outputs.values() if one is not None), default=float("inf"))


def fidelity(wanted: Sequence[Outputs], found: Sequence[Outputs]) -> Fidelity:
    """Of what was found on each sample, against what was wanted there."""
    names = wanted[0].keys()
    signal = {name: sum(float(np.square(one[name]).sum()) for one in wanted) for name in names}
    noise = {
        name: sum(float(np.square(a[name] - b[name]).sum()) for a, b in zip(wanted, found, strict=True))
        for name in names
    }
    return Fidelity({name: decibels(signal[name], noise[name]) for name in names})


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
    watch: Callable[[float, str], None],
) -> Chosen:
    """All layers, or without those that cost most, as few of them as the budget demands.

    judge  the outputs with only these layers quantised

    Where all together are too much, each is judged alone; then layers are left out, the most costly first, and how many
    is found by bisection. Raises BudgetMissed where the budget cannot be held with any layer.
    """
    whole = judge(layers)
    if budget_db is None or whole.least >= budget_db:
        return Chosen(frozenset(layers), whole, {})
    if not whole.outputs:
        raise OptionsError("snr_db is given, and no output of the model is a float", fix="leave it out")
    alone: dict[str, float] = {}
    for number, layer in enumerate(layers):
        alone[layer] = judge([layer]).least
        watch((number + 1) / len(layers), f"{layer}: {_told(alone[layer])} alone")
    costly = sorted(layers, key=lambda layer: alone[layer])
    found: tuple[int, Fidelity] | None = None
    low, high = 1, len(costly) - 1
    while low <= high:
        middle = (low + high) // 2
        judged = judge([layer for layer in layers if layer not in costly[:middle]])
        watch(1.0, f"{middle} of {len(layers)} layers in floating point: {_told(judged.least)}")
        if judged.least >= budget_db:
            found, high = (middle, judged), middle - 1
        else:
            low = middle + 1
    if found is None:
        best = _told(max(alone.values()))
        raise BudgetMissed(
            f"no layer can be quantised so that every output has {budget_db:g} dB: the best alone leaves {best}",
            fix="ask for less, choose ranges by another method, or give samples that are like real inputs",
            details={"alone_db": {layer: round(value, 2) for layer, value in alone.items()}},
        )
    left, judged = found
    return Chosen(frozenset(costly[left:]), judged, alone)


def _told(db: float) -> str:
    return "no difference" if db == float("inf") else f"{db:.1f} dB"

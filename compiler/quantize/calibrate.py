"""The model on the samples: ranges of its tensors, and what rounding the weights does to each layer."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from compiler.errors import InputsError
from compiler.frontend import Loaded, load
from compiler.ops import OPERATORS
from compiler.prove.reference import evaluate_graph
from compiler.quantize.layers import Layer, id_of, ids_of
from compiler.quantize.network import Network
from compiler.quantize.ranges import Observed
from compiler.quantize.samples import Sample, Sampling, bound, shaped
from compiler.quantize.scheme import dequantised_weights

SHIFTED = 8
"""Samples on which layers are evaluated with what rounding adds to their weights, at most, evenly spread."""
LEAST = 1e-12
"""A signal of nothing but zeros, so that noise beside it has a ratio."""


class Evaluated:
    """A model that is evaluated by the reference, in float64; it is loaded anew for each shape of its inputs."""

    def __init__(self, model: Path | bytes, options: Sampling, data: Mapping[str, Path] | None = None) -> None:
        self.model, self.options, self.data = model, options, data
        self._loaded: dict[tuple[tuple[str, tuple[int, ...]], ...], Loaded] = {}

    def loaded(self, sample: Sample) -> Loaded:
        """As the front end takes it in the sample's shapes. Raises what `load` raises."""
        key = tuple(sorted((name, tuple(array.shape)) for name, array in sample.items()))
        if key not in self._loaded:
            self._loaded[key] = load(self.model, shaped(self.options, sample), OPERATORS, data=self.data)
        return self._loaded[key]

    def values(self, sample: Sample, keep: Collection[int] = (), *, wide: bool = True) -> dict[int, np.ndarray]:
        """Values of its outputs, and of those in `keep`, by id; `wide`: floats are float64, else as declared."""
        loaded = self.loaded(sample)
        return evaluate_graph(loaded.graph, bound(loaded, sample), OPERATORS, keep=keep, wide=wide)

    def outputs(self, sample: Sample, *, wide: bool = True) -> dict[str, np.ndarray]:
        """Values of its outputs that are floats, by name."""
        graph = self.loaded(sample).graph
        found = self.values(sample, wide=wide)
        return {graph.values[id].name: found[id] for id in graph.outputs if graph.type(id).dtype.is_float}


@dataclass
class Calibration:
    """What the samples showed, of tensors by name and of layers by name.

    shifts      what rounding the weights adds to the mean of each channel, by sample
    signal      the mean square of a layer's result without its bias; `noise` that of what rounding the weights adds
    """

    observed: dict[str, Observed] = field(default_factory=dict)
    shifts: dict[str, list[np.ndarray]] = field(default_factory=dict)
    signal: dict[str, float] = field(default_factory=dict)
    noise: dict[str, float] = field(default_factory=dict)

    def weights_db(self, layer: str) -> float | None:
        """Signal to noise of a layer whose weights alone are rounded; None without noise."""
        return decibels(self.signal[layer], self.noise[layer])

    def shift(self, layer: str) -> np.ndarray:
        """What rounding the weights adds to the mean of each channel, as far as the samples agree about it.

        Means of few samples hold chance beside the truth; they are made smaller by the part of their sum of squares
        that chance explains (James and Stein 1961, the positive part). One sample says nothing of chance.
        """
        found = np.stack(self.shifts[layer])
        mean = found.mean(axis=0)
        if len(found) == 1:
            return np.asarray(mean)
        chance = found.var(axis=0, ddof=1).sum() / len(found)
        return np.asarray(mean * max(0.0, 1.0 - chance / max(np.square(mean).sum(), LEAST)))


def decibels(signal: float, noise: float) -> float | None:
    """10 log10(signal / noise); None where there is no noise."""
    if noise <= 0:
        return None
    if math.isinf(noise):
        return -math.inf
    return 10 * math.log10(max(signal, LEAST) / noise)


def calibrate(
    network: Network,
    evaluated: Evaluated,
    layers: Sequence[Layer],
    tensors: Collection[str],
    samples: Sequence[Sample],
    watch: Callable[[float], None],
) -> Calibration:
    """Evaluates the network, of which `evaluated` is the file, on every sample, in the types that it declares.

    Raises InputsError where a tensor is not finite on one.
    """
    found = Calibration({name: Observed() for name in tensors})
    changes = {
        layer.name: (dequantised_weights(layer.weights, layer.axis) - layer.weights).astype(np.float32)
        for layer in layers
    }
    ends = [name for layer in layers for name in (layer.node.input[0], layer.node.output[0])]
    shifted = samples[:: -(-len(samples) // SHIFTED)]
    for number, sample in enumerate(samples):
        graph = evaluated.loaded(sample).graph
        ids = ids_of(graph)
        wanted = {name: id_of(network, ids, name) for name in (*tensors, *ends)}
        values = evaluated.values(sample, [id for id in wanted.values() if id is not None], wide=False)
        for name, observed in found.observed.items():
            array = values[_known(wanted[name])]
            _demand_finite(network, name, number, array)
            observed.add(array, len(samples))
        for layer in layers if any(sample is one for one in shifted) else ():
            x, made = (values[_known(wanted[name])] for name in (layer.node.input[0], layer.node.output[0]))
            node = graph.producer[_known(wanted[layer.node.output[0]])]
            added = OPERATORS[node.op].reference(node, (x, changes[layer.name]))[0]
            _note(found, layer, made, np.asarray(added), len(shifted))
        watch((number + 1) / len(samples))
    return found


def _known(value: int | None) -> int:
    assert value is not None, "a layer's tensors have ids at every shape"
    return value


def _note(found: Calibration, layer: Layer, made: np.ndarray, added: np.ndarray, samples: int) -> None:
    """Takes in one layer's result on one of so many samples, and what rounding its weights adds."""
    channel = 1 if layer.node.op_type.startswith("Conv") else added.ndim - 1
    name = layer.name
    if layer.bias is not None:
        made = made - layer.bias.reshape([-1 if at == channel else 1 for at in range(made.ndim)])
    shift = added.mean(axis=tuple(at for at in range(added.ndim) if at != channel), dtype=np.float64)
    found.shifts.setdefault(name, []).append(shift)
    found.signal[name] = found.signal.get(name, 0.0) + float(np.square(made, dtype=np.float64).mean()) / samples
    found.noise[name] = found.noise.get(name, 0.0) + float(np.square(added, dtype=np.float64).mean()) / samples


def _demand_finite(network: Network, name: str, number: int, array: np.ndarray) -> None:
    if np.isfinite(array).all():
        return
    node = network.producer.get(name)
    where = f"the result of {node.op_type} {node.name or name!r:.100}" if node else f"input {name!r:.100}"
    raise InputsError(
        f"{where} is not finite on sample {number + 1}",
        fix="leave that sample out, or the values in it that a run would not have",
        details={"tensor": name[:200], "sample": number + 1},
    )

"""How many kernels one inference launches: ours, and the layers that peers execute for the same model."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from bench.cache import SEED, Cache
from bench.engines.driver import Arrays, EngineFailed
from bench.engines.process import Engine
from bench.stages import Stages, stages
from bench.subject import Subject
from compiler.contract import CompileOptions
from compiler.frontend import load
from compiler.ops import OPERATORS
from compiler.prove.inputs import sample_inputs
from tilewright.arrays import write_npz

RUN_S = 0.05
"""For which a peer runs to show which layers it executes."""
SAID = 200
"""Characters of an engine's complaint that are kept."""
VIEWS: Mapping[str, frozenset[str]] = {
    "onnxruntime": frozenset(("Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity")),
    "openvino": frozenset(("Reshape",)),
}
"""Layers that move no element: the peer runs them, and hands their input on. Ours have no kernel for them, so theirs do
not count."""


@dataclass(frozen=True)
class Counts:
    """Of one model, for one inference.

    ours   the stages up to its kernels
    peers  by engine, how many layers of each kind were executed; layers computed once when the model is loaded are not
           among them, and neither are engines that could not run the model
    failed why they could not, in a line
    """

    model: str
    ours: Stages
    peers: Mapping[str, Mapping[str, int]]
    failed: Mapping[str, str] = field(default_factory=dict)

    def layers(self, peer: str) -> int:
        """Those of a peer that compute or move something."""
        return sum(count for kind, count in self.peers[peer].items() if kind not in VIEWS.get(peer, ()))

    def views(self, peer: str) -> int:
        """Those that do neither."""
        return sum(self.peers[peer].values()) - self.layers(peer)

    def to_json(self) -> dict[str, Any]:
        """Numbers of nodes and kernels by name, ready for `json.dumps`."""
        return {
            "model": self.model,
            "operators": self.ours.operators,
            "nodes": len(self.ours.chosen.graph.nodes),
            "kernels_before_fusion": self.ours.fused.before,
            "kernels": len(self.ours.kernels.calls),
            "offered": len(self.ours.offered),
            "families": dict(self.ours.families),
            "peers": {
                peer: {"layers": self.layers(peer), "views": self.views(peer), "kinds": dict(kinds)}
                for peer, kinds in self.peers.items()
            },
            "failed": dict(self.failed),
        }


def count(one: Subject, peers: Sequence[str], cache: Cache) -> Counts:
    """Ours for one lane, choices made by the cost model alone. Raises what the compiler's first steps raise."""
    options = CompileOptions.from_json({**one.options, "threads": 1})
    ours = stages(one, options)
    if not peers:
        return Counts(one.name, ours, {})
    with tempfile.TemporaryDirectory(prefix="tilewright-counts-") as name:
        folder = Path(name)
        write_npz(folder / "inputs.npz", _inputs(one, options))
        file = bound(one, folder)
        found, failed = {}, {}
        for peer in peers:
            try:
                found[peer] = _layers(peer, file, folder)
            except EngineFailed as error:
                failed[peer] = " ".join(error.message.split())[:SAID]
    return Counts(one.name, ours, found, failed)


def bound(one: Subject, folder: Path) -> Path:
    """The model with the dimensions of its inputs bound as the subject says, so that peers know them too.

    The same file where there is nothing to bind.
    """
    shapes = CompileOptions.from_json(dict(one.options)).inputs
    if not shapes:
        return one.file
    model = onnx.load(one.file)
    for given in model.graph.input:
        if given.name in shapes and (dims := shapes[given.name].shape) is not None:
            shape = given.type.tensor_type.shape
            del shape.dim[:]
            shape.dim.extend(onnx.TensorShapeProto.Dimension(dim_value=dim) for dim in dims)
    file = folder / f"{one.name}.onnx"
    onnx.save(model, file)
    return file


def _inputs(one: Subject, options: CompileOptions) -> Arrays:
    if one.inputs is not None:
        return one.inputs
    graph = load(one.file, options, OPERATORS).graph
    drawn = sample_inputs(graph, SEED)
    return {graph.values[value].name: np.asarray(array, order="C") for value, array in drawn.items()}


def _layers(peer: str, file: Path, folder: Path) -> Mapping[str, int]:
    """By kind, most first; of OpenVINO's, which name the primitive too, the kind of the layer alone."""
    with Engine(peer, file, folder / "inputs.npz", None, folder / f"{peer}.log", 1, "fp32") as engine:
        kinds = Counter(layer.kind.partition(" ")[0] for layer in engine.layers(RUN_S))
    return dict(sorted(kinds.items(), key=lambda one: (-one[1], one[0])))

"""The cases of the suite that the installed onnx package holds: nodes, converted networks, operators, whole models."""

from __future__ import annotations

import functools
import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

MODELS = ("simple", "pytorch-operator", "pytorch-converted", "real")
"""Kinds of case that are files of the package; those of the kind `node` are made in memory."""
DATA = Path(onnx.__file__).parent / "backend" / "test" / "data"
EXPANDED = re.compile(r"_expanded(_ver\d+)?$")
"""How the name of a case ends that is another one's function body."""

Tensors = Sequence[Any]
"""Arrays; sequences and optionals as the suite has them."""


@dataclass(frozen=True)
class Case:
    """One case. `group` is the operator that it tries, or the kind of a case that is a whole model."""

    name: str
    group: str
    source: Any

    @property
    def tolerances(self) -> tuple[float, float]:
        """Relative and absolute, as the suite states them."""
        return self.source.rtol, self.source.atol

    def model(self) -> onnx.ModelProto:
        """The model, as it stands in the suite."""
        made: onnx.ModelProto | None = self.source.model
        return onnx.load(_file(self.source)) if made is None else made

    def data_sets(self, model: onnx.ModelProto) -> list[tuple[Tensors, Tensors]]:
        """Inputs in the order of the model's, and the outputs that are expected of them."""
        if self.source.data_sets is not None:
            return [(_arrays(inputs), _arrays(outputs)) for inputs, outputs in self.source.data_sets]
        if self.source.model_dir is None:
            return [(_ramps(model), _stored(_file(self.source).parent, f"{_file(self.source).stem}_output_*.pb"))]
        folders = sorted(Path(self.source.model_dir).glob("test_data_set*"))
        return [(_stored(folder, "input_*.pb"), _stored(folder, "output_*.pb")) for folder in folders]


@functools.cache
def suite() -> Mapping[str, Case]:
    """Every case, by name. Takes seconds: the expected outputs of nodes are computed."""
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of onnx's own making
        nodes = load_model_tests(kind="node")
        whole = [case for kind in MODELS for case in load_model_tests(kind=kind)]
    first = {case.name: case.model.graph.node[0].op_type for case in nodes if case.model is not None}
    found = [Case(case.name, _operator(case.name, first), case) for case in nodes]
    found += [Case(case.name, case.kind, case) for case in sorted(whole, key=lambda case: str(case.name))]
    return {case.name: case for case in found}


def chosen(words: Iterable[str]) -> list[Case]:
    """The cases whose name or group holds every word."""
    wanted = [word.lower() for word in words]
    return [
        case
        for case in suite().values()
        if all(word in case.name.lower() or word == case.group.lower() for word in wanted)
    ]


def _operator(name: str, first: Mapping[str, str]) -> str:
    """The operator of a case; of a function body that of the case whose body it is."""
    return first.get(EXPANDED.sub("", name), first[name])


def _file(source: Any) -> Path:
    if source.model_dir is not None:
        return Path(source.model_dir) / "model.onnx"
    return DATA / "light" / Path(source.url).name


def _arrays(items: Iterable[Any]) -> Tensors:
    return [_array(item) for item in items]


def _array(item: Any) -> Any:
    if isinstance(item, onnx.TensorProto):
        return numpy_helper.to_array(item)
    return np.asarray(item) if isinstance(item, np.generic) else item


def _stored(folder: Path, pattern: str) -> Tensors:
    """The tensors in files whose names end in their number."""

    def number(file: Path) -> int:
        return int(file.stem.rpartition("_")[2])

    return [numpy_helper.to_array(onnx.load_tensor(file)) for file in sorted(folder.glob(pattern), key=number)]


def _ramps(model: onnx.ModelProto) -> Tensors:
    """What the suite feeds its light models: numbers that rise from 0 to 1."""
    weights = {tensor.name for tensor in model.graph.initializer}
    found = []
    for info in model.graph.input:
        if info.name not in weights:
            shape = [dim.dim_value or 1 for dim in info.type.tensor_type.shape.dim]
            count = int(np.prod(shape))
            found.append((np.arange(count).reshape(shape) / count).astype(np.float32))
    return found

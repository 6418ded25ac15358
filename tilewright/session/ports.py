"""What a session says of its model, in ONNX Runtime's words."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from tilewright.files import whole
from tilewright.loading import Model, TensorSpec

TYPES: Mapping[str, str] = {
    "float32": "float",
    "float64": "double",
    "float8_e4m3fn": "float8e4m3fn",
    "float8_e4m3fnuz": "float8e4m3fnuz",
    "float8_e5m2": "float8e5m2",
    "float8_e5m2fnuz": "float8e5m2fnuz",
    "float4_e2m1fn": "float4e2m1",
}
"""The types of elements that ONNX Runtime calls otherwise than artifacts do."""


@dataclass(frozen=True)
class NodeArg:
    """An input or output: `shape` has a number for each axis, its name where it has several, None without a name."""

    name: str
    shape: list[int | str | None]
    type: str

    @classmethod
    def of(cls, spec: TensorSpec) -> NodeArg:
        """That of an artifact."""
        axes = getattr(spec, "axes", ()) or (None,) * len(spec.shape)
        shape: list[int | str | None] = [
            size if axis is None else str(axis.name) or None for size, axis in zip(spec.shape, axes, strict=True)
        ]
        return cls(spec.name, shape, f"tensor({TYPES.get(spec.dtype, spec.dtype)})")

    @classmethod
    def like(cls, other: Any) -> NodeArg:
        """One of ONNX Runtime's."""
        return cls(other.name, list(other.shape), other.type)


@dataclass(frozen=True)
class ModelMetadata:
    """Where a model is from; of an artifact, which does not keep the rest, `custom_metadata_map` says what it holds."""

    producer_name: str = ""
    graph_name: str = ""
    graph_description: str = ""
    domain: str = ""
    description: str = ""
    version: int = 0
    custom_metadata_map: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, model: Model) -> ModelMetadata:
        """That of an artifact."""
        told = {name: model.manifest[name] for name in ("model_digest", "target", "compiler_version")}
        return cls("tilewright", custom_metadata_map={f"tilewright.{name}": str(value) for name, value in told.items()})


@dataclass(frozen=True)
class Described:
    """All that a session says of its model."""

    inputs: tuple[NodeArg, ...]
    outputs: tuple[NodeArg, ...]
    meta: ModelMetadata

    @classmethod
    def of(cls, model: Model) -> Described:
        """Of an artifact: of its bindings the one with the most open sizes says most."""
        bindings = getattr(model, "bindings", ())
        best = max(bindings, key=lambda one: len(getattr(one, "open", ())), default=None)
        shown = model if best is None else best
        listed = model.manifest.get("bindings") or (model.manifest,)
        outside = listed[0 if best is None else best.number - 1].get("outside", {})
        inputs = _with_sequences(shown.inputs, outside.get("sequences", {}))
        return cls(inputs, _with_sequences(shown.outputs, outside.get("returned", {})), ModelMetadata.of(model))

    @classmethod
    def like(cls, session: Any) -> Described:
        """Of ONNX Runtime's session."""
        told = session.get_modelmeta()
        names = [one.name for one in fields(ModelMetadata)]
        return cls(
            tuple(map(NodeArg.like, session.get_inputs())),
            tuple(map(NodeArg.like, session.get_outputs())),
            ModelMetadata(**{name: getattr(told, name) for name in names}),
        )

    @classmethod
    def read(cls, file: Path) -> Described | None:
        """What `write` kept; None where nothing was, or it cannot be read."""
        try:
            told = json.loads(file.read_text())
            inputs, outputs = (tuple(NodeArg(**one) for one in told[name]) for name in ("inputs", "outputs"))
            return cls(inputs, outputs, ModelMetadata(**told["meta"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def write(self, file: Path) -> None:
        """Keeps it. Raises `UsageError` where it cannot be written."""
        with whole(file) as target:
            target.write(json.dumps(asdict(self)).encode())

    @property
    def has_sizes(self) -> bool:
        """Whether an axis of an input has several sizes, or an input is a sequence, of as many tensors as a run has."""
        sizes = (size for port in self.inputs for size in port.shape)
        return not all(isinstance(size, int) for size in sizes) or any(
            port.type.startswith("seq(") for port in self.inputs
        )


def _with_sequences(specs: Sequence[TensorSpec], counts: Mapping[str, int]) -> tuple[NodeArg, ...]:
    """Ports of an artifact, in which a sequence is one, where its first element is.

    One without elements comes last; of what type they would be an artifact does not say.
    """
    of = {f"{name}.{at}": name for name, count in counts.items() for at in range(count)}
    ports: dict[str, NodeArg] = {}
    for spec in specs:
        port, name = NodeArg.of(spec), of.get(spec.name)
        if name is not None:
            port = NodeArg(name, [], f"seq({port.type})")
        ports.setdefault(port.name, port)
    for name, count in counts.items():
        if not count:
            ports[name] = NodeArg(name, [], "seq(tensor(undefined))")
    return tuple(ports.values())

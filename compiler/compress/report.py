"""What became of a model whose weights were compressed."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from compiler.contract import CompressOptions


@dataclass(frozen=True)
class LayerLevel:
    """A level that was looked at for a layer: the share of what the form saves, and what comes of it.

    error  of the outputs where this layer alone is changed; null for one that is not finite
    us     what the layer takes
    """

    sparsity: float
    rank: int | None
    error: float | None
    us: float


@dataclass(frozen=True)
class CompressedLayer:
    """What became of one layer.

    weights   their shape, of W and R side by side for a recurrent layer
    sparsity  the share of what the report's `saved` names
    reason    why it is dense, else null
    rank      of factored weights; `error`, `dense_us`, `us` as of a level, null where it cannot have the form
    source    of the time: measured or model
    """

    node: str
    operator: str
    weights: tuple[int, ...] | None
    sparsity: float
    reason: str | None
    rank: int | None = None
    error: float | None = None
    dense_us: float | None = None
    us: float | None = None
    source: str | None = None
    levels: tuple[LayerLevel, ...] = ()


@dataclass(frozen=True)
class CurvePoint:
    """From dense to the fastest: `expected_error` is the sum, `error` of the whole on held-out samples."""

    sparsity: float
    predicted_ms: float
    expected_error: float | None
    error: float | None


@dataclass(frozen=True)
class CompressedOutput:
    """An output that is a float: ||y - dense|| / ||dense||.

    agree  the part of equal decisions, where it looks like classes, else null
    """

    name: str
    error: float | None
    agree: float | None


@dataclass(frozen=True)
class CompressReport:
    """What became of each layer, in the model's order, and of the whole.

    saved     what `sparsity` is the share of: zeros, or by form bits or weights saved
    sparsity  of all weights that may be changed; `dense_ms` and `predicted_ms` of the whole
    error     the greatest of all outputs; `expected_error` by the sum
    """

    options: CompressOptions
    layers: tuple[CompressedLayer, ...]
    curve: tuple[CurvePoint, ...]
    saved: str
    sparsity: float
    dense_ms: float
    predicted_ms: float
    error: float | None
    expected_error: float | None
    outputs: tuple[CompressedOutput, ...]
    samples: int
    held_out: int
    derived: bool
    bytes: int
    model_bytes: int
    notices: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Its fields by name, ready for `json.dumps`."""
        rows = {name: [*map(asdict, getattr(self, name))] for name in ("layers", "curve", "outputs")}
        return {**vars(self), "options": self.options.to_json(), **rows}

"""The front end's one function: a model file in, a Graph out."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from compiler.contract import CompileOptions
from compiler.errors import ModelTooLarge
from compiler.frontend.bind import bind
from compiler.frontend.infer import infer
from compiler.frontend.limits import Limits
from compiler.frontend.model import Model, quoted
from compiler.frontend.read import read
from compiler.ir.graph import Graph
from compiler.ops.operator import Operator


@dataclass(frozen=True)
class Loaded:
    """A model as the compiler takes it: static, typed, in normal form; what the user should know; the file's SHA-256 (hex)."""

    graph: Graph
    notices: tuple[str, ...]
    digest: str


def load(
    model: Path | bytes, options: CompileOptions, operators: Mapping[str, Operator], limits: Limits | None = None
) -> Loaded:
    """Reads an untrusted ONNX model (a path, with external data beside it, or the bytes of a self-contained file).

    The graph is verified. Constants may be views of mapped files or broadcast from one element; none is writable.
    Raises MalformedModel, ModelTooLarge, UnboundDimension, UnsupportedModel and OptionsError, each with what would mend it.
    """
    limits = limits or Limits()
    read_model = read(model, limits)
    _check_declared(read_model, limits)
    bound = bind(read_model.body.inputs, tuple(read_model.body.constants), options, limits)
    graph = infer(read_model, bound, operators, limits)
    graph.verify()
    return Loaded(graph, (*bound.notices, *_disagreements(read_model, graph)), read_model.digest)


def _check_declared(model: Model, limits: Limits) -> None:
    for name, shape in model.body.declared.items():
        sizes = [dim for dim in shape if isinstance(dim, int)]
        if math.prod(sizes) > limits.tensor_bytes:
            raise ModelTooLarge(
                f"output {quoted(name)} is declared with shape {sizes[:8]}", fix="export with smaller shapes"
            )


def _disagreements(model: Model, graph: Graph) -> list[str]:
    """Notices for outputs whose declared numbers are not what inference found."""
    notices: list[str] = []
    for id in graph.outputs:
        value = graph.values[id]
        declared = model.body.declared.get(value.name)
        if declared is None:
            continue
        found = value.type.dims
        fits = len(declared) == len(found) and all(
            not isinstance(claim, int) or claim == dim for claim, dim in zip(declared, found, strict=True)
        )
        if not fits:
            claimed = ["?" if dim is None else dim for dim in declared]
            notices.append(f"output {quoted(value.name)} has shape {list(found)}, while the model declares {claimed}")
    return notices

"""The front end's one function: a model file in, a Graph out."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from compiler.contract import CompileOptions, bundle_digest
from compiler.errors import MalformedModel, ModelTooLarge
from compiler.frontend.bind import bind
from compiler.frontend.infer import infer
from compiler.frontend.limits import Limits
from compiler.frontend.model import Model, quoted
from compiler.frontend.read import read
from compiler.ir.graph import Graph
from compiler.ops.operator import Operator


@dataclass(frozen=True)
class Loaded:
    """A model as the compiler takes it: static, typed, in normal form; what the user should know; `bundle_digest`."""

    graph: Graph
    notices: tuple[str, ...]
    digest: str


def load(
    model: Path | bytes,
    options: CompileOptions,
    operators: Mapping[str, Operator],
    limits: Limits | None = None,
    data: Mapping[str, Path] | None = None,
) -> Loaded:
    """Reads an untrusted ONNX model: a path, or the bytes of a self-contained file.

    `data` says where all external data lies, by its path in the model; None: beside the model, and the digest is the
    file's alone.

    The graph is verified. Constants may be views of mapped files or broadcast from one element; none is writable.
    Raises MalformedModel, ModelTooLarge, UnboundDimension, UnsupportedModel and OptionsError, each with what would mend
    it.
    """
    limits = limits or Limits()
    read_model = read(model, limits, data)
    check_declared(read_model, limits)
    bound = bind(read_model.body.inputs, tuple(read_model.body.constants), options, limits)
    graph = infer(read_model, bound, operators, limits)
    graph.verify()
    return Loaded(graph, (*bound.notices, *disagreements(read_model, graph)), _digest(read_model, data or {}))


def _digest(model: Model, data: Mapping[str, Path]) -> str:
    """Of the model with all files that came with it. Raises MalformedModel for one that cannot be read."""
    digests = {}
    for name, path in data.items():
        try:
            with path.open("rb") as file:
                digests[name] = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise MalformedModel(
                f"external data {quoted(name)} cannot be read: {error.strerror}", fix="upload the data file again"
            ) from None
    return bundle_digest(model.digest, digests)


def check_declared(model: Model, limits: Limits) -> None:
    """Raises ModelTooLarge where the file claims an output past the limits."""
    for name, shape in model.body.declared.items():
        sizes = [dim for dim in shape if isinstance(dim, int)]
        if math.prod(sizes) > limits.tensor_bytes:
            raise ModelTooLarge(
                f"output {quoted(name)} is declared with shape {sizes[:8]}", fix="export with smaller shapes"
            )


def disagreements(model: Model, graph: Graph) -> list[str]:
    """Notices for outputs whose declared numbers are not what inference found."""
    notices: list[str] = []
    for id in graph.outputs:
        value = graph.values[id]
        declared = model.body.declared.get(value.name)
        if declared is None:
            continue
        found = value.type.shape
        fits = len(declared) == len(found) and all(
            not isinstance(claim, int) or claim == dim for claim, dim in zip(declared, found, strict=True)
        )
        if not fits:
            claimed = ["?" if dim is None else dim for dim in declared]
            notices.append(f"output {quoted(value.name)} has shape {list(found)}, while the model declares {claimed}")
    return notices

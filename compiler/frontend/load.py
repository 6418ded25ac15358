"""The front end's one function: a model file in, a Graph out."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from compiler.contract import CompileOptions, bundle_digest, kinds
from compiler.errors import MalformedModel, ModelTooLarge, UnsupportedModel
from compiler.frontend.binding.bind import Bound, Merged, bind
from compiler.frontend.infer import Inferred, infer
from compiler.frontend.last import with_last
from compiler.frontend.open.growth import growing
from compiler.frontend.open.values import Narrower, Rows, SameSize, WholeSteps, Wider
from compiler.frontend.portion import Portion, with_portion
from compiler.frontend.reading.limits import Limits
from compiler.frontend.reading.model import Model, quoted
from compiler.frontend.reading.read import ModelFile, read
from compiler.frontend.wrapped import unwrapped
from compiler.ir.border import PLAIN, Border
from compiler.ir.graph import Graph
from compiler.ir.open_shapes import OpenShapes
from compiler.ops.operator import Operator


@dataclass(frozen=True)
class Loaded:
    """A model as the compiler takes it: static, typed, in normal form; what the user should know; `bundle_digest`."""

    graph: Graph
    notices: tuple[str, ...]
    digest: str
    open_shapes: OpenShapes | None = None
    """Which axes have a size that is only known while running; None: none has."""
    border: Border = PLAIN
    """Its strings, and whether it draws random numbers."""
    exact: Graph | None = None
    """The graph with caches as the model has them, where an option gives them another type."""


def load(
    model: Path | bytes | ModelFile,
    options: CompileOptions,
    operators: Mapping[str, Operator],
    limits: Limits | None = None,
    data: Mapping[str, Path] | None = None,
    portion: Portion | None = None,
) -> Loaded:
    """Reads an untrusted ONNX model: a path, a file that may have been read before, or bytes of a self-contained one.

    `data` says where all external data lies, by its path in the model; None: beside the model, and the digest is the
    file's alone. A `ModelFile` has its own. `portion` says what of it is wanted; None: all.

    The graph is verified. Constants may be views of mapped files or broadcast from one element; none is writable.
    Raises MalformedModel, ModelTooLarge, UnboundDimension, UnsupportedModel and OptionsError, each with what would mend
    it. Outputs that `options.last_only` names are of the last position alone.
    """
    limits = limits or Limits()
    data = model.data if isinstance(model, ModelFile) else data
    read_model, options = read_with_options(model, options, limits, data)
    if portion is not None:
        read_model, options = with_portion(read_model, options, portion)
    check_declared(read_model, limits)
    bound, found = bound_graph(read_model, options, operators, limits)
    graph, open_shapes = found.graph, found.open_shapes
    graph.verify()
    notices = (
        *bound.notices,
        *found.notices,
        *disagreements(read_model, graph, open_shapes),
        *assumptions(open_shapes),
    )
    return Loaded(graph, notices, _digest(read_model, data or {}), open_shapes, found.border)


def read_with_options(
    model: Path | bytes | ModelFile, options: CompileOptions, limits: Limits, data: Mapping[str, Path] | None
) -> tuple[Model, CompileOptions]:
    """A model as options want it, and what they say of it then. Raises as `load` does."""
    return unwrapped(with_last(read(model, limits, data), options.last_only), options)


def bound_graph(
    model: Model, options: CompileOptions, operators: Mapping[str, Operator], limits: Limits
) -> tuple[Bound, Inferred]:
    """The inputs as they are bound, and what was inferred.

    Dimensions that an operator puts side by side are one, or multiples of what makes them equal; a bound that is
    assumed is as great as another one beside it, unless the model cannot be compiled then.

    Raises what `bind` and `infer` raise.
    """
    merged = Merged(growing=growing(model, options))
    while True:
        bound = bind(model.body.inputs, tuple(model.body.constants), options, limits, merged)
        try:
            return bound, infer(model, bound, operators, limits, kinds.of(options.target).regions)
        except SameSize as same:
            merged = merged.with_equal(*same.names)
        except WholeSteps as found:
            merged = merged.with_step(found.name, found.step)
        except Narrower as found:
            merged = merged.with_ends(found.name, found.low, found.high)
        except Wider as found:
            merged = merged.with_bound(found.source, found.most)
        except Rows as found:
            merged = merged.with_rows(found.rows)
        except (ModelTooLarge, UnsupportedModel):
            if not merged.wide:
                raise
            merged = replace(merged, wide=None)


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


MOST_EQUAL = 20
"""Pairs of sizes that a notice lists."""


def assumptions(open_shapes: OpenShapes | None) -> list[str]:
    """Notices for what was assumed of sizes that data say: their bounds, and which are equal."""
    assumed = dict(open_shapes.assumed) if open_shapes else {}
    found: list[str] = []
    if assumed:
        listed = ", ".join(f"{quoted(name)} {most}" for name, most in assumed.items())
        example = json.dumps({"bounds": {name[:100]: 2 * most for name, most in [*assumed.items()][:4]}})
        found.append(
            f"data say sizes at these nodes, each of which is assumed to be at most: {listed}; "
            f"for others give {example}"
        )
    if open_shapes and open_shapes.equal:
        listed = "; ".join(open_shapes.equal[:MOST_EQUAL])
        more = len(open_shapes.equal) - MOST_EQUAL
        rest = f"; and {more} more" if more > 0 else ""
        found.append(f"assumed of sizes that data say, else a run is an error: {listed}{rest}")
    return found


def disagreements(model: Model, graph: Graph, open_shapes: OpenShapes | None = None) -> list[str]:
    """Notices for outputs whose declared numbers are not what inference found."""
    notices: list[str] = []
    for number, id in enumerate(graph.outputs):
        value = graph.values[id]
        declared = model.body.declared.get(value.name)
        if declared is None:
            continue
        axes = open_shapes.outputs[number] if open_shapes and number < len(open_shapes.outputs) else ()
        if any(axis is not None for axis in axes):
            continue
        found = value.type.shape
        fits = len(declared) == len(found) and all(
            not isinstance(claim, int) or claim == dim for claim, dim in zip(declared, found, strict=True)
        )
        if not fits:
            claimed = ["?" if dim is None else dim for dim in declared]
            notices.append(f"output {quoted(value.name)} has shape {list(found)}, while the model declares {claimed}")
    return notices

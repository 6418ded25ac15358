"""Surveying: what of a model would be taken and what refused, before anything is compiled.

Every reason is given at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeGuard

import numpy as np

from compiler.contract import CompileOptions
from compiler.errors import OptionsError, Refusal, TilewrightError, UnsupportedModel
from compiler.frontend.binding.bind import Bound, Merged, bind
from compiler.frontend.binding.correct import correct, open_inputs
from compiler.frontend.infer import Inferred, is_known
from compiler.frontend.last import with_last
from compiler.frontend.load import assumptions, bound_graph, check_declared, disagreements
from compiler.frontend.open.growth import growing
from compiler.frontend.reading.limits import Limits
from compiler.frontend.reading.model import Call, Model
from compiler.frontend.reading.read import read
from compiler.frontend.reading.strings import is_text
from compiler.frontend.wrapped import unwrapped
from compiler.ir.border import PLAIN, Border
from compiler.ir.graph import Graph
from compiler.ir.open_shapes import OpenShapes
from compiler.ir.tensor import TensorType
from compiler.ops.operator import Operator

MAX_REFUSALS = 1000
SHOWN_NODES = 5
"""Nodes of an operator that are named."""
UNKNOWN_FIX = "replace it by supported operators; GET /operators lists them"


@dataclass
class Use:
    """One operator of the file: its calls, and what was said of them.

    `refusals` is empty where all of them are taken.
    """

    operator: str
    domain: str
    count: int = 0
    nodes: list[str] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)
    unchecked: int = 0
    """Calls that were not come to, because they read what a refused one makes: only their names could be looked up."""


def _holds_numbers(array: object) -> TypeGuard[np.ndarray]:
    return isinstance(array, np.ndarray) and not is_text(array)


@dataclass(frozen=True)
class Survey:
    """What surveying a model found.

    problem   the first thing that keeps the model from being compiled as asked; None: nothing does
    refusals  every one that was found, of inputs and of nodes, those after the problem too
    options   those given, or under which the model can be bound if it cannot be under those given
    types     of the inputs as the graph has them; empty where they cannot be bound even so
    open      names of the inputs that the given options leave a dimension of open
    graph     None where a node is refused
    border    its strings, and whether it draws random numbers
    open_shapes  which axes of the graph are open; None: none is
    """

    model: Model
    problem: TilewrightError | None
    refusals: tuple[Refusal, ...]
    options: CompileOptions
    types: Mapping[str, TensorType]
    open: frozenset[str]
    graph: Graph | None
    uses: tuple[Use, ...]
    notices: tuple[str, ...]
    open_shapes: OpenShapes | None = None
    border: Border = PLAIN

    @property
    def constants(self) -> Mapping[str, np.ndarray]:
        """The file's tensors that a call reads."""
        read = {name for call in self.model.body.calls for name in call.reads} | {*self.model.body.outputs}
        constants = self.model.body.constants.items()
        return {name: array for name, array in constants if name in read and _holds_numbers(array)}


def survey(
    model: Path,
    options: CompileOptions,
    operators: Mapping[str, Operator],
    data: Mapping[str, Path] | None = None,
    limits: Limits | None = None,
) -> Survey:
    """Walks an untrusted model as `load` does, without ending at what it finds wrong with options, dimensions or nodes.

    `data` says where all external data lies, by its path in the model; None: beside the model.

    Raises MalformedModel, ModelTooLarge and UnsupportedModel (versions) for a file that cannot be read at all.
    """
    limits = replace(limits or Limits(), refusals=MAX_REFUSALS)
    found = read(model, limits, data)
    check_declared(found, limits)
    problems: list[TilewrightError] = []
    try:
        found = with_last(found, options.last_only)
    except OptionsError as error:
        problems.append(error)
        options = replace(options, last_only=())
    found, options = unwrapped(found, options)
    given = options
    bound, options = _bind(found, given, limits, problems)
    inferred = _infer(found, options, operators, limits, problems) if bound else None
    graph, shapes = (inferred.graph, inferred.open_shapes) if inferred else (None, None)
    notices = (
        *(bound.notices if bound else ()),
        *(inferred.notices if inferred else ()),
        *(disagreements(found, graph, shapes) if graph else ()),
        *assumptions(shapes),
    )
    refusals = tuple(refusal for problem in problems for refusal in problem.refusals)
    return Survey(
        found,
        problems[0] if problems else None,
        refusals,
        options,
        bound.types if bound else {},
        open_inputs(found.body.inputs, given),
        graph,
        tuple(_uses(found, refusals, operators, walked=_walked(bound, graph, problems))),
        notices,
        shapes,
        inferred.border if inferred else PLAIN,
    )


def _bind(
    model: Model, options: CompileOptions, limits: Limits, problems: list[TilewrightError]
) -> tuple[Bound | None, CompileOptions]:
    """The inputs bound by the options, else by corrected ones; what was wrong is added to `problems`."""
    inputs, constants = model.body.inputs, tuple(model.body.constants)
    try:
        return bind(inputs, constants, options, limits, Merged(growing=growing(model, options))), options
    except TilewrightError as error:
        problems.append(error)
    corrected = correct(inputs, options)
    try:
        return bind(inputs, constants, corrected, limits, Merged(growing=growing(model, corrected))), corrected
    except TilewrightError:  # it says nothing about the request
        return None, options


def _infer(
    model: Model,
    options: CompileOptions,
    operators: Mapping[str, Operator],
    limits: Limits,
    problems: list[TilewrightError],
) -> Inferred | None:
    try:
        _, inferred = bound_graph(model, options, operators, limits)
        inferred.graph.verify()
        return inferred
    except TilewrightError as error:
        problems.append(error)
        return None


def _walked(bound: Bound | None, graph: Graph | None, problems: list[TilewrightError]) -> bool:
    """Whether every call was come to: not where the inputs could not be bound, or something ended the walk at once."""
    return graph is not None or (bound is not None and isinstance(problems[-1], UnsupportedModel))


def _uses(model: Model, refusals: Iterable[Refusal], operators: Mapping[str, Operator], *, walked: bool) -> list[Use]:
    """The operators of the file, the most called first."""
    said: dict[str, list[Refusal]] = {}
    for refusal in refusals:
        if refusal.operator:
            said.setdefault(refusal.node, []).append(refusal)
    uses: dict[str, Use] = {}
    behind: set[str] = set()
    for call in model.body.calls:
        use = uses.setdefault(call.operator, Use(call.operator, call.domain))
        use.count += 1
        if len(use.nodes) < SHOWN_NODES:
            use.nodes.append(call.source)
        if reasons := _reasons(call, said):
            use.refusals += reasons
        elif walked and behind.isdisjoint(call.reads):
            continue
        else:
            use.unchecked += 1
            if not use.refusals and not is_known(call, model, operators):
                use.refusals.append(Refusal("the operator is not supported", UNKNOWN_FIX, call.source, call.operator))
        behind.update(name for name in call.outputs if name)
    return sorted(uses.values(), key=lambda use: (-use.count, use.operator))


def _reasons(call: Call, said: Mapping[str, list[Refusal]]) -> list[Refusal]:
    """What was said of a call, of what is inside the function that it calls, or inside its branches."""
    if not said:
        return []
    inside = f"{call.source}/"
    found = [*said.get(call.source, ())]
    found += [refusal for node, refusals in said.items() if node.startswith(inside) for refusal in refusals]
    return [*found, *(refusal for body in call.bodies for inner in body.calls for refusal in _reasons(inner, said))]

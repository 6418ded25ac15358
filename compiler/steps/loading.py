"""Reads the model of a request: its graph, what its inputs may be, and the same at other sizes and values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import cycle
from pathlib import Path

import numpy as np

from compiler.contract import CompileOptions, DemandedRange, InputSpec, kinds
from compiler.contract.options import CACHE_OF_MODEL
from compiler.encodings.aside import give_back
from compiler.errors import CallerError, InternalError, OptionsError
from compiler.frontend import Loaded, load
from compiler.frontend.ragged import Texts, load_texts
from compiler.ir.graph import Graph
from compiler.ir.open_shapes import Example
from compiler.ops import OPERATORS
from compiler.prove.effort import Effort
from compiler.prove.inputs import edge_inputs, sample_inputs
from compiler.prove.ranges import Derived, derive
from compiler.prove.samples import Sample, read_samples, read_sized, share_out, specs_of
from compiler.prove.sizes import exactly, nested, padded, usual_sizes
from compiler.request import Request
from compiler.session import Session
from compiler.steps.divisible import browser_problem
from compiler.steps.foreseeing import foreseen, is_run, proof_notices
from compiler.steps.states.caches import with_cache
from compiler.steps.states.carried import BoundStates, carried_by, demand_shared
from compiler.trace import Trace


@dataclass(frozen=True)
class Opened:
    """A model as it was loaded, with what is read of it before anything is rewritten.

    effort   what proving takes; None for a target that does not run here, on which nothing is proved
    derived  the ranges of its inputs
    usual    the model as inputs are drawn for it: where dimensions are open, at the opt of their ranges
    at       loads the model at exact sizes, by name, of its open dimensions or those that are as long as its caches
    texts    the model as it takes texts of unequal lengths; None: it does not
    fixed    loads the model with inputs, by name, fixed to elements in row-major order; None where it is refused so
    samples  inputs that the caller gave, of those that have the shapes of this binding
    """

    loaded: Loaded
    effort: Effort | None
    derived: Derived
    usual: Graph
    at: Callable[[Mapping[str, int]], Loaded]
    fixed: Callable[[Mapping[str, Example]], Loaded | None]
    samples: tuple[Sample, ...]
    texts: Texts | None = None

    def timed_inputs(self, seed: int) -> dict[str, np.ndarray]:
        """What whole runs are timed on, by the model's names: the first sample, else random inputs in their ranges."""
        graph, shapes = self.usual, self.loaded.open_shapes
        arrays = self.samples[0].arrays if self.samples else sample_inputs(graph, seed, shapes)
        names = (graph.values[value].name for value in graph.inputs)
        return dict(zip(names, arrays.values(), strict=True))

    def program_inputs(self, seed: int) -> dict[str, np.ndarray]:
        """The same as the program takes it, by its names: where dimensions are open padded, with the sizes."""
        graph, shapes, timed = self.loaded.graph, self.loaded.open_shapes, self.timed_inputs(seed)
        if shapes is None:
            return timed
        given = padded(graph, shapes, [*timed.values()])
        return {graph.values[value].name: array for value, array in given.items()}

    def judged_inputs(self, seed: int) -> Iterator[dict[int, np.ndarray]]:
        """Those on which an artifact is proved, by value id, as the program takes them.

        Random ones come first, then samples, then edge cases; where dimensions are open there are random ones alone.
        """
        graph, shapes = self.loaded.graph, self.loaded.open_shapes
        if shapes is not None and shapes.dimensions:
            yield padded(graph, shapes, [*sample_inputs(self.usual, seed, shapes).values()])
            return
        yield sample_inputs(graph, seed, shapes)
        yield from (dict(sample.arrays) for sample in self.samples)
        if graph.inputs:
            yield from (inputs for _, inputs in edge_inputs(graph, seed, shapes))

    @property
    def input_ranges(self) -> tuple[DemandedRange, ...]:
        """Which ranges the model's inputs must keep to, and why."""
        graph = self.usual
        return tuple(
            DemandedRange(graph.values[value].name, *found.interval.ends, found.why)
            for value, found in self.derived.ranges.items()
        )


def open_model(session: Session, request: Request) -> Opened:
    """Loads the model, and reads the samples that were given for it. Notices go to the session's trace."""
    options = request.options
    texts = load_texts(request.file, options, OPERATORS) if options.ragged else None
    loaded = texts.loaded if texts else load_for(request, options)
    if session.quantised is not None:
        loaded = replace(loaded, digest=session.quantised.given_digest)
    if kinds.of(options.target).browser:
        problem = browser_problem(loaded.graph, loaded.open_shapes, loaded.border)
        if problem is not None:
            raise problem
    at, fixed = partial(at_sizes, request, loaded), partial(with_values, request, loaded.graph)
    runs = is_run(loaded.graph, options, session.backend.runner)
    effort = foreseen(loaded.graph, options, session.memory_bytes) if runs else None
    for notice in (*loaded.notices, *(proof_notices(effort) if effort else ())):
        session.trace.notice(notice)
    shapes = loaded.open_shapes
    samples: tuple[Sample, ...] = ()
    if texts is not None:
        if request.samples:
            raise OptionsError("samples and ragged exclude each other", fix="leave one of the two out")
        usual = texts.usual
    elif shapes is None or not shapes.dimensions:
        if options.open_sizes:
            raise InternalError("the front end left no dimension open")
        usual, samples = loaded.graph, read_samples(request.samples, loaded.graph, loaded.border)
    else:
        usual = at(usual_sizes(options, shapes)).graph
        samples = read_sized(request.samples, loaded.graph, shapes, lambda sizes: at(sizes).graph, loaded.border)
    return Opened(loaded, effort, derive(usual), usual, at, fixed, samples, texts)


def load_for(request: Request, options: CompileOptions) -> Loaded:
    """The model of a request under options that are nearly its own."""
    loaded = load(request.file, options, OPERATORS, portion=request.portion)
    give_back()
    if options.cache == CACHE_OF_MODEL:
        return loaded
    carried = carried_by(loaded.graph, loaded.open_shapes, loaded.border, options)
    return _with_cache(loaded, options.cache, carried)


def _with_cache(loaded: Loaded, kind: str, pairs: Mapping[str, str]) -> Loaded:
    graph, border = with_cache(loaded.graph, loaded.border, kind, pairs)
    return replace(loaded, graph=graph, border=border, exact=None if graph is loaded.graph else loaded.graph)


def at_sizes(request: Request, loaded: Loaded, sizes: Mapping[str, int]) -> Loaded:
    """A model whose dimensions are open, or whose caches grow, at exact sizes of these."""
    if growth := loaded.border.growth:
        dims = {name: size for name, size in request.options.binding.items() if name not in growth.dims}
        fed = replace(request.options, carry={}, cache=CACHE_OF_MODEL, dims={**dims, **sizes})
        return _with_cache(load_for(request, fed), request.options.cache, growth.pairs)
    assert loaded.open_shapes is not None
    return load_for(request, exactly(request.options, loaded.graph, loaded.open_shapes, sizes))


def with_values(request: Request, graph: Graph, given: Mapping[str, Example]) -> Loaded | None:
    """A model with inputs fixed to elements in row-major order; None where it is refused so."""
    shaped = {graph.values[id].name: graph.type(id).dims for id in graph.inputs}
    specs = {name: InputSpec(value=nested(elements, shaped[name])) for name, elements in given.items()}
    try:
        return load_for(request, replace(request.options, inputs={**request.options.inputs, **specs}))
    except CallerError:
        return None


def requests_of_bindings(trace: Trace, request: Request) -> list[Request]:
    """One for each, with the samples that have its shapes: the same for each profile.

    Raises InputsError for a sample that has those of none, OptionsError for states that bindings cannot share.
    """
    bindings = request.options.bindings
    bound = [one for one in bindings if one.target == bindings[0].target]
    shares: list[dict[str, Path]] = [{} for _ in bound]
    if request.samples or request.options.carry:
        specs, states = [], []
        with trace.step("load"):
            for one in bound:
                loaded = load_for(request, one)
                parts = loaded.graph, loaded.open_shapes, loaded.border
                specs.append(specs_of(*parts))
                states.append(BoundStates.of(*parts, one))
            demand_shared(states)
            if request.samples:
                shares = share_out(request.samples, specs)
    return [replace(request, options=one, samples=share) for one, share in zip(bindings, cycle(shares), strict=False)]

"""The step that proves an artifact.

It is run, through its own loader, against the reference on the graph before rewriting.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import cache, partial, reduce
from typing import Any, NoReturn

import numpy as np

from compiler.contract import CompileOptions, LayerError, SizeReport, kinds
from compiler.errors import Disagreement, InputsError, Unverified
from compiler.frontend import Loaded
from compiler.frontend.ragged import Texts
from compiler.ir.buffers import KernelGraph
from compiler.ir.graph import Graph
from compiler.ir.open_shapes import OpenShapes
from compiler.ir.plans.plan import Plan
from compiler.measure.latency import model_latency
from compiler.ops import OPERATORS
from compiler.pack.loader import InputError, Model, RunError
from compiler.prove.agree import (
    DEFAULT_TOLERANCE,
    LARGEST,
    MANTISSA,
    Agreement,
    Known,
    ModelRunner,
    Noise,
    Why,
    agree,
    default_tolerance,
    merged,
)
from compiler.prove.array_module import ArrayModule
from compiler.prove.bisect import PLAN_FAULT, bisect, demand_same_meaning, layer_errors
from compiler.prove.effort import Effort, reference_effort
from compiler.prove.foretold import EVALUATIONS, foretold
from compiler.prove.inputs import sample_inputs
from compiler.prove.reference import evaluate_graph
from compiler.prove.samples import Sample
from compiler.prove.sizes import cut, judged_sizes, own_outputs, padded, usual_sizes
from compiler.session import Session
from compiler.steps.building import Built, Front
from compiler.steps.foreseeing import BY_ROUNDING, unverified
from compiler.steps.probing import drawn_probe, with_bands
from compiler.steps.states.proof import JUDGED, runs_in_a_row
from compiler.trace import StopRequest, Trace

AGREE_SECONDS = 6.0
"""Edge cases of the agreement check begin while this lasts; the random case is always judged."""
FIXED = 2
"""Examples of inputs with few legal values with which the model is also loaded as constants."""
LATENCY_SECONDS = 0.5
PROGRESS_FROM_S = 3.0
"""Estimated seconds of an evaluation of the reference from which on its progress is reported."""
ON_DEVICE_FROM_S = 2.0
"""Estimated seconds of an evaluation in numpy from which on it is done on the device: compiling a module's own kernels
takes as long."""
PROGRESS_STEP = 0.02
"""Of an evaluation, between two such events."""
BEYOND_RANGE = "beyond_range"
"""In the details of a Disagreement: the precision whose range a value exceeds."""


LAYERS_FROM_S = 60.0
"""Seconds of a tuning budget from which on the error of each layer is found."""
LAYERS_MOST_S, LAYERS_MOST_BYTES = 5.0, 2 << 30
"""Of one evaluation of the reference, above which it is not."""


FORETOLD_S = 30.0
"""Of evaluations of the reference in all, up to which a program that does not run here gets its probe from them."""
LENGTH = 32
"""Of caches that grow, for which the program is judged by the model as it is for that length."""


@dataclass(frozen=True)
class Proof:
    """What running the artifact showed; no agreement for a target that does not run here.

    Where dimensions are open the agreement has the largest errors of all `sizes`. `probe` is what the manifest is to
    say of the probe (`compiler.steps.probing`); empty where there is none.
    """

    agreement: Agreement | None
    latency_s: float
    sizes: tuple[SizeReport, ...] = ()
    probe: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Case:
    """A graph to judge the program against, and the samples of its shapes.

    effort  what evaluating it takes
    shapes  which axes of its outputs have a size that follows from data; None: none has
    sizes   of the dimensions that the program leaves open, by name
    fixed   the inputs of the program that are constants of the graph, by their number
    room    shapes of the program's inputs where these have room for caches that grow, and the graph has not
    length  of these caches
    """

    graph: Graph
    shapes: OpenShapes | None
    effort: Effort
    samples: Sequence[Sample]
    sizes: Mapping[str, int] = field(default_factory=dict)
    fixed: Mapping[int, np.ndarray] = field(default_factory=dict)
    room: Sequence[tuple[int, ...]] = ()
    length: int = 0

    def __str__(self) -> str:
        fixed = {f"input {number}": array.tolist() for number, array in self.fixed.items()}
        return ", ".join(f"{name}={value!s:.40}" for name, value in {**self.sizes, **fixed}.items())

    def given(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """What the program is given for inputs of the graph, in order."""
        if self.room:
            pairs = zip(inputs, self.room, strict=True)
            wide = [
                np.pad(one, [(0, most - dim) for most, dim in zip(to, one.shape, strict=True)]) for one, to in pairs
            ]
            return [*wide, np.array(self.length, np.int64)]
        rest, count = iter(inputs), len(inputs) + len(self.fixed)
        return [self.fixed[number] if number in self.fixed else next(rest) for number in range(count)]


def prove(session: Session, front: Front, built: Built) -> Proof:
    """Runs the artifact under each of its plans against the reference on the unrewritten graph.

    Where dimensions are open it runs at several sizes, against the model loaded at exactly these; where few values of
    inputs are legal, also against the model in which these inputs are constants.

    Raises Disagreement that names the first diverging node, InputsError for inputs that the model does not take, and
    Unverified where nothing shows an output, unless the options allow that.
    """
    options = session.options
    runner = session.backend.runner
    if runner is None or front.opened.effort is None:
        return Proof(None, 0.0, probe=_foretold(session, front, built))
    end = time.monotonic() + AGREE_SECONDS
    with ExitStack() as opened:
        models = [
            opened.enter_context(runner.open(built.packed.path, plan=number, coded=True))
            for number in built.plans.numbers
        ]
        arrays = cache(runner.arrays)
        cases = _cases(front, options, front.opened.effort)
        first = next(cases)
        drawn = _drawn(session, front, built, first, arrays)
        known = drawn[1] if drawn else None
        found = [_judged(session, front, built, models, first, end, arrays, known=known)]
        found += [_judged(session, front, built, models, case, end, arrays) for case in cases]
        agreement = reduce(merged, (_placed(case, verdict) for case, verdict in found))
        _demand_shown(session, built, agreement)
        verdict = found[0][1]
        probe = _probe(first, drawn, verdict.each[0].decided, verdict.tolerance) if drawn else {}
        if arrays.cache_info().currsize and (module := arrays()):
            session.trace.remark(f"float64 reference: {module}")
            module.free()
        timed = front.opened.timed_inputs(options.seed)
        inputs = [timed[spec.name] for spec in models[0].inputs]

        def run_once() -> None:
            models[0].run_flat(inputs)

        run = models[0].bind_state(inputs) if models[0].carried else run_once
        latency_s = 0.0 if runner.emulator else model_latency(run, LATENCY_SECONDS).median
    sizes = tuple(SizeReport(case.sizes, verdict.errors) for case, verdict in found if case.sizes)
    return Proof(agreement, latency_s, sizes, probe)


Drawn = tuple[Mapping[str, Any], Known]
"""The rule of a probe, and its inputs with what the reference gives for them."""


def _drawn(
    session: Session, front: Front, built: Built, case: Case, arrays: Callable[[], ArrayModule | None]
) -> Drawn | None:
    """What a probe has of a case; None where its inputs lead the model outside of what it indexes."""
    rule, inputs = drawn_probe(
        built.packed.manifest, case.graph, case.shapes, case.sizes, case.fixed, session.options.seed
    )
    watch = Progress(session.trace, session.budget.stop_requested, case.effort)
    module = arrays() if case.effort.seconds >= ON_DEVICE_FROM_S else None
    try:
        found = evaluate_graph(case.graph, inputs, OPERATORS, watch=watch, module=module)
    except InputsError:
        return None
    return None if case.shapes and case.shapes.broken(case.graph.outputs, found) else (rule, Known(inputs, found))


def _probe(case: Case, drawn: Drawn, decided: Sequence[str], tolerance: float) -> Mapping[str, Any]:
    """The probe; empty where nothing is decided."""
    rule, known = drawn
    want = cut(case.graph, case.shapes, known.found)
    probe = with_bands(rule, own_outputs(case.graph, case.shapes), want, decided, tolerance)
    return probe if any(probe["outputs"]) else {}


def _foretold(session: Session, front: Front, built: Built) -> Mapping[str, Any]:
    """The probe of an artifact that does not run here; empty where the reference takes too long, or leaves it open."""
    graph, options = front.opened.loaded.graph, session.options
    case = next(_cases(front, options, reference_effort(graph)))
    too_long = EVALUATIONS * case.effort.seconds > FORETOLD_S or case.effort.bytes > LAYERS_MOST_BYTES
    if too_long or kinds.of(options.target).browser:
        return {}
    drawn = _drawn(session, front, built, case, lambda: None)
    if drawn is None:
        return {}
    accepted = default_tolerance(case.graph, options.arithmetic) if options.tolerance is None else options.tolerance
    noise = Noise(MANTISSA.get(options.arithmetic, 0), DEFAULT_TOLERANCE[options.arithmetic], granted=True)
    evaluate = partial(evaluate_graph, case.graph, operators=OPERATORS)
    return _probe(case, drawn, *foretold(case.graph, case.shapes, evaluate, drawn[1], accepted, noise))


def _demand_shown(session: Session, built: Built, agreement: Agreement) -> None:
    """Raises Unverified where nothing shows an output, unless the options allow that and nothing could round less."""
    if agreement.passed:
        return
    why = {name: _why(agreement, name) for name in agreement.unshown}
    error = unverified(why, by_rounding=Why.ROUNDING in why.values())
    if session.options.unverified != "allow" or (BY_ROUNDING in error.details and built.rounded(session)):
        raise error
    session.trace.notice(f"the artifact is not verified: {error.message}")


def _why(agreement: Agreement, output: str) -> Why:
    """Why the first case that says so shows nothing of an output; the random one comes first."""
    return next(case.why for case in agreement.each if case.why is not None and output not in case.decided)


def errors_of_layers(session: Session, front: Front, built: Built, *, is_far: bool) -> tuple[LayerError, ...]:
    """How far each kernel's result is from the reference, on the first sample or random inputs.

    Kernels are built once more to run one by one, so it is left to compilations that take long anyway, and to those of
    which an output `is_far` from what float32 gives; empty for others, where dimensions are open, and where the target
    does not run here.
    """
    runner, effort, shapes = session.backend.runner, front.opened.effort, front.opened.loaded.open_shapes
    is_open = shapes is not None and bool(shapes.dimensions or shapes.examples)
    is_long = session.measures and session.options.tuning_budget_s >= LAYERS_FROM_S
    if runner is None or runner.emulator or effort is None or is_open or not (is_long or is_far):
        return ()
    if effort.seconds > LAYERS_MOST_S or effort.bytes > LAYERS_MOST_BYTES:
        return ()
    graph = front.opened.loaded.graph
    inputs = front.opened.samples[0].arrays if front.opened.samples else sample_inputs(graph, session.options.seed)
    kernels, plan = built.one_by_one(built.plans.plan)
    with session.backend.stepper(kernels, plan) as stepper:
        return layer_errors(graph, kernels, stepper, inputs, OPERATORS, built.slices)


def _cases(front: Front, options: CompileOptions, whole: Effort) -> Iterator[Case]:
    """Where dimensions are open: opt, min and max, what samples have, then sizes that are drawn.

    These last are judged while one evaluation of the reference for each, as estimated, takes no longer in all than the
    options grant for one.
    """
    shapes = front.opened.loaded.open_shapes
    if front.opened.texts is not None:
        yield from _of_texts(front.opened.texts, options)
        return
    if shapes is None or not shapes.dimensions:
        yield Case(front.opened.loaded.graph, shapes, whole, front.opened.samples)
        yield from _fixed(front, shapes)
        yield from _grown(front)
        return
    certain, drawn = judged_sizes(shapes, usual_sizes(options, shapes), options.seed)
    certain += [dict(sample.sizes) for sample in front.opened.samples]
    done: list[Mapping[str, int]] = []
    spent = 0.0
    for sizes in (*certain, *drawn):
        if sizes in done:
            continue
        exact = front.opened.at(sizes)
        effort = reference_effort(exact.graph)
        spent += effort.seconds
        if len(done) >= len(certain) and spent > options.proof_limit_s:
            return
        done.append(sizes)
        samples = [sample for sample in front.opened.samples if sample.sizes == sizes]
        yield Case(exact.graph, _with_examples(exact, shapes), effort, samples, sizes)


def _of_texts(texts: Texts, options: CompileOptions) -> Iterator[Case]:
    """Texts of several lengths: the reference has each by itself, by the model of exactly its length.

    As sizes. The first case is always judged, others while one evaluation of each takes no longer than is granted.
    """
    number, spent = len(texts.seen.graph.inputs), 0.0
    for lengths in texts.judged(options.seed):
        graph = texts.alone(lengths)
        effort = reference_effort(graph)
        spent += effort.seconds
        if spent > max(options.proof_limit_s, effort.seconds):
            return
        offsets = np.cumsum([0, *lengths], dtype=np.int64)
        sizes = {"tokens": sum(lengths), texts.offsets: len(offsets)}
        yield Case(graph, None, effort, (), sizes, fixed={number: offsets})


def _with_examples(exact: Loaded, shapes: OpenShapes) -> OpenShapes | None:
    """What is known of the model at exact sizes, with the examples of its whole range for inputs without any.

    Exact sizes may permit what the range does not, such as a branch that does not take all of it.
    """
    graph = exact.graph
    own = exact.open_shapes or OpenShapes(
        (),
        tuple((None,) * graph.type(id).rank for id in graph.inputs),
        tuple((None,) * graph.type(id).rank for id in graph.outputs),
    )
    known = dict(own.examples)
    fitting = {
        number: each
        for number, each in shapes.examples
        if number not in known and all(len(one) == graph.type(graph.inputs[number]).elements for one in each)
    }
    return replace(own, examples=(*own.examples, *fitting.items())) if fitting else exact.open_shapes


def _fixed(front: Front, shapes: OpenShapes | None) -> Iterator[Case]:
    """The model with inputs of which there are examples fixed to the first ones."""
    examples = dict(shapes.examples) if shapes else {}
    graph = front.opened.loaded.graph
    for place in range(min(FIXED, max(map(len, examples.values()), default=0))):
        each = {number: given[place % len(given)] for number, given in examples.items()}
        loaded = front.opened.fixed({graph.values[graph.inputs[number]].name: one for number, one in each.items()})
        if loaded is not None:
            kinds = {number: graph.type(graph.inputs[number]) for number in each}
            arrays = {at: np.array(one, kinds[at].dtype.numpy).reshape(kinds[at].dims) for at, one in each.items()}
            yield Case(loaded.graph, loaded.open_shapes, reference_effort(loaded.graph), (), fixed=arrays)


def _grown(front: Front) -> Iterator[Case]:
    """The model as it is for caches of one length, where the program has room for any."""
    loaded = front.opened.loaded
    if (growth := loaded.border.growth) and (length := min(LENGTH, (growth.room - growth.rows + 1) // 2)):
        sizes = {name: length + more for name, more in growth.dims.items()}
        exact = front.opened.at(sizes)
        room = [loaded.graph.type(id).dims for id in loaded.graph.inputs[:-1]]
        yield Case(exact.graph, exact.open_shapes, reference_effort(exact.graph), (), sizes, room=room, length=length)


def _placed(case: Case, verdict: Agreement) -> Agreement:
    """With the sizes, or the fixed inputs, of the case in the names of its cases."""
    at = f" at {case}" if case.sizes or case.fixed else ""
    return replace(verdict, each=tuple(replace(one, name=one.name + at) for one in verdict.each))


def _judged(
    session: Session,
    front: Front,
    built: Built,
    models: Sequence[Model],
    case: Case,
    end: float,
    arrays: Callable[[], ArrayModule | None],
    *,
    known: Known | None = None,
) -> tuple[Case, Agreement]:
    """The verdict on one case, which did not fail; edge cases begin until `end`."""
    options, precision = session.options, built.rounding.precision
    ways = [in_declared_types(_poisoned(model), case) for model in models]
    carrying = [model for model in models if model.carried and not (case.fixed or case.room)]
    runs = [runs_in_a_row(model, case.graph, case.samples, front.found) for model in carrying]
    count = max(1, min(JUDGED, int(AGREE_SECONDS / 2 / max(case.effort.seconds, 1e-9))))
    steps = {f"run {number} from a state": inputs for number, inputs in enumerate(runs[0][:count], 1)} if runs else {}
    verdict = agree(
        ways[0],
        case.graph,
        OPERATORS,
        options.tolerance,
        options.seed,
        precision=options.arithmetic,
        largest=LARGEST.get(precision, math.inf),
        budget_s=0.0 if case.fixed else end - time.monotonic(),
        others=ways[1:],
        samples={f"sample {sample.name!r:.200}": sample.arrays for sample in case.samples} | steps,
        watch=Progress(session.trace, session.budget.stop_requested, case.effort),
        shapes=case.shapes,
        module=arrays() if case.effort.seconds >= ON_DEVICE_FROM_S else None,
        known=known,
    )
    if verdict.beyond_range:
        fix = "ask for precision bf16, which reaches as far as fp32, or for fp32"
        raise Disagreement(verdict.beyond_range, fix=fix, details={BEYOND_RANGE: precision})
    if verdict.failing_inputs is not None:
        _blamed(session, front, built, case, verdict, verdict.failing_inputs)
    return case, verdict


def _blamed(
    session: Session,
    front: Front,
    built: Built,
    case: Case,
    verdict: Agreement,
    failing: Mapping[int, np.ndarray],
) -> NoReturn:
    """Raises Disagreement that names what is at fault for a program that fails on inputs of the case."""
    graph, shapes = front.opened.loaded.graph, front.opened.loaded.open_shapes
    inputs = failing
    if shapes is not None or case.room:
        given = case.given([failing[value] for value in case.graph.inputs])
        inputs = padded(graph, shapes, given) if shapes else dict(zip(graph.inputs, given, strict=True))
        if case.sizes or case.fixed:
            exact = case.graph, case.shapes
            demand_same_meaning(graph, shapes, inputs, exact, failing, verdict.tolerance, str(case))
    blamed = built.all_plans[verdict.failing_way]
    named = f"the program under its plan for {_cores(blamed)}" if built.plans.others else "the program"
    kernels, plan = built.one_by_one(blamed)
    with session.backend.stepper(kernels, plan) as stepper:

        def disagreement(number: int) -> Disagreement:
            given = _from_slice(number, built.slices, inputs, kernels)
            try:
                bisect(graph, kernels, stepper, given, OPERATORS, verdict.tolerance, program=named, slices=built.slices)
            except Disagreement as error:
                return error

        found = disagreement(0)
        others = range(1, built.slices) if shapes is None else ()  # what lies beyond an open size means nothing
        for number in others:
            if not found.details.get(PLAN_FAULT):
                break
            found = disagreement(number)
        raise found


def _from_slice(
    number: int, slices: int, inputs: Mapping[int, np.ndarray], kernels: KernelGraph
) -> dict[int, np.ndarray]:
    """Inputs of a batch in another order of its slices, with this one first."""
    return {
        id: array
        if array.shape == kernels.buffers[id].type.dims
        else np.roll(array, -number * (len(array) // slices), axis=0)
        for id, array in inputs.items()
    }


@dataclass
class Progress:
    """Tells how far an evaluation of the reference is, where it takes long: `compiler.prove.reference.Watch`.

    For one that wants the artifact at once: a notice says that its proof is never left out, and how long it takes.
    """

    trace: Trace
    stop_requested: StopRequest
    effort: Effort
    _before: tuple[float, ...] = field(init=False)
    _shown: float = -1.0
    _evaluation: int = 1
    _is_stopping: bool = False

    def __post_init__(self) -> None:
        self._before = self.effort.before()

    def __call__(self, position: int, part: float) -> None:
        """Says how far the evaluation is, once `part` of the node at `position` is done."""
        whole = self.effort.seconds
        if whole < PROGRESS_FROM_S:
            return
        done = (self._before[position] + part * self.effort.node_s[position]) / whole
        if done < self._shown:
            self._evaluation, self._shown = self._evaluation + 1, -1.0
        if not self._is_stopping and self.stop_requested():
            self._is_stopping = True
            left = whole * (1 - done)
            self.trace.notice(f"the artifact is being proved, which is never left out: about {left:.0f} s more")
        if done >= self._shown + PROGRESS_STEP:
            self._shown = done
            evaluation = f", evaluation {self._evaluation}" if self._evaluation > 1 else ""
            self.trace.progress(done, f"float64 reference: {100 * done:.0f}% of about {whole:.0f} s{evaluation}")


def _poisoned(model: Model) -> Callable[[Sequence[Any]], Sequence[Any]]:
    """Runs in whose memory nothing is left of another: what a kernel fails to write is NaN and no right result."""
    return lambda inputs: model.run_flat(inputs, model.poison())


def in_declared_types(run_flat: Callable[[Sequence[Any]], Sequence[Any]], case: Case) -> ModelRunner:
    """What runs an artifact, whose outputs of bfloat16 are their bits, with outputs of the graph's types.

    It raises Disagreement for outputs that have not the graph's shapes.
    """
    values = own_outputs(case.graph, case.shapes)
    followed = case.shapes.outputs if case.shapes else [()] * len(values)

    def run(inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        try:
            arrays = run_flat(case.given(inputs))
        except InputError as error:
            if case.sizes:  # whose bounds may be wider, where they were assumed
                raise InputsError(str(error), fix="give samples that the model takes") from error
            raise Disagreement(f"the artifact refuses what its reference takes: {error}") from error
        except RunError as error:
            if not case.sizes:
                raise
            raise Disagreement(f"the artifact fails at {case}: {error}") from error
        if case.room:
            wide = zip(arrays[:-1], values, strict=True)
            arrays = [array[tuple(map(slice, value.type.dims))] for array, value in wide]
        for value, array, axes in zip(values, arrays, followed, strict=True):
            if not any(number is not None for number in axes) and array.shape != value.type.dims:
                said = f"output {value.name!r} has shape {list(array.shape)} at {case}, and the model's {value.type}"
                raise Disagreement(said, fix="report this model: it is our fault")
        return [array.view(value.type.dtype.numpy) for value, array in zip(values, arrays, strict=True)]

    return run


def blame(error: Disagreement | Unverified) -> str:
    """What was at fault, as far as is known."""
    return str(error) if BEYOND_RANGE in error.details else f"whose rounding errors may be at fault: {error}"


def _cores(plan: Plan) -> str:
    return (
        "cores that are far from each other"
        if math.isinf(plan.most_handover_s)
        else "cores that are near to each other"
    )

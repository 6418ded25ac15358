"""The step that proves an artifact.

It is run, through its own loader, against the reference on the graph before rewriting.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

import numpy as np

from compiler.errors import Disagreement, UnsupportedModel
from compiler.ir.graph import Graph
from compiler.ir.plan import Plan
from compiler.measure.latency import model_latency
from compiler.ops import OPERATORS
from compiler.pack.loader import Model
from compiler.prove.agree import LARGEST, Agreement, ModelRunner, agree
from compiler.prove.bisect import bisect
from compiler.prove.effort import Effort
from compiler.session import Session
from compiler.steps.building import Built, Front
from compiler.trace import Hurry, Trace

AGREE_SECONDS = 6.0
"""Edge cases of the agreement check begin while this lasts; the random case is always judged."""
LATENCY_SECONDS = 0.5
PROGRESS_FROM_S = 3.0
"""Estimated seconds of an evaluation of the reference from which on its progress is told."""
PROGRESS_STEP = 0.02
"""Of an evaluation, between two such events."""
BEYOND_RANGE = "beyond_range"
"""In the details of a Disagreement: the precision whose range a value exceeds."""


@dataclass(frozen=True)
class Proof:
    """What running the artifact showed; no agreement for a target that does not run here."""

    agreement: Agreement | None
    latency_s: float


def prove(session: Session, front: Front, built: Built) -> Proof:
    """Runs the artifact under each of its plans against the reference on the unrewritten graph.

    Raises Disagreement that names the first diverging node, and UnsupportedModel for a model without a finite result.
    """
    backend, options, graph = session.backend, session.options, front.loaded.graph
    if not backend.target.is_here or front.effort is None:
        return Proof(None, 0.0)
    precision = built.rounding.precision
    with ExitStack() as opened:
        model, *others = (opened.enter_context(Model(built.packed.path, plan=number)) for number in built.plans.numbers)
        verdict = agree(
            _in_declared_types(model, graph),
            graph,
            OPERATORS,
            options.tolerance,
            options.seed,
            precision=options.precision,
            largest=LARGEST.get(precision, math.inf),
            budget_s=AGREE_SECONDS,
            others=[_in_declared_types(other, graph) for other in others],
            watch=Progress(session.trace, session.budget.hurry, front.effort),
        )
        if verdict.beyond_range:
            fix = "ask for precision bf16, which reaches as far as fp32, or for fp32"
            raise Disagreement(verdict.beyond_range, fix=fix, details={BEYOND_RANGE: precision})
        if not verdict.passed and verdict.failing_inputs is not None:
            blamed = built.all_plans[verdict.failing_way]
            told = f"the program under its plan for {_cores(blamed)}" if built.plans.others else "the program"
            with backend.stepper(built.kernels, blamed) as stepper:
                bisect(graph, built.kernels, stepper, verdict.failing_inputs, OPERATORS, verdict.tolerance, told)
        if not verdict.is_finite:
            raise UnsupportedModel(
                "the model gives no finite number, whatever it was given: nothing shows what it means",
                fix="look for weights and attributes that are not finite, and for divisions by zero",
            )
        if not verdict.passed:
            raise Disagreement(
                "nothing shows that the artifact computes what the model says: rounding alone exceeds what may be "
                "granted in "
                f"every case ({', '.join(verdict.undecided)})",
                fix='state how much error is acceptable, such as {"tolerance": 0.05}',
            )
        inputs = list(model.random_inputs(options.seed).values())

        def run_once() -> None:
            model.run_flat(inputs)

        latency = model_latency(run_once, LATENCY_SECONDS)
    return Proof(verdict, latency.median)


@dataclass
class Progress:
    """Tells how far an evaluation of the reference is, where it takes long: `compiler.prove.reference.Watch`.

    One that wants the artifact at once is told that its proof is never left out, and how long it takes.
    """

    trace: Trace
    hurry: Hurry
    effort: Effort
    _before: tuple[float, ...] = field(init=False)
    _told: float = -1.0
    _evaluation: int = 1
    _is_hurried: bool = False

    def __post_init__(self) -> None:
        self._before = self.effort.before()

    def __call__(self, position: int, part: float) -> None:
        whole = self.effort.seconds
        if whole < PROGRESS_FROM_S:
            return
        done = (self._before[position] + part * self.effort.node_s[position]) / whole
        if done < self._told:
            self._evaluation, self._told = self._evaluation + 1, -1.0
        if not self._is_hurried and self.hurry():
            self._is_hurried = True
            left = whole * (1 - done)
            self.trace.notice(f"the artifact is being proved, which is never left out: about {left:.0f} s more")
        if done >= self._told + PROGRESS_STEP:
            self._told = done
            evaluation = f", evaluation {self._evaluation}" if self._evaluation > 1 else ""
            self.trace.progress(done, f"float64 reference: {100 * done:.0f}% of about {whole:.0f} s{evaluation}")


def _in_declared_types(model: Model, graph: Graph) -> ModelRunner:
    """What runs an artifact, whose outputs of bfloat16 are their bits, with outputs of the graph's types."""
    dtypes = [graph.type(value).dtype.numpy for value in graph.outputs]

    def run(inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        return [array.view(dtype) for array, dtype in zip(model.run_flat(inputs), dtypes, strict=True)]

    return run


def blame(error: Disagreement) -> str:
    """What was at fault, as far as is known."""
    return str(error) if BEYOND_RANGE in error.details else f"whose rounding errors may be at fault: {error}"


def _cores(plan: Plan) -> str:
    return (
        "cores that are far from each other"
        if math.isinf(plan.most_handover_s)
        else "cores that are near to each other"
    )

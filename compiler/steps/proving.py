"""The step that proves an artifact.

It is run, through its own loader, against the reference on the graph before rewriting.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np

from compiler.errors import Disagreement
from compiler.ir.graph import Graph
from compiler.ir.plan import Plan
from compiler.measure.latency import model_latency
from compiler.ops import OPERATORS
from compiler.pack.loader import Model
from compiler.prove.agree import LARGEST, Agreement, ModelRunner, agree
from compiler.prove.bisect import bisect
from compiler.session import Session
from compiler.steps.building import Built

AGREE_SECONDS = 6.0
"""Edge cases of the agreement check begin while this lasts; the random case is always judged."""
LATENCY_SECONDS = 0.5
BEYOND_RANGE = "beyond_range"
"""In the details of a Disagreement: the precision whose range a value exceeds."""


@dataclass(frozen=True)
class Proof:
    """What running the artifact showed; no agreement for a target that does not run here."""

    agreement: Agreement | None
    latency_s: float


def prove(session: Session, graph: Graph, built: Built) -> Proof:
    """Runs the artifact under each of its plans against the reference on the unrewritten `graph`.

    Raises Disagreement that names the first diverging node.
    """
    backend, options = session.backend, session.options
    if not backend.target.is_here:
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
        )
        if verdict.beyond_range:
            fix = "ask for precision bf16, which reaches as far as fp32, or for fp32"
            raise Disagreement(verdict.beyond_range, fix=fix, details={BEYOND_RANGE: precision})
        if not verdict.passed and verdict.failing_inputs is not None:
            blamed = built.all_plans[verdict.failing_way]
            told = f"the program under its plan for {_cores(blamed)}" if built.plans.others else "the program"
            with backend.stepper(built.kernels, blamed) as stepper:
                bisect(graph, built.kernels, stepper, verdict.failing_inputs, OPERATORS, verdict.tolerance, told)
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

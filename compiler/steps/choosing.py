"""The step that makes choices: the search over them with what kernels cost, of which a few are measured for it."""

from __future__ import annotations

from dataclasses import dataclass

from compiler.contract.kinds import AUTO
from compiler.fuse import fuse
from compiler.ir.graph import Graph
from compiler.ir.machine import Record, Workload
from compiler.rewrite.choose import Chosen, choose
from compiler.session import Session
from compiler.steps.costs.graphs import FusedCosts, Measuring, program_key
from compiler.steps.costs.kernels import KernelCosts, kernel_costs
from compiler.steps.costs.lanes import split_seconds


@dataclass(frozen=True)
class EvaluatedChoices:
    """The program with the choices that pay, and what finding it took.

    kernels   what kernels cost, by the records there were before
    measured  of kernels, with their workloads
    """

    chosen: Chosen
    kernels: KernelCosts
    measured: tuple[tuple[Workload, Record], ...] = ()

    @property
    def trials(self) -> list[Record]:
        """The measurements alone."""
        return [record for _, record in self.measured]


def evaluate_choices(session: Session, graph: Graph) -> EvaluatedChoices:
    """A program at a fixed point of the rules, after the choices that pay.

    Kernels are measured until their share of the budget is spent or a stop request has come; never where the job grants
    no measuring, nor for a program that was weighed with this budget before.
    """
    kept, options = session.kept, session.options
    precision = "fp32" if options.precision == AUTO else options.arithmetic  # AUTO: kernels get theirs once known
    kernels = session.backend.stored(fuse(graph, kept.without_steps).kernels, precision)
    session.prepare(kernels)
    backend, setting, known = session.backend, session.backend.setting(kernels), session.records
    points = backend.starting_points(known, setting)
    meeting_s = split_seconds(session)
    priced = kernel_costs(backend, points, setting, session.lanes, precision)
    if not session.measures:
        costs = FusedCosts(priced, meeting_s, kept.without_steps)
        return EvaluatedChoices(choose(graph, costs, kept.choices, kept.rules), priced)
    workloads = [backend.workload_of(kernels, call) for call in kernels.calls]
    whole = program_key(workloads, [choice.name for choice in kept.choices])
    with session.machine(setting) as machine:
        measuring = Measuring(machine, session.budget.share("choices")) if machine else None
        is_known = measuring is None or measuring.was_done(whole, known, backend.target, setting)
        costs = FusedCosts(priced, meeting_s, kept.without_steps, None if is_known else measuring)
        chosen = choose(graph, costs, kept.choices, kept.rules)
    evaluated = EvaluatedChoices(chosen, priced, tuple(costs.fresh))
    for workload, record in evaluated.measured:
        session.trace.workload(record.workload, str(workload))
    session.add_records(evaluated.trials)
    if measuring and costs.has_asked and session.may_measure:
        session.add_records([measuring.record(whole, len(costs.fresh), backend.target, setting)])
    return evaluated

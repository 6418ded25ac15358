"""The step that makes choices: the search over them with what kernels cost, of which a few are measured for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass

from compiler.contract import CompileOptions
from compiler.devices.device import Backend
from compiler.fuse import fuse
from compiler.ir.graph import Graph
from compiler.ir.machine import Record, Workload
from compiler.knowledge.budget import TuningBudget
from compiler.rewrite import Rule
from compiler.rewrite.choose import Chosen, choose
from compiler.steps.costs import KernelCosts, kernel_costs
from compiler.steps.graph_costs import FusedCosts, Measuring, program_key


@dataclass(frozen=True)
class Offers:
    """What may be done to a program: rules always, choices where they pay; steps of fusion that are not taken."""

    rules: Sequence[Rule]
    choices: Sequence[Rule]
    without_steps: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Weighed:
    """The program with the choices that pay, and what finding it took.

    kernels   what kernels cost, by the records there were before
    measured  of kernels, with their workloads
    others    records of this run that are of no kernel: facts of the device, and that choices were weighed
    """

    chosen: Chosen
    kernels: KernelCosts
    measured: tuple[tuple[Workload, Record], ...]
    others: tuple[Record, ...]

    @property
    def backend(self) -> Backend:
        """With what is known of its device."""
        return self.kernels.backend

    @property
    def trials(self) -> list[Record]:
        """The measurements alone."""
        return [record for _, record in self.measured]


def weigh_choices(
    graph: Graph,
    offers: Offers,
    backend: Backend,
    known: Sequence[Record],
    options: CompileOptions,
    lanes: int,
    meeting_s: float,
    budget: TuningBudget | None,
    notice: Callable[[str], None],
) -> Weighed:
    """A program at a fixed point of the rules, after the choices that pay.

    Kernels are measured until their share of the budget is spent or somebody is in a hurry; never where it is None, nor for a program
    that was weighed with this budget before. `meeting_s` is what sharing a kernel between lanes costs beside its work.
    """
    kernels = backend.stored(fuse(graph, offers.without_steps).kernels, options.precision)
    with budget.share("device").spending() if budget else nullcontext():
        backend, facts = backend.prepared(kernels, known, measure=budget is not None and not budget.hurry())
    setting = backend.setting(kernels)
    priced = kernel_costs(backend, backend.starting_points(known, setting), setting, lanes, options.precision)
    whole = program_key(
        (backend.workload_of(kernels, call) for call in kernels.calls), (choice.name for choice in offers.choices)
    )
    if budget is None:
        costs = FusedCosts(priced, meeting_s, offers.without_steps)
        return Weighed(choose(graph, costs, offers.choices, offers.rules), priced, (), tuple(facts))
    with backend.machine(options.seed, budget.hurry, setting, notice) as machine:
        measuring = Measuring(machine, budget.share("choices")) if machine else None
        is_known = measuring is None or measuring.was_done(whole, known, backend.target, setting)
        costs = FusedCosts(priced, meeting_s, offers.without_steps, None if is_known else measuring)
        chosen = choose(graph, costs, offers.choices, offers.rules)
    is_said = costs.has_asked and not budget.hurry()
    said = [measuring.record(whole, len(costs.fresh), backend.target, setting)] if measuring and is_said else []
    return Weighed(chosen, priced, tuple(costs.fresh), (*facts, *said))

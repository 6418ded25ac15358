"""What an artifact says of its making that is neither in the program nor in the plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from compiler.contract import COMPILER_VERSION, DemandedRange, PlanReached, QuantisedReport
from compiler.ir.border import PLAIN, Border
from compiler.ir.open_shapes import OpenShapes
from compiler.ir.plans.plan import Plan
from compiler.ir.states import Carried
from compiler.ir.target import Ceilings
from compiler.ir.tile import Cost
from compiler.pack.explanation import Explanation
from compiler.pack.graphs import Step


@dataclass(frozen=True)
class QuantisedModel:
    """The file of a model that was quantised before it was compiled, and what came of that.

    given_digest  of the model that it was made of
    """

    given_digest: str
    content: bytes
    report: QuantisedReport


@dataclass(frozen=True)
class Rejected:
    """A plan that was found and not taken; the rest is of it what it is of the taken one in `Facts`.

    number  its place among `Facts.plans`, from 0
    """

    number: int
    plan: Plan
    costs: tuple[Cost, ...]
    predicted: tuple[tuple[float, float], ...] = ()
    measured: tuple[tuple[float, float], ...] = ()


@dataclass(frozen=True)
class Facts:
    """All of it follows from model, options, records and toolchain.

    What differs from run to run belongs in the receipt.

    `costs` holds, for each call, its seconds as the plan carries it out; a measurement of this run and one read from a
    record are shown alike. `options` is `CompileOptions.artifact_json()`. `model` and `steps` are (what, words) rows
    for people: facts about the model (opset, parameters, ...), and what each step of the pipeline did. `plans` are the
    schedules that were found, `explanation` what rewriting and fusion did and did not do, `graphs` the graph after each
    step, `handover_s` what one lane waits for another's result. `predicted` is when each task of the plan begins and
    ends as its scheduler expects it, in the plan's order (empty: as the costs make it), `measured` when they did in
    traced runs (empty: not traced); both in seconds from the beginning of a run. `rejected` are the plans that were not
    taken. `ranges` are those of inputs of which something is demanded, `samples` the SHA-256s of inputs on which it was
    judged and, the first, timed. `open` says which axes of inputs and outputs are open, and `opt` the most usual size
    of each dimension, in its order. `border` has the model's strings, and says whether it draws random numbers. Texts
    may quote names from the model: they are escaped where they are shown. `ceilings` are those of the target on as many
    lanes as the plan has. `quantised` is what was compiled where that is not the model itself, whose digest
    `model_digest` then still is. `carried` are the states that runs hand on.
    """

    model_digest: str
    options: Mapping[str, Any]
    target: str
    hardware: str
    operators: int
    kernels_before_fusion: int
    costs: tuple[Cost, ...]
    model: tuple[tuple[str, str], ...] = ()
    steps: tuple[tuple[str, str], ...] = ()
    explanation: Explanation = field(default_factory=Explanation)
    graphs: tuple[Step, ...] = ()
    notices: tuple[str, ...] = ()
    plans: tuple[PlanReached, ...] = ()
    handover_s: float = 0.0
    predicted: tuple[tuple[float, float], ...] = ()
    measured: tuple[tuple[float, float], ...] = ()
    rejected: tuple[Rejected, ...] = ()
    ranges: tuple[DemandedRange, ...] = ()
    samples: tuple[str, ...] = ()
    open: OpenShapes | None = None
    opt: tuple[int, ...] = ()
    border: Border = PLAIN
    ceilings: Ceilings | None = None
    quantised: QuantisedModel | None = None
    carried: tuple[Carried, ...] = ()
    compiler_version: str = COMPILER_VERSION

    @property
    def seconds(self) -> list[float]:
        """Of each call."""
        return [cost.seconds for cost in self.costs]

    def time_of(self, call: int) -> tuple[float, str]:
        """Seconds of a call, and where they come from: `measured`, or `model` for an analytical estimate."""
        cost = self.costs[call]
        return cost.seconds, "model" if cost.is_modelled else "measured"

"""Constructors of records.

There is one for each kind of `kinds`, one for the markers of searches, and `record_of` for kinds that one place
measures.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from compiler.ir.machine import Record, Setting, Trial
from compiler.ir.plans.lanes import Handover
from compiler.ir.target import Target
from compiler.knowledge.kinds import (
    ALONE_S,
    BUDGET_S,
    BYTE_S,
    CORES,
    EXHAUSTED,
    HANDOVER,
    KERNEL,
    MACHINE,
    PAIR,
    PLAN,
    SEARCH,
    SECONDS,
    SOURCE,
    STAGE,
    STATE,
    STREAM,
    TOGETHER_S,
    TRIALS,
    UPGRADE_S,
    Kind,
)


class Timed(Protocol):
    """Samples in seconds, with their median and spread (`compiler.measure.spread.Spread`)."""

    @property
    def samples(self) -> Sequence[float]:
        """Seconds of each run."""
        ...

    @property
    def median(self) -> float:
        """Seconds that half of the runs took at most."""
        ...

    @property
    def p10(self) -> float:
        """Seconds that a tenth of the runs took at most."""
        ...

    @property
    def p90(self) -> float:
        """Seconds that nine tenths of the runs took at most."""
        ...


class CoreSeconds(Protocol):
    """Of an inference on each of some cores (`compiler.measure.cores.CoreSeconds`)."""

    @property
    def alone_s(self) -> Sequence[float]:
        """While the others rest."""
        ...

    @property
    def together_s(self) -> Sequence[float]:
        """While all do the same."""
        ...


@dataclass(frozen=True)
class Once:
    """One figure in seconds, without a spread."""

    median: float

    @property
    def samples(self) -> Sequence[float]:
        """The seconds of the one run."""
        return (self.median,)

    @property
    def p10(self) -> float:
        """The seconds of the one run."""
        return self.median

    @property
    def p90(self) -> float:
        """The seconds of the one run."""
        return self.median


def kernel_record(
    trial: Trial,
    target: Target,
    setting: Setting,
    took: Timed,
    source: str,
    conditions: Mapping[str, Any] | None = None,
) -> Record:
    """A kernel under a tile, with the digest of its source.

    `conditions` are what else the device says: the STATE of its cores, its clocks.
    """
    more = {SOURCE: source, **(conditions or {})}
    variant = {**trial.tile.to_json(), "lanes": trial.lanes, **setting.to_json(), **more}
    family, shapes = trial.workload.kernel.family, trial.workload.shapes
    return record_of(KERNEL, trial.key, family, shapes, target, variant, took, trial.lanes)


def machine_record(name: str, about: str, target: Target, took: Timed, lanes: int) -> Record:
    """One unit of what a core does, with so many cores at it."""
    return record_of(MACHINE, name, MACHINE.name, about, target, {}, took, lanes)


def handover_record(measured: Handover, target: Target, pair: tuple[int, int] | None = None) -> Record:
    """What a hand-over between two cores in a state costs, and a byte that one wrote and the other uses.

    The other one reads it, or it is written again. Of a `pair` of cores, or of the machine.
    """
    seconds = 1e-9 * measured.ns
    state, byte_s, upgrade_s = measured.state, measured.byte_s, measured.upgrade_s
    where = f"core {pair[0]} to its being seen on core {pair[1]}" if pair else "one core to its being seen on another"
    about = f"from a store on {where}; the cores are {state}"
    variant = {STATE: state, BYTE_S: byte_s, UPGRADE_S: upgrade_s, **({PAIR: [*pair]} if pair else {})}
    return record_of(HANDOVER, HANDOVER.name, HANDOVER.name, about, target, variant, Once(seconds), 2)


def stage_record(
    name: str,
    about: str,
    target: Target,
    setting: Setting,
    took: Timed,
    state: str,
    used: int,
    lanes: int,
    source: str,
) -> Record:
    """A part of a plan for so many `lanes`, of which it has tasks on those `used`; `source` is of all its kernels."""
    variant = {"lanes": used, STATE: state, **setting.to_json(), SOURCE: source}
    return record_of(STAGE, name, STAGE.name, about, target, variant, took, lanes)


def stages_marker(
    model: str, about: str, target: Target, setting: Setting, state: str, budget_s: float, spent_s: float, lanes: int
) -> Record:
    """Says that so many seconds were offered for the stages of a model, of which some were spent."""
    variant = {BUDGET_S: budget_s, STATE: state, **setting.to_json()}
    return record_of(STAGE, model, STAGE.name, about, target, variant, Once(spent_s), lanes)


def plan_record(model: str, about: str, target: Target, reached: Mapping[str, Any], took: Timed, lanes: int) -> Record:
    """A model under a plan.

    `reached` tells which, beside which other one, in which setting and state, and how it compares.
    """
    return record_of(PLAN, model, PLAN.name, about, target, reached, took, lanes)


def cores_record(model: str, about: str, target: Target, identity: Mapping[str, Any], took: CoreSeconds) -> Record:
    """A model on several cores at once; `identity` says under which plan, on which of them and in which setting."""
    variant = {**identity, ALONE_S: [*took.alone_s], TOGETHER_S: [*took.together_s]}
    return record_of(CORES, model, CORES.name, about, target, variant, Once(max(took.together_s)), len(took.alone_s))


def stream_record(
    model: str, about: str, target: Target, reached: Mapping[str, Any], period_s: float, devices: int
) -> Record:
    """A model in parts on so many devices, many inferences in flight.

    `reached` tells which parts, in which setting, and how one inference compares with one on a single device.
    """
    return record_of(STREAM, model, STREAM.name, about, target, reached, Once(period_s), devices)


@dataclass(frozen=True)
class Searched:
    """With which budget something was searched.

    seconds    of the budget
    trials     how many tiles it allowed; None: as many as fit
    exhausted  whether nothing promising was left; None if unknown
    state      of the cores, where it plays a part
    """

    seconds: float
    trials: int | None = None
    exhausted: bool | None = None
    state: str | None = None

    def to_json(self) -> dict[str, Any]:
        """As variants hold it."""
        return {
            SECONDS: self.seconds,
            TRIALS: self.trials,
            **({} if self.exhausted is None else {EXHAUSTED: self.exhausted}),
            **({} if self.state is None else {STATE: self.state}),
        }


def search_marker(
    space: str,
    about: str,
    target: Target,
    setting: Setting,
    searched: Searched,
    seconds: float,
    measured: int,
    *,
    kind: Kind = SEARCH,
    operator: str = "",
    lanes: int = 1,
) -> Record:
    """Says that what `space` names was searched with a budget.

    `about` says what `seconds` are, `measured` how many tiles or kernels it was.
    """
    variant = {**searched.to_json(), **setting.to_json()}
    operator = operator or kind.name
    return record_of(kind, space, operator, about, target, variant, Once(seconds), lanes, measured)


def record_of(
    kind: Kind,
    workload: str,
    operator: str,
    about: str,
    target: Target,
    variant: Mapping[str, Any],
    took: Timed,
    threads: int,
    samples: int | None = None,
) -> Record:
    """A record of any kind. Raises InternalError where the variant has a field that the table does not list."""
    kind.check(variant)
    return Record(
        kind=kind.name,
        workload=workload,
        operator=operator,
        description=about,
        target=target.name,
        hardware=target.hardware,
        variant=variant,
        threads=threads,
        seconds=took.median,
        p10=took.p10,
        p90=took.p90,
        samples=len(took.samples) if samples is None else samples,
    )

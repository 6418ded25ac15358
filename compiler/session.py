"""Session: what one compilation carries from step to step."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from compiler.contract import CompileOptions, kinds
from compiler.devices.device import Backend
from compiler.devices.kinds import backend_of
from compiler.disabled import EnabledPasses, enabled_passes
from compiler.ir.buffers import KernelGraph
from compiler.ir.machine import Machine, Record, Setting, plausible
from compiler.knowledge.budget import TuningBudget
from compiler.knowledge.records import Records
from compiler.knowledge.replay import Log
from compiler.pack.facts import QuantisedModel
from compiler.request import ALONE, Host
from compiler.trace import StopRequest, Trace, never_stops
from compiler.tuning.helpers import Helpers

ALONE_S = 0.5
"""Of the tuning budget, for a single plan, which is timed shortly for people to see."""


@dataclass
class Session:
    """The job, what is known, and who hears of it. `backend` knows more of its device once that was measured.

    kept      rules, choices, steps of fusion and rules of scheduling that are not left out
    records   those there were, and those of this run
    measures  whether the job grants any measuring
    place     a folder where files may be put meanwhile
    log       measurements with the step in which each became known, for a replay
    """

    options: CompileOptions
    kept: EnabledPasses
    backend: Backend
    trace: Trace
    records: Records
    budget: TuningBudget
    measures: bool
    place: Path
    log: Log = field(default_factory=Log)
    helpers: Helpers | None = None
    """Who may measure kernels for this job, on other devices of the same kind."""
    quantised: QuantisedModel | None = None
    """The model that is compiled, in precision int8."""
    memory_bytes: int | None = None
    """What this process may use; None: as much as the machine has."""
    meanwhile: Callable[[], None] | None = None
    """What is to be done once, and helpers need not wait for."""

    @staticmethod
    def of(
        options: CompileOptions,
        host: Host = ALONE,
        trace: Trace | None = None,
        place: Path = Path(),
        log: Log | None = None,
        quantised: QuantisedModel | None = None,
    ) -> Session:
        """For a job, with the compilers that the environment names; `log` is one to replay in place of the records.

        Raises OptionsError, TargetUnavailable, ToolchainMissing.
        """
        kept = enabled_passes(options.without)
        backend = backend_of(options, os.environ)
        made = Session(
            options,
            kept,
            backend,
            trace or Trace(),
            records=Records(plausible(host.records if log is None else ())),
            budget=tuning_budget(options, backend, host.stop_requested),
            measures=host.measure and options.tuning_budget_s > 0 and log is None,
            place=place,
            log=log or Log(),
            helpers=host.helpers,
            quantised=quantised,
            memory_bytes=host.memory_bytes,
        )
        made._follow()
        return made

    def _follow(self) -> None:
        """Makes known what is reported, and keeps the log of it; of a replay, makes known what was in each step.

        So later steps know what a step measured, whether it reports that through the session or not, here as there.
        """
        trace, log = self.trace, self.log

        def known(plain: Mapping[str, Any]) -> None:
            record = Record.from_json(plain)
            self.records.add(record)
            log.add(trace.steps, record)

        if log.replayed:
            self.keep(log.of_step(0))
            trace.on_step.append(lambda step: self.keep(log.of_step(step)))
        else:
            log.begin(self.records)
            trace.on_record.append(known)

    @property
    def known(self) -> Sequence[Mapping[str, Any]]:
        """The records as another session is given them."""
        return [record.to_json() for record in self.records]

    @property
    def lanes(self) -> int:
        """Of the plan that is to be made."""
        return self.options.threads or self.backend.target.lanes

    @property
    def may_measure(self) -> bool:
        """Now: no stop request has come."""
        return self.measures and not self.budget.stop_requested()

    def do_meanwhile(self) -> None:
        """Do what helpers need not wait for, if that was not done yet; it takes no step's time."""
        if self.meanwhile is not None:
            todo, self.meanwhile = self.meanwhile, None
            with self.trace.apart():
                todo()

    def add_records(self, found: Iterable[Record]) -> None:
        """Add records that were not known, and report them as events."""
        for record in found:
            if self.records.add(record):
                self.trace.record(record.to_json())

    def keep(self, found: Iterable[Record]) -> None:
        """Keeps records that were reported already."""
        for record in found:
            self.records.add(record)

    def prepare(self, kernels: KernelGraph) -> Sequence[Record]:
        """Facts of the device for these kernels, measured where they are not known; their records."""
        with self.budget.share("device").spending():
            self.backend, facts = self.backend.prepared(kernels, self.records, measure=self.may_measure)
        self.add_records(facts)
        return facts

    @cached_property
    def handover(self) -> Record | None:
        """What it costs one lane to see another's result, with the cores as they are.

        None for one lane, or if unknown.

        Measured, or looked up, once, when a step first asks: choices, joins and schedules go by the same figure.
        """
        on_lanes = self.backend.lanes
        if self.lanes == 1 or on_lanes is None:
            return None
        with self.budget.share("device").spending():
            found = on_lanes.handover(self.records, measure=self.may_measure)
        self.add_records([found] if found else [])
        return found

    def machine(self, setting: Setting) -> AbstractContextManager[Machine | None]:
        """The device on which trials are measured; None for a target that is elsewhere."""
        return self.backend.machine(
            self.options.seed, self.budget.stop_requested, setting, self.trace.notice, self.trace.keep
        )


def tuning_budget(options: CompileOptions, backend: Backend, stop_requested: StopRequest = never_stops) -> TuningBudget:
    """What a job grants for measuring; what one lane has no use for, or a single plan, is left to the tiles."""
    lanes = options.threads or backend.target.lanes
    most: dict[str, float] = {}
    if lanes == 1:
        most |= {"lanes": 0.0, "stages": 0.0}
    if options.scheduler != "auto" or (lanes == 1 and kinds.of(options.target).threads):
        most |= {"plans": ALONE_S}
    return TuningBudget(options.tuning_budget_s, options.tuning_trials, stop_requested, most=most)

"""An idle worker measures kernels of another one's job, in a sandboxed child like that of a job.

The child asks for more when it is done. It gives back what it has, with what was measured kept, when a job comes that
it may claim, when it goes down, and when the job they are of has ended. A helper that dies costs the time until its
lease runs out.
"""

from __future__ import annotations

import contextlib
import os
import threading
import uuid
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from compiler.contract import Event, job_kinds, kinds
from compiler.errors import TilewrightError
from service.errors import DatabaseUnavailable
from service.jobs.scheduling import fan_out, lease
from service.jobs.scheduling.fan_out import Taken, code
from service.jobs.scheduling.lease import Measured
from service.logs import logger
from service.threads import lasting
from worker.attempt import outcome
from worker.attempt.child import Spec
from worker.attempt.context import WorkerContext
from worker.attempt.fan_out import NOBODY, amounts, is_number, places, put_down
from worker.attempt.measurements import Intake
from worker.attempt.supervise import MEASUREMENTS, supervise
from worker.devices import holder
from worker.lease.wakeup import Wakeup
from worker.processes.frames import GarbledFrame
from worker.processes.group import Group
from worker.processes.scratch import Folder, Process, folder

BEAT_EVERY_S = 0.5
SLACK = 3.0
"""A child may take this many times what its job grants for measuring, and START_S beside."""
START_S = 60.0
CPUS = kinds.CPU.name

log = logger(__name__)


def may_help(context: WorkerContext) -> bool:
    """Whether this worker holds cores, and is to measure for others."""
    return context.fan_out and context.measures and kinds.name_of(context.device) == CPUS


def help_out(context: WorkerContext, lock: int) -> bool:
    """Measure some kernels that another worker offers; whether there were any that could be measured here.

    lock  descriptor of the device lock, which the child inherits

    Raises `DatabaseUnavailable` when it does not answer.
    """
    if not may_help(context):
        return False
    taken = fan_out.take(context.db, context.name, _places(context), code(), context.lease_s)
    if taken is None:
        return False
    log.info("helps", job=str(taken.claim.job_id), kernels=len(taken.ids))
    place = Folder.of(context.scratch, f"share-{uuid.uuid4().hex}")
    with _Helping(context, taken, place.answers) as helping, ExitStack() as opened:
        try:
            opened.enter_context(folder(place))
            spec = _spec(context, taken, place)
            seen = holder.environment(context.device)
            group = Group.start(spec.to_json(), place.work, command=context.command, lock=lock, environment=seen)
            with contextlib.suppress(OSError):
                place.sign(Process.of(os.getpid()), Process.of(group.launcher.pid))
            ending = supervise(group, spec.limits, helping.wakeup, helping.observe, "tuning", answer=helping.answer)
        except (TilewrightError, OSError) as error:
            log.warning("cannot help", reason=str(error))
            return helping.give_back()
        if ending.kind != "report":
            log.info("helps no more", job=str(taken.claim.job_id), reason=ending.kind, problem=ending.problem)
            helping.give_back()
            return ending.kind != "problem"
        helping.give_back()
        return True


def _places(context: WorkerContext) -> tuple[tuple[str, str], ...]:
    return places(context, [CPUS, *holder.profiles()])


def _spec(context: WorkerContext, taken: Taken, place: Folder) -> Spec:
    granted = float(taken.claim.options.get("tuning_budget_s", 0.0))
    wall_s = min(context.limits.wall_s, START_S + SLACK * granted)
    return Spec(
        kind=job_kinds.TUNING.name,
        inputs=(),
        output=place.output,
        scratch=place.work,
        finish=place.finish,
        options=taken.claim.options,
        records=tuple(lease.records_for(context.db, taken.claim.owner, *taken.place)),
        limits=replace(context.limits, wall_s=wall_s, load_s=wall_s),
        walls=context.walls,
        answers=place.answers,
        kernels={"terms": dict(taken.terms), "tasks": [dict(task) for task in taken.tasks]},
    )


class _Helping:
    """Keeps the lease of what was taken, in a thread, and brings what was measured to the database."""

    def __init__(self, context: WorkerContext, taken: Taken, folder: Path) -> None:
        self._context, self._folder = context, folder
        self._claim = taken.claim
        self._taken: Taken | None = taken
        self._intake = Intake(taken.claim)
        self._waiting: list[Measured] = []
        self._lock = threading.Lock()
        self._held = threading.Lock()
        """While what is held changes: a lease is not renewed of what was just done."""
        self._ended = threading.Event()
        self._thread = lasting("helping", self._beat, self._ended.is_set)
        self.wakeup = Wakeup()

    def __enter__(self) -> _Helping:
        self._context.stop.attend(self.wakeup)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end()
        self._context.stop.attend(None)
        self.wakeup.close()

    def observe(self, event: Event) -> None:
        """Take in what the child measured; the rest of what it says is not this job's progress."""
        if event.kind in MEASUREMENTS:
            measured = self._intake.take(event)
            with self._lock:
                self._waiting.append(measured)

    def answer(self, message: Mapping[str, Any]) -> None:
        """The child is done with what it had, and is given more. Raises `GarbledFrame` for what is no question.

        A database that is away answers that there is no more.
        """
        number = message.get("number")
        if not is_number(number) or message.get("ask") != "more":
            raise GarbledFrame("a question lacks its number, or asks nothing")
        try:
            said = self._more(*amounts(message))
        except DatabaseUnavailable as error:
            log.warning("no more kernels are asked for", reason=error.message)
            said = NOBODY
        put_down(self._folder, number, said)

    def _more(self, seconds: float, measured: int) -> Mapping[str, Any]:
        db, name = self._context.db, self._context.name
        with self._held:
            if self._taken is not None:
                brought = self._take()
                try:
                    kept = fan_out.done(db, self._taken, name, brought, seconds, measured)
                except DatabaseUnavailable:
                    self._put_back(brought)
                    raise
                self._taken = None
                if not kept:
                    return NOBODY
            lease_s, job_id = self._claim.lease_s, self._claim.job_id
            self._taken = fan_out.take(db, name, _places(self._context), code(), lease_s, job_id)
            if self._taken is not None:
                return {"tasks": [dict(task) for task in self._taken.tasks]}
        return {"wait": fan_out.goes_on(db, self._claim)}

    def give_back(self) -> bool:
        """What was measured is kept, the rest others may have at once; False. One try: else the lease runs out."""
        self._end()
        try:
            if self._taken and fan_out.keep(self._context.db, self._taken, self._context.name, self._take()):
                fan_out.give_back(self._context.db, self._taken, self._context.name)
        except DatabaseUnavailable as error:
            log.warning("kernels not given back, their lease will run out", reason=error.message)
        return False

    def _end(self) -> None:
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join(outcome.STOP_PATIENCE_S)

    def _take(self) -> Measured:
        with self._lock:
            pieces, self._waiting = self._waiting, []
        records = tuple(record for piece in pieces for record in piece.records)
        return Measured(records, {key: text for piece in pieces for key, text in piece.workloads.items()})

    def _put_back(self, brought: Measured) -> None:
        with self._lock:
            self._waiting.insert(0, brought)

    def _beat(self) -> None:
        while not self._ended.wait(min(BEAT_EVERY_S, self._context.lease_s / 3)):
            with self._held:
                if not self._is_kept():
                    self._ended.set()

    def _is_kept(self) -> bool:
        """Brings what was measured; whether this may go on. A job of its own that waits goes first."""
        brought = self._take()
        try:
            if self._taken and not fan_out.keep(self._context.db, self._taken, self._context.name, brought):
                self.wakeup.ring("lost")
                return False
            if lease.is_ready(self._context.db, self._context.queues, self._context.owner_limits):
                self.wakeup.ring("stop")
        except DatabaseUnavailable:
            self._put_back(brought)
        return True

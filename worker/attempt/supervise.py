"""Attend one running job from its start to its end: its messages, its limits, and whoever wants it stopped."""

from __future__ import annotations

import json
import math
import os
import selectors
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from compiler.contract import LIVE, MOST_PIECE_BYTES, MOST_PIECES_BYTES, PIECE, Event, job_kinds
from compiler.errors import TilewrightError
from worker import problems
from worker.lease.wakeup import Wakeup
from worker.limits import Limits
from worker.processes.frames import Decoder, GarbledFrame
from worker.processes.group import Group
from worker.processes.printed import Live
from worker.processes.watch import Watch

WATCH_EVERY_S = 0.2
CLOSING_EVERY_S = 0.005
CLOSING_S = 3.0
"""How long a job may live on after it closed its pipe."""
MAX_TEXT = 4_000
MAX_DATA = 4_000
"""Characters of JSON beside the text of an event; measurements are held to limits of their own (`measurements`)."""
MAX_PIECE = MAX_DATA + 4 * (MOST_PIECE_BYTES // 3 + 1)
"""The same of an event that brings elements, in base64."""
MAX_PIECES = 2 * MOST_PIECES_BYTES
"""The same of all such events of a job."""
MAX_MESSAGE_BYTES = 8 * 1024 * 1024
"""Of one message; the report of a benchmark of forty artifacts stays below."""
MAX_MESSAGES = 200_000
"""Events of one job; a compiler sends hundreds, so more is a runaway."""
MEASUREMENTS = ("record", "workload")
"""Kinds of events that are kept for other jobs, and are no line of this job's log."""
LOG_TAIL_BYTES = 2_000

_PIECE = 1 << 16
_LARGEST_PIPE = 1 << 20
"""Bytes that a pipe holds at most, unless root made it (`/proc/sys/fs/pipe-max-size`)."""


@dataclass(frozen=True)
class Ending:
    """How a job ended, all its processes being dead.

    kind     `report` and `problem` are results; `cancel`, `lost` and `stop` say who stopped it
    report   `CompileReport.to_json`, as the child claims it
    problem  `TilewrightError.to_json`
    """

    kind: Literal["report", "problem", "cancel", "lost", "stop"]
    report: Mapping[str, Any] = field(default_factory=dict)
    problem: Mapping[str, Any] = field(default_factory=dict)
    standing: tuple[str, ...] = ()
    """The walls of the sandbox that stood."""
    log: str = field(default="", compare=False)
    """The walls that stood, in one line, and the end of what the job printed."""


First = Callable[[Mapping[str, Any]], None]


def ignored(report: Mapping[str, Any]) -> None:
    """The first artifact is not kept."""


def supervise(
    group: Group,
    limits: Limits,
    wakeup: Wakeup,
    observe: Callable[[Event], None],
    kind: str = job_kinds.COMPILE.name,
    *,
    answer: Callable[[Mapping[str, Any]], None] | None = None,
    first: First = ignored,
    printed: Callable[[str], None] | None = None,
) -> Ending:
    """Wait for the job's end, and kill it when it breaks a limit or the wakeup rings; all of it is dead at return.

    observe  is called with each event, in order, in this thread
    answer   is called with each question (frames of kind `share`); None: the job may ask nothing
    first    is called in this thread, at most once, with the report of an artifact that was made before measuring
    printed  is called in this thread with what the job prints, as `worker.processes.printed` bounds it; None: it is not
             told
    """
    attendance = _Attendance(group, limits, observe, kind, answer, first)
    if printed is not None:
        attendance.live = Live(group.log, printed, time.monotonic())
    try:
        early = attendance.until_ended(wakeup)
    finally:
        code = group.end()
    ending = early or attendance.ending(code)
    walls = ", ".join(attendance.standing) or "none stood"
    return replace(ending, log=f"sandbox: {walls}\n{group.log_tail()}")


class _Attendance:
    """One job's state while it runs."""

    def __init__(
        self,
        group: Group,
        limits: Limits,
        observe: Callable[[Event], None],
        kind: str,
        answer: Callable[[Mapping[str, Any]], None] | None,
        first: First,
    ) -> None:
        self.answer = answer
        self.group = group
        self.limits = limits
        self.observe = observe
        self.kind = kind
        self.first: First | None = first
        self.live: Live | None = None
        self.decoder = Decoder(MAX_MESSAGE_BYTES)
        self.watch = Watch(group, limits, kind)
        self.closed_at = 0.0
        self.messages = 0
        self.pieces = 0
        self.standing: tuple[str, ...] = ()
        self.result: Ending | None = None

    def until_ended(self, wakeup: Wakeup) -> Ending | None:
        """Attend until the job ends by itself (None), or until there is a reason to stop it."""
        with selectors.DefaultSelector() as selector:
            selector.register(self.group.frames, selectors.EVENT_READ)
            selector.register(wakeup, selectors.EVENT_READ)
            watched = 0.0
            while not (self.closed_at and self.group.ended):
                ready = {key.fd for key, _ in selector.select(CLOSING_EVERY_S if self.closed_at else WATCH_EVERY_S)}
                if rung := _first_reason(wakeup):
                    return rung
                now = time.monotonic()
                try:
                    silent = self.group.frames not in ready
                    if not self.closed_at and (self._is_over() if silent else not self._read()):
                        self.closed_at = now
                        selector.unregister(self.group.frames)
                except GarbledFrame as error:
                    return _problem(problems.garbled(self.kind, str(error)))
                if now - watched >= WATCH_EVERY_S:
                    watched = now
                    if self.live is not None:
                        self.live.look(now)
                    if broken := self._broken_limit(wakeup, now):
                        return _problem(broken)
        return None

    def ending(self, code: int) -> Ending:
        """What the child said; if it said nothing, why it ended with `code`."""
        if self.result is not None and code == 0:
            return self.result
        if code == 0 and self.decoder.pending:
            return _problem(problems.garbled(self.kind, "the last message is cut short"))
        if code == -signal.SIGKILL:
            return _problem(self.watch.killed())
        tail = self.group.log_tail(LOG_TAIL_BYTES)
        return _problem(problems.from_exit(self.kind, code, self.limits, self.watch.phase, tail))

    def _is_over(self) -> bool:
        """Whether the job has ended, and all that it sent is taken in.

        It may have sent something since its pipe was found empty. A descendant that fled may hold the pipe open, so its
        end is not waited for.
        """
        if not self.group.ended:
            return False
        for _ in range(_LARGEST_PIPE // _PIECE):
            if not self._read():
                break
        return True

    def _read(self) -> bool:
        """Take in one piece; False at the end of the pipe."""
        try:
            piece = os.read(self.group.frames, _PIECE)
        except BlockingIOError:
            return True
        for message in self.decoder.feed(piece):
            self._take(message)
        return bool(piece)

    def _take(self, message: Mapping[str, Any]) -> None:
        self.messages += 1
        if self.messages > MAX_MESSAGES or self.result is not None:
            raise GarbledFrame("there are too many messages")
        match message["kind"]:
            case "event":
                event = to_event(message.get("event"))
                self.watch.enter(event.phase)
                if event.kind == PIECE:
                    self.pieces += len(json.dumps(event.data))
                    if self.pieces > MAX_PIECES:
                        raise GarbledFrame("there are too many pieces of an output")
                self.observe(event)
            case "share" if self.answer is not None:
                self.answer(message)
            case "sandbox":
                self.standing = _standing(message, first=self.messages == 1)
            case "first":
                if self.first is None or self.kind != job_kinds.COMPILE.name:
                    raise GarbledFrame("a first artifact is told of twice, or by what makes none")
                first, self.first = self.first, None
                first(_mapping(message, "report"))
            case "report":
                self.result = Ending("report", report=_mapping(message, "report"), standing=self.standing)
            case "problem":
                self.result = Ending("problem", problem=_as_problem(message), standing=self.standing)
            case kind:
                raise GarbledFrame(f"the kind {kind[:40]!r} is unknown")

    def _broken_limit(self, wakeup: Wakeup, now: float) -> TilewrightError | None:
        if self.closed_at and now - self.closed_at > CLOSING_S:
            return problems.garbled(self.kind, "it closed its pipe and went on")
        return self.watch.broken_limit(wakeup.finish_asked_at)


def to_event(plain: object) -> Event:
    """An event from what a child sent. Raises `GarbledFrame` when it is none."""
    if not isinstance(plain, dict):
        raise GarbledFrame("an event is not an object")
    kind, phase, fraction = plain.get("kind"), plain.get("phase"), plain.get("fraction")
    message, data = plain.get("message", ""), plain.get("data", {})
    if kind not in ("phase", "progress", "notice", "tuning", *LIVE, *MEASUREMENTS):
        raise GarbledFrame("an event is of an unknown kind")
    if not isinstance(phase, str) or not isinstance(message, str) or not isinstance(data, dict):
        raise GarbledFrame("an event lacks phase, message or data")
    if isinstance(fraction, bool) or not isinstance(fraction, int | float) or not math.isfinite(fraction):
        raise GarbledFrame("an event lacks its fraction")
    if data and kind not in MEASUREMENTS and len(json.dumps(data)) > (MAX_PIECE if kind == PIECE else MAX_DATA):
        raise GarbledFrame("an event has too much data")
    return Event(kind, phase[:64], min(max(float(fraction), 0.0), 1.0), message[:MAX_TEXT], data)


def _standing(message: Mapping[str, Any], *, first: bool) -> tuple[str, ...]:
    """The walls, as the child reports them before it reads anything of others.

    What a model makes it say later does not count.
    """
    standing = message.get("standing")
    if not first or not isinstance(standing, list) or not all(isinstance(wall, str) for wall in standing):
        raise GarbledFrame("the walls are no list of names, or are told too late")
    return tuple(wall[:40] for wall in standing[:10])


def _as_problem(message: Mapping[str, Any]) -> Mapping[str, Any]:
    problem = _mapping(message, "problem")
    if not all(isinstance(problem.get(name), str) for name in ("code", "fault", "message")):
        raise GarbledFrame("a problem lacks code, fault or message")
    return problem


def _mapping(message: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = message.get(name)
    if not isinstance(value, dict):
        raise GarbledFrame(f"{name} is not an object")
    return value


def _first_reason(wakeup: Wakeup) -> Ending | None:
    """Losing the lease goes first: then nothing may be written any more."""
    for reason in ("lost", "cancel", "stop"):
        if reason in wakeup.reasons:
            return Ending(reason)
    return None


def _problem(error: TilewrightError) -> Ending:
    return Ending("problem", problem=error.to_json())

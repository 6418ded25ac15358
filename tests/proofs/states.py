"""What the solver shows of a rule."""

from __future__ import annotations

import multiprocessing
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import ArgumentError
from dataclasses import asdict
from multiprocessing.connection import Connection
from typing import Any

from tests.proofs.attempt import Refuted, Unproved, attempt
from tests.proofs.catalogue import Subject
from tests.proofs.instances import LITERAL
from tests.proofs.kept import LEVELS, NOT, SIZES, WINDOWS, State
from tests.proofs.reasons import REASONS
from tests.proofs.terms import BITS, FLOATS, REALS

SECONDS = 8
"""Of the processor, for one left side in one form: so a machine's load decides nothing."""
MOST_SECONDS = 40
"""Of the processor, for a rule, after which its process is ended."""


class Late(Exception):
    """The time for one left side is over."""


@contextmanager
def _within(seconds: int) -> Iterator[None]:
    def late(*_: object) -> None:
        raise Late

    before = signal.signal(signal.SIGPROF, late)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


REWORDED = {
    "the proof holds where": "the proof needs more of the sizes than the rule asks of them",
    "other sizes give another form": "its drawing is another program for other sizes",
    "it does not apply": "whether it applies hangs on the numbers of constants",
    "Unsupported": "the sizes that must agree have no common form",
    "TypeError": "what it computes of constants is not followed",
    "AttributeError": "what it computes of constants is not followed",
    "a constant of shape": "what it computes of constants is not followed",
    "-inf": "infinities among real numbers",
    "inf": "infinities among real numbers",
}
"""Reasons for readers, by how those begin that are for who mends a proof."""


def worded(reason: str) -> str:
    """A reason as the page of rules says it."""
    return next((text for begin, text in REWORDED.items() if reason.startswith(begin)), reason)


def state_of(subject: Subject) -> State:
    """The state of a rule, found in this process. Raises Refuted for a rule that is wrong."""
    if subject.rule.name in REASONS:
        return State(NOT, "", 0, len(subject.left), REASONS[subject.rule.name])
    levels, hows, reason = [], [], ""
    for drawing, seed, profile in subject.left:
        for level, literal in zip((SIZES, WINDOWS), (LITERAL[0], LITERAL[-1]), strict=True):
            try:
                with _within(SECONDS):
                    proof = attempt(subject.rule, drawing, seed, literal, profile)
                levels.append(level)
                hows.append(proof.how)
                break
            except Unproved as error:
                reason = str(error)
            except (Late, ArgumentError):  # the second where the time is over within the solver
                reason = "the solver does not end in time"
    how = next((how for how in (REALS, FLOATS, BITS) if how in hows), "")
    level = max(levels, key=LEVELS.index) if len(levels) == len(subject.left) else NOT
    return State(level, how, len(levels), len(subject.left), worded(reason) if level == NOT else "")


def _child(subject: Subject, answer: Connection) -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (MOST_SECONDS, MOST_SECONDS))
    try:
        answer.send(asdict(state_of(subject)))
    except Refuted as error:
        answer.send({"refuted": str(error)})


def found(subject: Subject) -> State:
    """The state of a rule, found in a process that is ended when it takes too long. Raises Refuted."""
    here, there = multiprocessing.Pipe()
    child = multiprocessing.get_context("fork").Process(target=_child, args=(subject, there), daemon=True)
    child.start()
    there.close()
    try:
        answer: dict[str, Any] = here.recv()
    except EOFError:
        answer = {}
    child.join()
    if "refuted" in answer:
        raise Refuted(answer["refuted"])
    return State(**answer) if answer else State(NOT, "", 0, len(subject.left), "the solver does not end in time")

"""The kinds of record as a table: what each says, what its variant holds, and where it counts.

A new kind is an entry here; where it is measured, `making.record_of` makes the record. Readers ask `records.Records`
for those that count.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from compiler.errors import InternalError

STATE = "state"
"""Whether the cores were `near` to each other or `far`."""
PAIR = "pair"
"""Which two cores a hand-over is between, the lower first, by position among those of the process.

Left out: it is the machine's figure, of its first two cores.
"""
AGAIN = "again"
"""Measured once more, beside its rivals, because it led. Such a record counts before one without."""
FROM = "from"
"""Where a record was measured that was adopted from other hardware."""
BYTE_S = "byte_s"
"""How much longer a byte takes to be read that another core wrote. Left out: not known, counted as 0."""
UPGRADE_S = "upgrade_s"
"""How much longer a byte takes to be written that another core has read since the writer wrote it.

Left out: measured where that is allowed, else counted as 0.
"""
SPANS = "spans"
"""When the tasks of a plan ran (`compiler.steps.planning.spans`)."""
PROBLEM = "problem"
"""Why a plan was left out of a race: it failed, hung or computed something else. Its seconds mean nothing."""
SECONDS, TRIALS, EXHAUSTED = "seconds", "trials", "exhausted"
"""With which tuning budget something was searched, and whether nothing promising was left (`known.covers`)."""
SOURCE = "source"
"""A digest of the code that was measured: where the compiler was changed since, a record counts while this is equal."""
PARTS_S = "parts_s"
"""Processor seconds of each part of a model for an inference that it does, with many in flight."""
PARTS_ALONE_S = "parts_alone_s"
"""The same of an inference by itself."""
CLEAR_S, CLEAR_LATENCY_S = "clear_s", "clear_latency_s"
"""From one end of an inference to the next, and of one by itself, without what others took of the devices' cores."""
CALLER_S, CALLER_BYTES = "caller_s", "caller_bytes"
"""Processor seconds of the thread that submits an inference and takes its result, which copies so many bytes for it.

They are there where that thread had no core of its own.
"""
ALONE_S, TOGETHER_S = "alone_s", "together_s"
"""Processor seconds of an inference on each of some cores, while the others rest and while all do the same."""
BUDGET_S = "budget_s"
"""How many seconds there were for the stages of a model."""

_COMPARED = ("ratio", "low", "high", "latency_s")
_OF_PARTS = (PARTS_S, PARTS_ALONE_S)
_TILE = ("algorithm", "levels", "scopes")
_SETTING = ("weights", "toolchain")
_SEARCHED = (SECONDS, TRIALS, EXHAUSTED)


@dataclass(frozen=True)
class Kind:
    """A kind of record. A record counts on its target and hardware alone; fields that other versions wrote are ignored.

    Of code it counts while the compiler generates the same (`carried`).

    says     what `seconds` are
    subject  what `workload` names
    fields   what the variant may hold
    """

    name: str
    says: str
    subject: str
    fields: frozenset[str]

    def check(self, variant: Mapping[str, Any]) -> None:
        """Raises InternalError for a field that the table does not have."""
        if unknown := sorted(variant.keys() - self.fields):
            raise InternalError(
                f"a record of kind {self.name} holds {', '.join(unknown)}, which compiler.knowledge.kinds does not list"
            )

    def __str__(self) -> str:
        return self.name


KERNEL = Kind(
    "kernel",
    "a kernel under a tile, on one lane or, with `threads` above 1, shared by several",
    "the key of the kernel with its buffers",
    frozenset((*_TILE, "lanes", *_SETTING, SOURCE, STATE, AGAIN, FROM, "clock_mhz", "throttled")),
)
MACHINE = Kind(
    "machine",
    "one unit of what a core computes, or reads from a level of memory",
    "the fact's name",
    frozenset(),
)
HANDOVER = Kind(
    "handover",
    "from a store on one core to its being seen on another",
    "`handover`",
    frozenset((STATE, PAIR, BYTE_S, UPGRADE_S)),
)
STAGE = Kind(
    "stage",
    "tasks of several kernels on their lanes, by themselves; or, as a marker, what timing all of a model's took",
    "the digest of the tasks; of a marker that of the model",
    frozenset(("lanes", STATE, *_SETTING, SOURCE, BUDGET_S)),
)
SEARCH = Kind(
    "search",
    "nothing was measured by it: it says that kernels were searched, with which budget",
    "the digest of what was searched",
    frozenset((*_SEARCHED, STATE, *_SETTING)),
)
PLAN = Kind(
    "plan",
    "the whole model under one schedule, beside the sequential one",
    "the digest of the model's kernels and of the buffers that join them",
    frozenset(
        (
            *("scheduler", "lanes", STATE, "plan", "beside", *_SETTING, SOURCE),
            *("ratio", "low", "high", "found_s", SPANS, PROBLEM),
        )
    ),
)
STREAM = Kind(
    "stream",
    "from one end of an inference to the next, with many in flight on several devices",
    "the digest of the model's kernels and of the buffers that join them",
    frozenset(("parts", *_COMPARED, *_OF_PARTS, CLEAR_S, CLEAR_LATENCY_S, CALLER_S, CALLER_BYTES, *_SETTING)),
)

CORES = Kind(
    "cores",
    "the whole model on one core, the slowest of some, while the others do the same",
    "the digest of the model's kernels and of the buffers that join them",
    frozenset(("plan", "cores", ALONE_S, TOGETHER_S, *_SETTING)),
)

KINDS: Mapping[str, Kind] = {
    kind.name: kind for kind in (KERNEL, MACHINE, HANDOVER, STAGE, SEARCH, PLAN, CORES, STREAM)
}
"""All of them, by name."""

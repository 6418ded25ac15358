"""A plan as its picture needs it, and when its tasks ran, or were expected to: what decided when each began."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

Span = tuple[float, float]
"""Begin and end in seconds, from the beginning of the run."""


@dataclass(frozen=True)
class Call:
    """One kernel: `kind` is the algorithm of its tile, `seconds` what it was expected to take.

    `source` says by what: `measured`, or `model`. None: unknown.
    """

    family: str
    tile: str
    kind: str
    tiles: int
    seconds: float | None
    source: str | None


@dataclass(frozen=True)
class Task:
    """Tiles [first, last) of a call, in a lane's order.

    `waits` are (lane, count): until that lane has finished so many of its tasks.

    One that is `beside` runs at the same time as the one before it on its lane: on a GPU they share a launch.
    """

    call: int
    lane: int
    first: int
    last: int
    waits: tuple[tuple[int, int], ...] = ()
    beside: bool = False


@dataclass(frozen=True)
class Timeline:
    """When each task ran, in the order of the tasks.

    own       for each task the positions of those that its lane finishes before it begins: the launch before
    awaited   for each task the positions of those of other lanes that it waits for
    cause     the position of that which ended last of all these, a hand-off later where it is another lane's; None:
              nothing was before
    critical  the positions that the last end goes back to, from cause to cause
    """

    tasks: tuple[Task, ...]
    spans: tuple[Span, ...]
    own: tuple[tuple[int, ...], ...]
    awaited: tuple[tuple[int, ...], ...]
    cause: tuple[int | None, ...]
    critical: frozenset[int]

    @staticmethod
    def of(tasks: Sequence[Task], spans: Sequence[Span], handover_s: float = 0.0) -> Timeline:
        """`spans` are in the order of `tasks`.

        `handover_s` is how many seconds after its end a task is known to have ended on other lanes.
        """
        own, awaited = before(tasks)
        cause = tuple(_latest(mine, others, spans, handover_s) for mine, others in zip(own, awaited, strict=True))
        critical = set()
        at = max(range(len(spans)), key=lambda at: spans[at][1], default=None)
        while at is not None:
            critical.add(at)
            at = cause[at]
        return Timeline(tuple(tasks), tuple(spans), own, awaited, cause, frozenset(critical))

    @property
    def seconds(self) -> float:
        """Of the whole: the last end."""
        return max((end for _, end in self.spans), default=0.0)

    def crosses(self, at: int) -> bool:
        """Whether a task began when it did because of another lane."""
        cause = self.cause[at]
        return cause is not None and self.tasks[cause].lane != self.tasks[at].lane

    @cached_property
    def free(self) -> tuple[float, ...]:
        """When the lane of each task was free for it."""
        return tuple(max((self.spans[one][1] for one in mine), default=0.0) for mine in self.own)


@dataclass(frozen=True)
class Schedule:
    """A plan with when its tasks were expected to run, and when they did: one of them at least.

    lane         what a lane is called: `lane`, on a GPU `stream`
    predicted_s  what the scheduler said that the whole would take, which the predicted timeline may differ from
    """

    scheduler: str
    lanes: int
    lane: str
    calls: tuple[Call, ...]
    tasks: tuple[Task, ...]
    predicted_s: float
    predicted: Timeline | None
    measured: Timeline | None = None

    @cached_property
    def parts(self) -> tuple[tuple[int, int], ...]:
        """For each task which part of its launch it is, from 0 on, and of how many."""
        found = [(0, 1)] * len(self.tasks)
        for launches in launches_of(self.tasks).values():
            for launch in launches:
                for part, at in enumerate(launch):
                    found[at] = (part, len(launch))
        return tuple(found)

    @property
    def timelines(self) -> tuple[tuple[str, Timeline], ...]:
        """What there is of `predicted` and `measured`, with these names."""
        both = (("predicted", self.predicted), ("measured", self.measured))
        return tuple((name, timeline) for name, timeline in both if timeline)

    @property
    def excess(self) -> float | None:
        """By which part of the prediction the measured time is longer; below 0 it is shorter."""
        return self.measured.seconds / self.predicted_s - 1 if self.measured and self.predicted_s else None


def launches_of(tasks: Sequence[Task]) -> dict[int, list[list[int]]]:
    """For each lane its launches in order, each the positions of the tasks that share it.

    On a CPU every task is a launch of its own.
    """
    found: dict[int, list[list[int]]] = {}
    for at, task in enumerate(tasks):
        mine = found.setdefault(task.lane, [])
        if task.beside and mine:
            mine[-1].append(at)
        else:
            mine.append([at])
    return found


def before(tasks: Sequence[Task]) -> tuple[tuple[tuple[int, ...], ...], tuple[tuple[int, ...], ...]]:
    """For each task those of its own lane and those of other lanes that must have ended when it begins.

    Both are positions, without any that the others imply. Tasks that share a launch begin together, so they have what
    the first of them has.
    """
    launches = launches_of(tasks)
    order = {lane: [at for launch in mine for at in launch] for lane, mine in launches.items()}
    launch_of = {at: launch for mine in launches.values() for launch in mine for at in launch}
    own: list[tuple[int, ...]] = [()] * len(tasks)
    awaited = list(own)
    for mine in launches.values():
        for earlier, launch in zip([[], *mine], mine, strict=False):
            ended: list[int] = []
            for lane, count in tasks[launch[0]].waits:
                if count:
                    last = order[lane][count - 1]
                    ended += [one for one in launch_of[last] if one <= last]
            for at in launch:
                own[at], awaited[at] = tuple(earlier), tuple(ended)
    return tuple(own), tuple(awaited)


def _latest(own: Sequence[int], awaited: Sequence[int], spans: Sequence[Span], handover_s: float) -> int | None:
    known = {one: spans[one][1] for one in own}
    known.update({one: spans[one][1] + handover_s for one in awaited})
    return max(known, key=lambda one: known[one], default=None)

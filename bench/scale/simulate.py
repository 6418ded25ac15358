"""A day of the service in miniature: jobs arrive, workers claim them, report and end them, all over one database.

The database is a number of cores with one queue before them. Every step holds a core for as long as it was measured to
take, and every write then waits for its commit. Writes that add to the sums which `GET /metrics` tells do so one after
another, for the row of a sum is locked until the commit. Whoever asked waits for all that, as in the service: a
worker's next heartbeat comes a pause after the answer to the last one. So an overloaded database shows as answers that
come late, and at last as leases that run out. What is drawn at random is drawn from one seed: the same terms give the
same result to the last digit.
"""

from __future__ import annotations

import heapq
import math
import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from bench.scale.times import Times

DAY_S = 86_400.0
COUNTED = frozenset({"submit", "news", "succeed"})
"""Steps that add to sums."""
READING = frozenset({"look", "read"})
SPREAD = 1.0
"""Of the logarithm of how long jobs take."""


@dataclass(frozen=True)
class Terms:
    """What is asked of the service, and what it has; the pauses are its own defaults.

    workers, jobs_per_day, job_s   how many, how often, and how long a job takes in the mean
    news       the part of a job's heartbeats that carry events and measurements
    cores      of the database
    apis       API processes: each looks for events and mends leases
    reads      states read per second, of all clients together
    """

    workers: int = 1000
    jobs_per_day: float = 1e6
    job_s: float = 60.0
    news: float = 0.3
    cores: int = 16
    apis: int = 8
    reads: float = 200.0
    lease_s: float = 30.0
    beat_s: float = 1.0
    seen_s: float = 3.0
    look_s: float = 3.0
    reconcile_s: float = 1.0
    seconds: float = 300.0
    warm_s: float = 60.0
    seed: int = 0


@dataclass
class Outcome:
    """What was seen after the warm-up.

    busy       the part of the database's cores that was in use
    shares     the part of that which each step had
    answers_s  from asking the database to its answer, ascending
    claims_s   from a job's arrival to its claim, ascending
    lost       heartbeats whose answer came after the lease had run out
    waiting    jobs that waited at the end
    """

    busy: float
    shares: dict[str, float]
    answers_s: Sequence[float]
    claims_s: Sequence[float]
    commits_per_s: float
    sums_busy: float
    """The part of the time in which the row of a sum was locked."""
    ended: int
    lost: int
    waiting: int

    @property
    def holds(self) -> bool:
        """Whether the service kept up: claims within seconds, and nobody's lease ran out."""
        return self.lost == 0 and quantile(self.answers_s, 0.99) < 1.0


@dataclass
class _State:
    free: list[float]
    """When each core of the database is free."""
    waiting: deque[float] = field(default_factory=deque)
    """Arrivals of the jobs that wait."""
    idle: list[int] = field(default_factory=list)
    spent: dict[str, float] = field(default_factory=dict)
    answers: list[float] = field(default_factory=list)
    claims: list[float] = field(default_factory=list)
    commits: int = 0
    sum_free: float = 0.0
    """When the row of a sum is free."""
    sums: int = 0
    ended: int = 0
    lost: int = 0


def simulate(terms: Terms, times: Times) -> Outcome:  # noqa: C901 - one short function for each event
    """Run `terms.seconds` after a warm-up, in which nothing is counted."""
    draw = random.Random(terms.seed)
    state = _State([0.0] * terms.cores, idle=list(range(terms.workers)))
    end = terms.warm_s + terms.seconds
    agenda: list[tuple[float, int, Callable[[float], None]]] = []
    number = 0

    def at(when: float, act: Callable[[float], None]) -> None:
        nonlocal number
        number += 1
        heapq.heappush(agenda, (when, number, act))

    def ask(now: float, step: str) -> float:
        """When the database has done a step; it is counted."""
        cost = times.of(step, len(state.waiting))
        begin = max(now, heapq.heappop(state.free))
        heapq.heappush(state.free, begin + cost)
        answered = begin + cost
        if step in COUNTED:
            answered = state.sum_free = max(answered, state.sum_free) + times.commit_s
        elif step not in READING:
            answered += times.commit_s
        if now >= terms.warm_s:
            state.spent[step] = state.spent.get(step, 0.0) + cost
            state.answers.append(answered - now)
            state.commits += step not in READING
            state.sums += step in COUNTED
        return answered

    def arrive(now: float) -> None:
        at(ask(now, "submit"), queued)
        at(now + draw.expovariate(terms.jobs_per_day / DAY_S), arrive)

    def queued(now: float) -> None:
        state.waiting.append(now)
        if state.idle:
            claim(now, state.idle.pop())

    def claim(now: float, worker: int) -> None:
        if not state.waiting:
            state.idle.append(worker)
            return
        since = state.waiting.popleft()
        begun = ask(now, "claim")
        if begun >= terms.warm_s:
            state.claims.append(begun - since)
        mean = math.log(terms.job_s) - SPREAD**2 / 2
        ends = begun + draw.lognormvariate(mean, SPREAD)
        at(begun + terms.beat_s, lambda when: beat(when, worker, ends))

    def beat(now: float, worker: int, ends: float) -> None:
        if now >= ends:
            at(ask(now, "succeed"), lambda when: done(when, worker))
            return
        answered = ask(now, "news" if draw.random() < terms.news else "heartbeat")
        if answered - now > terms.lease_s and now >= terms.warm_s:
            state.lost += 1
        at(max(answered, now + terms.beat_s), lambda when: beat(when, worker, ends))

    def done(now: float, worker: int) -> None:
        state.ended += now >= terms.warm_s
        claim(now, worker)

    def every(pause: float, step: str) -> Callable[[float], None]:
        def again(now: float) -> None:
            at(max(ask(now, step), now + pause), again)

        return again

    at(0.0, arrive)
    for _ in range(terms.workers):
        at(draw.uniform(0.0, terms.seen_s), every(terms.seen_s, "seen"))
    for _ in range(terms.apis):
        at(draw.uniform(0.0, terms.reconcile_s), every(terms.reconcile_s, "reconcile"))
    at(0.0, lambda now: read(now))
    at(terms.look_s, lambda now: look(now))

    def read(now: float) -> None:
        ask(now, "read")
        at(now + 1.0 / terms.reads, read)

    def look(now: float) -> None:
        """Each idle worker looks once in a while, though nobody rings."""
        if state.idle:
            ask(now, "look")
        at(now + terms.look_s / max(1, len(state.idle)), look)

    while agenda and agenda[0][0] < end:
        now, _, act = heapq.heappop(agenda)
        act(now)
    total = sum(state.spent.values())
    return Outcome(
        busy=total / (terms.cores * terms.seconds),
        shares={step: spent / total for step, spent in sorted(state.spent.items(), key=lambda one: -one[1])},
        answers_s=sorted(state.answers),
        claims_s=sorted(state.claims),
        commits_per_s=state.commits / terms.seconds,
        sums_busy=state.sums * times.commit_s / terms.seconds,
        ended=state.ended,
        lost=state.lost,
        waiting=len(state.waiting),
    )


def quantile(ascending: Sequence[float], part: float) -> float:
    """Of numbers in order; not a number where there are none."""
    return ascending[min(len(ascending) - 1, int(part * len(ascending)))] if ascending else math.nan

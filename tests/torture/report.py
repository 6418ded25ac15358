"""A whole run, and what it came to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from tests.torture import faults
from tests.torture.clients import Clients
from tests.torture.driver import PATIENCE_S, Driver, deck
from tests.torture.fates import doom
from tests.torture.ground import Kind, prepared
from tests.torture.promises import Books, Breach, breaches, story

STORIES = 5
"""Jobs whose whole story is told when promises are broken."""


@dataclass(frozen=True)
class Report:
    """What one run dealt and found.

    struck    how often each fate struck
    answers   what clients were answered with, by status
    attempts  how many attempts at jobs ended how
    breaches  of promises; with `stories` of the jobs concerned
    """

    database: Kind
    seed: int
    wall_s: float
    kills: int
    started_again: int
    struck: Counter[str]
    jobs: int
    cached: int
    ended: Counter[str]
    attempts: Counter[str]
    answers: Counter[str]
    records: int
    breaches: tuple[str, ...]
    stories: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain JSON."""
        return {name: dict(value) if isinstance(value, Counter) else value for name, value in vars(self).items()}

    def __str__(self) -> str:
        doubled = sum(self.attempts.values()) - (self.jobs - self.cached)
        lines = [f"{'fate':<48} struck"]
        lines += [f"{name:<48} {times:6}" for name, times in sorted(self.struck.items())]
        lines += [
            f"{self.database}, seed {self.seed}: {self.kills} kills in {self.wall_s:.0f} s, "
            f"{self.started_again} processes started again",
            f"{self.jobs} jobs, {self.cached} from the cache; ended: {dict(self.ended)}",
            f"attempts: {dict(self.attempts)}, of which {doubled} were further ones; {self.records} tuning records",
            f"answers: {dict(self.answers)}",
            f"promises broken: {len(self.breaches)}",
        ]
        return "\n".join([*lines, *self.breaches, *self.stories])


def torture(
    database: Kind,
    seed: int,
    *,
    kills: int = 0,
    cards: Sequence[str] = (),
    fault: str = faults.NONE,
    log_full: bool = False,
    say: Callable[[str], None] = lambda line: None,
    patience_s: float = PATIENCE_S,
) -> Report:
    """One run on a ground of its own. Raises `tests.servers.Missing`.

    kills   how many processes are to be killed at the least; every fate is dealt at least once
    cards   deals these fates instead, the last one first
    fault   a bug that the processes are given
    log_full  whether no process can write its log
    """
    with prepared(database, fault, log_full) as ground:
        ground.start()
        clients = Clients(ground.address, ground.key)
        driver = Driver(ground, clients, seed, say, patience_s)
        tally = driver.run(cards or deck(database, kills, Random(seed)))
        ground.stop()
        books = Books(ground, clients, tally.kills, any(doom(name).lane == "clock" for name in tally.struck))
        broken = breaches(books)
        texts = [*([tally.stuck] if tally.stuck else []), *(_text(name, breach) for name, breach in broken)]
        concerned = dict.fromkeys(breach.job for _, breach in broken if breach.job is not None)
        stories = [story(books, job_id) for job_id in list(concerned)[:STORIES]]
        if tally.stuck:
            stories.append(ground.log_tails())
        return _report(database, seed, driver, books, texts, stories)


def _text(name: str, breach: Breach) -> str:
    return f"{name}: {breach.text}" + (f" (job {breach.job})" if breach.job else "")


def _report(
    database: Kind, seed: int, driver: Driver, books: Books, broken: Sequence[str], stories: Sequence[str]
) -> Report:
    return Report(
        database=database,
        seed=seed,
        wall_s=driver.tally.wall_s,
        kills=driver.tally.kills,
        started_again=books.ground.deaths,
        struck=driver.tally.struck,
        jobs=len(books.jobs),
        cached=sum(job.cached for job in books.jobs),
        ended=Counter(str(job.state) for job in books.jobs),
        attempts=Counter(str(attempt.outcome) for whole in books.attempts.values() for attempt in whole),
        answers=books.clients.answers,
        records=len(books.records),
        breaches=tuple(broken),
        stories=tuple(stories),
    )

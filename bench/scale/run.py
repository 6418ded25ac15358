"""`python -m bench scale`: the service with up to thousands of workers, simulated from what its steps cost."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bench.scale.simulate import DAY_S, Outcome, Terms, quantile, simulate
from bench.scale.times import MEASURED, Times

GB = 1e9


@dataclass(frozen=True)
class Row:
    """Terms, and what came of them."""

    terms: Terms
    outcome: Outcome

    def to_json(self) -> dict[str, Any]:
        """What the table shows, and each step's share."""
        found = self.outcome
        return {
            "workers": self.terms.workers,
            "jobs_per_day": self.terms.jobs_per_day,
            "cores": self.terms.cores,
            "busy": found.busy,
            "answer_p50_s": quantile(found.answers_s, 0.5),
            "answer_p99_s": quantile(found.answers_s, 0.99),
            "claim_p50_s": quantile(found.claims_s, 0.5),
            "claim_p99_s": quantile(found.claims_s, 0.99),
            "commits_per_s": found.commits_per_s,
            "sums_busy": found.sums_busy,
            "leases_lost": found.lost,
            "waiting": found.waiting,
            "holds": found.holds,
            "shares": found.shares,
        }


def grown(terms: Terms, factors: list[float]) -> Iterator[Terms]:
    """The same with so many times the workers, jobs and reads."""
    for factor in factors:
        yield replace(
            terms,
            workers=round(terms.workers * factor),
            jobs_per_day=terms.jobs_per_day * factor,
            reads=terms.reads * factor,
        )


def breaks_at(terms: Terms, times: Times, *, steps: int = 6) -> float:
    """The factor at which the service no longer keeps up, between the last that holds and the first that does not.

    Found by doubling, then by halving the interval `steps` times; 2 % then.
    """
    low, high = 0.0, 1.0
    while simulate(next(grown(terms, [high])), times).holds:
        low, high = high, 2 * high
    for _ in range(steps):
        middle = (low + high) / 2
        if simulate(next(grown(terms, [middle])), times).holds:
            low = middle
        else:
            high = middle
    return (low + high) / 2


HEADS = (
    *("workers", "jobs a day", "database busy", "sums locked", "answers p50, p99", "claims p50, p99"),
    *("commits a second", "leases lost", "keeps up"),
)


def table(rows: list[Row]) -> Iterator[str]:
    """In Markdown."""
    yield f"| {' | '.join(HEADS)} |"
    yield "|---" * len(HEADS) + "|"
    for row in rows:
        terms, found = row.terms, row.outcome
        answers, claims = (
            f"{quantile(each, 0.5) * 1e3:.1f} ms, {quantile(each, 0.99) * 1e3:.0f} ms"
            for each in (found.answers_s, found.claims_s)
        )
        cells = (
            *(f"{terms.workers:,}", f"{terms.jobs_per_day:,.0f}", f"{found.busy:.0%} of {terms.cores} cores"),
            *(f"{found.sums_busy:.0%}", answers, claims, f"{found.commits_per_s:,.0f}", f"{found.lost}"),
            "yes" if found.holds else "no",
        )
        yield f"| {' | '.join(cells)} |"


def main(arguments: list[str] | None = None) -> int:
    """Exit status 0."""
    parser = argparse.ArgumentParser(prog="python -m bench scale", description=__doc__)
    parser.add_argument("--times", type=Path, default=MEASURED, help="what `python -m tests.scale` printed")
    parser.add_argument("--workers", type=int, default=Terms.workers)
    parser.add_argument("--jobs-per-day", type=float, default=Terms.jobs_per_day)
    parser.add_argument("--job-s", type=float, default=Terms.job_s, help="what a job takes in the mean")
    parser.add_argument("--cores", type=int, default=Terms.cores, help="of the database")
    parser.add_argument("--reads", type=float, default=Terms.reads, help="states read per second")
    parser.add_argument("--commit-ms", type=float, help="what a commit takes (default: as was measured)")
    parser.add_argument("--seconds", type=float, default=Terms.seconds)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--factors", default="0.25,0.5,1,2,4", help="of workers, jobs and reads together")
    parser.add_argument("--breaks", action="store_true", help="also look for the factor at which it no longer keeps up")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(arguments)
    times = Times.load(given.times)
    if given.commit_ms is not None:
        times = replace(times, commit_s=given.commit_ms / 1e3)
    names = ("workers", "jobs_per_day", "job_s", "cores", "reads", "seconds", "seed")
    terms = Terms(**{name: getattr(given, name) for name in names})
    rows = [Row(one, simulate(one, times)) for one in grown(terms, [float(f) for f in given.factors.split(",")])]
    limit = breaks_at(terms, times) if given.breaks else None
    if given.json:
        print(json.dumps({"rows": [row.to_json() for row in rows], "breaks_at": limit}, indent=1))
        return 0
    print(*table(rows), sep="\n")
    shares = ", ".join(f"{step} {share:.0%}" for step, share in rows[0].outcome.shares.items())
    print(f"\nOf the database's time at the first row: {shares}.")
    day = terms.jobs_per_day
    print(
        f"A day of {day:,.0f} jobs leaves {day * times.stored / GB:.0f} GB in the database and writes "
        f"{day * times.log / GB:.0f} GB of log, {day * times.log / DAY_S / 1e6:.1f} MB a second."
    )
    if limit is not None:
        print(
            f"It keeps up to {limit:.2f} times that: {limit * terms.workers:,.0f} workers, "
            f"{limit * terms.jobs_per_day:,.0f} jobs a day on {terms.cores} cores."
        )
    return 0

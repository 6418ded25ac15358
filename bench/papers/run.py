"""docs/papers.md: the claims of the works behind Tilewright beside our figures.

What is predicted for GPUs is predicted anew, network by network, and stored; what is measured for long is taken from
what is stored, with its date and the command that measures it anew.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from bench import report
from bench.asked import CACHE
from bench.cache import Cache
from bench.ending import ended
from bench.papers.page import PAGE, PREDICTED, page, stored
from bench.schedule.headlines import NETWORKS, ON_CORES, on_cores, predicted
from bench.subjects import subject
from tilewright.errors import UsageError


def main(arguments: list[str]) -> int:
    """Exit status 0; 2 for wrong arguments; 130 interrupted. Raises what the compiler raises."""
    parser = argparse.ArgumentParser(prog="python -m bench papers", description=__doc__)
    parser.add_argument("networks", nargs="*", metavar="NETWORK", help=f"default: {', '.join(NETWORKS)}")
    parser.add_argument("--stored", action="store_true", help="predict nothing: write the page from what is stored")
    parser.add_argument("--cache", type=Path, default=CACHE, help="folder of models (default: %(default)s)")
    given = parser.parse_args(arguments)
    console = Console(stderr=True, highlight=False)
    return ended(partial(run, given, console), parser, console)


def run(given: argparse.Namespace, console: Console) -> int:
    """As `main`, after its arguments were parsed. Raises UsageError for a network that the page does not show."""
    if unknown := [name for name in given.networks if name not in NETWORKS]:
        raise UsageError(f"the page has no network {unknown[0]}", fix=f"name some of {', '.join(NETWORKS)}")
    claims, rows = stored()
    for kind, fresh in () if given.stored else _fresh(given.networks or NETWORKS, Cache(given.cache), console):
        rows[kind] = renewed(rows[kind], fresh)
        report.write(PREDICTED, rows)
    PAGE.write_text(page(claims, rows["gpus"], rows["cores"]))
    return 0


def renewed(rows: Sequence[dict[str, Any]], fresh: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows with newer ones in place of all that there were of the same networks."""
    newer = {row["model"] for row in fresh}
    kept = [row for row in rows if row["model"] not in newer]
    return sorted([*kept, *fresh], key=lambda row: NETWORKS.index(row["model"]))


def _fresh(networks: Sequence[str], cache: Cache, console: Console) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    for at, name in enumerate(networks):
        one = subject(name, cache.place("models"))
        with console.status(f"[{at + 1}/{len(networks)}] {name}"):
            fresh = [*predicted(one)]
        for row in fresh:
            said = row["ms"]["waited"] / row["ms"]["best"], row["ms"]["graph"] / row["ms"]["best"]
            console.print(f"{name}, {row['gpu']}: {said[0]:.2f} times one waited for, {said[1]:.2f} times one graph")
        yield "gpus", fresh
        if name in ON_CORES:
            with console.status(f"[{at + 1}/{len(networks)}] {name}, on more cores"):
                yield "cores", [*on_cores(one)]

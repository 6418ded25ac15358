"""How much sooner a search ends when a second worker helps: `python -m bench service --fan-out`.

Each worker has one core of its own, and the same job runs on a server of its own for each number of workers, so that
none finds what another measured.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from bench.server import server
from bench.service.claims import below, up
from bench.service.proof import POLL_S, second_worker
from bench.service.wire import Server
from tilewright.errors import ServerUnreachable, UsageError

SEEN_WITHIN_S = 60.0


@dataclass(frozen=True)
class Searched:
    """What a compilation reported of its search for tiles.

    search_s   from when the job's worker began to measure to the end of the search. Budgets from 60 s on have a first
               artifact made before, and a helper measures meanwhile: what that saves is in both times
    tiles      measured by all workers, and `kernels` of which any was
    helped     kernels that another worker measured, `helped_tiles` tiles of them, in `helped_s` seconds of its own
    best_s     of an inference by the best tiles known
    exhausted  nothing promising was left; else the budget ended the search
    whole_s    of the attempt
    """

    workers: int
    search_s: float
    tiles: int
    kernels: int
    helped: int
    helped_tiles: int
    helped_s: float
    best_s: float
    exhausted: bool
    whole_s: float

    @property
    def tiles_per_s(self) -> float:
        """How fast the search goes."""
        return self.tiles / self.search_s


def fan_out(data: Path, model: Path, budget_s: float, workers: int) -> Searched:
    """Compile on one core with so many workers, 1 or 2, on a server of its own with `data`.

    Raises `UsageError` on a machine of fewer cores or too busy to measure anything, and `ClientError`.
    """
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < workers:
        raise UsageError(f"{workers} workers need as many cores", fix="run it on a machine that has them")
    with contextlib.ExitStack() as opened:
        with _on(cores[0]):
            client = opened.enter_context(server(data, TILEWRIGHT_FAN_OUT="true"))
        here = Server(client.url, (data / "api_key").read_text().strip())
        if workers > 1:
            with _on(cores[1]):
                opened.enter_context(second_worker(below(up(data), b"service"), data))
            end = time.monotonic() + SEEN_WITHIN_S
            while len(client.workers()) < workers:
                if time.monotonic() > end:
                    raise ServerUnreachable("the second worker does not come", fix="see worker-2.log")
                time.sleep(POLL_S)
        options = {"threads": 1, "tuning_budget_s": budget_s}
        ended = client.wait(client.compile(model, options, fresh=True)).require_success()
        return searched(workers, _get(here, f"/jobs/{ended.id}/tuning"), ended.said)


def searched(workers: int, tuning: Mapping[str, Any], job: Mapping[str, Any]) -> Searched:
    """From the answers of `GET /jobs/ID/tuning` and `GET /jobs/ID`. Raises `UsageError` where nothing was measured."""
    if not tuning["points"]:
        raise UsageError("nothing was measured in time", fix="give a larger --budget, or a machine with less to do")
    last, helpers = tuning["points"][-1], tuning["helpers"]
    return Searched(
        workers,
        last["elapsed_s"],
        last["measured"],
        len(tuning["kernels"]),
        sum(one["kernels"] for one in helpers),
        sum(one["measured"] for one in helpers),
        sum(one["seconds"] for one in helpers),
        last["best_s"],
        last["exhausted"],
        job["run_seconds"],
    )


@contextlib.contextmanager
def _on(core: int) -> Iterator[None]:
    """What is started inside the block runs on this core."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _get(here: Server, path: str) -> Any:
    key = {"Authorization": f"Bearer {here.key}"}
    return httpx.get(here.url + path, headers=key, timeout=60.0, trust_env=False).raise_for_status().json()

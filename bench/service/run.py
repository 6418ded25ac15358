"""`python -m bench service`: what the service bears on this machine, with SQLite and no broker."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import httpx
from rich.console import Console
from rich.table import Table

from bench.server import server
from bench.service import claims, fan_out, hostile, proof, reads, streams, transfer
from bench.service.claims import below, up
from bench.service.wire import Server
from bench.subjects import from_zoo
from tilewright import Client
from tilewright.errors import ClientError

OUT = Path("build")
JOBS = 100
"""Distinct jobs whose states are read, one after another."""
STREAMS = 200
PREFLIGHTS = 7
CLAIMS = 15
SMALL, LARGE, BUSY = "tiny_cnn", "inception_v3", "resnet18"


def main(arguments: list[str]) -> int:
    """Exit status 0; 1 where a proof does not hold; 2 for wrong arguments; 3 when no server came up."""
    parser = argparse.ArgumentParser(prog="python -m bench service", description=__doc__)
    parser.add_argument("--seconds", type=float, default=8.0, help="of each load of status reads")
    parser.add_argument("--mib", type=int, default=1024, help="size of the file that is sent and fetched")
    alone = parser.add_mutually_exclusive_group()
    alone.add_argument("--hostile", action="store_true", help="only: an honest caller beside hostile ones")
    alone.add_argument(
        "--proof", action="store_true", help="only: states read while two models compile and hostile callers call"
    )
    alone.add_argument("--claims", action="store_true", help="only: from a request to the claim of an idle worker")
    alone.add_argument("--fan-out", action="store_true", help="only: a search on one worker, and on two")
    parser.add_argument("--network", default=LARGE, help="of the zoo, with --fan-out (default: %(default)s)")
    parser.add_argument("--budget", type=float, default=120.0, help="seconds of tuning with --fan-out")
    parser.add_argument("--out", type=Path, default=OUT, help="where the server's data goes (default: build)")
    parser.add_argument("--json", type=Path, metavar="PATH", help="write the figures there too")
    given = parser.parse_args(arguments)
    try:
        data = given.out.resolve() / "service-data"
        if given.hostile:
            figures = measure_beset(data, given.seconds)
        elif given.proof:
            figures = measure_proof(data, given.seconds)
        elif given.claims:
            figures = measure_claims(data)
        elif given.fan_out:
            figures = measure_fan_out(data, given.network, given.budget)
        else:
            figures = measure(data, given.seconds, given.mib << 20)
    except ClientError as error:
        print(f"{error.message}\nFix: {error.fix}", file=sys.stderr)
        return error.exit_status
    if given.json:
        given.json.write_text(json.dumps(figures, indent=2) + "\n")
    shown = (
        (given.hostile, show_beset),
        (given.proof, show_proof),
        (given.claims, show_claims),
        (given.fan_out, show_fan_out),
        (True, show),
    )
    next(how for asked, how in shown if asked)(figures)
    return 1 if given.proof and not figures["proof"]["holds"] else 0


def measure(data: Path, seconds: float, size: int) -> dict[str, Any]:
    """Everything, one after another. Raises `ClientError` when there is no server or it answers wrongly."""
    console = Console(stderr=True)
    models = data.with_name("service-models")
    models.mkdir(parents=True, exist_ok=True)
    small, large, busy = (from_zoo(name, models).file for name in (SMALL, LARGE, BUSY))
    figures: dict[str, Any] = {"load_average": os.getloadavg()[0], "cores": os.cpu_count()}
    with server(data) as client:
        here = Server(client.url, (data / "api_key").read_text().strip())
        pid = below(up(data), b"service")
        first = client.wait(client.compile(small, {"tuning_budget_s": 0})).require_success()
        jobs = [first.id, *(client.compile(small, {"tuning_budget_s": 0}).id for _ in range(JOBS - 1))]
        with console.status("reading states"):
            figures["reads_idle"] = asdict(reads.at_rate(here, jobs, reads.RATE, seconds))
            figures["reads_most"] = asdict(reads.at_most(here, jobs, seconds))
        with console.status("reading states while a model compiles"):
            compiling = _compile(client, busy, seconds)
            figures["reads_compiling"] = asdict(reads.at_rate(here, jobs, reads.RATE, seconds))
            figures["compile_went_on"] = not client.job(compiling).ended
            client.wait(client.cancel(compiling))
        with console.status(f"following a job on {STREAMS} streams"):
            figures["streams"] = asdict(streams.follow(here, _compile(client, small, 1.0), STREAMS))
        with console.status("sending and fetching a large file"):
            figures["transfer"] = asdict(transfer.transfer(here, size, pid))
        with console.status("preflights"):
            figures["preflight"] = _preflights(here, large)
    return figures


def measure_beset(data: Path, seconds: float) -> dict[str, Any]:
    """An honest caller beside hostile ones. Raises `ClientError` when there is no server."""
    with server(data) as client:
        pid = below(up(data), b"service")
        honest = Server(client.url, (data / "api_key").read_text().strip())
        other = Server(client.url, _key(data, "mallory"))
        found = asdict(hostile.beset(honest, other, pid, seconds))
    return {"load_average": os.getloadavg()[0], "cores": os.cpu_count(), "beset": found}


def measure_proof(data: Path, seconds: float) -> dict[str, Any]:
    """States read beside two compilations and hostile callers. Raises `ClientError` when there is no server."""
    models = data.with_name("service-models")
    models.mkdir(parents=True, exist_ok=True)
    small, busy = (from_zoo(name, models).file for name in (SMALL, BUSY))
    with server(data) as client:
        pid = below(up(data), b"service")
        honest = Server(client.url, (data / "api_key").read_text().strip())
        other = Server(client.url, _key(data, "mallory"))
        first = client.wait(client.compile(small, {"tuning_budget_s": 0})).require_success()
        jobs = [first.id, *(client.compile(small, {"tuning_budget_s": 0}).id for _ in range(JOBS - 1))]
        with proof.second_worker(pid, data):
            budget = {"tuning_budget_s": proof.CLAIM_WITHIN_S + 4 * seconds}
            compiling = [client.compile(busy, budget, fresh=True).id for _ in range(2)]
            found = proof.prove(client, pid, honest, other, jobs, compiling, seconds)
            for job in compiling:
                client.wait(client.cancel(job))
    return {
        "load_average": os.getloadavg()[0],
        "cores": os.cpu_count(),
        "proof": {**asdict(found), "holds": found.holds},
    }


def show_proof(figures: Mapping[str, Any]) -> None:
    """The table that people read."""
    one = figures["proof"]
    got = one["reads"]
    table = Table("what", "figure")
    table.add_row("compilations beside, from the first read to the last", str(one["compiling"]))
    counted = (
        f"{got['rate']:.0f}/s, p50 {got['p50_ms']:.1f} ms, p99 {got['p99_ms']:.1f} ms, worst {got['worst_ms']:.0f} ms"
    )
    table.add_row(f"states read at {reads.RATE:.0f}/s", counted)
    table.add_row(f"p99 within {proof.GOAL_MS:.0f} ms, beside two compilations", "yes" if one["holds"] else "no")
    table.add_row("memory of the API", f"{one['before_mib']:.0f} MiB before, {one['peak_mib']:.0f} MiB at its peak")
    for what, count in one["hostile"].items():
        table.add_row(what, str(count))
    Console().print(table)


def show_beset(figures: Mapping[str, Any]) -> None:
    """The table that people read."""
    one = figures["beset"]
    table = Table("what", "figure")
    table.add_row("honest requests answered", f"{one['answered']} of {one['asked']}")
    table.add_row("from due to answer", f"p50 {one['p50_ms']:.0f} ms, p99 {one['p99_ms']:.0f} ms")
    table.add_row("memory of the API", f"{one['before_mib']:.0f} MiB before, {one['peak_mib']:.0f} MiB at its peak")
    for what, count in one["hostile"].items():
        table.add_row(what, str(count))
    Console().print(table)


def measure_claims(data: Path) -> dict[str, Any]:
    """From a request to the claim of an idle worker. Raises `ClientError`."""
    models = data.with_name("service-models")
    models.mkdir(parents=True, exist_ok=True)
    small = from_zoo(SMALL, models).file
    figures: dict[str, Any] = {"load_average": os.getloadavg()[0], "cores": os.cpu_count()}
    with server(data) as client:
        claims.claims(client, small, 1)
        figures["claims"] = asdict(claims.claims(client, small, CLAIMS))
    return figures


def show_claims(figures: Mapping[str, Any]) -> None:
    """The table that people read."""
    table = Table("from a request to the claim", "p50", "worst")
    one = figures["claims"]
    table.add_row("without a broker", f"{one['p50_ms']:.0f} ms", f"{one['worst_ms']:.0f} ms")
    Console().print(table)


def measure_fan_out(data: Path, network: str, budget_s: float) -> dict[str, Any]:
    """The same search on one worker and on two, on a core each. Raises `ClientError`."""
    models = data.with_name("service-models")
    models.mkdir(parents=True, exist_ok=True)
    model = from_zoo(network, models).file
    figures: dict[str, Any] = {"cores": os.cpu_count(), "network": network, "budget_s": budget_s, "searches": []}
    for workers in (1, 2):
        before = os.getloadavg()[0]
        found = fan_out.fan_out(data, model, budget_s, workers)
        figures["searches"].append({"load_average": before, "tiles_per_s": found.tiles_per_s, **asdict(found)})
    return figures


def show_fan_out(figures: Mapping[str, Any]) -> None:
    """The table that people read."""
    table = Table("workers", "search", "tiles", "of them helped", "tiles/s", "best", "whole job", "load")
    for one in figures["searches"]:
        table.add_row(
            str(one["workers"]),
            f"{one['search_s']:.1f} s",
            f"{one['tiles']} of {one['kernels']} kernels",
            f"{one['helped_tiles']} of {one['helped']} kernels in {one['helped_s']:.1f} s",
            f"{one['tiles_per_s']:.2f}",
            f"{1e3 * one['best_s']:.2f} ms{', nothing left' if one['exhausted'] else ''}",
            f"{one['whole_s']:.1f} s",
            f"{one['load_average']:.0f}",
        )
    Console().print(table)


def _key(data: Path, owner: str) -> str:
    """A key for another owner of the server with this data folder."""
    command = [sys.executable, "-P", "-m", "service", "key", owner]
    environment = {**os.environ, "TILEWRIGHT_DATA_DIR": str(data), "PYTHONPATH": os.pathsep.join(map(str, sys.path))}
    made = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return made.stdout.strip()


def show(figures: Mapping[str, Any]) -> None:
    """The table that people read."""
    table = Table("what", "figure")
    for name, what in (
        ("reads_idle", f"states read at {reads.RATE:.0f}/s"),
        ("reads_compiling", f"states read at {reads.RATE:.0f}/s while a model compiles"),
        ("reads_most", "states read as fast as it goes"),
    ):
        one = figures[name]
        table.add_row(what, f"{one['rate']:.0f}/s, p50 {one['p50_ms']:.1f} ms, p99 {one['p99_ms']:.1f} ms")
    one = figures["streams"]
    lag = f"lag p50 {one['lag_p50_ms']:.0f} ms, p99 {one['lag_p99_ms']:.0f} ms"
    table.add_row(f"{one['streams']} event streams", f"{one['whole']} whole, {one['events']} events each, {lag}")
    one = figures["transfer"]
    for way in ("up", "down"):
        extra = f"{one[f'{way}_extra_mib']:.0f} MiB more memory"
        table.add_row(f"{one['bytes'] >> 20} MiB {way}", f"{one[f'{way}_mb_s']:.0f} MB/s, {extra}")
    one = figures["preflight"]
    table.add_row(f"preflight of {one['model']}", f"median {one['median_s']:.2f} s, worst {one['worst_s']:.2f} s")
    Console().print(table)


def _compile(client: Client, model: Path, seconds: float) -> str:
    """The id of a job that is compiling and will not be done within `seconds`, unless it is small."""
    job = client.compile(model, {"tuning_budget_s": max(4 * seconds, 1.0)}, fresh=True)
    while client.job(job).state == "QUEUED":
        time.sleep(0.05)
    return job.id


def _preflights(here: Server, model: Path) -> dict[str, Any]:
    """Seconds of a preflight of an uploaded model; the first is not counted."""
    taken = []
    headers = {"Authorization": f"Bearer {here.key}"}
    with httpx.Client(base_url=here.url, headers=headers, timeout=60.0, trust_env=False) as http:
        kind = {"Content-Type": "application/octet-stream"}
        digest = http.post("/models", content=model.read_bytes(), headers=kind).raise_for_status().json()["digest"]
        for _ in range(PREFLIGHTS + 1):
            time.sleep(2.0)  # as people ask: the next child warms up meanwhile
            begin = time.perf_counter()
            answer = http.post("/preflight", json={"model": digest}).raise_for_status().json()
            taken.append(time.perf_counter() - begin)
    counted = taken[1:]
    return {"model": LARGE, "ok": answer["ok"], "median_s": statistics.median(counted), "worst_s": max(counted)}

"""`tilewright watch`."""

from __future__ import annotations

from typing import Annotated

import typer

from tilewright.benchmark import Benchmark
from tilewright.cli import bench, compress, infer, minimise, quantize
from tilewright.cli import options as given
from tilewright.cli.output import Json, Key, ProfileName, Url, connect, console, failures, print_json
from tilewright.cli.progress import job_bar
from tilewright.client import Client
from tilewright.wire import Inference, Job


def watch(
    job: Annotated[str, typer.Argument(help="The id of a job, benchmark or inference.")],
    timeout: given.Timeout = None,
    url: Url = "",
    key: Key = "",
    profile: ProfileName = "",
    as_json: Json = False,
) -> None:
    """Follow a job to its end, and show what it made. With `--json`: a line for each event, then the job."""
    with failures(as_json), connect(url, key, profile) as client:
        with job_bar(quiet=as_json) as show:
            for event in client.events(job, within_s=timeout):
                if as_json:
                    print_json({"seq": event.seq, "kind": event.kind, **event.data})
                show(event)
        ended = client.job(job)
        if as_json:
            print_json(ended.said)
        ended.require_success()
        if not as_json:
            _result(client, ended)


def _result(client: Client, ended: Job) -> None:
    match ended.kind:
        case "benchmark":
            bench.show(client.result(ended, Benchmark))
        case "inference":
            infer.show(client.result(ended, Inference))
        case "quantization":
            quantize.show(client.report(ended)["report"])
        case "minimisation":
            minimise.show(client.report(ended)["report"])
        case "compression":
            compress.show(client.report(ended)["report"])
        case _:
            console().print(f"done: tilewright download {ended.id}", markup=False)

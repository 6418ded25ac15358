"""What the commands share that make another model of one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewright.cli.output import console, print_json
from tilewright.cli.progress import job_bar, transfer_bar

if TYPE_CHECKING:
    from tilewright.client import Client
    from tilewright.wire import Job


def fetch(
    client: Client,
    queued: Job,
    target: Path,
    show: Callable[[Mapping[str, Any]], None],
    *,
    as_json: bool,
    timeout: float | None = None,
) -> None:
    """Wait for a job, download the model that it made, and print its report: as JSON, or by `show`."""
    with job_bar(quiet=as_json) as show_event:
        ended = client.wait(queued, show_event, timeout=timeout).require_success()
    report = client.report(ended)["report"]
    with transfer_bar("download", quiet=as_json) as progress:
        client.download_made(ended, target, progress)
    if as_json:
        print_json({**report, "job": ended.id, "model": str(target)})
        return
    show(report)
    digest = ended.made.split("/")[2]
    console().print(f"model {digest}, job {ended.id}", markup=False)
    print(target)

"""A progress bar fed by a job's events or by a download."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from rich.progress import BarColumn, DownloadColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from tilewright.cli.output import console
from tilewright.wire import JobEvent


@contextlib.contextmanager
def job_bar(quiet: bool) -> Iterator[Callable[[JobEvent], None]]:
    """What shows a job's events: a bar with the phase, and a line for each notice; nothing when `quiet`."""
    if quiet:
        yield lambda event: None
        return
    columns = (SpinnerColumn(), TextColumn("{task.description:10}", markup=False), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console()) as progress:
        bar = progress.add_task("queued", total=1.0)

        def show(event: JobEvent) -> None:
            if event.kind == "state":
                state = str(event.data.get("state", "")).lower()
                progress.update(bar, description=state, completed=1.0 if state == "succeeded" else None)
            elif event.kind == "notice":
                progress.console.print(str(event.data.get("message", "")), markup=False)
            elif event.kind in ("phase", "progress"):
                progress.update(
                    bar, description=str(event.data.get("phase", "")), completed=float(event.data.get("fraction", 0.0))
                )

        yield show


@contextlib.contextmanager
def download_bar(quiet: bool) -> Iterator[Callable[[int, int], None]]:
    """What shows a download: bytes here, bytes in all; nothing when `quiet`."""
    if quiet:
        yield lambda here, whole: None
        return
    columns = (TextColumn("{task.description:10}"), BarColumn(), DownloadColumn())
    with Progress(*columns, console=console()) as progress:
        bar = progress.add_task("download", total=None)
        yield lambda here, whole: progress.update(bar, completed=here, total=whole or None)

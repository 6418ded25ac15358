"""Progress bars on standard error, fed by a job's events or by a transfer; without a terminal there are none."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from tilewright.cli.options import is_file
from tilewright.cli.output import console

if TYPE_CHECKING:
    from pathlib import Path

    from tilewright.client import Client
    from tilewright.wire import JobEvent, StoredModel


@contextlib.contextmanager
def job_bar(quiet: bool) -> Iterator[Callable[[JobEvent], None]]:
    """What shows a job's events: a bar with phase and times, lines for notices and printed text; nothing when `quiet`.

    The time that is left is what the share that is done suggests.
    """
    if quiet:
        yield lambda event: None
        return
    shown = console()
    if not shown.is_terminal:
        yield lambda event: _notice(event, shown)
        return
    columns = (
        SpinnerColumn("dots" if shown.encoding.startswith("utf") else "line"),
        TextColumn("{task.description:10}", markup=False),
        BarColumn(),
        TimeElapsedColumn(),
        TextColumn("elapsed,"),
        TimeRemainingColumn(),
        TextColumn("left"),
    )
    with Progress(*columns, console=shown) as progress:
        bar = progress.add_task("queued", total=1.0)

        def show(event: JobEvent) -> None:
            _notice(event, progress.console)
            if event.kind == "state":
                state = str(event.data.get("state", "")).lower()
                progress.update(bar, description=state, completed=1.0 if state == "succeeded" else None)
            elif event.kind in ("phase", "progress"):
                progress.update(
                    bar, description=str(event.data.get("phase", "")), completed=float(event.data.get("fraction", 0.0))
                )

        yield show


@contextlib.contextmanager
def transfer_bar(name: str, quiet: bool) -> Iterator[Callable[[int, int], None]]:
    """What shows an upload or a download: bytes there, bytes in all; nothing when `quiet`."""
    shown = console()
    if quiet or not shown.is_terminal:
        yield lambda here, whole: None
        return
    columns = (TextColumn("{task.description:10}", markup=False), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=shown, transient=True) as progress:
        bar = progress.add_task(name, total=None)
        yield lambda here, whole: progress.update(bar, completed=here, total=whole or None)


def _notice(event: JobEvent, shown: Console) -> None:
    if event.kind == "notice":
        shown.print(str(event.data.get("message", "")), markup=False)
    elif event.kind == "printed":
        text = str(event.data.get("message", "")).rstrip("\n")
        plain = "".join(letter if letter.isprintable() or letter in "\n\t" else "?" for letter in text)
        shown.print(plain, markup=False, highlight=False, style="dim")


def sent(client: Client, model: str, data: list[Path] | None = None, *, quiet: bool) -> str | StoredModel:
    """A model that the server has: that of a file, which is uploaded, or the digest that was given."""
    with transfer_bar("upload", quiet=quiet) as progress:
        return client.upload(model, data=data or (), progress=progress) if is_file(model) else model

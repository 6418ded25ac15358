"""`tilewright share`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer

from tilewright.cli.jobs import JobId
from tilewright.cli.output import Json, Key, ProfileName, Url, connect, failures, id_column, print_json, results, table
from tilewright.cli.output import time_of as shown_time


def share(
    job: JobId,
    days: Annotated[float, typer.Option("--days", min=0.001, max=365, help="How long it opens the job.")] = 7.0,
    download: Annotated[bool, typer.Option("--download", help="Let it open the artifact's file, too.")] = False,
    show: Annotated[bool, typer.Option("--list", help="Make none; list the links of the job.")] = False,
    revoke: Annotated[str, typer.Option("--revoke", help="Make none; end the link of this id.")] = "",
    url: Url = "",
    key: Key = "",
    profile: ProfileName = "",
    as_json: Json = False,
) -> None:
    """Print a link that opens a job's page without a key, read only, this once. With `--json`: the link."""
    with failures(as_json), connect(url, key, profile) as client:
        if revoke:
            ended = client.revoke_share(job, revoke)
            print_json(ended.said) if as_json else print(f"{ended.id} {ended.state}")
            return
        if show:
            found = client.shares(job)
            if as_json:
                print_json({"shares": [one.said for one in found]})
                return
            rows = table(id_column("link"), "state", "expires", "download")
            for one in found:
                rows.add_row(one.id, one.state, shown_time(one.expires_at), "yes" if one.download else "no")
            results().print(rows)
            return
        until = datetime.now(UTC) + timedelta(days=days)
        made = client.share(job, expires_at=until.isoformat(timespec="seconds"), download=download)
        print_json({**made.said, "url": made.url}) if as_json else print(made.url)

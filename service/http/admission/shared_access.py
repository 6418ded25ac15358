"""What a share link opens: a job, what its page shows of the artifact, and, where it says so, the artifact itself."""

from __future__ import annotations

import uuid
from collections.abc import Mapping

from service.errors import NotAllowed, NotFound
from service.jobs.accounts.access import Opened

PAGE = frozenset(
    {
        "get_job",
        "get_job_graph",
        "has_job",
        "follow_job",
        "get_report",
        "get_log",
        "get_tuning",
        "get_plan",
        "get_graph",
        "get_trace",
        "get_report_page",
    }
)
"""Routes that every link opens, by the names of their functions."""
DOWNLOAD = frozenset({"download_artifact", "list_files", "get_artifact_source", "get_manifest", "get_receipt"})
"""Those that a link opens which says so: with the file everything in it is given away."""


def demand(opened: Opened, route: str, parts: Mapping[str, object]) -> None:
    """Raises `NotAllowed` for a route that the link does not open, `NotFound` for another job or artifact.

    route  name of the route's function
    parts  of the path, by their names
    """
    if route not in PAGE and not (opened.download and route in DOWNLOAD):
        raise NotAllowed(
            "this link opens one job's page" + ("" if opened.download else ", without the artifact's file"),
            fix="use an API key, or ask for a link that allows the download",
            details={"job": str(opened.job)},
        )
    for name, whose in (("job_id", opened.job), ("artifact_id", opened.artifact)):
        if name in parts and _id(parts[name]) != whose:
            raise NotFound("there is no such thing behind this link", fix=f"it opens job {opened.job}")


def _id(text: object) -> uuid.UUID | None:
    try:
        return uuid.UUID(str(text))
    except ValueError:
        return None

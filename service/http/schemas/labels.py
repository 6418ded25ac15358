"""Names, notes, tags and limits of time, as requests give them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import Depends, Query
from pydantic import ConfigDict, Field

from service.http.schemas.common import RequestBody
from service.jobs.submission.job_terms import COMPILER, LONGEST_NAME, LONGEST_NOTE, LONGEST_S, MOST_TAGS, Beside

NAME = "What it is called."
NOTE = "Anything to be kept with it."
TAGS = "Words to find it by; `/jobs?tag=` and `/models?tag=` look for them."
QUEUE = "Seconds in which a worker must have begun it; else it fails with `queue_time_limit`."
RUN = "Seconds that an attempt may take, if the operator allows as many; past them it fails with `time_limit`."
VERSION = "Version of the compiler whose workers alone may take it: `0.1.0`, `0.1.*` or `0.*`."

Name = Annotated[str, Field(min_length=1, max_length=LONGEST_NAME, pattern=r"^[^\u0000-\u001f\u007f]+$")]
Note = Annotated[str, Field(min_length=1, max_length=LONGEST_NOTE, pattern=r"^[^\u0000]+$")]
Tag = Annotated[str, Field(max_length=64, pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/=+-]*$")]
Tags = Annotated[list[Tag], Field(max_length=MOST_TAGS)]
Seconds = Annotated[float, Field(gt=0, le=LONGEST_S, allow_inf_nan=False)]
Version = Annotated[str, Field(max_length=50, pattern=COMPILER)]

LABELS_EXAMPLE: dict[str, Any] = {"name": "nightly", "note": "before the rewrite of softmax", "tags": ["ci", "main"]}


class BesideIn(RequestBody):
    """What may be said of a job beside what is to be done."""

    name: Name | None = Field(default=None, description=NAME)
    note: Note | None = Field(default=None, description=NOTE)
    tags: Tags = Field(default_factory=list, description=TAGS)
    max_queue_s: Seconds | None = Field(default=None, description=QUEUE)
    max_run_s: Seconds | None = Field(default=None, description=RUN)
    compiler: Version | None = Field(default=None, description=VERSION)

    @property
    def beside(self) -> Beside:
        """The same as the commands take it."""
        return _beside(self.name, self.note, self.tags, self.max_queue_s, self.max_run_s, self.compiler)


class LabelsIn(RequestBody):
    """What is to be called otherwise; what is left out stays, and null takes it away."""

    model_config = ConfigDict(json_schema_extra={"example": LABELS_EXAMPLE})

    name: Name | None = Field(default=None, description=NAME)
    note: Note | None = Field(default=None, description=NOTE)
    tags: Tags | None = Field(default=None, description=TAGS)

    @property
    def changes(self) -> dict[str, Any]:
        """What was given."""
        given = {name: getattr(self, name) for name in self.model_fields_set}
        return given if given.get("tags") is None else {**given, "tags": _distinct(given["tags"])}


async def _query(
    name: Annotated[Name | None, Query(description=NAME)] = None,
    note: Annotated[Note | None, Query(description=NOTE)] = None,
    tag: Annotated[Tags | None, Query(description=f"{TAGS} May be repeated.")] = None,
    max_queue_s: Annotated[Seconds | None, Query(description=QUEUE)] = None,
    max_run_s: Annotated[Seconds | None, Query(description=RUN)] = None,
    compiler: Annotated[Version | None, Query(description=VERSION)] = None,
) -> Beside:
    return _beside(name, note, tag or (), max_queue_s, max_run_s, compiler)


BesideQuery = Annotated[Beside, Depends(_query)]
"""The same in the query, for requests whose body is a file."""

Tagged = Annotated[Tags | None, Query(alias="tag", description="Only those with this tag; of several, with all.")]
Saying = Annotated[
    str | None, Query(min_length=1, max_length=200, pattern=r"^[^\u0000]+$", description="Text in its name or note.")
]


def _beside(
    name: str | None,
    note: str | None,
    tags: Sequence[str],
    max_queue_s: float | None,
    max_run_s: float | None,
    compiler: str | None,
) -> Beside:
    return Beside(name, note, tuple(_distinct(tags)), max_queue_s, max_run_s, compiler)


def _distinct(tags: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(tags))


def properties() -> dict[str, Any]:
    """The schemas of the fields of `BesideIn`, for a body that is described by hand."""
    found: dict[str, Any] = BesideIn.model_json_schema()["properties"]
    return found

"""Answers to those who ask after the state of jobs."""

from __future__ import annotations

import hashlib
import uuid
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass

from starlette.responses import Response

from service.http.responses.download import matches
from service.http.schemas.common import JobOut
from service.jobs.lifecycle import transitions
from service.jobs.lifecycle.find import Found

JSON = "application/json"
LOOK_AGAIN_S = "2"
MOST_KEPT, MOST_KEPT_BYTES = 2000, 16 << 10
"""Answers of one process that are kept, and the bytes of each."""


@dataclass(frozen=True)
class _Answer:
    found: Found
    etag: str
    headers: Mapping[str, str]
    response: Response


class Answers:
    """Some of those that were given: a job is written out anew when what was found of it is not the same.

    To be used inside one event loop.
    """

    def __init__(self) -> None:
        self._kept: OrderedDict[uuid.UUID, _Answer] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def to(self, found: Found, known: str | None, applied: Mapping[str, str]) -> Response:
        """A job, unless the caller knows it as it is (304): `known` is `If-None-Match`, `applied` are more headers."""
        answer = self._kept.get(found.job.id)
        if answer is None or answer.found != found:
            answer = self._kept[found.job.id] = _written(found)
            if len(answer.response.body) > MOST_KEPT_BYTES:
                del self._kept[found.job.id]
            elif len(self._kept) > MOST_KEPT:
                self._kept.popitem(last=False)
        if matches(known, answer.etag):
            return Response(status_code=304, headers={**answer.headers, **applied})
        if applied:
            return Response(answer.response.body, headers={**answer.headers, **applied}, media_type=JSON)
        return answer.response


def _written(found: Found) -> _Answer:
    body = JobOut.found(found).model_dump_json().encode()
    etag = f'"{hashlib.blake2b(body, digest_size=16).hexdigest()}"'
    headers = {"ETag": etag, "Cache-Control": "private, no-cache"}
    if found.job.state not in transitions.TERMINAL:
        headers["Retry-After"] = LOOK_AGAIN_S
    return _Answer(found, etag, headers, Response(body, headers=headers, media_type=JSON))

"""Ids and digests as they go into paths: what is none never reaches one."""

from __future__ import annotations

import re
import uuid

from tilewright.errors import UsageError
from tilewright.wire import Job, StoredModel, Work

_DIGEST = re.compile(r"[0-9a-f]{64}")
_WORKLOAD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)


def id_of(work: Work | str) -> str:
    """The id of a job, benchmark, inference or record. Raises `UsageError`."""
    if isinstance(work, Work):
        return work.id
    try:
        return str(uuid.UUID(work))
    except ValueError:
        raise UsageError(f"{work!r} is not an id", fix="list jobs and their ids with `tilewright jobs`") from None


def plain_id(text: str, what: str) -> str:
    """An id of something else. Raises `UsageError`."""
    try:
        return str(uuid.UUID(text))
    except ValueError:
        raise UsageError(
            f"{text!r} is not the id of a {what}", fix=f"list them with `tilewright {_listed(what)}`"
        ) from None


def _listed(what: str) -> str:
    return f"{what}es" if what.endswith("ch") else f"{what}s"


def workload_name(text: str) -> str:
    """The name of a workload. Raises `UsageError`."""
    if _WORKLOAD.fullmatch(text) is None:
        raise UsageError(
            f"{text!r} is no name of a workload", fix="use at most 64 letters, digits and ._-, not ._- at its beginning"
        )
    return text


def artifact_of(artifact: Job | str) -> str:
    """The id of an artifact, given itself or its job. Raises `UsageError` for a job that compiles nothing."""
    if not isinstance(artifact, Job):
        return id_of(artifact)
    if artifact.artifact_id is None:
        raise UsageError(f"job {artifact.id} is a {artifact.kind} and makes no artifact", fix="name a compilation")
    return artifact.artifact_id


def is_digest(text: str) -> bool:
    """Whether a text could be the digest of a model."""
    return _DIGEST.fullmatch(text) is not None


def digest_of(model: StoredModel | str) -> str:
    """The digest of a model. Raises `UsageError`."""
    text = model.digest if isinstance(model, StoredModel) else model.lower()
    if not is_digest(text):
        raise UsageError(f"{text!r} is not a digest", fix="list models and their digests with `tilewright models`")
    return text

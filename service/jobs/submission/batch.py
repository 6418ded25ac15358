"""Several compilations of one model in one request: all are accepted, or none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from compiler.contract import CompileOptions
from service.db.models import new_id
from service.jobs.submission.submit import Submission, fingerprint


def batch(asked: Submission, options: Sequence[CompileOptions]) -> list[Submission]:
    """One submission for each of the options, otherwise as `asked`.

    The first carries the idempotency key of the request, the others keys derived from it and their position, so that
    the request repeated finds every one of them; and a request that differs anywhere meets the first and is refused.
    """
    whole, batch_id = fingerprint("batch", *(one.to_json() for one in options)), new_id()
    key = asked.idempotency_key
    return [
        replace(
            asked,
            options=one,
            whole=whole,
            batch=batch_id,
            idempotency_key=key if key is None or position == 0 else fingerprint("batch", key, position),
        )
        for position, one in enumerate(options)
    ]

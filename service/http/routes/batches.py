"""`/batches`: what one request asked for, as one; and `/comparison`: compilations beside each other."""

from __future__ import annotations

import uuid
from typing import Annotated

from fastapi import BackgroundTasks, Query, Response

from compiler.errors import OptionsError
from service.errors import WrongKind
from service.http.admission.auth import Reader, Submitter
from service.http.gate import Gated
from service.http.requests.accepted import accepted
from service.http.requests.request_options import MOST_AT_ONCE
from service.http.responses.cursors import Cursor, Following, Limit, decode, encode
from service.http.responses.errors import QUOTAS, problem_responses
from service.http.schemas.batches import BatchJobsOut, BatchOut, BatchPage, ComparisonOut
from service.http.schemas.common import JOB_EXAMPLE
from service.http.schemas.ids import BatchId
from service.http.state import Here
from service.jobs.lifecycle import compare
from service.jobs.submission import batches

router = Gated(tags=["batches"])


@router.get("/batches", summary="List batches", responses=problem_responses(400))
def list_batches(
    here: Here, caller: Reader, following: Following, limit: Limit = 50, cursor: Cursor = None
) -> BatchPage:
    """What the caller's requests with a list of options made, newest first, with how many jobs are in each state."""
    found, last = batches.page(here.db, caller.owner, before=decode(cursor), limit=limit)
    return BatchPage(batches=[BatchOut.of(one) for one in found], next_cursor=following(encode(last)))


@router.get("/batches/{batch_id}", summary="One batch", responses=problem_responses(404))
def get_batch(here: Here, caller: Reader, batch_id: BatchId) -> BatchJobsOut:
    """Its jobs, in the order of the request. A batch is its jobs: one that is deleted is not in it any more."""
    return BatchJobsOut.found(batches.look(here.db, caller.owner, batch_id))


@router.post("/batches/{batch_id}/cancel", summary="Cancel a batch", responses=problem_responses(404))
def cancel_batch(here: Here, caller: Submitter, batch_id: BatchId, response: Response) -> BatchJobsOut:
    """All of it that has not ended: at once (200) what waits; while something runs (202) it stops within seconds."""
    shown = BatchJobsOut.found(batches.cancel(here.db, caller.owner, batch_id))
    if not shown.ended:
        response.status_code = 202
    return shown


@router.post(
    "/batches/{batch_id}/retry",
    status_code=202,
    summary="Try the failed part of a batch again",
    responses=problem_responses(*QUOTAS, 404, OptionsError),
)
def retry_batch(
    here: Here, caller: Submitter, batch_id: BatchId, response: Response, background: BackgroundTasks
) -> BatchJobsOut:
    """Compile again what of it failed or was cancelled: new jobs of the same batch, `cloned_from` the old ones.

    What succeeded stays; asking again, before one of the new jobs has failed, makes none.
    """
    found, made = batches.retry(here.db, caller.owner, batch_id, limits=here.limits)
    for one in made:
        accepted(here, response, background, one, f"/batches/{batch_id}")
    return BatchJobsOut.found(found)


@router.get("/batches/{batch_id}/comparison", summary="Compare a batch", responses=problem_responses(404))
def compare_batch(here: Here, caller: Reader, batch_id: BatchId) -> ComparisonOut:
    """Its compilations beside each other, as `GET /comparison` has them."""
    return ComparisonOut.of(compare.compare_batch(here.db, caller.owner, batch_id))


@router.get("/comparison", summary="Compare compilations", responses=problem_responses(400, 404, WrongKind))
def compare_jobs(
    here: Here,
    caller: Reader,
    job: Annotated[
        list[uuid.UUID],
        Query(
            min_length=1,
            max_length=MOST_AT_ONCE,
            description="Compilations; may be repeated.",
            examples=[[JOB_EXAMPLE["id"]]],
        ),
    ],
) -> ComparisonOut:
    """In what their options differ, what came of each, and what benchmarks that are kept have found for each."""
    return ComparisonOut.of(compare.compare(here.db, caller.owner, job))

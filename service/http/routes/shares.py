"""`/jobs/{id}/shares`: links that open one job, read only, for whoever has them."""

from __future__ import annotations

from fastapi import Response

from service.errors import NotAllowed, QuotaExceeded
from service.http.admission.auth import Reader, Submitter
from service.http.gate import Gated
from service.http.responses.errors import problem_responses
from service.http.schemas.ids import JobId, ShareId
from service.http.schemas.shares import NewShareOut, ShareIn, ShareList, ShareOut
from service.http.schemas.times import seconds_of
from service.http.state import Here
from service.jobs.lifecycle import share_links

router = Gated(tags=["jobs"])


@router.post(
    "/jobs/{job_id}/shares",
    status_code=201,
    summary="Share a job",
    responses=problem_responses(400, NotAllowed, 404, QuotaExceeded),
)
def share_job(here: Here, caller: Submitter, job_id: JobId, wanted: ShareIn, response: Response) -> NewShareOut:
    """A link that opens the job's page, its log and events, and its artifact's report, plan, graph and trace.

    Whoever has it needs no key and can change nothing. The token is in this answer and nowhere else.
    """
    expires_at = seconds_of(wanted.expires_at)
    made = share_links.make(here.db, here.signer, caller.owner, job_id, expires_at=expires_at, download=wanted.download)
    response.headers["Location"] = f"/jobs/{job_id}/shares"
    return NewShareOut.made(made)


@router.get("/jobs/{job_id}/shares", summary="List the links to a job", responses=problem_responses(404))
def list_shares(here: Here, caller: Reader, job_id: JobId) -> ShareList:
    """Newest first, those that have ended too; nobody can be shown their tokens again."""
    return ShareList(shares=[ShareOut.of(one) for one in share_links.listed(here.db, caller.owner, job_id)])


@router.delete(
    "/jobs/{job_id}/shares/{share_id}", summary="Revoke a link to a job", responses=problem_responses(NotAllowed, 404)
)
def revoke_share(here: Here, caller: Submitter, job_id: JobId, share_id: ShareId) -> ShareOut:
    """From now on it opens nothing, but for event streams that are open; asking again changes nothing."""
    return ShareOut.of(share_links.revoke(here.db, caller.owner, job_id, share_id))

"""`/jobs/{id}/tuning`: how the search for tiles went, or goes."""

from __future__ import annotations

from service.http.admission.auth import Reader
from service.http.gate import Gated
from service.http.responses.errors import problem_responses
from service.http.schemas.ids import JobId
from service.http.schemas.tuning import TuningOut
from service.http.state import Here
from service.jobs.lifecycle import find

router = Gated(tags=["jobs"])


@router.get("/jobs/{job_id}/tuning", summary="Search for tiles of a job", responses=problem_responses(404))
def get_tuning(here: Here, caller: Reader, job_id: JobId) -> TuningOut:
    """The best so far over time, and each candidate's forecast beside its measurement; of a job in any state.

    `forecast` goes on from the last point to the end of the budget; `plans` are those of the whole model that were run.
    The events of kind `tuning` tell the same live. Nothing is there where nothing was measured: everything was known
    from earlier jobs, or the target is elsewhere.
    """
    return TuningOut.of(find.tuning(here.db, caller.owner, job_id))

"""`/owners`: what an operator does with owners."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path, Query, Response

from service.errors import NotAllowed, OwnerExists
from service.http.admission.auth import Administrator
from service.http.gate import Gated
from service.http.responses.cursors import Cursor, Following, Limit, decode_text, encode_text
from service.http.responses.errors import problem_responses
from service.http.schemas.owners import NAME_PATTERN, OwnerChange, OwnerIn, OwnerOut, OwnerPage, OwnerRemovalOut
from service.http.state import Here
from service.jobs.operations import owners

Name = Annotated[str, Path(pattern=NAME_PATTERN, description="Of an owner.", examples=["ada"])]

router = Gated(tags=["owners"])


@router.get("/owners", summary="List owners", responses=problem_responses(400))
def list_owners(
    here: Here, caller: Administrator, following: Following, limit: Limit = 50, cursor: Cursor = None
) -> OwnerPage:
    """All owners by name, with their limits. Needs the scope `admin`, as everything below `/owners`."""
    rows, last = owners.page(here.db, here.limits, after=decode_text(cursor), limit=limit)
    return OwnerPage(owners=[OwnerOut.of(row) for row in rows], next_cursor=following(encode_text(last)))


@router.post("/owners", status_code=201, summary="Make an owner", responses=problem_responses(400, OwnerExists))
def make_owner(here: Here, caller: Administrator, response: Response, wanted: OwnerIn) -> OwnerOut:
    """A new owner, without a key: `POST /keys` makes its first."""
    given = wanted.quotas.given if wanted.quotas else {}
    made = owners.make(here.db, here.limits, wanted.name, given)
    response.headers["Location"] = f"/owners/{wanted.name}"
    return OwnerOut.of(made)


@router.get("/owners/{name}", summary="One owner", responses=problem_responses(404))
def get_owner(here: Here, caller: Administrator, name: Name) -> OwnerOut:
    """Its state, its limits, and what it has of each; nothing of what its models or jobs are."""
    return OwnerOut.of(owners.find(here.db, here.limits, name))


@router.patch("/owners/{name}", summary="Change an owner", responses=problem_responses(400, NotAllowed, 404))
def change_owner(here: Here, caller: Administrator, name: Name, wanted: OwnerChange) -> OwnerOut:
    """Suspend it, let it in again, or grant it other limits than the installation's.

    The keys of a suspended owner are answered with 403 `owner_suspended`, and none of its jobs is started; those that
    run go on. A key cannot suspend its own owner.
    """
    given = wanted.quotas.given if wanted.quotas else {}
    return OwnerOut.of(owners.change(here.db, caller, here.limits, name, wanted.suspended, given))


@router.delete(
    "/owners/{name}",
    summary="Delete an owner",
    responses={
        **problem_responses(400, NotAllowed, 404),
        202: {"model": OwnerRemovalOut, "description": "Its jobs were told to stop; the rest follows by itself."},
    },
)
def delete_owner(
    here: Here,
    caller: Administrator,
    response: Response,
    name: Name,
    confirm: Annotated[
        str, Query(max_length=100, description="The name once more: nothing brings an owner back.", examples=["ada"])
    ],
) -> OwnerRemovalOut:
    """Delete it with everything of its own: keys, models, jobs, artifacts, records, audit entries.

    Its keys end at once. Jobs that run are told to stop; as long as one has not stopped the answer is 202, and a sweep
    deletes afterwards what is left. The bytes leave the store in about an hour, unless another owner has the same. What
    operators did to the owner stays in the audit log. A key cannot delete its own owner.
    """
    removed = owners.remove(here.db, caller, name, confirm)
    if removed.stopping:
        response.status_code = 202
    return OwnerRemovalOut.of(removed)

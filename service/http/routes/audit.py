"""`/audit`: who changed what, and who was refused."""

from __future__ import annotations

import uuid
from typing import Annotated

from fastapi import Query

from service.db.audit import Wanted
from service.errors import NotAllowed
from service.http.admission.auth import Reader
from service.http.gate import Gated
from service.http.responses.cursors import Cursor, Following, Limit, decode, encode
from service.http.responses.errors import problem_responses
from service.http.schemas.owners import NAME_PATTERN, AuditOut, AuditPage
from service.http.schemas.times import Moment, seconds_of
from service.http.state import Here
from service.jobs.accounts import audit_entries

WORD = r"^[a-z_]{1,64}$"

router = Gated(tags=["audit"])


@router.get("/audit", summary="Who did what", responses=problem_responses(400, NotAllowed, 404))
def list_audit(
    here: Here,
    caller: Reader,
    following: Following,
    owner: Annotated[
        str | None, Query(pattern=NAME_PATTERN, description="Only this owner's; another than one's own needs `admin`.")
    ] = None,
    verb: Annotated[
        str | None,
        Query(
            pattern=WORD,
            description="`create`, `append`, `cancel`, `finish`, `label`, `delete`, `purge`, `import`, `rotate`, "
            "`expire`, `revoke`, `suspend`, `resume`, `limit`, `login`; of other refusals the method: `get`, ...",
        ),
    ] = None,
    outcome: Annotated[str | None, Query(pattern=WORD, description="`done`, or the code of a problem.")] = None,
    object: Annotated[
        str | None, Query(max_length=400, pattern=r"^/[^\u0000]*$", description="A path, such as `/jobs/{id}`.")
    ] = None,
    key: Annotated[uuid.UUID | None, Query(description="Done with the key of this id.")] = None,
    since: Annotated[Moment | None, Query(description="Done then or later; RFC 3339.")] = None,
    until: Annotated[Moment | None, Query(description="Done before; RFC 3339.")] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> AuditPage:
    """What was changed with the keys of the caller's owner, and what was refused them, newest first.

    An operator's key is shown the entries of all owners, and those of unknown keys. Entries are kept for
    `TILEWRIGHT_KEEP_AUDIT_DAYS`; no operation changes or removes them.
    """
    wanted = Wanted(
        verb=verb or "",
        outcome=outcome or "",
        object=object or "",
        key=key,
        since=seconds_of(since),
        until=seconds_of(until),
    )
    rows, last = audit_entries.page(here.db, caller, owner, wanted, before=decode(cursor), limit=limit)
    return AuditPage(entries=[AuditOut.of(row) for row in rows], next_cursor=following(encode(last)))

"""`/keys`: the keys of an owner."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query

from service.errors import KeyEnded, NotAllowed, QuotaExceeded
from service.http.admission.auth import KeyManager, Reader
from service.http.gate import Gated
from service.http.responses.cursors import Cursor, Following, Limit, decode, encode
from service.http.responses.errors import problem_responses
from service.http.schemas.ids import KeyId
from service.http.schemas.owners import NAME_PATTERN, KeyIn, KeyOut, KeyPage, NewKeyOut, RotationIn
from service.http.schemas.times import seconds_of
from service.http.state import Here
from service.jobs.accounts import keys

router = Gated(tags=["keys"])


@router.get("/keys", summary="List keys", responses=problem_responses(400, NotAllowed, 404))
def list_keys(
    here: Here,
    caller: Reader,
    following: Following,
    owner: Annotated[
        str | None, Query(pattern=NAME_PATTERN, description="Whose; another owner than one's own needs `admin`.")
    ] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> KeyPage:
    """Keys of the caller's owner, newest first, those that have ended too. Nobody can be shown the keys themselves."""
    rows, last = keys.page(here.db, caller, owner, before=decode(cursor), limit=limit)
    return KeyPage(keys=[KeyOut.of(row) for row in rows], next_cursor=following(encode(last)))


@router.post(
    "/keys", status_code=201, summary="Make a key", responses=problem_responses(400, NotAllowed, 404, QuotaExceeded)
)
def make_key(here: Here, caller: KeyManager, wanted: KeyIn) -> NewKeyOut:
    """A new key, whose text is in this answer and nowhere else.

    It allows no more than the key that makes it, ends no later, and is revoked with it. An operator's key makes keys of
    every owner.
    """
    expires_at = seconds_of(wanted.expires_at)
    return NewKeyOut.made(
        keys.make(
            here.db,
            caller,
            wanted.owner,
            wanted.wanted,
            wanted.label,
            expires_at,
            most=here.settings.max_keys_per_owner,
        )
    )


@router.post(
    "/keys/{key_id}/rotate",
    status_code=201,
    summary="Replace a key",
    responses=problem_responses(400, NotAllowed, 404, KeyEnded),
)
def rotate_key(here: Here, caller: KeyManager, key_id: KeyId, wanted: RotationIn) -> NewKeyOut:
    """A new key with the label and scopes of an old one, which is revoked, at once or after a grace.

    Of the caller's owner; an operator's key replaces those of every owner. None replaces a key that allows more.
    """
    expires_at = seconds_of(wanted.expires_at)
    return NewKeyOut.made(keys.rotate(here.db, caller, key_id, grace_s=wanted.grace_s, expires_at=expires_at))


@router.delete("/keys/{key_id}", summary="Revoke a key", responses=problem_responses(NotAllowed, 404))
def revoke_key(here: Here, caller: KeyManager, key_id: KeyId) -> KeyOut:
    """From now on (within two seconds) it is refused, and so are all keys that it made, and that these made.

    Rows stay, and asking again changes nothing. Of the caller's owner; an operator's key revokes those of every owner.
    None revokes a key that allows more.
    """
    return KeyOut.of(keys.revoke(here.db, caller, key_id))

"""`/me`: whose key this is, what it may do, and what its owner has."""

from __future__ import annotations

from service.http.admission.auth import AnyCaller
from service.http.gate import Gated
from service.http.schemas.owners import KeyOut, MeOut, QuotasOut
from service.http.state import Here
from service.jobs.accounts import keys

router = Gated(tags=["keys"])


@router.get("/me", summary="Whose key is this?")
def get_me(here: Here, caller: AnyCaller) -> MeOut:
    """The owner, the key with its role and end, and the owner's limits with what is used of each. For every key."""
    me = keys.me(here.db, caller, here.limits)
    return MeOut(owner=me.key.owner, key=KeyOut.of(me.key), quotas=QuotasOut.of(me.limits, me.use))

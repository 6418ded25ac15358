"""How large a body may be: as large as any, or as the caller's owner has room for."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from anyio import to_thread

from service.errors import BodyTooLarge
from service.http.state import State
from service.jobs.accounts import quotas
from service.jobs.accounts.access import Caller


@asynccontextmanager
async def space(here: State, caller: Caller, *, model: bool) -> AsyncIterator[int]:
    """The most bytes of files that a body, which may hold a `model` or not, may have, for the block that reads it.

    A body that is too large for the owner alone stops as early as one that is too large for the service: the block
    raises `QuotaExceeded` then. Two bodies at once may both find room; the command that keeps them decides.
    """
    most = here.settings.max_model_bytes
    ask = functools.partial(quotas.room, here.db, caller.owner, here.limits, model=model)
    room = await to_thread.run_sync(ask)
    if room.left is None or room.left >= most:
        yield most
        return
    if room.left == 0:
        raise room.exceeded(0)
    try:
        yield room.left
    except BodyTooLarge:
        raise room.exceeded(0) from None

"""Who may push a job forward in its queue."""

from __future__ import annotations

from service.errors import NotAllowed
from service.jobs.accounts.access import Caller
from service.jobs.submission.submit import HIGHEST_PRIORITY


def allowed(caller: Caller, priority: int) -> int:
    """The priority, if this caller may ask for it: any key may step back, an admin's may push forward.

    Raises `NotAllowed`.
    """
    if priority > 0 and "admin" not in caller.scopes:
        raise NotAllowed(
            f"this key may not raise the priority to {priority}",
            fix=f"use 0 or less, or a key with the scope 'admin', which may go up to {HIGHEST_PRIORITY}",
            details={"scope": "admin"},
        )
    return priority

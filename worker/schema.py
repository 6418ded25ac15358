"""A worker works on no database at a step that is not for it: it would misread rows, or write what others misread."""

from __future__ import annotations

import time

from service.db.engine import Database
from service.db.migrate import UnknownStep, require_usable
from service.errors import DatabaseUnavailable, NotReady
from service.logs import logger

PATIENCE_S = 30.0
"""An API that starts beside the worker brings the database to its newest step meanwhile."""
_PAUSE_S = 0.5

log = logger(__name__)


def wait_for(db: Database, patience_s: float = PATIENCE_S) -> None:
    """Return once the database is at a step for this program; one that is away is waited for as long as it takes.

    Raises `NotReady`, which names the command that mends it, when it stays at an older step for `patience_s`
    seconds, and at once for one of a newer program that is not for this one.
    """
    latest = None
    while True:
        try:
            return require_usable(db)
        except DatabaseUnavailable as error:
            log.warning("the database is waited for", reason=error.message)
            latest = None
        except UnknownStep:
            raise
        except NotReady as error:
            latest = latest or time.monotonic() + patience_s
            if time.monotonic() >= latest:
                raise
            log.warning("the database is waited for", reason=error.message, fix=error.fix)
        time.sleep(_PAUSE_S)

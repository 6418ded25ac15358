"""Who calls: the API key in the `Authorization` header, and the scope that a route demands."""

from __future__ import annotations

from typing import Annotated

from anyio import to_thread
from fastapi import Depends
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from service.errors import NotAuthenticated
from service.http.state import Here
from service.jobs import audit
from service.jobs.access import Caller

KEY_HELP = (
    "An API key, as `Authorization: Bearer twk_...`. "
    "A local service keeps one in the file `api_key` of its data folder."
)

_bearer = HTTPBearer(auto_error=False, scheme_name="API key", description=KEY_HELP)


async def _caller(here: Here, given: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]) -> Caller:
    if given is None:
        raise NotAuthenticated("no API key was sent", fix="send Authorization: Bearer <key>")
    key = given.credentials
    remembered = here.door.remembered(key)
    caller = remembered if remembered is not None else await to_thread.run_sync(here.door.enter, key)
    audit.asked_by(caller.owner, caller.key)
    return caller


async def _reader(caller: Annotated[Caller, Depends(_caller)]) -> Caller:
    caller.require("read")
    return caller


async def _administrator(caller: Annotated[Caller, Depends(_caller)]) -> Caller:
    caller.require("admin")
    return caller


async def _compiler(caller: Annotated[Caller, Depends(_caller)]) -> Caller:
    caller.require("compile")
    return caller


AnyCaller = Annotated[Caller, Depends(_caller)]
"""A caller whose key is valid, whatever it allows."""

Reader = Annotated[Caller, Depends(_reader)]
"""A caller whose key has the scope `read`."""

Administrator = Annotated[Caller, Depends(_administrator)]
"""A caller whose key has the scope `admin`."""

Submitter = Annotated[Caller, Depends(_compiler)]
"""A caller whose key has the scope `compile`."""

"""Who calls: the API key in the `Authorization` header, and the scope that a route demands.

A route demands a scope by a parameter of the type `Reader`, `Submitter`, `KeyManager` or `Administrator`, and any key
at all by `AnyCaller`. The gate (`service.http.gate`) has let the caller in before any parameter is looked at; here is
what the route gets of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, cast

from fastapi import Depends, Request
from fastapi.dependencies.models import Dependant
from fastapi.security import HTTPBearer

from service.jobs.accounts.access import Caller

KEY_HELP = (
    "An API key, as `Authorization: Bearer twk_...`. "
    "A local service keeps one in the file `api_key` of its data folder."
)

CALLER = "tilewright.caller"
"""Under which the gate notes in a request's scope who calls."""

_bearer = HTTPBearer(auto_error=False, scheme_name="API key", description=KEY_HELP)


async def _caller(request: Request, _: Annotated[object, Depends(_bearer)]) -> Caller:
    return cast(Caller, request.scope[CALLER])


async def _anybody(caller: Annotated[Caller, Depends(_caller)]) -> Caller:
    return caller


async def _reader(caller: Annotated[Caller, Depends(_caller)]) -> Caller:
    return caller


async def _administrator(caller: Annotated[Caller, Depends(_caller)]) -> Caller:
    return caller


async def _compiler(caller: Annotated[Caller, Depends(_caller)]) -> Caller:
    return caller


async def _manager(caller: Annotated[Caller, Depends(_caller)]) -> Caller:
    return caller


AnyCaller = Annotated[Caller, Depends(_anybody)]
"""A caller whose key is valid, whatever it allows."""

Reader = Annotated[Caller, Depends(_reader)]
"""A caller whose key has the scope `read`."""

Administrator = Annotated[Caller, Depends(_administrator)]
"""A caller whose key has the scope `admin`."""

Submitter = Annotated[Caller, Depends(_compiler)]
"""A caller whose key has the scope `compile`."""

KeyManager = Annotated[Caller, Depends(_manager)]
"""A caller whose key has the scope `keys`."""

ANY = ""
"""In place of a scope: every key will do."""

SCOPES: Mapping[Any, str] = {
    _anybody: ANY,
    _reader: "read",
    _compiler: "compile",
    _manager: "keys",
    _administrator: "admin",
}


def demanded(dependant: Dependant) -> str | None:
    """The scope that a route with these parameters demands, or `ANY`; None: it asks for no key."""
    scopes = {SCOPES[one.call] for one in dependant.dependencies if one.call in SCOPES}
    assert len(scopes) <= 1, "a route takes one kind of caller"
    return next(iter(scopes), None)

"""What a request asks to have done with a model: the model, uploaded before or sent along, and options."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from anyio import to_thread
from fastapi import Request

from compiler.contract import CompileOptions
from service.errors import BadRequest
from service.http.multipart.parts import DATA, MAX_OPTIONS_BYTES, MODEL, OPTIONS
from service.http.requests.request_options import CompileIn, compile_in, plain_json
from service.http.requests.upload import JSON, media_type, receive, small_body
from service.http.state import State
from service.jobs.accounts.access import Caller
from service.jobs.storage import models
from service.jobs.storage.samples import SampleFile

Wanted = list[CompileOptions] | CompileOptions
Given = TypeVar("Given")


@dataclass(frozen=True)
class Asked(Generic[Given]):
    """The model's digest with the wishes beside it, the options, and the samples that were sent along."""

    wishes: CompileIn
    options: Given
    samples: tuple[SampleFile, ...] = ()


async def asked_for(
    request: Request,
    here: State,
    caller: Caller,
    query: str | None,
    options_of: Callable[[Any], Given],
    parts: tuple[str, ...] = (MODEL, DATA, OPTIONS),
) -> Asked[Given]:
    """What the body asks for; options may be in the query parameter `options` too. `parts` are those of a form.

    options_of  the options from plain JSON, of None those that hold where none are given

    A model that is sent along is kept, once its options are known to be sound. Raises `BadRequest`, `OptionsError`, and
    what `service.http.requests.upload.receive` raises.
    """
    given = None if query is None else plain_json(query.encode("utf-8", "surrogatepass"))
    if given is not None:
        options_of(given)
    if media_type(request) == JSON:
        asked = compile_in(await small_body(request, MAX_OPTIONS_BYTES))
        return Asked(asked, options_of(_one_of(given, asked.options)))
    upload = await receive(request, here, caller, parts=parts)
    wanted = options_of(_one_of(given, None if upload.options is None else plain_json(upload.options)))
    if upload.bundle is None:
        return Asked(CompileIn(model=_digest(upload.digest or b"")), wanted, upload.samples)
    kept = await to_thread.run_sync(models.put, here.db, caller.owner, upload.bundle, here.limits)
    return Asked(CompileIn(model=kept.model.digest), wanted, upload.samples)


def _digest(text: bytes) -> str:
    """Raises `BadRequest` for what is no digest."""
    found = text.decode("ascii", "replace").strip()
    if not re.fullmatch(r"[0-9a-f]{64}", found):
        raise BadRequest("the part 'digest' is no SHA-256 in hex", fix="give the digest that POST /models answered")
    return found


def _one_of(query: Any, body: Any) -> Any:
    if query is not None and body is not None:
        raise BadRequest("options were given twice", fix="give them in the body or in the query, not both")
    return body if query is None else query

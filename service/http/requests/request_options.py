"""What a request asks for beside a model: options, one object or a list of them, and more in JSON."""

from __future__ import annotations

import json
from typing import Annotated, Any, NoReturn

from pydantic import Field, ValidationError

from compiler.contract import CompileOptions
from compiler.errors import OptionsError, Refusal
from service.db.plain import storable
from service.errors import BadRequest, BodyTooLarge
from service.http.multipart.parts import MAX_OPTIONS_BYTES
from service.http.schemas.labels import BesideIn
from service.jobs.submission.submit import HIGHEST_PRIORITY, LOWEST_PRIORITY

MOST_AT_ONCE = 64
"""Jobs that one request may ask for."""


class CompileIn(BesideIn):
    """The JSON form of `POST /compile`, `POST /quantizations` and `POST /compressions`."""

    model: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    options: Any = None
    fresh: bool = False
    priority: Annotated[int, Field(ge=LOWEST_PRIORITY, le=HIGHEST_PRIORITY)] | None = None


def compile_in(body: bytes) -> CompileIn:
    """Raises `BadRequest`, which names every field that is wrong."""
    try:
        return CompileIn.model_validate(plain_json(body))
    except ValidationError as error:
        refusals = tuple(
            Refusal(reason=f"{'.'.join(str(part) for part in fault['loc'])}: {fault['msg']}", fix="mend that field")
            for fault in error.errors(include_url=False, include_input=False)
        )
        said = "; ".join(refusal.reason for refusal in refusals)
        raise BadRequest(
            f"the JSON body is malformed: {said:.300}",
            fix='send {"model": "<digest>", "options": {...}}; options may be a list',
            refusals=refusals,
        ) from None
    except OptionsError as error:
        raise BadRequest(f"the body is no JSON: {error.message:.200}", fix=error.fix) from error


def options_of(plain: Any) -> list[CompileOptions] | CompileOptions:
    """Options from plain JSON, one object or a list; None: the default ones. Raises `OptionsError`."""
    if plain is None:
        return CompileOptions()
    if not isinstance(plain, list):
        return CompileOptions.from_json(plain)
    if not 1 <= len(plain) <= MOST_AT_ONCE:
        raise OptionsError(
            f"options is a list of {len(plain)}", fix=f"ask for 1 to {MOST_AT_ONCE} compilations at once"
        )
    return [_at(position, one) for position, one in enumerate(plain)]


def _at(position: int, plain: Any) -> CompileOptions:
    try:
        return CompileOptions.from_json(plain)
    except OptionsError as error:
        error.message = f"options[{position}]: {error.message}"
        error.details = {**error.details, "position": position}
        raise


def plain_json(text: bytes) -> Any:
    """Plain JSON from text. Raises `OptionsError` and `BodyTooLarge`."""
    if len(text) > MAX_OPTIONS_BYTES:
        raise BodyTooLarge(f"the options are larger than {MAX_OPTIONS_BYTES} bytes", fix="name fewer inputs")
    try:
        return demand_storable(json.loads(text.decode(), parse_constant=_refuse_constant))
    except (ValueError, RecursionError) as error:
        raise OptionsError(f"options are not JSON: {error}", fix='send an object such as {"target": "cpu"}') from error


def demand_storable(plain: Any) -> Any:
    """The same plain JSON. Raises `OptionsError` when a database would not keep it as it is."""
    try:
        if storable(plain) == plain:
            return plain
    except RecursionError:
        raise OptionsError("options are nested too deeply", fix='send an object such as {"target": "cpu"}') from None
    raise OptionsError("options hold U+0000, half a surrogate pair or an infinite number", fix="leave them out")


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number in JSON")

"""From what pydantic finds wrong with options to an `OptionsError`: which field, why, and what to write instead.

Everything said follows from the one definition of the field: its type, its bounds, its default, its examples.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from compiler.contract.schema import properties
from compiler.errors import OptionsError, Refusal

TYPES = {
    "int_type": "an integer",
    "float_type": "a number",
    "string_type": "a string",
    "bool_type": "a boolean",
    "tuple_type": "a list",
    "dict_type": "an object",
    "dataclass_type": "an input spec",
    "value_error": "a number, a boolean or lists of them, all of one length",
}
"""What a value should have been, by the type of pydantic's error; `value_error` is raised by
`compiler.contract.bindings.Numbers` alone."""
OUT_OF_RANGE = ("greater_than", "greater_than_equal", "less_than", "less_than_equal")
MOST_TOLD = 8
"""Faults of one request, of which more may be wrong."""
INPUT_SPEC = 'give a shape like [1, 3, 224, 224] or {"shape": ..., "value": ...}'


class Refused(ValueError):
    """Raised by a validator that knows the fix, which stands in the refusal as it is."""

    def __init__(self, message: str, fix: str) -> None:
        super().__init__(message)
        self.fix = fix


def refusal(error: ValidationError, options: type) -> OptionsError:
    """The error that lists all that is wrong, up to MOST_TOLD; of more than one fault each is one of its `refusals`.

    options  the class that refused: a pydantic dataclass
    """
    fields = properties(options)
    said = [_refusal(fault, fields) for fault in error.errors(include_url=False)[:MOST_TOLD]]
    if len(said) == 1:
        return OptionsError(said[0].reason, fix=said[0].fix)
    return OptionsError(
        "; ".join(one.reason for one in said), fix="; ".join(one.fix for one in said), refusals=tuple(said)
    )


def _refusal(fault: Mapping[str, Any], fields: Mapping[str, Mapping[str, Any]]) -> Refusal:
    kind, loc, value = fault["type"], fault["loc"], f"{fault['input']!r:.80}"
    if not loc:
        return Refusal("options are not a JSON object", fix='send an object such as {"seed": 1}')
    name = str(loc[0])
    if isinstance(refused := (fault.get("ctx") or {}).get("error"), Refused):
        return Refusal(f"{_path(loc)} is {value}: {refused}", fix=refused.fix)
    if kind == "unexpected_keyword_argument":
        if len(loc) == 1:
            return Refusal(f"unknown option {name!r}", fix=f"known options: {', '.join(sorted(fields))}")
        return Refusal(f"{_path(loc[:-1])} is not an input spec", fix=INPUT_SPEC)
    if kind == "dataclass_type":
        return Refusal(f"{_path(loc)} is not an input spec", fix=INPUT_SPEC)
    if kind in OUT_OF_RANGE:
        wanted = _range(fields[name] if len(loc) == 1 else {"minimum": (fault.get("ctx") or {}).get("ge")})
        return Refusal(f"{_path(loc)} is {value}", fix=f"use {wanted}{_otherwise(loc, fields)}")
    if kind == "string_pattern_mismatch":
        return Refusal(f"{_path(loc)} is {value}, which is no name", fix=f"give names{_example(fields[name])}")
    if kind not in TYPES:
        return Refusal(f"{_path(loc)} is {value}: {fault['msg']}", fix=f"see the option {name!r} in docs/options.md")
    wanted = TYPES[kind]
    if len(loc) == 1:
        null = " or null" if _is_nullable(fields[name]) else ""
        return Refusal(
            f"option {name!r} is not {wanted}{null}", fix=f"give {wanted}{_example(fields[name])}, not {value}"
        )
    return Refusal(f"{_path(loc)} is not {wanted}", fix=f"give {wanted}, not {value}")


def _path(loc: tuple[int | str, ...]) -> str:
    """Where a fault is, as one would write it: `threads`, `dims['batch']`, `inputs['x'].shape[1]`."""
    first, *others = loc
    parts = [
        f"[{part!r}]" if isinstance(part, int) or at == 0 else f".{part}"
        for at, part in enumerate(others)
        if part != "[key]"
    ]
    return "".join([str(first), *parts])


def _variants(field: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return list(field.get("anyOf", (field,)))


def _is_nullable(field: Mapping[str, Any]) -> bool:
    return {"type": "null"} in _variants(field)


def _range(field: Mapping[str, Any]) -> str:
    """The values that a field takes, in words."""
    stated = {name: bound for one in _variants(field) for name, bound in one.items() if bound is not None}
    least, above, most = (stated.get(name) for name in ("minimum", "exclusiveMinimum", "maximum"))
    if least is not None:
        return f"{least:g} to {most:g}" if most is not None else f"{least:g} or more"
    low = [f"more than {above:g}"] if above is not None else []
    high = [f"at most {most:g}"] if most is not None else []
    return " and ".join(low + high)


def _otherwise(loc: tuple[int | str, ...], fields: Mapping[str, Mapping[str, Any]]) -> str:
    """What else one may do about a value that is out of range."""
    if len(loc) > 1:
        return ""
    field = fields[str(loc[0])]
    return _example(field) + (", or leave it out" if _is_nullable(field) else "")


def _example(field: Mapping[str, Any]) -> str:
    return f", such as {json.dumps(field['examples'][0])}" if field.get("examples") else ""

"""Options as JSON Schema: what OpenAPI, help texts, documentation and refusals are made from."""

from __future__ import annotations

from typing import Any

from pydantic import TypeAdapter

REFERENCE = "#/$defs/{model}"


def schema(options: type, reference: str = REFERENCE) -> dict[str, Any]:
    """Of a class of options, as JSON Schema 2020-12, with the kinds of device that are registered now.

    reference  how a schema that it uses is referred to; each is in `$defs`, if there are any
    """
    return TypeAdapter(options).json_schema(ref_template=reference)


def properties(options: type) -> dict[str, Any]:
    """The schema of each field by name: type, bounds, `default`, `description`, `examples`."""
    found: dict[str, Any] = schema(options)["properties"]
    return found

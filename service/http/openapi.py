"""The OpenAPI document: what FastAPI makes of the routes, with what holds for many of them added once."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from fastapi import FastAPI
from fastapi.routing import APIRoute
from pydantic import BaseModel

from service.errors import RateLimited, TooManyAtOnce
from service.http.responses.errors import PROBLEM, problem_responses
from service.http.schemas import options
from service.http.schemas.common import Problem

AUTOMATIC = "#/components/schemas/HTTPValidationError"
"""The schema of an answer that this service never gives: `responses.errors` makes it a problem with status 400."""

LINK = {
    "description": 'The next page, as `<...>; rel="next"` (RFC 8288); not there on the last.',
    "schema": {"type": "string"},
}


def operation_id(route: APIRoute) -> str:
    """The name of the function, which reads as what it does: `compile_model`."""
    return route.name


def install(app: FastAPI) -> None:
    """Make the app describe itself."""
    made = app.openapi

    def described() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _mended(made())
        return app.openapi_schema

    app.openapi = described  # type: ignore[method-assign]


def _mended(made: dict[str, Any]) -> dict[str, Any]:
    document: dict[str, Any] = copy.deepcopy(made)
    schemas = document["components"]["schemas"]
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    schemas |= options.components()
    schemas["Problem"] = Problem.model_json_schema(ref_template="#/components/schemas/{model}")
    for model in _models(BaseModel):
        extra = model.model_config.get("json_schema_extra")
        if model.__name__ in schemas and isinstance(extra, dict):
            schemas[model.__name__] |= extra  # FastAPI leaves what is null out of them
    for path, item in document["paths"].items():
        for method, operation in item.items():
            operation["responses"] = copy.deepcopy(_responses(operation))
            if any(parameter["name"] == "cursor" for parameter in operation.get("parameters", ())):
                operation["responses"]["200"].setdefault("headers", {})["Link"] = LINK
            _place(operation, path)
            if method == "head":
                for response in operation["responses"].values():
                    response.pop("content", None)
    return document


def _models(root: type[BaseModel]) -> Iterator[type[BaseModel]]:
    """Every schema of this package."""
    for model in root.__subclasses__():
        yield from _models(model)
        if model.__module__.startswith("service.http."):
            yield model


def _responses(operation: dict[str, Any]) -> dict[str, Any]:
    """The declared ones with those that follow from what the operation takes, in order of status."""
    declared = {status: copy.deepcopy(said) for status, said in operation["responses"].items() if not _automatic(said)}
    has_body = "requestBody" in operation
    takes = (400,) if has_body or operation.get("parameters") else ()
    keyed = (401, 403, 500, 503, TooManyAtOnce, RateLimited) if operation.get("security") else ()
    follows = problem_responses(*takes, *((413, 415) if has_body else ()), *keyed)
    for status, said in follows.items():
        merged = declared.setdefault(str(status), said)
        if merged is not said and PROBLEM in merged.get("content", {}):
            merged["content"][PROBLEM]["examples"] |= said["content"][PROBLEM]["examples"]
    return dict(sorted(declared.items()))


def _automatic(response: dict[str, Any]) -> bool:
    schema = response.get("content", {}).get("application/json", {}).get("schema", {})
    return bool(schema.get("$ref") == AUTOMATIC)


def _place(operation: dict[str, Any], path: str) -> None:
    """Let the examples of problems name the path of this operation."""
    for parameter in operation.get("parameters", ()):
        found = parameter.get("examples") or parameter["schema"].get("examples") or ()
        example = parameter.get("example", next(iter(found), None))
        path = path.replace(f"{{{parameter['name']}}}", str(example)) if parameter["in"] == "path" else path
    for response in operation["responses"].values():
        for example in response.get("content", {}).get(PROBLEM, {}).get("examples", {}).values():
            example["value"]["instance"] = path

"""The OpenAPI document tells everything that a caller or a generator of clients needs."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from fastapi.routing import APIRoute
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from compiler.contract import BenchmarkOptions, CompileOptions, schema
from service.config import Settings
from service.http.app import create_app
from service.http.responses.errors import PROBLEM
from service.http.routes import routers

PUBLIC = {"/healthz", "/readyz", "/metrics", "/version"}
SHOWN = [
    route for router in routers() for route in router.routes if isinstance(route, APIRoute) and route.include_in_schema
]
OPERATIONS = sorted((route.path_format, method.lower()) for route in SHOWN for method in route.methods or ())
BINARY = {"type": "string", "format": "binary"}


@cache
def document() -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        app = create_app(Settings(data_dir=Path(folder)))
        reported: dict[str, Any] = json.loads(json.dumps(app.openapi()))
        app.state.tilewright.db.dispose()
    return reported


def resolved(schema: dict[str, Any]) -> dict[str, Any]:
    if "$ref" not in schema:
        return schema
    name = schema["$ref"].removeprefix("#/components/schemas/")
    found: dict[str, Any] = document()["components"]["schemas"][name]
    return found


def told_examples(media: dict[str, Any]) -> list[Any]:
    """The examples of a media type: its own, else those of its schema, else those of each of its alternatives."""
    if "example" in media:
        return [media["example"]]
    if "examples" in media:
        return [example["value"] for example in media["examples"].values()]
    schema = resolved(media.get("schema", {}))
    if "example" in schema:
        return [schema["example"]]
    return [example for one in schema.get("anyOf", ()) for example in told_examples({"schema": one})]


def is_bytes(media: dict[str, Any]) -> bool:
    return bool(media.get("schema", {}).items() >= BINARY.items())


def assert_examples_are_valid(where: str, media: dict[str, Any]) -> None:
    examples = told_examples(media)
    assert examples, f"{where} has no example"
    components = {"components": document()["components"]}
    validator = Draft202012Validator({**components, **media.get("schema", {})})
    for example in examples:
        faults = [f"{fault.json_path}: {fault.message}" for fault in validator.iter_errors(example)]
        assert not faults, (where, faults)


EVERY_OPERATION = pytest.mark.parametrize(("path", "method"), OPERATIONS)


@EVERY_OPERATION
def test_an_operation_is_described_and_its_id_reads_as_what_it_does(path: str, method: str) -> None:
    operation = document()["paths"][path][method]
    assert operation["summary"]
    assert operation["description"]
    assert len(operation["tags"]) == 1
    assert re.fullmatch(r"[a-z]+(_[a-z]+)+", operation["operationId"]), "a verb and what it is done to"


def test_the_ids_of_operations_are_distinct() -> None:
    ids = [document()["paths"][path][method]["operationId"] for path, method in OPERATIONS]
    assert sorted(ids) == sorted(set(ids))
    assert len(ids) == sum(len(item) for item in document()["paths"].values())


@EVERY_OPERATION
def test_every_parameter_is_described(path: str, method: str) -> None:
    for parameter in document()["paths"][path][method].get("parameters", ()):
        assert parameter.get("description"), parameter["name"]


@EVERY_OPERATION
def test_every_parameter_of_a_path_has_an_example(path: str, method: str) -> None:
    for parameter in document()["paths"][path][method].get("parameters", ()):
        if parameter["in"] == "path":
            assert parameter["schema"].get("examples") or "example" in parameter, parameter["name"]


@EVERY_OPERATION
def test_a_key_is_declared_where_one_is_asked_for(path: str, method: str) -> None:
    operation = document()["paths"][path][method]
    assert bool(operation.get("security")) == (path not in PUBLIC)
    (scheme,) = document()["components"]["securitySchemes"].values()
    assert (scheme["type"], scheme["scheme"]) == ("http", "bearer")
    assert bool({"401", "403"} & set(operation["responses"])) == (path not in PUBLIC)


@EVERY_OPERATION
def test_every_body_of_a_request_has_an_example_that_fits_its_schema(path: str, method: str) -> None:
    body = document()["paths"][path][method].get("requestBody", {"content": {}})
    for media_type, media in body["content"].items():
        if not is_bytes(media):
            assert_examples_are_valid(f"{method} {path} {media_type}", media)


def successes(path: str, method: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for status, response in document()["paths"][path][method]["responses"].items():
        if status < "400":
            yield status, response


@EVERY_OPERATION
def test_every_body_of_an_answer_has_an_example_that_fits_its_schema(path: str, method: str) -> None:
    found = list(successes(path, method))
    assert found
    for status, response in found:
        assert response["description"] != "Successful Response" or "content" in response
        for media_type, media in response.get("content", {}).items():
            if not is_bytes(media):
                assert_examples_are_valid(f"{method} {path} {status} {media_type}", media)


@EVERY_OPERATION
def test_every_error_is_a_problem_document_with_an_example(path: str, method: str) -> None:
    for status, response in document()["paths"][path][method]["responses"].items():
        if status < "400" or method == "head" or (path, status) == ("/readyz", "503"):
            continue
        assert list(response["content"]) == [PROBLEM], status
        media = response["content"][PROBLEM]
        assert media["schema"] == {"$ref": "#/components/schemas/Problem"}
        assert_examples_are_valid(f"{method} {path} {status}", media)
        for code, example in media["examples"].items():
            assert (example["value"]["code"], str(example["value"]["status"])) == (code, status)
            assert "{" not in example["value"]["instance"]


@EVERY_OPERATION
def test_what_takes_anything_may_find_it_malformed(path: str, method: str) -> None:
    operation = document()["paths"][path][method]
    takes = "requestBody" in operation or bool(operation.get("parameters"))
    assert ("400" in operation["responses"]) == takes


def test_an_answer_to_head_has_no_body() -> None:
    for path, method in OPERATIONS:
        if method == "head":
            assert not any("content" in said for said in document()["paths"][path][method]["responses"].values())


def test_what_fastapi_would_answer_by_itself_is_told_nowhere() -> None:
    assert "HTTPValidationError" not in json.dumps(document())


def test_options_are_shown_as_they_are_checked() -> None:
    shown = document()["components"]["schemas"]
    for model in (CompileOptions, BenchmarkOptions):
        for name, field in schema(model, "#/components/schemas/{model}")["properties"].items():
            assert field["description"]
            reported = shown[model.__name__]["properties"][name]
            assert {**reported, "default": None} == {**field, "default": None}
            assert reported.get("default") == field.get("default")


@pytest.mark.parametrize("path", ["/compile", "/preflight", "/jobs/{job_id}/clone"])
def test_every_body_with_options_of_a_compilation_refers_to_their_schema(path: str) -> None:
    reported = [media["schema"] for media in document()["paths"][path]["post"]["requestBody"]["content"].values()]
    with_options = [found for found in map(resolved, reported) if "options" in found.get("properties", {})]
    assert with_options
    for found in with_options:
        assert "#/components/schemas/CompileOptions" in json.dumps(found["properties"]["options"])


def test_every_object_that_a_request_sends_is_closed() -> None:
    """What the service refuses as unknown the contract does not allow: in JSON, in forms, in what they refer to."""

    def objects(reported: Any, seen: set[str]) -> Iterator[dict[str, Any]]:
        if isinstance(reported, list):
            for one in reported:
                yield from objects(one, seen)
        elif isinstance(reported, dict):
            if "properties" in reported and reported.get("type") == "object":
                yield reported
            if (name := reported.get("$ref", "").rpartition("/")[2]) and name not in seen:
                seen.add(name)
                yield from objects(document()["components"]["schemas"][name], seen)
            for key, one in reported.items():
                if key not in ("example", "examples", "default"):
                    yield from objects(one, seen)

    found = {
        (path, method, kind): [*objects(media["schema"], set())]
        for path, operations in document()["paths"].items()
        for method, reported in operations.items()
        for kind, media in reported.get("requestBody", {}).get("content", {}).items()
    }
    assert sum(map(len, found.values())) > 20
    for where, each in found.items():
        assert all(one.get("additionalProperties") is False for one in each), where

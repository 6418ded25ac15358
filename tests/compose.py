"""docker-compose.yml as its tool reads it: YAML, then variables put in."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[1]
FILE = ROOT / "docker-compose.yml"
VARIABLE = re.compile(r"\$(?:\$|\{(?P<name>\w+)(?::(?P<kind>[-?])(?P<text>[^}]*))?\})")
"""`${NAME:-default}`, `${NAME:?what to set}`, `${NAME}`; `$$` stands for one dollar."""


class Unset(Exception):
    """A required variable is missing; the text is what the file says about it."""


def read(variables: Mapping[str, str]) -> dict[str, Any]:
    """The whole file with variables put in. Raises `Unset`."""
    return dict(_put_in(yaml.safe_load(FILE.read_text()), variables))


def service(name: str, variables: Mapping[str, str]) -> dict[str, Any]:
    """One service. Raises `Unset`, `KeyError`."""
    return dict(read(variables)["services"][name])


def variables() -> dict[str, str]:
    """The variables that the file reads: its word about each that must be set, nothing for those with a default."""
    found: dict[str, str] = {}
    for match in VARIABLE.finditer(FILE.read_text()):
        if match["name"]:
            found[match["name"]] = match["text"] if match["kind"] == "?" else ""
    return found


def _put_in(node: Any, variables: Mapping[str, str]) -> Any:
    if isinstance(node, dict):
        return {key: _put_in(value, variables) for key, value in node.items()}
    if isinstance(node, list):
        return [_put_in(value, variables) for value in node]
    return VARIABLE.sub(lambda match: _value(match, variables), node) if isinstance(node, str) else node


def _value(match: re.Match[str], variables: Mapping[str, str]) -> str:
    if not match["name"]:
        return "$"
    if value := variables.get(match["name"]):
        return value
    if match["kind"] == "?":
        raise Unset(f"{match['name']}: {match['text']}")
    return match["text"] or ""

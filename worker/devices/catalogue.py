"""What this worker's compiler can do, as plain entries for `service.jobs.scheduling.catalogue`: operators and targets.

`python -m worker.devices.catalogue` prints them as JSON.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from types import ModuleType
from typing import Any

from onnx import defs

import compiler.ops
from compiler.contract import Kind, kinds
from compiler.frontend.expansions.domains import DOMAINS
from compiler.frontend.expansions.draws import DRAWING
from compiler.frontend.infer import STRUCTURAL
from compiler.frontend.open.sized import MEASURED
from compiler.frontend.opsets.table import UPGRADES
from compiler.frontend.reading.strings import MAKING
from compiler.frontend.special import FOLDED
from compiler.ops import FAMILIES, MODEL_OPERATORS
from compiler.ops.operator import Operator
from worker.devices.holder import holder

ONNX = "ai.onnx"
OWN = "tilewright::"
"""How the names of the compiler's own operators begin, which no model may hold."""
INLINED = tuple(sorted(set(STRUCTURAL) - set(MODEL_OPERATORS)))
"""Resolved while the graph is read."""


def published() -> Mapping[str, list[dict[str, Any]]]:
    """Every catalogue by its name in `service.jobs.scheduling.catalogue.NAMES`."""
    return {"operators": operators(), "targets": targets()}


def operators() -> list[dict[str, Any]]:
    """One entry for each operator that a model may hold, by domain and name."""
    entries = [_entry(operator, about(family)) for family in FAMILIES for operator in family]
    entries += [
        _other(name, domain or ONNX, "rewritten", "Brought to operators of ai.onnx")
        for domain in DOMAINS
        for name in DOMAINS[domain]
    ]
    ways = (
        (FOLDED, "folded", "Its result follows from types and constants alone"),
        (INLINED, "inlined", "Resolved while the model is read"),
        ((name for name, _, _ in UPGRADES), "rewritten", "Brought to a newer operator"),
        (DRAWING, "rewritten", "Random numbers"),
        (MAKING, "inlined", "Strings, made of inputs before the program runs"),
        (composed(), "function", "By its ONNX function body, when every operator of that is known"),
    )
    found = {(entry["domain"], entry["name"]): entry for entry in entries}
    for names, how, family in ways:
        for full in names:
            if full.startswith(OWN):
                continue
            domain, _, name = full.rpartition("::")
            found.setdefault((domain or ONNX, name), _other(name, domain or ONNX, how, family))
    return [found[key] for key in sorted(found)]


def targets() -> list[dict[str, Any]]:
    """One entry for each target that `CompileOptions.target` may name.

    Each kind of device, and behind it its profiles.
    """
    return [entry for kind in kinds.KINDS for entry in (*_any_of(kind), *holder(kind).entries())]


def _any_of(kind: Kind) -> list[dict[str, Any]]:
    """The kind alone, where that is a target."""
    alone = {"name": kind.name, "description": kind.here, "precisions": list(kind.precisions)}
    return [alone] if kind.here else []


def _entry(operator: Operator, family: str) -> dict[str, Any]:
    return {
        "name": operator.name,
        "domain": ONNX,
        "opsets": list(operator.opsets),
        "known_when_compiling": [name for _, name in operator.parameters],
        "limits": "; ".join(limits(operator)),
        "family": family,
        "how": "kernel",
    }


def _other(name: str, domain: str, how: str, family: str) -> dict[str, Any]:
    return {
        "name": name,
        "domain": domain,
        "opsets": None,
        "known_when_compiling": [],
        "limits": "",
        "family": family,
        "how": how,
    }


def composed() -> set[str]:
    """The operators of ai.onnx that ONNX defines by others."""
    schemas: Iterable[Any] = defs.get_all_schemas()  # whose type information lacks the functions
    return {
        schema.name
        for schema in schemas
        if not schema.domain and (schema.has_function or schema.has_context_dependent_function)
    }


def about(family: tuple[Operator, ...]) -> str:
    """The first line of the docstring of the module that holds a family, without the part after the colon."""
    for module in vars(compiler.ops).values():
        if isinstance(module, ModuleType) and getattr(module, "OPERATORS", None) is family:
            return (module.__doc__ or "").split("\n")[0].split(":")[0].split(". ")[0].rstrip(".")
    raise LookupError(f"no module of compiler.ops holds {family[0].name}")


def limits(operator: Operator) -> Iterator[str]:
    """What is to be known of an operator before it is used."""
    if operator.name in MEASURED:
        yield "data may say how large its results are"


if __name__ == "__main__":
    json.dump(published(), sys.stdout)

"""Targets and operators as they go over the wire. Workers are in `service.http.schemas.common`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field

from service.jobs.scheduling.capabilities import Target

TARGET_EXAMPLE: dict[str, Any] = {
    "name": "cpu:x86-64-v4",
    "description": "x86-64 with AVX-512",
    "facts": {"machine": "x86_64", "features": ["avx512f"], "vector_floats": 16, "vector_registers": 32},
    "measured_by": ["worker-1/811"],
    "built_by": ["builder-1/812"],
    "queued": 2,
    "runs_queued": 0,
    "notice": None,
}

OPERATOR_EXAMPLE: dict[str, Any] = {
    "name": "Conv",
    "domain": "ai.onnx",
    "opsets": [7, 28],
    "limits": "1 to 3 spatial dimensions",
    "facts": {"known_when_compiling": [], "family": "conv", "how": "kernel"},
}


class TargetOut(BaseModel):
    """A device class, and who serves it now."""

    model_config = ConfigDict(json_schema_extra={"example": TARGET_EXAMPLE})

    name: str = Field(description="What `target` in the options of a compilation is to be.")
    description: str
    facts: dict[str, Any] = Field(
        description="What the compiler goes by: precisions; of CPUs machine, features, vector width, registers, "
        "and of a target for all of an architecture its profiles; "
        "of GPUs architecture, a product, multiprocessors, memory."
    )
    measured_by: list[str] = Field(description="Live workers with such a device: they measure and run artifacts there.")
    built_by: list[str] = Field(description="Live workers that compile for it without having such a device.")
    queued: int = Field(description="Compilations of all owners that wait for it now.")
    runs_queued: int = Field(description="Benchmarks and inferences of all owners that wait for it now.")
    notice: str | None = Field(description="Why no worker serves it now, and what to start.")

    @classmethod
    def of(cls, target: Target) -> Self:
        """From what was found."""
        return cls(
            name=target.entry["name"],
            description=target.entry.get("description", ""),
            facts=_others(target.entry, "name", "description"),
            measured_by=list(target.measured_by),
            built_by=list(target.built_by),
            queued=target.queued,
            runs_queued=target.runs_queued,
            notice=target.notice or None,
        )


class TargetList(BaseModel):
    """Every target that the workers' compiler knows."""

    model_config = ConfigDict(
        json_schema_extra={"example": {"targets": [TARGET_EXAMPLE], "compiler": "0.1.0", "notice": None}}
    )

    targets: list[TargetOut]
    compiler: str | None = Field(
        description="Version of the compiler that this describes; null before any worker has reported."
    )
    notice: str | None = Field(description="Why the list is empty, or why nothing would be done now.")


class OperatorOut(BaseModel):
    """An operator that the compiler takes."""

    model_config = ConfigDict(json_schema_extra={"example": OPERATOR_EXAMPLE})

    name: str
    domain: str
    opsets: list[int] | None = Field(description="The oldest and the newest opset; null: it has no opsets.")
    limits: str = Field(description="Forms that are refused; empty: none is known.")
    facts: dict[str, Any] = Field(description="Notes: how it is computed, inputs that must be constant.")

    @classmethod
    def of(cls, entry: Mapping[str, Any]) -> Self:
        """From an entry of the catalogue."""
        return cls(
            name=entry["name"],
            domain=entry.get("domain", ""),
            opsets=entry.get("opsets"),
            limits=entry.get("limits", ""),
            facts=_others(entry, "name", "domain", "opsets", "limits"),
        )


class OperatorList(BaseModel):
    """Operators by name."""

    model_config = ConfigDict(
        json_schema_extra={"example": {"operators": [OPERATOR_EXAMPLE], "compiler": "0.1.0", "notice": None}}
    )

    operators: list[OperatorOut]
    compiler: str | None = Field(
        description="Version of the compiler that this describes; null before any worker has reported."
    )
    notice: str | None = Field(description="Why the list is empty, or why nothing would be done now.")


def _others(entry: Mapping[str, Any], *shown: str) -> dict[str, Any]:
    return {name: value for name, value in entry.items() if name not in shown}

"""Where a model's parts would run on a described platform: the options of a placement."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, Field, StrictStr
from pydantic.dataclasses import dataclass

from compiler.contract.bindings import CONFIG, unchangeable
from compiler.contract.derived import Derived, DerivedDims, DerivedInputs
from compiler.contract.platform import parse_platform
from compiler.errors import OptionsError

OBJECTIVE = r"^(latency|throughput|latency_ms=[0-9.eE+-]{1,20})$"


@dataclass(frozen=True, config=CONFIG)
class PlaceOptions(Derived):
    """A platform, what is best, and what goes from frame to frame."""

    platform: dict[str, Any] = Field(
        description="the fields of a platform's .toml file; times of nodes stand in `times` of a device's `records`, "
        "and an accelerator's `profile` is a name or the fields of its file"
    )
    objective: Annotated[StrictStr, Field(pattern=OBJECTIVE)] = Field(
        default="latency",
        description="`latency` of a frame, `throughput` of many, or `latency_ms=30`: the most frames per second of "
        "what ends a frame within it",
    )
    carry: Annotated[Mapping[str, str], AfterValidator(unchangeable)] = Field(
        default_factory=dict,
        validate_default=True,
        description="by name of an output the input that it is in the next frame",
        examples=[{"state_out": "state_in"}],
    )
    inputs: DerivedInputs = Field(default_factory=dict)
    dims: DerivedDims = Field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raises OptionsError, which names each field of the platform that is wrong, and what to write."""
        found = parse_platform(self.platform)
        for name, one in found.devices.items():
            if one.records is not None and one.records.file is not None:
                raise OptionsError(
                    f"devices.{name}.records names a file, which no server has",
                    fix="write its content as `times`; `tilewright place --server` does",
                )

    def to_json(self) -> dict[str, Any]:
        """Plain JSON; `from_json` reads it back to an equal object."""
        return {**super().to_json(), "carry": dict(self.carry)}

"""How a model is brought to an accelerator with few operators: the options of a legalisation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, Strict, StrictBool, StrictInt
from pydantic.dataclasses import dataclass

from compiler.contract.bindings import AS_GIVEN, CONFIG
from compiler.contract.derived import Derived, DerivedDims, DerivedInputs, SamplesSeed
from compiler.contract.options import MAX_DERIVED_SAMPLES
from compiler.contract.refusals import Refused
from compiler.errors import OptionsError

PROFILES = ("edgetpu", "ethos-u55-128", "ethos-u65-256", "ethos-u85-256", "relu-conv-add")
"""Accelerators whose files are in `compiler/legalise/profiles`."""


def _profile(value: Any) -> Any:
    if not isinstance(value, str | Mapping):
        fix = f"take one of {', '.join(PROFILES)}, or give the fields of a profile's file as an object"
        raise Refused(f"an accelerator is neither a name nor described: {value!r:.60}", fix)
    return value


@dataclass(frozen=True, config=CONFIG)
class LegaliseOptions(Derived):
    """Which accelerator, and how far outputs may be from those of the model as it was."""

    profile: Annotated[str | dict[str, Any], BeforeValidator(_profile)] = Field(
        description="the accelerator: a name, or an object with the fields of a profile's .toml file",
        examples=list(PROFILES),
    )
    tolerance: Annotated[float, Strict(), AS_GIVEN] = Field(
        default=0.05,
        gt=0,
        allow_inf_nan=False,
        description="error that an output may have, relative to its largest value on the samples",
    )
    judge: Literal["sampled", "proved"] = Field(
        default="sampled",
        description="which error must be within it: that on the samples, or the bound propagated to the outputs",
    )
    terms: StrictInt = Field(default=32, ge=1, le=64, description="ReLUs in a sum, at most")
    method: Literal["auto", "exact", "sums"] = Field(
        default="auto", description="`exact`: no approximations; `sums`: sums of ReLUs, no sigmoid forms"
    )
    fixed: StrictBool = Field(
        default=False, description="whether sums have `terms` ReLUs each, whatever their error is: for comparing"
    )
    whole: StrictBool = Field(
        default=False, description="whether a model of which a node stays on the CPU is refused, naming the node"
    )
    inputs: DerivedInputs = Field(default_factory=dict)
    dims: DerivedDims = Field(default_factory=dict)
    derived_samples: StrictInt = Field(
        default=8, ge=1, le=MAX_DERIVED_SAMPLES, description="how many samples are drawn where none is given"
    )
    seed: SamplesSeed = 0

    def __post_init__(self) -> None:
        """Raises OptionsError for an accelerator that is not known."""
        if isinstance(self.profile, str) and self.profile not in PROFILES:
            raise OptionsError(
                f"there is no accelerator profile {self.profile!r:.100}",
                fix=f"take one of {', '.join(PROFILES)}, or give the fields of a profile as an object",
            )

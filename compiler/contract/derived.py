"""What the options of a job on samples have in common: what samples are drawn for, and which nodes stay as they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Annotated, Any, Literal, cast

from pydantic import AfterValidator, Field, StrictInt, StrictStr

from compiler.contract.bindings import Binding, Refusing, Spec, unchangeable

RangesBy = Literal["best", "minmax", "percentile", "entropy", "mse"]
"""How a quantisation finds the range of an activation."""
RANGES = (
    "how the range of an activation is chosen from its values on the samples: by that of `mse`, `minmax` and "
    "`percentile` which leaves outputs most signal to noise; all of them; all but the outermost, see `percentile`; "
    "where the quantised distribution loses the least information; where the squared error is least"
)
EQUALISE = "whether channels between two layers are scaled to give the weights on both sides similar ranges"
DerivedInputs = Annotated[
    Mapping[str, Spec],
    AfterValidator(unchangeable),
    Field(
        validate_default=True,
        description="as of a compilation: shapes of the inputs that samples are derived for",
        examples=[{"x": [1, 3, 224, 224]}],
    ),
]
DerivedDims = Annotated[
    Binding,
    AfterValidator(unchangeable),
    Field(
        validate_default=True,
        description="by name of a symbolic dimension: its size where samples are derived",
        examples=[{"batch": 1}],
    ),
]
SamplesSeed = Annotated[StrictInt, Field(ge=0, description="of the samples that are drawn")]
KeptNodes = Annotated[tuple[StrictStr, ...], AfterValidator(tuple)]


class Derived(Refusing):
    """Options with `inputs`, `dims` and perhaps `keep`, as JSON."""

    def to_json(self) -> dict[str, Any]:
        """Plain JSON; `from_json` reads it back to an equal object."""
        plain = {field.name: getattr(self, field.name) for field in fields(cast(Any, self))}
        if "keep" in plain:
            plain["keep"] = list(plain["keep"])
        plain["inputs"] = {name: asdict(spec) for name, spec in sorted(plain["inputs"].items())}
        plain["dims"] = dict(sorted(plain["dims"].items()))
        return plain

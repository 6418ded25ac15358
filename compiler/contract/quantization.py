"""How a model is quantised: the options of a quantization."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, Strict, StrictBool, StrictInt, StrictStr
from pydantic.dataclasses import dataclass

from compiler.contract.options import (
    AS_GIVEN,
    CONFIG,
    MAX_DERIVED_SAMPLES,
    MAX_SNR_DB,
    Binding,
    Refusing,
    Spec,
    unchangeable,
)


@dataclass(frozen=True, config=CONFIG)
class QuantizeOptions(Refusing):
    """How tensors get their ranges, and which layers may stay in floating point."""

    ranges: Literal["minmax", "percentile", "entropy", "mse"] = Field(
        default="mse",
        description="how the range of an activation is chosen from its values on the samples: all of them; all but "
        "the outermost, see `percentile`; where the quantised distribution loses the least information; where the "
        "squared error is least",
    )
    percentile: Annotated[float, Strict(), AS_GIVEN] = Field(
        default=99.99, gt=50, le=100, description="of the values that `percentile` keeps on each side of a range"
    )
    activations: Literal["uint8", "int8"] = Field(
        default="uint8", description="what activations are stored as, with a scale and a zero point for each tensor"
    )
    bias_correction: StrictBool = Field(
        default=True, description="whether what rounding weights does to the mean of a channel is taken out of its bias"
    )
    equalise: StrictBool = Field(
        default=False,
        description="whether channels between two layers are scaled so that the weights on both sides have like ranges",
    )
    snr_db: Annotated[float, Strict(), AS_GIVEN] | None = Field(
        default=None,
        gt=0,
        le=MAX_SNR_DB,
        description="what every output must have of signal to noise against the model in floating point, in dB; the "
        "layers that cost most stay in floating point until it holds",
        examples=[30.0],
    )
    keep: Annotated[tuple[StrictStr, ...], AfterValidator(tuple)] = Field(
        default=(), description="names of nodes that stay in floating point", examples=[["/head/Conv"]]
    )
    outputs: StrictBool = Field(
        default=False, description="whether the model's outputs are rounded to 8 bits like other results of layers"
    )
    inputs: Annotated[Mapping[str, Spec], AfterValidator(unchangeable)] = Field(
        default_factory=dict,
        validate_default=True,
        description="as of a compilation: shapes of the inputs that samples are derived for",
        examples=[{"x": [1, 3, 224, 224]}],
    )
    dims: Annotated[Binding, AfterValidator(unchangeable)] = Field(
        default_factory=dict,
        validate_default=True,
        description="by name of a symbolic dimension: its size where samples are derived",
        examples=[{"batch": 1}],
    )
    derived_samples: StrictInt = Field(
        default=8, ge=1, le=MAX_DERIVED_SAMPLES, description="how many samples are drawn where none is given"
    )
    seed: StrictInt = Field(default=0, ge=0, description="of the samples that are drawn")

    def to_json(self) -> dict[str, Any]:
        """Plain JSON; `from_json` reads it back to an equal object."""
        plain = {f.name: getattr(self, f.name) for f in fields(self)}
        plain["keep"] = list(self.keep)
        plain["inputs"] = {name: asdict(spec) for name, spec in sorted(self.inputs.items())}
        plain["dims"] = dict(sorted(self.dims.items()))
        return plain

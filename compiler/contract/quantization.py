"""How a model is quantised: the options of a quantization."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, Strict, StrictBool, StrictInt
from pydantic.dataclasses import dataclass

from compiler.contract.bindings import AS_GIVEN, CONFIG
from compiler.contract.derived import (
    EQUALISE,
    RANGES,
    Derived,
    DerivedDims,
    DerivedInputs,
    KeptNodes,
    RangesBy,
    SamplesSeed,
)
from compiler.contract.options import MAX_DERIVED_SAMPLES, MAX_SNR_DB


@dataclass(frozen=True, config=CONFIG)
class QuantizeOptions(Derived):
    """How tensors get their ranges, and which layers may stay in floating point."""

    ranges: RangesBy = Field(default="best", description=RANGES)
    percentile: Annotated[float, Strict(), AS_GIVEN] = Field(
        default=99.99,
        gt=50,
        le=100,
        description="percentage of the values that method `percentile` keeps on each side of a range",
    )
    activations: Literal["uint8", "int8"] = Field(
        default="uint8", description="type of stored activations, with a scale and a zero point for each tensor"
    )
    bias_correction: StrictBool = Field(
        default=True, description="whether the bias of a channel is corrected by the mean error of its rounded weights"
    )
    equalise: StrictBool = Field(default=False, description=EQUALISE)
    snr_db: Annotated[float, Strict(), AS_GIVEN] | None = Field(
        default=None,
        gt=0,
        le=MAX_SNR_DB,
        description="least signal-to-noise ratio of every output against the model in floating point, in dB; the "
        "layers that lose most stay in floating point until it is reached",
        examples=[30.0],
    )
    keep: KeptNodes = Field(
        default=(), description="names of nodes that stay in floating point", examples=[["/head/Conv"]]
    )
    attention: StrictBool = Field(
        default=True,
        description="whether products of two activations, as in attention, are quantised too; the softmax between them "
        "stays in floating point",
    )
    outputs: StrictBool = Field(
        default=False, description="whether the model's outputs are rounded to 8 bits like other results of layers"
    )
    inputs: DerivedInputs = Field(default_factory=dict)
    dims: DerivedDims = Field(default_factory=dict)
    derived_samples: StrictInt = Field(
        default=8, ge=1, le=MAX_DERIVED_SAMPLES, description="how many samples are drawn where none is given"
    )
    seed: SamplesSeed = 0

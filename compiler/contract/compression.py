"""How weights are compressed: the options of a compression."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import Field, Strict, StrictBool, StrictInt, StrictStr
from pydantic.dataclasses import dataclass

from compiler.contract import kinds
from compiler.contract.bindings import AS_GIVEN, CONFIG
from compiler.contract.derived import Derived, DerivedDims, DerivedInputs, KeptNodes, SamplesSeed
from compiler.contract.options import MAX_BUDGET_SECONDS, MAX_DERIVED_SAMPLES, MAX_THREADS, CompileOptions
from compiler.errors import OptionsError

MAX_LATENCY_MS = 1e6


@dataclass(frozen=True, config=CONFIG)
class CompressOptions(Derived):
    """How weights are compressed, and how far: one of `largest_error`, `latency_ms` and `sparsity`."""

    largest_error: Annotated[float, Strict(), AS_GIVEN] | None = Field(
        default=None,
        gt=0,
        lt=1,
        description="largest relative error (L2) of outputs on held-out samples; the model is made as fast as it "
        "allows, or as small with `codebook`",
        examples=[0.05],
    )
    latency_ms: Annotated[float, Strict(), AS_GIVEN] | None = Field(
        default=None,
        gt=0,
        le=MAX_LATENCY_MS,
        description="most milliseconds of an inference, as the sum of its kernels; the error is made as small as it "
        "allows",
    )
    sparsity: Annotated[float, Strict(), AS_GIVEN] | None = Field(
        default=None,
        gt=0,
        lt=1,
        description="least share of the weights of all layers that becomes zero; with `codebook` of their bits that "
        "indices save, with `low_rank` of the weights that factors save; the error is made as small as it allows",
        examples=[0.8],
    )
    form: Literal["unstructured", "1x4", "1x16", "4x16", "2:4", "combined", "codebook", "low_rank"] = Field(
        default="unstructured",
        description="which weights become zero together: each by itself; those of four, or of sixteen, neighbouring "
        "results; those of four neighbouring inputs for sixteen neighbouring results; two of each four neighbouring "
        "inputs; all but the largest of a result in each group of inputs (column combining); or none: weights share "
        "256 values, or 16 or 4 of each result; or they become products of two matrices of low rank",
    )
    method: Literal["obs", "wanda", "magnitude"] = Field(
        default="obs",
        description="how weights are chosen: `obs` by their effect on the samples, with the remaining weights updated; "
        "`wanda` by magnitude times that of the inputs; `magnitude` by magnitude",
    )
    keep: KeptNodes = Field(default=(), description="names of nodes that stay dense", examples=[["/head/Conv"]])
    ends: StrictBool = Field(default=False, description="whether the first and the last layer are compressed too")
    target: StrictStr = Field(default="cpu", description="device whose times count, as for a compilation")
    precision: Literal["fp32", "tf32", "fp16", "bf16", "int8"] = Field(
        default="fp32",
        description="as of a compilation, of the times: on CUDA targets `2:4` weights are multiplied faster in fp16 "
        "and bf16, on CPUs `4x16` in bf16 and int8. The result is in fp32, and still to be quantised",
    )
    threads: StrictInt | None = Field(
        default=1, ge=1, le=MAX_THREADS, description="as of a compilation, of the times; null: all cores"
    )
    tuning_budget_s: Annotated[float, Strict(), AS_GIVEN] = Field(
        default=60.0,
        ge=0,
        le=MAX_BUDGET_SECONDS,
        description="seconds for measuring layers at their levels, together; with 0 earlier measurements and "
        "the cost model decide",
    )
    inputs: DerivedInputs = Field(default_factory=dict)
    dims: DerivedDims = Field(default_factory=dict)
    derived_samples: StrictInt = Field(
        default=8, ge=2, le=MAX_DERIVED_SAMPLES, description="how many samples are drawn where none is given"
    )
    seed: SamplesSeed = 0

    def __post_init__(self) -> None:
        """Raises OptionsError for an unknown target or what it lacks, and where not just one of the aims is given."""
        if not re.fullmatch(kinds.target_pattern(), self.target):
            known = ", ".join(map(repr, kinds.names()))
            raise OptionsError(f"target {self.target!r:.80} is unknown", fix=f"use {known}; see GET /targets")
        given = [one for one in ("largest_error", "latency_ms", "sparsity") if getattr(self, one) is not None]
        if len(given) != 1:
            raise OptionsError(
                f"{' and '.join(given)} are given together" if given else "nothing says how far to go",
                fix="give one of largest_error, latency_ms and sparsity",
            )
        self.timing()

    def timing(self) -> CompileOptions:
        """The compilation whose kernels' times count, without measuring. Raises OptionsError where none can be."""
        return CompileOptions(target=self.target, precision=self.precision, threads=self.threads, tuning_budget_s=0.0)

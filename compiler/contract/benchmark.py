"""How artifacts are timed: the options of a benchmark, checked when they are made."""

from __future__ import annotations

from dataclasses import fields
from typing import Annotated, Any

from pydantic import AfterValidator, Field, Strict, StrictBool, StrictInt
from pydantic.dataclasses import dataclass

from compiler.contract.bindings import AS_GIVEN, CONFIG, MAX_BINDINGS, Binding, Refusing, unchangeable
from compiler.contract.options import MAX_THREADS
from compiler.errors import OptionsError

MAX_BENCHMARK_SECONDS = 600.0


@dataclass(frozen=True, config=CONFIG)
class BenchmarkOptions(Refusing):
    """How artifacts are timed against each other on one device."""

    threads: StrictInt | None = Field(
        default=None, ge=1, le=MAX_THREADS, description="lanes of each artifact; null: those of its plan"
    )
    seconds: Annotated[float, Strict(), AS_GIVEN] = Field(
        default=3.0,
        gt=0,
        le=MAX_BENCHMARK_SECONDS,
        description="wall seconds of timed runs per artifact; rounds of all artifacts are interleaved in random order",
    )
    profile: StrictBool = Field(default=True, description="whether each kernel is timed too, in separate runs")
    seed: StrictInt = Field(default=0, ge=0, description="seed of the inputs and of the order")
    binding: StrictInt | None = Field(
        default=None,
        ge=1,
        le=MAX_BINDINGS,
        description="which binding of artifacts that hold several, from 1; null: the first of each that has `dims`",
    )
    dims: Annotated[Binding, AfterValidator(unchangeable)] = Field(
        default_factory=dict,
        validate_default=True,
        description="by name of a dimension of a range: the size to time; without one the range's `opt`",
        examples=[{"batch": 3}],
    )

    def demand_no_sizes(self) -> None:
        """Raises OptionsError for sizes beside a sample, which says them itself."""
        if self.dims:
            raise OptionsError(
                f"dims names {', '.join(sorted(self.dims))}, whose sizes the sample says", fix="leave `dims` out"
            )

    def to_json(self) -> dict[str, Any]:
        """Plain JSON; `from_json` reads it back to an equal object."""
        return {f.name: getattr(self, f.name) for f in fields(self)} | {"dims": dict(sorted(self.dims.items()))}

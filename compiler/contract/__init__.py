"""What the outside may know of a compilation: the options going in, the events and the report coming out.

Standard library and pydantic only: the API process imports this package and must stay light. What is known of the kinds
of device is asked of the module `compiler.contract.kinds` itself.
"""

from compiler.contract.benchmark import MAX_BENCHMARK_SECONDS, BenchmarkOptions
from compiler.contract.bindings import DimRange, InputSpec
from compiler.contract.compression import CompressOptions
from compiler.contract.digest import bundle_digest
from compiler.contract.events import (
    LIVE,
    MOST_PIECE_BYTES,
    MOST_PIECES,
    MOST_PIECES_BYTES,
    MOST_TOKENS,
    PHASES,
    PIECE,
    TOKENS,
    Event,
)
from compiler.contract.kinds import Kind
from compiler.contract.legalisation import LegaliseOptions
from compiler.contract.options import MAX_BUDGET_SECONDS, MAX_THREADS, CompileOptions
from compiler.contract.placement import PlaceOptions
from compiler.contract.quantization import QuantizeOptions
from compiler.contract.report import (
    BesideFloat32,
    BindingReport,
    CompileReport,
    CpuTime,
    DemandedRange,
    DevicesReport,
    JudgedCase,
    LayerError,
    LayerPrecision,
    OutputError,
    PartReport,
    PipelineReport,
    PlacedCandidate,
    PlacedOperator,
    PlacedPart,
    PlacementReport,
    PlanReached,
    PointReport,
    QuantisedLayer,
    QuantisedOutput,
    QuantisedReport,
    SizeReport,
)
from compiler.contract.samples import MOST_SAMPLES
from compiler.contract.schema import properties, schema
from compiler.contract.version import COMPILER_VERSION, generator

__all__ = [
    "COMPILER_VERSION",
    "LIVE",
    "MAX_BENCHMARK_SECONDS",
    "MAX_BUDGET_SECONDS",
    "MAX_THREADS",
    "MOST_PIECES",
    "MOST_PIECES_BYTES",
    "MOST_PIECE_BYTES",
    "MOST_SAMPLES",
    "MOST_TOKENS",
    "PHASES",
    "PIECE",
    "TOKENS",
    "BenchmarkOptions",
    "BesideFloat32",
    "BindingReport",
    "CompileOptions",
    "CompileReport",
    "CompressOptions",
    "CpuTime",
    "DemandedRange",
    "DevicesReport",
    "DimRange",
    "Event",
    "InputSpec",
    "JudgedCase",
    "Kind",
    "LayerError",
    "LayerPrecision",
    "LegaliseOptions",
    "OutputError",
    "PartReport",
    "PipelineReport",
    "PlaceOptions",
    "PlacedCandidate",
    "PlacedOperator",
    "PlacedPart",
    "PlacementReport",
    "PlanReached",
    "PointReport",
    "QuantisedLayer",
    "QuantisedOutput",
    "QuantisedReport",
    "QuantizeOptions",
    "SizeReport",
    "bundle_digest",
    "generator",
    "properties",
    "schema",
]

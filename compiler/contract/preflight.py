"""What is found out about a model before it is compiled: the answer of `compiler.preflight`, and most of the API's.

The one description of it: what makes the answer, what checks it and OpenAPI have it from here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import BaseModel, Field


class ProblemOut(BaseModel):
    """Why a model would not be compiled."""

    code: str = Field(description="Stable; the one a compilation would fail with.")
    fault: str = Field(description="`caller`, `ours` or `machine`.")
    message: str
    fix: str
    refusals: list[dict[str, Any]] = []
    details: dict[str, Any] = {}


class VerdictOut(BaseModel):
    """One operator of the model."""

    operator: str
    domain: str
    count: int
    verdict: Literal["supported", "refused"]
    reasons: list[str]
    fixes: list[str]
    nodes: list[str] = Field(description="The first few, by name.")
    unchecked: int = Field(description="Calls that read results of a refused call: only the operator was checked.")


class NodeRefusalOut(BaseModel):
    """One reason against one node or input."""

    reason: str
    fix: str
    node: str
    operator: str


class OutputOut(BaseModel):
    """An output of the model; null where nothing is known."""

    name: str
    dtype: str | None
    shape: list[int | str | None] | None


class StateOut(BaseModel):
    """A state that goes from inference to inference; null where nothing is known."""

    output: str
    input: str = Field(description="That the output is in the next inference.")
    dtype: str | None
    shape: list[int | str | None] | None


class InputOut(OutputOut):
    """An input of the model; a dimension is a number, a symbol's name, or null where the file says nothing."""

    taken: list[int | str | None] | None = Field(
        default=None,
        description="The sizes that it would be compiled for, with `corrected` where those given leave it open; of a "
        "range the one to tune for. Null where none are known.",
    )
    bound: bool = Field(description="Whether the options leave no dimension of it open.")
    range: list[float | None] | None = Field(
        default=None,
        description="What random inputs are drawn from: the least and the greatest number, null where there is no "
        "bound; null where the model demands nothing of it.",
    )
    why: str = Field(default="", description="The nodes that demand this range.")


class WantedOut(NodeRefusalOut):
    """A node that reads positions which are computed, so that random inputs may lead it outside."""

    inputs: list[str] = Field(description="From which they are computed.")


class GflopOut(BaseModel):
    """The work of one inference."""

    value: float | None
    counts: str = Field(description="What is counted.")


class ProofOut(BaseModel):
    """Estimates of one evaluation of the float64 reference, by which the artifact is proved.

    Null unless every node is supported.
    """

    seconds: float | None = Field(description="Wall seconds; the option `proof_limit_s` bounds them.")
    bytes: int | None


class MemoryOut(BaseModel):
    """Estimates of resident memory, in bytes; null unless every node is supported."""

    compile: int | None
    run: int | None


class ProfileOut(BaseModel):
    """The profile that the target stands for where this was answered, or why there is none."""

    name: str | None
    reason: str | None


class SparseOut(BaseModel):
    """A weight tensor with many zeros."""

    name: str
    shape: list[int]
    share: float = Field(description="Share of its elements that are zero.")
    form: str = Field(
        description="How the zeros lie: `unstructured`, `2:4`, `4x1 vectors`, `16x4 blocks`, `6 patterns of 4 of 9`, "
        "`lines`, `combined`, ..."
    )
    zero_lines: int = Field(description="Indices of the first axis (filters) at which all is zero.")
    equal_lines: int = Field(description="Those at which all is as at one before them.")
    zero_inputs: int = Field(description="Indices of the second axis (input channels) at which all is zero.")
    columns: int | None = Field(description="Of `combined` weights: inputs of a line (channels x window).")
    packed: int | None = Field(description="In how many these can be packed, with at most one weight of each line.")
    filled: float | None = Field(description="The share of the packed ones that is not zero.")


class LowRankOut(BaseModel):
    """A matrix that is a product of two with at most half as many elements."""

    name: str
    shape: list[int]
    rank: int = Field(description="Columns of the first, rows of the second.")


class SharedOut(BaseModel):
    """A weight tensor of few distinct values."""

    name: str
    shape: list[int]
    values: int = Field(description="In the largest codebook.")
    bits: int = Field(description="Bits of an index: 1, 2, 4 or 8.")
    codebooks: int = Field(description="One, or one for each index of `axis`.")
    axis: int | None = Field(description="The axis whose indices have codebooks of their own.")
    zeros: float = Field(description="The share of elements that are zero.")
    saved_bytes: int = Field(description="By which indices and codebooks are smaller than the tensor.")


class QuantisedOut(BaseModel):
    """A weight tensor whose values are codes of few bits times a scale for each block."""

    name: str
    shape: list[int]
    bits: int = Field(description="Bits of a code: 2, 4 or 8.")
    block: int = Field(description="Values with one scale.")
    axis: int = Field(description="The axis along which they lie.")
    zero_points: bool = Field(description="Whether each block has a zero point.")
    saved_bytes: int = Field(description="By which codes, scales and zero points are smaller than the tensor in fp32.")


class ModelAnswer(BaseModel):
    """What was found out about the model, by reading it."""

    ok: bool = Field(description="Whether it would be compiled as asked.")
    problem: ProblemOut | None = Field(description="The first thing in the way.")
    nodes: int
    """Operators called in the file, dead ones not counted."""
    operators: list[VerdictOut]
    refusals: list[NodeRefusalOut] = Field(description="All of them.")
    inputs: list[InputOut]
    samples: list[WantedOut] = Field(default=[], description="Nodes for whose sake samples should be given.")
    outputs: list[OutputOut]
    carried: list[StateOut] = Field(
        default=[], description="States that `carry` hands on; none where a pair of it is refused."
    )
    suggested_states: list[StateOut] = Field(
        default=[], description="Further states that names of outputs and inputs say: on one CPU `carry` may be `auto`."
    )
    parameters: int
    """Elements of the file's tensors that are read; `weight_bytes` are their bytes."""
    weight_bytes: int
    # The largest of each come first.
    sparse: list[SparseOut] = Field(default=[], description="Weight tensors with at least half of their elements zero.")
    low_rank: list[LowRankOut] = Field(
        default=[], description="Matrices that are products of two with at most half as many elements."
    )
    shared: list[SharedOut] = Field(default=[], description="Weight tensors of at most 256 distinct values.")
    quantised: list[QuantisedOut] = Field(default=[], description="Weight tensors that were quantised in blocks.")
    activation_bytes: int | None = Field(description="Peak of all tensors but weights, before fusion.")
    gflop: GflopOut
    proof: ProofOut
    memory_bytes: MemoryOut
    notices: list[str]
    corrected: dict[str, Any] | None = Field(
        description="Options under which no option and no dimension is in the way; null when those given are so."
    )
    target: ProfileOut
    """Of an accelerator's kind alone (`cuda`) this name itself: only a worker that holds one can say what it is."""


def unread(
    problem: Mapping[str, Any],
    refusals: Sequence[Mapping[str, Any]] = (),
    target: Mapping[str, Any] | None = None,
    counts: str = "",
) -> ModelAnswer:
    """The answer where the model was not read, because of this problem. Raises `ValidationError` for what is none.

    counts  what `gflop` would count
    """
    return ModelAnswer.model_validate(
        {
            "ok": False,
            "problem": ProblemOut.model_validate(problem),
            "nodes": 0,
            "operators": [],
            "refusals": refusals,
            "inputs": [],
            "outputs": [],
            "parameters": 0,
            "weight_bytes": 0,
            "activation_bytes": None,
            "gflop": {"value": None, "counts": counts},
            "proof": {"seconds": None, "bytes": None},
            "memory_bytes": {"compile": None, "run": None},
            "notices": [],
            "corrected": None,
            "target": target or {"name": None, "reason": None},
        }
    )

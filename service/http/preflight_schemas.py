"""The answer of `POST /preflight`, as OpenAPI shows it."""

from __future__ import annotations

import uuid
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from service.http.model_schemas import DIGEST_EXAMPLE
from service.jobs.capabilities import nobody
from service.jobs.oracle import FAILED
from service.jobs.preflight import Foretold

PREFLIGHT_EXAMPLE: dict[str, Any] = {
    "ok": False,
    "problem": {
        "code": "unbound_dimension",
        "fault": "caller",
        "message": "the model has dimensions without a value",
        "fix": 'bind them in the options, for example {"dims": {"height": 224}}',
        "refusals": [],
        "details": {},
    },
    "nodes": 2,
    "operators": [
        {
            "operator": "Conv",
            "domain": "ai.onnx",
            "count": 2,
            "verdict": "supported",
            "reasons": [],
            "fixes": [],
            "nodes": ["conv1", "conv2"],
            "unchecked": 0,
        }
    ],
    "refusals": [],
    "inputs": [
        {
            "name": "image",
            "dtype": "f32",
            "shape": ["batch", 3, "height", 224],
            "taken": [1, 3, 224, 224],
            "bound": False,
            "range": None,
            "why": "",
        }
    ],
    "samples": [],
    "outputs": [{"name": "scores", "dtype": "f32", "shape": [1, 16, 224, 224]}],
    "carried": [],
    "parameters": 880,
    "weight_bytes": 3520,
    "sparse": [],
    "low_rank": [],
    "shared": [],
    "activation_bytes": 6422528,
    "gflop": {"value": 0.088, "counts": "billions of operations, 2 for each multiply-accumulate"},
    "proof": {"seconds": 0.144, "bytes": 99876543},
    "memory_bytes": {"compile": 572544000, "run": 14814656},
    "notices": ["the batch dimension ('batch') of input 'image' was not bound and is set to 1"],
    "corrected": {"target": "cpu", "dims": {"height": 224}},
    "target": {"name": "cpu:x86-64-v4", "reason": None},
    "cached": None,
    "queue": {"name": "cpu", "position": 0, "workers": 1, "notice": None},
    "estimate": {"median_s": 11.2, "p90_s": 19.0, "jobs": 7},
    "request": {
        "model": DIGEST_EXAMPLE,
        "options": {"target": "cpu", "dims": {"height": 224}},
        "compiler": None,
    },
}


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


class QueueOut(BaseModel):
    """Where the job would wait."""

    name: str
    position: int = Field(description="How many jobs would go first.")
    workers: int = Field(description="How many workers that are alive serve it.")
    notice: str | None = Field(description="What to start if no worker serves it.")


class EstimateOut(BaseModel):
    """Compile seconds of your past jobs of this queue whose models had between half and twice the nodes.

    Without any (`jobs` is 0), for a CPU, by the number of nodes, what proving takes and the tuning budget.
    """

    median_s: float
    p90_s: float
    jobs: int = Field(description="How many jobs this rests on; 0: none.")


class CompileRequest(BaseModel):
    """A body for `POST /compile`."""

    model: str
    options: dict[str, Any]
    compiler: str | None = Field(None, description="As it was asked for.")


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


class ModelAnswer(BaseModel):
    """What was found out about the model, by reading it."""

    ok: bool = Field(description="Whether it would be compiled as asked.")
    problem: ProblemOut | None = Field(description="The first thing in the way.")
    nodes: int
    operators: list[VerdictOut]
    refusals: list[NodeRefusalOut] = Field(description="All of them.")
    inputs: list[InputOut]
    samples: list[WantedOut] = Field(default=[], description="Nodes for whose sake samples should be given.")
    outputs: list[OutputOut]
    carried: list[StateOut] = Field(
        default=[], description="States that `carry` hands on; none where a pair of it is refused."
    )
    parameters: int
    weight_bytes: int
    sparse: list[SparseOut] = Field(default=[], description="Weight tensors with at least half of their elements zero.")
    low_rank: list[LowRankOut] = Field(
        default=[], description="Matrices that are products of two with at most half as many elements."
    )
    shared: list[SharedOut] = Field(default=[], description="Weight tensors of at most 256 distinct values.")
    activation_bytes: int | None = Field(description="Peak of all tensors but weights, before fusion.")
    gflop: GflopOut
    proof: ProofOut
    memory_bytes: MemoryOut
    notices: list[str]
    corrected: dict[str, Any] | None = Field(
        description="Options under which no option and no dimension is in the way; null when those given are so."
    )
    target: ProfileOut


class PreflightOut(ModelAnswer):
    """What would become of a compilation."""

    model_config = ConfigDict(json_schema_extra={"example": PREFLIGHT_EXAMPLE})

    cached: uuid.UUID | None = Field(description="The artifact with which `request` would be answered at once.")
    queue: QueueOut
    estimate: EstimateOut | None = Field(
        description="Null where the model would be refused, and for other devices without a past job like it."
    )
    request: CompileRequest = Field(description="The request again, corrected.")

    @classmethod
    def of(cls, found: Foretold) -> Self:
        """From the command's result.

        An answer that is none (the process that gave it may be hostile) becomes a problem.
        """
        try:
            answer = ModelAnswer.model_validate(found.answer)
        except ValidationError:
            answer = _unanswered(found)
        estimate = found.estimate
        return cls(
            **answer.model_dump(),
            cached=found.cached,
            queue=_queue(found),
            estimate=EstimateOut(**vars(estimate)) if estimate else None,
            request=CompileRequest.model_validate(found.request),
        )


def _queue(found: Foretold) -> QueueOut:
    notice = None if found.workers else nobody(found.queue)
    if notice and found.compiler:
        notice = f"no live worker with compiler {found.compiler} serves {found.queue}: {nobody(found.queue)}"
    return QueueOut(name=found.queue, position=found.ahead, workers=found.workers, notice=notice)


def _unanswered(found: Foretold) -> ModelAnswer:
    """What is known when no answer came: the problem that the oracle reports, or that there is none."""
    try:
        problem = ProblemOut.model_validate(found.answer["problem"])
    except (KeyError, ValidationError):
        problem = ProblemOut(
            code=FAILED,
            fault="ours",
            message="the process that reads the model answered with something else",
            fix="check that the model loads elsewhere; if it does, report it: no input may do that",
        )
    return ModelAnswer(
        ok=False,
        problem=problem,
        nodes=0,
        operators=[],
        refusals=[],
        inputs=[],
        samples=[],
        outputs=[],
        parameters=0,
        weight_bytes=0,
        activation_bytes=None,
        gflop=GflopOut(value=None, counts=""),
        proof=ProofOut(seconds=None, bytes=None),
        memory_bytes=MemoryOut(compile=None, run=None),
        notices=[],
        corrected=None,
        target=ProfileOut(name=None, reason=None),
    )

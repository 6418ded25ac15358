"""What would become of a compilation: the inspector's answer about the model, and what the database knows beside it."""

from __future__ import annotations

import math
import statistics
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from compiler.contract import CompileOptions, kinds
from compiler.errors import InternalError, OptionsError
from service.blobs.store import Blobs
from service.db import estimates, jobs, workers
from service.db.artifacts import onnx_bytes
from service.db.engine import Database
from service.db.models import Model
from service.db.plain import storable
from service.errors import Busy
from service.jobs.inspection.inspector import BUSY, MEMORY_BYTES, Inspector
from service.jobs.storage import models
from service.jobs.submission.job_terms import Beside, allows
from service.jobs.submission.submit import Submission
from service.logs import logger

CPU_S = 20.0
"""Processor seconds that reading one model may take."""
COPIES = 3
"""Of a model in the memory of what reads it: its bytes, the message, its tensors."""
PAST_JOBS = 200
"""The newest of the owner's jobs that an estimate looks at."""
SIMILAR = 2.0
"""Models are alike when one has at most this many times the nodes of the other."""

BUILD_S, BUILD_NODE_S = 1.5, 0.018
"""Without measuring a compilation for a CPU takes so long and so long for each node: SqueezeNet and Inception V3 took
2.6 and 7.1 s on two cores."""
MEASURE_NODE_S = 0.2
"""Measuring finds little more after so long for each node, or when the budget is spent."""

log = logger(__name__)


@dataclass(frozen=True)
class Estimate:
    """Seconds that compiling took of the owner's `jobs` past jobs of this queue with a similar number of nodes.

    Where there are none, by the size of the model and what the options grant.
    """

    median_s: float
    p90_s: float
    jobs: int


@dataclass(frozen=True)
class Foretold:
    """`answer` is the inspector's, unchecked.

    What follows is for the options of `request`, corrected where they have to be.

    cached    id of the artifact that would answer at once
    queue     the device class that would compile it, `ahead` jobs would go first, `workers` that serve it are alive
    request   a body for `POST /compile`
    compiler  the version of it that was asked for; workers of others are not counted
    """

    answer: Mapping[str, Any]
    cached: uuid.UUID | None
    queue: str
    ahead: int
    workers: int
    estimate: Estimate | None
    request: Mapping[str, Any]
    compiler: str | None = None


def preflight(
    db: Database,
    blobs: Blobs,
    inspector: Inspector,
    owner: uuid.UUID,
    digest: str,
    options: CompileOptions,
    *,
    alive_s: float,
    compiler: str | None = None,
) -> Foretold:
    """Blocking; makes no job.

    alive_s   within which a worker must have been seen to count as alive
    compiler  the version of it that the job is to ask for; None: any

    Raises `NotFound` (no such model), `Busy` (too many ask at once), `StorageUnavailable` and
    `DatabaseUnavailable`.
    """
    model = models.row(db, owner, digest)
    answer = _ask(blobs, inspector, model, options)
    chosen = _corrected(answer) or options
    queue = chosen.held
    with db.read() as session:
        submission = Submission(owner, digest, chosen, beside=Beside(compiler=compiler))
        source = jobs.cached(session, owner, submission.cache_key)
        past = estimates.compile_seconds(session, owner, queue, newest=PAST_JOBS)
        return Foretold(
            answer=answer,
            cached=source.artifact_id if source is not None else None,
            queue=queue,
            ahead=estimates.ahead(session, queue, priority=0),
            workers=sum(
                queue in worker.queues and allows(compiler, worker.compiler)
                for worker in workers.alive(session, alive_s)
            ),
            estimate=estimate_of(past, answer.get("nodes")) or estimate_by_size(answer, chosen),
            request={"model": digest, "options": chosen.to_json(), "compiler": compiler},
            compiler=compiler,
        )


def estimate_of(past: Sequence[tuple[int | None, float]], nodes: object) -> Estimate | None:
    """From nodes and seconds of past jobs; None when none of them was of a model like this one."""
    if not isinstance(nodes, int) or nodes < 1:
        return None
    alike = sorted(seconds for count, seconds in past if count and max(count, nodes) <= SIMILAR * min(count, nodes))
    if not alike:
        return None
    return Estimate(statistics.median(alike), alike[min(len(alike) - 1, int(0.9 * len(alike)))], len(alike))


def estimate_by_size(answer: Mapping[str, Any], options: CompileOptions) -> Estimate | None:
    """What compiling a model takes on two idle cores, within a factor of two; None where it is not known.

    That is for other devices than CPUs, and for models that would be refused. The longest is with the whole tuning
    budget spent, and an artifact made before.
    """
    nodes, proof = answer.get("nodes"), answer.get("proof")
    proof_s = proof.get("seconds") if isinstance(proof, Mapping) else None
    known = isinstance(nodes, int) and nodes > 0 and isinstance(proof_s, int | float) and 0 <= proof_s < math.inf
    if not known or not answer.get("ok") or kinds.of(options.held).name != kinds.CPU.name:
        return None
    assert isinstance(nodes, int)
    build_s = BUILD_S + BUILD_NODE_S * nodes + float(proof_s or 0.0)
    budget_s = options.tuning_budget_s
    return Estimate(build_s + min(budget_s, MEASURE_NODE_S * nodes), 2 * build_s + budget_s, 0)


def _ask(blobs: Blobs, inspector: Inspector, model: Model, options: CompileOptions) -> dict[str, Any]:
    order = _laid_out(blobs, model, options)
    answer: dict[str, Any] = storable(inspector.ask(order, CPU_S, MEMORY_BYTES + COPIES * model.bytes))
    problem = answer.get("problem")
    if isinstance(problem, dict) and problem.get("code") == BUSY:
        raise Busy("too many models are being looked at", fix="ask again in a moment")
    if isinstance(problem, dict) and problem.get("code") == InternalError.code:
        log.error("a model cannot be looked at by a fault of ours", model=model.digest, problem=problem)
        fix = f"report it with the digest of the model, {model.digest}"
        answer["problem"] = {**problem, "message": "the model cannot be looked at; this is our fault", "fix": fix}
    return answer


@contextmanager
def _laid_out(blobs: Blobs, model: Model, options: CompileOptions) -> Iterator[Mapping[str, Any]]:
    """The order, with copies of the model's files, which are gone afterwards. Raises as `Blobs.copy` does."""
    with ExitStack() as copied:
        yield {
            "order": "preflight",
            "model": str(copied.enter_context(blobs.copy(model.blob_key, onnx_bytes(model))).absolute()),
            "data": {
                file["path"]: str(copied.enter_context(blobs.copy(file["key"], file["bytes"])).absolute())
                for file in model.files
            },
            "options": options.to_json(),
        }


def _corrected(answer: Mapping[str, Any]) -> CompileOptions | None:
    """The corrected options of an answer, if it has any that are options."""
    try:
        return CompileOptions.from_json(answer["corrected"])
    except (KeyError, TypeError, OptionsError):
        return None

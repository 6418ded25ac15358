"""The kinds of job, each one record.

It holds what API and worker know of a kind, and names the modules that hold the rest of it. `KINDS` is the
registration of a kind. Read it through this module (`job_kinds.KINDS`, `job_kinds.of`), never as a copy made when a
module is loaded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from compiler.contract.compression import CompressOptions
from compiler.contract.legalisation import LegaliseOptions
from compiler.contract.options import CompileOptions
from compiler.contract.placement import PlaceOptions
from compiler.contract.quantization import QuantizeOptions

REPORT = {"report": "/jobs/{job}/report"}
MODEL = "service.jobs.stored.model"


@dataclass(frozen=True)
class JobKind:
    """One kind of job.

    name     in rows, in the API and in the orders of the process that does the job; at most 16 letters
    work     the module with `work(spec, outbox)`, which does such a job inside the walls and returns its report
    stored   the module with `store(session, claim, success)`, which writes what a job made
    routes   the module with the `router` of the requests that make such jobs
    links    by name where in the API a job's things are; `{job}`, `{artifact}` and `{made}` stand for ids, and a link
             with `{made}` is there once the job has made its model
    reads    whether it reads a model; others run artifacts
    times    whether it measures on the device of its target, beside earlier measurements
    writes   whether it writes a file; others make nothing but their report
    made     what the model is called that it makes: `quantized` in links, `quantized_model` in reports; empty: none
    options  the class of its options, where the API describes them
    example  of these options
    """

    name: str
    work: str
    stored: str = ""
    routes: str = ""
    links: Mapping[str, str] = field(default_factory=dict)
    reads: bool = True
    times: bool = False
    writes: bool = True
    made: str = ""
    options: type[Any] | None = None
    example: Mapping[str, Any] = field(default_factory=dict)


COMPILE = JobKind(
    name="compile",
    work="worker.work.compilation",
    stored="service.jobs.stored.artifact",
    routes="service.http.routes.compile",
    links={**REPORT, "artifact": "/artifacts/{artifact}", "receipt": "/artifacts/{artifact}/receipt"},
    times=True,
    options=CompileOptions,
    example={"target": "cpu", "precision": "fp32", "threads": 4, "dims": {"batch": 1}, "tuning_budget_s": 20},
)

BENCHMARK = JobKind(
    name="benchmark",
    work="worker.work.benchmark",
    stored="service.jobs.stored.benchmark",
    routes="service.http.routes.benchmarks",
    links={"benchmark": "/benchmarks/{job}"},
    reads=False,
    writes=False,
)

INFERENCE = JobKind(
    name="inference",
    work="worker.work.inference",
    stored="service.jobs.stored.inference",
    routes="service.http.routes.inferences",
    links={"inference": "/inferences/{job}", "outputs": "/inferences/{job}/outputs"},
    reads=False,
)

QUANTIZATION = JobKind(
    name="quantization",
    work="worker.work.quantization",
    stored=MODEL,
    routes="service.http.routes.quantizations",
    links={**REPORT, "quantized": "/models/{made}/file"},
    made="quantized",
    options=QuantizeOptions,
    example={"ranges": "mse", "snr_db": 30.0, "equalise": True},
)

COMPRESSION = JobKind(
    name="compression",
    work="worker.work.compression",
    stored=MODEL,
    routes="service.http.routes.compressions",
    links={**REPORT, "compressed": "/models/{made}/file"},
    times=True,
    made="compressed",
    options=CompressOptions,
    example={"largest_error": 0.05, "form": "1x4"},
)

LEGALISATION = JobKind(
    name="legalisation",
    work="worker.work.legalisation",
    stored=MODEL,
    routes="service.http.routes.legalisations",
    links={**REPORT, "legalised": "/models/{made}/file"},
    made="legalised",
    options=LegaliseOptions,
    example={"profile": "edgetpu", "tolerance": 0.02},
)

PLACEMENT = JobKind(
    name="placement",
    work="worker.work.placement",
    stored="service.jobs.stored.report",
    routes="service.http.routes.placements",
    links=REPORT,
    writes=False,
    options=PlaceOptions,
    example={
        "platform": {
            "about": "a core and an accelerator",
            "sources": ["their manuals"],
            "devices": {
                "arm": {"formula": {"macs": 3.7e9, "elements": 1.5e8}},
                "tpu": {"accelerator": {"profile": "edgetpu"}},
            },
            "links": {"usb": {"between": ["arm", "tpu"], "bytes": 3.2e8}},
        },
        "objective": "throughput",
    },
)

MINIMISATION = JobKind(
    name="minimisation",
    work="worker.work.minimisation",
    stored=MODEL,
    routes="service.http.routes.minimisations",
    links={**REPORT, "minimised": "/models/{made}/file"},
    made="minimised",
)

KINDS: tuple[JobKind, ...] = (
    COMPILE,
    BENCHMARK,
    INFERENCE,
    QUANTIZATION,
    COMPRESSION,
    LEGALISATION,
    PLACEMENT,
    MINIMISATION,
)

TUNING = JobKind(name="tuning", work="worker.work.tuning", reads=False, times=True, writes=False)
"""No job's: a process of another worker measures kernels of a compilation."""


def of(name: str) -> JobKind:
    """The kind of this name. Raises `LookupError` for one that is not registered."""
    found = next((kind for kind in (*KINDS, TUNING) if kind.name == name), None)
    if found is None:
        raise LookupError(f"{name!r} is no kind of job that is registered")
    return found


def names() -> tuple[str, ...]:
    """Of every kind of job."""
    return tuple(kind.name for kind in KINDS)

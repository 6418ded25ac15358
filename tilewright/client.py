"""A synchronous client of a Tilewright server.

with Client() as client:
    job = client.wait(client.compile("model.onnx", {"threads": 4})).require_success()
    client.download(job, "model.tw")
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypedDict, TypeVar, Unpack, overload

import httpx

from tilewright import download as downloads
from tilewright import job_kinds, records
from tilewright import samples as given_samples
from tilewright.artifacts import Artifacts
from tilewright.batches import Batches
from tilewright.benchmark import Benchmark
from tilewright.discover import find_server
from tilewright.download import Progress, unheard
from tilewright.errors import UsageError
from tilewright.follow import follow
from tilewright.http import IDEMPOTENCY_KEY, Http
from tilewright.inferences import Inferences
from tilewright.names import artifact_of, digest_of, id_of
from tilewright.owners import Owners
from tilewright.package import package
from tilewright.shares import Shares
from tilewright.uploads import upload
from tilewright.webhooks import Webhooks
from tilewright.wire import (
    Inference,
    Job,
    JobEvent,
    Operator,
    Preflight,
    StoredModel,
    Target,
    TuningRecord,
    Work,
    Worker,
)
from tilewright.workloads import Workloads

PAGE = 200

ModelGiven = str | Path | bytes | StoredModel
"""The path of an ONNX file, of a zip or of a folder; an address, `hf://owner/repo/file.onnx` or `https://...`; the
bytes; the digest of a model that the server has; or what `upload` gave."""
Options = Mapping[str, Any]
Followed = TypeVar("Followed", Job, Benchmark, Inference)
Kind = TypeVar("Kind", bound=Work)


class Labels(TypedDict, total=False):
    """What a job or a model is called."""

    name: str | None
    note: str | None
    tags: Sequence[str] | None


class Beside(TypedDict, total=False):
    """What may be said of a job beside what is to be done.

    name, note, tags  what it is called, and found by in lists
    max_queue_s       seconds in which a worker must have begun it, else it fails
    max_run_s         seconds that an attempt may take, where the operator allows as many
    compiler          version of the compiler whose workers alone may take it: `0.1.0`, `0.1.*` or `0.*`
    """

    name: str
    note: str
    tags: Sequence[str]
    max_queue_s: float
    max_run_s: float
    compiler: str


class Changing(Beside, total=False):
    """Of a job that makes another model of one.

    data             as for `upload`
    samples          .npz files, or arrays by the names of the model's inputs, to calibrate on: one sample each, or
                     several along a first axis. Without any, random ones are drawn
    priority         greater goes first
    idempotency_key  by which the server knows a request that comes twice
    progress         of the upload
    """

    data: Sequence[str | Path]
    samples: Sequence[str | Path | Mapping[str, Any]]
    priority: int
    idempotency_key: str
    progress: Progress


class Wishes(Beside, total=False):
    """Of a compilation.

    fresh     even if the cache has it
    workload  one of the model, by name: sizes of its open dimensions
    priority  greater goes first
    """

    fresh: bool
    workload: str
    priority: int


def _unseen(event: JobEvent) -> None:
    pass


class Client(Artifacts, Batches, Inferences, Owners, Shares, Webhooks, Workloads):
    """Connections to one server; close it, or use it in a `with` block. Several threads may use one at once.

    Every method raises `ServerUnreachable` when the server does not answer and `RequestRefused` when it answers with a
    problem. What reads, and what the server recognises when it comes twice, is repeated by itself, with growing pauses
    or those that `Retry-After` asks for. Without arguments the server is found as `tilewright.discover` says.
    """

    def __init__(
        self,
        url: str = "",
        key: str = "",
        *,
        profile: str = "",
        transport: httpx.BaseTransport | None = None,
        timeout_s: float = 60.0,
        pause_s: float = 0.5,
    ) -> None:
        server = find_server(url, key, profile)
        self._http = Http.open(server.url, server.key, transport, timeout_s, pause_s)
        self.url = self._http.url
        self._for_jobs: Client | None = self

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.client.close()

    # Models

    def upload(
        self, model: str | Path | bytes, *, data: Sequence[str | Path] = (), progress: Progress = unheard
    ) -> StoredModel:
        """Bring a model to the server, unless it has it; a large one in pieces that outlive broken connections.

        data  files of external data beside an ONNX file; without, those that the file names

        Raises `UsageError` for what cannot be read.
        """
        return upload(self._http, package(model, data), progress)

    def models(self, *, tags: Sequence[str] = (), query: str = "", limit: int = 0) -> Iterator[StoredModel]:
        """The caller's models with all of these tags and this text in name or note, newest first; `limit` 0: all."""
        where = {"tag": list(tags), **({"query": query} if query else {})}
        return map(StoredModel.from_json, self._http.pages("/models", "models", where, limit, PAGE))

    def label_model(self, model: StoredModel | str, **changes: Unpack[Labels]) -> StoredModel:
        """Give a model another `name`, `note` or `tags`; None takes one away, what is left out stays."""
        answer = self._http.json("PATCH", f"/models/{digest_of(model)}", json=_said(changes))
        return StoredModel.from_json(answer)

    def delete_model(self, model: StoredModel | str) -> dict[str, Any]:
        """Remove a model and what hangs on it; what the server says of that, empty when it says nothing."""
        response = self._http.request("DELETE", f"/models/{digest_of(model)}")
        return self._http.parsed(response) if response.content else {}

    # Compilations

    @overload
    def compile(
        self,
        model: ModelGiven,
        options: Options | None = None,
        *,
        data: Sequence[str | Path] = (),
        samples: Sequence[str | Path | Mapping[str, Any]] = (),
        idempotency_key: str = "",
        progress: Progress = unheard,
        **beside: Unpack[Wishes],
    ) -> Job: ...

    @overload
    def compile(
        self,
        model: ModelGiven,
        options: Sequence[Options],
        *,
        data: Sequence[str | Path] = (),
        samples: Sequence[str | Path | Mapping[str, Any]] = (),
        idempotency_key: str = "",
        progress: Progress = unheard,
        **beside: Unpack[Wishes],
    ) -> list[Job]: ...

    def compile(
        self,
        model: ModelGiven,
        options: Options | Sequence[Options] | None = None,
        *,
        data: Sequence[str | Path] = (),
        samples: Sequence[str | Path | Mapping[str, Any]] = (),
        idempotency_key: str = "",
        progress: Progress = unheard,
        **beside: Unpack[Wishes],
    ) -> Job | list[Job]:
        """Queue a compilation; its job, which may have SUCCEEDED from the cache.

        Several options: as many jobs, or none.

        progress  of the upload, which is skipped when the server has the model
        data      as for `upload`
        samples   .npz files, or arrays by the names of the model's inputs: the artifact is judged on each, and timed
                  on the first
        beside    `fresh`, `priority`, `workload` (one of the model, by name), and what `Beside` has

        Repeated by itself when the connection breaks: the idempotency key keeps that from making a second job.
        Raises `UsageError` for a file that cannot be read.
        """
        one = isinstance(options, Mapping | None)
        plain = dict(options or {}) if isinstance(options, Mapping | None) else [dict(each) for each in options]
        if not one and not plain:
            raise UsageError("the list of options is empty", fix="give one object of options for each job")
        workload = beside.pop("workload", "")
        body = {
            "model": self._digest(model, data, progress),
            "options": plain,
            "fresh": False,
            "priority": 0,
            **_said(beside),
        }
        request = given_samples.form(body, samples) if samples else {"json": body}
        if workload:
            request["params"] = {**request.get("params", {}), "workload": workload}
        answer = self._submit("/compile", key=idempotency_key, **request)
        return self._job(answer) if one else [self._job(said) for said in answer["jobs"]]

    def change(self, kind: str, model: ModelGiven, options: Options | None = None, **given: Unpack[Changing]) -> Job:
        """Queue a job of a model and options; `wait`, then `download_made` or `report`. Raises as `compile` does.

        kind  `quantization`, `compression`, or another one of `tilewright.job_kinds` that has a path
        """
        of = job_kinds.find(kind)
        if of is None or not of.path:
            known = ", ".join(one.name for one in job_kinds.KINDS if one.path)
            raise UsageError(f"no job of kind {kind!r} is made of a model and options", fix=f"use one of {known}")
        data, progress = given.pop("data", ()), given.pop("progress", unheard)
        key, samples = given.pop("idempotency_key", ""), given.pop("samples", ())
        body = {
            "model": self._digest(model, data, progress),
            "options": dict(options or {}),
            "priority": 0,
            **_said(given),
        }
        request = given_samples.form(body, samples) if samples else {"json": body}
        return self._job(self._submit(of.path, key=key, **request))

    def quantize(self, model: ModelGiven, options: Options | None = None, **given: Unpack[Changing]) -> Job:
        """Queue the quantisation of a model to 8-bit integers; `wait` for it, then `download_quantized`.

        options  ranges, percentile, activations, bias_correction, equalise, snr_db, keep, attention, outputs, inputs,
                 dims, derived_samples, seed

        `report` then has a row for each layer, and the signal to noise of each output. Raises as `compile` does.
        """
        return self.change("quantization", model, options, **given)

    def compress(self, model: ModelGiven, options: Options, **given: Unpack[Changing]) -> Job:
        """Queue the compression of a model's weights; `wait` for it, then `download_compressed`.

        options  one of largest_error, latency_ms and sparsity; form, method, keep, ends, target, precision, threads,
                 tuning_budget_s, inputs, dims, derived_samples, seed

        A quarter of the samples is held out, to judge the result on. `report` then has each layer's choice with error
        and time, and the curve of error against time. What that does to the accuracy on your task only a test on your
        own data can tell. Raises as `compile` does.
        """
        return self.change("compression", model, options, **given)

    def legalise(self, model: ModelGiven, options: Options, **given: Unpack[Changing]) -> Job:
        """Queue the bringing of a model to an accelerator with few operators; then `wait` and `download_legalised`.

        options  profile, a name or the fields of a profile's file; tolerance, judge, terms, method, fixed, whole,
                 inputs, dims, derived_samples, seed

        `report` then says of each node where it runs and why. Raises as `compile` does.
        """
        return self.change("legalisation", model, options, **given)

    def place(self, model: ModelGiven, options: Options, **given: Unpack[Changing]) -> Job:
        """Queue the prediction of where a model's parts would run on a described platform; `wait`, then `report`.

        options  platform, the fields of its file; objective, carry, inputs, dims

        Nothing is run: all times are predicted. Raises as `compile` does.
        """
        return self.change("placement", model, options, **given)

    def minimise(self, job: Job | str, seconds: float = 300.0, *, priority: int = 0, idempotency_key: str = "") -> Job:
        """Queue the search for the smallest part of a failed compilation's model that fails in the same way.

        `wait` for it, then `download_minimised`; `report` says which error the part ends with and what was tried.
        Raises as `compile` does, `ServerError` for what is no compilation that failed.
        """
        body = {"seconds": seconds, "priority": priority}
        return self._job(self._submit(f"/jobs/{id_of(job)}/minimise", json=body, key=idempotency_key))

    def download_made(self, job: Job, target: str | Path, progress: Progress = unheard) -> Path:
        """Fetch the model that a job made of another one to the file `target`, checked.

        Raises `JobFailed` when it failed, `UsageError` for what made none, `BrokenDownload`.
        """
        found = job.require_success().made
        if not found:
            raise UsageError(f"job {job.id} made no model", fix="give a quantization or the like that has ended")
        return downloads.download(self._http, found, job.id, Path(target), progress)

    download_quantized = download_compressed = download_legalised = download_minimised = download_made

    def preflight(
        self,
        model: ModelGiven,
        options: Options | None = None,
        *,
        data: Sequence[str | Path] = (),
        compiler: str = "",
        progress: Progress = unheard,
    ) -> Preflight:
        """What would become of a compilation, without queueing one; `compiler` as for `compile`."""
        pinned = {"compiler": compiler} if compiler else {}
        body = {"model": self._digest(model, data, progress), "options": dict(options or {}), **pinned}
        return Preflight.from_json(self._http.json("POST", "/preflight", json=body, repeat=True))

    def finish(self, job: Job | str) -> Job:
        """Ask a compilation for the best that it has found so far."""
        return self._job(self._http.json("POST", f"/jobs/{id_of(job)}/finish", repeat=True))

    def clone(
        self, job: Job | str, options: Options | None = None, *, idempotency_key: str = "", **beside: Unpack[Wishes]
    ) -> Job:
        """Compile the same model again; `options` replace those of the job, each as a whole."""
        body = {"options": dict(options or {}), "fresh": False, **_said(beside)}
        return self._job(self._submit(f"/jobs/{id_of(job)}/clone", json=body, key=idempotency_key))

    # Jobs of any kind

    def job(self, job: Work | str) -> Job:
        """The job as it is now."""
        return self._job(self._http.json("GET", f"/jobs/{id_of(job)}"))

    def jobs(
        self,
        /,
        *,
        states: Sequence[str] = (),
        kinds: Sequence[str] = (),
        tags: Sequence[str] = (),
        limit: int = 0,
        **where: str,
    ) -> Iterator[Job]:
        """The caller's jobs, newest first; `limit` 0: all.

        tags   those that have all of these
        where  `query` (text in name or note), `model` (a digest), `queue`, `since`, `until` (RFC 3339)
        """
        wanted = {"state": list(states), "kind": list(kinds), "tag": list(tags), **where}
        return map(self._job, self._http.pages("/jobs", "jobs", wanted, limit, PAGE))

    def label(self, job: Work | str, **changes: Unpack[Labels]) -> Job:
        """Give a job another `name`, `note` or `tags`; None takes one away, what is left out stays."""
        return self._job(self._http.json("PATCH", f"/jobs/{id_of(job)}", json=_said(changes)))

    def cancel(self, job: Work | str) -> Job:
        """Ask for the end of a job; one that runs is stopped within seconds."""
        return self._job(self._http.json("POST", f"/jobs/{id_of(job)}/cancel"))

    def purge(self, job: Work | str) -> dict[str, Any]:
        """Delete a job with all that it made; what the server says of that. While it is `stopping`, ask again."""
        return self._http.json("POST", f"/jobs/{id_of(job)}/purge")

    def report(self, job: Work | str) -> dict[str, Any]:
        """What an ended job says of itself."""
        return self._http.json("GET", f"/jobs/{id_of(job)}/report")

    def log(self, job: Work | str) -> str:
        """How a job went, as text: attempts, what they printed, and the events."""
        return self._http.request("GET", f"/jobs/{id_of(job)}/log", headers={"Accept": "text/plain"}).text

    def history(self, job: Work | str) -> dict[str, Any]:
        """The same as an object: `state`, `attempts`, `events`."""
        return self._http.json("GET", f"/jobs/{id_of(job)}/log", params={"format": "json"})

    def events(self, job: Work | str, *, after: int = 0, within_s: float | None = None) -> Iterator[JobEvent]:
        """The job's events after number `after`, live, up to the one that ends it; broken streams are resumed.

        within_s  seconds after which `WaitTimeout` is raised; None: as long as it takes
        """
        return follow(self._http, id_of(job), after, within_s)

    @overload
    def wait(
        self, job: Followed, on_event: Callable[[JobEvent], None] = _unseen, *, timeout: float | None = None
    ) -> Followed: ...

    @overload
    def wait(
        self, job: str, on_event: Callable[[JobEvent], None] = _unseen, *, timeout: float | None = None
    ) -> Job: ...

    def wait(
        self, job: Work | str, on_event: Callable[[JobEvent], None] = _unseen, *, timeout: float | None = None
    ) -> Work:
        """A job, benchmark or inference after its end; `require_success` of it raises if that was a failure.

        timeout  seconds after which `WaitTimeout` is raised; the job goes on. None: as long as it takes
        """
        if isinstance(job, Work) and job.ended:
            return job
        for event in follow(self._http, id_of(job), 0, timeout):
            on_event(event)
        return self.result(job, type(job) if isinstance(job, Work) else Job)

    def result(self, job: Work | str, kind: type[Kind]) -> Kind:
        """The job as it is now, seen as a `Job`, `Benchmark` or `Inference`."""
        found = kind.from_json(self._http.json("GET", f"{kind.path}/{id_of(job)}"))
        return found.of(self._for_jobs) if isinstance(found, Job) else found

    def _job(self, said: Mapping[str, Any]) -> Job:
        return Job.from_json(said).of(self._for_jobs)

    # Runs on the server's device

    def benchmark(
        self,
        artifacts: Sequence[Job | str],
        options: Options | None = None,
        *,
        samples: Sequence[str | Path | Mapping[str, Any]] = (),
        workload: str = "",
        priority: int = 0,
        idempotency_key: str = "",
        **beside: Unpack[Beside],
    ) -> Benchmark:
        """Queue a benchmark of artifacts, made or in the making, against each other; `wait` for it.

        options  threads, seconds (timed per artifact), profile (each kernel's time), seed, binding (from 1), dims
                 (sizes of dimensions that have a range)
        samples  one .npz file, or arrays by the names of the models' inputs, on which all are timed; without one they
                 are on numbers that are drawn
        workload  of the artifacts' models, by name: sizes instead of `dims`
        """
        body = {
            "artifacts": [artifact_of(artifact) for artifact in artifacts],
            "options": dict(options or {}),
            "priority": priority,
            **({"workload": workload} if workload else {}),
            **_said(beside),
        }
        request = given_samples.beside(body, samples) if samples else {"json": body}
        return Benchmark.from_json(self._submit("/benchmarks", key=idempotency_key, **request))

    def benchmarks(self, *, limit: int = 0) -> Iterator[Benchmark]:
        """The caller's benchmarks, newest first, without their figures, which `result` brings; `limit` 0: all."""
        return map(Benchmark.from_json, self._http.pages("/benchmarks", "benchmarks", {}, limit, PAGE))

    # Tuning records

    def tuning_records(self, /, *, limit: int = 0, **where: str) -> Iterator[TuningRecord]:
        """Measurements, newest first; `where` fixes any of `tilewright.records.FILTERS`."""
        found = self._http.pages("/tuning-records", "records", records.checked(where), limit, PAGE)
        return map(TuningRecord.from_json, found)

    def records_to(self, path: str | Path, /, format: str = "csv", **where: str) -> Path:
        """All records that `where` leaves, in a file of `json`, `csv` or `parquet`."""
        return records.to_file(self._http, Path(path), format, where)

    def tuning_record(self, record: str) -> TuningRecord:
        """One measurement."""
        return TuningRecord.from_json(self._http.json("GET", f"/tuning-records/{id_of(record)}"))

    def record_source(self, record: TuningRecord | str) -> str:
        """The C source of what was measured, generated by the server from the record."""
        return records.source(self._http, record.id if isinstance(record, TuningRecord) else id_of(record))

    def export_records(self, target: str | Path, progress: Progress = unheard) -> Path:
        """Every record with what it takes to use it elsewhere, in a file that `import_records` reads."""
        return downloads.save(self._http, "/tuning-records/export", Path(target), {}, progress)

    def import_records(self, source: str | Path, progress: Progress = unheard) -> dict[str, Any]:
        """Add the records of an exported file; what the server made of them.

        Raises `UsageError` for an unreadable file.
        """
        return records.bring(self._http, Path(source), progress)

    # What the server is

    def targets(self) -> list[Target]:
        """What can be compiled for."""
        return [Target.from_json(said) for said in self._http.json("GET", "/targets")["targets"]]

    def operators(self) -> list[Operator]:
        """The operators of ONNX that can be compiled."""
        return [Operator.from_json(said) for said in self._http.json("GET", "/operators")["operators"]]

    def workers(self) -> list[Worker]:
        """The workers that are alive."""
        return [Worker.from_json(said) for said in self._http.json("GET", "/workers")["workers"]]

    def version(self) -> dict[str, Any]:
        """The server's `version`, and that of its `api`."""
        return self._http.json("GET", "/version")

    def ready(self) -> dict[str, Any]:
        """Readiness of the server's parts, whether or not they are up."""
        try:
            return self._http.parsed(self._http.client.get("/readyz"))
        except httpx.TransportError as error:
            raise self._http.unreachable(str(error)) from error

    def _digest(self, model: ModelGiven, data: Sequence[str | Path], progress: Progress) -> str:
        """Of a model that the server has, after this."""
        if isinstance(model, StoredModel) or (isinstance(model, str) and not Path(model).exists() and _hex(model)):
            if data:
                raise UsageError("external data comes with a model's file, not with its digest", fix="leave `data` out")
            return digest_of(model)
        return self.upload(model, data=data, progress=progress).digest

    def _submit(self, path: str, key: str, **request: Any) -> dict[str, Any]:
        return self._http.json("POST", path, headers={IDEMPOTENCY_KEY: key or uuid.uuid4().hex}, **request)


def _said(given: Mapping[str, Any]) -> dict[str, Any]:
    """As JSON has it."""
    return {name: list(value) if name == "tags" and value is not None else value for name, value in given.items()}


def _hex(text: str) -> bool:
    return len(text) == 64 and all(letter in "0123456789abcdef" for letter in text)

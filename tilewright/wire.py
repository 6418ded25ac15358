"""What the server says, as Python objects. Each keeps all that was said in `said`."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, ClassVar, Protocol, Self

from tilewright import notebook
from tilewright.errors import ClientError, JobFailed, UsageError

TERMINAL = frozenset({"SUCCEEDED", "FAILED", "CANCELLED"})


@dataclass(frozen=True)
class Work:
    """What a worker does for the caller, as it was when the server said this.

    state     QUEUED, LEASED, RUNNING, SUCCEEDED, FAILED or CANCELLED
    phase     the step that runs or ran last
    fraction  of the present attempt, 0 to 1
    problem   why it failed: code, fault, message, fix, refusals, details
    """

    path: ClassVar[str] = ""
    """Where on the server its kind is found."""

    id: str
    state: str
    phase: str | None
    fraction: float
    problem: Mapping[str, Any] | None
    said: Mapping[str, Any] = field(repr=False)

    @classmethod
    def from_json(cls, said: Mapping[str, Any]) -> Self:
        """Raises KeyError when the answer is of another kind."""
        return cls(**cls._fields(said))

    @classmethod
    def _fields(cls, said: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "id": said["id"],
            "state": said["state"],
            "phase": said.get("phase"),
            "fraction": said.get("fraction") or 0.0,
            "problem": said.get("problem"),
            "said": said,
        }

    @property
    def ended(self) -> bool:
        """Whether nothing more will happen to it."""
        return self.state in TERMINAL

    def require_success(self) -> Self:
        """Itself. Raises `JobFailed` with the server's reason when it failed or was cancelled."""
        if self.state in ("FAILED", "CANCELLED"):
            problem = self.problem or {}
            message = problem.get("message") or f"job {self.id} was cancelled"
            raise JobFailed(message, fix=problem.get("fix", ""), problem=problem)
        return self


class Asked(Protocol):
    """The client that a job came from, as far as a job asks it."""

    url: str

    def job(self, job: Any) -> Job:
        """As it is now."""
        ...

    def wait(self, job: Any, on_event: Any = ..., *, timeout: float | None = None) -> Any:
        """After its end."""
        ...

    def download(self, artifact: Any, target: str | Path) -> Path:
        """The file of an artifact."""
        ...

    def download_made(self, job: Any, target: str | Path) -> Path:
        """The file of a model that a job made."""
        ...


@dataclass(frozen=True)
class Job(Work):
    """Work of any kind: `compile`, `benchmark`, or another of `tilewright.job_kinds`.

    Of a `Client` it has `wait`, `download` and `url`; with an `AsyncClient` its methods are to be awaited instead.

    artifact_id  that a compilation makes, known before it is made; None for the other kinds
    cached       whether it was answered with an artifact that was there already
    name, tags   what its owner calls it
    made         where the model is that it made, of a kind that makes one; empty before, and for the other kinds;
                 `quantized`, `compressed` and `minimised` are other names of it
    batch        the id of what it shares with the other jobs of its request, or ""
    compared     of each runtime that the artifact was raced with: `peer`, `said` (one sentence), `ratio`, `low`, `high`
    latency_s    seconds of one inference of the artifact where it was compiled; None where that is not known
    error        the largest error of the artifact's outputs, relative to the largest value of each; None: not known
    """

    path: ClassVar[str] = "/jobs"

    kind: str
    artifact_id: str | None
    cached: bool
    name: str
    tags: tuple[str, ...]
    made: str
    batch: str
    compared: tuple[Mapping[str, Any], ...] = ()
    latency_s: float | None = None
    error: float | None = None
    client: Asked | None = field(default=None, repr=False, compare=False)

    def of(self, client: Asked | None) -> Self:
        """The same, as it came from a client."""
        return replace(self, client=client)

    @property
    def url(self) -> str:
        """The address of its page. Raises `UsageError` without a client."""
        kind = "benchmarks" if self.kind == "benchmark" else "jobs"
        return f"{self._asked().url}/#/{kind}/{self.id}"

    def wait(self, on_event: Callable[[JobEvent], None] = lambda event: None, *, timeout: float | None = None) -> Job:
        """Itself after its end; `require_success` of it raises if that was a failure. As `Client.wait`."""
        found: Job = self._asked().wait(self, on_event, timeout=timeout)
        return found

    def download(self, target: str | Path = "") -> Path:
        """Wait for the end and fetch what was made: an artifact, or a model; the file.

        target  default: the job's name, or the artifact's id, with .tw or .onnx

        Raises `JobFailed` when the job failed, and what `Client.download` raises.
        """
        ended = (self if self.ended else self.wait()).require_success()
        suffix = ".tw" if ended.artifact_id else ".onnx"
        path = Path(target or Path(Path(ended.name).stem or ended.artifact_id or ended.id).name + suffix)
        client = self._asked()
        return client.download(ended, path) if ended.artifact_id else client.download_made(ended, path)

    def _asked(self) -> Asked:
        if self.client is None:
            raise UsageError(
                f"the job {self.id} has no client to ask", fix="use the client's methods: `await client.wait(job)`"
            )
        return self.client

    def __getstate__(self) -> dict[str, Any]:
        """Without the client, whose connections stay in their process."""
        return {**self.__dict__, "client": None}

    def _repr_html_(self) -> str:
        """For notebooks: as it is when it is shown."""
        now: Job = self
        if self.client is not None and not self.ended:
            with contextlib.suppress(ClientError):
                now = self.client.job(self.id)
        done = "" if now.ended else f"{now.phase or ''} {now.fraction:.0%}".strip()
        rows = {"job": now.id, "name": now.name, "state": now.state, "done": done}
        rows |= {"latency": notebook.seconds(now.latency_s), "error": "" if now.error is None else f"{now.error:.2g}"}
        rows |= {f"beside {one.get('peer')}": str(one.get("said", "")) for one in now.compared}
        rows["why it failed"] = str((now.problem or {}).get("message", ""))
        return notebook.facts(rows, link=self.url if self.client is not None else "")

    @classmethod
    def _fields(cls, said: Mapping[str, Any]) -> dict[str, Any]:
        links = (said.get("links") or {}).values()
        return {
            **super()._fields(said),
            "batch": said.get("batch") or "",
            "compared": tuple(said.get("compared") or ()),
            "latency_s": said.get("latency_s"),
            "error": said.get("largest_error"),
            "kind": said.get("kind", "compile"),
            "artifact_id": said["artifact_id"],
            "cached": bool(said.get("cached")),
            "name": said.get("name") or "",
            "tags": tuple(said.get("tags") or ()),
            "made": next((link for link in links if link.startswith("/models/")), ""),
        }

    @property
    def quantized(self) -> str:
        """The same as `made`."""
        return self.made

    compressed = minimised = quantized


@dataclass(frozen=True)
class Inference(Work):
    """One run of an artifact on the server.

    seconds  of the run alone; None until it has SUCCEEDED
    outputs  by name: dtype, shape, sha256 of the elements
    """

    path: ClassVar[str] = "/inferences"

    seconds: float | None
    outputs: Mapping[str, Mapping[str, Any]]

    @classmethod
    def _fields(cls, said: Mapping[str, Any]) -> dict[str, Any]:
        report = said.get("report") or {}
        return {**super()._fields(said), "seconds": report.get("seconds"), "outputs": report.get("outputs") or {}}


@dataclass(frozen=True)
class JobEvent:
    """One line of a job's log. `seq` runs 1, 2, 3, ... without gaps.

    kind   `state`, `phase`, `progress`, `notice`, `tokens`
    data   `state`; or `phase`, `fraction` (0 to 1), `message`; of `tokens` also `data` (`first`, `tokens`)
    """

    seq: int
    kind: str
    data: Mapping[str, Any]

    @property
    def ends_job(self) -> bool:
        """Whether it is the last."""
        return self.kind == "state" and self.data.get("state") in TERMINAL


@dataclass(frozen=True)
class StoredModel:
    """A model on the server: `bytes` of all its files; `files` are its external data, path and bytes of each."""

    digest: str
    bytes: int
    files: tuple[Mapping[str, Any], ...]
    created_at: str
    said: Mapping[str, Any] = field(repr=False)

    @classmethod
    def from_json(cls, said: Mapping[str, Any]) -> StoredModel:
        """Raises KeyError when the answer is no model."""
        return cls(said["digest"], said["bytes"], tuple(said.get("files") or ()), said.get("created_at", ""), said)


@dataclass(frozen=True)
class ArtifactFile:
    """A file inside an artifact, and its size."""

    name: str
    bytes: int
    said: Mapping[str, Any] = field(repr=False)

    @classmethod
    def from_json(cls, said: Mapping[str, Any]) -> ArtifactFile:
        """Raises KeyError when the answer is no file."""
        return cls(said["name"], said["bytes"], said)


@dataclass(frozen=True)
class TuningRecord:
    """One measurement on a real device; `seconds` is the median of `samples` runs, `p10` and `p90` are seconds too."""

    id: str
    kind: str
    operator: str
    workload: str
    target: str
    hardware: str
    variant: Mapping[str, Any]
    threads: int
    seconds: float
    p10: float
    p90: float
    samples: int
    job: str | None
    model: str | None
    said: Mapping[str, Any] = field(repr=False)

    @classmethod
    def from_json(cls, said: Mapping[str, Any]) -> TuningRecord:
        """Raises KeyError when the answer is no record."""
        values = {one.name: said[one.name] for one in fields(cls) if one.name not in ("job", "model", "said")}
        return cls(**values, job=said.get("job"), model=said.get("model"), said=said)


@dataclass(frozen=True)
class Worker:
    """A process on the server's side that takes jobs from `queues`."""

    name: str
    queues: tuple[str, ...]
    hardware: Mapping[str, Any]
    compiler: str
    busy: bool
    said: Mapping[str, Any] = field(repr=False)

    @classmethod
    def from_json(cls, said: Mapping[str, Any]) -> Worker:
        """Raises KeyError when the answer is no worker."""
        return cls(
            said["name"], tuple(said["queues"]), said["hardware"], said.get("compiler", ""), bool(said["busy"]), said
        )


@dataclass(frozen=True)
class Target:
    """A device class that can be compiled for."""

    name: str
    said: Mapping[str, Any] = field(repr=False)

    @classmethod
    def from_json(cls, said: Mapping[str, Any]) -> Target:
        """Raises KeyError when the answer is no target."""
        return cls(said["name"], said)


@dataclass(frozen=True)
class Operator:
    """An operator of ONNX that can be compiled."""

    name: str
    said: Mapping[str, Any] = field(repr=False)

    @classmethod
    def from_json(cls, said: Mapping[str, Any]) -> Operator:
        """Raises KeyError when the answer is no operator."""
        return cls(said["name"], said)


@dataclass(frozen=True)
class Preflight:
    """What is known of a compilation before it is queued; the server's OpenAPI describes the whole of `said`.

    ok         whether nothing speaks against it
    operators  the verdict on each operator of the model
    refusals   all reasons against it: reason, fix, node, operator
    cached     the artifact with which a compilation would be answered at once, None: there is none
    """

    ok: bool
    operators: tuple[Mapping[str, Any], ...]
    refusals: tuple[Mapping[str, Any], ...]
    cached: str | None
    said: Mapping[str, Any] = field(repr=False)

    @classmethod
    def from_json(cls, said: Mapping[str, Any]) -> Preflight:
        """Raises KeyError when the answer is no preflight."""
        operators, refusals = said.get("operators") or (), said.get("refusals") or ()
        return cls(said["ok"], tuple(operators), tuple(refusals), said.get("cached"), said)

    def _repr_html_(self) -> str:
        """For notebooks."""
        words = ("operator", "count", "verdict")
        rows = [
            (*(one.get(word, "") for word in words), "; ".join(map(str, one.get("reasons") or ())))
            for one in self.operators
        ]
        problem = self.said.get("problem") or {}
        said = ["ok: it would be compiled"] if self.ok else [f"refused: {problem.get('message') or 'see below'}"]
        said += [f"{one.get('operator') or ''} {one.get('reason')}; {one.get('fix')}".strip() for one in self.refusals]
        said += [f"note: {one}" for one in self.said.get("notices") or ()]
        return notebook.lines(said) + notebook.table((*words, "why not"), rows)


def parse_events(lines: Iterable[str]) -> Iterator[JobEvent]:
    """Server-sent events (HTML Living Standard, 9.2) from a stream of lines; an event cut short is dropped."""
    parts: dict[str, str] = {}
    for line in lines:
        if not line:
            if "data" in parts:
                yield JobEvent(int(parts.get("id", 0)), parts.get("event", "message"), json.loads(parts["data"]))
            parts = {}
        elif not line.startswith(":"):
            name, _, value = line.partition(":")
            value = value.removeprefix(" ")
            parts[name] = f"{parts[name]}\n{value}" if name == "data" and name in parts else value

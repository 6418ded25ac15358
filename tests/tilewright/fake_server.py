"""A server at the lowest seam, the transport, for what a real one does not do on demand.

Broken and refused connections.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from email.message import Message
from email.parser import BytesParser
from typing import Any

import httpx

JOB = "019aa1f0-7c2e-7a4b-9d0e-5b1f6d0c3a11"
ARTIFACT = "019aa1f0-7c2e-7a4b-9d0e-5b2a4c7e9f02"
OTHER = "019aa1f1-5a00-7b21-8c7d-20a4c1d9e3b5"
BENCHMARK = "019aa1f2-11c0-7d3e-9a51-3c1b7c2f4e90"
INFERENCE = "019aa1f3-02b4-7f10-8a6e-6f4f1f3f2b77"
UPLOAD = "019aa1f4-0000-7000-8000-000000000000"


def parts_of(request: httpx.Request) -> list[tuple[str, str | None, bytes]]:
    """Of a form: name, filename and content of each part, in order."""
    head = f"Content-Type: {request.headers['content-type']}\r\n\r\n".encode()
    parts = BytesParser().parsebytes(head + request.content).get_payload()
    assert isinstance(parts, list)
    found = []
    for part in parts:
        assert isinstance(part, Message)
        name, content = part.get_param("name", header="content-disposition"), part.get_payload(decode=True)
        assert isinstance(content, bytes)
        found.append((str(name), part.get_filename(), content))
    return found


def timed(artifact: str, median: float) -> dict[str, Any]:
    """One artifact of a benchmark's report."""
    kernel: dict[str, Any] = {"call": 0, "family": "Conv+Relu", "tile": "14x32", "seconds": median / 2, "share": 0.5}
    kernel["nodes"] = ["conv_1", "relu_1[bold]\x1b[31m"]
    return {
        "artifact": artifact,
        "target": "cpu:x86-64-v4",
        "lanes": 2,
        "runs": 700,
        "load": {"first_s": 0.031, "warm_s": 0.012},
        "samples_s": [median] * 3,
        "median_s": median,
        "p10_s": median * 0.9,
        "p90_s": median * 1.1,
        "p99_s": median * 1.3,
        "copy_in_s": 2e-5,
        "copy_out_s": 1e-6,
        "kernels": [kernel],
        "stream": None,
    }


STREAM: dict[str, Any] = {
    "per_second": 781.8,
    "period_s": 0.00128,
    "predicted_period_s": 0.00105,
    "periods_s": [0.00128],
    "devices": [
        {"name": "cpu:0", "target": "cpu:x86-64-v4", "busy": 0.91},
        {"name": "cpu:1@x86-64-v2", "target": "cpu:x86-64-v2", "busy": 0.75},
    ],
    "parts": [
        {"device": 0, "kernels": 23, "seconds": 0.00116, "share": 1.0},
        {"device": 1, "kernels": 9, "seconds": 0.00096, "share": 0.25},
    ],
    "bubble": 0.17,
}
"""Of an artifact for two devices."""

REPORT: dict[str, Any] = {
    "machine": {"target": "cpu:x86-64-v4"},
    "artifacts": [timed(ARTIFACT, 0.0041), {**timed(OTHER, 0.005), "stream": STREAM}],
    "comparisons": [
        {
            "a": ARTIFACT,
            "b": OTHER,
            "ratio": 1.23,
            "low": 1.21,
            "high": 1.25,
            "confidence": 0.95,
            "faster": "a",
            "verdict": "a is faster by 1.23x ± 0.02",
        }
    ],
    "notices": [f"artifact {OTHER} runs 4 lanes on 2 cores"],
}


def removal(digest: str, stopping: int = 0) -> dict[str, Any]:
    """The answer to the deletion of a model."""
    return {
        "digest": digest,
        "stopping": stopping,
        "deleted": {"jobs": 2, "artifacts": 1},
        "kept": {"tuning_records": 7},
    }


class Stream(httpx.SyncByteStream):
    """A body that breaks off after `cut` bytes, if that is given."""

    def __init__(self, body: bytes, cut: int | None = None, piece: int = 1000) -> None:
        self.body, self.cut, self.piece = body, cut, piece

    def __iter__(self) -> Iterator[bytes]:
        whole = self.body if self.cut is None else self.body[: self.cut]
        for start in range(0, len(whole), self.piece):
            yield whole[start : start + self.piece]
        if self.cut is not None:
            raise httpx.ReadError("the connection broke")


@dataclass
class FakeServer:
    """Answers as the API does, as far as the client looks; every request is noted."""

    events: list[tuple[str, dict[str, Any]]] = field(
        default_factory=lambda: [
            ("state", {"state": "LEASED"}),
            ("phase", {"phase": "load", "fraction": 0.1, "message": ""}),
            ("notice", {"phase": "tile", "fraction": 0.5, "message": "mind [this]"}),
            ("state", {"state": "SUCCEEDED"}),
        ]
    )
    state: str = "QUEUED"
    kind: str = "compile"
    problem: dict[str, Any] | None = None
    artifact: bytes = bytes(range(256)) * 40
    etag: str = ""
    cuts: list[int | None] = field(default_factory=list)
    """Where the bodies of the next answers break off, one for each."""
    refusals: list[int] = field(default_factory=list)
    """Of the next requests, last first: 0 to answer, 1 to refuse the connection, else the status to answer with."""
    seen: list[httpx.Request] = field(default_factory=list)
    pages: dict[str, Any] = field(default_factory=dict)
    models: dict[str, dict[str, Any]] = field(default_factory=dict)
    upload: bytearray | None = None
    upload_cuts: list[int | None] = field(default_factory=list)
    """How many bytes of the next pieces arrive before the connection breaks."""
    answers: dict[str, Any] = field(default_factory=dict)
    """What GET and POST of a path answer with, where nothing else is done."""
    links: dict[str, str] = field(default_factory=dict)
    """Of the job, once it has SUCCEEDED."""
    compared: list[dict[str, Any]] = field(default_factory=list)
    """Likewise."""
    latency_s: float | None = None
    largest_error: float | None = None
    name: str = ""
    cached: bool = False
    """Whether the cache answers compilations."""

    def transport(self) -> httpx.MockTransport:
        return httpx.MockTransport(self.answer)

    def sent(self, path: str) -> list[httpx.Request]:
        """The requests to a path."""
        return [request for request in self.seen if request.url.path == path]

    def job(self, **other: Any) -> dict[str, Any]:
        return {
            "id": JOB,
            "kind": self.kind,
            "state": self.state,
            "artifact_id": ARTIFACT if self.kind == "compile" else None,
            "phase": None,
            "fraction": 0.0,
            "problem": self.problem,
            "created_at": "2026-11-21T04:00:00Z",
            "links": self.links if self.state == "SUCCEEDED" else {},
            "compared": self.compared if self.state == "SUCCEEDED" else [],
            "latency_s": self.latency_s,
            "largest_error": self.largest_error,
            "cached": self.cached,
            "name": self.name or None,
            **other,
        }

    def answer(self, request: httpx.Request) -> httpx.Response:  # noqa: C901 - a table of routes
        request.read()
        self.seen.append(request)
        if self.refusals and (status := self.refusals.pop()):
            if status == 1:
                raise httpx.ConnectError("refused")
            problem = {"code": "busy", "detail": "later", "fix": "wait"}
            return httpx.Response(status, json=problem, headers={"Retry-After": "7"})
        body = json.loads(request.content) if request.headers.get("content-type") == "application/json" else {}
        match request.method, request.url.path.split("/")[1:]:
            case "POST", ["compile"]:
                options = body["options"] if body else json.loads(parts_of(request)[1][2])
                jobs = [self.job(options=one) for one in options] if isinstance(options, list) else None
                return httpx.Response(202, json={"jobs": jobs} if jobs else self.job())
            case _, ["models", _, "workloads" | "file", *_]:
                pass  # a test says its answers
            case _, ["models", *_] | ["uploads", *_]:
                return self._models(request, body)
            case "GET", ["jobs", _, "events"]:
                return self._events(int(request.headers.get("last-event-id", 0)))
            case "GET", ["jobs", asked] if asked != JOB and self.kind == "compile":
                return _missing()
            case "GET" | "DELETE", ["jobs", _]:
                return httpx.Response(200, json=self.job())
            case "POST", ["jobs", _, "cancel"]:
                return httpx.Response(200, json=self.job())
            case "PATCH", ["jobs", _]:
                return httpx.Response(200, json=self.job(**body))
            case "POST", ["jobs", job, "purge"]:
                counts = {"artifacts": 1, "tuning_records": 412, "workloads": 37}
                return httpx.Response(200, json={"job": job, "stopping": False, **counts, "artifact_kept_by": []})
            case "POST", ["jobs", _, "finish" | "clone"]:
                return httpx.Response(202, json=self.job(**body))
            case "GET", ["jobs"]:
                return httpx.Response(200, json={"jobs": [self.job()], "next_cursor": None})
            case "POST", ["benchmarks"]:
                return httpx.Response(202, json=self.job(id=BENCHMARK, report=None, state="QUEUED"))
            case "GET", ["benchmarks", _]:
                report = REPORT if self.state == "SUCCEEDED" else None
                return httpx.Response(200, json=self.job(id=BENCHMARK, report=report))
            case "GET", ["tuning-records"] if "format" not in request.url.params:
                return httpx.Response(200, json=self.pages[request.url.params.get("cursor", "")])
            case "GET", ["tuning-records"] | ["tuning-records", "export"]:
                return httpx.Response(200, stream=Stream(b"id,seconds\n1,2\n", self.cuts.pop(0) if self.cuts else None))
            case "GET", ["artifacts", _]:
                return self._artifact(request)
        if (found := self.answers.get(request.url.path)) is not None:
            return found if isinstance(found, httpx.Response) else httpx.Response(200, json=found)
        return _missing()

    def _models(self, request: httpx.Request, body: dict[str, Any]) -> httpx.Response:
        match request.method, request.url.path.split("/")[1:]:
            case "HEAD" | "GET", ["models", digest]:
                return httpx.Response(200, json=self.models[digest]) if digest in self.models else _missing()
            case "PATCH", ["models", digest]:
                return httpx.Response(200, json={**self.models[digest], **body})
            case "DELETE", ["models", digest]:
                return httpx.Response(200, json=removal(digest)) if self.models.pop(digest, None) else _missing()
            case "GET", ["models"]:
                return httpx.Response(200, json={"models": list(self.models.values()), "next_cursor": None})
            case "POST", ["models"]:
                return httpx.Response(201, json=self._keep(request.content))
            case "POST", ["uploads"]:
                self.upload, self._wanted = bytearray(), body
                return httpx.Response(201, json={"id": UPLOAD, "received": 0, **body})
            case "HEAD", ["uploads", asked] if self.upload is not None and asked == UPLOAD:
                return httpx.Response(200, headers={"Upload-Offset": str(len(self.upload))})
            case "PATCH", ["uploads", _] if self.upload is not None:
                return self._piece(request, self.upload)
        return _missing()

    def _piece(self, request: httpx.Request, upload: bytearray) -> httpx.Response:
        if int(request.headers["upload-offset"]) != len(upload):
            return httpx.Response(409, json={"code": "wrong_offset", "detail": "not there", "fix": "ask with HEAD"})
        cut = self.upload_cuts.pop(0) if self.upload_cuts else None
        upload += request.content[:cut]
        model = None
        if len(upload) == self._wanted["bytes"]:
            assert hashlib.sha256(upload).hexdigest() == self._wanted["sha256"]
            model = self._keep(bytes(upload))
            self.upload = None
        if cut is not None:
            raise httpx.WriteError("the connection broke")
        return httpx.Response(200, json={"id": UPLOAD, "received": len(upload), "model": model})

    def _keep(self, content: bytes) -> dict[str, Any]:
        digest = hashlib.sha256(content).hexdigest()
        return self.models.setdefault(digest, {"digest": digest, "bytes": len(content), "files": []})

    def _events(self, after: int) -> httpx.Response:
        text = ": hello\n\n" + "".join(
            f"event: {kind}\ndata: {json.dumps(data)}\nid: {seq}\n\n"
            for seq, (kind, data) in enumerate(self.events, 1)
            if seq > after
        )
        cut = self.cuts.pop(0) if self.cuts else None
        if cut is None and self.events[-1][1].get("state"):
            self.state = self.events[-1][1]["state"]
        return httpx.Response(200, stream=Stream(text.encode(), cut, piece=7))

    def _artifact(self, request: httpx.Request) -> httpx.Response:
        etag = self.etag or f'"{hashlib.sha256(self.artifact).hexdigest()}"'
        start, status, headers = 0, 200, {"etag": etag}
        if wanted := request.headers.get("range"):
            start = int(wanted.removeprefix("bytes=").removesuffix("-"))
            if start >= len(self.artifact):
                return httpx.Response(416)
            status = 206
            headers["content-range"] = f"bytes {start}-{len(self.artifact) - 1}/{len(self.artifact)}"
        headers["content-length"] = str(len(self.artifact) - start)
        cut = self.cuts.pop(0) if self.cuts else None
        return httpx.Response(status, headers=headers, stream=Stream(self.artifact[start:], cut))


def _missing() -> httpx.Response:
    return httpx.Response(404, json={"code": "no_such_route", "detail": "nothing here", "fix": "look elsewhere"})

"""A synchronous client of a Tilewright server.

with Client() as client:
    job = client.wait(client.compile("model.onnx", {"threads": 4})).require_success()
    client.download(job, "model.tw")
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx

from tilewright import download as downloads
from tilewright.discover import find_server
from tilewright.errors import RequestRefused, ServerUnreachable, UsageError
from tilewright.wire import Job, JobEvent, parse_events

ATTEMPTS = 4
"""Of a request that is safe to repeat."""
FRUITLESS = 8
"""Broken event streams in a row, none of which brought an event, after which the server counts as gone."""
_PAUSE_S = 0.5
_LONGEST_PAUSE_S = 8.0
_PAGE = 200
_LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})


class Client:
    """Connections to one server; close it, or use it in a `with` block. Not for several threads at once.

    Every method raises `ServerUnreachable` when the server does not answer and `RequestRefused` when it answers with a
    problem. Without arguments the server is found as `tilewright.discover` says.
    """

    def __init__(
        self,
        url: str = "",
        key: str = "",
        *,
        transport: httpx.BaseTransport | None = None,
        timeout_s: float = 30.0,
        pause_s: float = _PAUSE_S,
    ) -> None:
        server = find_server(url, key)
        self.url = server.url.rstrip("/")
        self._pause_s = pause_s
        self._http = httpx.Client(
            base_url=self.url,
            headers={"Authorization": f"Bearer {server.key}"} if server.key else {},
            timeout=timeout_s,
            transport=transport,
            # A proxy of the environment cannot reach this machine's own loopback.
            trust_env=httpx.URL(self.url).host not in _LOOPBACK,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def compile(
        self,
        model: str | Path | bytes,
        options: Mapping[str, Any] | None = None,
        *,
        fresh: bool = False,
        idempotency_key: str = "",
    ) -> Job:
        """Queue a compilation of a model (a path, or the bytes); its job, which may have SUCCEEDED from the cache.

        Repeated by itself when the connection breaks: the idempotency key keeps that from making a second job.
        Raises `UsageError` for a file that cannot be read.
        """
        size, read = _upload(model)
        answer = self._request(
            "POST",
            "/compile",
            params={"options": json.dumps(dict(options or {})), "fresh": fresh},
            headers={
                "Content-Type": "application/octet-stream",
                "Content-Length": str(size),
                "Idempotency-Key": idempotency_key or uuid.uuid4().hex,
            },
            content=read,
        )
        return Job.from_json(answer)

    def job(self, job: Job | str) -> Job:
        """The job as it is now."""
        return Job.from_json(self._request("GET", f"/jobs/{_id(job)}"))

    def jobs(self, *, states: Sequence[str] = (), limit: int = 0) -> Iterator[Job]:
        """The caller's jobs, newest first; `limit` 0: all."""
        for said in self._pages("/jobs", "jobs", {"state": list(states)}, limit):
            yield Job.from_json(said)

    def cancel(self, job: Job | str) -> Job:
        """Ask for the end of a job; one that runs is stopped within seconds."""
        return Job.from_json(self._request("DELETE", f"/jobs/{_id(job)}"))

    def report(self, job: Job | str) -> dict[str, Any]:
        """What an ended job says of itself."""
        return self._request("GET", f"/jobs/{_id(job)}/report")

    def events(self, job: Job | str, *, after: int = 0) -> Iterator[JobEvent]:
        """The job's log from the event after `after` on, live, up to the event that ends it; broken streams are resumed."""
        fruitless = 0
        while True:
            try:
                for event in self._stream(_id(job), after):
                    after, fruitless = max(after, event.seq), 0
                    yield event
                    if event.ends_job:
                        return
                reason = "the stream ended early"
            except httpx.TransportError as error:
                reason = str(error) or type(error).__name__
            fruitless += 1
            if fruitless >= FRUITLESS:
                raise self._unreachable(reason)
            time.sleep(min(self._pause_s * 2**fruitless, _LONGEST_PAUSE_S))

    def wait(self, job: Job | str, on_event: Callable[[JobEvent], None] = lambda event: None) -> Job:
        """The job after its end; `require_success` of it raises if that was a failure."""
        if isinstance(job, Job) and job.ended:
            return job
        for event in self.events(job):
            on_event(event)
        return self.job(job)

    def download(
        self,
        artifact: Job | str,
        target: str | Path,
        progress: downloads.Progress = lambda here, whole: None,
    ) -> Path:
        """Fetch an artifact (of a job, or by its id) to the file `target`, checked; raises `BrokenDownload`."""
        name = artifact.artifact_id if isinstance(artifact, Job) else _plain_id(artifact)
        return downloads.download(
            self._http,
            f"/artifacts/{name}",
            name,
            Path(target),
            check=self._check,
            progress=progress,
            pause_s=self._pause_s,
        )

    def tuning_records(self, *, limit: int = 0, **where: str) -> Iterator[dict[str, Any]]:
        """Measurements, newest first; `where` fixes any of kind operator workload target hardware job model."""
        yield from self._pages("/tuning-records", "records", where, limit)

    def workers(self) -> list[dict[str, Any]]:
        """The workers that are alive."""
        found: list[dict[str, Any]] = self._request("GET", "/workers")["workers"]
        return found

    def ready(self) -> dict[str, Any]:
        """Readiness of the server's parts, whether or not they are up."""
        try:
            answer: dict[str, Any] = self._http.get("/readyz").json()
            return answer
        except (httpx.TransportError, ValueError) as error:
            raise self._unreachable(str(error)) from error

    def _stream(self, job_id: str, after: int) -> Iterator[JobEvent]:
        headers = {"Accept": "text/event-stream", **({"Last-Event-ID": str(after)} if after else {})}
        with self._http.stream("GET", f"/jobs/{job_id}/events", headers=headers, timeout=60.0) as response:
            self._check(response)
            yield from parse_events(response.iter_lines())

    def _pages(self, path: str, name: str, where: Mapping[str, Any], limit: int) -> Iterator[dict[str, Any]]:
        cursor, left = "", limit or None
        while True:
            size = min(_PAGE, left) if left else _PAGE
            page = self._request("GET", path, params={**where, "limit": size, **({"cursor": cursor} if cursor else {})})
            yield from page[name]
            cursor = page["next_cursor"] or ""
            if left is not None:
                left -= len(page[name])
            if not cursor or left == 0:
                return

    def _request(
        self, method: str, path: str, content: Callable[[], Iterable[bytes]] | None = None, **request: Any
    ) -> dict[str, Any]:
        """JSON of the answer; repeated when the connection fails. `content` is called for each attempt."""
        for attempt in range(1, ATTEMPTS + 1):
            try:
                response = self._http.request(method, path, content=content and content(), **request)
                break
            except httpx.TransportError as error:
                if attempt == ATTEMPTS:
                    raise self._unreachable(str(error) or type(error).__name__) from error
                time.sleep(self._pause_s * 2 ** (attempt - 1))
        self._check(response)
        try:
            answer: dict[str, Any] = response.json()
        except ValueError:
            raise self._unreachable("its answer is not JSON") from None
        return answer

    def _check(self, response: httpx.Response) -> None:
        """Raises `RequestRefused` with the problem document of an error."""
        if response.is_success:
            return
        response.read()
        try:
            problem = response.json()
        except ValueError:
            problem = {}
        if not isinstance(problem, dict) or "code" not in problem:
            raise RequestRefused(
                f"{response.url.path} answered {response.status_code}", fix=f"check that {self.url} is Tilewright's"
            )
        lines = [
            problem.get("detail", ""),
            *(f"  - {refusal.get('reason')}" for refusal in problem.get("refusals", ())),
        ]
        raise RequestRefused("\n".join(lines), fix=problem.get("fix", ""), problem=problem)

    def _unreachable(self, reason: str) -> ServerUnreachable:
        return ServerUnreachable(
            f"{self.url} does not answer: {reason}", fix="start it with `tilewright up`, or check TILEWRIGHT_URL"
        )


def _upload(model: str | Path | bytes) -> tuple[int, Callable[[], Iterable[bytes]]]:
    """The size of a model in bytes, and what reads it in pieces, each time from the start."""
    if isinstance(model, bytes):
        return len(model), lambda: (model,)
    path = Path(model)

    def read() -> Iterator[bytes]:
        with path.open("rb") as file:
            while piece := file.read(downloads.CHUNK):
                yield piece

    try:
        with path.open("rb"):
            return path.stat().st_size, read
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}", fix="give the path of an ONNX file") from error


def _id(job: Job | str) -> str:
    return job.id if isinstance(job, Job) else _plain_id(job)


def _plain_id(text: str) -> str:
    try:
        return str(uuid.UUID(text))
    except ValueError:
        raise UsageError(f"{text!r} is not an id", fix="list jobs and their ids with `tilewright jobs`") from None

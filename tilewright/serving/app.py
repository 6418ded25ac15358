"""The routes of `tilewright serve`: the Open Inference Protocol, texts as OpenAI's API has them, health, counters."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib import metadata
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tilewright.batching import Busy
from tilewright.errors import ClientError, UsageError
from tilewright.serving import completions, openai, tensors
from tilewright.serving.served import Served

BODY_BYTES = 64 << 20
"""Of a request, by default; a larger one is refused."""
RETRY_AFTER_S = 1
RELOAD_S = 1.0
"""Between two looks at the files."""
VERSION = "1"
"""The only version of a model, in the protocol's words."""
HEADER_LENGTH = "Inference-Header-Content-Length"
SWITCH_S = 1e-4
"""After which a thread that ends a run gets the interpreter; by default that takes longer than many a run."""
Handler = Callable[[Request], Awaitable[Response]]
Answer = Callable[[Served, openai.Texts, Mapping[str, Any], str], Awaitable[Response]]


class Counters:
    """What `/metrics` shows."""

    def __init__(self, models: Mapping[str, Served]) -> None:
        self.registry = CollectorRegistry()
        names = ("model", "status")
        self.requests = Counter("tilewright_serve_requests", "Requests by status", names, registry=self.registry)
        self.seconds = Histogram(
            "tilewright_serve_request_seconds",
            "From a request's first byte to its answer",
            ("model",),
            registry=self.registry,
            buckets=(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
        )
        waiting = Gauge("tilewright_serve_waiting", "Runs that wait for cores", ("model",), registry=self.registry)
        for name, served in models.items():
            waiting.labels(name).set_function(partial(getattr, served, "waiting"))
        self.reloads = Counter("tilewright_serve_reloads", "Files loaded anew", ("model",), registry=self.registry)


@dataclass
class Serving:
    """Models by name, and what holds for all.

    keys   any of which a request may bear; empty: everybody may ask
    texts  tokenizers of models that take texts, by the model's name
    """

    models: Mapping[str, Served]
    keys: Collection[str] = ()
    body_bytes: int = BODY_BYTES
    texts: Mapping[str, openai.Texts] = field(default_factory=dict)

    def app(self) -> Starlette:
        """The ASGI application; it closes the models when it ends."""
        self.counters = Counters(self.models)
        model = "/v2/models/{model}"
        routes = [  # the first that fits is taken
            self._route(f"{model}/infer", self._infer, "POST"),
            self._route("/v1/embeddings", self._on_texts(openai.embeddings), "POST"),
            self._route("/v2", self._server),
            self._route("/v2/health/live", self._healthy, is_open=True),
            self._route("/v2/health/ready", self._healthy, is_open=True),
            self._route("/v2/repository/index", self._index, "POST"),
            *(
                self._route(path + suffix, handler, method)
                for path in (model, f"{model}/versions/{{version}}")
                for suffix, handler, method in (("", self._metadata, "GET"), ("/ready", self._ready, "GET"))
            ),
            self._route(f"{model}/versions/{{version}}/infer", self._infer, "POST"),
            self._route("/metrics", self._metrics),
            self._route("/v1/models", self._models),
            self._route("/v1/completions", self._on_texts(completions.completions), "POST"),
            self._route("/v1/chat/completions", self._on_texts(completions.chat), "POST"),
        ]
        return Starlette(routes=routes, lifespan=self._lifespan)

    @contextlib.asynccontextmanager
    async def _lifespan(self, _: Starlette) -> AsyncIterator[None]:
        watching, usual_s = asyncio.create_task(self._watch()), sys.getswitchinterval()
        sys.setswitchinterval(SWITCH_S)
        try:
            yield
        finally:
            sys.setswitchinterval(usual_s)
            watching.cancel()
            for served in self.models.values():
                await asyncio.to_thread(served.close)

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(RELOAD_S)
            for name, served in self.models.items():
                if await served.reload():
                    self.counters.reloads.labels(name).inc()

    def _route(self, path: str, handler: Handler, method: str = "GET", is_open: bool = False) -> Route:
        async def answered(request: Request) -> Response:
            try:
                if not is_open:
                    self._demand_key(request)
                return await handler(request)
            except ClientError as error:
                return _refusal(request, error)
            except ClientDisconnect:
                return Response(status_code=499)

        return Route(path, answered, methods=[method])

    def _demand_key(self, request: Request) -> None:
        scheme, _, given = request.headers.get("Authorization", "").partition(" ")
        known = [hmac.compare_digest(given.encode(), key.encode()) for key in self.keys]
        if known and not (scheme.lower() == "bearer" and any(known)):
            raise ClientError("the request bears no key of this server", "send `Authorization: Bearer KEY`", status=401)

    def _model(self, request: Request) -> Served:
        return self._named(request.path_params["model"], request.path_params.get("version", VERSION))

    def _named(self, name: str, version: str = VERSION) -> Served:
        if name not in self.models or version != VERSION:
            known = ", ".join(self.models)
            raise ClientError(
                f"version {version} of a model {name!r} is not served", f"ask for version 1 of {known}", status=404
            )
        return self.models[name]

    async def _server(self, _: Request) -> Response:
        return JSONResponse(
            {"name": "tilewright", "version": metadata.version("tilewright"), "extensions": ["binary_tensor_data"]}
        )

    async def _healthy(self, _: Request) -> Response:
        return Response()

    async def _ready(self, request: Request) -> Response:
        self._model(request)
        return Response()

    async def _index(self, _: Request) -> Response:
        return JSONResponse([{"name": name, "version": VERSION, "state": "READY"} for name in self.models])

    async def _metadata(self, request: Request) -> Response:
        served = self._model(request)
        model = served.model
        plain = {
            "name": served.name,
            "versions": [VERSION],
            "platform": f"tilewright_{model.manifest['target']}",
            "inputs": [tensors.described(same) for same in zip(*(one.inputs for one in model.bindings), strict=True)],
            "outputs": [tensors.described(same) for same in zip(*(one.outputs for one in model.bindings), strict=True)],
        }
        return JSONResponse(plain)

    async def _infer(self, request: Request) -> Response:
        served = self._model(request)
        with self._counted(served.name):
            body, header = await self._body(request), request.headers.get(HEADER_LENGTH)
            if header is not None and not header.isdecimal():
                raise UsageError(f"{HEADER_LENGTH} is {header!r}", fix="give the number of bytes of the JSON")
            inputs, outputs = served.model.inputs, served.model.outputs  # a fresh file may have others meanwhile
            given = tensors.asked(body, None if header is None else int(header), inputs, outputs)
            found = await served.infer(given.inputs, _caller(request))
            content, length = tensors.answer(served.name, given, outputs, found)
        if length is None:
            return Response(content, media_type="application/json")
        return Response(content, media_type="application/octet-stream", headers={HEADER_LENGTH: str(length)})

    async def _metrics(self, _: Request) -> Response:
        return Response(generate_latest(self.counters.registry), media_type="text/plain; version=0.0.4")

    async def _models(self, _: Request) -> Response:
        return JSONResponse({"object": "list", "data": [{"id": name, "object": "model"} for name in self.models]})

    def _on_texts(self, answer: Answer) -> Handler:
        async def answered(request: Request) -> Response:
            plain = openai.read(await self._body(request))
            served = self._named(str(plain.get("model", "")))
            if served.name not in self.texts:
                fix = f"serve it with --tokenizer {served.name}=tokenizer.json"
                raise UsageError(f"the model {served.name} has no tokenizer here", fix)
            with self._counted(served.name):
                return await answer(served, self.texts[served.name], plain, _caller(request))

        return answered

    async def _body(self, request: Request) -> bytes:
        if request.headers.get("Content-Encoding", "identity") != "identity":
            raise ClientError("the body is compressed", "send it as it is", status=415)
        parts, size = [], 0
        async for part in request.stream():
            parts.append(part)
            size += len(part)
            if size > self.body_bytes:
                fix = f"send less, or serve with --max-body {size >> 20} or more"
                raise ClientError(f"the body is larger than {self.body_bytes >> 20} MiB", fix, status=413)
        return b"".join(parts)

    @contextlib.contextmanager
    def _counted(self, model: str) -> Iterator[None]:
        begin, status = time.perf_counter(), "failed"
        try:
            yield
            status = "answered"
        except Busy:
            status = "busy"
            raise
        except ClientError:
            status = "refused"
            raise
        finally:
            self.counters.requests.labels(model, status).inc()
            if status == "answered":
                self.counters.seconds.labels(model).observe(time.perf_counter() - begin)


def _caller(request: Request) -> str:
    """Who takes turns with others: the bearer of a key, or who is at an address."""
    return request.headers.get("Authorization") or (request.client.host if request.client else "")


def _refusal(request: Request, error: ClientError) -> Response:
    """An error in the words of the protocol that was spoken."""
    status = 429 if isinstance(error, Busy) else error.status or 400
    text = f"{error.message}. Fix: {error.fix}" if error.fix else error.message
    spoken = {"message": text, "type": error.code, "code": None, "param": None}
    plain = {"error": spoken if request.url.path.startswith("/v1/") else text}
    return JSONResponse(plain, status, {"Retry-After": str(RETRY_AFTER_S)} if status == 429 else None)


def names_of(given: Sequence[str]) -> dict[str, str]:
    """Files by the names under which they are served: `NAME=FILE`, or the file's name without its ending."""
    found: dict[str, str] = {}
    for one in given:
        name, is_named, file = one.partition("=")
        if not is_named:
            name, file = one.rsplit("/", 1)[-1].removesuffix(".tw"), one
        if name in found:
            raise UsageError(f"two models are named {name!r}", fix="name them: NAME=FILE")
        found[name] = file
    return found

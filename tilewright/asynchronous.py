"""The same client for asyncio: each method of `Client`, awaited.

async with AsyncClient() as client:
    job = (await client.wait(await client.compile("model.onnx", {"threads": 4}))).require_success()
    await client.download(job, "model.tw")
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar, cast

import httpx

from tilewright.client import Client
from tilewright.discover import find_server
from tilewright.http import trusted, uses_environment
from tilewright.loops import Call, Cancelled, LoopTransport, awaited

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

AT_ONCE = 32
"""Calls of one client that are carried out at once; further ones wait."""
_END = object()


def _once(method: Callable[Concatenate[Client, P], R]) -> Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, R]]:
    """The method, awaited."""

    @functools.wraps(method)
    async def call(self: AsyncClient, /, *arguments: P.args, **named: P.kwargs) -> R:
        return await awaited(self._pool, lambda: method(self._client, *arguments, **named))

    return cast("Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, R]]", call)


def _each(
    method: Callable[Concatenate[Client, P], Iterator[T]],
) -> Callable[Concatenate[AsyncClient, P], AsyncIterator[T]]:
    """The method, as an asynchronous iterator; pages are asked for as they are needed."""

    @functools.wraps(method)
    async def each(self: AsyncClient, /, *arguments: P.args, **named: P.kwargs) -> AsyncIterator[T]:
        call = Call(asyncio.get_running_loop())
        found: Iterator[T] | None = None
        try:
            found = steps = await awaited(self._pool, lambda: method(self._client, *arguments, **named), keep=call)
            while True:
                one = await awaited(self._pool, lambda: next(steps, _END), keep=call)
                if one is _END:
                    return
                yield cast(T, one)
        finally:
            call.end()
            if isinstance(found, Generator):
                # A step that was cancelled may still be on its way out of it; then it closes by itself.
                with contextlib.suppress(ValueError, RuntimeError, Cancelled):
                    await asyncio.get_running_loop().run_in_executor(self._pool, found.close)

    return cast("Callable[Concatenate[AsyncClient, P], AsyncIterator[T]]", each)


class AsyncClient:
    """Connections to one server, for asyncio: methods, arguments, errors and repeating are those of `Client`.

    What gives an iterator there is to be used with `async for`, the rest is to be awaited. Requests run on the event
    loop over httpx, and cancelling a task ends its request; reading files, checking and pauses take place in threads,
    so the loop never waits for them. Functions that are called with progress are called in such a thread. Use it in an
    `async with` block, or `await close()`, on one loop. Making one waits, as `tilewright.discover` says, where a server
    of this machine is starting.

    transport  of `httpx`, for tests and for sockets of your own
    """

    def __init__(
        self,
        url: str = "",
        key: str = "",
        *,
        profile: str = "",
        transport: httpx.AsyncBaseTransport | None = None,
        timeout_s: float = 60.0,
        pause_s: float = 0.5,
    ) -> None:
        server = find_server(url, key, profile)
        self._inner = httpx.AsyncClient(
            transport=transport,
            trust_env=uses_environment(server.url),
            verify=trusted(server.url),
            limits=httpx.Limits(max_connections=AT_ONCE, max_keepalive_connections=AT_ONCE),
        )
        self._client = Client(
            server.url, server.key, transport=LoopTransport(self._inner), timeout_s=timeout_s, pause_s=pause_s
        )
        self._client._for_jobs = None  # whose calls are not to be made on the event loop
        self._pool = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="tilewright")
        self.url = self._client.url

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections; calls that go on end with an error."""
        self._client.close()
        await self._inner.aclose()
        self._pool.shutdown(wait=False, cancel_futures=True)

    attestation = _once(Client.attestation)
    audit = _each(Client.audit)
    batch = _once(Client.batch)
    batches = _each(Client.batches)
    benchmark = _once(Client.benchmark)
    benchmarks = _each(Client.benchmarks)
    cancel = _once(Client.cancel)
    cancel_batch = _once(Client.cancel_batch)
    change_owner = _once(Client.change_owner)
    change = _once(Client.change)
    chunks = _each(Client.chunks)
    clone = _once(Client.clone)
    compare = _once(Client.compare)
    compile = _once(Client.compile)
    compress = _once(Client.compress)
    delete_model = _once(Client.delete_model)
    delete_owner = _once(Client.delete_owner)
    delete_webhook = _once(Client.delete_webhook)
    delete_workload = _once(Client.delete_workload)
    deliveries = _each(Client.deliveries)
    download = _once(Client.download)
    download_compressed = _once(Client.download_compressed)
    download_legalised = _once(Client.download_legalised)
    download_made = _once(Client.download_made)
    download_minimised = _once(Client.download_minimised)
    download_model = _once(Client.download_model)
    download_quantized = _once(Client.download_quantized)
    events = _each(Client.events)
    export_records = _once(Client.export_records)
    files = _once(Client.files)
    finish = _once(Client.finish)
    generate = _each(Client.generate)
    history = _once(Client.history)
    import_records = _once(Client.import_records)
    infer = _once(Client.infer)
    job = _once(Client.job)
    jobs = _each(Client.jobs)
    keys = _each(Client.keys)
    label = _once(Client.label)
    label_model = _once(Client.label_model)
    legalise = _once(Client.legalise)
    log = _once(Client.log)
    make_key = _once(Client.make_key)
    make_owner = _once(Client.make_owner)
    make_webhook = _once(Client.make_webhook)
    manifest = _once(Client.manifest)
    me = _once(Client.me)
    minimise = _once(Client.minimise)
    models = _each(Client.models)
    operators = _once(Client.operators)
    outputs = _once(Client.outputs)
    owner = _once(Client.owner)
    owners = _each(Client.owners)
    pieces = _each(Client.pieces)
    plan = _once(Client.plan)
    place = _once(Client.place)
    preflight = _once(Client.preflight)
    purge = _once(Client.purge)
    quantize = _once(Client.quantize)
    ready = _once(Client.ready)
    receipt = _once(Client.receipt)
    record_source = _once(Client.record_source)
    records_to = _once(Client.records_to)
    report = _once(Client.report)
    result = _once(Client.result)
    retry_batch = _once(Client.retry_batch)
    put_workload = _once(Client.put_workload)
    revoke_key = _once(Client.revoke_key)
    revoke_share = _once(Client.revoke_share)
    rotate_key = _once(Client.rotate_key)
    share = _once(Client.share)
    shares = _once(Client.shares)
    signer = _once(Client.signer)
    source = _once(Client.source)
    start_inference = _once(Client.start_inference)
    targets = _once(Client.targets)
    tokens = _each(Client.tokens)
    try_webhook = _once(Client.try_webhook)
    tuning_record = _once(Client.tuning_record)
    tuning_records = _each(Client.tuning_records)
    upload = _once(Client.upload)
    version = _once(Client.version)
    wait = _once(Client.wait)
    webhooks = _once(Client.webhooks)
    workers = _once(Client.workers)
    workload = _once(Client.workload)
    workloads = _once(Client.workloads)

"""Threads for what blocks, in pools apart, so that no kind of work holds up another."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar, TypeVarTuple

import anyio
import anyio.to_thread

Arguments = TypeVarTuple("Arguments")
Result = TypeVar("Result")


class Pool:
    """At most `threads` threads at a time; who comes later waits, first come, first served."""

    def __init__(self, threads: int) -> None:
        self._limiter = anyio.CapacityLimiter(threads)

    async def run(self, call: Callable[[*Arguments], Result], *arguments: *Arguments) -> Result:
        """What the call returns, made in a thread. Raises what it raises."""
        return await anyio.to_thread.run_sync(call, *arguments, limiter=self._limiter)


@dataclass(frozen=True)
class Pools:
    """Of one process. What only asks the database runs in the pool that all routes share.

    keys       look up again API keys that were let in before
    strangers  look up all others: whoever makes them up waits for others who do
    bodies     write bodies to the blob store as they come
    unpacking  hash and unpack what has arrived whole, and read archives: a core each
    preflight  wait for the processes that read models
    downloads  read blobs that are sent
    """

    keys: Pool = field(default_factory=lambda: Pool(2))
    strangers: Pool = field(default_factory=lambda: Pool(2))
    bodies: Pool = field(default_factory=lambda: Pool(16))
    unpacking: Pool = field(default_factory=lambda: Pool(max(1, (os.cpu_count() or 2) // 2)))
    preflight: Pool = field(default_factory=lambda: Pool(16))
    downloads: Pool = field(default_factory=lambda: Pool(16))

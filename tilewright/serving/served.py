"""An artifact that is served: replicas of it, the runs that wait for one, and the file that takes its place."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from tilewright.batching import Batcher, Busy, Texts, joiner_of
from tilewright.errors import ClientError, UsageError
from tilewright.loading import Model, load

Given = TypeVar("Given")
LOG = logging.getLogger("tilewright.serving")


class Cores:
    """Lanes that run at the same time, over all models; who waits is served in turn.

    A run that needs more lanes than there are takes them all.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self._free = count
        self._waiting: deque[tuple[int, Future[None]]] = deque()
        self._lock = threading.Lock()

    @contextlib.asynccontextmanager
    async def held(self, lanes: int) -> AsyncIterator[None]:
        """These lanes, for as long as the context lasts. A caller that is cancelled leaves the queue."""
        mine = self._asked(lanes)
        try:
            if not mine.done():
                await asyncio.wrap_future(mine)
        except asyncio.CancelledError:
            self._give(0 if mine.cancel() else lanes)
            raise
        try:
            yield
        finally:
            self._give(lanes)

    @contextlib.contextmanager
    def held_here(self, lanes: int) -> Iterator[None]:
        """The same for a thread, which waits."""
        self._asked(lanes).result()
        try:
            yield
        finally:
            self._give(lanes)

    def _asked(self, lanes: int) -> Future[None]:
        mine: Future[None] = Future()
        with self._lock:
            self._waiting.append((min(lanes, self.count), mine))
            self._serve()
        return mine

    def _give(self, lanes: int) -> None:
        with self._lock:
            self._free += min(lanes, self.count)
            self._serve()

    def _serve(self) -> None:
        """The first who waits goes first, however many lanes it needs."""
        while self._waiting and (self._waiting[0][0] <= self._free or self._waiting[0][1].cancelled()):
            lanes, future = self._waiting.popleft()
            if future.set_running_or_notify_cancel():
                self._free -= lanes
                future.set_result(None)


DESCRIPTORS = Path("/proc/self/fd")
"""Files that the process has open, by number."""


class Replicas:
    """The models of one file. Each runs one inference at a time, and all share its weights in memory.

    What is read later is of the same file, whatever has taken its place, where the system names open files (Linux).
    Raises what `opened` raises, and `OSError`.
    """

    def __init__(self, path: Path, opened: Callable[[Path], Model], joins: bool = False) -> None:
        self._held = contextlib.ExitStack()
        same = path
        if DESCRIPTORS.is_dir() and path.exists():
            file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            self._held.callback(os.close, file)
            same = DESCRIPTORS / str(file)
        self.state = state_of(same)
        self._open = partial(opened, same)
        with self._held:
            try:
                self.first = opened(same)
            except UsageError as error:
                raise UsageError(error.message.replace(str(same), str(path)), error.fix) from error
            self._held = self._held.pop_all()
        self.lanes = int(getattr(self.first, "lanes", 1))
        self._free = [self.first]
        self._all = [self.first]
        self._in_use = 0
        self.joiner = joiner_of(self.first) if joins else None
        self._is_over = False
        self._lock = threading.Lock()

    def begin(self) -> None:
        """Says that a call of `run` follows, or of `leave`; until then they stay open."""
        with self._lock:
            self._in_use += 1

    def leave(self) -> None:
        """Takes back one `begin`."""
        with self._lock:
            self._in_use -= 1
        self._close_when_over()

    def run(self, work: Callable[[Model], Given]) -> Given:
        """What `work` gives for a model that nobody else runs meanwhile; opened where all are in use."""
        try:
            with self._lock:
                model = self._free.pop() if self._free else None
            if model is None:
                model = self._open()
                with self._lock:
                    self._all.append(model)
            try:
                return work(model)
            finally:
                with self._lock:
                    self._free.append(model)
        finally:
            self.leave()

    def end(self) -> None:
        """Close them when the last run has ended."""
        self._is_over = True
        self._close_when_over()

    def _close_when_over(self) -> None:
        with self._lock:
            models = [] if self._in_use or not self._is_over else self._all
            self._all = self._all if models is not self._all else []
        for model in models:
            model.close()
        if models:
            self._held.close()


def state_of(path: Path) -> tuple[int, int, int] | None:
    """What differs for a file that takes another's place; None where there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def ran(model: Model, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """A run whose refusals are `UsageError`; one that fails is a `ClientError` with the status 500."""
    return told(model, lambda model: model.run(inputs))


def told(model: Model, work: Callable[[Model], Given]) -> Given:
    """What `work` gives for a model, with the errors of `ran`."""
    try:
        return work(model)
    except model.errors as error:
        message, _, fix = str(error).partition(" Fix: ")
        if type(error).__name__ == "InputError":
            raise UsageError(message.rstrip("."), fix) from error
        raise ClientError(message.rstrip("."), fix, status=500) from error


class Served:
    """A model by the name under which it is served.

    lanes   of a run; None: as it was compiled for
    queue   runs, or requests that are joined, that may wait for lanes; one more is refused
    opened  a model of a file; None: the artifact that it is
    joins   whether requests are joined into runs, where the model is one that takes several
    """

    def __init__(
        self,
        name: str,
        path: Path,
        cores: Cores,
        lanes: int | None = None,
        queue: int = 64,
        opened: Callable[[Path], Model] | None = None,
        joins: bool = False,
    ) -> None:
        self.name, self.path, self.queue = name, path, queue
        self._joins = joins
        self._batcher: Batcher | None = None
        self._runs_waiting = 0
        self._cores = cores
        self._opened = opened or (lambda path: load(path, lanes))
        self._threads = ThreadPoolExecutor(cores.count, thread_name_prefix=f"serve-{name}")
        self._replicas = Replicas(path, self._opened, joins)
        self._state = self._replicas.state

    @property
    def waiting(self) -> int:
        """Runs, or requests that are joined, that wait."""
        return self._runs_waiting + (0 if self._batcher is None else len(self._batcher))

    @property
    def replicas(self) -> int:
        """Runs that the cores have room for at a time."""
        return max(1, self._cores.count // self._replicas.lanes)

    @property
    def model(self) -> Model:
        """The first replica, for what it says of itself."""
        return self._replicas.first

    @property
    def joins(self) -> bool:
        """Whether requests are joined into runs."""
        return self._replicas.joiner is not None

    async def join(self, request: Any, caller: str = "") -> Any:
        """The answer to a request that is joined with others (`tilewright.batching`). Raises as `do` does."""
        replicas = self._replicas

        def work(call: Callable[[Model], list[Any]]) -> list[Any]:
            with self._cores.held_here(replicas.lanes):
                replicas.begin()
                return replicas.run(lambda model: told(model, call))

        if self._batcher is None:
            self._batcher = Batcher(self.model, self.queue, runs=self.replicas, work=work)
        return await asyncio.wrap_future(self._batcher.submit(request, caller))

    async def infer(self, inputs: Mapping[str, Any], caller: str = "") -> dict[str, Any]:
        """Outputs by name, of a run that may be others' too."""
        joiner = self._replicas.joiner
        if joiner is None:
            return await self.do(lambda model: ran(model, inputs))
        if isinstance(joiner, Texts):
            return joiner.together(await self.join(joiner.apart(inputs), caller))
        found: dict[str, Any] = await self.join(inputs, caller)
        return found

    async def do(self, work: Callable[[Model], Given]) -> Given:
        """What `work` gives for a replica that is its own, on a thread. Raises `Busy`, and what `work` raises.

        A caller that is cancelled while it waits is forgotten; work that has begun ends, and its replica is free then.
        """
        if self._runs_waiting >= self.queue:
            raise Busy(f"{self._runs_waiting} runs wait for the model {self.name}", fix="send it again later")
        return await self._given_lanes(self._replicas, work)

    async def _given_lanes(self, replicas: Replicas, work: Callable[[Model], Given]) -> Given:
        self._runs_waiting += 1
        held = contextlib.AsyncExitStack()
        replicas.begin()
        try:
            await held.enter_async_context(self._cores.held(replicas.lanes))
        except BaseException:
            replicas.leave()
            raise
        finally:
            self._runs_waiting -= 1
        return await asyncio.shield(asyncio.ensure_future(self._carried_out(replicas, held, work)))

    async def _carried_out(
        self, replicas: Replicas, held: contextlib.AsyncExitStack, work: Callable[[Model], Given]
    ) -> Given:
        async with held:
            return await asyncio.get_running_loop().run_in_executor(self._threads, replicas.run, work)

    async def reload(self) -> bool:
        """Load the file again if it was replaced; whether it was. Requests that came before end on the old one.

        A file that cannot be loaded changes nothing, and is tried again when it changes.
        """
        state = state_of(self.path)
        if state in (None, self._state):
            return False
        self._state = state
        try:
            fresh = await asyncio.to_thread(Replicas, self.path, self._opened, self._joins)
        except Exception as error:  # a file may hold any code
            LOG.warning("%s: %s was replaced by what cannot be loaded: %s", self.name, self.path, error)
            return False
        old, self._replicas, self._state = self._replicas, fresh, fresh.state
        batcher, self._batcher = self._batcher, None
        if batcher is not None:
            await asyncio.to_thread(batcher.close)
        old.end()
        LOG.info("%s: %s was replaced, and loaded", self.name, self.path)
        return True

    def close(self) -> None:
        """End all threads, after the runs that have begun, and free the models. Not on the loop that runs them."""
        if self._batcher is not None:
            self._batcher.close()
        self._threads.shutdown()
        self._replicas.end()

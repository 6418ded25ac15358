"""Dynamic batching: requests of many callers that wait at the same time are joined into runs.

A run begins as soon as the model is free, with what waits by then, so that who comes alone waits for nobody. How long a
run of some size takes is learnt from those before it: a line, fitted by least squares. A run grows while that makes a
token cheaper by more than ENOUGH, and no longer than the deadlines in it allow. Callers have their turns by start-time
fair queuing (Goyal, Vin, Cheng, SIGCOMM 1996), each token of a request counting alike.
"""

from __future__ import annotations

import itertools
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from tilewright.errors import ClientError, UsageError
from tilewright.loading import Model

Given = TypeVar("Given")
Array = NDArray[Any]
Outputs = dict[str, Array]
ENOUGH = 0.03
"""Of the cost of a token, what the part of a run that is the same at any size may make of it."""
REMEMBERED = 64
"""Runs from which the time of one is predicted."""


class Busy(ClientError):
    """As many requests wait for a model as may."""

    exit_status = 4
    code = "busy"


class DeadlineMissed(ClientError):
    """A request would not be answered in time."""

    exit_status = 6
    code = "deadline"


class Joiner(Protocol):
    """How requests to a model become one run."""

    most: int
    """Rows of a run: texts, or samples."""
    tokens: int
    """Of a run; of samples each has one."""

    def size(self, request: Any) -> tuple[int, int, Hashable]:
        """A request's rows and tokens, and what it can only be joined with. Raises UsageError for none."""

    def run(self, model: Model, requests: Sequence[Any]) -> list[Any]:
        """The answers to requests that are joined."""


class Texts:
    """Of artifacts compiled with `ragged`. A request is a list of texts, and its answer has the outputs of each."""

    def __init__(self, model: Model) -> None:
        *inputs, offsets = model.inputs
        self.inputs, self.offsets = tuple(spec.name for spec in inputs), offsets.name
        self._name, self._by_tokens = self.inputs[0], model.manifest["open"]["texts"]["by_tokens"]
        self._outputs = [spec.name for spec in model.outputs]
        self.most, self.tokens = offsets.shape[0] - 1, inputs[0].shape[0]

    @staticmethod
    def takes(model: Model) -> bool:
        """Whether a model was compiled so."""
        return "texts" in model.manifest.get("open", {})

    def size(self, request: Any) -> tuple[int, int, Hashable]:
        """Its texts and their tokens; one text may stand for a list of one."""
        if isinstance(request, Mapping) or not isinstance(request, Sequence):
            raise UsageError("a request is no list of texts", fix="give a list")
        texts = [one.get(self._name, ()) if isinstance(one, Mapping) else one for one in request]
        return len(texts), sum(np.size(one) for one in texts), None

    def apart(self, inputs: Mapping[str, Array]) -> list[dict[str, Array]]:
        """The texts of inputs in the program's own form: tokens of all texts, and offsets. Raises UsageError."""
        if {*inputs} != {*self.inputs, self.offsets}:
            raise UsageError("there are other inputs than the model's", fix=f"give {', '.join(self.inputs)}, offsets")
        ends = np.asarray(inputs[self.offsets]).reshape(-1)
        lengths = {np.size(inputs[name]) for name in self.inputs}
        if not (len(ends) > 1 and lengths == {int(ends[-1])} and ends[0] == 0 and (np.diff(ends) > 0).all()):
            fix = "give the place of each text's first token, from 0 on and rising, and the number of all tokens"
            raise UsageError(f"{self.offsets} are not those of texts of {max(lengths)} tokens", fix=fix)
        lines = {name: np.asarray(inputs[name]).reshape(-1) for name in self.inputs}
        pairs = itertools.pairwise(ends.tolist())
        return [{name: line[first:past] for name, line in lines.items()} for first, past in pairs]

    def together(self, answers: Sequence[Outputs]) -> Outputs:
        """The outputs of texts in the program's own form: rows of all tokens, or of all texts."""
        joins = (np.concatenate if is_token else np.stack for is_token in self._by_tokens)
        return {
            name: np.asarray(join([one[name] for one in answers]))
            for name, join in zip(self._outputs, joins, strict=True)
        }

    def run(self, model: Model, requests: Sequence[Any]) -> list[Any]:
        """All texts in one run, or as few as hold them."""
        found = iter(model.run_texts([text for request in requests for text in request]))
        return [[*itertools.islice(found, len(request))] for request in requests]


class Samples:
    """Of artifacts whose inputs have one open axis of samples. A request has inputs by name, and so has its answer."""

    tokens: int

    def __init__(self, model: Model) -> None:
        self._names = [spec.name for spec in model.inputs]
        self.most = self.tokens = max(binding.inputs[0].shape[0] for binding in model.bindings)

    @staticmethod
    def takes(model: Model) -> bool:
        """Whether all inputs and outputs have an open first axis, the inputs of one name."""
        for binding in model.bindings:
            axes = [spec.axes[0] if spec.axes else None for spec in binding.inputs]
            names = {getattr(axis, "name", None) for axis in axes}
            if len(names) == 1 and None not in names and all(spec.axes and spec.axes[0] for spec in binding.outputs):
                return True
        return False

    def size(self, request: Any) -> tuple[int, int, Hashable]:
        """Its samples; others must have the same shapes and types behind their first axis."""
        if not isinstance(request, Mapping) or {*request} != {*self._names}:
            raise UsageError("a request has other inputs than the model", fix=f"give {', '.join(self._names)}")
        arrays = {name: np.asarray(request[name]) for name in self._names}
        if any(array.ndim == 0 for array in arrays.values()):
            raise UsageError("an input has no axis of samples", fix="give each input with samples as its first axis")
        rows = len(arrays[self._names[0]])
        if any(len(array) != rows for array in arrays.values()):
            raise UsageError("inputs have different numbers of samples", fix="give each input as many")
        return rows, rows, tuple((array.shape[1:], array.dtype.str) for array in arrays.values())

    def run(self, model: Model, requests: Sequence[Any]) -> list[Any]:
        """One run of all samples."""
        if len(requests) == 1:
            return [model.run(requests[0])]
        joined = {name: np.concatenate([request[name] for request in requests]) for name in self._names}
        ends = np.cumsum([len(request[self._names[0]]) for request in requests])
        whole = model.run(joined)
        if wrong := next((name for name, array in whole.items() if len(array) != ends[-1]), None):
            raise ClientError(f"output {wrong!r} has not a row for each sample", fix="run it without batching")
        return [
            {name: array[end - len(request[self._names[0]]) : end] for name, array in whole.items()}
            for request, end in zip(requests, ends.tolist(), strict=True)
        ]


def joiner_of(model: Model) -> Joiner | None:
    """How requests to a model are joined; None where each needs a run of its own."""
    return Texts(model) if Texts.takes(model) else Samples(model) if Samples.takes(model) else None


@dataclass
class Costs:
    """What runs took: seconds by tokens."""

    seen: deque[tuple[int, float]] = field(default_factory=lambda: deque(maxlen=REMEMBERED))
    line: tuple[float, float] = (0.0, 0.0)
    """Seconds of a run, and of a token in it, neither below 0; zeros where nothing is known."""

    def add(self, tokens: int, seconds: float) -> None:
        """A run more."""
        self.seen.append((tokens, seconds))
        self.line = self._fitted()

    def _fitted(self) -> tuple[float, float]:
        tokens, seconds = np.array(self.seen).T
        spread = tokens - tokens.mean()
        square = float(spread @ spread)
        slope = float(spread @ (seconds - seconds.mean())) / square if square else 0.0
        slope = min(max(slope, 0.0), float(seconds.mean() / tokens.mean()))
        return max(float(seconds.mean() - slope * tokens.mean()), 0.0), slope

    def seconds(self, tokens: int) -> float:
        """What a run of so many tokens is expected to take."""
        run, token = self.line
        return run + token * tokens

    def enough(self, most: int) -> int:
        """Tokens from which on a larger run makes a token no more than ENOUGH cheaper, at most `most`."""
        run, token = self.line
        return most if token * ENOUGH * most <= run else max(1, math.ceil(run / (token * ENOUGH)))


@dataclass
class _Waiting:
    """A request that waits: `start` is its virtual time, and `end` when it must be answered, by the clock."""

    request: Any
    rows: int
    tokens: int
    kind: Hashable
    start: float
    end: float
    future: Future[Any] = field(default_factory=Future)


class Batcher:
    """Joins requests to a model into runs; `submit` may be called from any thread.

    model  an artifact with `ragged`, whose requests are lists of texts, or with an open axis of samples in all inputs,
           which it treats one by one; requests are then inputs by name
    queue  requests that may wait; one more raises Busy
    wait_s how long a run waits for more requests than there are when it could begin
    tokens of a run at most; None: as many as the artifact takes
    runs   side by side, each on a thread of its own; `work` says how one gets a model, None: it is this one's turn

    Raises UsageError for a model whose requests cannot be joined.
    """

    def __init__(
        self,
        model: Model,
        queue: int = 1024,
        wait_s: float = 0.0,
        tokens: int | None = None,
        runs: int = 1,
        work: Callable[[Callable[[Model], list[Any]]], list[Any]] | None = None,
    ) -> None:
        joiner = joiner_of(model)
        if joiner is None:
            fix = 'compile it with ragged, or a range of its batch, such as {"dims": {"batch": {"min": 1, "max": 16}}}'
            raise UsageError("requests to the model cannot be joined", fix=fix)
        self.joiner, self.costs = joiner, Costs()
        self._queue, self._wait_s = queue, wait_s
        self._tokens = min(tokens or joiner.tokens, joiner.tokens)
        self._work = work or (lambda call: call(model))
        self._waiting: dict[Hashable, deque[_Waiting]] = {}
        self._served: dict[Hashable, float] = {}
        self._now = 0.0
        self._is_closed = False
        self._changed = threading.Condition()
        self._threads = [threading.Thread(target=self._serve, daemon=True, name="batcher") for _ in range(runs)]
        for thread in self._threads:
            thread.start()

    def __len__(self) -> int:
        """How many requests wait."""
        with self._changed:
            return self._count()

    def submit(self, request: Any, caller: Hashable = None, timeout_s: float | None = None) -> Future[Any]:
        """The answer to a request, when there is one. A future that is cancelled while it waits costs nothing.

        `caller` is whose turn it takes: callers have the same number of tokens where several wait. A request that
        cannot be answered within `timeout_s` fails with DeadlineMissed, and is not run. Raises Busy and UsageError.
        """
        rows, tokens, kind = self.joiner.size(request)
        end = math.inf if timeout_s is None else time.monotonic() + timeout_s
        with self._changed:
            if self._is_closed:
                raise ClientError("the batcher is closed", fix="make another one")
            if sum(map(len, self._waiting.values())) >= self._queue <= (count := self._count()):
                raise Busy(f"{count} requests wait for the model", fix="send it again later")
            start = max(self._now, self._served.get(caller, 0.0))
            self._served[caller] = start + tokens
            found = _Waiting(request, rows, tokens, kind, start, end)
            self._waiting.setdefault(caller, deque()).append(found)
            self._changed.notify_all()
        return found.future

    def close(self) -> None:
        """Answers what waits, then ends. Nothing is taken any more."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    def __enter__(self) -> Batcher:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _count(self) -> int:
        return sum(not one.future.cancelled() for line in self._waiting.values() for one in line)

    def _serve(self) -> None:
        while (group := self._taken()) is not None:
            if group:
                self._run(group)

    def _taken(self) -> list[_Waiting] | None:
        """Requests of the next run, waited for; None once all is over."""
        with self._changed:
            while not self._waiting:
                if self._is_closed:
                    return None
                self._changed.wait()
            end = time.monotonic() + self._wait_s
            while (left := end - time.monotonic()) > 0 and not self._is_closed and self._sum() < self._tokens:
                self._changed.wait(left)
            return self._group()

    def _sum(self) -> int:
        return sum(one.tokens for line in self._waiting.values() for one in line)

    def _group(self) -> list[_Waiting]:
        """Of those that wait the ones whose turn it is, as far as they can be joined; one at least, if one is left."""
        group: list[_Waiting] = []
        rows = tokens = 0
        most = min(self._tokens, self.costs.enough(self._tokens))
        now, soonest = time.monotonic(), math.inf
        while self._waiting:
            caller = min(self._waiting, key=lambda name: self._waiting[name][0].start)
            one = self._waiting[caller][0]
            is_late = now + self.costs.seconds(one.tokens) > one.end
            if not is_late and not one.future.cancelled() and group:
                ends = now + self.costs.seconds(tokens + one.tokens)
                fits = rows + one.rows <= self.joiner.most and tokens + one.tokens <= most
                if not (fits and one.kind == group[0].kind and ends <= min(soonest, one.end)):
                    break
            self._waiting[caller].popleft()
            if not self._waiting[caller]:
                del self._waiting[caller]
            self._now = max(self._now, one.start)
            if not one.future.set_running_or_notify_cancel():
                continue
            if is_late:
                one.future.set_exception(DeadlineMissed("there is no time left to answer", fix="give it more time"))
                continue
            group.append(one)
            rows, tokens, soonest = rows + one.rows, tokens + one.tokens, min(soonest, one.end)
        if not self._waiting:
            self._served = {caller: end for caller, end in self._served.items() if end > self._now}
        return group

    def _run(self, group: Sequence[_Waiting]) -> None:
        """Answers a group; where it fails each request by itself, so that one that is wrong spoils no other's."""

        def together(model: Model) -> list[Any]:
            begin = time.monotonic()
            found = self.joiner.run(model, [one.request for one in group])
            self.costs.add(sum(one.tokens for one in group), time.monotonic() - begin)
            return found

        try:
            found = self._work(together)
        except Exception as error:  # whatever it is, somebody waits for it
            if len(group) == 1:
                group[0].future.set_exception(error)
            else:
                for one in group:
                    self._run([one])
            return
        for one, answer in zip(group, found, strict=True):
            one.future.set_result(answer)

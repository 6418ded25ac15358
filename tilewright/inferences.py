"""Run an artifact on the server: arrays go and come as .npz, tokens and pieces of an output as they are made."""

from __future__ import annotations

import contextlib
import hashlib
import io
import uuid
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from tilewright.arrays import array_of, read_npz, write_npz
from tilewright.errors import BrokenDownload
from tilewright.follow import follow
from tilewright.generation.generate import MOST_TOKENS, as_input
from tilewright.http import IDEMPOTENCY_KEY, Http
from tilewright.names import artifact_of
from tilewright.wire import Inference, Job, JobEvent

if TYPE_CHECKING:
    from numpy.typing import NDArray

NPZ = "application/x-npz"
T = TypeVar("T")
_Reading = Callable[[Iterable[JobEvent]], Iterator[T]]
"""What events of one kind tell."""


class Inferences:
    """The part of `Client` that runs artifacts on the server's device."""

    _http: Http

    def infer(
        self, artifact: Job | str, inputs: Mapping[str, Any], *, threads: int | None = None, seed: int | None = None
    ) -> dict[str, NDArray[Any]]:
        """Run an artifact on the server: arrays by name in and out. Raises `JobFailed` when it could not be run."""
        queued = self.start_inference(artifact, inputs, threads=threads, seed=seed)
        for _ in follow(self._http, queued.id, 0):
            pass
        return self.outputs(self._as_it_is(queued))

    def start_inference(
        self,
        artifact: Job | str,
        inputs: Mapping[str, Any],
        *,
        threads: int | None = None,
        seed: int | None = None,
        generating: Mapping[str, Any] | None = None,
        pieces: bool = False,
        idempotency_key: str = "",
    ) -> Inference:
        """Queue a run of an artifact; `wait` for it, then fetch its `outputs`. `seed` is of what the model draws.

        With `generating` (`max_tokens`, and perhaps `temperature`, `top_k`, `top_p` and `stop`) the artifact is a
        decoder with caches, `inputs` its prompt (`{"ids": array}`), and `tokens` brings what follows, also live. With
        `pieces` it is one that was compiled with `chunks`, and `Client.pieces` brings its output as it is made.

        Raises `UsageError` for inputs that are no arrays.
        """
        body = io.BytesIO()
        write_npz(body, inputs)
        options = {"threads": threads, "seed": seed, "pieces": "true" if pieces else None, **(generating or {})}
        params = {"artifact": artifact_of(artifact)} | {name: one for name, one in options.items() if one is not None}
        key = idempotency_key or uuid.uuid4().hex
        headers = {"Content-Type": NPZ, IDEMPOTENCY_KEY: key, "Content-Length": str(body.tell())}
        return Inference.from_json(
            self._http.json("POST", "/inferences", params=params, headers=headers, content=lambda: (body.getvalue(),))
        )

    def outputs(self, inference: Inference) -> dict[str, NDArray[Any]]:
        """The arrays that a run made.

        Raises `JobFailed` when it failed, `BrokenDownload` when the bytes are not those announced.
        """
        path = f"/inferences/{inference.require_success().id}/outputs"
        response = self._http.request("GET", path, headers={"Accept-Encoding": "identity"})
        announced = response.headers.get("ETag", "").strip('"')
        found = hashlib.sha256(response.content).hexdigest()
        if found != announced:
            said = f"the outputs have SHA-256 {found}, the server announced {announced}"
            raise BrokenDownload(said, fix="fetch again")
        return read_npz(io.BytesIO(response.content))

    def generate(
        self,
        /,
        artifact: Job | str,
        ids: Sequence[int],
        *,
        max_tokens: int = MOST_TOKENS,
        threads: int | None = None,
        seed: int = 0,
        **how: Any,
    ) -> Iterator[int]:
        """The tokens that follow a prompt, one by one, as a decoder on the server's device finds them.

        how  `temperature`, `top_k`, `top_p` and `stop`, as `tilewright.generate` takes them

        An iterator that is closed before its end cancels the job. Raises `JobFailed` where the artifact is no decoder
        or cannot read the prompt, and `UsageError`.
        """
        generating = {"max_tokens": max_tokens, **how}
        yield from self.tokens(
            self.start_inference(artifact, {"ids": as_input(ids)}, threads=threads, seed=seed, generating=generating)
        )

    def tokens(self, inference: Inference) -> Iterator[int]:
        """The tokens of an inference that generates, as they come; closed before its end, the iterator cancels it."""
        count = 0
        with contextlib.closing(self._live(inference, _told)) as live:
            for token in live:
                count += 1
                yield token
        # What the log has not: it takes so many lines of a job, and no older ones of one that has long ended.
        yield from self.outputs(self._as_it_is(inference))["tokens"][count:].tolist()

    def chunks(
        self, artifact: Job | str, inputs: Mapping[str, Any], *, threads: int | None = None, seed: int | None = None
    ) -> Iterator[NDArray[Any]]:
        """An output piece by piece, as the server's device makes it, of an artifact that was compiled with `chunks`.

        Joined along the output's longest axis they are the whole of it. An iterator that is closed before its end
        cancels the job. Raises `JobFailed` where the artifact gives no pieces or the inputs do not fit.
        """
        yield from self.pieces(self.start_inference(artifact, inputs, threads=threads, seed=seed, pieces=True))

    def pieces(self, inference: Inference) -> Iterator[NDArray[Any]]:
        """The pieces of an inference that was started with `pieces`, as they come; closed early, as for `tokens`."""
        end, axis = 0, 0
        with contextlib.closing(self._live(inference, _pieces)) as live:
            for first, axis, piece in live:
                end = first + piece.shape[axis]
                yield piece
        # What no event has brought comes at once, if there is any.
        ended = self._as_it_is(inference)
        if not end or end < next(iter(ended.outputs.values()))["shape"][axis]:
            (whole,) = self.outputs(ended).values()
            left = whole[(slice(None),) * axis + (slice(end, None),)]
            if left.size:
                yield left

    def _live(self, inference: Inference, of: _Reading[T]) -> Generator[T, None, None]:
        """What events tell; the job is cancelled where the iterator is closed before they end."""
        has_ended = False
        try:
            yield from of(follow(self._http, inference.id, 0))
            has_ended = True
            self._as_it_is(inference).require_success()
        finally:
            if not has_ended:
                self._http.json("POST", f"/jobs/{inference.id}/cancel")

    def _as_it_is(self, inference: Inference) -> Inference:
        return Inference.from_json(self._http.json("GET", f"{Inference.path}/{inference.id}"))


def _pieces(events: Iterable[JobEvent]) -> Iterator[tuple[int, int, NDArray[Any]]]:
    """Where each piece begins on which axis, and its elements, once and in order."""
    end = 0
    for event in events:
        about = event.data.get("data") or {}
        if event.kind == "piece" and about and about["first"] == end:
            end += about["shape"][about["axis"]]
            yield about["first"], about["axis"], array_of(about)


def _told(events: Iterable[JobEvent]) -> Iterator[int]:
    """Each token once and in order: a job that is tried again tells them again."""
    count = 0
    for event in events:
        about = event.data.get("data") or {}
        if event.kind == "tokens" and about and about["first"] <= count:
            new = about["tokens"][count - about["first"] :]
            count += len(new)
            yield from new

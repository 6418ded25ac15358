"""Run an artifact on the server: arrays go and come as .npz, and tokens as they are generated."""

from __future__ import annotations

import hashlib
import io
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tilewright.arrays import read_npz, write_npz
from tilewright.errors import BrokenDownload
from tilewright.follow import follow
from tilewright.generation.generate import MOST_TOKENS, as_input
from tilewright.http import IDEMPOTENCY_KEY, Http
from tilewright.names import artifact_of
from tilewright.wire import Inference, Job, JobEvent

if TYPE_CHECKING:
    from numpy.typing import NDArray

NPZ = "application/x-npz"


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
        idempotency_key: str = "",
    ) -> Inference:
        """Queue a run of an artifact; `wait` for it, then fetch its `outputs`. `seed` is of what the model draws.

        With `generating` (`max_tokens`, and perhaps `temperature`, `top_k`, `top_p` and `stop`) the artifact is a
        decoder with caches, `inputs` its prompt (`{"ids": array}`), and `tokens` brings what follows, also live.

        Raises `UsageError` for inputs that are no arrays.
        """
        body = io.BytesIO()
        write_npz(body, inputs)
        options = {"threads": threads, "seed": seed, **(generating or {})}
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
        count, has_ended = 0, False
        try:
            for token in _told(follow(self._http, inference.id, 0)):
                count += 1
                yield token
            has_ended = True
            # What the log has not: it takes so many lines of a job, and no older ones of one that has long ended.
            yield from self.outputs(self._as_it_is(inference))["tokens"][count:].tolist()
        finally:
            if not has_ended:
                self._http.json("POST", f"/jobs/{inference.id}/cancel")

    def _as_it_is(self, inference: Inference) -> Inference:
        return Inference.from_json(self._http.json("GET", f"{Inference.path}/{inference.id}"))


def _told(events: Iterable[JobEvent]) -> Iterator[int]:
    """Each token once and in order: a job that is tried again tells them again."""
    count = 0
    for event in events:
        about = event.data.get("data") or {}
        if event.kind == "tokens" and about and about["first"] <= count:
            new = about["tokens"][count - about["first"] :]
            count += len(new)
            yield from new

"""Texts as OpenAI's API has them: `/v1/embeddings` of encoders, `/v1/completions` of decoders.

A model takes texts once it has a tokenizer.
"""

from __future__ import annotations

import asyncio
import base64
import json
import threading
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from starlette.responses import JSONResponse, Response, StreamingResponse

from tilewright.errors import ClientError, UsageError
from tilewright.generation.generate import MOST_TOKENS, generate
from tilewright.generation.words import Pieces, Words
from tilewright.loading import Model
from tilewright.serving.served import Served, ran

POOLINGS = ("mean", "cls", "last")
SENTENCES = ("sentence_embedding", "sentence_embeddings", "text_embeds", "embeddings")
"""Outputs that are embeddings of whole texts already."""
IDS, MASK = ("input_ids", "ids", "tokens"), ("attention_mask", "mask")
MOST_TEXTS = 2048
"""In one request, as OpenAI has it."""
Array = NDArray[Any]


@dataclass(frozen=True)
class Texts:
    """How a model takes texts.

    pooling  how the states of its tokens become one embedding, where the model does not say it: their mean, the first
             or the last
    """

    words: Words
    pooling: str = "mean"


def read(body: bytes) -> Mapping[str, Any]:
    """A request's JSON object. Raises `UsageError`."""
    try:
        plain = json.loads(body)
    except ValueError as error:
        raise UsageError(f"the body is not JSON: {error}", fix="send a JSON object") from None
    if not isinstance(plain, dict):
        raise UsageError("the body is no JSON object", fix="send a JSON object")
    return plain


async def embeddings(served: Served, texts: Texts, plain: Mapping[str, Any]) -> dict[str, Any]:
    """The answer to `/v1/embeddings`: of each input a vector of length 1. Texts are run side by side."""
    given = _given(plain.get("input"), texts.words)
    if not 0 < len(given) <= MOST_TEXTS:
        raise UsageError(f"there are {len(given)} inputs", fix=f"give 1 to {MOST_TEXTS}")
    coded = plain.get("encoding_format", "float")
    if coded not in ("float", "base64"):
        raise UsageError(f"encoding_format is {coded!r}", fix="give float or base64")
    feeds = [_fed(served.model, ids, at) for at, ids in enumerate(given)]
    side_by_side = min(len(feeds), served.replicas)
    parts = [feeds[at::side_by_side] for at in range(side_by_side)]

    def run(part: Sequence[Mapping[str, Array]]) -> Callable[[Model], list[Array]]:
        return lambda model: [_embedded(model, one, texts.pooling) for one in part]

    done = await asyncio.gather(*(served.do(run(part)) for part in parts))
    vectors: list[Array] = [done[at % side_by_side][at // side_by_side] for at in range(len(feeds))]
    tokens = sum(map(len, given))
    return {
        "object": "list",
        "model": served.name,
        "data": [
            {"object": "embedding", "index": at, "embedding": _coded(one, coded)} for at, one in enumerate(vectors)
        ],
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    }


def _given(texts: Any, words: Words) -> list[list[int]]:
    """Tokens of each input: a text, a list of texts, a list of tokens, or a list of such lists."""
    if isinstance(texts, str) or (isinstance(texts, list) and texts and isinstance(texts[0], int)):
        texts = [texts]
    if not isinstance(texts, list):
        raise UsageError("the input is no text and no list", fix="give `input` as a text or a list of texts")
    found = []
    for at, one in enumerate(texts):
        ids = words.ids(one) if isinstance(one, str) else one
        if not isinstance(ids, list) or not ids or not all(type(token) is int for token in ids):
            raise UsageError(f"input {at} is empty, or neither a text nor tokens", fix="give a text that is not empty")
        if wrong := next((token for token in ids if not 0 <= token < words.count), None):
            raise UsageError(f"input {at} has the token {wrong} of {words.count}", fix="give tokens of this model")
        found.append(ids)
    return found


def _fed(model: Model, ids: Sequence[int], at: int) -> dict[str, Array]:
    """Inputs of an encoder for one text; where it takes no such length, padded to the least that it takes."""
    specs = {spec.name: spec for spec in model.inputs}
    tokens = next((specs[name] for name in IDS if name in specs), None)
    if tokens is None or len(tokens.shape) != 2:
        fix = "serve an encoder that takes input_ids [1, length]"
        raise UsageError(f"the model has no input of tokens among {', '.join(specs)}", fix=fix)
    least, most_tokens = _lengths(model, tokens.name)
    if len(ids) > most_tokens:
        fix = f"give at most {most_tokens}, or compile the model for longer texts (--dim)"
        raise UsageError(f"input {at} has {len(ids)} tokens, and the model takes {most_tokens}", fix=fix)
    length = max(len(ids), least)
    feeds: dict[str, Array] = {}
    for name, spec in specs.items():
        line = np.zeros((1, length), spec.numpy)
        if spec is tokens:
            line[0, : len(ids)] = ids
        elif name in MASK:
            line[0, : len(ids)] = 1
        elif "position" in name:
            line[0] = np.arange(length)
        elif "type" not in name and "segment" not in name:
            raise UsageError(f"the input {name!r} follows from no text", fix="call /v2/models/NAME/infer")
        feeds[name] = line
    if length > len(ids) and not any(name in MASK for name in feeds):
        raise UsageError(f"input {at} is shorter than the model takes, which has no mask", fix=f"give {least} tokens")
    return feeds


def _lengths(model: Model, name: str) -> tuple[int, int]:
    """The least and the most tokens of a text, over all bindings."""
    found = []
    for binding in model.bindings:
        tokens = next(spec for spec in binding.inputs if spec.name == name)
        axis = tokens.axes[1]
        found.append((tokens.shape[1], tokens.shape[1]) if axis is None else (axis.low, axis.high))
    return min(low for low, _ in found), max(high for _, high in found)


def _embedded(model: Model, feeds: Mapping[str, Array], pooling: str) -> Array:
    """A vector of length 1 in float32."""
    found = ran(model, feeds)
    name = next((one for one in SENTENCES if one in found), next(iter(found)))
    states = np.asarray(found[name], np.float32)
    if states.ndim == 3:
        mask = next((feeds[name] for name in MASK if name in feeds), np.ones(states.shape[:2]))
        kept = states[0, np.flatnonzero(mask[0])]
        states = {"mean": kept.mean(0), "cls": kept[0], "last": kept[-1]}[pooling][None]
    if states.ndim != 2:
        raise UsageError(f"the output {name!r} {states.shape} is no embedding", fix="serve an encoder of texts")
    length = max(float(np.linalg.norm(states[0])), 1e-12)
    return np.asarray(states[0] / length, np.float32)


def _coded(vector: Array, how: str) -> Any:
    little = vector.astype("<f4")
    return base64.b64encode(little.tobytes()).decode() if how == "base64" else little.tolist()


@dataclass(frozen=True)
class _Wanted:
    """A completion that was asked for."""

    ids: list[int]
    max_tokens: int
    temperature: float
    top_p: float
    seed: int
    stop: tuple[str, ...]


def _wanted(plain: Mapping[str, Any], words: Words) -> _Wanted:
    given = _given(plain.get("prompt"), words)
    if len(given) != 1 or plain.get("n", 1) != 1:
        raise UsageError("more than one completion is asked for", fix="send a request for each")
    stop = plain.get("stop") or []
    stop = [stop] if isinstance(stop, str) else stop
    if not isinstance(stop, list) or not all(isinstance(one, str) and one for one in stop):
        raise UsageError("`stop` is neither a text nor texts", fix="give texts that end the completion")
    numbers = {"max_tokens": MOST_TOKENS, "temperature": 0.0, "top_p": 1.0, "seed": 0}
    for name, usual in numbers.items():
        value = plain.get(name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise UsageError(f"{name} is {value!r}", fix="give a number")
        numbers[name] = usual if value is None else value
    return _Wanted(
        given[0],
        int(numbers["max_tokens"]),
        numbers["temperature"],
        numbers["top_p"],
        int(numbers["seed"]),
        tuple(stop),
    )


class _Writing:
    """A completion while it is written: pieces of text go from the thread that runs the model to who reads them."""

    def __init__(self, wanted: _Wanted, words: Words) -> None:
        self.tokens = 0
        self.finish = "length"
        self._wanted, self._words = wanted, words
        self._loop = asyncio.get_running_loop()
        self._pieces: asyncio.Queue[str | None] = asyncio.Queue()
        self._is_unread = threading.Event()

    def write(self, model: Model) -> None:
        """Runs the model to the end, or until nobody reads any more."""
        wanted, ends = self._wanted, self._words.ends()
        coming = generate(
            model,
            wanted.ids,
            max_tokens=wanted.max_tokens,
            temperature=wanted.temperature,
            top_p=wanted.top_p,
            seed=wanted.seed,
            stop=ends,
        )
        try:
            for piece in self._until_stopped(self._spoken(coming, ends)):
                self._loop.call_soon_threadsafe(self._pieces.put_nowait, piece)
                if self._is_unread.is_set():
                    return
        except model.errors as error:
            raise ClientError(str(error), status=500) from error

    def _spoken(self, coming: Iterator[int], ends: set[int]) -> Iterator[str]:
        pieces = Pieces(self._words)
        for token in coming:
            self.tokens += 1
            if token in ends:
                self.finish = "stop"
            else:
                yield pieces.add(token)
        yield pieces.rest()

    def _until_stopped(self, pieces: Iterator[str]) -> Iterator[str]:
        """The text up to the first of the texts that end it; what may become one is held back."""
        held = ""
        for piece in pieces:
            held += piece
            at = min((found for one in self._wanted.stop if (found := held.find(one)) >= 0), default=-1)
            if at >= 0:
                self.finish = "stop"
                yield held[:at]
                return
            keep = max((_begun(held, one) for one in self._wanted.stop), default=0)
            yield held[: len(held) - keep]
            held = held[len(held) - keep :]
        yield held

    async def read(self, served: Served) -> AsyncIterator[str]:
        """The pieces as they come. Raises `Busy`, and what the model raises."""
        running = asyncio.ensure_future(served.do(self.write))
        running.add_done_callback(lambda _: self._pieces.put_nowait(None))
        try:
            while (piece := await self._pieces.get()) is not None:
                if piece:
                    yield piece
            await running
        finally:
            self._is_unread.set()
            running.cancel()


def _begun(text: str, stop: str) -> int:
    """How many characters at the end of a text begin this one."""
    return next((count for count in range(min(len(text), len(stop) - 1), 0, -1) if stop.startswith(text[-count:])), 0)


async def completions(served: Served, texts: Texts, plain: Mapping[str, Any]) -> Response:
    """The answer to `/v1/completions`, whole or, with `stream`, piece by piece as server-sent events."""
    wanted = _wanted(plain, texts.words)
    writing = _Writing(wanted, texts.words)
    head = {"id": f"cmpl-{uuid.uuid4().hex}", "object": "text_completion", "created": int(time.time())}
    head |= {"model": served.name}

    def part(text: str, finish: str | None, **more: Any) -> dict[str, Any]:
        return {**head, "choices": [{"index": 0, "text": text, "logprobs": None, "finish_reason": finish}], **more}

    def usage() -> dict[str, int]:
        prompt = len(wanted.ids)
        return {
            "prompt_tokens": prompt,
            "completion_tokens": writing.tokens,
            "total_tokens": prompt + writing.tokens,
        }

    pieces = writing.read(served)
    if not plain.get("stream"):
        text = "".join([piece async for piece in pieces])
        return JSONResponse(part(text, writing.finish, usage=usage()))
    first = await anext(pieces, "")  # what refuses the request does so before an answer has begun

    async def events() -> AsyncIterator[str]:
        try:
            yield _event(part(first, None))
            async for piece in pieces:
                yield _event(part(piece, None))
            yield _event(part("", writing.finish, usage=usage()))
        except ClientError as error:
            yield _event({"error": {"message": error.message, "type": error.code}})
        yield "data: [DONE]\n\n"

    return StreamingResponse(events(), media_type="text/event-stream")


def _event(plain: Mapping[str, Any]) -> str:
    return f"data: {json.dumps(plain, separators=(',', ':'))}\n\n"

"""Texts that decoders go on with, as OpenAI's API has them: `/v1/completions` and `/v1/chat/completions`."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from starlette.responses import JSONResponse, Response, StreamingResponse

from tilewright.errors import ClientError, UsageError
from tilewright.generation.generate import MOST_TOKENS, generate
from tilewright.generation.words import Pieces, Words
from tilewright.loading import Model
from tilewright.serving.openai import Texts, given
from tilewright.serving.served import Served


@dataclass(frozen=True)
class _Wanted:
    """A completion that was asked for."""

    ids: list[int]
    max_tokens: int
    temperature: float
    top_p: float
    seed: int
    stop: tuple[str, ...]


def _wanted(plain: Mapping[str, Any], prompts: list[list[int]]) -> _Wanted:
    if len(prompts) != 1 or plain.get("n", 1) != 1:
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
        prompts[0],
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

    async def read(self, served: Served) -> AsyncGenerator[str]:
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


@dataclass(frozen=True)
class _Form:
    """How an answer is written.

    whole, pieces  the kind of an answer at once, and of one that comes in pieces
    choice         a text as it stands in the first
    piece          a piece of it in the second, by whether it is the first one
    """

    id: str
    whole: str
    pieces: str
    choice: Callable[[str], dict[str, Any]]
    piece: Callable[[str, bool], dict[str, Any]]


COMPLETION = _Form(
    "cmpl",
    "text_completion",
    "text_completion",
    lambda text: {"text": text},
    lambda text, _: {"text": text},
)
CHAT = _Form(
    "chatcmpl",
    "chat.completion",
    "chat.completion.chunk",
    lambda text: {"message": {"role": "assistant", "content": text}},
    lambda text, is_first: {"delta": {"content": text} | ({"role": "assistant"} if is_first else {})},
)


async def completions(served: Served, texts: Texts, plain: Mapping[str, Any], _caller: str = "") -> Response:
    """The answer to `/v1/completions`, whole or, with `stream`, piece by piece as server-sent events."""
    return await _answer(served, texts, plain, given(plain.get("prompt"), texts.words), COMPLETION)


async def chat(served: Served, texts: Texts, plain: Mapping[str, Any], _caller: str = "") -> Response:
    """The answer to `/v1/chat/completions`: what the model says after these messages."""
    if texts.chat is None:
        fix = "put its chat_template.jinja or tokenizer_config.json beside tokenizer.json, or call /v1/completions"
        raise UsageError(f"the model {served.name} was given no template of chats", fix=fix)
    prompt = texts.words.ids(texts.chat.prompt(plain.get("messages")), is_whole=False)
    return await _answer(served, texts, plain, [prompt], CHAT)


async def _answer(
    served: Served, texts: Texts, plain: Mapping[str, Any], prompts: list[list[int]], form: _Form
) -> Response:
    wanted = _wanted(plain, prompts)
    writing = _Writing(wanted, texts.words)
    head = {"id": f"{form.id}-{uuid.uuid4().hex}", "created": int(time.time()), "model": served.name}

    def part(object: str, choice: dict[str, Any], finish: str | None) -> dict[str, Any]:
        choice = {"index": 0, "logprobs": None, "finish_reason": finish, **choice}
        return {**head, "object": object, "choices": [choice]}

    def usage() -> dict[str, Any]:
        prompt, written = len(wanted.ids), writing.tokens
        return {"usage": {"prompt_tokens": prompt, "completion_tokens": written, "total_tokens": prompt + written}}

    pieces = writing.read(served)
    if not plain.get("stream"):
        text = "".join([piece async for piece in pieces])
        return JSONResponse(part(form.whole, form.choice(text), writing.finish) | usage())
    first = await anext(pieces, "")  # what refuses the request does so before an answer has begun

    async def events() -> AsyncIterator[str]:
        async with contextlib.aclosing(pieces):
            try:
                yield _event(part(form.pieces, form.piece(first, True), None))
                async for piece in pieces:
                    yield _event(part(form.pieces, form.piece(piece, False), None))
                yield _event(part(form.pieces, form.piece("", False), writing.finish) | usage())
            except ClientError as error:
                yield _event({"error": {"message": error.message, "type": error.code}})
            yield "data: [DONE]\n\n"

    return StreamingResponse(events(), media_type="text/event-stream")


def _event(plain: Mapping[str, Any]) -> str:
    return f"data: {json.dumps(plain, separators=(',', ':'))}\n\n"

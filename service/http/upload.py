"""Take the body of `POST /compile` in as it streams: the model goes to a blob, hashed on the way, never to memory."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

import anyio.to_thread
from fastapi import Request
from python_multipart import MultipartParser
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import parse_options_header

from compiler.contract import CompileOptions
from compiler.errors import OptionsError
from service.blobs.local import Blobs, BlobWriter, StoredBlob
from service.db.plain import storable
from service.errors import BadRequest, BodyTooLarge

MAX_OPTIONS_BYTES = 1 << 20
ENVELOPE_BYTES = 64 << 10
"""What boundaries and part headers may add to a multipart body."""
GATHER_BYTES = 1 << 20
"""Chunks are gathered to this size before a thread writes them."""

RAW_TYPES = ("application/octet-stream", "application/onnx", "application/x-onnx")
MULTIPART = "multipart/form-data"


@dataclass(frozen=True)
class Upload:
    """A model in the blob store, and the options that came with it."""

    model: StoredBlob
    options: CompileOptions


async def receive(request: Request, blobs: Blobs, *, options: str | None, limit: int) -> Upload:
    """Read the body. `options` is the query parameter, for a body that is the model and nothing else.

    Raises `BodyTooLarge` (also at once, when the announced length says so), `BadRequest` for a body of another
    form, `OptionsError` and `StorageUnavailable`.
    """
    kind, parameters = parse_options_header(request.headers.get("content-type") or RAW_TYPES[0])
    media = kind.decode("latin-1")
    given = None if options is None else parse_options(options.encode("utf-8", "surrogatepass"))
    announced = request.headers.get("content-length", "")
    slack = MAX_OPTIONS_BYTES + ENVELOPE_BYTES if media == MULTIPART else 0
    if announced.isdigit() and int(announced) > limit + slack:
        raise BodyTooLarge(
            f"the body is announced with {announced} bytes, more than the {limit} allowed",
            fix="send a smaller model, or raise TILEWRIGHT_MAX_MODEL_BYTES",
            details={"limit_bytes": limit},
        )
    writer = await anyio.to_thread.run_sync(lambda: blobs.writer(limit))
    with writer:
        if media == MULTIPART:
            parts = _Parts(writer, parameters.get(b"boundary"))
            await _pour(request, parts.feed)
            given = parts.options(given)
        elif media in RAW_TYPES:
            await _pour(request, writer.write)
        else:
            raise BadRequest(f"a body of type {media!r} is not understood", fix=f"send {MULTIPART} or {RAW_TYPES[0]}")
        if writer.size == 0:
            raise BadRequest("the model is missing or empty", fix="send its bytes as the part 'model', or as the body")
        return Upload(await anyio.to_thread.run_sync(writer.commit), given or CompileOptions())


def parse_options(text: bytes) -> CompileOptions:
    """Options from JSON text. Raises `OptionsError`."""
    if len(text) > MAX_OPTIONS_BYTES:
        raise BodyTooLarge(f"the options are larger than {MAX_OPTIONS_BYTES} bytes", fix="name fewer inputs")
    try:
        plain = json.loads(text.decode(), parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise OptionsError(f"options are not JSON: {error}", fix='send an object such as {"target": "cpu"}') from error
    if storable(plain) != plain:
        raise OptionsError("options hold U+0000, half a surrogate pair or an infinite number", fix="leave them out")
    return CompileOptions.from_json(plain)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number in JSON")


async def _pour(request: Request, write: Callable[[bytes], None]) -> None:
    gathered = bytearray()
    async for chunk in request.stream():
        gathered += chunk
        if len(gathered) >= GATHER_BYTES:
            await anyio.to_thread.run_sync(write, bytes(gathered))
            gathered.clear()
    if gathered:
        await anyio.to_thread.run_sync(write, bytes(gathered))


class _Parts:
    """The parts of a multipart body as the parser meets them: `model` to the blob, `options` to memory."""

    def __init__(self, model: BlobWriter, boundary: bytes | None) -> None:
        if not boundary:
            raise BadRequest("the multipart body has no boundary", fix="let the HTTP client set the Content-Type")
        self._model = model
        self._options = bytearray()
        self._seen: set[str] = set()
        self._part = ""
        self._field = b""
        self._value = b""
        self._complete = False
        callbacks: dict[str, Any] = {
            "on_part_begin": self._begin,
            "on_header_field": self._header_field,
            "on_header_value": self._header_value,
            "on_header_end": self._header_end,
            "on_part_data": self._data,
            "on_end": self._end,
        }
        self._parser = MultipartParser(boundary, callbacks)  # type: ignore[arg-type]

    def feed(self, chunk: bytes) -> None:
        """Parse more of the body."""
        try:
            self._parser.write(chunk)
        except FormParserError as error:
            raise BadRequest(f"the multipart body is malformed: {error}", fix="let an HTTP client write it") from error

    def options(self, given: CompileOptions | None) -> CompileOptions | None:
        """The options once the body has ended; from the query when there was no such part."""
        if not self._complete:
            raise BadRequest("the multipart body is cut off", fix="send it again, whole")
        if "options" not in self._seen:
            return given
        if given is not None:
            raise BadRequest("options were given twice", fix="give them as a part or in the query, not both")
        return parse_options(bytes(self._options))

    def _begin(self) -> None:
        self._part, self._field, self._value = "", b"", b""

    def _header_field(self, data: bytes, start: int, end: int) -> None:
        self._field += data[start:end]

    def _header_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def _header_end(self) -> None:
        if self._field.lower() == b"content-disposition":
            _, parameters = parse_options_header(self._value)
            self._part = parameters.get(b"name", b"").decode("latin-1")
            if self._part not in ("model", "options"):
                raise BadRequest(f"unknown part {self._part!r}", fix="send the parts 'model' and 'options' only")
            if self._part in self._seen:
                raise BadRequest(f"part {self._part!r} was sent twice", fix="send it once")
            self._seen.add(self._part)
        self._field, self._value = b"", b""

    def _data(self, data: bytes, start: int, end: int) -> None:
        if self._part == "model":
            self._model.write(data[start:end])
        elif self._part == "options":
            self._options += data[start:end]
            if len(self._options) > MAX_OPTIONS_BYTES:
                raise BodyTooLarge(f"the options are larger than {MAX_OPTIONS_BYTES} bytes", fix="name fewer inputs")
        else:
            raise BadRequest("a part has no name", fix="send the parts 'model' and 'options'")

    def _end(self) -> None:
        self._complete = True

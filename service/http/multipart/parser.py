"""The form of a multipart body (RFC 7578): its parts one after the other, as the bytes come."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from python_multipart import MultipartParser
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import parse_options_header

from service.errors import BadRequest


class Multipart:
    """Calls `begin` for each part, `data` with its bytes, and `end` after them.

    `begin` gets name and filename of the part, "" where there is none.
    """

    def __init__(
        self,
        boundary: bytes | None,
        *,
        begin: Callable[[str, str], None],
        data: Callable[[bytes], None],
        end: Callable[[], None],
    ) -> None:
        if not boundary:
            raise BadRequest("the multipart body has no boundary", fix="let the HTTP client set the Content-Type")
        self._begin = begin
        self._name = self._filename = ""
        self._field = self._value = b""
        self._complete = False
        callbacks: dict[str, Any] = {
            "on_part_begin": self._reset,
            "on_header_field": self._header_field,
            "on_header_value": self._header_value,
            "on_header_end": self._header_end,
            "on_headers_finished": self._headers_finished,
            "on_part_data": lambda block, start, stop: data(block[start:stop]),
            "on_part_end": end,
            "on_end": self._finish,
        }
        with _form_errors():
            self._parser = MultipartParser(boundary, callbacks)  # type: ignore[arg-type]

    def feed(self, chunk: bytes) -> None:
        """Parse more of the body. Raises `BadRequest`, and what the calls raise."""
        with _form_errors():
            self._parser.write(chunk)

    def demand_end(self) -> None:
        """Raises `BadRequest` unless the last part has ended."""
        if not self._complete:
            raise BadRequest("the multipart body is cut off", fix="send it again, whole")

    def _reset(self) -> None:
        self._name, self._filename, self._field, self._value = "", "", b"", b""

    def _header_field(self, data: bytes, start: int, end: int) -> None:
        self._field += data[start:end]

    def _header_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def _header_end(self) -> None:
        if self._field.lower() == b"content-disposition":
            _, parameters = parse_options_header(self._value)
            self._name = parameters.get(b"name", b"").decode("latin-1")
            self._filename = parameters.get(b"filename", b"").decode("utf-8", "surrogateescape")
        self._field, self._value = b"", b""

    def _headers_finished(self) -> None:
        self._begin(self._name, self._filename)

    def _finish(self) -> None:
        self._complete = True


@contextlib.contextmanager
def _form_errors() -> Iterator[None]:
    try:
        yield
    except FormParserError as error:
        raise BadRequest(f"the multipart body is malformed: {error}", fix="let an HTTP client write it") from error

"""Structured logs: one line per happening, with the ids of request and job bound to it.

A line that cannot be written (a full disk, a pipe that nobody reads) is dropped and counted: whoever writes it goes on.
"""

from __future__ import annotations

import functools
import io
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Hashable, MutableMapping
from typing import Any, TextIO

import structlog


def logger(name: str) -> Any:
    """A logger whose lines carry `name`; levels and rendering are decided by `configure`."""
    return structlog.get_logger(module=name)


class Unfailing(io.TextIOBase):
    """A text stream in place of another one, to which writing never raises. Thread-safe.

    Text goes out at once. Once lines can be written again a warning says how many were lost, and why.
    """

    def __init__(self, stream: TextIO | None) -> None:
        self.stream = stream
        self.lost = 0
        """Lines that could not be written, whole or in part."""
        self._untold, self._reason, self._torn = 0, "", False
        self._lock = threading.RLock()
        self._descriptor: int | None = None
        try:
            if stream is not None:
                self._descriptor = stream.fileno()
                stream.flush()
        except (OSError, ValueError):
            pass

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """As the other stream has it."""
        return getattr(self.stream, "encoding", None) or "utf-8"

    def writable(self) -> bool:
        """Always."""
        return True

    def fileno(self) -> int:
        """The other stream's. Raises `io.UnsupportedOperation` where it has none."""
        if self._descriptor is None:
            raise io.UnsupportedOperation("fileno")
        return self._descriptor

    def isatty(self) -> bool:
        """Whether it is a terminal."""
        return self._descriptor is not None and os.isatty(self._descriptor)

    def write(self, text: str) -> int:
        """Write, or drop and count."""
        with self._lock:
            try:
                self._send("\n" + text if self._torn else text)
            except (OSError, ValueError) as error:  # `ValueError`: the stream is closed
                lines = text.count("\n")
                self.lost += lines
                self._untold += lines
                self._reason = getattr(error, "strerror", None) or str(error)
            else:
                if text.endswith("\n"):
                    self._tell()
        return len(text)

    def flush(self) -> None:
        """Nothing waits to be written."""

    def _send(self, text: str) -> None:
        """Raises `OSError` and `ValueError`."""
        if self._descriptor is None:
            if self.stream is None:
                raise ValueError("there is no standard error")
            self.stream.write(text)
            self.stream.flush()
            return
        left = memoryview(text.encode(self.encoding, "backslashreplace"))
        while left:
            left = left[os.write(self._descriptor, left) :]
            self._torn = bool(left)

    def _tell(self) -> None:
        untold, self._untold, self._torn = self._untold, 0, False
        if untold:
            logger(__name__).warning("lines of this log were lost", lines=untold, reason=self._reason)
            if self._untold:  # the one that tells of it too
                self._untold += untold


class _Lines:
    """What structlog writes through. Without a lock of its own: a line may cause one."""

    def __init__(self, output: Unfailing, *names: object) -> None:
        self._output = output

    def msg(self, line: str) -> None:
        """Write one line."""
        self._output.write(line + "\n")

    debug = info = warning = error = critical = msg


_output = Unfailing(None)
"""What this process logs to."""


def lost() -> int:
    """Lines of its log that this process could not write."""
    return _output.lost


def unfailing(stream: TextIO | None) -> Unfailing:
    """The stream, which never raises from now on; one that never does stays as it is."""
    return stream if isinstance(stream, Unfailing) else Unfailing(stream)


def reset() -> None:
    """As before `configure`: plain lines, on standard error all the same, since standard output is for results."""
    structlog.reset_defaults()
    structlog.configure(logger_factory=lambda *_: structlog.PrintLogger(sys.stderr))


reset()


def configure(*, json_lines: bool, level: int = logging.INFO, **always: str) -> None:
    """Decide how log lines look, once per process: JSON for machines or text for people, on standard error.

    `always` stands on every line, whichever thread writes it. From now on writing to standard error raises nothing,
    also where the standard library's loggers do it.
    """

    def identify(logger: Any, method: str, line: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        return {**always, **line}

    global _output
    before, _output = sys.stderr, unfailing(sys.stderr)
    sys.stderr = _output
    _redirect(_output, (before, sys.__stderr__))
    plain = structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback)
    rendering: list[Any] = [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    structlog.configure(
        processors=[
            identify,
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *(rendering if json_lines else [plain]),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=functools.partial(_Lines, _output),
        cache_logger_on_first_use=True,
    )


def _redirect(output: Unfailing, streams: tuple[TextIO | None, ...]) -> None:
    """Let handlers of the standard library that write to one of these streams write to `output`."""
    for each in (logging.getLogger(), *(logging.getLogger(name) for name in tuple(logging.root.manager.loggerDict))):
        for handler in each.handlers:
            if isinstance(handler, logging.StreamHandler) and any(handler.stream is stream for stream in streams):
                handler.setStream(output)


class Seldom:
    """Lets so many lines of each kind through in so many seconds, and counts the others. Thread-safe."""

    MOST_KINDS = 1000
    """Kinds that are told apart; further ones count as one."""

    def __init__(self, most: int, within_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._most, self._within_s, self._clock = most, within_s, clock
        self._lock = threading.Lock()
        self._kinds: dict[Hashable, tuple[float, int]] = {}

    def passes(self, kind: Hashable) -> int | None:
        """None: leave this line out. Else how many lines of its kind were left out since the last one."""
        with self._lock:
            if kind not in self._kinds and len(self._kinds) >= self.MOST_KINDS:
                kind = None
            now = self._clock()
            since, lines = self._kinds.get(kind, (now, 0))
            if now - since < self._within_s and lines >= self._most:
                self._kinds[kind] = (since, lines + 1)
                return None
            if now - since >= self._within_s:
                left_out, since, lines = max(0, lines - self._most), now, 0
            else:
                left_out = 0
            self._kinds[kind] = (since, lines + 1)
            return left_out

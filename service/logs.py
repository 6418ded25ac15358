"""Structured logs: one line per happening, with the ids of request and job bound to it."""

from __future__ import annotations

import logging
import sys
from collections.abc import MutableMapping
from typing import Any

import structlog


def logger(name: str) -> Any:
    """A logger whose lines carry `name`; levels and rendering are decided by `configure`."""
    return structlog.get_logger(module=name)


# Of a process that does not call `configure` too: standard output is for results.
structlog.configure(logger_factory=lambda *_: structlog.PrintLogger(sys.stderr))


def configure(*, json_lines: bool, level: int = logging.INFO, **always: str) -> None:
    """Decide how log lines look, once per process: JSON for machines or text for people, on standard error.

    `always` stands on every line, whichever thread writes it.
    """

    def identify(logger: Any, method: str, line: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        return {**always, **line}

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
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )

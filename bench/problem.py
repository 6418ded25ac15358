"""What went wrong with one model, in one line of a table."""

from __future__ import annotations

from typing import Protocol


class Reason(Protocol):
    """An error of the compiler or the client; `fix` may be empty."""

    message: str
    fix: str


def problem(error: Reason) -> str:
    """`threads is 0. Fix: use 1 to 256`."""
    return f"{error.message}. Fix: {error.fix}" if error.fix else error.message

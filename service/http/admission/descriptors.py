"""How many files and sockets this process may have open."""

from __future__ import annotations

import resource

RESERVED = 400
"""Descriptors for what is not a connection of a caller: database, blobs, preflights, logs."""


def raise_limit() -> None:
    """Allow this process, and those that it starts, as many descriptors as the system lets it."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def for_connections() -> int:
    """How many connections there are descriptors for."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(soft - RESERVED, soft // 2)

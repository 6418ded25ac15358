"""Which server to talk to: the first that is given.

The order: the arguments `url` and `key`; the argument `profile`; `TILEWRIGHT_URL`; `TILEWRIGHT_PROFILE`; the profile in
use; the server that `tilewright up` runs on this machine. `TILEWRIGHT_API_KEY` is for a server that brings no key of
its own.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path

from tilewright import profiles
from tilewright.errors import ServerUnreachable

READY_FILE = "ready.json"
"""In the data folder, while `tilewright up` is ready: `url`, `key_file`, `pid`."""


@dataclass(frozen=True)
class Server:
    """Where a server is, and the key it lets us in with (empty: none)."""

    url: str
    key: str = field(repr=False)


def data_dir() -> Path:
    """Where `tilewright up` keeps its data: `TILEWRIGHT_DATA_DIR`, else below the user's XDG data folder."""
    if chosen := os.environ.get("TILEWRIGHT_DATA_DIR"):
        return Path(chosen)
    home = os.environ.get("XDG_DATA_HOME", "")
    return (Path(home) if os.path.isabs(home) else Path.home() / ".local" / "share") / "tilewright"


def find_server(url: str = "", key: str = "", profile: str = "") -> Server:
    """The server to use.

    Raises `ServerUnreachable` when none is known, `UsageError` for a profile that is not there.
    """
    general = key or os.environ.get("TILEWRIGHT_API_KEY", "")
    if not profile and (address := url or os.environ.get("TILEWRIGHT_URL", "")):
        return Server(address, general)
    known = profiles.load()
    if name := profile or os.environ.get("TILEWRIGHT_PROFILE", "") or known.used:
        chosen = known.get(name)
        # A profile's key is for the profile's address alone.
        return Server(url, general) if url else Server(chosen.url, key or chosen.read_key() or general)
    try:
        ready = json.loads((data_dir() / READY_FILE).read_text())
        return Server(ready["url"], key or Path(ready["key_file"]).read_text().strip())
    except (OSError, ValueError, KeyError, TypeError):
        raise ServerUnreachable(
            "no server is known",
            fix="start one with `tilewright up`, name one with `tilewright profiles add`, or set TILEWRIGHT_URL and "
            "TILEWRIGHT_API_KEY",
        ) from None

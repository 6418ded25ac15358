"""Which server to talk to: `TILEWRIGHT_URL` and `TILEWRIGHT_API_KEY`, else the one that `tilewright up` runs here."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

from tilewright.errors import ServerUnreachable

READY_FILE = "ready.json"
"""In the data folder, while `tilewright up` is ready: `url`, `key_file`, `pid`."""


@dataclass(frozen=True)
class Server:
    """Where a server is, and the key it lets us in with (empty: none)."""

    url: str
    key: str


def data_dir() -> Path:
    """Where `tilewright up` keeps its data: `TILEWRIGHT_DATA_DIR`, else below the user's XDG data folder."""
    if chosen := os.environ.get("TILEWRIGHT_DATA_DIR"):
        return Path(chosen)
    home = os.environ.get("XDG_DATA_HOME", "")
    return (Path(home) if os.path.isabs(home) else Path.home() / ".local" / "share") / "tilewright"


def find_server(url: str = "", key: str = "") -> Server:
    """The server to use; what is given goes first. Raises `ServerUnreachable` when none is known."""
    url = url or os.environ.get("TILEWRIGHT_URL", "")
    key = key or os.environ.get("TILEWRIGHT_API_KEY", "")
    if url:
        return Server(url, key)
    try:
        ready = json.loads((data_dir() / READY_FILE).read_text())
        return Server(ready["url"], key or Path(ready["key_file"]).read_text().strip())
    except (OSError, ValueError, KeyError, TypeError):
        raise ServerUnreachable(
            "no server is known", fix="start one with `tilewright up`, or set TILEWRIGHT_URL and TILEWRIGHT_API_KEY"
        ) from None

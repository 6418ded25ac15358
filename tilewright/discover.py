"""Which server to talk to: the first that is given.

The order: the arguments `url` and `key`; the argument `profile`; `TILEWRIGHT_URL`; `TILEWRIGHT_PROFILE`; the profile in
use; the newest of the servers that `tilewright up` runs on this machine, or with `TILEWRIGHT_DATA_DIR` the one of that
data folder. `TILEWRIGHT_API_KEY` is for a server that brings no key of its own. A server that is still starting is
waited for.
"""

from __future__ import annotations

import json
import logging
import os
import time
from dataclasses import dataclass, field
from pathlib import Path

from tilewright import profiles, running
from tilewright.errors import ServerUnreachable
from tilewright.running import Running

READY_FILE = "ready.json"
"""In the data folder, while `tilewright up` is ready: `url`, `key_file`, `pid`."""
START_S = 180.0
"""How long a server that starts is waited for."""
_POLL_S = 0.1
_log = logging.getLogger("tilewright")
"""Its warnings go to standard error, unless the program that imports this says otherwise."""


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

    One of this machine that is starting is waited for, at most `START_S`, and that is said in the log `tilewright`.

    Raises `ServerUnreachable` when none is known, or one that was starting ended or takes too long; `UsageError` for a
    profile that is not there.
    """
    general = key or os.environ.get("TILEWRIGHT_API_KEY", "")
    if not profile and (address := url or os.environ.get("TILEWRIGHT_URL", "")):
        return Server(address, general)
    known = profiles.load()
    if name := profile or os.environ.get("TILEWRIGHT_PROFILE", "") or known.used:
        chosen = known.get(name)
        # A profile's key is for the profile's address alone.
        return Server(url, general) if url else Server(chosen.url, key or chosen.read_key() or general)
    if (here := _newest()) is not None:
        return Server(here.url, key or _key(here))
    try:
        ready = json.loads((data_dir() / READY_FILE).read_text())
        return Server(ready["url"], key or Path(ready["key_file"]).read_text().strip())
    except (OSError, ValueError, KeyError, TypeError):
        raise ServerUnreachable(
            "no server is known",
            fix="start one with `tilewright up`, name one with `tilewright profiles add`, or set TILEWRIGHT_URL and "
            "TILEWRIGHT_API_KEY",
        ) from None


def _newest() -> Running | None:
    """The server of this machine to use, once it is ready. Raises `ServerUnreachable`."""
    chosen = Path(asked).resolve() if (asked := os.environ.get("TILEWRIGHT_DATA_DIR")) else None
    found = running.alive(chosen)
    if not found:
        return None
    if len(found) > 1:
        others = ", ".join(f"{one.url} (data in {one.data})" for one in found[1:])
        _log.warning("using the newest server of this machine, %s (data in %s); there is also %s: "
                     "choose with --url, or TILEWRIGHT_DATA_DIR", found[0].url, found[0].data, others)  # fmt: skip
    return found[0] if found[0].ready else _started(found[0])


def _started(server: Running) -> Running:
    """The server, when it has become ready. Raises `ServerUnreachable`."""
    _log.warning("the server at %s (pid %d) is starting, and waited for; Ctrl-C stops waiting", server.url, server.pid)
    fix = f"see its logs in {Path(server.data) / 'logs'}"
    until = time.monotonic() + START_S
    while time.monotonic() < until:
        same = [one for one in running.alive(Path(server.data)) if one.pid == server.pid]
        if not same:
            raise ServerUnreachable(f"the server at {server.url} ended while it started", fix=fix)
        if same[0].ready:
            return same[0]
        time.sleep(_POLL_S)
    raise ServerUnreachable(
        f"the server at {server.url} (pid {server.pid}) is not ready after {START_S:.0f} s", fix=fix
    )


def _key(server: Running) -> str:
    """Raises `ServerUnreachable` where it cannot be read."""
    try:
        return Path(server.key_file).read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ServerUnreachable(
            f"the key of the server at {server.url} cannot be read: {error}", fix="give it with TILEWRIGHT_API_KEY"
        ) from error

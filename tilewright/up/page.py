"""The link with which the user's browser opens the page signed in, once."""

from __future__ import annotations

import os
import sys
import webbrowser
from pathlib import Path

DISPLAYS = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")


def link(url: str, key_file: Path) -> str:
    """A link to the page of the service at `url`, for whoever opens it first; its address alone where none is made."""
    import httpx  # the command line is read before anything of the network is loaded

    try:
        headers = {"Authorization": f"Bearer {key_file.read_text().strip()}"}
        answer = httpx.post(f"{url}/session/links", headers=headers, timeout=10.0, trust_env=False)
        return url + str(answer.raise_for_status().json()["link"])
    except (OSError, ValueError, KeyError, httpx.HTTPError):
        return url


def show(address: str) -> bool:
    """Open an address in the user's browser; False where there is none with a window."""
    if sys.platform.startswith("linux") and not any(os.environ.get(name) for name in DISPLAYS):
        return False  # a browser of the terminal would take it away from `up`
    try:
        return webbrowser.open(address)
    except webbrowser.Error:
        return False

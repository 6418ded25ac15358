"""Models by address: `hf://owner/repo/file.onnx` and `https://...`, fetched here, with their external data.

A server reads no addresses: who asks for a model fetches it, with its own rights, and sends the bytes. Files of the
Hugging Face Hub come through its library, with its cache and tokens; others are kept in the user's cache and asked for
anew by their ETag.
"""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote, urljoin, urlsplit

from tilewright.errors import ServerUnreachable, UsageError
from tilewright.external import external_data
from tilewright.extras import require
from tilewright.files import whole

if TYPE_CHECKING:
    import httpx

SCHEMES = ("hf://", "https://")
_HUB = re.compile(r"hf://(?P<repo>[^/@\s]+/[^/@\s]+)(?:@(?P<revision>[^/\s]+))?/(?P<file>[^\s]+)")
CONNECT_S = 10.0
READ_S = 60.0
"""Of silence, after which a server counts as gone."""


def is_address(model: object) -> bool:
    """Whether it is one of a model that is to be fetched."""
    return isinstance(model, str) and model.startswith(SCHEMES)


def name_of(address: str) -> str:
    """The name of the file at an address."""
    path = address if address.startswith("hf://") else unquote(urlsplit(address).path)
    return PurePosixPath(path).name or "model.onnx"


def fetched(address: str) -> Path:
    """The file at an address, with its external data beside it; what is there already is not fetched again.

    Raises `UsageError` for an address that is none, a file that is not there or not permitted, and where the library of
    the Hub is not installed; `ServerUnreachable` where a server does not answer.
    """
    return _from_hub(address) if address.startswith("hf://") else _from_web(address)


def folder() -> Path:
    """Where files of the web are kept: `$XDG_CACHE_HOME/tilewright/sources`."""
    home = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(home) if os.path.isabs(home) else Path.home() / ".cache") / "tilewright" / "sources"


def _from_hub(address: str) -> Path:
    """`hf://owner/repo@revision/path`, where the revision may be left out."""
    found = _HUB.fullmatch(address)
    if found is None:
        raise UsageError(f"{address!r} names no file of the Hub", fix="write hf://owner/repo/path/to/model.onnx")
    require("hub", f"fetching {address}")
    import huggingface_hub

    file = PurePosixPath(found["file"])

    def fetch(path: PurePosixPath) -> Path:
        try:
            return Path(huggingface_hub.hf_hub_download(found["repo"], str(path), revision=found["revision"]))
        except (OSError, ValueError) as error:
            said = str(error).strip().partition("\n")[0] or type(error).__name__
            raise UsageError(
                f"cannot fetch {path} of {found['repo']}: {said}",
                fix="check the name; what is not public needs a token: `hf auth login`, or HF_TOKEN",
            ) from error

    model = fetch(file)
    for name in _data(model, address):
        fetch(file.parent / name)
    return model


def _from_web(address: str) -> Path:
    import httpx

    place = folder() / hashlib.sha256(address.encode()).hexdigest()[:32]
    timeout = httpx.Timeout(READ_S, connect=CONNECT_S)
    try:
        place.mkdir(parents=True, exist_ok=True, mode=0o700)
        with httpx.Client(follow_redirects=True, timeout=timeout) as client:
            model = _kept(client, address, place / name_of(address))
            for name in _data(model, address):
                target = place / name
                target.parent.mkdir(parents=True, exist_ok=True)
                _kept(client, urljoin(address, quote(str(name))), target)
    except httpx.HTTPError as error:
        raise ServerUnreachable(f"cannot fetch {address}: {error}", fix="check the address and the network") from error
    except OSError as error:
        raise UsageError(f"cannot keep {address} in {place}: {error.strerror}", fix="set XDG_CACHE_HOME") from error
    return model


def _kept(client: httpx.Client, address: str, target: Path) -> Path:
    """A file that is as the server has it now, fetched unless it is so already."""
    note = target.with_name(f".{target.name}.etag")
    known = note.read_text() if note.exists() and target.exists() else ""
    with client.stream("GET", address, headers={"If-None-Match": known} if known else {}) as answer:
        if answer.url.scheme != "https":
            raise UsageError(f"{address} leads to {answer.url}, which is not https", fix="fetch it yourself")
        if answer.status_code == 304 and known:
            return target
        if not answer.is_success:
            raise UsageError(f"{address} answered {answer.status_code}", fix="check the address")
        note.unlink(missing_ok=True)
        with whole(target) as file:
            for piece in answer.iter_bytes():
                file.write(piece)
        if etag := answer.headers.get("etag", ""):
            note.write_text(etag)
    return target


def _data(model: Path, address: str) -> list[PurePosixPath]:
    """The external data that a model names, below its folder. Raises `UsageError` for what lies elsewhere."""
    if model.suffix.lower() == ".zip":
        return []
    try:
        named = [PurePosixPath(location.replace("\\", "/")) for location in external_data(model)]
    except ValueError as error:
        raise UsageError(f"{address} is no ONNX file: {error}", fix="give the address of the file itself") from error
    if outside := [path for path in named if path.is_absolute() or ".." in path.parts or "\0" in str(path)]:
        raise UsageError(
            f"{address} names {str(outside[0])!r} as external data, which is not below its folder",
            fix="fetch the files yourself, and put the data beside the model",
        )
    return named
